"""Which saved checkpoints to keep on disk: a few of the best, and those that may still be needed.

The choice follows from what the log says about the checkpoints that still exist. Apart from those on a front, their
number is bounded, and so is the cost of the choice, however long the study.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairway import feasibility
from fairway.checks import check_fields, checked, short, whole
from fairway.engine.certification import Candidate, worth_keeping
from fairway.engine.course import front_of
from fairway.engine.events import Status
from fairway.engine.ledger import Ledger
from fairway.engine.saves import Save
from fairway.errors import UsageError
from fairway.problem import Problem

_ENDED: tuple[Status, ...] = ("completed", "stopped")
_SPARE = 2  # kept of a trial that may be continued: the last one may be of its last step, which leaves nothing to do


@dataclass(frozen=True)
class Keep:
    """How many of the checkpoints that trials save are kept, and where: `Study(checkpoints=fw.Keep("models", best=5))`.

    It keeps the checkpoints of the `best` trials, feasible ones first; those that could become candidates for a
    certificate; with tracked metrics, those on the front; and the last ones of trials that run or wait to be continued.
    The rest are deleted during the search.

    Without a `folder`, checkpoints go beside the study's SQLite file (`credit-checkpoints` for `credit.db`) or, if
    there is no such file, into `fairway-checkpoints` where you started Python. In there, fairway deletes only what
    trials saved. On a cluster the folder must be on a disk that every machine shares.

    >>> import tempfile
    >>> import fairway as fw
    >>> folder = tempfile.TemporaryDirectory()
    >>> space, keep = {"x": fw.Float(0.0, 1.0)}, fw.Keep(folder.name, best=2)
    >>> study = fw.Study(space, fw.Minimize("loss"), checkpoints=keep, seed=0)
    >>> def train(trial):
    ...     trial.save(lambda path: path.write_text(f"the model of trial {trial.number}"))
    ...     return trial.params["x"]
    >>> study.optimize(train, trials=20)
    >>> study.load_best(lambda path: path.read_text()) == f"the model of trial {study.best.number}"
    True
    >>> len(list(study.best.checkpoint.parent.iterdir()))
    2
    >>> folder.cleanup()
    """

    folder: str | os.PathLike[str] | None = None
    best: int = field(default=3, kw_only=True, metadata=checked(whole))

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.folder, str | os.PathLike | None) or isinstance(self.folder, str) and not self.folder:
            raise UsageError(f"Keep({short(self.folder)}): the path of a folder is expected")
        if self.folder is not None and Path(self.folder).is_file():
            raise UsageError(f"Keep({short(str(self.folder))}): that is a file; a folder is expected")


def ancestors(ledger: Ledger, number: int) -> list[int]:
    """The trials that a trial continues, the latest first."""
    found = []
    while (earlier := ledger.courses[number].continues) is not None:
        found.append(earlier)
        number = earlier
    return found


def resumable(ledger: Ledger, number: int) -> list[Save]:
    """The last checkpoints that a trial saved, latest first; if it saved none, those of the trial that it continues."""
    for each in (number, *ancestors(ledger, number)):
        if saves := ledger.saves.of(each):
            return saves[: -_SPARE - 1 : -1]
    return []


def got_further(ledger: Ledger, number: int) -> bool:
    """Whether a trial saved a checkpoint and reported a later step than all the trials that it continues."""
    reached = max((ledger.courses[each].last_step for each in ancestors(ledger, number)), default=0)
    return bool(ledger.saves.of(number)) and ledger.courses[number].last_step > reached


def kept(problem: Problem, ledger: Ledger, best: int) -> set[str]:
    """The paths of the checkpoints that are worth keeping now."""
    saves, courses = ledger.saves, ledger.courses
    found = {save.path for save in _of_the_best(problem, ledger, best)}
    for statuses in (_ENDED, (*_ENDED, "running")):  # a running trial may still fail
        if problem.constraints:
            found |= _of_candidates(problem, ledger, statuses)
        if problem.tracked:
            found |= _of_the_front(problem, ledger, statuses)
    waiting = [each.continues for each in ledger.queue if each.continues is not None and each.continues < len(courses)]
    for number in (*ledger.running, *ledger.queue.revivable, *waiting):
        course = ledger.course(number)
        steps = {mark.step for mark in (course.checkpoint, course.peak) if mark is not None}
        found |= {save.path for save in saves.of(number) if save.step in steps}  # a check may still need its peak
        found |= {save.path for save in resumable(ledger, number)}
    return found


def _of_candidates(problem: Problem, ledger: Ledger, statuses: Sequence[Status]) -> set[str]:
    """The paths of the checkpoints that a certificate may test, if only trials of some statuses count."""
    candidates = {
        Candidate(save.number, save.step, mark.objective, mark.values, mark.errors or (None,) * len(mark.values)): save  # type: ignore[arg-type]
        for save in ledger.saves
        if (mark := save.measured) is not None and None not in mark.values and not mark.provisional
        if ledger.courses[save.number].status in statuses
    }
    return {candidates[each].path for each in worth_keeping(problem, candidates)}


def _of_the_front(problem: Problem, ledger: Ledger, statuses: Sequence[Status]) -> set[str]:
    """The paths on the front of what trials of some statuses saved: a limit may be set at any of them."""
    saves = [save for save in ledger.saves if ledger.courses[save.number].status in statuses]
    front = front_of(problem, [(save.number, save.measured) for save in saves if save.measured is not None])
    places = {(mark.number, mark.step) for mark in front}
    return {save.path for save in saves if (save.number, save.step) in places}


def _of_the_best(problem: Problem, ledger: Ledger, best: int) -> list[Save]:
    """One checkpoint of each of the best trials, and that of the study's best."""
    saves, marks = ledger.saves, {}
    for number in saves.numbers:
        mark = ledger.courses[number].checkpoint
        if mark is not None:
            marks[number] = mark
    ranked = sorted(marks, key=lambda number: (feasibility.standing(problem, marks[number])[:-1], number))
    found = [_standing(problem, saves.of(number), marks[number].step) for number in ranked[:best]]
    the_best = None if ledger.best is None else saves.at(ledger.best[0], ledger.best[1].step)
    return found if the_best is None else [*found, the_best]


def _standing(problem: Problem, saves: list[Save], step: int) -> Save:
    """The checkpoint of a trial's best step; if that was not saved, the best that was measured, or else the last."""
    exact = [save for save in saves if save.step == step]
    if exact:
        return exact[0]
    measured = [(save.measured, save) for save in saves if save.measured is not None]
    return min(measured, key=lambda each: feasibility.standing(problem, each[0]))[1] if measured else saves[-1]
