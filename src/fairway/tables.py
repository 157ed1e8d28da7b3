"""A small table that can be shown as plain text, for `print`, and as HTML, for a notebook.

The HTML has no colours and no scripts, so it follows the notebook's theme, light or dark. Every text is escaped, and
MathJax, which a notebook runs over its outputs, is told to leave it alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fairway.text import plus_minus, shown

_LONGEST = 300  # characters of a cell
_LOOK = "text-align:left;vertical-align:top;padding:.15em .9em .15em 0"
_HEAD, _CELL = f' style="{_LOOK};white-space:nowrap"', f' style="{_LOOK}"'


class Table(NamedTuple):
    """A title, rows of equal length, the names of the columns if they need any, and a sentence below.

    >>> print(Table("trial 3, step 20", [("metric", "loss", "0.41"), ("", "gap", "0.042")]).text())
    trial 3, step 20
    metric  loss  0.41
            gap   0.042
    """

    title: str
    rows: Sequence[Sequence[str]]
    columns: Sequence[str] = ()
    note: str = ""

    def text(self) -> str:
        """The table as lines with aligned columns."""
        cells = [[shown(cell, _LONGEST) for cell in row] for row in (self.columns, *self.rows) if row]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join([shown(self.title), *lines, *([shown(self.note, 2 * _LONGEST)] if self.note else [])])

    def html(self) -> str:
        """A table for a notebook.

        >>> "&lt;b&gt;" in Table("a title", [("<b>", "1")]).html()
        True
        """
        head = f"<tr>{''.join(f'<th{_HEAD}>{_escaped(name)}</th>' for name in self.columns)}</tr>" * bool(self.columns)
        body = "".join(f"<tr>{_cells(row)}</tr>" for row in self.rows)
        title = f'<caption style="text-align:left;font-weight:bold">{_escaped(self.title)}</caption>'
        note = f"<p>{_escaped(self.note, 2 * _LONGEST)}</p>" if self.note else ""
        return f'<div class="mathjax_ignore tex2jax_ignore"><table>{title}{head}{body}</table>{note}</div>'


def _cells(row: Sequence[str]) -> str:
    first, *others = row
    return f"<th{_HEAD}>{_escaped(first)}</th>" + "".join(f"<td{_CELL}>{_escaped(cell)}</td>" for cell in others)


def _escaped(text: str, most: int = _LONGEST) -> str:
    return html.escape(shown(text, most))


def metric_rows(metrics: Mapping[str, float | None], errors: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Rows for metrics, with the errors that are known.

    >>> metric_rows({"auc": 0.91234, "eod": None}, {})
    [('metric', 'auc', '0.9123'), ('', 'eod', 'not measured')]
    """
    values = ("not measured" if v is None else plus_minus(v, errors.get(name)) for name, v in metrics.items())
    return group("metric", zip(metrics, values, strict=True))


def param_rows(params: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rows for a configuration, with its values in full, as one would type them.

    >>> param_rows({"rate": 0.1638794259})
    [('parameter', 'rate', '0.1638794259')]
    """
    return group("parameter", ((name, str(value)) for name, value in params.items()))


def group(kind: str, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Rows of names and values; the first row names their kind."""
    return [("" if i else kind, str(name), value) for i, (name, value) in enumerate(pairs)]
