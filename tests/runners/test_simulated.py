from __future__ import annotations

import math

import numpy as np
import pytest

import fairway as fw
from fairway.engine.event_json import to_json
from fairway.engine.events import Asked, Reported
from fairway.engine.verify import verify
from tests.conftest import make_recording

STOPPERS = [fw.Never(), fw.ASHA(), fw.ASHA(strata=True), fw.ACE(), fw.ACE(interval="end"), fw.ACE(tolerance="hard")]


def study_of(recording, stopper=None, seed=0, constraints=(fw.AtMost("eod", 0.25),), **more):
    more = {"sampler": fw.Random(), **more}
    return fw.Study(recording.space, fw.Maximize("auc"), constraints, stopper=stopper, seed=seed, **more)


@pytest.mark.parametrize("stopper", STOPPERS)
def test_the_same_seed_gives_the_same_log_bit_for_bit(recording, stopper):
    logs = []
    for _ in range(2):
        study = study_of(recording, stopper)
        fw.simulate(study, recording, budget=5.0)
        logs.append([to_json(event) for event in study.log.read()])
    assert logs[0] == logs[1]


def test_another_seed_gives_another_study(recording):
    numbers = []
    for seed in (0, 1):
        study = study_of(recording, seed=seed)
        fw.simulate(study, recording, budget=5.0)
        numbers.append([trial.params["rate"] for trial in study.trials])
    assert numbers[0] != numbers[1]


@pytest.mark.parametrize("stopper", STOPPERS)
def test_a_simulated_study_replays(recording, stopper):
    study = study_of(recording, stopper)
    fw.simulate(study, recording, budget=5.0)
    again = study_of(recording, stopper, storage=study.log)
    assert again.best == study.best
    assert again.trials == study.trials
    assert again.costs == study.costs


@pytest.mark.parametrize("stopper", STOPPERS)
@pytest.mark.parametrize("workers", [1, 3])
def test_time_is_accounted_for(recording, stopper, workers):
    study = study_of(recording, stopper)
    result = fw.simulate(study, recording, workers=workers, budget=3.0, constraint_price=2.0)
    assert result.ended == "the budget of 3 s is spent"
    costs = study.costs
    # Only a step or a check under way at the end is missing, and no worker idles.
    longest = workers * recording.seconds.max() * 2.0
    assert workers * 3.0 - longest <= costs.training_seconds + costs.check_seconds <= workers * 3.0
    assert result.best_after is None or 0 < result.best_after <= 3.0


def test_a_single_worker_costs_what_was_recorded():
    recording = fw.Recording(
        space=fw.Space({"x": fw.Int(1, 9)}),
        config=np.array([[3.0]]),
        total_steps=np.array([4]),
        offset=np.array([0, 2]),  # recorded for two of four steps
        seconds=np.array([0.25, 0.75]),
        metrics={"auc": np.array([0.5, 0.6]), "eod": np.array([0.1, 0.2])},
    )
    study = study_of(recording, fw.Never(skip=False))
    result = fw.simulate(study, recording, workers=1, budget=60.0, constraint_price=2.0)
    assert result.ended == "the recording is used up"
    assert result.share_used == 1.0
    # Two recorded steps, two flat ones at 0.1 ms, and four checks at twice the mean recorded step.
    assert result.seconds == pytest.approx(0.25 + 0.75 + 2 * 1e-4 + 4 * 2.0 * 0.5)
    assert study.costs.check_seconds == pytest.approx(4.0)
    assert result.best_after == pytest.approx(0.25 + 1.0 + 0.75 + 1.0)
    assert study.trials[0].status == "completed"
    assert study.best.metrics == {"auc": 0.6, "eod": 0.2}


def test_what_a_check_finds_is_not_known_before_it_is_over():
    """Two workers: while the first one's long check runs, the second must still pay for its own."""
    recording = fw.Recording(
        space=fw.Space({"x": fw.Int(1, 9)}),
        config=np.array([[3.0], [4.0]]),
        total_steps=np.array([1, 1]),
        offset=np.array([0, 1, 2]),
        seconds=np.array([1.0, 1.5]),
        metrics={"auc": np.array([0.9, 0.1]), "eod": np.array([0.1, 0.1])},
    )
    study = study_of(recording, fw.Never())
    fw.simulate(study, recording, workers=2, budget=60.0, constraint_price=1.0)
    assert study.costs.checks == 2
    study = study_of(recording, fw.Never())
    fw.simulate(study, recording, workers=2, budget=60.0, constraint_price=0.1)
    assert study.costs.checks == 1


