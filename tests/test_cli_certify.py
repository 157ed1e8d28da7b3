"""`fairway certify`, and what the other commands say of a certificate, of errors and of notes."""

from __future__ import annotations

import csv
import json

import pytest

import fairway as fw
from fairway.cli import main
from tests.test_cli import url  # noqa: F401 - a fixture

SCRIPT = """
import numpy as np

import fairway as fw
from fairway.constraints import demographic_parity_difference

rng = np.random.default_rng(0)
group = rng.integers(0, 2, 6000)
x = rng.normal(size=(6000, 2)) + np.outer(group, [0.0, 0.6])
truth = x.sum(1) > 0.5
x[3000:, 0] += {drift} * group[3000:]
study = fw.Study({{"weight": fw.Float(0.0, 1.0)}}, fw.Maximize("accuracy"),
                 [fw.AtMost("parity", 0.1, confidence=0.9)], sampler=fw.Random(), storage={url!r}, name="hiring",
                 seed=0)


def train(trial):
    def model(rows, weight=trial.params["weight"]):
        return (rows[:, 0] + weight * rows[:, 1] > 0.5).astype(int)

    decided = model(x[:3000])
    gap = demographic_parity_difference(truth[:3000], decided, sensitive_features=group[:3000])
    trial.report(accuracy=float((decided == truth[:3000]).mean()), parity=gap)
    return model


{name} = fw.FreshRows(x[3000:], truth[3000:], groups=group[3000:], parity=demographic_parity_difference)


def load():
    return {name}


def broken(model):
    raise KeyError("income")
"""


@pytest.fixture
def write(tmp_path, url):  # noqa: F811
    def write(name="held_out", drift=0.0, more=""):
        path = tmp_path / "hiring.py"
        path.write_text(SCRIPT.format(url=url, name=name, drift=drift) + more)
        return str(path)

    return write


@pytest.fixture
def script(write, capsys):
    path = write()
    assert main(["run", path, "--trials", "20"]) == 0
    capsys.readouterr()
    return path


def test_certify_finds_the_rows_tests_candidates_and_tells(script, url, capsys):  # noqa: F811
    assert main(["certify", script]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("certified: parity is at most 0.1 with 95% confidence, for rows drawn like these")
    assert "trial  step  result  accuracy, judging rows  parity, judging rows  parity, fresh rows  rows   p" in out
    assert " ± " in out
    assert "testing trial" in err
    assert main(["show", url, "hiring"]) == 0
    shown = capsys.readouterr().out
    assert "certified: parity is at most 0.1 with 95% confidence" in shown
    assert "not yet certified" not in shown
    assert main(["verify", url, "hiring"]) == 0
    assert ", those of 1 certification among them: all agree" in capsys.readouterr().out
    assert main(["verify", url, "hiring", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certifications"] == 1


def test_rows_that_are_spent_are_refused_with_a_sentence(script, capsys):
    assert main(["certify", script]) == 0
    assert main(["certify", script]) == 2
    assert "these rows have been used once to certify" in capsys.readouterr().err


def test_certify_as_json(script, url, capsys):  # noqa: F811
    options = ["--evaluate", "load", "--train", "train", "--confidence", "0.9", "--at-most", "2", "--uses", "3"]
    assert main(["certify", script, "--json", *options]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert err == ""
    assert (said["certified"], said["confidence"], said["uses"]) == (True, 0.9, 3)
    assert 1 <= len(said["tested"]) <= 2
    assert main(["show", url, "hiring", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"] == said


def test_what_is_not_certified_has_exit_code_1(write, url, capsys):  # noqa: F811
    path = write("fresh", drift=1.0)
    assert main(["run", path, "--trials", "20"]) == 0
    assert main(["certify", path]) == 1
    assert "\nnot certified: parity 0." in capsys.readouterr().out
    assert main(["show", url, "hiring"]) == 0
    assert "\nnot certified: parity 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "options", "sentence"),
    [
        ("", ["--evaluate", "absent"], "has no 'absent'"),
        ("", ["--train", "absent"], "has no 'absent'"),
        ("", ["--evaluate", "x"], "x in "),
        ("", ["--evaluate", "broken"], "KeyError: 'income', raised by evaluate for trial"),
        ("", ["--confidence", "0.2"], "confidence=0.2: at least 0.5 is expected"),
        ("other = fw.FreshRows(x, truth, groups=group, parity=demographic_parity_difference)", [], "has several fw.Fr"),
        ("del held_out", [], "has no fw.FreshRows and no fresh: name what evaluates"),
        (
            "alias = held_out\ndel train",
            [],
            "has none of the functions train, objective, evaluate: name yours with --t",
        ),
    ],
)
def test_what_cannot_be_certified_is_said(script, write, capsys, more, options, sentence):
    path = write(more=more)
    code = main(["certify", path, *options, "--json"])
    err = capsys.readouterr().err
    assert (code, sentence in err, err.count("\n")) == (2, True, 1), err


def test_a_search_that_found_nothing_has_nothing_to_certify(write, capsys):
    assert main(["certify", write()]) == 2
    assert "there is no candidate to certify" in capsys.readouterr().err


def test_show_says_that_a_search_is_not_yet_certified_and_shows_errors(script, url, capsys):  # noqa: F811
    assert main(["show", url, "hiring"]) == 0
    out = capsys.readouterr().out
    assert "with parity <= 0.1 at 90%" in out
    assert "within the limit on the judging rows; not yet certified" in out
    assert " ± " in out.partition("best:")[2].splitlines()[0]


def test_notes_and_errors_are_shown_and_exported(script, url, tmp_path, capsys):  # noqa: F811
    study = fw.Study(
        {"weight": fw.Float(0.0, 1.0)},
        fw.Maximize("accuracy"),
        [fw.AtMost("parity", 0.1, confidence=0.9)],
        sampler=fw.Random(),
        storage=url,
        name="hiring",
        seed=0,
    )
    best = study.best
    study.note(source="the 2019 sample")
    study.note(best.number, test_accuracy=0.75, rows=[1, 2])
    assert main(["show", url, "hiring"]) == 0
    out = capsys.readouterr().out
    assert "measured later:\n  the study: source the 2019 sample\n" in out
    assert f"  trial {best.number}: test_accuracy 0.75, rows [1, 2]\n" in out
    for suffix in ("csv", "json", "parquet"):
        assert main(["export", url, "hiring", "-o", str(tmp_path / f"trials.{suffix}")]) == 0
    row = json.loads((tmp_path / "trials.json").read_text())[best.number]
    assert (row["error.parity"], row["note.test_accuracy"]) == (best.errors["parity"], 0.75)
    assert row["note.rows"] == "[1, 2]"
    with (tmp_path / "trials.csv").open() as file:
        assert float(list(csv.DictReader(file))[best.number]["error.parity"]) == best.errors["parity"]


def test_the_shell_completes_certify(capsys):
    for shell, word in (("bash", "certify) words="), ("fish", "-a certify"), ("zsh", "certify) words=")):
        assert main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert word in out
        assert "evaluate" in out
