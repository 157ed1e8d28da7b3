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
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_search_that_ends_by_itself_says_what_going_on_would_have_gained():
    out = run("ends_by_itself.py", "--trials", "45", "--workers", "1").splitlines()
    assert re.match(r"It ended after \d+ of 45 trials: regret bound [\d.e-]+ < [\d.]+, the noise of 10-fold", out[0])
    assert out[1].startswith("Best within the limit: loss 0.")
    assert re.match(r"The full 45 trials take \d\.\d times as long, and gain -?[\d.]+ where the noise", out[2])
