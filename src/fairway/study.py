"""A study: the only writer of its log. It samples, hands out trials, and folds what they report.

Everything here is a fold of the log (`Ledger`, `Referee`) plus the trials this process is running.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, overload

from fairway.checks import whole
from fairway.clock import Clock, WallClock
from fairway.errors import FairwayError, MissingDependency, StorageError, UsageError
from fairway.events import Asked, Ended, Enqueued, Event, Opened, Reported, Status, Told
from fairway.history import History, TrialRecord
from fairway.identity import Identity
from fairway.ledger import Ledger
from fairway.problem import Constraint, Objective, Problem
from fairway.referee import Referee
from fairway.runners import local
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.seeds import fresh_seed, stream, trial_seed
from fairway.space import Parameter, Space, Value
from fairway.stoppers.ace import ACE
from fairway.stoppers.stopper import Stopper
from fairway.storage.log import Log
from fairway.storage.memory import MemoryLog
from fairway.trial import Given, Trial

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("fairway")


class Best(NamedTuple):
    """A checkpoint of a trial: `study.best` is the best feasible one.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=7)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=3)
    >>> study.best.number, study.best.params
    (1, {'x': 0.0261884112})
    """

    number: int
    step: int
    params: Mapping[str, Value]
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Costs:
    """Where the seconds of a study went, and what it saved.

    `checks` counts constraint evaluations, `saved_checks` those offered and not called; saved seconds are estimates:
    the mean price of a check, and for each stopped trial the steps it had left at its own pace.

    >>> import fairway as fw
    >>> fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0).costs.checks
    0
    """

    training_seconds: float
    check_seconds: float
    checks: int
    saved_training_seconds: float
    saved_check_seconds: float
    saved_checks: int


class Study:
    """A search for the best configuration within limits.

    Defaults: random search, ACE, a log in memory, and a fresh seed, which is shown and stored. With a `storage`, such
    as "sqlite:///credit.db" or "postgresql://host/database", the study is created under its `name`, or goes on if it
    is there already. Threads may share a study.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), [fw.AtLeast("x", 0.5)], seed=0)
    >>> def evaluate(trial):
    ...     x = trial.params["x"]
    ...     return {"loss": x * x, "x": x}
    >>> study.optimize(evaluate, trials=20)
    >>> study
    Study(trials=20, best=loss 0.3024, seed=0)
    """

    def __init__(
        self,
        space: Space | Mapping[str, Parameter],
        objective: Objective,
        constraints: Sequence[Constraint] | Constraint = (),
        *,
        sampler: Sampler | None = None,
        stopper: Stopper | None = None,
        storage: str | Log | None = None,
        name: str = "study",
        seed: int | None = None,
    ) -> None:
        self.space = space if isinstance(space, Space) else Space(space)
        self.problem = Problem(objective, constraints)  # type: ignore[arg-type]
        self.sampler = _kind("sampler", sampler, Sampler, Random())
        self.stopper = _kind("stopper", stopper, Stopper, ACE())
        self.name = name
        self.log: Log = _open(storage, name)
        self.seed = self._agree(None if seed is None else whole(seed, "seed", least=0))
        self._clock: Clock = WallClock()
        self._ledger = Ledger(self.space, self.problem)
        self._referee = Referee(self.problem, self.stopper, worker=-1)
        self._lock = self._referee.lock
        self._running: dict[int, Trial] = {}
        self._position = 0  # of the log, folded so far
        self._join()
        logger.info("study with seed %d, %s, %s", self.seed, self.sampler, self.stopper)

    def __repr__(self) -> str:
        best, objective = self.best, self.problem.objective.metric
        found = "none" if best is None else f"{objective} {best.metrics[objective]:.4g}"
        return f"Study(trials={len(self._ledger.courses)}, best={found}, seed={self.seed})"

    # What a user does

    @overload
    def ask(self) -> Trial: ...
    @overload
    def ask(self, n: int) -> list[Trial]: ...
    def ask(self, n: int | None = None) -> Trial | list[Trial]:
        """Begin a trial, or a list of n; each must be told later."""
        if n is None:
            return self._ask(self._propose)
        return [self._ask(self._propose) for _ in range(whole(n, "n"))]

    def tell(
        self, trial: Trial, metrics: Mapping[str, Given] | None = None, /, *, failed: str | None = None, **named: Given
    ) -> bool:
        """End a trial: with its final metrics if it did not report them, or with the reason why it failed.

        True if that made it the study's best: by the metrics told, or by a check that was paid for when it ended.
        """
        if not isinstance(trial, Trial):
            raise UsageError(f"tell({trial!r}): the Trial that ask() returned is expected")
        if trial.status != "running":
            raise UsageError(f"trial {trial.number} was told already ({trial.status}); a trial is told once")
        if self._running.get(trial.number) is not trial:
            raise UsageError(f"trial {trial.number} belongs to another study; tell it there")
        if trial._paying:
            trial._refuse()
        if failed is not None:
            if metrics or named:
                raise UsageError(f"trial {trial.number}: tell it either metrics or failed={failed!r}, not both")
            self._close(trial, "failed", str(failed))
            return False
        before = self._referee.incumbent
        if metrics is not None or named:
            trial._final = True
            try:
                trial.report(metrics, **named)  # type: ignore[arg-type]
            finally:
                trial._final = False
        self._finish(trial)
        after = self._referee.incumbent
        return after is not None and after is not before and after.number == trial.number

    def _finish(self, trial: Trial) -> None:
        """End a trial that has reported all it will."""
        late = trial._look_back()
        if late is not None:
            trial._settle(*late)
        if trial._failure:
            self._close(trial, "failed", trial._failure)
        elif not trial._last:
            if not trial._cut:
                objective = self.problem.objective.metric
                raise UsageError(
                    f"trial {trial.number} reported nothing: tell(trial, {objective}=...) or tell(trial, failed='why')"
                )
            self._close(trial, "failed", trial._cut)
        elif trial.stopped:
            self._close(trial, "stopped", trial._verdict or trial._cut)
        else:
            self._close(trial, "completed", "")

    def enqueue(self, params: Mapping[str, Value]) -> None:
        """Run a known configuration before the sampler is asked again."""
        self._append(Enqueued(self.space.check(params)))

    def optimize(
        self,
        function: Callable[[Trial], Any],
        *,
        trials: int | None = None,
        timeout: float | None = None,
        trial_timeout: float | None = None,
        catch: type[Exception] | tuple[type[Exception], ...] = Exception,
        progress: bool | None = None,
    ) -> None:
        """Run so many more trials, or for so many seconds, whichever ends first.

        `function` trains in a loop and reports, or returns its metrics (or, without constraints, one number). An
        exception in `catch` fails its trial and the study goes on, unless nothing has ever succeeded. `timeout` and
        `trial_timeout` (seconds) end a trial at its next report. `progress`: live lines; by default in a terminal.
        Ctrl-C ends the run; what was told is kept.
        """
        local.run(
            self,
            function,
            trials=trials,
            timeout=timeout,
            trial_timeout=trial_timeout,
            catch=catch,
            progress=progress,
        )

    # What a user reads

    @property
    def best(self) -> Best | None:
        """The best feasible checkpoint, or None while nothing feasible was measured."""
        incumbent = self._referee.incumbent
        if incumbent is None:
            return None
        objective = self.problem.objective.sign * incumbent.loss
        return self._best(incumbent.number, incumbent.step, objective, incumbent.values)

    @property
    def best_ignoring_limits(self) -> Best | None:
        """The checkpoint with the best objective, whether it may be shipped or not: what the limits cost."""
        found = self._ledger.best_ignoring_limits
        return None if found is None else self._best(found[0], *found[1])

    @property
    def trials(self) -> list[TrialRecord]:
        """Every trial so far, by number; what running ones report shows within a second or so."""
        return [self._ledger.record(number) for number in range(len(self._ledger.courses))]

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return {"running": len(self._ledger.running), **self._ledger.counts}

    @property
    def costs(self) -> Costs:
        """The seconds spent and saved so far."""
        referee = self._referee
        saved = sum(
            ns * saved // max(n, 1)
            for ns, n, saved in zip(referee.check_ns, referee.checks, referee.saved, strict=True)
        )
        return Costs(
            training_seconds=referee.train_ns / 1e9,
            check_seconds=sum(referee.check_ns) / 1e9,
            checks=sum(referee.checks),
            saved_training_seconds=self._ledger.train_saved_ns / 1e9,
            saved_check_seconds=saved / 1e9,
            saved_checks=sum(referee.saved),
        )

    @property
    def last_stop(self) -> str:
        """Which trial the stopper ended last, and why."""
        return self._ledger.last_stop

    @property
    def last_failure(self) -> str:
        """Which trial failed last, and why."""
        return self._ledger.last_failure

    @property
    def ended(self) -> str | None:
        """Why the last run ended; None while the study is going on."""
        return self._ledger.ended

    @property
    def history(self) -> History:
        """The read-only columns that samplers see."""
        return self._ledger.history()

    def to_frame(self) -> pd.DataFrame:
        """Every trial as a row of a pandas table: parameters, the metrics that stand for it, status and costs."""
        try:
            import pandas as pd  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingDependency("to_frame needs pandas: pip install pandas") from None
        rows = [
            {
                "number": record.number,
                **{f"param.{name}": record.params.get(name) for name in self.space},
                **{f"metric.{name}": record.metrics.get(name) for name in self.problem.metrics},
                **{
                    name: getattr(record, name)
                    for name in ("feasible", "status", "step", "steps", "training_seconds", "check_seconds", "reason")
                },
            }
            for record in self.trials
        ]
        return pd.DataFrame(rows).set_index("number") if rows else pd.DataFrame()

    # What runners do

    def _ask(self, propose: Callable[[int], Mapping[str, Value]]) -> Trial:
        """Begin the next trial with what waits in the queue, or else with what is proposed for its number."""
        with self._lock:
            self._catch_up()
            self._give_up_lost()
            while True:
                number, queue = len(self._ledger.courses), self._ledger.queue
                params = self.space.check(queue[0] if queue else propose(number))
                asked = Asked(number, params, self._clock.at(), self._referee.worker, queued=bool(queue))
                if self._append(asked):
                    break
                self._catch_up()
            trial = Trial(
                number,
                dict(params),
                seed=trial_seed(self.seed, number),
                referee=self._referee,
                send=self._append,
                clock=self._clock,
            )
            self._running[number] = trial
            return trial

    def _propose(self, number: int) -> Mapping[str, Value]:
        return self.space.decode(self.sampler.propose(self.history, stream(self.seed, number, "sampler")))

    def _give_up_lost(self) -> None:
        """Fail the running trials of workers that are gone."""
        others = {course.worker for course in self._ledger.running.values()} - {self._referee.worker}
        gone = self.log.lost(others) if others else set()
        if gone:
            for number in [n for n, course in self._ledger.running.items() if course.worker in gone]:
                self._tell(number, "failed", "lost its worker")

    def _end(self, reason: str) -> None:
        """Note why a run ended."""
        self._append(Ended(reason, self._clock.at()))
        logger.info("ended: %s", reason)

    def _close(self, trial: Trial, status: Status, reason: str) -> None:
        """Write that a trial ended, and only then forget it: a write that fails may be tried again."""
        with self._lock:
            self._catch_up()
            written = self._tell(trial.number, status, reason, trial._batch(), trial._notes)
            del self._running[trial.number]
            trial._rows = []
            trial._status = self._ledger.courses[trial.number].status
        if not written:
            why = self._ledger.courses[trial.number].reason
            raise UsageError(f"trial {trial.number} was ended by another worker ({why}); its tell comes late")

    def _tell(
        self,
        number: int,
        status: Status,
        reason: str,
        batch: Reported | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write that a trial ended, with its last reports; False if another worker was first."""
        steps, train_ns, check_ns = self._ledger.totals(number, batch)
        told = Told(
            number=number,
            status=status,
            reason=reason,
            at=self._clock.at(),
            worker=self._referee.worker,
            act=self._referee.acts + 1,
            checkpoint=self._ledger.standing(number, batch),
            steps=steps,
            train_ns=train_ns,
            check_ns=check_ns,
            notes=notes or {},
        )
        written = self._append(told) if batch is None else self._append(batch, told)
        if written:
            self._referee.finish(number, completed=status == "completed")
            logger.debug("trial %d %s: %s", number, status, reason)
        if number in self._ledger.running:  # others wrote too, so it is not folded in yet
            self._catch_up()
        return written

    # The log

    def _agree(self, seed: int | None) -> int:
        """Make sure that the log, if it holds a study, holds this one; the seed, its own if none was given."""
        first = next(iter(self._read(0)), None)
        stored = first.config if isinstance(first, Opened) else {}
        if stored:
            Identity(self.space, self.problem, 0, self.sampler, self.stopper).refuse_another(stored)
        if seed is not None and stored.get("seed", seed) != seed:
            raise UsageError(f"the study in this storage has seed {stored['seed']}; leave seed out, or give that one")
        return int(stored.get("seed", fresh_seed() if seed is None else seed))

    def _join(self) -> None:
        """Take a number as a worker of this study."""
        identity = Identity(self.space, self.problem, self.seed, self.sampler, self.stopper).to_json()
        while True:
            self._catch_up()
            worker = self._ledger.workers
            if self._append(Opened(worker, identity)):
                break
        self._referee.worker = worker
        self.log.attend(worker)

    def _append(self, *events: Event) -> bool:
        """Write to the log and fold it; False, with nothing written, if another worker was first to claim it."""
        with self._lock:
            try:
                length = self.log.append(events)
            except FairwayError:
                raise
            except Exception as error:
                raise StorageError(f"the log could not be written ({error}); what was told before is safe") from error
            if length == self._position + len(events):  # nobody else wrote: no need to read it back
                self._fold(events)
            return length is not None

    def _read(self, since: int) -> Sequence[Event]:
        try:
            return self.log.read(since)
        except FairwayError:
            raise
        except Exception as error:
            raise StorageError(f"the log could not be read ({error})") from error

    def _catch_up(self) -> None:
        """Fold in what was written since, by this study or by others."""
        events = self._read(self._position)
        if any(self._is_foreign(event) for event in events):
            self._flush()  # with what had been seen when those reports were ruled on
            events = self._read(self._position)
        self._fold(events)

    def _fold(self, events: Sequence[Event]) -> None:
        for event in events:
            self._ledger.fold(event)
            self._position += 1
            if self._is_foreign(event):
                self._referee.fold(event)
                self._referee.seen = self._position

    def _flush(self) -> None:
        """Send what running trials have reported to the log."""
        for trial in self._running.values():
            trial._flush()

    def _is_foreign(self, event: Event) -> TypeGuard[Reported | Told]:
        return isinstance(event, Reported | Told) and event.worker != self._referee.worker

    def _best(self, number: int, step: int, objective: float, values: Sequence[float | None]) -> Best:
        metrics = dict(zip(self.problem.metrics, (objective, *values), strict=True))
        return Best(number, step, dict(self._ledger.courses[number].params), metrics)


def _open(storage: str | Log | None, name: str) -> Log:
    if not isinstance(name, str) or not name:
        raise UsageError(f"name={name!r}: the name of a study is expected")
    if isinstance(storage, str):
        from fairway.storage.sql import Database  # noqa: PLC0415 - SQLAlchemy takes its time to load

        return Database(storage).log(name)
    log: Log = _kind("storage", storage, Log, MemoryLog())
    return log


def _kind(name: str, given: Any, kind: type[Any], default: Any) -> Any:
    if given is None:
        return default
    if not isinstance(given, kind):
        hint = f"; did you mean {given.__name__}()?" if isinstance(given, type) else ""
        raise UsageError(f"{name}={given!r}: a {name} is expected{hint}")
    return given
