"""A study that follows a search which another tuner runs: the tuner owns the loop, and fairway rules on its reports.

Optuna's pruner and Ray Tune's scheduler, searcher and stopper each hold a bridge and keep only what is theirs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

from fairway.engine.log import Log
from fairway.engine.trial import Trial
from fairway.feasibility import Checkpoint
from fairway.parameters import Int, Value
from fairway.problem import Problem
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.space import Space
from fairway.stoppers.never import Never
from fairway.stoppers.stopper import Stopper
from fairway.storage.memory import MemoryLog
from fairway.study import Study
from fairway.terminators.terminator import Terminator

Key = TypeVar("Key", bound=Hashable)

_UNNAMED = Space({"number": Int(0, 2**31)})  # for configurations that only the other tuner knows


class Bridge(Generic[Key]):
    """A study in memory whose trials begin, report and end by the other tuner's own keys.

    Without a `space`, the configurations stay with the other tuner. A bridge travels with its log when it is pickled;
    trials that were running then have failed, and the other tuner begins them again.
    """

    def __init__(
        self,
        problem: Problem,
        space: Space = _UNNAMED,
        *,
        sampler: Sampler | None = None,
        stopper: Stopper | None = None,
        terminator: Terminator | None = None,
        seed: int | None = 0,
    ) -> None:
        self._rules = {"sampler": sampler or Random(), "stopper": stopper or Never(), "terminator": terminator}
        self.problem = problem
        self.running: dict[Key, Trial] = {}
        self.ended: set[Key] = set()
        self._open(space, MemoryLog(), seed)

    def _open(self, space: Space, log: Log, seed: int | None) -> None:
        objective, constraints = self.problem.objective, self.problem.constraints
        self.study = Study(space, objective, constraints, storage=log, seed=seed, **self._rules)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("study", "running")
        state = {name: value for name, value in vars(self).items() if name not in left_out}
        return {**state, "opened": (self.study.space, self.study.log, self.study.seed)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        opened = state.pop("opened")
        vars(self).update(state, running={})
        self._open(*opened)
        owner = self.study.owner
        for number in list(owner.ledger.running):
            owner.give_up(number, "the other tuner was restored without it", retry=0)

    def ask(self, key: Key) -> Trial:
        """Begin a trial with what our sampler proposes."""
        trial = self.running[key] = self.study.ask()
        return trial

    def begin(self, key: Key, params: Mapping[str, Value] | None = None, *, total: int | None = None) -> Trial:
        """Begin a trial of the other tuner's; one that ended there may begin again."""
        self.ended.discard(key)
        self.study.enqueue({"number": len(self.study.owner.ledger.courses)} if params is None else params)
        trial = self.ask(key)
        if total is not None:
            trial.steps(total)
        return trial

    def standing(self, trial: Trial) -> Checkpoint | None:
        """The checkpoint that stands for a running trial so far."""
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
        if why:
            self.study.tell(trial, failed=why)
            return
        if cut and not trial.stopped:
            trial.driver.cut(cut)
        self.study.tell(trial)
