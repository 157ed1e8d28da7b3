"""A picture as data: panels with axes and marks. A browser (`interactive`) or a file (`still`) draws it later.

Nothing here imports plotly or matplotlib before it is asked for, and `Chart.plotly()` needs neither.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.errors import MissingDependency, UsageError
from fairway.report import files, interactive, still, templates
from fairway.report.marks import Area, Axis, Bars, Limit, Line, Panel, Points, Tiles, Words, grid
from fairway.text import counted, shown

__all__ = ["Area", "Axis", "Bars", "Chart", "Limit", "Line", "Panel", "Points", "Tiles", "Words"]


@dataclass(frozen=True, eq=False)
class Chart:
    """A picture: `fairway.report.plots` makes them, a notebook shows them.

    `name` is a slug, `caption` a sentence that says what one sees; `height` is in pixels. `moves` is what a page needs
    to move the limits in it, as JSON.

    >>> from fairway.report.chart import Axis, Chart, Line, Panel
    >>> line = Line([1, 2, 3], [0.9, float("nan"), 0.8], name="loss")
    >>> chart = Chart("loss", "Loss", "It falls.", [Panel(Axis("trial"), Axis("loss"), [line])])
    >>> chart
    Chart('loss', 1 panel)
    >>> chart.plotly()["data"][0]["y"]
    [0.9, None, 0.8]
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    height: int | None = None
    moves: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Chart({self.name!r}, {counted(len(self.panels), 'panel')})"

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to show but a note."""
        return not any(panel.marks for panel in self.panels)

    def plotly(self, *, titled: bool = False) -> dict[str, Any]:
        """The chart as plotly reads it: JSON values only, and every text escaped. It needs no plotly.

        The title is left to the page, unless asked for. Backgrounds are transparent, and the colour of text and the
        width are the page's too; `layout["height"]` is set.
        """
        return interactive.draw(self.panels, self._pixels, revision=self.name, title=self.title if titled else None)

    def figure(self) -> Any:
        """The chart as a `plotly.graph_objects.Figure`, which you can change."""
        try:
            from plotly import graph_objects  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingDependency("figure needs plotly: pip install 'fairway[report]'") from None
        return graph_objects.Figure(self.plotly(titled=True))

    def save(self, path: str | Path) -> None:
        """Write it to a file, by its ending: .html (interactive, needs no network), .png, .svg or .pdf."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".html":
            raw = {"plotly": templates.plotly(), "figure": templates.script(self.plotly())}
            text = templates.fill("chart.html", raw=raw, title=shown(self.title), caption=shown(self.caption, 600))
            files.write(path, text.encode())
        elif kind in (".png", ".svg", ".pdf"):
            files.write(path, still.draw(self.panels, self._pixels, self.title, kind[1:]))
        else:
            raise UsageError(f"{str(path)!r}: a name that ends in .html, .png, .svg or .pdf is expected")

    @property
    def _pixels(self) -> int:
        rows, _ = grid(len(self.panels))
        return self.height or (400 if rows == 1 else 270 * rows)

    def _repr_html_(self) -> str:
        try:
            image = base64.b64encode(still.draw(self.panels, self._pixels, self.title, "svg")).decode()
            picture = f'<img alt="" src="data:image/svg+xml;base64,{image}">'
        except MissingDependency:
            picture = f"<strong>{html.escape(shown(self.title))}</strong>"
        return templates.fill("figure.html", raw={"picture": picture}, caption=shown(self.caption, 600))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        del include, exclude
        return {
            "text/plain": repr(self),
            "text/html": self._repr_html_(),
            "application/vnd.plotly.v1+json": self.plotly(titled=True),
        }
