"""What fresh rows say about one limit of one model: the contract that every kind of evidence fulfils.

The null hypothesis is always that the limit is broken on the population the rows come from; a small p-value certifies
that it is kept. The rows must be fresh: neither the search nor the training has seen them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from fairway.checks import fraction, short, whole
from fairway.errors import UsageError
from fairway.measured import quantile
from fairway.problem import Constraint

Cells: TypeAlias = dict[str, dict[str, float]]

_HALVINGS = 40
_MOST_ROWS = 10**9


class Evidence(ABC):  # noqa: PLW1641 - equal by value and not hashable, as a list
    """Fresh rows, reduced to what one limit's tests need: a p-value, a bound, and what it would take to pass.

    `value` is the metric on these rows, `rows` their number, and `error` the standard error of the value.
    `approximate` says that the tests hold their level only in large samples.
    """

    value: float
    rows: int
    error: float
    approximate: ClassVar[bool] = False
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def p_value(self, constraint: Constraint) -> float:
        """An upper bound of the probability of rows at least this good, if the population violates the limit."""
        p = self._p_value(_checked(constraint))
        return min(max(p, 0.0), 1.0) if p == p else 1.0  # noqa: PLR0124 - what is undefined is no evidence

    def bound(self, constraint: Constraint, confidence: float) -> float:
        """The tightest limit that these rows certify at a confidence: the upper bound for `AtMost`, else the lower."""
        return self._bound(_checked(constraint), 1 - fraction(confidence, "confidence"))

    def least_p(self, constraint: Constraint, *, rows: int | None = None) -> float:
        """The smallest p-value that any outcome could give on this many rows, or on `rows` split in the same way."""
        scale = 1.0 if rows is None else whole(rows, "rows") / max(self.rows, 1)
        return self._least_p(_checked(constraint), scale)

    def least_rows(self, constraint: Constraint, confidence: float) -> int | None:
        """The fewest rows, split like these, on which any outcome could certify the limit; None if no number does."""
        level = 1 - fraction(confidence, "confidence")
        high = 1
        while self.least_p(constraint, rows=high) > level:
            if high > _MOST_ROWS:
                return None
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.least_p(constraint, rows=middle) <= level else (middle, high)
        return high

    @abstractmethod
    def cells(self) -> Cells:
        """Rows and counts of each cell, by name, for reports."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values from which `from_json` makes evidence with the same p-values, to the last bit."""
        return {"kind": self.kind, **self._to_json()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evidence) and self.to_json() == other.to_json()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value:.6g}, rows={self.rows})"

    @abstractmethod
    def _p_value(self, constraint: Constraint) -> float: ...

    @abstractmethod
    def _bound(self, constraint: Constraint, level: float) -> float: ...

    @abstractmethod
    def _least_p(self, constraint: Constraint, scale: float) -> float:
        """The smallest p-value, with all numbers of rows multiplied by `scale`."""

    @abstractmethod
    def _to_json(self) -> dict[str, Any]: ...

    @abstractmethod
    def _read(self, data: Mapping[str, Any]) -> None:
        """Fill an empty instance with what `_to_json` wrote."""


_KINDS: dict[str, type[Evidence]] = {}


def from_json(data: Mapping[str, Any]) -> Evidence:
    """The evidence that `to_json` wrote.

    >>> from fairway.evidence import Exact, from_json
    >>> from_json(Exact(4096).to_json())
    Exact(4096, rows=0)
    """
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise UsageError(f"kind={short(kind)}: what to_json returned is expected, of the kind {known}")
    made = object.__new__(_KINDS[kind])
    try:
        made._read(data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{kind} evidence cannot be read ({error!r}): what to_json returned is expected") from error
    return made


def rows_needed(evidence: Evidence, constraint: Constraint, confidence: float, *, power: float = 0.8) -> int | None:
    """About how many rows it takes to certify a model whose true value is the observed one, with the given power.

    rows * ((z_confidence + z_power) * error / distance to the limit)^2, and more than now. None if the value itself is
    beyond the limit, where no number of rows helps, or if its error is not known.

    >>> import fairway as fw
    >>> from fairway.evidence import Mean, rows_needed
    >>> errors = Mean([1] * 4 + [0] * 96)
    >>> rows_needed(errors, fw.AtMost("error", 0.06), 0.95)
    721
    """
    if not isinstance(evidence, Evidence):
        raise UsageError(f"evidence={short(evidence)}: a kind of fairway.evidence is expected, such as Mean(values)")
    distance = _checked(constraint).sign * (constraint.threshold - evidence.value)
    if not distance > 0 or not math.isfinite(evidence.error):
        return None
    if not evidence.rows:
        return 0
    ratio = (quantile(confidence) + quantile(fraction(power, "power"))) * evidence.error / distance
    needed = max(math.ceil(evidence.rows * ratio**2), evidence.rows + 1)
    if evidence.least_p(constraint, rows=needed) <= 1 - confidence:
        return needed
    return evidence.least_rows(constraint, confidence)


def crossing(kept: Callable[[float], bool], strict: float, loose: float) -> float:
    """The strictest limit that is `kept`, by bisection between one too strict and one that is loose enough."""
    if kept(strict):
        return strict
    for _ in range(_HALVINGS):
        middle = (strict + loose) / 2
        strict, loose = (strict, middle) if kept(middle) else (middle, loose)
    return loose


def _checked(constraint: Constraint) -> Constraint:
    if not isinstance(constraint, Constraint):
        raise UsageError(f"constraint={short(constraint)}: AtMost('metric', limit) or AtLeast(...) is expected")
    return constraint
