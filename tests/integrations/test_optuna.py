from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

import fairway as fw
from fairway.engine.verify import verify
from fairway.integrations.optuna import (
    UNKNOWN,
    ACEPruner,
    CTPESampler,
    FairwayPruner,
    FairwaySampler,
    GPSampler,
    from_optuna,
    report,
    terminate_when,
    to_optuna,
)
from tests.conftest import make_recording

optuna.logging.set_verbosity(optuna.logging.ERROR)


def mixed(trial):
    """A function of every kind of parameter, with one limit."""
    x = trial.suggest_float("x", 0.0, 1.0)
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    depth = trial.suggest_int("depth", 1, 12)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    trial.set_constraint("size", x + depth / 12 - 1.0)
    return (x - 0.8) ** 2 + (math.log10(rate) + 2) ** 2 / 4 + (depth - 9) ** 2 / 100 + (kind != "b")


# Samplers


def best_feasible(study):
    values = [t.value for t in study.trials if t.value is not None and all(c <= 0 for c in t.constraints.values())]
    return min(values)


@pytest.mark.parametrize(("make", "seeds", "trials"), [(CTPESampler, 4, 80), (GPSampler, 1, 25)])
def test_an_unmodified_study_finds_more_with_our_sampler(make, seeds, trials):
    found = {}
    for name, sampler in (("ours", make), ("random", optuna.samplers.RandomSampler)):
        studies = [optuna.create_study(sampler=sampler(seed=seed)) for seed in range(seeds)]
        for study in studies:
            study.optimize(mixed, n_trials=trials)
        found[name] = np.mean([best_feasible(study) for study in studies])
    assert found["ours"] < found["random"] / 1.5


def test_the_same_seed_gives_the_same_trials():
    runs = []
    for _ in range(2):
        study = optuna.create_study(sampler=CTPESampler(seed=4))
        study.optimize(mixed, n_trials=20)
        runs.append([trial.params for trial in study.trials])
    assert runs[0] == runs[1]


def test_parameters_that_come_and_go_and_single_values_are_sampled_too():
    def objective(trial):
        booster = trial.suggest_categorical("booster", ["gbdt", "dart"])
        trial.suggest_categorical("only", ["this"])
        drop = trial.suggest_float("drop", 0.0, 0.5, step=0.1) if booster == "dart" else 0.0
        return trial.suggest_int("depth", 2, 64, log=True) / 64 + drop

    study = optuna.create_study(sampler=CTPESampler(seed=0))
    study.optimize(objective, n_trials=40)
    assert study.best_value < 0.1


def test_categories_that_are_no_json_values_are_told_apart():
    options = [(1, 2), (3, 4), None]

    def objective(trial):
        with pytest.warns(UserWarning, match="Choices for a categorical distribution"):
            pair = trial.suggest_categorical("pair", options)
        return 1.0 if pair is None else float(sum(pair))

    study = optuna.create_study(sampler=CTPESampler(seed=0))
    study.optimize(objective, n_trials=25)
    assert study.best_params["pair"] is None
    ours = from_optuna(study, seed=0)
    assert ours.best.params == {"pair": 2}  # its index


def test_several_objectives_are_refused():
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=CTPESampler(seed=0))
    study.add_trial(optuna.trial.create_trial(params={"x": 0.5}, distributions=LINE, values=[1.0, 2.0]))
    with pytest.raises(fw.UsageError, match="2 objectives"):
        study.ask().suggest_float("x", 0.0, 1.0)


LINE = {"x": FloatDistribution(0.0, 1.0)}


def test_a_pruned_trial_whose_constraint_is_unknown_is_not_feasible():
    study = optuna.create_study()
    good = {"x": 0.1}, {"x": 0.9}
    for params, value, state, constraints in (
        (good[0], 0.1, TrialState.PRUNED, {}),
        (good[1], 0.5, TrialState.COMPLETE, {"eod": -0.1}),
    ):
        study.add_trial(
            optuna.trial.create_trial(
                params=params,
                distributions=LINE,
                value=value,
                state=state,
                intermediate_values={1: value},
                constraints=constraints,
            )
        )
    history = from_optuna(study, seed=0).history
    assert history.unknown.tolist() == [True, False]
    assert history.feasible.tolist() == [False, True]
    assert history.partial.tolist() == [True, False]


