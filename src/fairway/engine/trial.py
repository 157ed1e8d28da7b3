"""The user's handle on one running configuration: it measures its own costs and asks the referee at every report.

`report` is the hot path of fairway. It has two halves, because in virtual time they happen at different moments:
`_observe` measures, paying for constraints where that is worth it; `_settle` has the referee rule on what was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fairway import feasibility
from fairway.checks import MOST, whole
from fairway.engine.clock import Clock
from fairway.engine.events import ABSENT, SAVED, Reported, Status
from fairway.engine.referee import Pace, Referee
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.space import Value

_FLUSH_NS = 1_000_000_000  # a report that comes so long after the last flush sends all since then to the log
_MISSING = object()

Given: TypeAlias = float | Folds | Callable[..., float | Folds]


class Decision(NamedTuple):
    """What a report led to. It is true where training should stop, so `if trial.report(...): break` works.

    `stop`: end the training loop now (one over `trial.steps` ends by itself); `reason`: why, as a sentence, empty while
    going on; `interval`: every how many steps constraints are paid for, the total meaning once, at the end (None where
    the total is unknown); `best`: this checkpoint is now the best feasible one of the study, so save the model.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.ask().report(loss=0.3)
    Decision(stop=False, reason='', interval=1, best=True)
    """

    stop: bool
    reason: str
    interval: int | None
    best: bool

    def __bool__(self) -> bool:
        return self.stop


class _Report(NamedTuple):
    """A report whose constraints may be paid for, now or when training ends."""

    step: int
    objective: float
    loss: float
    offers: Mapping[str, Given]  # constraints by name, as values or callables
    checkpoint: Any
    broken: bool  # a limit is known to be broken, by a value that came with it
    folds: tuple[float, int, int] | None  # the noise of the objective, over how many folds, of how many

    @property
    def standing(self) -> tuple[int, bool, float]:
        """A key that sorts one trial's reports before they are paid for: with folds missing it is no checkpoint yet."""
        missing = 0 if self.folds is None else self.folds[2] - self.folds[1]
        return missing, self.broken, self.loss


# What one report measured, on its way to the referee: step, objective, loss, values, prices, violation, train_ns, and
# whether it is the last, so that nothing is left to stop. A plain tuple: one is made at every report.
_Observation: TypeAlias = tuple[int, float, float, Sequence[float | None], Sequence[int], float | None, int, bool]


