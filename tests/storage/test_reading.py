"""Files that one may only read, in folders that one may not write to.

The tests may run as root, who may write anywhere. So the readers run in a user namespace in which nobody is mapped:
root outside, without root's powers inside, so that the permissions of files hold for it as for anybody else.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import fairway as fw
from tests.conftest import SPACE, run_curves

OLDER = Path(__file__).parent / "older"
CURVES = [[(0.1, {"eod": 0.1}), (0.5, {"eod": 0.2})]] * 3

READER = """
import json, os, sys, tempfile
from fairway.cli import main

file, name = sys.argv[1:]
if os.access(os.path.dirname(file), os.W_OK) or os.access(file, os.W_OK):
    sys.exit("it may write")
url, codes = f"sqlite:///{file}", {}
with tempfile.TemporaryDirectory() as mine:
    for command in (["list"], ["show", name], ["verify", name], ["export", name, "-o", f"{mine}/t.csv"],
                    ["report", name, "-o", f"{mine}/r.html"]):
        codes[command[0]] = main([command[0], url, *command[1:]])
from starlette.testclient import TestClient
from fairway.report import dashboard
page = TestClient(dashboard.app(url), base_url="http://127.0.0.1:8321").get(f"/trials.json?name={name}")
codes["dashboard"] = page.status_code
print(json.dumps([codes, page.text]))
"""

WRITER = """
import os, signal, sys
import fairway as fw
study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=sys.argv[1], seed=0)
study.tell(study.ask(), auc=0.5, eod=0.1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def namespace():
    if os.geteuid():
        return []
    without_power = [shutil.which("unshare") or "unshare", "--user"]
    if subprocess.run([*without_power, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody give up root's powers")
    return without_power


def read(file, name):
    """What a reader without rights gets: an exit code for each command, and the lines it printed."""
    folder = file.parent
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    try:
        run = [*namespace(), sys.executable, "-c", READER, str(file), name]
        done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == before
    finally:
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    codes, page = json.loads(last)
    return codes, lines, page, done.stderr


ALL_FINE = {"list": 0, "show": 0, "verify": 0, "export": 0, "report": 0, "dashboard": 200}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder


def test_a_study_is_read_without_the_right_to_write(folder):
    file = folder / "study.db"
    script = "import sys; from tests.storage.test_reading import write; write(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, f"sqlite:///{file}"], check=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert [each.name for each in folder.iterdir()] == ["study.db"]
    codes, lines, page, _ = read(file, "study")
    assert codes == ALL_FINE
    assert "3 trials: 3 completed" in lines
    assert len(json.loads(page)["rows"]) == 3


def write(url):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url, seed=0)
    run_curves(study, CURVES)


def test_what_a_killed_writer_left_beside_the_file_is_read_too(folder):
    file = folder / "study.db"
    subprocess.run([sys.executable, "-c", WRITER, f"sqlite:///{file}"], check=False)
    assert (folder / "study.db-wal").stat().st_size
    codes, lines, _, _ = read(file, "study")
    assert codes == ALL_FINE
    assert "1 trial: 1 completed" in lines


def test_an_older_schema_is_read_as_it_is(folder):
    shutil.copy(OLDER / "workers.db", folder)
    codes, lines, _, _ = read(folder / "workers.db", "pilot")
    assert codes == ALL_FINE
    assert "552 decisions replayed: all agree" in lines
    assert "its events have no checksums yet: damage shows only where it makes no sense" in lines


def test_a_write_ahead_log_that_cannot_be_read_there_gets_a_sentence(folder):
    file = folder / "study.db"
    subprocess.run([sys.executable, "-c", WRITER, f"sqlite:///{file}"], check=False)
    (folder / "study.db-shm").unlink()
    file.chmod(0o444)
    folder.chmod(0o555)
    command = [*namespace(), sys.executable, "-m", "fairway.cli", "show", f"sqlite:///{file}", "study"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    folder.chmod(0o755)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "what was written last is in study.db-wal" in done.stderr


def test_reading_migrates_nothing(tmp_path):
    file = shutil.copy(OLDER / "folds.db", tmp_path)
    before = Path(file).read_bytes()
    from fairway.report.view import View

    view = View.read(f"sqlite:///{file}", "folds")
    assert view.curves([0])[0].step.tolist()
    assert Path(file).read_bytes() == before
