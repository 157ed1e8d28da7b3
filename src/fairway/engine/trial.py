"""The user's handle on one running configuration: a thin face on its `Driver`, which does the work."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fairway import hints
from fairway.checks import whole
from fairway.engine.decision import Decision
from fairway.engine.driver import Driver
from fairway.engine.events import Status
from fairway.engine.measurement import Given
from fairway.engine.saver import Written
from fairway.engine.typed import TypedParams
from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.tables import Table, param_rows


@hints.answering(hints.TRIAL)
class Trial(TypedParams):
    """One configuration being tried; made by `study.ask()` and handed to the function that `study.optimize` runs.

    `params` is the configuration, and `int("depth")`, `float`, `str` and `bool` are its values with their types.
    `driver` is for what runs trials without being the user: simulators, callbacks, other tuners.

    >>> import fairway as fw
    >>> limits = [fw.AtMost("eod", 0.25)]
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, stopper=fw.Never(), seed=0)
    >>> trial = study.ask()
    >>> for step in trial.steps(3):
    ...     decision = trial.report(auc=0.7 + step / 100, eod=lambda: 0.2)
    >>> decision.best, study.tell(trial)
    (True, False)
    >>> study.best.step, study.best.metrics
    (3, {'auc': 0.73, 'eod': 0.2})
    """

    __slots__ = ("driver", "number", "params", "seed")

    def __init__(self, number: int, params: Mapping[str, Any], *, seed: int, driver: Driver) -> None:
        self.number = number
        self.params = params
        self.seed = seed
        self.driver = driver

    def __repr__(self) -> str:
        return f"Trial(number={self.number}, params={self.params}, status={self.status!r})"

    def _repr_html_(self) -> str:
        total = "" if self.total is None else f" of {self.total:,}"
        title = f"trial {self.number}, {self.status}, step {self.last_step:,}{total}"
        return Table(title, param_rows(self.params)).html()

    @property
    def status(self) -> Status:
        """`running` until it is told, then `completed`, `stopped` (by the stopper or a timeout) or `failed`."""
        return self.driver.status

    @property
    def stopped(self) -> bool:
        """Whether training should end now."""
        return bool(self.driver.reason)

    @property
    def last_step(self) -> int:
        """The last step reported, or that of the checkpoint it continues; 0 before."""
        return self.driver.last_step

    @property
    def total(self) -> int | None:
        """The number of steps it may take; None while unknown."""
        return self.driver.total

    @property
    def problem(self) -> Problem:
        """The objective and the constraints that it reports."""
        return self.driver.problem

    def steps(self, total: int | None = None) -> Iterator[int]:
        """Count training iterations from 1 to `total`; the loop ends by itself when the trial is stopped.

        A trial that continues from `trial.resume` counts on from the step after that checkpoint.
        Knowing the total lets `ACE` weigh whether constraints are worth checking on the way (Theorem 1).
        """
        if self.driver.has_begun:
            raise UsageError(f"trial {self.number} has begun already: steps() is called once, before the first report")
        self.driver.begin(None if total is None else whole(total, "steps"))
        return self.driver.count()

    def report(
        self,
        metrics: Mapping[str, Given] | None = None,
        /,
        *,
        step: int | None = None,
        checkpoint: Any = None,
        **named: Given,
    ) -> Decision:
        """Report the objective and any constraints at this step, and learn whether to continue.

        A constraint given as a callable is called, and timed, only when it is worth its price. With a `checkpoint` it
        is called with that checkpoint, maybe later, when training has ended: hand over something that training does
        not change (a path, a copy, a round), not the model itself. Pass a mapping for metrics whose names are not
        Python identifiers.
        """
        driver = self.driver
        observation = driver.measure(metrics, named, step, checkpoint)
        if observation is None:
            return Decision(stop=True, reason=driver.reason, interval=driver.batch.pace.interval, best=False)
        decision = driver.settle(observation)
        if observation.last:
            late = driver.look_back()
            if late is not None:
                driver.settle(late)
        return decision

    def save(self, what: Written, *, step: int | None = None, suffix: str | None = None) -> Path | None:
        """Save a checkpoint of this step, and return its path; `fw.Keep` says which ones are kept, and where.

        `what` is a function that is called with the path to write a file or a folder to, or the path of one that some
        library has written already, which is copied. Pass `suffix` if the function needs the path to end so. Report a
        step first, then save it: by default `step` is the one where `trial.steps` is, or the last one reported.

        If the disk fails, a warning says so once, None is returned and the search goes on. Nothing is saved where a
        model is built again (`study.rebuild`, `study.certify`).
        """
        driver = self.driver
        if step is not None:
            step = whole(step, "step")
        if self.status != "running":
            raise UsageError(f"trial {self.number} has ended ({self.status}): save its checkpoints while it runs")
        if driver.saver is None:
            return None
        here = driver.step or (driver.last_step if driver.has_reported else driver.continued + 1)
        return driver.saver.save(what, step or here, suffix)

    @property
    def resume(self) -> Path | None:
        """The checkpoint to continue training from, None to start afresh; read it before the first step.

        It is there if this configuration was lost with its worker, or interrupted, after it had saved one. To read it
        is to continue: `trial.steps` then counts from the step after it. Later, it is the last one that was saved.
        """
        return self.driver.resume()

    def note(self, **jsonable: Any) -> None:
        """Keep something beside the metrics, such as a test score; also when the trial has ended."""
        notes = jsonable_notes(jsonable)
        if self.status == "running":
            self.driver.notes.update(notes)
        elif self.driver.on_note is not None:
            self.driver.on_note(notes)
        else:
            raise UsageError(
                f"trial {self.number} has ended ({self.status}) in a process of its own: "
                f"note it with study.note({self.number}, ...)"
            )


def jsonable_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Notes as the log keeps them."""
    try:
        return dict(json.loads(json.dumps(notes, allow_nan=False, default=_plain)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"note: {error}; text, finite numbers, lists and dicts are expected") from None


def _plain(value: Any) -> Any:
    """A scalar or an array of numpy's as JSON can hold it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} came")
