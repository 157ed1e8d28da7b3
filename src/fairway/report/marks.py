"""What a picture is made of: axes and marks, as plain data. Texts are raw; whoever draws them makes them safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairway.errors import UsageError

Role: TypeAlias = Literal["valid", "invalid", "not evaluated", "best", "limit", "failed", "plain", "other"]
"""What a mark stands for; each role has its colour, symbol and dash everywhere (see `ink`)."""
Symbol: TypeAlias = Literal["circle", "cross", "ring", "star", "square", "triangle"]
Dash: TypeAlias = Literal["solid", "dash", "dot"]
Side: TypeAlias = Literal["x", "y"]


@dataclass(frozen=True)
class Axis:
    """One side of a panel.

    `categories` are the names of the places 0, 1, 2, ...; `ticks` are places with names of their own; `span` is the
    range that is drawn, by default what the marks need; `whole` asks for whole numbers only.
    """

    title: str = ""
    log: bool = False
    categories: Sequence[str] | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    span: tuple[float, float] | None = None
    whole: bool = False

    @property
    def named_ticks(self) -> Sequence[tuple[float, str]] | None:
        """The places that have a name, categories among them; None if the axis is one of plain numbers."""
        return self.ticks if self.categories is None else list(enumerate(self.categories))

    def hides(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which values (n,) cannot be drawn on it: those not finite, and on a log axis those not positive."""
        return ~np.isfinite(values) | ((values <= 0) & self.log)


@dataclass(frozen=True, eq=False)
class _Mark:
    """The first two fields are coordinates: arrays of floats, checked once."""

    def __post_init__(self) -> None:
        names = [item.name for item in fields(self)[:2]]
        for name in names:
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64).ravel())
        parts = [getattr(self, name, None) for name in (*names, "hover", "labels")]
        if len({len(part) for part in parts if part is not None}) > 1:
            raise UsageError(f"{type(self).__name__}: {' and '.join(names)} and their texts are not of one length")


@dataclass(frozen=True, eq=False)
class _Placed(_Mark):
    x: ArrayLike
    y: ArrayLike
    name: str = ""
    role: Role = "plain"
    opacity: float = field(default=1.0, kw_only=True)
    hover: Sequence[str] | None = field(default=None, kw_only=True)  # a text for each point, shown when pointed at


@dataclass(frozen=True, eq=False)
class Line(_Placed):
    """A line through points (n,); it breaks where one is NaN. With `step` it stays level until the next point."""

    dash: Dash | None = None  # by default the role's
    step: bool = False
    width: float = 1.6


@dataclass(frozen=True, eq=False)
class Points(_Placed):
    """Points (n,)."""

    symbol: Symbol | None = None  # by default the role's
    size: float = 6.0


@dataclass(frozen=True, eq=False)
class Bars(_Mark):
    """Bars (n,) at places of the y axis, each of a length; two of one panel should not share a place."""

    at: ArrayLike
    length: ArrayLike
    name: str = ""
    role: Role = "plain"
    opacity: float = 1.0
    labels: Sequence[str] | None = None  # written at their ends
    hover: Sequence[str] | None = None


@dataclass(frozen=True, eq=False)
class Words(_Mark):
    """Texts (n,) written above their places."""

    x: ArrayLike
    y: ArrayLike
    labels: Sequence[str]


@dataclass(frozen=True)
class Limit:
    """A reference line across a panel at a value of one axis; the allowed side is tinted where the axis has a span."""

    value: float
    label: str = ""
    along: Side = "y"
    allowed: Literal["below", "above"] | None = None
    role: Role = "limit"


Mark: TypeAlias = Line | Points | Bars | Words | Limit


@dataclass(frozen=True, eq=False)
class Panel:
    """One coordinate system with its marks; `note` is written in the middle of one that has none."""

    x: Axis
    y: Axis
    marks: Sequence[Mark] = ()
    note: str = ""

    def axis(self, side: Side) -> Axis:
        """One of its axes."""
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
        marks = [np.asarray(getattr(mark, side)) for mark in self.marks if isinstance(mark, Line | Points)]
        marks += [np.array([mark.value]) for mark in self.marks if isinstance(mark, Limit) and mark.along == side]
        values = np.concatenate([*marks, np.ones(0)])
        values = values[~axis.hides(values)]
        return (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)

    def decades(self, side: Side) -> float:
        """How many powers of ten a log axis spans."""
        low, high = self.ends(side)
        return float(np.log10(high) - np.log10(low)) if self.axis(side).log else 0.0
