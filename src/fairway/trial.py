"""The user's handle on one running configuration: it measures its own costs and asks the referee at every report.

`report` is the hot path of fairway. It has two halves, because in virtual time they happen at different moments:
`_observe` measures, paying for constraints where that is worth it; `_settle` has the referee rule on what was measured.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fairway import feasibility
from fairway.clock import Clock
from fairway.errors import UsageError
from fairway.events import ABSENT, SAVED, Reported, Status
from fairway.referee import Referee
from fairway.space import Value

_FLUSH_NS = 1_000_000_000  # reports are on their way to the log within a second
_MISSING = object()

Given: TypeAlias = float | Callable[..., float]
_Values: TypeAlias = Sequence[float | None]
_Observation: TypeAlias = tuple[int, float, float, _Values, Sequence[int], float | None, int]


class Decision(NamedTuple):
    """What a report led to.

    `stop`: end the training loop now (one over `trial.steps` ends by itself), `reason`: why, as a sentence, empty while
    going on; `interval`: every how many steps constraints are paid for (None: once, at the end); `best`: this
    checkpoint is now the best feasible one of the study, so save the model.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.ask().report(loss=0.3)
    Decision(stop=False, reason='', interval=1, best=True)
    """

    stop: bool
    reason: str
    interval: int | None
    best: bool


class Trial:
    """One configuration being tried; made by `study.ask()` and handed to the function that `study.optimize` runs.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> trial = study.ask()
    >>> for step in trial.steps(3):
    ...     decision = trial.report(auc=0.7 + step / 100, eod=lambda: 0.2)
    >>> study.tell(trial)
    >>> study.best.step, study.best.metrics
    (3, {'auc': 0.73, 'eod': 0.2})
    """

    __slots__ = (
        "_at_end",
        "_begun",
        "_candidate",
        "_clock",
        "_constraint",
        "_deadline",
        "_failure",
        "_flushed",
        "_go_on",
        "_interval",
        "_last",
        "_mark",
        "_notes",
        "_objective",
        "_overtime",
        "_referee",
        "_rows",
        "_send",
        "_sign",
        "_status",
        "_step",
        "_stop",
        "_total",
        "_unpaid",
        "number",
        "params",
        "seed",
    )

    def __init__(
        self,
        number: int,
        params: Mapping[str, Value],
        *,
        seed: int,
        referee: Referee,
        send: Callable[[Reported], None],
        clock: Clock,
    ) -> None:
        self.number = number
        self.params = params
        self.seed = seed
        self._referee = referee
        self._send = send
        self._clock = clock.ns
        self._constraint = {constraint.metric: i for i, constraint in enumerate(referee.problem.constraints)}
        self._objective = referee.problem.objective.metric
        self._sign = referee.problem.objective.sign
        self._unpaid = None if self._constraint else 0.0  # the violation of a report that pays for nothing
        self._status: Status = "running"
        self._stop = ""  # why the stopper ended it
        self._failure = ""
        self._deadline: float = math.inf  # by the clock; a report after it stops the trial
        self._overtime = ""  # with this reason
        self._total: int | None = None
        self._begun = -1
        self._interval: int | None = None
        self._at_end = False
        self._candidate: tuple[int, float, float, dict[str, Given], Any] | None = None
        self._go_on = Decision(stop=False, reason="", interval=None, best=False)
        self._step = 0  # where the loop over `steps` is
        self._last = 0  # the last step reported
        self._rows: list[tuple[int, int, float, int, _Values, Sequence[int]]] = []
        self._notes: dict[str, Any] = {}
        self._mark = self._flushed = clock.ns()

    def __repr__(self) -> str:
        return f"Trial(number={self.number}, params={self.params}, status={self.status!r})"

    @property
    def status(self) -> Status:
        """`running` until it is told, then `completed`, `stopped` (by the stopper) or `failed`."""
        return self._status

    @property
    def stopped(self) -> bool:
        """Whether training should end now."""
        return bool(self._stop or self._failure)

    def steps(self, total: int | None = None) -> Iterator[int]:
        """Count training iterations from 1 to `total`; the loop ends by itself when the trial is stopped.

        Knowing the total lets ACE weigh whether constraints are worth checking on the way (Theorem 1).
        """
        if self._begun >= 0 or self._last:
            raise UsageError(f"trial {self.number} has begun already: steps() is called once, before the first report")
        if total is not None:
            total = _whole(total, "steps")
            if total < 1:
                raise UsageError(f"steps({total}): at least 1 is expected")
        self._begin(total)
        return self._count(total)

    def _count(self, total: int | None) -> Iterator[int]:
        while not self.stopped and self._status == "running" and (total is None or self._step < total):
            self._step += 1
            yield self._step

    def report(
        self,
        metrics: Mapping[str, Given] | None = None,
        /,
        *,
        step: int | None = None,
        checkpoint: Any = None,
        **named: Given,
    ) -> Decision:
        """Report the objective and any constraints at this step, and learn whether to go on.

        A constraint given as a callable is called, and timed, only when it is worth its price; with a `checkpoint` it
        is called with that checkpoint, which may be an earlier one when constraints are paid for once at the end. A
        mapping may be passed for metrics whose names are no Python identifiers.
        """
        observation = self._observe(metrics, step, checkpoint, named)
        if observation is None:
            return Decision(stop=True, reason=self._failure, interval=self._interval, best=False)
        decision = self._settle(*observation)
        if self._candidate is not None and self._last == self._total:
            revisited = self._look_back()
            if revisited is not None:
                decision = self._settle(*revisited)
        return decision

    def note(self, **jsonable: Any) -> None:
        """Keep something beside the metrics; it is stored with the finished trial."""
        try:
            json.dumps(jsonable, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"note: {error}; text, finite numbers, lists and dicts are expected") from None
        self._notes.update(jsonable)

    def _begin(self, total: int | None) -> None:
        """Fix the interval for so many steps."""
        self._total = total
        self._interval, self._at_end = self._referee.begin(total)
        self._begun = self._referee.acts
        self._go_on = Decision(stop=False, reason="", interval=self._interval, best=False)
        self._mark = self._clock()

    def _observe(
        self, metrics: Mapping[str, Given] | None, step: int | None, checkpoint: Any, named: dict[str, Given]
    ) -> _Observation | None:
        """Measure: the objective, what it cost, and those constraints that are worth their price; None: it failed."""
        now = self._clock()
        train_ns = now - self._mark
        if self._stop or self._failure or self._status != "running":
            self._refuse()
        if self._begun < 0:
            self._begin(None)
        if metrics is not None:
            named = self._joined(metrics, named)
        if step is None:
            step = self._step or self._last + 1
        elif type(step) is not int:
            step = _whole(step, "step")
        if step <= self._last or self._total is not None and step > self._total:
            self._refuse_step(step)
        given = named.pop(self._objective, _MISSING)
        if given is _MISSING:
            raise UsageError(f"trial {self.number}: the objective {self._objective!r} is missing from the report")
        objective = given if type(given) is float else self._number(self._objective, given)
        loss = self._sign * objective
        if loss - loss != 0.0:  # NaN or infinite
            self._failure = f"{self._objective} is {objective} at step {step}"
            return None
        lazy = 0
        for name, offer in named.items():
            if name not in self._constraint:
                self._refuse_metric(name)
            lazy += callable(offer)
        referee = self._referee
        if lazy == len(named) == len(self._constraint) and (
            (loss > referee.bar and not self._at_end)
            or not lazy
            or not self._is_due(step, loss, objective, named, checkpoint)
        ):
            return step, objective, loss, referee.unmeasured, referee.all_saved, self._unpaid, train_ns
        return self._measure(step, objective, loss, named, checkpoint, train_ns)

    def _is_due(self, step: int, loss: float, objective: float, offers: dict[str, Given], checkpoint: Any) -> bool:
        """Whether constraints are worth paying for here: by the interval, then by the skip rule."""
        referee = self._referee
        if not self._at_end:
            interval = self._interval or 1
            if interval > 1 and step % interval and step != self._total:
                return False
            return loss <= referee.bar and referee.state.due(self.number, step)
        # Once at the end: of the best checkpoint, if checkpoints are handed over; else of the last state.
        if checkpoint is None or self._candidate is None or loss < self._candidate[2]:
            self._candidate = (step, objective, loss, offers, checkpoint)
            if step == self._total:
                self._candidate = None
                return loss <= referee.bar
        return False

    def _measure(
        self, step: int, objective: float, loss: float, offers: dict[str, Given], checkpoint: Any, train_ns: int
    ) -> _Observation:
        """Take the constraints that came as values, and call the others until one is violated."""
        constraints = self._referee.problem.constraints
        values: list[float | None] = [None] * len(constraints)
        prices = [ABSENT] * len(constraints)
        lazy: dict[int, Callable[..., float]] = {}
        for name, offer in offers.items():
            i = self._constraint[name]
            if callable(offer):
                lazy[i] = offer
                prices[i] = SAVED
            else:
                values[i] = self._number(name, offer)
                prices[i] = 0
        if lazy and not (len(offers) > len(lazy) and feasibility.violation(constraints, values)):
            for i in self._referee.check_order(lazy):
                name, began = constraints[i].metric, self._clock()
                try:
                    value = self._number(name, lazy[i]() if checkpoint is None else lazy[i](checkpoint))
                except Exception as error:
                    error.add_note(f"raised by constraint {name!r} of trial {self.number} at step {step}")
                    self._settle(step, objective, loss, values, prices, None, train_ns)
                    raise
                values[i], prices[i] = value, max(self._clock() - began, 1)
                if feasibility.excess(constraints[i], value):
                    break
        return step, objective, loss, values, prices, feasibility.violation(constraints, values), train_ns

    def _look_back(self) -> _Observation | None:
        """The check at the end of training, if it is still to be made and worth its price."""
        if self._candidate is None or self.stopped:
            return None
        step, objective, loss, offers, checkpoint = self._candidate
        self._candidate = None
        if loss > self._referee.bar:
            return None
        return self._measure(step, objective, loss, offers, checkpoint, ABSENT)

    def _settle(
        self,
        step: int,
        objective: float,
        loss: float,
        values: _Values,
        prices: Sequence[int],
        violation: float | None,
        train_ns: int,
    ) -> Decision:
        """Have the referee rule on what was measured."""
        referee = self._referee
        verdict, best = referee.rule(self.number, step, loss, violation, values, prices, train_ns)
        self._rows.append((referee.acts, step, objective, train_ns, values, prices))
        self._last = max(self._last, step)
        self._mark = now = self._clock()
        if verdict is not None and self._last != self._total:  # at its last step there is nothing left to stop
            self._stop = referee.sentence(objective, values, verdict)
        elif now > self._deadline and self._last != self._total:
            self._stop = self._overtime
        if now - self._flushed > _FLUSH_NS:
            self._flush()
        if best or self._stop:
            return Decision(bool(self._stop), self._stop, self._interval, best)
        return self._go_on

    def _flush(self) -> None:
        """Send the rows since the last flush on their way to the log."""
        self._flushed = self._clock()
        if not self._rows:
            return
        acts, step, objective, train_ns, values, prices = zip(*self._rows, strict=True)
        self._rows = []
        shape = (len(step), len(self._constraint))
        self._send(
            Reported(
                number=self.number,
                worker=-1,
                seen=-1,
                begun=self._begun,
                total=self._total,
                interval=self._interval,
                acts=np.array(acts, np.int64),
                step=np.array(step, np.int64),
                objective=np.array(objective, np.float64),
                values=np.array(values, np.float64).reshape(shape),
                train_ns=np.array(train_ns, np.int64),
                check_ns=np.array(prices, np.int64).reshape(shape),
                stopped=self._stop or None,
            )
        )

    def _joined(self, metrics: Mapping[str, Given], named: dict[str, Given]) -> dict[str, Given]:
        if not isinstance(metrics, Mapping):
            raise UsageError(f"report({metrics!r}): metrics are given by name, as in report(auc=0.8)")
        twice = [name for name in metrics if name in named]
        if twice:
            raise UsageError(f"metric {twice[0]!r} came twice, in the mapping and by name")
        return {**metrics, **named}

    def _number(self, name: str, given: Any) -> float:
        if callable(given):
            given = given()
        try:
            return float(given)
        except (TypeError, ValueError):
            raise UsageError(f"metric {name!r} is {given!r}: a number is expected") from None

    def _refuse(self) -> None:
        if self._status != "running":
            raise UsageError(f"trial {self.number} was told already ({self._status}); it takes no more reports")
        raise UsageError(
            f"trial {self.number} is over at step {self._last} ({self._stop or self._failure}); "
            "loop over trial.steps(...), which ends by itself, or test decision.stop"
        )

    def _refuse_step(self, step: int) -> None:
        if step > self._last:
            raise UsageError(f"trial {self.number}: step {step} is past the {self._total} given to steps()")
        how = "was reported already" if step == self._last else f"comes after step {self._last}"
        raise UsageError(
            f"trial {self.number}: step {step} {how}; steps start at 1 and each is reported once, in order"
        )

    def _refuse_metric(self, name: str) -> None:
        declared = ", ".join(self._referee.problem.metrics)
        raise UsageError(f"metric {name!r} was not declared: this study has {declared}; keep others with trial.note")


def _whole(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{what}={value!r}: a whole number is expected") from None