# The pruner


def curve(trial, best, eod, *, steps=10, paid=None):
    """Train in ten steps towards a loss; `paid` collects the steps at which the limit was measured."""
    for step in range(1, steps + 1):
        loss = best + 1.0 / step

        def measure(step=step):
            paid.append(step)
            return eod

        if report(trial, loss, step, {"eod": eod if paid is None else measure}, total=steps):
            raise optuna.TrialPruned
    return best + 1.0 / steps


def test_the_feasible_trial_is_kept_and_the_infeasible_one_stopped():
    """Where Optuna's own pruners prune the first feasible trial after twenty infeasible ones with a good loss."""
    kept = {}
    for name, pruner in (
        ("median", optuna.pruners.MedianPruner()),
        ("ours", ACEPruner([fw.AtMost("eod", 0.25)], interval=1)),
    ):
        study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
        outcomes = [(0.1, 0.9)] * 20 + [(0.5, 0.1), (0.4, 0.95)]

        def objective(trial, outcomes=outcomes, name=name):
            trial.suggest_float("x", 0.0, 1.0)
            best, eod = outcomes[trial.number]
            if name == "ours":
                return curve(trial, best, eod)
            for step in range(1, 11):
                trial.report(best + 1.0 / step, step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return best

        study.optimize(objective, n_trials=22)
        kept[name] = [trial.state == TrialState.COMPLETE for trial in study.trials[-2:]]
    assert kept["median"] == [False, False]
    assert kept["ours"] == [True, False]


def test_constraints_are_paid_for_only_where_they_matter():
    study = optuna.create_study(pruner=FairwayPruner(fw.Never(), [fw.AtMost("eod", 0.25)]))
    paid = []

    def objective(trial):
        trial.suggest_float("x", 0.0, 1.0)
        return curve(trial, [0.1, 0.5, 0.05][trial.number], 0.2, paid=paid)

    study.optimize(objective, n_trials=3)
    assert paid[:10] == list(range(1, 11))  # each step was the best so far
    assert paid[10:] == [7, 8, 9, 10]  # 0.5 + 1/t never reaches it; 0.05 + 1/t does at t = 7
    assert study.trials[0].constraints == {"eod": pytest.approx(-0.05)}
    assert study.trials[1].constraints == {"eod": UNKNOWN}
    assert study.best_trial.number == 2


def test_plain_reports_are_ruled_on_too():
    study = optuna.create_study(pruner=FairwayPruner(fw.ASHA(reduction=2)))

    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        for step in range(1, 17):
            trial.report(x + 1 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    study.optimize(objective, n_trials=30)
    states = [trial.state for trial in study.trials]
    assert 5 < states.count(TrialState.PRUNED) < 30
    bridge = study.pruner.bridge(study)
    assert not verify(bridge.study.log.read(0)).faults


def test_what_ran_in_another_process_is_taken_in(tmp_path):
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    for seed in range(2):  # each with a pruner of its own
        study = optuna.create_study(
            study_name="s",
            storage=url,
            load_if_exists=True,
            pruner=ACEPruner([fw.AtMost("eod", 0.25)], truncation=0.5, interval=1),
            sampler=optuna.samplers.RandomSampler(seed=seed),
        )

        def objective(trial):
            x = trial.suggest_float("x", 0.0, 1.0)
            return curve(trial, x, x / 2)

        study.optimize(objective, n_trials=12)
        bridge = study.pruner.bridge(study)
        assert len(bridge.study.trials) == 12 * (seed + 1)
    numbers = {trial.params["number"] for trial in bridge.study.trials}
    assert numbers == set(range(24))
    assert bridge.study.best.metrics["value"] == pytest.approx(best_feasible(study), abs=0.2)


def test_report_needs_a_pruner_of_ours():
    trial = optuna.create_study().ask()
    with pytest.raises(fw.UsageError, match=r"give it fairway's, such as ACEPruner"):
        report(trial, 0.5, 1)
    study = optuna.create_study(pruner=ACEPruner([fw.AtMost("eod", 0.25)]))
    with pytest.raises(fw.UsageError, match="metric 'speed' was not declared"):
        report(study.ask(), 0.5, 1, {"speed": 1.0})


def test_on_recorded_curves_more_is_found_in_the_same_time_than_with_their_pruner():
    """An unmodified Optuna loop over recorded trainings, at equal seconds, with a check of the price of five steps."""
    found = {"ours": [], "theirs": []}
    for seed in range(4):
        recording = make_recording(300, seed)
        order = np.random.default_rng(seed).permutation(len(recording))
        for name, values in found.items():
            values.append(_best_in(recording, order, name, seconds=60.0))
    assert np.mean(found["ours"]) > np.mean(found["theirs"])


def _best_in(recording, order, name, seconds):
    limit, spent, best = 0.2, 0.0, -math.inf
    pruner = ACEPruner([fw.AtMost("eod", limit)]) if name == "ours" else optuna.pruners.MedianPruner()
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for k in order:
        trial = study.ask()
        first, last = recording.offset[k], recording.offset[k + 1]
        steps = int(last - first)
        value = None
        for step in range(1, steps + 1):
            row = first + step - 1
            spent += recording.seconds[row]
            auc, eod = recording.metrics["auc"][row], recording.metrics["eod"][row]
            price = 5 * recording.seconds[first:last].mean()

            def check(eod=eod, price=price):
                nonlocal spent
                spent += price
                return float(eod)

            if name == "ours":
                stop = bool(report(trial, float(auc), step, {"eod": check}, total=steps))
                value = float(auc)
            else:
                trial.report(float(auc), step)
                stop = trial.should_prune()
                value = float(auc)
                if not stop and step == steps and check() <= limit and spent <= seconds:
                    best = max(best, value)
            if spent > seconds:
                if name == "ours":
                    bridge = pruner.bridge(study).study.best
                    best = -math.inf if bridge is None else bridge.metrics["value"]
                return best
            if stop:
                break
        study.tell(trial, None if stop else value, state=TrialState.PRUNED if stop else TrialState.COMPLETE)
    return best


# The terminator


def test_an_infeasible_study_is_not_stopped():
    study = optuna.create_study(sampler=CTPESampler(seed=0))

    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.set_constraint("eod", 1.0)
        return (x - 0.3) ** 2 + 1.0

    study.optimize(objective, n_trials=40, callbacks=[terminate_when(fw.RegretBound(100.0))])
    assert len(study.trials) == 40
    assert "ended" not in study.user_attrs


def test_a_study_ends_when_the_bound_is_low():
    study = optuna.create_study(sampler=CTPESampler(seed=0))
    study.optimize(
        lambda trial: (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2 + 1.0,
        n_trials=200,
        callbacks=[terminate_when(fw.RegretBound(0.05))],
    )
    assert len(study.trials) < 60
    assert study.user_attrs["ended"].startswith("regret bound")
    with pytest.raises(fw.UsageError, match="a terminator of fairway is expected"):
        terminate_when(0.1)


# Across


def test_a_study_that_began_there_goes_on_here():
    theirs = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    theirs.optimize(mixed, n_trials=30)
    ours = from_optuna(theirs, metric="loss", sampler=fw.CTPE(), terminator=fw.Plateau(500), seed=1)
    assert len(ours.trials) == 30
    assert ours.best.metrics["loss"] == best_feasible(theirs)
    assert ours.space["kind"].options == ("a", "b", None)
    assert ours.terminator == fw.Plateau(500)

    def evaluate(trial):
        p = trial.params
        loss = (p["x"] - 0.8) ** 2 + (math.log10(p["rate"]) + 2) ** 2 / 4 + (p["depth"] - 9) ** 2 / 100
        return {"loss": loss + (p["kind"] != "b"), "size": p["x"] + p["depth"] / 12 - 1.0}

    ours.optimize(evaluate, trials=30)
    assert ours.best.metrics["loss"] < best_feasible(theirs)


def test_from_optuna_says_what_it_cannot_carry():
    with pytest.raises(fw.UsageError, match=r"from_optuna\('sqlite:///old.db'\): an optuna.Study is expected; open"):
        from_optuna("sqlite:///old.db")
    study = optuna.create_study()
    with pytest.raises(fw.UsageError, match="no finished trial"):
        from_optuna(study)
    study.add_trial(optuna.trial.create_trial(params={"x": 0.5}, distributions=LINE, value=1.0))
    more = {**LINE, "kind": CategoricalDistribution(["a", "b"])}
    study.add_trial(optuna.trial.create_trial(params={"x": 0.5, "kind": "a"}, distributions=more, value=1.0))
    with pytest.raises(fw.UsageError, match=r"'kind' is not the same in all trials .* \(trial 1\), and none before it"):
        from_optuna(study)


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("prune", [False, True])
def test_trials_that_ended_before_all_parameters_were_suggested_are_left_out_with_a_warning(declared, prune):
    def objective(trial):
        k = trial.suggest_float("k", 0.0, 1.0)
        if trial.number == 4:
            raise optuna.TrialPruned if prune else ValueError
        m = trial.suggest_float("m", 0.0, 1.0)
        if trial.number == 6:
            raise ValueError
        return k + m

    theirs = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    theirs.optimize(objective, n_trials=9, catch=(ValueError,))
    space = {"k": fw.Float(0.0, 1.0), "m": fw.Float(0.0, 1.0)} if declared else None
    with pytest.warns(UserWarning, match=r"leaves out 1 trial \(the first: 4\): without all parameters"):
        ours = from_optuna(theirs, space=space, seed=0)
    assert ours.counts["completed"] == 7
    assert ours.counts["failed"] == 1
    assert ours.best.metrics["value"] == theirs.best_value


def test_the_conditions_of_an_optuna_study_are_found_in_its_trials():
    def objective(trial):
        booster = trial.suggest_categorical("booster", ["gbdt", "dart", "goss"])
        drop = trial.suggest_float("drop", 0.0, 0.5) if booster == "dart" else 0.0
        layers = trial.suggest_int("layers", 1, 5)
        units = [trial.suggest_int(f"units{i}", 1, 64, log=True) for i in range(2, layers)]
        depth = trial.suggest_int("depth", 2, 8 if booster == "gbdt" else 16)
        share = trial.suggest_float("share", 0.0, 1.0) if booster != "goss" and layers > 2 else 0.0
        return drop + len(units) + depth + share

    theirs = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    theirs.optimize(objective, n_trials=40)
    ours = from_optuna(theirs, seed=0)
    declared = ours.space.declared
    assert declared["drop"][0].when == {"booster": "dart"}
    assert declared["units3"][0].when == {"layers": [4, 5]}
    assert {(branch.high, str(branch.when)) for branch in declared["depth"]} == {
        (8, "{'booster': 'gbdt'}"),
        (16, "{'booster': ['dart', 'goss']}"),
    }
    assert {name: sorted(values) for name, values in declared["share"][0].when.items()} == {
        "booster": ["dart", "gbdt"],
        "layers": [3, 4, 5],
    }
    assert [dict(trial.params) for trial in ours.trials] == [trial.params for trial in theirs.trials]
    ours.optimize(lambda trial: len(trial.params), trials=20, progress=False)  # and it searches there
    for trial in ours.trials:
        assert ("drop" in trial.params) == (trial.params["booster"] == "dart")


@pytest.mark.parametrize("first", [0, 1])
def test_curves_keep_their_steps_so_that_the_best_model_is_built_again(first):
    def weights(rate):
        return [rate * step * (8 - step) for step in range(1, 8)]  # best at step 4

    def objective(trial):
        curve = weights(trial.suggest_float("rate", 0.1, 0.9))
        for step, value in enumerate(curve, first):
            trial.report(value, step)
        trial.set_constraint("size", curve[3] - 12.0)
        return max(curve)

    theirs = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    theirs.optimize(objective, n_trials=12)
    ours = from_optuna(theirs, metric="weight", seed=0)

    def train(trial):
        curve = weights(trial.params["rate"])
        for step in trial.steps(7):
            trial.report(weight=curve[step - 1], size=curve[3] - 12.0)
        return curve[:step]

    assert ours.best.step == 4
    assert ours.trials[0].steps == 7
    assert ours.rebuild(train) == weights(ours.best.params["rate"])[:4]
    assert verify(ours.log.read()).faults == []


def test_there_and_back(tmp_path):
    space = {"x": fw.Float(0.0, 1.0), "kind": fw.Choice(["a", "b"]), "deep": fw.Int(1, 5, when={"kind": "b"})}
    ours = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.5), fw.AtLeast("recall", 0.2)], seed=0)

    def train(trial):
        if trial.number == 3:
            raise RuntimeError("made to fail")
        trial.note(where="here")
        x = trial.params["x"]
        for step in trial.steps(4):
            trial.report(auc=x * step / 4, eod=lambda: x, recall=1.0 - x)

    ours.optimize(train, trials=25)
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    theirs = to_optuna(ours, url, "there")
    assert theirs.direction == optuna.study.StudyDirection.MAXIMIZE
    assert theirs.best_value == ours.best.metrics["auc"]
    assert theirs.trials[3].state == TrialState.FAIL
    first = theirs.trials[0]
    assert first.user_attrs["where"] == "here"
    assert first.intermediate_values == {s: pytest.approx(first.params["x"] * s / 4) for s in first.intermediate_values}
    for record, trial in zip(ours.trials, theirs.trials, strict=True):
        assert dict(record.params) == trial.params
        feasible = trial.state != TrialState.FAIL and all(over <= 0 for over in trial.constraints.values())
        assert feasible == bool(record.feasible)
    loaded = optuna.load_study(study_name="there", storage=url)
    json.dumps([trial.system_attrs for trial in loaded.trials], allow_nan=False)  # what a dashboard sends on


