"""A metric measured by cross-validation: one value per fold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from fairway.checks import positive, short, whole
from fairway.errors import UsageError


class Folds:
    """One metric's values on the folds of a cross-validation; report it like a number: it counts as its mean.

    `noise` estimates how far the mean is from the truth: sqrt((1/k + test/train) s^2), where s^2 is the variance over
    the k folds (Nadeau and Bengio, 2003). `test_size` and `train_size` are the rows of one fold and of all others; by
    default the folds have equal size. `RegretBound("cv")` compares its bound with this noise.

    To stop a hopeless configuration after a few folds, report after each one, with `of` as their final number. Until
    all folds are in, the report is `provisional`: it may stop its trial, but is never the best of the study.

    >>> import fairway as fw
    >>> folds = fw.Folds([0.10, 0.14, 0.12, 0.12])
    >>> round(float(folds), 4), round(folds.noise, 4), len(folds)
    (0.12, 0.0108, 4)
    >>> fw.Folds([0.10, 0.14], of=4).provisional
    True
    """

    __slots__ = ("mean", "noise", "of", "values")

    def __init__(
        self,
        values: Iterable[float],
        *,
        of: int | None = None,
        test_size: float | None = None,
        train_size: float | None = None,
    ) -> None:
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise UsageError(f"Folds({short(values)}): a sequence of numbers, one per fold, is expected")
        try:
            self.values = tuple(map(_number, values))
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"Folds({short(values)}): a sequence of numbers, one per fold, is expected") from None
        if not self.values:
            raise UsageError("Folds([]): the value of at least one fold is expected")
        if (test_size is None) != (train_size is None):
            raise UsageError("Folds: give both test_size and train_size, or neither")
        k = len(self.values)
        self.of = k if of is None else whole(of, "of", least=k)
        share = 1.0 / max(self.of - 1, 1)
        if test_size is not None:
            share = positive(test_size, "test_size") / positive(train_size, "train_size")
        share = share if k > 1 else math.nan  # one fold has no variance
        with np.errstate(over="ignore", invalid="ignore"):
            self.mean = float(np.mean(self.values))
            spread = 0.0 if min(self.values) == max(self.values) else float(np.std(self.values))
            self.noise = math.sqrt(1.0 / k + share) * spread

    @property
    def provisional(self) -> bool:
        """Whether some folds are still missing."""
        return len(self.values) < self.of

    def __float__(self) -> float:
        return self.mean

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        missing = f", of={self.of}" if self.provisional else ""
        return f"Folds([{', '.join(f'{value:.6g}' for value in self.values)}]{missing})"


def _number(value: float) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("a string is not a number, even if float() accepts it")
    return float(value)
