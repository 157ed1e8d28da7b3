"""The roof over the reproductions: what it lists, what it runs, and what it says where data is missing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench import __main__ as roof
from bench import compact, runs
from bench.papers import ace_live, ace_tables
from bench.reproduction import Need

import fairway as fw
from tests.conftest import make_recording

VARIABLES = ("FAIRWAY_CREDIT_CURVES", "FAIRWAY_SST2_CURVES", "FAIRWAY_ANCHORS", "FAIRWAY_TERMINATION", "FAIRWAY_DATA")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Nothing is written into the repository, and no data but what it carries is found."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


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


@pytest.mark.parametrize("name", ["ace_figure3", "ctpe_tabular", "cikm2021", "termination", "practitioner"])
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
    need = Need("a table", "FAIRWAY_NO_TABLE", package=("tablesofcredit", "data/table.csv"))
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
