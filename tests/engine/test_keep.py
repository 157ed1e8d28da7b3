"""Which checkpoints are kept, whatever is reported, saved and told in whatever order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.certification import candidates, level_of

VALUES = st.floats(0.0, 1.0).map(lambda value: round(value, 2))
ROWS = st.lists(st.tuples(VALUES, VALUES, st.booleans(), st.booleans()), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(trials=st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=8), best=st.integers(1, 3))
def test_the_best_and_every_candidate_are_kept_and_little_else(trials, best):
    with tempfile.TemporaryDirectory() as folder:
        keep, limits = fw.Keep(folder, best=best), [fw.AtMost("gap", 0.5)]
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), limits, checkpoints=keep, stopper=fw.Never())
        saved = set()
        for rows, fails in trials:
            trial = study.ask()
            for step, (loss, gap, saves, first) in enumerate(rows, 1):
                name = f"{trial.number} {step}"
                if saves and first:
                    trial.save(lambda path, name=name: path.write_text(name), step=step)
                trial.report(loss=loss, gap=fw.Measured(gap, 0.05), step=step)
                if saves and not first:
                    trial.save(lambda path, name=name: path.write_text(name))
                saved |= {(trial.number, step)} if saves else set()
            if fails:
                study.tell(trial, failed="on purpose")
            else:
                study.tell(trial)
        there = {tuple(map(int, path.read_text().split())) for path in Path(folder).iterdir()}
        assert there <= saved
        assert len(there) <= best + 1 + 20
        assert there == {(save.number, save.step) for save in study.owner.ledger.saves if Path(save.path).exists()}
        if study.best is not None and (study.best.number, study.best.step) in saved:
            assert study.best.checkpoint.read_text() == f"{study.best.number} {study.best.step}"
        for confidence in (0.5, 0.95, 0.99):
            found = candidates(study.problem, study.log.read(), at_most=100, level=level_of(confidence, 1))
            assert {(one.number, one.step) for one in found} & saved <= there


@settings(max_examples=40, deadline=None)
@given(trials=st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=8))
def test_every_saved_checkpoint_on_the_front_is_kept(trials):
    with tempfile.TemporaryDirectory() as folder:
        keep, tracked = fw.Keep(folder, best=1), [fw.Track("ms")]
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), tracked, checkpoints=keep, stopper=fw.Never())
        for rows, fails in trials:
            trial = study.ask()
            for step, (loss, ms, _, _) in enumerate(rows, 1):
                trial.report(loss=loss, ms=ms, step=step)
                trial.save(lambda path, name=f"{trial.number} {step}": path.write_text(name))
            study.tell(trial, failed="on purpose") if fails else study.tell(trial)
        front = [one for one in study.front if study.trials[one.number].status != "failed"]
        assert [one.checkpoint.read_text() for one in front] == [f"{one.number} {one.step}" for one in front]
