"""Comparisons of our own on public tables, under the roof: `bench.practitioner` and `bench.search_cv` as they stand.

They measure CPU seconds of processes that they start themselves, and keep their runs themselves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.reproduction import Given, Need, Reproduction, Result

TABLES = Need(
    "the public tables (uci_credit_card/ and fairness_tabular/)",
    "FAIRWAY_DATA",
    holds=("uci_credit_card", "fairness_tabular"),
)


def _as_it_stands(module: str) -> Callable[[Given], Result]:
    def make(given: Given) -> Result:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            options = {"--data": given.path, "--seeds": given.seeds, "--jobs": given.processes, "--out": page}
            command = [sys.executable, "-m", module, *(str(word) for pair in options.items() for word in pair)]
            if subprocess.run(command, check=False, stdout=sys.stderr).returncode:  # noqa: S603 - our own module
                raise SystemExit(f"{given.name}: {module} did not finish; the same command resumes it")
            return Result(page.read_text())

    return make


REPRODUCTIONS = (
    Reproduction(
        "practitioner",
        "LightGBM on four tables: fairway beside Optuna, FLAML and scikit-learn",
        (TABLES,),
        _as_it_stands("bench.practitioner"),
        160,
        5,
        of_paper=False,
    ),
    Reproduction(
        "search_cv",
        "ConstrainedSearchCV beside scikit-learn's own searches",
        (TABLES,),
        _as_it_stands("bench.search_cv"),
        15,
        5,
        of_paper=False,
    ),
)
