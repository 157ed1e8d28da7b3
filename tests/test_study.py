from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fairway as fw
from fairway import registry
from fairway.engine.clock import VirtualClock
from fairway.errors import MissingDependency
from tests.conftest import SPACE, run_curves


def evaluate(trial):
    x = trial.params["x"]
    return {"auc": x, "eod": x / 2}


class TestAskAndTell:
    def test_ask_several(self, make_study):
        trials = make_study().ask(3)
        assert [trial.number for trial in trials] == [0, 1, 2]
        assert len({trial.params["x"] for trial in trials}) == 3
        assert len({trial.seed for trial in trials}) == 3

    def test_enqueued_configurations_run_first_and_in_order(self, make_study):
        study = make_study()
        study.enqueue({"x": 0.25})
        study.enqueue({"x": 0.75})
        assert [trial.params["x"] for trial in study.ask(2)] == [0.25, 0.75]
        assert study.ask().params["x"] not in (0.25, 0.75)
        with pytest.raises(fw.UsageError, match="parameter 'x': 2"):
            study.enqueue({"x": 2})

    def test_a_part_of_a_configuration_is_completed_by_the_sampler(self):
        space = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)}
        study = fw.Study(space, fw.Minimize("loss"), sampler=fw.CTPE(), seed=0)
        study.optimize(lambda trial: (trial.params["y"] - 0.3) ** 2, trials=40, progress=False)
        for x in (0.2, 0.123456789012345, 0.8):
            study.enqueue({"x": x})
        asked = [study.ask().params for _ in range(3)]
        assert [params["x"] for params in asked] == [0.2, 0.123456789012345, 0.8]
        assert all(abs(params["y"] - 0.3) < 0.2 for params in asked)  # where it was good

    @pytest.mark.parametrize("sampler", [fw.Random(), fw.CTPE(2), fw.GP(2), fw.BORE(2), fw.Blend()])
    def test_every_sampler_completes_a_part_and_a_resumed_study_the_same(self, sampler):
        space = {
            "booster": fw.Choice(["gbdt", "dart", "goss"]),
            "drop": fw.Float(0.0, 0.5, when={"booster": "dart"}),
            "depth": [fw.Int(2, 8, when={"booster": "gbdt"}), fw.Int(2, 16)],
            "deep": fw.Int(1, 3, when=lambda params: params["depth"] > 6),
        }
        parts = [{"drop": 0.2}, {"depth": 12}, {"deep": 2}, {"booster": "goss", "deep": 1}, {}]
        runs = []
        for cut in (False, True):
            study = fw.Study(space, fw.Minimize("loss"), sampler=sampler, seed=3)
            study.optimize(lambda trial: trial.params["depth"], trials=4, progress=False)
            for part in parts:
                study.enqueue(part)
            if cut:
                study = fw.Study(space, fw.Minimize("loss"), sampler=sampler, storage=study.log)
            runs.append([study.ask().params for _ in parts])
        assert runs[0] == runs[1]
        for part, params in zip(parts, runs[0], strict=True):
            assert part.items() <= params.items()
            assert study.space.check(params) == params

    @pytest.mark.parametrize(
        ("part", "sentence"),
        [
            ({"drop": 0.7}, "parameter 'drop': 0.7: a number from 0.0 to 0.5 is expected"),
            ({"booster": "gbdt", "drop": 0.2}, "parameter 'drop' is active only when {'booster': 'dart'}"),
            ({"drops": 0.2}, "unknown parameter 'drops': the space has 'booster', 'drop', 'deep'"),
            ({"booster": "gbdt", "deep": 1}, "none of 4,096 random configurations has these parameters together"),
        ],
    )
    def test_a_part_outside_the_space_is_refused_and_nothing_waits(self, part, sentence):
        space = {
            "booster": fw.Choice(["gbdt", "dart"]),
            "drop": fw.Float(0.0, 0.5, when={"booster": "dart"}),
            "deep": fw.Int(1, 3, when=lambda params: params["booster"] == "dart"),
        }
        study = fw.Study(space, fw.Minimize("loss"), seed=0)
        with pytest.raises(fw.UsageError, match=sentence):
            study.enqueue(part)
        assert not study.owner.ledger.queue

    def test_what_waits_in_the_queue_survives(self, make_study):
        study = make_study()
        study.enqueue({"x": 0.25})
        study.enqueue({"x": 0.75})
        study.ask()
        assert make_study(storage=study.log).ask().params["x"] == 0.75

    @pytest.mark.parametrize("n", [0, -1, 1.5, True])
    def test_ask_for_nonsense(self, make_study, n):
        with pytest.raises(fw.UsageError, match="a whole number of at least 1"):
            make_study().ask(n)

    def test_telling_twice_a_foreign_trial_or_nothing(self, make_study):
        study, other = make_study(), make_study()
        trial = study.ask()
        with pytest.raises(fw.UsageError, match="belongs to another study"):
            other.tell(trial, auc=0.5)
        with pytest.raises(fw.UsageError, match="trial 0 reported nothing"):
            study.tell(trial)
        with pytest.raises(fw.UsageError, match="not both"):
            study.tell(trial, auc=0.5, failed="why")
        study.tell(trial, auc=0.5, eod=0.1)
        with pytest.raises(fw.UsageError, match="told already"):
            study.tell(trial, auc=0.6)
        with pytest.raises(fw.UsageError, match="the Trial that ask"):
            study.tell(0, auc=0.6)
        assert study.best.metrics == {"auc": 0.5, "eod": 0.1}
        assert len(study.trials) == 1

    def test_the_same_seed_gives_the_same_study(self, make_study):
        def run():
            study = make_study(fw.ACE(interval=1))
            study.optimize(evaluate, trials=20)
            return [(trial.params, trial.metrics, trial.status) for trial in study.trials]

        assert run() == run()

    def test_a_fresh_seed_is_shown_and_repeats_the_study(self):
        study = fw.Study(SPACE, fw.Minimize("loss"))
        assert f"seed={study.seed}" in repr(study)
        again = fw.Study(SPACE, fw.Minimize("loss"), seed=study.seed)
        assert study.ask().params == again.ask().params

    @pytest.mark.parametrize(
        ("more", "sentence"),
        [
            ({"stopper": fw.ACE}, r"stopper=.*: a stopper is expected; did you mean ACE\(\)\?"),
            ({"sampler": "random"}, "a sampler is expected"),
            ({"storage": 3}, "a storage is expected"),
            ({"seed": -1}, "seed=-1"),
            ({"seed": 1.5}, "seed=1.5"),
        ],
    )
    def test_a_bad_study_gets_one_clear_sentence(self, more, sentence):
        with pytest.raises(fw.UsageError, match=sentence):
            fw.Study(SPACE, fw.Minimize("loss"), **more)


