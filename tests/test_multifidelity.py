"""The bench of multi-fidelity tuners: regrets of what was trained, ratios of regrets, and peers in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench import __main__ as roof
from bench import multifidelity, peers
from bench.multifidelity import DEFAULT, Task

import fairway as fw
from tests.conftest import make_recording
from tests.test_bench import save

TASK = Task("two", "", "auc", 0.5, (2.0, 5.0), (("eod", 0.1),))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("", "_PEERS"):
        monkeypatch.delenv(f"FAIRWAY_MULTIFIDELITY{name}", raising=False)


@pytest.fixture
def two():
    """Two curves: one of three steps of a second each, and one of two steps of two seconds each."""
    return fw.Recording(
        space=fw.Space({"depth": fw.Int(1, 9)}),
        config=np.array([[3.0], [5.0]]),
        total_steps=np.array([3, 4]),
        offset=np.array([0, 3, 5]),
        seconds=np.array([1.0, 1.0, 1.0, 2.0, 2.0]),
        metrics={"auc": np.array([0.6, 0.7, 0.9, 0.65, 0.8]), "eod": np.array([0.2, 0.05, 0.3, 0.1, 0.1])},
    )


@pytest.mark.parametrize(
    ("segments", "limit", "short", "long"),
    [
        ([(0, 0, 3, 0.0)], None, 200, 0),  # 0.7 after two seconds, 0.9 after three
        ([(0, 0, 3, 0.0)], TASK.limits[0], 100, 100),  # of 0.8; only its second step is feasible
        ([(0, 0, 1, 0.0), (1, 0, 4, 0.5)], TASK.limits[0], 300, 0),  # 0.65 after 2.5 s comes too late: chance
        ([(1, 0, 1, 0.0), (1, 1, 2, 3.5)], None, 250, 250),  # resumed, it is done after 5.5 s
        ([(1, 2, 4, 0.0)], None, 400, 400),  # past the curve's end nothing is new
        ([], None, 400, 400),
    ],
)
def test_regret_is_what_the_best_feasible_step_in_time_lacks(two, segments, limit, short, long):
    regrets = multifidelity.regrets(two, TASK, limit, *multifidelity.trained(two, segments))
    assert regrets == pytest.approx((short, long))


@pytest.mark.parametrize("limit", [None, ("eod", 0.1)])
@pytest.mark.parametrize("method", multifidelity.OURS)
def test_a_run_at_the_long_budget_holds_the_one_at_the_short(tmp_path, limit, method):
    recording = make_recording()
    task = Task("some", str(save(recording, tmp_path / "some.npz")), "auc", 0.5, (3.0, 6.0), ())
    regrets, shares = multifidelity.run(multifidelity.Job(task, limit, method, 0))
    allowed = True if limit is None else recording.metrics["eod"] <= limit[1]
    best = np.max(recording.metrics["auc"], where=allowed, initial=0.0)
    for seconds, regret, share in zip(task.seconds, regrets, shares, strict=True):
        limits = [] if limit is None else [fw.AtMost(*limit)]
        sampler = multifidelity.OURS[method]
        study = fw.Study(recording.space, fw.Maximize("auc"), limits, sampler=sampler, seed=0)
        done = fw.simulate(study, recording, workers=4, budget=seconds, constraint_price=1.0)
        assert regret == pytest.approx(1000 * (best - study.best.metrics["auc"]))
        assert share == pytest.approx(done.share_used)


def test_a_peer_that_was_lucky_in_one_half_is_compared_on_the_other():
    cell = {DEFAULT: np.full(4, 2.0), "steady": np.full(4, 2.0), "lucky": np.array([1.0, 8.0, 1.0, 8.0])}
    drawn = multifidelity.draws(cell)
    against = {peer: multifidelity.against([cell], peer, drawn)[0] for peer in ("steady", "lucky")}
    assert against == pytest.approx({"steady": 1.0, "lucky": 2.0 / 4.5})
    ratio = multifidelity.against_best([cell, cell], drawn)
    assert ratio[0] == pytest.approx(0.5)  # 2 / 8 by the half in which it is lucky, 2 / 2 by the other
    assert len(ratio) == 1 + multifidelity.DRAWS


class InOrder:
    """Trains one step of each configuration, then one more of the first."""

    def __init__(self, n):
        self.legs = [*(peers.Leg(None, k, 0, 1) for k in range(n)), peers.Leg(None, 0, 1, 2)]
        self.told = []

    def ask(self):
        return self.legs.pop(0) if self.legs else None

    def tell(self, leg, value):
        self.told.append((leg.k, leg.after, value))


def test_a_free_worker_goes_on_at_once_and_what_ends_after_the_budget_is_not_told(two, monkeypatch):
    monkeypatch.setattr(multifidelity, "WORKERS", 1)
    peer = InOrder(2)
    assert peers.train(peer, two, "auc", 3.5) == [(0, 0, 1, 0.0), (1, 0, 1, 1.0), (0, 1, 2, 3.0)]
    assert peer.told == [(0, 1, 0.6), (1, 1, 0.65)]


def test_optuna_runs_every_configuration_once_and_in_order():
    pytest.importorskip("optuna")
    recording = make_recording()
    table = peers.Table(recording, 0)
    segments = peers.train(peers.Optuna(table, 0), recording, "auc", 30.0)
    reached = {}
    for k, before, after, _ in segments:
        assert reached.get(k, 0) == before < after
        reached[k] = after
    assert set(reached.values()) <= {1, 3, 9, 27, int(recording.total_steps.max())}
    assert len(reached) == (~table.left).sum() > 10  # beyond its random ones


def test_the_command_compares_with_peers_of_both_files(tmp_path, capsys):
    save(make_recording(), tmp_path / "some.npz")
    one = {"path": "some.npz", "objective": "auc", "chance": 0.5, "short": 2.0, "long": 4.0, "limits": [["eod", 0.1]]}
    (tmp_path / "settings.json").write_text(json.dumps({"some": one}))
    labels = [f"some | {limit} | {budget}" for limit in ("no limit", "eod <= 0.1") for budget in ("short", "long")]
    (tmp_path / "runs.json").write_text(json.dumps({label: {"ASHA": {"0": 3.0, "1": 5.0}} for label in labels}))
    (tmp_path / "more.json").write_text(json.dumps({labels[0]: {"SMAC3": {"0": 0.1, "1": 0.1}}}))
    options = ("--anchors", str(tmp_path), "--peers", "more.json", "--seeds", "2", "--processes", "1")
    assert roof.main("run", "multifidelity", *options) == 0
    text = Path("bench/results/multifidelity.md").read_text()
    assert text in capsys.readouterr().out
    assert "| SMAC3 |" in text
    assert "4.0 ± 1.0" in text  # ASHA
    assert "0.5 ± 0.0" in text  # a regret of 0.1 is noise
    made = json.loads(Path("bench/results/multifidelity.json").read_text())
    assert len(made["runs"]) == 4 * 4 + 1
    assert {"setting": labels[0], "method": "SMAC3", "regret_of_seeds": [0.1, 0.1]} in made["runs"]
