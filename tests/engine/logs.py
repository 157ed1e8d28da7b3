"""Logs of every shape for the tests: trials interleaved, of several owners, and all that a study knows of them."""

from __future__ import annotations

import math

from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import Reported
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush

LIMITS = (fw.AtMost("eod", 0.25), fw.AtMost("ms", 10.0))
STOPPERS = [
    fw.ACE(),
    fw.ACE(interval=1, skip=False),
    fw.ACE(interval="end"),
    fw.ACE(tolerance="hard"),
    fw.ASHA(),
    fw.ASHA(strata=True),
    fw.Median(min_trials=1),
    fw.HalfAt(step=2, after=1),
    fw.Never(),
]
unit = st.integers(0, 8).map(lambda k: k / 8)
metric = st.one_of(unit, st.just(math.nan))
act = st.tuples(st.integers(0, 3), unit, metric, metric, st.booleans(), st.sampled_from(["report", "tell", "fail"]))
stoppers = st.sampled_from(STOPPERS)


def acts_up_to(most):
    return st.lists(act, max_size=most)


def live(stopper, acts, owners=1, after=None):
    """Trials interleaved: reports with lazy and given constraints, tells and failures; maybe several owners."""
    log = MemoryLog()
    studies = [fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=0, storage=log) for _ in range(owners)]
    slots = {}
    for slot, auc, eod, ms, lazy, what in acts:
        study, trial = studies[slot % owners], slots.get(slot)
        if trial is None or trial.status != "running":
            trial = slots[slot] = study.ask()
            trial.steps(6)
        if trial.stopped or trial.last_step == 6 or what == "tell" and trial.last_step:
            study.tell(trial)
        elif what == "fail":
            study.tell(trial, failed="broken")
        elif lazy:
            trial.report(auc=auc, eod=lambda _, v=eod: v, ms=lambda _, v=ms: v, checkpoint=trial.last_step + 1)
        else:
            trial.report(auc=auc, eod=eod)
        if after is not None:
            after(study)
    for study in studies:
        flush(study)
    for study in studies:
        flush(study)
    return studies[0]


def fingerprint(study):
    """Everything that a study knows."""
    history = study.history
    columns = [
        getattr(history, name).tolist() for name in ("number", "x", "loss", "values", "violation", "partial", "step")
    ]
    referee = study.owner.referee
    tallies = (referee.incumbent, referee.bar, referee.train_ns, referee.train_rows, referee.check_ns, referee.checks)
    rest = (referee.violated, referee.saved, referee.check_rounds, study.owner.ledger.running.keys())
    return repr(
        (columns, study.best, study.best_ignoring_limits, study.trials, study.costs, study.counts, tallies, rest)
    )


def reopen(study, log):
    return fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=study.stopper, seed=0, storage=log)


def reported(study):
    """The reports in a study's log, once all are there."""
    flush(study)
    return [event for event in study.log.read() if isinstance(event, Reported)]
