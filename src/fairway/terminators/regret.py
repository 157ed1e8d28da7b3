"""The regret bound (Makarova et al., 2022): stop when no configuration can be much better than the best one found.

    bound = min over trials of (mean + width * deviation) - min over the space of (mean - width * deviation)
    width = sqrt(beta_t),  beta_t = 2 log(d t^2 pi^2 / (6 delta)) / 5,  t = trials that did not fail

With constraints, the first minimum is over feasible trials, and the second over the points where every constraint may
plausibly hold. The bound is the larger of two, without the stopped trials and with them: a stopped trial might have
improved, so it can delay the end of a search, but never cause it.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fairway.checks import checked, flag, fraction, number, positive_finite, whole
from fairway.errors import UsageError
from fairway.history import History
from fairway.models.blas import one_thread
from fairway.seeds import stream
from fairway.terminators.terminator import ModelBased, Verdict, best_feasible, compared, trials, usable

_LEAST = 20  # trials to fit


def _positive_or_cv(value: Any, name: str) -> float | str:
    if isinstance(value, str) and value == "cv":
        return value
    what = "a positive number in the objective's unit, or 'cv' (the bound itself never reaches 0),"
    return number(value, name, what=what, within=lambda given: 0 < given < math.inf)


@dataclass(frozen=True)
class RegretBound(ModelBased):
    """Stops when the upper bound on the remaining improvement falls below `threshold`.

    A number is in the objective's own unit. "cv" means `factor` times the noise of the best trial's cross-validation,
    for an objective reported as `Folds`: an improvement smaller than the noise cannot be told from luck. A larger
    `factor` ends the search sooner and costs test error; 1 corresponds to 0.21 in the paper, and 2.381 (0.5 / 0.21) to
    its 0.5. The process is fitted to the best `top` share of trials, at least 20, once `start` trials have completed.
    `delta` is the error probability of the confidence bounds. `log` assumes that a loss which was always positive
    cannot be negative; turn it off if it can.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=fw.RegretBound(0.01), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2 + 1.0, trials=500)
    >>> study.ended.startswith("regret bound"), study.ended.endswith("< 0.01, after 20 trials")
    (True, True)
    """

    threshold: float | Literal["cv"] = field(metadata=checked(_positive_or_cv))
    _: KW_ONLY
    factor: float = field(default=1.0, metadata=checked(positive_finite))
    top: float = field(default=0.5, metadata=checked(fraction, ends=(1,)))
    start: int = field(default=20, metadata=checked(whole, least=2))
    delta: float = field(default=0.1, metadata=checked(fraction))
    log: bool = field(default=True, metadata=checked(flag))
    _WARP: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold != "cv" and self.factor != 1.0:
            raise UsageError(f"factor={self.factor!r}: it scales the noise of cross-validation, with threshold='cv'")

    def judge(self, history: History) -> Verdict:
        threshold, meaning = self._threshold(history)
        bound = self.bound(history)
        after = f"{meaning}, after {trials(len(history))}"
        if not math.isfinite(threshold):
            return Verdict(False, f"regret bound {bound:.2g}, but {after}", bound)
        return Verdict(bound < threshold, f"regret bound {compared(bound, threshold)}{after}", bound, threshold)

    def _threshold(self, history: History) -> tuple[float, str]:
        """The threshold as a number, and where it comes from if it was not given as one."""
        if self.threshold != "cv":
            return float(self.threshold), ""
        best = best_feasible(history)
        assert best is not None
        noise, folds = self.factor * float(history.noise[best]), int(history.folds[best])
        if not math.isfinite(noise):
            return math.nan, "the noise of the best trial is unknown: report its objective as fw.Folds"
        if noise == 0.0:
            return math.nan, f"all {folds} folds of the best trial have the same value"
        scale = "" if self.factor == 1.0 else f"{self.factor:g} times "
        return noise, f", {scale}the noise of {folds}-fold cross-validation"

    def bound(self, history: History) -> float:
        """An upper bound on how much better than the best feasible trial any configuration can be."""
        if best_feasible(history) is None:
            return math.inf
        complete, every = usable(history), history.best_first
        bound = self._bound(history, complete, len(every))
        return bound if len(every) == len(complete) else max(bound, self._bound(history, every, len(every)))

    def _bound(self, history: History, order: NDArray[np.intp], t: int) -> float:
        """The bound from some rows, ordered from best to worst, of t in all."""
        from fairway.models.transform import Transform  # noqa: PLC0415 - SciPy loads slowly
        from fairway.terminators.surrogate import Surrogate  # noqa: PLC0415

        rows = order[: max(_LEAST, math.ceil(self.top * len(order)))]
        rows = order if Transform(history.gap[rows]).flat else rows
        if Transform(history.gap[rows]).flat:
            return math.inf
        width = self.width(len(history.space), t)
        rng = stream(history.seed, len(history), "terminator")
        with one_thread():
            surrogate = Surrogate(history, rows, order, power=0.0 if self.log else 1.0, warp=self._WARP)
            found = surrogate.highest(surrogate.optimism(width), rng, lambda x: surrogate.is_plausible(x, width))
        mean, deviation = surrogate.feasible
        lowest = float((mean - width * deviation).min())
        if found is not None:
            lowest = min(lowest, -found[1])
        upper, lower = surrogate.transform.inverse(np.array([(mean + width * deviation).min(), lowest]))
        return float(upper - lower)

    def width(self, d: int, t: int) -> float:
        """The square root of beta_t."""
        return math.sqrt(2.0 * math.log(d * t**2 * math.pi**2 / (6.0 * self.delta)) / 5.0)
