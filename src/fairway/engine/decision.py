"""What `report` returns: whether to stop, and why."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """What a report led to. It is true if training should stop, so `if trial.report(...): break` works.

    `stop`: end the training loop now (a loop over `trial.steps` ends by itself). `reason`: why, as a sentence; empty
    while training continues. `interval`: steps between checks; equal to the total means one check, at the end; None
    if the total is unknown. `best`: this checkpoint is now the best feasible one of the study, so save the model.

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
