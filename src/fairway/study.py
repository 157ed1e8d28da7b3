"""The `Study` that users hold. It checks arguments and leaves the work to its owner (`engine/owner.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from fairway import hashing, hints
from fairway.checks import at_least_zero, instance, short, whole
from fairway.engine.certification import latest
from fairway.engine.checkpoints import CheckpointReader
from fairway.engine.costs import Costs, costs
from fairway.engine.events import Searched, Status
from fairway.engine.frames import Library, frame
from fairway.engine.glance import glance
from fairway.engine.identity import Identity
from fairway.engine.keep import Keep
from fairway.engine.log import Log
from fairway.engine.measurement import Given
from fairway.engine.outage import PATIENCE
from fairway.engine.owner import Owner
from fairway.engine.record import Best, TrialRecord, checkpoint_of, table
from fairway.engine.trial import Trial, jsonable_notes
from fairway.engine.what_if import WhatIf, on_front, what_if
from fairway.errors import UsageError
from fairway.history import History
from fairway.parameters import Value
from fairway.problem import Constraint, Objective, Problem
from fairway.rows import group_names, numbered_groups
from fairway.runners import optimize
from fairway.runners.callbacks import Callback, Herald, check_callbacks
from fairway.runners.rebuild import rebuild
from fairway.samplers.compass import Compass
from fairway.samplers.sampler import Sampler
from fairway.space import Declared, Space
from fairway.stoppers.pilot import Pilot
from fairway.stoppers.stopper import Stopper
from fairway.storage.opening import StartFrom, opened_log, sources
from fairway.terminators.terminator import Terminator, Verdict

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from fairway.engine.certificate import Certificate
    from fairway.runners.certify import Evaluate


@hints.answering(hints.STUDY)
class Study:
    """A search for the best configuration within limits.

    Defaults: `Compass`, `Pilot`, no terminator, a log in memory, and a fresh seed, which is stored. With a `storage`,
    such as "sqlite:///credit.db" or "postgresql://host/database", the study is created under its `name`, or resumes if
    it is there already. If the database becomes unreachable, the study waits for it up to `patience` seconds: reports
    stay in memory and training continues, while `ask` and `tell` wait. `checkpoints` says which of the checkpoints that
    trials save are kept, by default `fw.Keep(best=3)`. Threads may share a study. `owner` is the engine behind it, for
    integrations.

    `start_from` lists earlier studies with the same objective, on other data or in an overlapping space: open ones, or
    addresses such as "sqlite:///old.db#credit". Their trials are copied into the log when the study is created, and
    samplers learn from them. A parameter that an earlier study lacks is left open, unless you pass a pair that gives
    its value: `(study, {"dropout": 0.0})`.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), [fw.AtLeast("x", 0.5)], seed=0)
    >>> def evaluate(trial):
    ...     x = trial.params["x"]
    ...     return {"loss": x * x, "x": x}
    >>> study.optimize(evaluate, trials=20)
    >>> study
    Study(trials=20, best=loss 0.2503, seed=0)
    """

    def __init__(
        self,
        space: Declared,
        objective: Objective,
        constraints: Sequence[Constraint] | Constraint = (),
        *,
        sampler: Sampler | None = None,
        stopper: Stopper | None = None,
        terminator: Terminator | None = None,
        storage: str | Log | None = None,
        name: str = "study",
        seed: int | None = None,
        patience: float = PATIENCE,
        start_from: StartFrom = (),
        checkpoints: Keep | None = None,
    ) -> None:
        self.space = space if isinstance(space, Space) else Space(space)
        problem = Problem(objective, constraints)  # type: ignore[arg-type]
        self.sampler = instance("sampler", sampler, Sampler, Compass())
        self.stopper = instance("stopper", stopper, Stopper, Pilot())
        self.terminator = instance("terminator", terminator, Terminator, None)
        self.name = name
        patience = at_least_zero(patience, "patience")
        seed = None if seed is None else whole(seed, "seed", least=0)
        identity = Identity(self.space, problem, seed, self.sampler, self.stopper, self.terminator)
        if not isinstance(checkpoints, Keep | None):
            raise UsageError(f"checkpoints={short(checkpoints)}: fw.Keep(...) is expected, as in fw.Keep(best=3)")
        earlier = sources(start_from)
        with opened_log(storage, name) as log:
            self.log: Log = log
            self.owner = Owner(identity, log, patience=patience, start_from=earlier, keep=checkpoints)
        self.seed = self.owner.seed
        self._certificates: dict[int, Certificate] = {}  # made by this process
        self._checkpoints = CheckpointReader(self.log, self.problem)

    def __repr__(self) -> str:
        best, objective = self.best, self.problem.objective.metric
        found = "none" if best is None else f"{objective} {best.metrics[objective]:.4g}"
        return f"Study(trials={len(self.owner.ledger.courses)}, best={found}, seed={self.seed})"

    def _repr_html_(self) -> str:
        return glance(self.owner, self.name, self.certificate).html()

    # What a user does

    @overload
    def ask(self) -> Trial: ...
    @overload
    def ask(self, n: int) -> list[Trial]: ...
    def ask(self, n: int | None = None) -> Trial | list[Trial]:
        """Begin a trial, or a list of n trials; pass each to `tell` when it is done."""
        if n is None:
            return self.owner.ask()
        return [self.owner.ask() for _ in range(whole(n, "n"))]

    def tell(
        self, trial: Trial, metrics: Mapping[str, Given] | None = None, /, *, failed: str | None = None, **named: Given
    ) -> bool:
        """End a trial: with its final metrics if it did not report them, or with the reason why it failed.

        Returns True if the trial became the study's best, by these metrics or by a check that was made when it ended.
        Once `tell` returns, the end of the trial is in the storage; if the storage is unreachable, `tell` waits up to
        `patience` seconds. If it then raises `StorageError`, nothing is lost: tell the trial again, or just continue,
        and its end is written later.
        """
        if not isinstance(trial, Trial):
            raise UsageError(f"tell({short(trial)}): the Trial that ask() returned is expected")
        if trial.status != "running":
            raise UsageError(f"trial {trial.number} was told already ({trial.status}); a trial is told once")
        if self.owner.running.get(trial.number) is not trial:
            raise UsageError(f"trial {trial.number} belongs to another study; tell it there")
        trial.driver.refuse_in_check()
        if failed is not None:
            if metrics or named:
                raise UsageError(f"trial {trial.number}: tell it either metrics or failed={failed!r}, not both")
            self.owner.close(trial, "failed", str(failed))
            return False
        before, kept = self.owner.referee.incumbent, self.owner.ends.get(trial.number)
        status, reason = (kept.status, kept.reason) if kept else trial.driver.finish(metrics, **named)
        if not self.owner.close(trial, status, reason):
            why = self.owner.ledger.courses[trial.number].reason
            raise UsageError(f"trial {trial.number} was ended by another worker ({why}); its tell comes late")
        after = self.owner.referee.incumbent
        verdict = self.owner.verdicts.ask() if status != "failed" else None
        if verdict:
            self.owner.end(verdict.reason)
        return after is not None and after is not before and after.number == trial.number

    def enqueue(self, params: Mapping[str, Value]) -> None:
        """Run a known configuration before the sampler is asked again; the sampler fills in parameters left out.

        >>> import fairway as fw
        >>> study = fw.Study({"depth": fw.Int(1, 9), "rate": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
        >>> study.enqueue({"depth": 3})
        >>> study.ask().params
        {'depth': 3, 'rate': 0.9052107102}
        """
        self.owner.enqueue(params)

    def set_limit(self, *added: Constraint, **limits: float | None) -> None:
        """Change limits during a study; all trials, past ones included, are judged by the new limits.

        `set_limit(eod=0.12)` sets another number, `eod=None` drops the limit, and `set_limit(fw.AtMost("ms", 20.0))`
        adds a constraint, which counts as not measured in earlier trials. A tracked metric gets its limit in the same
        way, with `set_limit(ms=20.0)`, and `set_limit(fw.Track("ms"))` tracks it again. The best model, the ranks and
        the samplers follow at once, in all workers too. Trials that were stopped stay stopped. The log records what
        changed and when.

        >>> import fairway as fw
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtLeast("x", 0.5)], seed=0)
        >>> study.optimize(lambda trial: {"loss": trial.params["x"], "x": trial.params["x"]}, trials=20)
        >>> round(study.best.metrics["x"], 3)
        0.503
        >>> study.set_limit(x=0.25)
        >>> round(study.best.metrics["x"], 3)
        0.364
        """
        self.owner.set_limit(added, limits)

    @hints.hinting(hints.OPTIMIZE)
    def optimize(
        self,
        function: Callable[[Trial], Any],
        *,
        trials: int | None = None,
        total: int | None = None,
        timeout: float | None = None,
        until: str | datetime | None = None,
        trial_timeout: float | None = None,
        check_timeout: float | None = None,
        workers: int = 1,
        backend: optimize.Backend | None = None,
        resources: Mapping[str, float] | None = None,
        address: str | None = None,
        retry: int | None = None,
        catch: type[Exception] | tuple[type[Exception], ...] = Exception,
        raise_on_failure: bool = False,
        progress: bool = True,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Run trials: `trials` more, up to `total`, for `timeout` seconds, or `until` a time such as "18:30".

        Whichever comes first ends the run. Trials and seconds are those of all workers together; `until` is a
        `datetime` or a time of day, tomorrow's if today's has passed. `total` counts the trials of earlier runs and of
        other processes too: if a script with total=30 is killed and started again, it runs only the missing trials. A
        lost trial and its retry count as one.

        `function` trains in a loop and reports, or returns its metrics (or, without constraints, one number). An
        exception in `catch` fails its trial and the study continues, unless nothing has ever succeeded; with
        `raise_on_failure`, the first such exception ends the run instead, and the study keeps all its trials.
        `timeout`, `trial_timeout` and `check_timeout` (seconds for the run, for a trial, for the check of one
        constraint) end a trial at its next report. A trial that reports nothing for 5 s more, or for two of its steps
        if that is longer, is killed with its worker, and fails. In this process nothing can be killed; a warning says
        what the run is waiting for. When the terminator's verdict is to stop, no new trial begins and those running
        finish; calling `optimize` again overrides that verdict until the terminator changes its mind.

        `progress` shows live lines in a terminal or a notebook, and elsewhere prints a line every ten seconds and when
        there is a new best; these lines also go to Python's log, at INFO. Each `fw.Callback` in `callbacks` is told of
        a new best, a trial's end, a verdict and the end of the run. Ctrl-C raises `KeyboardInterrupt` after recording
        the running trials as failed ("interrupted"). The study keeps everything it found, and the next `optimize`
        continues, starting with the interrupted trials that saved a checkpoint.

        One worker runs in this process. Several run in processes of their own (`backend="process"`), started fresh: any
        function that cloudpickle can send will do, without a `__main__` guard. Each trains with its share of the cores,
        unless OMP_NUM_THREADS and the like say otherwise. If a process dies, it is replaced and its trial is retried
        once, from its last checkpoint if it saved one (`trial.resume`). `retry` sets how often, and then applies to
        killed trials too. `backend="thread"` suits functions that wait, or that release Python's lock.

        `backend="ray"` (extra `ray`) runs each worker as a Ray actor with its own `resources`, by default {"CPU": 1}.
        The cluster is the one at `address`, else the one that this process is connected to, else the one that
        RAY_ADDRESS names, else one started here. As many workers run as there is room for. The trials of a lost node
        are retried.
        """
        optimize.run(
            self,
            self.owner,
            function,
            trials=trials,
            total=total,
            timeout=timeout,
            until=until,
            trial_timeout=trial_timeout,
            check_timeout=check_timeout,
            workers=workers,
            backend=backend,
            resources=resources,
            address=address,
            retry=retry,
            catch=catch,
            raise_on_failure=raise_on_failure,
            progress=progress,
            callbacks=callbacks,
        )

    def rebuild(self, function: Callable[[Trial], Any]) -> Any:
        """Train the best model again: run `function` on the best configuration, up to the best step.

        Pass the function that was optimised; it must return its model. It gets the same `trial.params` and `trial.seed`
        and reports as before, and its loop over `trial.steps` ends at the best step. No constraint is evaluated. A
        warning says if the objective comes out differently.

        >>> import fairway as fw
        >>> study = fw.Study({"rate": fw.Float(0.1, 0.9)}, fw.Minimize("loss"), seed=0)
        >>> def train(trial):
        ...     weight = 0.0
        ...     for step in trial.steps(8):
        ...         weight += trial.params["rate"] * (1.0 - weight)
        ...         trial.report(loss=abs(0.9 - weight))
        ...     return [weight]
        >>> study.optimize(train, trials=5)
        >>> abs(0.9 - study.rebuild(train)[0]) == study.best.metrics["loss"]
        True
        """
        best = self.best
        if best is None:
            raise UsageError("there is no best model to build: nothing within the limits was found so far")
        return rebuild(best, self.owner.seed_of(best.number), self.problem, function)

    def load_best(self, load: Callable[[Path], Any]) -> Any:
        """Load the best model: call `load` with the path of the checkpoint that its trial saved with `trial.save`.

        >>> import tempfile
        >>> import fairway as fw
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), checkpoints=fw.Keep(folder), seed=0)
        ...     def train(trial):
        ...         path = trial.save(lambda path: path.write_text("its weights"))
        ...         return trial.params["x"]
        ...     study.optimize(train, trials=5)
        ...     study.load_best(lambda path: path.read_text())
        'its weights'
        """
        if not callable(load):
            raise UsageError(f"load_best({short(load)}): a function of a path is expected, such as joblib.load")
        return load(checkpoint_of(self.best))

    def certify(
        self,
        evaluate: Evaluate,
        train: Callable[[Trial], Any] | None = None,
        *,
        models: Callable[[Best], Any] | None = None,
        confidence: float = 0.95,
        at_most: int = 10,
        rows: Any = None,
        uses: int = 1,
        progress: bool = True,
        callbacks: Sequence[Callback] = (),
    ) -> Certificate:
        """Find a model that meets its limits on rows that the search never saw, with this confidence.

        A search returns, out of many noisy measurements, the one that looks feasible, so its best model often violates
        its limits on fresh rows. `certify` orders at most `at_most` checkpoints from safe to bold, and tests them on
        the fresh rows until one fails. All that passed meet the limits, and the best of them is the certified model.
        `Certificate` says what was found, or how many rows it would take.

        `evaluate` takes a model and returns evidence for each limit: it is an `fw.FreshRows`, or a function that
        returns kinds of `fairway.evidence` by metric. `train` is the function that was optimised, run once more for
        each promising trial; a booster, or a `checkpoint` in each report, gives candidates at many steps. `models`
        takes a `Best` and returns its model instead, say from a file.

        Testing uses rows up: a second certificate on the same `rows` is refused, unless the first call reserved several
        `uses`, each at its share of the error level. The log records what will be tested before anything is evaluated,
        so an interrupted call resumes, and `fairway verify` repeats every test. `callbacks` are told of the
        certificate.

        >>> import fairway as fw
        >>> from fairway.evidence import Mean
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("errors", 0.1)], seed=0)
        >>> study.optimize(lambda trial: {"auc": 0.8, "errors": 0.05}, trials=1)
        >>> wrong = [0] * 190 + [1] * 10  # on fresh rows
        >>> study.certify(lambda model: Mean(wrong), models=lambda best: "its model").certified
        True
        """
        from fairway.runners.certify import Certifier  # noqa: PLC0415 - scipy takes its time to load

        check_callbacks(callbacks)
        certifier = Certifier(
            self.owner,
            evaluate,
            train=train,
            models=models,
            confidence=confidence,
            at_most=at_most,
            rows=rows,
            uses=uses,
            progress=progress,
        )
        found = certifier.run()
        self._certificates[certifier.number] = found
        herald = Herald(self, self.owner, callbacks)
        herald.tell("on_certificate", found)
        herald.finish()
        return found

    def searched_by(self, rows: Any, *, groups: Any = None) -> None:
        """Say which rows the search trains or judges by, so that `certify` can tell whether fresh rows are fresh.

        Only hashes are stored, 8 bytes per row. With `groups`, `certify` also notices a group that the fresh rows lack.
        """
        hashed = hashing.hashes(rows)
        names = None if groups is None else sorted(group_names(numbered_groups(groups, "groups")[1]))
        self.owner.journal.append(Searched(hashing.pack(hashed), names))

    def note(self, trial: int | None = None, /, **jsonable: Any) -> None:
        """Store something learned after the search, such as a test score, with a trial or with the study.

        >>> import fairway as fw
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
        >>> study.optimize(lambda trial: 0.5, trials=1)
        >>> study.note(study.best.number, test_loss=0.52)
        >>> study.trials[0].notes
        {'test_loss': 0.52}
        """
        number = None if trial is None else whole(trial, "trial", least=0)
        if number is not None and number >= len(self.owner.ledger.courses):
            raise UsageError(f"note: there is no trial {number}; the study has {len(self.owner.ledger.courses)}")
        self.owner.note(number, jsonable_notes(jsonable))

    def save_as(self, url: str, name: str | None = None) -> None:
        """Copy the study, as this process knows it, into another database, to be opened, resumed and verified there.

        Everything told and reported is in memory, so this works even if the study's own storage was deleted or cannot
        be reached. (A long study that was just opened needs its storage for a moment more, while a thread reads its
        first events.) The study itself stays where it is; open the copy to continue there.

        >>> import fairway as fw
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
        >>> study.optimize(lambda trial: trial.params["x"], trials=5)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     study.save_as(f"sqlite:///{folder}/copy.db")
        ...     fw.Study(study.space, fw.Minimize("loss"), storage=f"sqlite:///{folder}/copy.db").best == study.best
        True
        """
        from fairway.storage.saving import save  # noqa: PLC0415 - SQLAlchemy takes its time to load

        save(self.owner, url, self.name if name is None else name)

    # What a user reads

    @property
    def problem(self) -> Problem:
        """The objective and the constraints, with the limits that are in force now."""
        return self.owner.problem

    @property
    def certificate(self) -> Certificate | None:
        """The last certificate; None before the first. Only the process that made it has its `model`."""
        from fairway.engine.certificate import certificate  # noqa: PLC0415 - scipy takes its time to load

        over = latest(self.owner.ledger.certifications)
        if over is None:
            return None
        mine = self._certificates.get(over.sealed.certification)
        ledger = self.owner.ledger
        return mine or certificate(ledger.certified_limits(over), over, ledger.courses)

    @property
    def notes(self) -> Mapping[str, Any]:
        """The notes on the study."""
        return dict(self.owner.ledger.later.get(None, {}))

    @property
    def best(self) -> Best | None:
        """The best feasible checkpoint, or None while nothing feasible was measured."""
        return self.owner.best

    @property
    def best_ignoring_limits(self) -> Best | None:
        """The checkpoint with the best objective, feasible or not; compared with `best`, it shows what limits cost."""
        found = self.owner.ledger.best_ignoring_limits
        return None if found is None else self.owner.named(*found)

    @property
    def front(self) -> list[Best]:
        """The checkpoints for which no other is at least as good in the objective and every tracked metric, best first.

        Only checkpoints count that are within the study's limits and at which every tracked metric was measured.
        Without a tracked metric (`fw.Track`), the front is the best checkpoint alone.

        >>> import fairway as fw
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.Track("ms")], seed=0)
        >>> for auc, ms in ((0.80, 5.0), (0.83, 9.0), (0.81, 12.0)):
        ...     _ = study.tell(study.ask(), auc=auc, ms=ms)
        >>> [one.metrics for one in study.front]
        [{'auc': 0.83, 'ms': 9.0}, {'auc': 0.8, 'ms': 5.0}]
        """
        ledger = self.owner.still()
        table = self._checkpoints.read(ledger)
        return [self.owner.named(int(table.number[row]), table.one(row)) for row in on_front(ledger.problem, table)]

    def what_if(self, limits: Mapping[str, float | None] | None = None, /, **named: float | None) -> WhatIf:
        """The best checkpoint under other limits, from the log alone. Nothing is trained.

        None drops a limit; a number brings a dropped limit back.

        The answer also says how many checkpoints could be better because a limit was never measured there. Pass a
        mapping for metrics whose names are not Python identifiers.

        >>> import fairway as fw
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], seed=0)
        >>> study.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 4}, trials=30)
        >>> study.what_if(eod=0.2).best.metrics["auc"] > study.best.metrics["auc"]
        True
        """
        if not isinstance(limits, Mapping | None):
            raise UsageError(f"what_if({short(limits)}): what_if(eod=0.12) is expected, or what_if({{'eod': 0.12}})")
        return what_if(self.owner.still(), self._checkpoints, self.log, {**(limits or {}), **named})

    @property
    def trials(self) -> list[TrialRecord]:
        """Every trial so far, by number.

        Reports of running trials appear within a second; with a log in memory, at their next report.
        """
        return [self.owner.ledger.record(number) for number in range(len(self.owner.ledger.courses))]

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return self.owner.counts

    @property
    def costs(self) -> Costs:
        """The seconds spent and saved so far."""
        return costs(self.owner)

    @property
    def last_stop(self) -> str:
        """Which trial the stopper ended last, and why."""
        return self.owner.ledger.last_stop

    @property
    def last_failure(self) -> str:
        """Which trial failed last, and why."""
        return self.owner.ledger.last_failure

    @property
    def verdicts(self) -> list[tuple[int, Verdict]]:
        """The terminator's verdicts, each with the number of trials that had finished by then."""
        said = self.owner.ledger.verdicts
        return [(one.finished, Verdict(one.stop, one.reason, one.value, one.threshold)) for one in said]

    @property
    def ended(self) -> str | None:
        """Why the last run ended; None while the study runs."""
        return self.owner.ledger.ended

    @property
    def history(self) -> History:
        """The read-only columns that samplers see."""
        return self.owner.history()

    @overload
    def to_frame(self, library: Literal["pandas"] = "pandas") -> pd.DataFrame: ...
    @overload
    def to_frame(self, library: Literal["polars"]) -> pl.DataFrame: ...
    @overload
    def to_frame(self, library: Literal["pyarrow"]) -> Any: ...
    def to_frame(self, library: Library = "pandas") -> Any:
        """A table with a row for each trial: parameters, the metrics that represent it, status, costs, notes."""
        return frame(table(self.trials, self.space, self.problem), library)
