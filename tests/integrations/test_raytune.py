"""fairway's parts in unmodified Tuners of Ray Tune, one by one and together."""

from __future__ import annotations

import json
import math
import pickle
import time

import numpy as np
import pytest

import fairway as fw

ray = pytest.importorskip("ray")
from ray import tune  # noqa: E402

from fairway.integrations.raytune import SamplerSearch, StopperScheduler, TerminatorStopper, report  # noqa: E402
from fairway.integrations.raytune.parts import TuneBridge  # noqa: E402
from fairway.integrations.raytune.spaces import Table  # noqa: E402
from tests.conftest import make_recording  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

PROBLEM = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)])


def fit(trainable, folder, *, samples=12, param_space=None, run=None, at_once=1, **config):
    """Run an experiment; its actors, each a process to start, are as few as they may be."""
    tuner = tune.Tuner(
        trainable,
        param_space=param_space or {},
        tune_config=tune.TuneConfig(num_samples=samples, reuse_actors=True, max_concurrent_trials=at_once, **config),
        run_config=tune.RunConfig(storage_path=str(folder), name="experiment", verbose=0, **(run or {})),
    )
    return tuner.fit()


def lazy(config):
    """The better the objective, the nearer the limit; a check costs ten steps."""
    for step in range(1, 11):
        time.sleep(0.002)
        report({"auc": config["rate"] * (1 - 0.5**step)}, constraints={"eod": lambda: check(config["rate"])}, total=10)


def check(rate):
    time.sleep(0.02)
    return rate / 2


def test_all_parts_together_find_the_best_within_the_limit(tmp_path, local_ray):
    scheduler = StopperScheduler(fw.ACE(interval=1, grace=2), PROBLEM)
    ends = TerminatorStopper(fw.Plateau(60), PROBLEM, {"rate": fw.Float(0.0, 1.0)})
    results = fit(
        lazy,
        tmp_path,
        samples=30,
        at_once=2,
        param_space={"rate": tune.uniform(0.0, 1.0), "constant": 3},
        metric="auc",
        mode="max",
        scheduler=scheduler,
        search_alg=SamplerSearch(fw.CTPE(), PROBLEM, seed=0),
        run={"stop": ends, "callbacks": [ends]},
    )
    assert not results.errors
    frame = results.get_dataframe()
    assert len(frame) == 30
    assert set(frame["config/constant"]) == {3}
    best = scheduler.study.best
    assert 0.4 < best.metrics["auc"] <= 0.5
    assert best.metrics["eod"] <= 0.25
    costs = scheduler.study.costs
    assert costs.checks > 0
    assert costs.saved_checks > 50
    assert costs.check_seconds / costs.checks >= 0.02  # as timed in the trainable
    assert scheduler.reasons
    assert any("worst 25%" in reason for reason in scheduler.reasons.values())
    assert scheduler.study.counts["stopped"] == len(scheduler.reasons)


def test_dear_checks_wait_for_the_last_step(tmp_path, local_ray):
    scheduler = StopperScheduler(fw.ACE(interval="end", truncation=0.01), PROBLEM)
    fit(lazy, tmp_path, samples=6, param_space={"rate": tune.uniform(0.0, 0.5)}, scheduler=scheduler)
    study = scheduler.study
    assert study.best.step == 10
    assert 1 <= study.costs.checks <= 6
    assert study.costs.checks + study.costs.saved_checks == sum(record.steps for record in study.trials)


def test_report_without_our_scheduler_calls_everything(tmp_path, local_ray):
    results = fit(lazy, tmp_path, samples=1, param_space={"rate": 0.4}, metric="auc", mode="max")
    assert results[0].metrics["eod"] == pytest.approx(0.2)
    assert results[0].metrics["training_iteration"] == 10


def test_a_scheduler_of_ours_keeps_the_feasible_trial_and_stops_the_infeasible_one(tmp_path, local_ray):
    """Where they fall short: after many infeasible trials with good values, theirs prune the first feasible one."""
    order = [0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.4, 0.99]

    def eager(config):
        for step in range(1, 6):
            tune.report({"auc": config["rate"] + step / 100, "eod": config["rate"] / 2})

    scheduler = StopperScheduler(fw.ACE(truncation=0.3), PROBLEM)
    results = fit(
        eager,
        tmp_path,
        samples=1,
        param_space={"rate": tune.grid_search(order)},
        scheduler=scheduler,
    )
    steps = {result.config["rate"]: result.metrics["training_iteration"] for result in results}
    assert steps[0.4] == 5
    assert steps[0.99] < 5
    assert scheduler.study.best.metrics["eod"] == 0.2


