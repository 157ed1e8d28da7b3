"""The one rule for paying for constraints: a trial asks it live, and `verify` asks it again.

A constraint that is offered as a callable costs something. It is paid for where the trial's pace allows a check, the
objective reaches the bar (ACE's skip rule), the stopper agrees, and no limit is known to be broken already. Which
checkpoint is offered at the end of training is the driver's choice (`Driver.look_back`).
"""

from __future__ import annotations

from typing import NamedTuple

from fairway.engine.measurement import Report


class Pace(NamedTuple):
    """A trial's total number of steps, and when its constraints may be checked.

    `interval` is the number of steps between checks. With `at_end` there is one check, when training ends, of the best
    checkpoint. `interval` is None where the total is unknown and the only check is at the end.
    """

    total: int | None
    interval: int | None
    at_end: bool


def is_due(pace: Pace, step: int, *, last: bool) -> bool:
    """Whether the pace allows a check at a step.

    >>> is_due(Pace(total=10, interval=4, at_end=False), 8, last=False)
    True
    """
    return last or not pace.at_end and step % (pace.interval or 1) == 0


def pays(pace: Pace, bar: float, report: Report, *, agreed: bool, priced: bool) -> bool:
    """Whether the constraints offered at a report are paid for.

    `bar` is the loss that a report must reach; `agreed` is the stopper's own answer (`StopperState.due`), which is not
    asked for where the only check is at the end; `priced` says that the study has paid for a check before. The first
    price is always learned, even where a limit is already broken.

    >>> report = Report(8, 0.2, 0.2, {}, None, train_ns=1, lazy=True, broken=False, last=False)
    >>> pays(Pace(10, 4, at_end=False), 0.3, report, agreed=True, priced=True)
    True
    """
    if not report.lazy or report.loss > bar or report.broken and priced:
        return False
    return is_due(pace, report.step, last=report.last) and (agreed or pace.at_end)