def test_what_a_user_does_with_a_result_does_not_reach_the_log(make_study):
    study = make_study()
    trial, kept = study.ask(), [1]
    trial.note(kept=kept)
    study.tell(trial, auc=0.5, eod=0.1)
    study.best.params.clear()
    study.trials[0].params.clear()
    study.trials[0].notes.clear()
    trial.params.clear()
    kept.append(2)
    assert study.best.params == study.trials[0].params != {}
    assert study.trials[0].notes == {"kept": [1]}


def test_what_is_measured_after_the_search_is_noted_of_a_trial_or_of_the_study(make_study, tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = make_study(storage=url)
    trial = study.ask()
    trial.note(fold=3)
    study.tell(trial, auc=0.5, eod=0.1)
    trial.note(test_auc=0.49)
    study.note(trial.number, test_eod=0.12)
    study.note(reviewed="2026-11-16")
    for each in (study, make_study(storage=url)):
        assert each.trials[0].notes == {"fold": 3, "test_auc": 0.49, "test_eod": 0.12}
        assert each.notes == {"reviewed": "2026-11-16"}
    running = study.ask()
    study.note(running.number, early=np.float32(0.5))
    study.tell(running, auc=0.4, eod=0.1)
    assert study.trials[1].notes == {"early": 0.5}
    with pytest.raises(fw.UsageError, match="there is no trial 7; the study has 2"):
        study.note(7, test_auc=0.5)
    with pytest.raises(fw.UsageError, match="finite numbers"):
        study.note(test_auc=float("nan"))


class TestWherePeersFail:
    """Failures of existing tools, measured, that fairway must not repeat."""

    @pytest.mark.parametrize(
        "stopper", [fw.ACE(), fw.ACE(interval=1), fw.ACE(interval=1, skip=False), fw.ASHA(strata=True)]
    )
    def test_after_20_infeasible_trials_with_a_good_objective_the_first_feasible_one_is_not_stopped(
        self, make_study, stopper
    ):
        study = make_study(stopper)
        study.owner.clock = VirtualClock()
        run_curves(study, [[(0.9, {"eod": 0.5})] * 20] * 20)
        run_curves(study, [[(0.6, {"eod": 0.1})] * 20])
        assert study.trials[-1].status == "completed"
        assert study.best.number == 20

    def test_a_trial_stopped_before_its_constraint_was_paid_is_not_counted_as_feasible(self, make_study):
        study = make_study(fw.ACE(truncation=0.5, interval="end"))
        run_curves(study, [[(0.5, {"eod": 0.1})] * 3] * 4 + [[(0.1, {"eod": 0.1})] * 3])
        assert study.trials[-1].status == "stopped"
        assert study.trials[-1].feasible is None
        assert study.history.feasible.tolist()[-1] is False
        assert study.history.unknown.tolist()[-1] is True

    def test_a_constraint_value_of_exactly_0_is_a_value(self, make_study):
        study = make_study(constraints=[fw.AtLeast("recall", 0.5)], stopper=fw.Never())
        study.tell(study.ask(), auc=0.9, recall=0)
        assert study.best is None
        assert study.trials[0].feasible is False
        study = make_study()
        study.tell(study.ask(), auc=0.9, eod=0)
        assert study.best.metrics["eod"] == 0.0

    def test_best_is_never_infeasible(self, make_study):
        study = make_study()
        study.tell(study.ask(), auc=0.9, eod=0.9)
        assert study.best is None
        assert study.best_ignoring_limits.metrics == {"auc": 0.9, "eod": 0.9}
        study.tell(study.ask(), auc=0.2, eod=0.2)
        assert study.best.metrics["auc"] == 0.2


def test_to_frame_has_a_row_a_trial(make_study):
    study = make_study(fw.Never())
    assert study.to_frame().empty
    study.optimize(evaluate, trials=3)
    frame = study.to_frame()
    assert frame.index.tolist() == [0, 1, 2]
    assert frame["param.x"].tolist() == frame["metric.auc"].tolist()
    assert set(frame["status"]) == {"completed"}


def test_to_frame_without_pandas_says_how_to_install_it(make_study, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependency, match="pip install pandas"):
        make_study().to_frame()


def test_every_public_name_is_there_and_documented_with_an_example():
    assert len(set(fw.__all__) - {"__version__"}) <= 54
    assert set(registry.PUBLIC) | {"__version__"} == set(fw.__all__) == set(dir(fw))
    for name in set(fw.__all__) - {"__version__"}:
        assert ">>> " in (getattr(fw, name).__doc__ or ""), name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = fw.Nothing


def test_importing_fairway_imports_no_optional_or_heavy_part():
    code = "import sys, fairway, fairway.study; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for heavy in ("pandas", "lightgbm", "scipy", "rich", "matplotlib", "optuna", "sklearn"):
        assert heavy not in loaded