@pytest.mark.slow
def test_more_is_found_in_the_same_time_than_with_their_scheduler(tmp_path, local_ray):
    """An unmodified Tuner over recorded trainings, at equal virtual seconds, a check at the price of five steps."""
    recording = make_recording(300, seed=0)
    found = {}
    for name, scheduler in (
        ("ours", StopperScheduler(fw.ACE(tolerance="hard"), PROBLEM)),
        ("theirs", tune.schedulers.ASHAScheduler(max_t=40)),
    ):
        budget = Budget(12.0, price=5 * float(recording.seconds.mean()))
        fit(
            replay(recording, budget.price, lazily=name == "ours"),
            tmp_path / name,
            samples=1,
            param_space={"k": tune.grid_search([int(k) for k in np.random.default_rng(0).permutation(60)])},
            metric="auc",
            mode="max",
            scheduler=scheduler,
            run={"stop": budget},
        )
        assert budget.spent > 12.0
        found[name] = budget.best
    assert found["ours"] > found["theirs"]


def replay(recording, price, *, lazily):
    def train(config):
        first, last = recording.offset[config["k"]], recording.offset[config["k"] + 1]
        for row in range(first, last):
            auc, eod = (float(recording.metrics[name][row]) for name in ("auc", "eod"))
            seconds = float(recording.seconds[row])
            if lazily:
                time.sleep(seconds / 50)
                check = lambda eod=eod: time.sleep(price / 50) or eod
                report({"auc": auc, "seconds": seconds}, constraints={"eod": check}, total=int(last - first))
            else:
                tune.report({"auc": auc, "eod": eod if row == last - 1 else math.nan, "seconds": seconds})

    return train


class Budget(tune.Stopper):
    """Ends an experiment when its virtual seconds are spent; keeps the best that was measured within the limit."""

    def __init__(self, seconds, price):
        self.seconds, self.price, self.spent, self.best, self.heard = seconds, price, 0.0, -math.inf, set()

    def __call__(self, trial_id, result):
        key = (trial_id, result["training_iteration"])
        if key not in self.heard and not self.stop_all():
            self.heard.add(key)
            paid = not math.isnan(result["eod"])
            self.spent += result["seconds"] + paid * self.price
            if paid and result["eod"] <= 0.25 and not self.stop_all():
                self.best = max(self.best, result["auc"])
        return False

    def stop_all(self):
        return self.spent > self.seconds


def test_the_terminator_does_not_end_an_experiment_without_anything_feasible(tmp_path, local_ray):
    def infeasible(config):
        tune.report({"auc": config["rate"], "eod": 0.5})

    space = {"rate": tune.uniform(0.0, 1.0)}
    ends = TerminatorStopper(fw.RegretBound(0.5), PROBLEM, space)
    results = fit(infeasible, tmp_path / "a", samples=30, param_space=space, run={"stop": ends})
    assert sum("auc" in result.metrics for result in results) == 30
    assert not ends.reason

    def flat(config):
        tune.report({"auc": 0.5, "eod": 0.1})

    ends = TerminatorStopper(fw.Plateau(10), PROBLEM, space)
    results = fit(flat, tmp_path / "b", samples=30, param_space=space, run={"stop": ends})
    assert ends.reason.startswith("nothing better for 10 trials")
    assert sum("auc" in result.metrics for result in results) < 20


def test_a_trial_that_tune_tries_again_is_ruled_on_again(tmp_path, local_ray):
    def preempted(config):
        marker = tmp_path / "seen"
        if config["rate"] == 0.2 and not marker.exists():
            marker.touch()
            raise RuntimeError("preempted")
        for step in range(6):
            tune.report({"auc": config["rate"] + step / 100, "eod": 0.1})

    scheduler = StopperScheduler(fw.ACE(truncation=0.5), PROBLEM)
    results = fit(
        preempted,
        tmp_path,
        samples=1,
        param_space={"rate": tune.grid_search([0.9, 0.91, 0.92, 0.2])},
        scheduler=scheduler,
        run={"failure_config": tune.FailureConfig(max_failures=1)},
    )
    assert {result.config["rate"]: result.metrics["training_iteration"] for result in results}[0.2] == 1
    assert [record.status for record in scheduler.study.trials][-1] == "stopped"


@pytest.mark.slow
def test_a_stoppers_longest_step_ends_a_trial_as_complete(tmp_path, local_ray):
    def eager(config):
        for step in range(8):
            report({"auc": config["rate"] + step / 100}, constraints={"eod": lambda: 0.1})

    scheduler = StopperScheduler(fw.ASHA(max_steps=4), PROBLEM)
    results = fit(eager, tmp_path, samples=2, param_space={"rate": tune.uniform(0.1, 0.4)}, scheduler=scheduler)
    assert not results.errors
    assert {record.steps for record in scheduler.study.trials if record.status == "completed"} == {4}


