"""A running trial's own state, and the one door for code that runs trials without being their user.

A simulator, a worker process, a boosting callback or another tuner takes a trial through its driver: fix the number of
steps (`begin`), measure a report (`measure`), have the referee rule on it (`settle`), end it for some other reason
(`cut`), bring it to its end (`finish`). Measuring and settling are two calls because in virtual time they happen at
different moments. The user's `Trial` is a thin face on the same object.

`measure` and `settle` are the hot path of fairway: together they take microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fairway.checks import MOST, whole
from fairway.engine import measurement
from fairway.engine.batch import Batch
from fairway.engine.checker import Checker
from fairway.engine.clock import Clock
from fairway.engine.decision import Decision
from fairway.engine.durability import REPORT_NS
from fairway.engine.events import ABSENT, Status
from fairway.engine.forks import disowned_by_children
from fairway.engine.measurement import Given, Observation, Report, Spread
from fairway.engine.referee import Referee
from fairway.engine.saver import Saver
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.problem import Problem

_MISSING = object()
_new = tuple.__new__  # makes a named tuple in a third of the time that its own constructor takes


class Driver:
    """One running trial, from its first step to its end.

    `drain` writes a batch that has waited too long; without one, its rows stay until somebody drains them.
    `on_best` is called with the step and the objective of each checkpoint that becomes the best of the study, also by
    a check that is paid for when training has ended.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> driver = study.ask().driver
    >>> driver.begin(10)
    >>> observation = driver.measure({"loss": 0.3}, step=1)
    >>> driver.settle(observation).best, driver.last_step, driver.total
    (True, 1, 10)
    """

    __slots__ = (
        *("number", "status", "step", "last_step", "saver", "reason", "failed", "notes", "batch", "referee", "problem"),
        *("on_best", "on_note", "_checker", "_clock", "_drain", "_objective", "_sign", "_final", "_mark", "_forked"),
        *("_deadline", "_overtime", "_continue", "_unlimited", "_unpaid", "__weakref__"),
    )

    def __init__(
        self, number: int, referee: Referee, clock: Clock, *, drain: Callable[[Batch], object] | None = None
    ) -> None:
        self.number = number
        self.status: Status = "running"
        self.step = 0  # where a loop over the steps is
        self.last_step = 0  # the last one reported
        self.saver: Saver | None = None  # None where nothing is to be saved: a model is built again
        self.reason = ""  # why training should end now; empty while it should not
        self.failed = False  # that reason is a failure
        self.notes: dict[str, Any] = {}
        self.on_best: Callable[[int, float], object] | None = None
        self.on_note: Callable[[Mapping[str, Any]], object] | None = None  # keeps what is noted after its end
        self.batch, self.referee = Batch(number, referee, clock.ns()), referee
        self._clock, self._drain = clock.ns, drain
        self._objective, self._sign = referee.problem.objective.metric, referee.problem.objective.sign
        self._final = False  # what is reported now is the last report
        self._deadline: float = math.inf  # by the clock; a report after it cuts the trial
        self._overtime = ""  # with this reason
        self._continue = Decision(stop=False, reason="", interval=None, best=False)
        self._mark = clock.ns()  # since then the trial trains
        self._forked = False  # this is a copy, in a child of its process
        self._checker = Checker(number, referee, clock.ns, self.notes)
        self._judge_by(referee.problem)
        disowned_by_children(self)

    def _judge_by(self, problem: Problem) -> None:
        """Take over the referee's limits, which may change while the trial trains."""
        self.problem: Problem = problem
        self._checker.judge_by(problem)
        self._unlimited = [metric for metric in problem.columns if metric not in self._checker.columns]
        self._unpaid = None if problem.limits else 0.0  # the violation of a report that pays for nothing

    # What is known of it

    @property
    def total(self) -> int | None:
        """The number of steps it may take; None while unknown."""
        return self.batch.pace.total

    @property
    def has_begun(self) -> bool:
        """Whether its number of steps is fixed."""
        return self.batch.begun >= 0

    @property
    def continued(self) -> int:
        """The step of the checkpoint that it continues, its `last_step` before the first report; 0 if there is none."""
        return 0 if self.saver is None else self.saver.continued

    @property
    def has_reported(self) -> bool:
        """Whether there was a report."""
        return self.last_step > self.continued

    @property
    def is_over(self) -> bool:
        """Whether it takes no more reports: it was stopped, was told, or has reported its last step."""
        return bool(self.reason) or self.status != "running" or self.last_step == self.total

    @property
    def is_at_stoppers_end(self) -> bool:
        """Whether it has come to the last step that the stopper allows any trial."""
        return self.last_step == self.referee.stopper.longest

    # What is done with it

    def begin(self, total: int | None) -> None:
        """Fix the number of steps; training starts now."""
        with self.referee.lock:
            self.batch.begin(self.referee.begin(total))
        self._continue = Decision(stop=False, reason="", interval=self.batch.pace.interval, best=False)
        self._mark = self._clock()

    def count(self) -> Iterator[int]:
        """Count the steps, from the one after the checkpoint that it continues, until the trial is over."""
        total, self.step = self.total, self.continued
        while not self.reason and self.status == "running" and (total is None or self.step < total):
            self.step += 1
            yield self.step

    def resume(self) -> Path | None:
        """The checkpoint to continue from, or the last one that was saved; None if there is none.

        Whoever asks before the first step continues from it.
        """
        if self.saver is None:
            return None
        found = self.saver.found()
        if found is not None and not self.step and not self.last_step:
            self.saver.continued = self.last_step = found[0]
        return self.saver.last or (found[1] if found is not None and self.continued else None)

    def now(self) -> int:
        """The trial's clock, in nanoseconds."""
        return self._clock()

    def train_since(self, ns: int | None = None) -> None:
        """Count training from a time by the trial's clock on, by default from now."""
        self._mark = self._clock() if ns is None else ns

    @property
    def next_step(self) -> int:
        """The step of a report that does not say which."""
        return self.last_step + 1 if self._final or not self.step else self.step

    def expire(self, seconds: float, reason: str) -> None:
        """Have the first report after so many seconds end the trial, for this reason."""
        self._overtime, self._deadline = reason, self._clock() + seconds * 1e9

    def limit_checks(self, seconds: float, on_check: Callable[[str], object] | None = None) -> None:
        """Have a check that takes longer end the trial, once the check is over.

        `on_check` is called with the metric when a check begins, and with "" when it is over.
        """
        self._checker.slowest, self._checker.on_check = seconds, on_check

    def cut(self, reason: str) -> None:
        """End it here for a reason that is not the stopper's; a check that was to come is not made."""
        self.reason = reason
        self._checker.take_awaited()

    def fail(self, reason: str) -> None:
        """Note why it cannot succeed."""
        self.reason, self.failed = reason, True

    def measure(
        self,
        metrics: Mapping[str, Given] | None,
        named: dict[str, Given] | None = None,
        step: int | None = None,
        checkpoint: Any = None,
    ) -> Observation | None:
        """Measure the objective, what it cost, and those constraints that are worth their price; None: it failed.

        The first report begins the trial, if nobody has. To pay for constraints is an act of the referee's.
        """
        now = self._clock()
        batch, pace, referee = self.batch, self.batch.pace, self.referee
        if self.reason or self._checker.busy or self.status != "running":
            self.refuse_reports()
        if self.problem is not referee.problem:
            self._judge_by(referee.problem)
        if metrics is not None or named is None:
            named = measurement.joined(self.problem, metrics, named or {})
        if step is None:
            step = self.next_step
        elif type(step) is not int:
            step = whole(step, "step")
        total = pace.total
        if step <= self.last_step or total is not None and step > total or step > MOST:
            self._refuse_step(step)
        given = named.pop(self._objective, _MISSING)
        spread, payment, lazy = None, None, 0
        if type(given) is float:
            objective = given
        else:
            if given is _MISSING:
                measurement.refuse_without_objective(self.problem, self.number, named)
            if callable(given):
                given = given()
                now = self._clock()  # what it took is training
            objective = measurement.number(self.problem, self._objective, given)
            if isinstance(given, Folds):
                spread = Spread(given.noise, len(given), given.of)
        loss = self._sign * objective
        if loss - loss != 0.0:  # NaN or infinite
            self.fail(f"{self._objective} is {objective} at step {step}")
            return None
        for name in self._unlimited:
            named.pop(name, None)
        unchecked = bool(referee.steadiness.steady) and self._checker.carry(named, step, loss)
        for name, offer in named.items():
            if name not in self._checker.columns:
                measurement.refuse_metric(self.problem, name)
            lazy += callable(offer)
        train_ns = now - self._mark
        if batch.begun < 0:
            self.begin(None)
            pace = batch.pace
        last = self._final or step == pace.total
        all_lazy = lazy == len(named) == len(self._checker.columns)
        nothing_to_pay = all_lazy and pace.interval == 1 and (loss > referee.bar or not lazy) and not unchecked
        if not nothing_to_pay:  # a rare case
            broken = 0 < lazy < len(named) and measurement.is_broken(self.problem, named)
            report = Report(step, objective, loss, named, checkpoint, train_ns, lazy > 0, broken, last, spread)
            payment = self._checker.choose(report, pace) if lazy or pace.interval != 1 else None
            if payment is not None or not all_lazy:
                return self._check(report, payment)
        values, prices = referee.unmeasured, referee.all_saved
        return _new(
            Observation, (step, objective, loss, values, prices, self._unpaid, train_ns, last, spread, payment, ())
        )

    def settle(self, observation: Observation) -> Decision:
        """Have the referee rule on what was measured, and keep the row.

        A report past the deadline ends the trial. A batch that has waited for a second is drained here.
        """
        referee, batch = self.referee, self.batch
        with referee.lock:
            if self.problem is not referee.problem:
                observation = measurement.judged_again(observation, self.problem, referee.problem)
                self._judge_by(referee.problem)
            why, best = referee.rule(self.number, observation)
            batch.add(observation)
            if why is not None and not observation.last:  # before anybody drains the row without it
                self.reason = batch.stop_reason = referee.reason(observation, why)
        if observation.step > self.last_step:  # noqa: PLR1730 - a third of max's time
            self.last_step = observation.step
        self._mark = now = self._clock()
        if now > self._deadline and not observation.last and not self.reason:
            self.reason = self._overtime
        if now - batch.drained_ns > REPORT_NS and self._drain is not None:
            self._drain(batch)
        if best and self.on_best is not None:
            self.on_best(observation.step, observation.objective)
        if best or self.reason:
            return Decision(bool(self.reason), self.reason, batch.pace.interval, best)
        return self._continue

    def look_back(self) -> Observation | None:
        """The check at the end of training, if it is still to be made and worth its price."""
        if self.problem is not self.referee.problem:
            self._judge_by(self.referee.problem)
        kept = self._checker.take_awaited()
        if kept is None or self.batch.stop_reason or self.failed:
            return None
        if kept.checkpoint is None and self.step > self.last_step:
            return None  # training continued after the report, so its state is gone
        late = kept._replace(train_ns=ABSENT, last=True)
        payment = self._checker.commit(late, self.batch.pace)
        return None if payment is None else self._check(late, payment)

    def _check(self, report: Report, payment: tuple[int, int] | None) -> Observation:
        """Check a report; one check that takes too long ends the trial."""
        observation = self._checker.check(report, payment, keep=self.settle)
        if self._checker.overran:
            self.expire(-1.0, self._checker.overran)
        return observation

    def finish(self, metrics: Mapping[str, Given] | None = None, /, **named: Given) -> tuple[Status, str]:
        """Report the last metrics, if any came, make the check that waits for the end, and say how the trial ended."""
        if metrics is not None or named:
            self._final = True
            try:
                observation = self.measure(metrics, named)
                if observation is not None:
                    self.settle(observation)
            finally:
                self._final = False
        late = self.look_back()
        if late is not None:
            self.settle(late)
        if self.failed or self.reason and not self.has_reported:
            return "failed", self.reason
        if not self.has_reported:
            raise UsageError(
                f"trial {self.number} reported nothing: tell(trial, {self._objective}=...) or tell(trial, failed='why')"
            )
        return ("stopped", self.reason) if self.reason else ("completed", "")

    def disown(self) -> None:
        """In a forked child: end the loop over its steps, and refuse what it reports, which nobody would hear of."""
        if self.status == "running":
            self._forked, self.saver = True, None
            self._checker.on_check = None
            self.cut("it runs in the process that forked this one")

    def refuse_in_check(self) -> None:
        """Raise a sentence inside a constraint's callable, which may neither report nor tell."""
        if self._checker.busy:
            raise UsageError(
                f"trial {self.number}: a constraint's callable returns its value; it does not report or tell"
            )

    def refuse_reports(self) -> NoReturn:
        """Say why no report is taken."""
        if self._forked:
            raise UsageError(f"trial {self.number} runs in the process that forked this one: report and tell it there")
        self.refuse_in_check()
        if self.status != "running":
            raise UsageError(f"trial {self.number} was told already ({self.status}); it takes no more reports")
        raise UsageError(
            f"trial {self.number} is over at step {self.last_step} ({self.reason}); "
            "loop over trial.steps(...), which ends by itself, or test decision.stop"
        )

    def _refuse_step(self, step: int) -> NoReturn:
        if step > self.last_step:
            past = self.total or MOST
            raise UsageError(f"trial {self.number}: step {step} is past the last one, {past}")
        how = "was reported already" if step == self.last_step else f"comes after step {self.last_step}"
        how = "is too low" if step < 1 else how
        raise UsageError(
            f"trial {self.number}: step {step} {how}; steps start at 1 and each is reported once, in order"
        )