def test_what_finishes_after_the_budget_does_not_count():
    recording = fw.Recording(
        space=fw.Space({"x": fw.Int(1, 9)}),
        config=np.array([[3.0]]),
        total_steps=np.array([2]),
        offset=np.array([0, 2]),
        seconds=np.array([1.0, 1.0]),
        metrics={"auc": np.array([0.5, 0.6]), "eod": np.array([0.1, 0.2])},
    )
    for budget, step in ((1.9, None), (2.0, 1), (3.9, 1), (4.0, 2)):
        study = study_of(recording, fw.Never())
        fw.simulate(study, recording, workers=1, budget=budget, constraint_price=1.0)
        assert (study.best.step if study.best else None) == step
        assert study.counts["running"] == 0


def test_random_draws_uniformly_from_those_left_and_never_twice(recording):
    study = study_of(recording, fw.Never())
    result = fw.simulate(study, recording, budget=1e6)
    assert result.ended == "the recording is used up"
    drawn = [(trial.params["depth"], trial.params["rate"]) for trial in study.trials]
    assert sorted(drawn) == sorted((int(depth), rate) for depth, rate in recording.config.tolist())
    firsts = []
    for seed in range(300):
        study = study_of(recording, fw.Never(), seed=seed)
        fw.simulate(study, recording, workers=1, budget=0.001)
        firsts.append(recording.config[:, 1].tolist().index(study.trials[0].params["rate"]))
    # 300 draws of 60: chi-square with 59 degrees of freedom is below 99.6 in 999 of 1,000 cases.
    counts = np.bincount(firsts, minlength=len(recording))
    assert ((counts - 5) ** 2 / 5).sum() < 99.6


def test_the_nearest_recorded_configuration_is_trained_for_other_samplers(recording):
    class Corner(fw.Sampler):
        def propose(self, history, rng):
            return np.ones(len(history.space))

    study = study_of(recording, fw.Never(), sampler=Corner())
    fw.simulate(study, recording, workers=1, budget=0.5)
    x = np.array([recording.space.encode(recording.params(k)) for k in range(len(recording))])
    nearest = int(np.argmin(((x - recording.space.encode({"depth": 9, "rate": 1.0})) ** 2).sum(axis=1)))
    assert study.trials[0].params == recording.params(nearest)


def test_enqueued_configurations_are_run_first(recording):
    study = study_of(recording, fw.Never())
    study.enqueue(recording.params(7))
    fw.simulate(study, recording, budget=1.0)
    assert study.trials[0].params == recording.params(7)


def test_of_an_enqueued_configuration_that_is_not_left_the_nearest_is_run(recording):
    study = study_of(recording, fw.Never())
    study.enqueue(recording.params(7))
    study.enqueue(recording.params(7))  # run by then
    study.enqueue({"depth": recording.params(3)["depth"]})
    fw.simulate(study, recording, workers=1, budget=1e6)
    x = recording.x
    apart = ((x - x[7]) ** 2).sum(axis=1)
    apart[7] = np.inf
    assert study.trials[1].params == recording.params(int(np.argmin(apart)))
    assert study.trials[2].params["depth"] == recording.params(3)["depth"]


def test_a_second_simulation_goes_on_with_what_is_left_and_leaves_other_trials_alone(recording):
    study = study_of(recording, fw.Never())
    fw.simulate(study, recording, budget=1.0)
    mine = study.ask()
    result = fw.simulate(study, recording, budget=1e6)
    assert mine.status == "running"
    assert result.share_used == 1.0
    drawn = [trial.params["rate"] for trial in study.trials if trial.number != mine.number]
    assert len(drawn) == len(set(drawn)) == len(recording)


def test_prices_may_differ_by_constraint(recording):
    limits = (fw.AtMost("eod", 0.25), fw.AtMost("dpd", 0.2))
    study = study_of(recording, fw.Never(skip=False), constraints=limits)
    fw.simulate(study, recording, budget=3.0, constraint_price={"eod": 5.0, "dpd": 0.1})
    reports = [event for event in study.log.read() if isinstance(event, Reported)]
    paid = np.concatenate([event.check_ns for event in reports])
    means = [column[column > 0].mean() for column in paid.T]
    assert means[0] > 10 * means[1]


def test_events_carry_virtual_time(recording):
    study = study_of(recording)
    fw.simulate(study, recording, budget=2.0)
    times = [event.at for event in study.log.read() if isinstance(event, Asked)]
    assert times == sorted(times)
    assert times[:4] == [0.0] * 4
    assert times[-1] <= 2.0


