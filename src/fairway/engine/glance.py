"""A study at a glance: the table that a notebook shows for it."""

from __future__ import annotations

from fairway.engine.owner import Owner
from fairway.tables import Table
from fairway.text import counted, goal, limits, measured, params


def glance(owner: Owner, name: str, certificate: object | None) -> Table:
    """A table of a study's goal, its trials by status, its best checkpoint, and its certificate if it has one."""
    best, problem, trials = owner.best, owner.problem, len(owner.ledger.courses)
    tally = ", ".join(f"{n:,} {status}" for status, n in owner.counts.items() if n)
    rows = [("goal", goal(problem)), ("trials", f"{counted(trials, 'trial')}: {tally}" if trials else "none yet")]
    if best is not None:
        found = measured(best.metrics.keys(), best.metrics.values(), best.errors)
        rows.append(("best", f"{found} (trial {best.number}, step {best.step})"))
        rows.append(("its parameters", params(best.params)))
    elif trials:
        rows.append(("best", f"no model within {limits(problem)} yet" if problem.limits else "nothing measured yet"))
    rows += [] if certificate is None else [("certificate", str(certificate))]
    rows += [("ended", owner.ledger.ended)] if owner.ledger.ended else []
    return Table(f"study {name!r}", [*rows, ("seed", str(owner.seed))])
