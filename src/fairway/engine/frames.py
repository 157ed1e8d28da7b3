"""Trials as a table of pandas, polars or Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from fairway.errors import MissingDependency, UsageError

_WIDEST = 2**63  # whole numbers from here on, or below its negative, do not fit a column

Library: TypeAlias = Literal["pandas", "polars", "pyarrow"]


def frame(rows: Sequence[Mapping[str, Any]], library: Library) -> Any:
    """A table of rows that have the same columns; in pandas, the trial's number is the index."""
    if library not in ("pandas", "polars", "pyarrow"):
        raise UsageError(f"to_frame({library!r}): 'pandas', 'polars' or 'pyarrow' is expected")
    rows = [{name: _whole(value) for name, value in row.items()} for row in rows]
    try:
        if library == "pandas":
            import pandas as pd  # noqa: PLC0415 - optional

            return pd.DataFrame(rows).set_index("number") if rows else pd.DataFrame()
        columns = {name: _alike([row[name] for row in rows]) for name in rows[0]} if rows else {}
        if library == "polars":
            import polars as pl  # noqa: PLC0415 - optional

            return pl.DataFrame(columns)
        import pyarrow as pa  # noqa: PLC0415 - optional

        return pa.table(columns)
    except ImportError:
        raise MissingDependency(f"to_frame needs {library}: pip install {library}") from None


def _whole(value: Any) -> Any:
    """A text with lone surrogates escaped, so that it can be encoded; anything else unchanged."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _alike(column: list[Any]) -> list[Any]:
    """A column of one type: whole numbers beside others become floats, and any other mixture becomes text.

    Whole numbers beyond 64 bits become text too.
    """
    kinds = {type(value) for value in column if value is not None}
    if int in kinds and any(type(value) is int and not -_WIDEST <= value < _WIDEST for value in column):
        kinds.add(str)
    if len(kinds) <= 1:
        return column
    kind = float if kinds == {int, float} else str
    return [None if value is None else kind(value) for value in column]
