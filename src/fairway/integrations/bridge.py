"""A study that follows a search run by another tuner: the tuner owns the loop, and fairway decides on its reports.

Optuna's pruner and Ray Tune's scheduler, searcher and stopper each hold a bridge and keep only what is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.feasibility import Checkpoint
from fairway.parameters import Choice, Int, Value
from fairway.problem import Problem
from fairway.samplers.random import Random
from fairway.space import Space
from fairway.stoppers.never import Never
from fairway.study import Study

Key = TypeVar("Key", bound=Hashable)

_UNNAMED = Space({"number": Int(0, 2**31)})  # for configurations that only the other tuner knows


class Bridge(Generic[Key]):
    """A study in memory whose trials begin, report and end by the other tuner's own keys.

    Without a `space`, the configurations stay with the other tuner. `rules` are the `sampler`, `stopper` and
    `terminator` of the study. A pickled bridge includes its log; trials that were running fail when it is unpickled,
    and the other tuner begins them again.
    """

    def __init__(self, problem: Problem, space: Space = _UNNAMED, *, seed: int | None = 0, **rules: Any) -> None:
        settings = {"sampler": Random(), "stopper": Never(), "seed": seed, **rules}
        self.problem, self.study = problem, Study(space, problem.objective, problem.constraints, **settings)
        self.running: dict[Key, Trial] = {}
        self.ended: set[Key] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "study": reopened(self.study), "running": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.study = state["study"]()
        owner = self.study.owner
        for number in list(owner.ledger.running):
            owner.give_up(number, "the other tuner was restored without it", retry=0)

    def ask(self, key: Key) -> Trial:
        """Begin a trial with what our sampler proposes."""
        trial = self.running[key] = self.study.ask()
        return trial

    def begin(self, key: Key, params: Mapping[str, Value] | None = None, *, total: int | None = None) -> Trial:
        """Begin a trial of the other tuner; a trial that has ended may begin again."""
        self.ended.discard(key)
        self.study.enqueue({"number": len(self.study.owner.ledger.courses)} if params is None else params)
        trial = self.ask(key)
        if total is not None:
            trial.steps(total)
        return trial

    def standing(self, trial: Trial) -> Checkpoint | None:
        """The checkpoint that represents a running trial so far."""
        owner = self.study.owner
        owner.journal.drain(trial.driver.batch)
        with owner.lock:
            return owner.ledger.courses[trial.number].checkpoint

    def end(self, key: Key, *, failed: str = "", cut: str = "") -> None:
        """End a trial: failed, cut short by the other tuner, or as its reports say."""
        trial = self.running.pop(key, None)
        self.ended.add(key)
        if trial is None:
            return
        why = trial.driver.reason if trial.driver.failed else failed or ("" if trial.last_step else "reported nothing")
        if cut and not why and not trial.stopped:
            trial.driver.cut(cut)
        self.study.tell(trial, failed=why or None)


def reopened(study: Study) -> Callable[[], Study]:
    """A function that opens a study again from its log, to pickle in place of the study, which cannot be pickled."""
    rules = {"sampler": study.sampler, "stopper": study.stopper, "terminator": study.terminator}
    settings: dict[str, Any] = {**rules, "storage": study.log, "seed": study.seed}
    return partial(Study, study.space, study.problem.objective, study.problem.constraints, **settings)


def as_choice(options: Iterable[Any]) -> Choice | None:
    """The options of another tuner's category as ours; None unless they are JSON scalars that can be told apart.

    >>> as_choice(["a", "b"]), as_choice([(1, 2), (3, 4)])
    (Choice(options=('a', 'b'), ordered=False, when=None), None)
    """
    try:
        return Choice(list(options))
    except UsageError:
        return None
