from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr  # where only progress is told
    return done.stdout


def test_a_search_that_ends_by_itself_says_what_going_on_would_have_gained():
    out = run("ends_by_itself.py", "--trials", "38", "--workers", "1").splitlines()
    assert re.match(r"Ended after \d+ of 38 trials: regret bound [\d.e-]+ < [\d.]+, the noise of 10-fold", out[0])
    assert out[1].startswith("Best within the limit on the folds: loss 0.")
    assert re.match(r"The full 38 trials take \d\.\d times as long and gain -?[\d.]+; the noise", out[2])


def test_a_small_and_fast_forest_is_found_and_weighed():
    out = run("small_digits.py", "--trials", "12", "--ms", "50").splitlines()
    default, best, limits = (re.findall(r"[\d.]+", line) for line in out[1:4])
    assert float(default[2]) > 1000  # kB
    assert float(best[1]) <= float(limits[0]) == 150
    assert float(best[0]) > 0.8
    assert re.search(r"12 trials, \d+ stopped early; \d+ checks took", out[-1])


def test_a_cross_validated_search_ends_and_says_why():
    out = run("cross_validated_forest.py", "--trials", "8", "--workers", "1").splitlines()
    assert out[0] == "Ended after 8 of 8 configurations: the study has 8 trials."
    assert re.match(r"\d+ of 80 folds were run", out[1])
    assert float(re.search(r"accuracy ([\d.]+), (\d+) nodes", out[2])[1]) > 0.5
    assert int(re.search(r"(\d+) nodes", out[2])[1]) <= 3000


def test_the_same_seconds_under_each_rule_are_compared_and_drawn(tmp_path):
    picture = tmp_path / "rules.svg"
    out = run("which_stopper.py", "--seeds", "2", "--seconds", "1", "--picture", str(picture)).splitlines()
    rows = [re.match(r"(\w+(?: \w+)?) +(0\.8\d+) ± 0\.\d+ +(\d+) +(\d+)$", line) for line in out[2:8]]
    trials = {row[1]: int(row[3]) for row in rows}
    assert list(trials) == ["Never", "ASHA", "ASHA strata", "ACE", "ACE hard", "Pilot"]
    assert trials["Never"] < trials["ACE"] < trials["ASHA"]
    assert picture.read_text().count("<svg") == 1