class Trial:
    """One configuration being tried; made by `study.ask()` and handed to the function that `study.optimize` runs.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> trial = study.ask()
    >>> for step in trial.steps(3):
    ...     decision = trial.report(auc=0.7 + step / 100, eod=lambda: 0.2)
    >>> decision.best, study.tell(trial)
    (True, False)
    >>> study.best.step, study.best.metrics
    (3, {'auc': 0.73, 'eod': 0.2})
    """

    __slots__ = (
        "_begun",
        "_begun_seen",
        "_candidate",
        "_clock",
        "_constraint",
        "_cut",
        "_deadline",
        "_failure",
        "_final",
        "_flushed",
        "_fold",
        "_folds",
        "_go_on",
        "_last",
        "_mark",
        "_notes",
        "_objective",
        "_over",
        "_overtime",
        "_pace",
        "_paying",
        "_payment",
        "_payments",
        "_referee",
        "_rows",
        "_send",
        "_sign",
        "_status",
        "_step",
        "_unpaid",
        "_verdict",
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
        send: Callable[[Reported], object],
        clock: Clock,
    ) -> None:
        self.number = number
        self.params = params
        self.seed = seed
        self._referee = referee
        self._send = send
        self._clock = clock.ns
        self._objective = referee.problem.objective.metric
        self._sign = referee.problem.objective.sign
        self._constraint = {constraint.metric: i for i, constraint in enumerate(referee.problem.constraints)}
        self._unpaid = None if self._constraint else 0.0  # the violation of a report that pays for nothing
        self._status: Status = "running"
        self._verdict = ""  # why the stopper ended it
        self._final = False  # what is reported now is the last of it
        self._cut = ""  # why something else ended it before it was done: a timeout, the end of a simulation
        self._failure = ""
        self._deadline: float = math.inf  # by the clock; a report after it cuts the trial
        self._overtime = ""  # with this reason
        self._begun = self._begun_seen = -1
        self._pace = Pace(None, None, at_end=False)
        self._go_on = Decision(stop=False, reason="", interval=None, best=False)
        self._candidate: _Report | None = None  # what is checked when training ends, unless a better one comes
        self._paying = False  # inside a constraint's callable
        self._over = False  # no step is left
        self._step = 0  # where the loop over `steps` is
        self._last = 0  # the last step reported
        self._rows: list[tuple[int, int, float, int, Sequence[float | None], Sequence[int]]] = []
        self._payment: tuple[int, int] | None = None  # the referee's act and what it had seen, for the row to come
        self._payments: list[tuple[int, int, int]] = []  # the same for rows on their way to the log
        self._fold: tuple[float, int, int] | None = (
            None  # the objective's noise, its folds, of how many, for the next row
        )
        self._folds: list[tuple[int, float, int, int]] = []  # the same for rows on their way to the log
        self._notes: dict[str, Any] = {}
        self._mark = self._flushed = clock.ns()

    def __repr__(self) -> str:
        return f"Trial(number={self.number}, params={self.params}, status={self.status!r})"

    @property
    def status(self) -> Status:
        """`running` until it is told, then `completed`, `stopped` (by the stopper or a timeout) or `failed`."""
        return self._status

    @property
    def stopped(self) -> bool:
        """Whether training should end now."""
        return bool(self._verdict or self._cut or self._failure)

    def steps(self, total: int | None = None) -> Iterator[int]:
        """Count training iterations from 1 to `total`; the loop ends by itself when the trial is stopped.

        Knowing the total lets `ACE` weigh whether constraints are worth checking on the way (Theorem 1).
        """
        if self._begun >= 0:
            raise UsageError(f"trial {self.number} has begun already: steps() is called once, before the first report")
        self._begin(None if total is None else whole(total, "steps"))
        return self._count()

    def _count(self) -> Iterator[int]:
        total = self._pace.total
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

        A constraint given as a callable is called, and timed, only when it is worth its price. With a `checkpoint` it
        is called with that checkpoint, maybe later, when training has ended: so hand over what training does not
        change (a path, a copy, a round), not the model itself. A mapping may be passed for metrics whose names are no
        Python identifiers.
        """
        observation = self._observe(metrics, step, checkpoint, named)
        if observation is None:
            return Decision(stop=True, reason=self._failure, interval=self._pace.interval, best=False)
        decision = self._settle(*observation)
        if self._candidate is not None and (self._final or self._last == self._pace.total):
            late = self._look_back()
            if late is not None:
                self._settle(*late)
        return decision

    def note(self, **jsonable: Any) -> None:
        """Keep something beside the metrics; it is stored with the finished trial."""
        if self._status != "running":
            raise UsageError(f"trial {self.number} was told already ({self._status}); it takes no more notes")
        try:
            self._notes.update(json.loads(json.dumps(jsonable, allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise UsageError(f"note: {error}; text, finite numbers, lists and dicts are expected") from None

    def _end(self, metrics: Mapping[str, Given] | None = None, /, **named: Given) -> tuple[Status, str]:
        """Report the last metrics, if any came, make the check that waits for the end, and say how it ended."""
        if metrics is not None or named:
            self._final = True
            try:
                self.report(metrics, **named)  # type: ignore[arg-type]
            finally:
                self._final = False
        late = self._look_back()
        if late is not None:
            self._settle(*late)
        if self._failure:
            return "failed", self._failure
        if not self._last and not self._cut:
            raise UsageError(
                f"trial {self.number} reported nothing: tell(trial, {self._objective}=...) or tell(trial, failed='why')"
            )
        if not self._last:
            return "failed", self._cut
        return ("stopped", self._verdict or self._cut) if self.stopped else ("completed", "")

    def _begin(self, total: int | None) -> None:
        """Fix the pace for so many steps."""
        with self._referee.lock:
            self._pace = self._referee.begin(total)
            self._begun, self._begun_seen = self._referee.acts, self._referee.seen
        self._go_on = Decision(stop=False, reason="", interval=self._pace.interval, best=False)
        self._mark = self._clock()

    def _observe(
        self,
        metrics: Mapping[str, Given] | None,
        step: int | None,
        checkpoint: Any,
        named: dict[str, Given],
    ) -> _Observation | None:
        """Measure: the objective, what it cost, and those constraints that are worth their price; None: it failed."""
        now = self._clock()
        if self._verdict or self._cut or self._failure or self._paying or self._status != "running":
            self._refuse()
        if metrics is not None:
            named = self._joined(metrics, named)
        if step is None:
            step = self._last + 1 if self._final or not self._step else self._step
        elif type(step) is not int:
            step = whole(step, "step")
        total = self._pace.total
        if step <= self._last or total is not None and step > total or step > MOST:
            self._refuse_step(step)
        given = named.pop(self._objective, _MISSING)
        if type(given) is float:
            objective, self._fold = given, None
        else:
            if given is _MISSING:
                raise UsageError(f"trial {self.number}: the objective {self._objective!r} is missing from the report")
            if callable(given):
                given = given()
                now = self._clock()  # what it took is training
            objective = self._number(self._objective, given)
            self._fold = (given.noise, len(given), given.of) if isinstance(given, Folds) else None
        loss = self._sign * objective
        if loss - loss != 0.0:  # NaN or infinite
            self._failure = f"{self._objective} is {objective} at step {step}"
            return None
        lazy = 0
        for name, offer in named.items():
            if name not in self._constraint:
                self._refuse_metric(name)
            lazy += callable(offer)
        train_ns = now - self._mark
        if self._begun < 0:
            self._begin(None)
        last = self._final or step == self._pace.total
        referee = self._referee
        every, all_lazy = self._pace.interval == 1, lazy == len(named) == len(self._constraint)
        if every and all_lazy and (loss > referee.bar or not lazy):  # by far the most common case
            return step, objective, loss, referee.unmeasured, referee.all_saved, self._unpaid, train_ns, last
        broken = lazy < len(named) and self._is_broken(named)
        report = _Report(step, objective, loss, named, checkpoint, broken, self._fold)
        pay = self._chooses_to_pay(report, train_ns, lazy=lazy > 0, last=last)
        if not pay and all_lazy:
            return step, objective, loss, referee.unmeasured, referee.all_saved, self._unpaid, train_ns, last
        return self._measure(report, train_ns, pay=pay, last=last)

    def _is_broken(self, offers: Mapping[str, Given]) -> bool:
        """Whether a value that was given is beyond its limit."""
        limits = self._referee.problem.constraints
        given = [(limits[self._constraint[name]], name, offer) for name, offer in offers.items() if not callable(offer)]
        return any(feasibility.excess(limit, self._number(name, offer)) for limit, name, offer in given)

    def _chooses_to_pay(self, report: _Report, train_ns: int, *, lazy: bool, last: bool) -> bool:
        """Whether constraints are paid for at this report."""
        referee = self._referee
        with referee.lock:
            if self._pace.interval == 1:
                worth = lazy and referee.worth(self.number, report.step, report.loss, train_ns)
            else:
                worth = self._is_due(report, train_ns, lazy=lazy, last=last)
            return worth and self._commit(report)

    def _commit(self, report: _Report) -> bool:
        """Make the choice to pay an act, unless a limit is known to be broken; the first price is always learned."""
        referee = self._referee
        if report.broken and referee.check_rounds:
            return False
        referee.acts += 1
        self._payment = (referee.acts, referee.seen)
        return True

    def _is_due(self, report: _Report, train_ns: int, *, lazy: bool, last: bool) -> bool:
        """Whether this report is one to pay at, where the interval is not 1; if not, maybe it is when training ends."""
        pace, kept = self._pace, self._candidate
        if pace.at_end:
            better = kept is None or report.standing < kept.standing
            if kept is not None and kept.checkpoint is not None and not (lazy and better):
                return False  # an earlier checkpoint is better
            due, worth = last, report.loss <= self._referee.bar
        else:
            due = last or report.step % (pace.interval or 1) == 0
            worth = self._referee.worth(self.number, report.step, report.loss, train_ns)
        # Without checkpoints it is the last state that counts; one that offers nothing leaves nothing to check.
        self._candidate = report if lazy and not due else None
        return lazy and due and worth

    def _look_back(self) -> _Observation | None:
        """The check at the end of training, if it is still to be made and worth its price."""
        kept, self._candidate = self._candidate, None
        if kept is None or self._verdict or self._failure:
            return None
        if kept.checkpoint is None and self._step > self._last:
            return None  # training went on after the report: its state is gone
        with self._referee.lock:
            if kept.loss > self._referee.bar or not self._commit(kept):
                return None
        self._fold = kept.folds
        return self._measure(kept, ABSENT, pay=True, last=True)

    def _measure(self, report: _Report, train_ns: int, *, pay: bool, last: bool) -> _Observation:
        """Take the constraints that came as values; call the others, if they are paid for, until one is violated."""
        step, objective, loss, offers, checkpoint, *_ = report
        constraints = self._referee.problem.constraints
        values: list[float | None] = [None] * len(constraints)
        prices = [ABSENT] * len(constraints)
        lazy: dict[int, Callable[..., float | Folds]] = {}
        for name, offer in offers.items():
            i = self._constraint[name]
            if callable(offer):
                lazy[i] = offer
                prices[i] = SAVED
            else:
                values[i] = self._number(name, offer)
                prices[i] = 0
        if pay:
            for i in self._referee.check_order(lazy):
                name, began, self._paying = constraints[i].metric, self._clock(), True
                try:
                    value = self._number(name, lazy[i]() if checkpoint is None else lazy[i](checkpoint))
                except Exception as error:
                    given = "" if checkpoint is None else ", called with the checkpoint"
                    error.add_note(f"raised by constraint {name!r} of trial {self.number} at step {step}{given}")
                    prices[i] = ABSENT
                    self._settle(step, objective, loss, values, prices, None, train_ns, last)
                    raise
                finally:
                    self._paying = False
                values[i], prices[i] = value, max(self._clock() - began, 1)
                if feasibility.excess(constraints[i], value):
                    break
        violation = feasibility.violation(constraints, values)
        return step, objective, loss, values, prices, violation, train_ns, last

    def _settle(
        self,
        step: int,
        objective: float,
        loss: float,
        values: Sequence[float | None],
        prices: Sequence[int],
        violation: float | None,
        train_ns: int,
        last: bool,
    ) -> Decision:
        """Have the referee rule on what was measured."""
        referee, fold = self._referee, self._fold
        provisional = fold is not None and fold[1] < fold[2]
        with referee.lock:
            verdict, best = referee.rule(self.number, step, loss, violation, values, prices, train_ns, provisional)
            if self._payment is not None:
                self._payments.append((len(self._rows), *self._payment))
                self._payment = None
            if fold is not None:
                self._folds.append((len(self._rows), *fold))
                self._fold = None
            self._rows.append((referee.acts, step, objective, train_ns, values, prices))
            self._over = self._over or last
            if verdict is not None and not last:  # before anybody sends the row away without it
                self._verdict = referee.reason(objective, values, verdict)
        if step > self._last:  # noqa: PLR1730 - a third of max's time
            self._last = step
        self._mark = now = self._clock()
        if now > self._deadline and not last and verdict is None:
            self._cut = self._overtime
        if now - self._flushed > _FLUSH_NS:
            self._flush()
        if best or verdict is not None or self._cut:
            return Decision(self.stopped, self._verdict or self._cut, self._pace.interval, best)
        return self._go_on

    def _flush(self) -> bool:
        """Send the rows since the last flush to the log, if there are any; they are kept until that has succeeded."""
        with self._referee.lock:
            self._flushed = self._clock()
            batch = self._batch()
            if batch is None:
                return False
            self._send(batch)
            self._rows, self._payments, self._folds = [], [], []
            return True

    def _batch(self) -> Reported | None:
        """The rows since the last flush, if there are any."""
        if not self._rows:
            return None
        acts, step, objective, train_ns, values, prices = zip(*self._rows, strict=True)
        shape = (len(step), len(self._constraint))
        return Reported(
            number=self.number,
            worker=self._referee.worker,
            seen=self._referee.seen,
            begun=self._begun,
            begun_seen=self._begun_seen,
            total=self._pace.total,
            interval=self._pace.interval,
            acts=np.array(acts, np.int64),
            step=np.array(step, np.int64),
            objective=np.array(objective, np.float64),
            values=np.array(values, np.float64).reshape(shape),
            train_ns=np.array(train_ns, np.int64),
            check_ns=np.array(prices, np.int64).reshape(shape),
            payments=np.array(self._payments, np.int64).reshape(-1, 3),
            noise=np.array(self._folds, np.float64).reshape(-1, 4),
            verdict=self._verdict or None,
            over=self._over,
        )

    def _joined(self, metrics: Mapping[str, Given], named: dict[str, Given]) -> dict[str, Given]:
        if not isinstance(metrics, Mapping):
            raise UsageError(f"{metrics!r} came as metrics: they are given by name, as in {self._objective}=0.8")
        twice = [name for name in metrics if name in named]
        if twice:
            raise UsageError(f"metric {twice[0]!r} came twice, in the mapping and by name")
        return {**metrics, **named}

    def _number(self, name: str, given: Any) -> float:
        if isinstance(given, Folds) and given.provisional and name != self._objective:
            raise UsageError(f"metric {name!r} is {given!r}: a limit is known when all its folds are there")
        try:
            if not isinstance(given, str | bytes):
                return float(given)
        except (TypeError, ValueError, OverflowError):
            pass
        shown = repr(given)
        raise UsageError(f"metric {name!r} is {shown[:60]}: a number is expected") from None

    def _refuse(self) -> None:
        if self._paying:
            raise UsageError(
                f"trial {self.number}: a constraint's callable returns its value; it does not report or tell"
            )
        if self._status != "running":
            raise UsageError(f"trial {self.number} was told already ({self._status}); it takes no more reports")
        raise UsageError(
            f"trial {self.number} is over at step {self._last} ({self._verdict or self._cut or self._failure}); "
            "loop over trial.steps(...), which ends by itself, or test decision.stop"
        )

    def _refuse_step(self, step: int) -> None:
        if step > self._last:
            past = self._pace.total or MOST
            raise UsageError(f"trial {self.number}: step {step} is past the last one, {past}")
        how = "was reported already" if step == self._last else f"comes after step {self._last}"
        how = "is no step" if step < 1 else how
        raise UsageError(
            f"trial {self.number}: step {step} {how}; steps start at 1 and each is reported once, in order"
        )

    def _refuse_metric(self, name: str) -> None:
        declared = ", ".join(self._referee.problem.metrics)
        raise UsageError(f"metric {name!r} was not declared: this study has {declared}; keep others with trial.note")