def test_optuna_is_optional():
    script = "import sys; sys.modules['optuna'] = None; import fairway.integrations.optuna"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "fairway.integrations.optuna needs Optuna: pip install" in done.stderr
    with pytest.raises(fw.UsageError, match="a sampler of fairway is expected"):
        FairwaySampler("ctpe")
    with pytest.raises(fw.UsageError, match="a stopper of fairway is expected"):
        FairwayPruner("ace")


@pytest.fixture
def limited():
    theirs = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial):
        rate = trial.suggest_float("rate", 0.01, 1.0)
        trial.set_constraint("eod", rate / 2 - 0.25)
        return rate

    theirs.optimize(objective, n_trials=10)
    return theirs


def test_limits_that_optuna_does_not_know_are_given_and_values_are_what_was_measured(limited):
    ours = from_optuna(limited, constraints=[fw.AtMost("eod", 0.25)], seed=0)
    for record in ours.trials:
        assert record.metrics["eod"] == pytest.approx(record.params["rate"] / 2)
        assert record.feasible == (record.params["rate"] <= 0.5)
    ours.optimize(lambda trial: {"value": trial.params["rate"], "eod": trial.params["rate"] / 2}, trials=8)
    assert any(record.feasible for record in ours.trials[10:])
    with pytest.raises(fw.UsageError, match="no trial has that constraint; they have: eod"):
        from_optuna(limited, constraints=[fw.AtMost("ms", 20.0)])


def test_a_study_that_was_carried_over_already_is_not_doubled(limited, tmp_path):
    where = {"storage": f"sqlite:///{tmp_path / 'study.db'}", "name": "credit"}
    from_optuna(limited, **where)
    with pytest.raises(fw.UsageError, match=r"has 10 trials already; continue it with fw\.load_study"):
        from_optuna(limited, **where)
    assert len(fw.load_study(*where.values()).trials) == 10
