"""Stop when the next trial promises little: by expected improvement (Nguyen et al., 2017) or its probability (Lorenz).

Both are evaluated at the point with the highest expected improvement times the probability that every constraint
holds. The Gaussian processes are fitted to the completed trials and the best feasible one, not to other stopped trials.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np

from fairway.checks import checked, fraction, positive_finite, whole
from fairway.history import History
from fairway.models.blas import one_thread
from fairway.seeds import stream
from fairway.terminators.terminator import ModelBased, Verdict, compared, trials, usable

_LARGEST = 1e100  # its square is still finite


@dataclass(frozen=True)
class _Improvement(ModelBased):
    threshold: float = field(metadata=checked(positive_finite))
    _: KW_ONLY
    start: int = field(default=20, metadata=checked(whole, least=2))
    _what: ClassVar[str]  # which result of `_next_trial` is compared with the threshold

    def judge(self, history: History) -> Verdict:
        value = _next_trial(history)[self._what]
        reason = f"{self._what} {compared(value, self.threshold)}, after {trials(len(history))}"
        return Verdict(value < self.threshold, reason, value, float(self.threshold))


@dataclass(frozen=True)
class ExpectedImprovementBelow(_Improvement):
    """Stops when the highest expected improvement is below `threshold`, in the objective's own unit.

    >>> import fairway as fw
    >>> ends = fw.ExpectedImprovementBelow(1e-4)
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=ends, seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=500)
    >>> study.ended.startswith("expected improvement")
    True
    """

    _what = "expected improvement"


@dataclass(frozen=True)
class ProbabilityOfImprovementBelow(_Improvement):
    """Stops when the most promising configuration improves on the best one with a probability below `threshold`.

    >>> import fairway as fw
    >>> ends = fw.ProbabilityOfImprovementBelow(0.01)
    >>> study = fw.Study({"x": fw.Int(1, 40)}, fw.Minimize("loss"), terminator=ends, seed=0)
    >>> study.optimize(lambda trial: (trial.params["x"] - 12) ** 2, trials=500)
    >>> study.ended.startswith("probability of improvement"), study.best.params
    (True, {'x': 12})
    """

    threshold: float = field(metadata=checked(fraction))
    _what = "probability of improvement"


def _next_trial(history: History) -> dict[str, float]:
    """The highest expected improvement in the space, and the probability of improvement there."""
    from fairway.terminators.surrogate import Surrogate  # noqa: PLC0415 - SciPy loads slowly

    rows = usable(history)
    rng = stream(history.seed, len(history), "terminator")
    with one_thread():
        surrogate = Surrogate(history, rows, rows)
        gain, chance = surrogate.improvement()
        found = surrogate.highest(gain, rng, history.first(len(history)).is_new)
    if found is None:  # every configuration has been tried
        return {"expected improvement": 0.0, "probability of improvement": 0.0}
    x, expected = found
    spread = float(np.std(np.clip(history.loss[rows], -_LARGEST, _LARGEST)))
    probability = math.exp(float(chance(x[None])[0]))
    return {"expected improvement": math.exp(expected) * spread, "probability of improvement": probability}
