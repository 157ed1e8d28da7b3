"""What a picture is made of: axes and marks, as plain data. Texts are raw; whoever draws them makes them safe.

A role has one colour, one symbol and one dash in every picture. The colours are of medium lightness, so that each has a
contrast of at least 3:1 to white and to near-black, and the colour-blind can tell them apart (Okabe and Ito's blue,
vermillion and green, with grey and two more).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError

Role: TypeAlias = Literal["feasible", "infeasible", "not evaluated", "best", "limit", "failed", "plain", "other"]
"""What a mark stands for."""
Symbol: TypeAlias = Literal["circle", "cross", "ring", "star", "square", "triangle"]
Dash: TypeAlias = Literal["solid", "dash", "dot"]
Side: TypeAlias = Literal["x", "y"]


class Look(NamedTuple):
    """How a role is drawn."""

    colour: str
    symbol: Symbol
    dash: Dash


LOOK: dict[Role, Look] = {
    "feasible": Look("#0d7fc2", "circle", "solid"),
    "infeasible": Look("#d55e00", "cross", "dash"),
    "not evaluated": Look("#858585", "ring", "dot"),
    "best": Look("#009e73", "star", "solid"),
    "limit": Look("#c2408c", "square", "dash"),
    "failed": Look("#a3654f", "triangle", "dot"),
    "plain": Look("#0d7fc2", "circle", "solid"),
    "other": Look("#8a6fc7", "square", "dash"),
}
NAME, TICK = 60, 24  # characters, at most, of a title or a name, and of a tick
PALEST, STRONGEST = 0.06, 0.9  # colours of a map
_FAR = 0.7  # of an axis
_FEW_DECADES = 1.5  # a log axis that spans fewer has names between the powers of ten


@dataclass(frozen=True)
class Axis:
    """One side of a panel.

    `ticks` are places with names of their own, and `categories` the names of the places 0, 1, 2, ..., which become its
    ticks; `span` is the range that is drawn, by default what the marks need; `whole` asks for whole numbers only.
    """

    title: str = ""
    log: bool = False
    categories: Sequence[str] | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    span: tuple[float, float] | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        if self.categories is not None:
            object.__setattr__(self, "ticks", list(enumerate(self.categories)))
            object.__setattr__(self, "span", self.span or (-0.6, len(self.categories) - 0.4))

    def hides(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which values (n,) cannot be drawn on it: those not finite, and on a log axis those not positive."""
        return ~np.isfinite(values) | ((values <= 0) & self.log)


@dataclass(frozen=True, eq=False)
class Placed:
    """A mark with places (n,): anything that numpy takes for numbers, kept as arrays of floats."""

    x: Any
    y: Any
    name: str = ""
    role: Role = "plain"
    opacity: float = field(default=1.0, kw_only=True)
    labels: Sequence[str] | None = field(default=None, kw_only=True)  # written beside each place
    hover: Sequence[str] | None = field(default=None, kw_only=True)  # shown when pointed at

    def __post_init__(self) -> None:
        for side in ("x", "y"):
            object.__setattr__(self, side, np.asarray(getattr(self, side), np.float64).ravel())
        if len({len(part) for part in (self.x, self.y, self.labels, self.hover) if part is not None}) > 1:
            raise UsageError(f"{type(self).__name__}: x and y and their texts are not of one length")


@dataclass(frozen=True, eq=False)
class Line(Placed):
    """A line through its places; it breaks where one is NaN. With `step` it stays level until the next one."""

    dash: Dash | None = None  # by default the role's
    step: bool = False
    width: float = 1.6


@dataclass(frozen=True, eq=False)
class Points(Placed):
    """A point at each place, with a bar of its error to both sides along x or y where one is given."""

    symbol: Symbol | None = None  # by default the role's
    size: float = 6.0
    error: float | None = None  # of the only point
    along: Side = "y"  # its error


class Bars(Placed):
    """Bars of lengths x at places y, with labels at their ends; two of one panel should not share a place."""


class Words(Placed):
    """Labels, written above their places."""


class Area(Placed):
    """A tinted area with its corners at these places."""


@dataclass(frozen=True, eq=False)
class Tiles:
    """A map: a value (l, k) for each tile, NaN for none; the places of the middles are x (k,) and y (l,).

    The stronger the colour, the nearer the value is to `best`; beyond `worst` it is the palest. `name` is the title
    of the scale.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    values: NDArray[np.float64]
    worst: float
    best: float
    name: str = ""


@dataclass(frozen=True)
class Limit:
    """A reference line across a panel at a value of one axis; the allowed side is tinted where the axis has a span."""

    value: float
    label: str = ""
    along: Side = "y"
    allowed: Literal["below", "above"] | None = None


Mark: TypeAlias = Placed | Limit | Tiles


@dataclass(frozen=True, eq=False)
class Panel:
    """One coordinate system with its marks; `note` is written in the middle of one that has none."""

    x: Axis
    y: Axis
    marks: Sequence[Mark] = ()
    note: str = ""

    def axis(self, side: Side) -> Axis:
        return self.x if side == "x" else self.y

    def allowed(self, mark: Limit) -> tuple[float, float] | None:
        """The range to tint beside a limit, or None."""
        span = self.axis(mark.along).span
        return None if span is None or not mark.allowed else (mark.value, span[mark.allowed == "above"])

    def ends(self, side: Side) -> tuple[float, float]:
        """The range of an axis: its span, or else that of the lines, points and limits on it."""
        axis = self.axis(side)
        if axis.span is not None:
            return axis.span
        marks = [getattr(mark, side) for mark in self.marks if isinstance(mark, Line | Points)]
        limits = [mark.value for mark in self.marks if isinstance(mark, Limit) and mark.along == side]
        values = np.concatenate([*marks, limits])
        values = values[~axis.hides(values)]
        return (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)

    def is_far(self, mark: Limit) -> bool:
        """Whether a limit along x lies so far to the right that its label has no room there."""
        low, high = self.ends("x")
        low, high, at = np.log([low, high, mark.value]) if self.x.log else (low, high, mark.value)
        return bool(at / 2 - low / 2 > _FAR * (high / 2 - low / 2))  # the whole may be more than a float holds

    def every(self, side: Side) -> int:
        """How many powers of ten a log axis goes from name to name; 0 if it needs names between them."""
        low, high = self.ends(side)
        decades = float(np.log10(high) - np.log10(low))
        return 0 if decades < _FEW_DECADES else max(1, round(decades / 6))


def legend(panels: Sequence[Panel]) -> dict[str, Placed]:
    """What a legend explains: each name, with the first mark that has it."""
    marks = [mark for panel in panels for mark in panel.marks if isinstance(mark, Placed) and mark.name]
    return {mark.name: mark for mark in reversed(marks)}


def grid(panels: int) -> tuple[int, int]:
    """The rows and columns in which panels are arranged."""
    columns = min(panels, 3) if panels != 4 else 2  # noqa: PLR2004
    return (-(-panels // columns), columns) if panels else (1, 1)
