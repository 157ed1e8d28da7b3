"""Where the seconds of a study went: `study.costs`."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.engine.owner import Owner


@dataclass(frozen=True)
class Costs:
    """Where the seconds of a study went, and what it saved.

    `checks` counts constraint evaluations, `saved_checks` those offered and not called. Saved seconds are estimates: a
    saved check is worth the mean price of a check, and a stopped trial saves the steps it had left, at its own pace. A
    trial that fails, or hangs until it is ended, counts up to its last report.

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


def costs(owner: Owner) -> Costs:
    """The seconds spent and saved so far."""
    referee = owner.referee
    columns = zip(referee.check_ns, referee.checks, referee.saved, strict=True)
    saved = sum(ns * saved // max(n, 1) for ns, n, saved in columns)
    checks, _, _, check_ns = owner.ledger.spent()  # includes dropped limits; the referee also knows unwritten rows
    return Costs(
        training_seconds=referee.train_ns / 1e9,
        check_seconds=max(sum(referee.check_ns), check_ns) / 1e9,
        checks=max(sum(referee.checks), checks),
        saved_training_seconds=owner.ledger.train_saved_ns / 1e9,
        saved_check_seconds=saved / 1e9,
        saved_checks=sum(referee.saved),
    )
