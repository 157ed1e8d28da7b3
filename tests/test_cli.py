from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

import fairway as fw
from fairway.cli import main
from fairway.engine.events import Reported
from fairway.storage.sql import Database
from fairway.text import measured
from tests.conftest import SPACE, run_curves

CURVES = [[(auc / 10, {"eod": auc / 30}) for auc in (1, 5, 9)], [(0.4, {"eod": 0.1})] * 3]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'studies.db'}"


@pytest.fixture
def study(url):
    study = fw.Study(
        SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], stopper=fw.ACE(interval=1), storage=url, seed=0
    )
    run_curves(study, CURVES)
    study.tell(study.ask(), failed="out of memory")
    return study


def test_list_names_the_studies(url, study, capsys):
    assert main(["list", url]) == 0
    headings, line = capsys.readouterr().out.splitlines()
    assert headings.split() == ["study", "created", "trials", "best", "state"]
    best = measured(study.best.metrics.keys(), study.best.metrics.values())
    assert line.startswith("study  ")
    assert line.endswith(f"  {len(study.trials)}       {best}  running")
    assert main(["list", url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["events"]) == ("study", len(study.log.read()))
    assert (row["trials"], row["best"], row["state"]) == (len(study.trials), best, "running")


def test_list_shows_the_other_studies_beside_one_that_cannot_be_read(url, study, capsys):
    Database(url).log("another")  # made, and never opened
    assert main(["list", url]) == 1
    _, another, one, why = capsys.readouterr().out.splitlines()
    assert another.endswith("cannot be read")
    assert one.startswith("study ")
    assert why == "another cannot be read: the study 'another' is empty: nobody has opened it yet"


COMMANDS = ["show", "verify", "what-if", "export -o trials.csv", "repair -o repaired.db"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_study_that_is_the_only_one_needs_no_name(url, study, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    name, *options = command.split()
    assert main([name, url, *options]) == 0
    fw.Study(SPACE, fw.Maximize("auc"), storage=url, name="credit")
    assert main([name, url, *options]) == 2


def test_with_several_studies_the_sentence_lists_them(url, study, capsys):
    fw.Study(SPACE, fw.Maximize("auc"), storage=url, name="credit")
    assert main(["show", url]) == 2
    assert capsys.readouterr().err.endswith("has 2 studies: say which one, of 'credit', 'study'\n")
    with pytest.raises(fw.UsageError, match="has 2 studies: say which one"):
        fw.load_study(url)


def test_limits_may_follow_the_address_of_the_only_study(url, study, capsys):
    assert main(["what-if", url, "eod=0.4"]) == 0
    assert "eod <= 0.4" in capsys.readouterr().out
    assert main(["set-limit", url, "eod=0.3"]) == 0
    assert fw.load_study(url).problem.constraints[0].threshold == 0.3
    fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url, name="eod=0.2")
    assert main(["set-limit", url, "eod=0.2", "eod=0.1"]) == 0
    assert fw.load_study(url, "eod=0.2").problem.constraints[0].threshold == 0.1


def test_delete_insists_on_a_name(url, study):
    with pytest.raises(SystemExit):
        main(["delete", url, "--yes"])
    assert fw.load_study(url).name == "study"


def test_list_of_an_empty_database_says_so(url, capsys):
    Database(url)
    assert main(["list", url]) == 0
    assert capsys.readouterr().out == "no studies\n"


def test_a_database_that_is_not_there_is_not_made(url, tmp_path, capsys):
    for command in (["list", url], ["show", url, "study"], ["verify", url, "study"], ["delete", url, "study"]):
        assert main(command) == 2
        assert "there is no such file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_if_says_which_model_would_be_best_under_another_limit(url, study, capsys):
    assert main(["what-if", url, "study", "eod=0.4"]) == 0
    assert capsys.readouterr().out == (
        "With eod <= 0.4 the best is trial 0, step 3: auc 0.9, eod 0.3. That is 0.4 better than the study's\n"
        f"best.\nparameters: x {study.trials[0].params['x']:.4g}\n"
    )
    assert main(["what-if", url, "study", "eod=none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["limits"], found["best"]["metrics"], found["best_now"]["step"]) == ({}, {"auc": 0.9, "eod": 0.3}, 2)
    assert (found["checkpoints"], found["unknown"], found["unknown_best"]) == (6, 0, None)
    assert main(["what-if", url, "study", "eod=0.01"]) == 1
    assert "no checkpoint is known to be feasible" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("ms=3", "what_if: the study has no limit on 'ms'; it limits 'eod'"),
        ("eod=little", "'eod=little': a metric and its limit are expected, such as eod=0.12, or eod=none for no limit"),
        ("eod=nan", "'eod=nan': a metric and its limit are expected, such as eod=0.12, or eod=none for no limit"),
        ("0.12", "'0.12': a metric and its limit are expected, such as eod=0.12, or eod=none for no limit"),
    ],
)
def test_what_if_of_a_limit_that_makes_no_sense_is_one_sentence(url, study, capsys, limit, sentence):
    assert main(["what-if", url, "study", limit]) == 2
    assert capsys.readouterr().err == f"fairway: {sentence}\n"


def test_show_tells_goal_limits_best_and_last_trials(url, study, capsys):
    assert main(["show", url, "study"]) == 0
    out = capsys.readouterr().out
    assert "maximize auc with eod <= 0.25, seed 0" in out
    assert "3 trials: 2 completed, 1 failed" in out
    assert f"best: trial {study.best.number}, step {study.best.step}: auc 0.5, eod 0.1667" in out
    assert "out of memory" in out


def test_show_as_json_holds_what_the_study_knows(url, study, capsys):
    assert main(["show", url, "study", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["best"]["metrics"] == dict(study.best.metrics)
    assert [trial["steps"] for trial in shown["trials"]] == [record.steps for record in study.trials]
    assert [trial["training_seconds"] for trial in shown["trials"]] == [one.training_seconds for one in study.trials]
    assert shown["counts"] == study.counts


def test_show_of_one_trial_names_the_line_of_the_users_code_that_raised(url, study, capsys):
    def broken(trial):
        raise ValueError("no such solver")

    study.optimize(broken, trials=1, progress=False)
    number = len(study.trials) - 1
    assert main(["show", url, study.name, "--trial", str(number)]) == 0
    out = capsys.readouterr().out
    line = broken.__code__.co_firstlineno + 1
    assert f"trial {number}: failed: ValueError: no such solver\n" in out
    assert f"{__file__}, line {line}, in broken: raise ValueError" in out
    assert main(["show", url, study.name, "--trial", "0"]) == 0
    assert "trial 0: completed" in capsys.readouterr().out
    assert main(["show", url, study.name, "--trial", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["number"] == 0
    assert main(["show", url, study.name, "--trial", "999"]) == 2
    assert f"has no trial 999; its trials are 0 to {number}" in capsys.readouterr().err


def test_show_names_a_better_step_that_was_not_checked(url, capsys):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url, seed=0)
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    trial.report(auc=0.8)
    study.tell(trial)
    study.tell(study.ask(), auc=0.4, eod=0.1)
    assert main(["show", url]) == 0
    out = capsys.readouterr().out
    assert "best: trial 0, step 1: auc 0.5, eod 0.1\n" in out
    assert "\n      not checked: auc 0.8 at step 2, where eod was not measured\n" in out
    assert "auc 0.5, eod 0.1 *\n" in out
    assert "auc 0.4, eod 0.1\n" in out
    assert out.endswith("\n* a better step was not checked: --trial N says which\n")
    assert main(["show", url, "--trial", "0"]) == 0
    assert "\nnot checked: auc 0.8 at step 2, where eod was not measured\n" in capsys.readouterr().out
    assert main(["show", url, "--trial", "1"]) == 0
    assert "not checked" not in capsys.readouterr().out


def test_show_of_a_study_whose_process_was_killed_says_that_nobody_works_on_it(url, capsys):
    script = f"""
import os, signal
import fairway as fw
study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Maximize("auc"), storage={url!r}, seed=0)
study.ask()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert main(["show", url]) == 0
    said = "Nobody works on the study now, and 1 trial did not end; run it again and it resumes."
    assert said in capsys.readouterr().out.splitlines()


def test_show_of_a_study_without_a_feasible_trial(url, capsys):
    study = fw.Study(SPACE, fw.Minimize("loss"), [fw.AtLeast("recall", 0.5)], storage=url, seed=0)
    study.tell(study.ask(), loss=1.0, recall=0.1)
    assert main(["show", url, "study"]) == 0
    assert "No model within the limit was found" in capsys.readouterr().out


def test_verify_agrees_with_an_honest_log_and_not_with_another(url, study, capsys):
    assert main(["verify", url, "study"]) == 0
    assert "all agree" in capsys.readouterr().out
    forged = [replace(event, interval=2) if isinstance(event, Reported) else event for event in study.log.read()]
    Database(url).log("forged").append(forged)
    assert main(["verify", url, "forged"]) == 1
    assert "has interval 2 of 3 steps, which should be 1 of 3" in capsys.readouterr().out
    assert main(["verify", url, "forged", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["faults"]


def test_verify_of_a_study_without_events_says_so(url, capsys):
    Database(url).log("empty")
    assert main(["verify", url, "empty"]) == 1
    assert capsys.readouterr().out == "the study 'empty' has no events: nobody has opened it yet\n"


def test_export_writes_what_was_asked_for(url, study, tmp_path, capsys):
    for suffix in ("csv", "json", "parquet"):
        assert main(["export", url, "study", "-o", str(tmp_path / f"trials.{suffix}")]) == 0
    rows = json.loads((tmp_path / "trials.json").read_text())
    with (tmp_path / "trials.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["metric.auc"] for row in rows] == [record.metrics.get("auc") for record in study.trials]
    assert [row["status"] for row in table] == [record.status for record in study.trials]
    frame = pd.read_parquet(tmp_path / "trials.parquet")
    assert frame["status"].tolist() == [record.status for record in study.trials]
    assert frame["metric.auc"].dropna().tolist() == [record.metrics["auc"] for record in study.trials if record.metrics]
    assert main(["export", url, "study", "-o", str(tmp_path / "trials.xls")]) == 2
    assert "ends in .csv, .json or .parquet" in capsys.readouterr().err


def test_delete_asks_first(url, study, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert main(["delete", url, "study"]) == 1
    assert len(Database(url).studies()) == 1
    assert main(["delete", url, "study", "--yes"]) == 0
    assert Database(url).studies() == []


@pytest.mark.parametrize("command", [["show"], ["verify"], ["delete", "--yes"], ["export", "-o", "x.csv"]])
def test_a_study_that_is_not_there_gets_a_sentence_and_exit_code_2(url, study, capsys, command):
    assert main([command[0], url, "other", *command[1:]]) == 2
    assert "has no study 'other'; it has 'study'" in capsys.readouterr().err


def test_a_database_that_is_broken_gets_a_sentence(tmp_path, capsys):
    (tmp_path / "broken.db").write_bytes(b"no database at all, only this text" * 20)
    assert main(["list", f"sqlite:///{tmp_path / 'broken.db'}"]) == 2
    err = capsys.readouterr().err
    assert "file is not a database" in err
    assert err.count("\n") == 1


def test_hostile_names_and_reasons_are_shown_as_text(url, capsys):
    name = "\x1b[31mred\x1b]0;title\x07<script>" + "x" * 10_000_000
    space = {"\x1b[2Jp": fw.Choice(["\u202eleft", "\x00"])}
    study = fw.Study(space, fw.Maximize("m\x1b[1m"), storage=url, name=name, seed=0)
    study.tell(study.ask(), failed="\x1b[5mboom\r\n" + "y" * 1_000_000)
    study.tell(study.ask(), {"m\x1b[1m": 0.5})
    for command in (["list", url], ["show", url, name], ["list", url, "--json"], ["show", url, name, "--json"]):
        assert main(command) == 0
        out = capsys.readouterr().out
        assert not any(letter in out for letter in "\x1b\x07\x00\r\u202e")
        if "--json" not in command:
            assert len(out) < 5000


def test_the_command_is_installed():
    run = subprocess.run([sys.executable, "-m", "fairway.cli", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == fw.__version__


SCRIPT = """
import fairway as fw

study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Minimize("loss"), [fw.AtMost("size", {limit})], storage={url!r},
                 name="mine", seed=0)


def helper(x):
    return x * x


def train(trial):
    for step in trial.steps(3):
        trial.report(loss=1 - helper(trial.params["x"]) + 1 / step, size=lambda: trial.params["x"])


def made():
    return study


if __name__ == "__main__":
    raise SystemExit("this is not run")
"""


@pytest.fixture
def script(tmp_path, url):
    path = tmp_path / "tuned.py"
    path.write_text(SCRIPT.format(url=url, limit=0.5))
    return path


def test_run_runs_a_study_in_a_file_and_goes_on_with_it(script, url, capsys):
    assert main(["run", str(script), "--trials", "4"]) == 0
    assert "mine: minimize loss with size <= 0.5, seed 0" in capsys.readouterr().out
    assert main(["run", f"{script}:made", "--trials", "3", "--workers", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["trials"]) == 7
    assert told["best"]["metrics"]["size"] <= 0.5


def test_run_ends_with_what_was_found_and_its_own_code_on_ctrl_c(script, url, capsys):
    script.write_text(
        script.read_text().replace(
            "    for step in", "    if trial.number == 3:\n        raise KeyboardInterrupt\n    for step in"
        )
    )
    assert main(["run", str(script), "--trials", "9"]) == 130
    said = capsys.readouterr()
    assert "4 trials: 3 completed, 1 failed" in said.out
    assert "best: trial" in said.out
    assert said.err.endswith("fairway: interrupted\n")


def test_run_says_when_nothing_is_within_the_limits(tmp_path, url, capsys):
    path = tmp_path / "tuned.py"
    path.write_text(SCRIPT.format(url=url, limit=-1.0))
    assert main(["run", str(path), "--trials", "3"]) == 1
    assert "No model within the limit was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["{script}"], "no budget was given: pass --trials N, --total N, --timeout SECONDS or --until TIME"),
        (["{script}.missing", "--trials", "1"], "there is no such file"),
        (["{script}:other", "--trials", "1"], "has no 'other'; it has study"),
        (["{script}:helper", "--trials", "1"], "is function: a fairway.Study is expected"),
        (["{script}", "--function", "absent", "--trials", "1"], "has no 'absent'; it has helper, train, made"),
        (["{script}", "--trials", "0"], "trials=0: a whole number of at least 1"),
        (["{script}", "--until", "noon"], "until='noon': a time of day such as '18:30', or a datetime, is expected"),
    ],
)
def test_what_cannot_be_run_is_said(script, capsys, more, sentence):
    code = main(["run", *(each.format(script=script) for each in more)])
    err = capsys.readouterr().err
    assert (code, sentence in err, err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found' ({path}, line 2)"),
        ("x = (", "SyntaxError: '(' was never closed (broken.py, line 2)"),
    ],
)
def test_a_script_that_breaks_is_said_with_its_line(tmp_path, monkeypatch, capsys, line, sentence):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "broken.py"
    path.write_text(f"x = 1\n{line}\n")
    assert main(["run", "broken.py", "--trials", "1"]) == 2
    said = sentence.format(path=path)
    assert capsys.readouterr().err == f"fairway: broken.py could not be loaded: {said}\n"


def test_run_with_other_limits_than_the_stored_ones_says_which(script, url, capsys):
    assert main(["run", str(script), "--trials", "4"]) == 0
    script.write_text(SCRIPT.format(url=url, limit=0.3))
    capsys.readouterr()
    assert main(["run", str(script), "--trials", "1"]) == 2
    err = capsys.readouterr().err
    assert "has other constraints: size threshold 0.5 there, 0.3 here; write here what holds there" in err
    assert "call study.set_limit(size=0.3), or give this one another name" in err
    assert f"({script}, line 4)" in err


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser prints here")
def test_a_report_that_ends_in_pdf_is_a_pdf_with_its_pictures(url, study, tmp_path, capsys):
    path = tmp_path / "report.pdf"
    assert main(["report", url, study.name, "-o", str(path)]) == 0
    content = path.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.count(b"/Type /Page\n") >= 2
    assert len(content) > 30_000


def test_a_report_of_another_kind_is_refused(url, study, tmp_path, capsys, monkeypatch):
    assert main(["report", url, study.name, "-o", str(tmp_path / "report.docx")]) == 2
    assert "a name that ends in .html or .pdf is expected" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no browser
    assert main(["report", url, study.name, "-o", str(tmp_path / "report.pdf")]) == 2
    assert "install one (apt install chromium), or write .html" in capsys.readouterr().err
    assert not [*tmp_path.glob("report.*")]


def test_version_names_what_is_installed(capsys):
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fairway"] == fw.__version__
    assert main(["version"]) == 0
    assert "numpy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["sh"], ["show"]),
        (["show", "--tr"], ["--trials", "--trial"]),
        (["completion", "z"], ["zsh"]),
        (["verify", "--"], ["--help", "--json"]),
    ],
)
def test_bash_completes_commands_and_options(capsys, typed, completed):
    assert main(["completion", "bash"]) == 0
    words = " ".join(f"'{word}'" for word in ("fairway", *typed))
    code = f"{capsys.readouterr().out}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}; _fairway; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == completed


def test_set_limit_changes_the_limits_of_a_study_and_says_what_is_best_now(url, capsys):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], storage=url, seed=0)
    study.tell(study.ask(), auc=0.5, eod=0.2)
    assert main(["set-limit", url, "study", "eod=0.25"]) == 0
    assert capsys.readouterr().out == "eod <= 0.25 (was <= 0.1)\nbest: trial 0, step 1\n"
    assert main(["set-limit", url, "study", "eod=none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == ["eod without a limit (was ≤ 0.25)"]
    assert main(["show", url, "study"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("study: maximize auc, seed 0\n")
    assert ": eod <= 0.25 (was <= 0.1)\n" in shown
    assert main(["verify", url, "study"]) == 0


@pytest.mark.parametrize("given", ["eod", "eod=low", "=", "ms=1"])
def test_set_limit_refuses_what_is_no_limit_in_one_sentence(url, capsys, given):
    fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], storage=url, seed=0)
    assert main(["set-limit", url, "study", given]) == 2
    err = capsys.readouterr().err
    assert "such as eod=0.12" in err or "the study has no limit on 'ms'" in err


def test_the_path_of_a_file_will_do_for_its_address(url, study, capsys):
    path = url.removeprefix("sqlite:///")
    assert main(["list", path]) == 0
    assert study.name in capsys.readouterr().out
    for command in ("list", "show", "verify"):
        assert main([command, f"{path}.gone"]) == 2
        assert ".gone: there is no such file" in capsys.readouterr().err