def test_a_search_that_is_restored_goes_on_with_trials_that_failed():
    search = SamplerSearch(fw.Random(), PROBLEM, space={"rate": fw.Float(0.0, 1.0)}, seed=0)
    search.suggest("a")
    search.on_trial_complete("a", error=True)
    search.on_trial_result("a", {"training_iteration": 1, "auc": 0.5, "eod": 0.1})
    search.on_trial_complete("a", {"training_iteration": 2, "auc": 0.6, "eod": 0.1, "done": True})
    assert [record.status for record in search._bridge.study.trials] == ["failed", "completed"]


def test_a_stopper_hears_nested_metrics_and_leaves_out_what_is_not_of_its_space(caplog):
    problem = fw.Problem(fw.Maximize("val/auc"), [fw.AtMost("val/eod", 0.25)])
    ends = TerminatorStopper(fw.Target(0.4), problem, {"rate": fw.Float(0.0, 0.5)})
    result = {"training_iteration": 1, "val": {"auc": 0.5, "eod": 0.1}, "done": True}
    ends("a", {**result, "config": {"rate": 0.9}})
    assert not ends.stop_all()
    assert "leaves trial a out: parameter 'rate'" in caplog.text
    ends("b", {**result, "config": {"rate": 0.4}})
    assert ends.stop_all()


@pytest.mark.slow
def test_a_finite_space_of_ours_ends_the_search(tmp_path, local_ray):
    search = SamplerSearch(fw.CTPE(), PROBLEM, space={"rate": fw.Choice([0.1, 0.2, 0.3])}, seed=0)
    results = fit(eager_rate, tmp_path, samples=50, search_alg=search)
    assert sorted(result.config["rate"] for result in results) == [0.1, 0.2, 0.3]


def eager_rate(config):
    tune.report({"auc": config["rate"], "eod": 0.1})


def test_a_searcher_saves_what_it_learned(tmp_path):
    search = SamplerSearch(fw.CTPE(start=3), PROBLEM, space={"rate": fw.Float(0.0, 1.0)}, seed=0)
    for number in range(12):
        rate = search.suggest(str(number))["rate"]
        search.on_trial_complete(str(number), {"training_iteration": 1, "auc": rate, "eod": rate / 2, "done": True})
    search.suggest("runs")
    search.save(str(tmp_path / "state"))
    other = SamplerSearch(fw.CTPE(start=3), PROBLEM, space={"rate": fw.Float(0.0, 1.0)}, seed=0)
    other.restore(str(tmp_path / "state"))
    assert len(other._bridge.study.history) == 13  # the one that ran failed with its experiment
    assert other._bridge.study.best == search._bridge.study.best
    assert 0.0 <= other.suggest("next")["rate"] <= 1.0
    for part in (StopperScheduler(fw.ACE(), PROBLEM), TerminatorStopper(fw.Target(0.9), PROBLEM, {"x": fw.Int(0, 1)})):
        pickle.loads(pickle.dumps(part))  # Tune does that to keep a Tuner