def test_a_study_goes_on_live_after_a_simulation(recording):
    study = study_of(recording)
    fw.simulate(study, recording, budget=1.0)
    study.tell(study.ask(), auc=0.99, eod=0.0)
    assert study.best.metrics["auc"] == 0.99


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"workers": 0}, "workers=0"),
        ({"budget": 0.0}, "budget=0.0"),
        ({"constraint_price": -1.0}, "a price of at least 0"),
        ({"constraint_price": {"dpd": 1.0}}, "'dpd' is no constraint of this study; it has eod"),
        ({"constraint_price": {}}, "a price of at least 0 is expected for 'eod'"),
        ({"constraint_price": math.inf}, "a price of at least 0"),
    ],
)
def test_bad_settings_get_one_clear_sentence(recording, more, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        fw.simulate(study_of(recording), recording, **more)


def test_a_study_of_other_metrics_or_another_space_is_refused(recording):
    other = fw.Study(recording.space, fw.Minimize("loss"), seed=0)
    with pytest.raises(fw.UsageError, match="the recording has no metric 'loss'; it has auc, eod, dpd"):
        fw.simulate(other, recording)
    other = fw.Study({"x": fw.Float(0, 1)}, fw.Maximize("auc"), seed=0)
    with pytest.raises(fw.UsageError, match=r"build the study with recording\.space"):
        fw.simulate(other, recording)


class TestRecording:
    def save(self, path, **change):
        recording = make_recording(5)
        arrays = {
            "names": np.array(["depth", "rate"]),
            "low": np.array([1.0, 0.0]),
            "high": np.array([9.0, 1.0]),
            "log": np.array([False, False]),
            "integer": np.array([True, False]),
            "config": recording.config,
            "total_steps": recording.total_steps,
            "offset": recording.offset,
            "seconds": recording.seconds,
            "index": np.arange(5),
            **recording.metrics,
            **change,
        }
        np.savez(path, **{name: column for name, column in arrays.items() if column is not None})
        return recording

    def test_load_reads_what_was_saved(self, tmp_path):
        saved = self.save(tmp_path / "r.npz")
        loaded = fw.Recording.load(tmp_path / "r.npz")
        assert dict(loaded.space) == dict(saved.space)
        assert list(loaded.metrics) == ["auc", "eod", "dpd"]
        assert loaded.params(3) == saved.params(3)
        assert loaded.at("auc", 2, 1) == saved.at("auc", 2, 1)

    def test_a_curve_is_flat_past_its_end(self, recording):
        k = int(np.argmax(recording.total_steps - np.diff(recording.offset)))
        last = int(np.diff(recording.offset)[k])
        assert recording.at("eod", k, last + 1) == recording.at("eod", k, last)
        assert recording.row(k, last + 1) is None

    def test_a_file_that_is_no_recording_gets_one_clear_sentence(self, tmp_path):
        path = tmp_path / "r.npz"
        with pytest.raises(fw.UsageError, match="there is no such recording"):
            fw.Recording.load(path)
        path.write_bytes(b"not an archive")
        with pytest.raises(fw.UsageError, match="a recording is expected, but it cannot be read"):
            fw.Recording.load(path)
        self.save(path, seconds=None, offset=None)
        with pytest.raises(fw.UsageError, match="it lacks offset, seconds"):
            fw.Recording.load(path)
        self.save(path, seconds=-np.ones(len(make_recording(5).seconds)))
        with pytest.raises(fw.UsageError, match="negative or not finite"):
            fw.Recording.load(path)
        self.save(path, total_steps=np.zeros(5, int))
        with pytest.raises(fw.UsageError, match="without a single step"):
            fw.Recording.load(path)
        self.save(path, total_steps=np.array([1, 2]))
        with pytest.raises(fw.UsageError, match="seconds do not match"):
            fw.Recording.load(path)

    def test_a_recording_with_pickled_objects_runs_no_code(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("code ran",))

        path = tmp_path / "r.npz"
        with path.open("wb") as file:
            np.savez(file, names=np.array([Bomb()], dtype=object))
        with pytest.raises(fw.UsageError, match="a recording is expected, but it cannot be read"):
            fw.Recording.load(path)


def test_regret_shrinks_with_the_budget(recording):
    def found(budget):
        study = study_of(recording, fw.Never())
        fw.simulate(study, recording, budget=budget)
        return study.best.metrics["auc"] if study.best else -math.inf

    assert found(0.5) <= found(2.0) <= found(100.0)


@pytest.mark.parametrize("stored", [False, True])
def test_workers_may_know_less_than_everything_and_are_verified_all_the_same(recording, stored, tmp_path):
    exchanged = {}
    for staleness in (0.0, 0.05, 1.0):
        logs = []
        for k in range(2):
            url = f"sqlite:///{tmp_path}/{staleness}-{k}.db" if stored else None
            study = study_of(recording, fw.ACE(interval=1), storage=url)
            fw.simulate(study, recording, workers=4, budget=8.0, staleness=staleness)
            logs.append([to_json(event) for event in study.log.read()])
        assert logs[0] == logs[1]
        assert verify(study.log.read()).faults == []
        assert study.counts["running"] == 0
        reports = [event for event in study.log.read() if isinstance(event, Reported)]
        assert len({event.worker for event in reports}) == (4 if staleness else 1)
        exchanged[staleness] = len(reports)
    assert exchanged[0.05] > exchanged[1.0]
    with pytest.raises(fw.UsageError, match="staleness=-1"):
        fw.simulate(study, recording, staleness=-1)