def test_tunes_spaces_become_ours():
    table = Table.of(
        {
            "rate": tune.loguniform(1e-4, 1e-1),
            "net": {"layers": tune.randint(1, 5), "width": tune.qrandint(16, 64, 16), "name": "mlp"},
            "momentum": tune.quniform(0.0, 0.9, 0.1),
            "act": tune.choice(["relu", "tanh"]),
            "shape": tune.choice([(1, 2), (3, 4)]),
        }
    )
    assert dict(table.space) == {
        "rate": fw.Float(1e-4, 1e-1, log=True),
        "net/layers": fw.Int(1, 4),
        "net/width": fw.Int(16, 64, step=16),
        "momentum": fw.Float(0.0, 0.9, step=0.1),
        "act": fw.Choice(["relu", "tanh"]),
        "shape": fw.Choice([0, 1]),
    }
    params = {"rate": 0.01, "net/layers": 2, "net/width": 32, "momentum": 0.3, "act": "tanh", "shape": 1}
    config = table.to_theirs(params)
    assert config == {
        "rate": 0.01,
        "net": {"layers": 2, "width": 32, "name": "mlp"},
        "momentum": 0.3,
        "act": "tanh",
        "shape": (3, 4),
    }
    assert table.to_ours(config) == params


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"x": tune.randn(0.0, 1.0)}, "'x' is drawn by normal, which has no bounds"),
        ({"x": tune.sample_from(lambda spec: 1)}, "'x' is drawn by callsampler"),
        ({"a": {"x": tune.grid_search([1, 2])}}, "'a/x' is a grid_search"),
        ({"x": 3}, "nothing to search for"),
        ({"x": [tune.uniform(0, 1), 3]}, "'x' is a list with domains in it"),
    ],
)
def test_what_tune_has_and_we_do_not_is_said(config, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        Table.of(config)


def test_what_does_not_fit_together_is_said(tmp_path):
    with pytest.raises(fw.UsageError, match="a stopper and a Problem of fairway are expected"):
        StopperScheduler(fw.CTPE(), PROBLEM)
    with pytest.raises(fw.UsageError, match="a sampler and a Problem"):
        SamplerSearch(fw.ACE(), PROBLEM)
    with pytest.raises(fw.UsageError, match="a terminator and a Problem"):
        TerminatorStopper(fw.ACE(), PROBLEM, {"x": fw.Int(0, 1)})
    with pytest.raises(fw.UsageError, match="is in param_space, and space= was given"):
        SamplerSearch(fw.CTPE(), PROBLEM, space={"x": fw.Int(0, 1)}).set_search_properties(
            None, None, {"y": tune.uniform(0, 1)}
        )
    with pytest.raises(fw.UsageError, match="SamplerSearch has no search space"):
        SamplerSearch(fw.CTPE(), PROBLEM).suggest("a")
    with pytest.raises(fw.UsageError, match=r"metric='loss', mode='min'\) is not the problem's objective"):
        StopperScheduler(fw.ACE(), PROBLEM).set_search_properties("loss", "min")


def test_a_search_searches_one_space():
    search = SamplerSearch(fw.Random(), PROBLEM, seed=0)
    search.set_search_properties(None, None, {"rate": tune.uniform(0, 1)})
    search.suggest("a")
    search.on_trial_complete("a", error=True)
    with pytest.raises(fw.UsageError, match="has searched another param_space before"):
        search.set_search_properties(None, None, {"depth": tune.randint(1, 5)})


def test_a_trial_that_reports_nothing_or_arrays_fails_alone():
    bridge = TuneBridge(PROBLEM, fw.Space({"x": fw.Int(0, 9)}))
    bridge.ask("a")
    bridge.ask("b")
    bridge.end_with("a", {})
    bridge.end_with("b", {"training_iteration": 1, "auc": 0.5, "eod": np.array([0.1, 0.2])})
    assert [(record.status, record.feasible) for record in bridge.study.trials] == [
        ("failed", None),
        ("completed", None),
    ]


def test_a_result_without_the_objective_names_what_it_has():
    bridge = TuneBridge(PROBLEM, fw.Space({"x": fw.Int(0, 1)}))
    bridge.ask("a")
    with pytest.raises(fw.UsageError, match="'auc' was not reported; what was: training_iteration, loss"):
        bridge.hear("a", {"training_iteration": 1, "loss": 0.3})


def test_constraints_given_as_values_among_the_metrics_are_taken(tmp_path, local_ray):
    def plain(config):
        report({"auc": config["rate"], "eod": config["rate"] / 2})

    scheduler = StopperScheduler(fw.Never(), PROBLEM)
    fit(plain, tmp_path, samples=2, param_space={"rate": tune.uniform(0.1, 0.4)}, scheduler=scheduler)
    assert scheduler.study.best is not None


def test_steps_are_tunes_own():
    """A trial that goes on from a checkpoint in another process counts its reports from 1 there."""
    bridge = TuneBridge(PROBLEM, fw.Space({"x": fw.Int(0, 9)}))
    bridge.ask("a")
    packed = json.dumps([[None], [None], [-2], 5, False])
    for step in (1, 2, 3):
        bridge.hear("a", {"training_iteration": step, "auc": 0.5, "fairway": packed})
    bridge.end_with("a", {"training_iteration": 4, "auc": 0.7, "fairway": json.dumps([[0.1], [0.01], [7], 5, True])})
    assert bridge.study.best.step == 4


def test_a_result_that_is_no_number_fails_its_trial_and_unknown_is_never_feasible():
    bridge = TuneBridge(PROBLEM, fw.Space({"x": fw.Int(0, 9)}))
    for name in "abcd":
        bridge.ask(name)
    assert bridge.hear("a", {"training_iteration": 1, "auc": math.nan}) == "auc is nan at step 1"
    bridge.end_with("a")
    bridge.end_with("b", {"training_iteration": 1, "auc": 0.9, "eod": math.nan})
    bridge.end_with("c", {"training_iteration": 3, "auc": 0.5, "eod": 0.1})
    bridge.end_with("d", {"training_iteration": 2, "auc": 0.6})
    assert bridge.study.best.number == 2
    assert [record.status for record in bridge.study.trials] == ["failed", "completed", "completed", "stopped"]
    assert [record.feasible for record in bridge.study.trials] == [None, None, True, None]
