"""Runs every speed benchmark and keeps what it printed: `make bench`."""

from __future__ import annotations

import contextlib
import io
import platform
from pathlib import Path

import numpy as np

import fairway as fw
from bench.speed import parallel, report, samplers, storage, terminators

if __name__ == "__main__":
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        report.main()
        storage.main()
        parallel.main()
        samplers.main()
        terminators.main()
    versions = f"fairway {fw.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    text = f"{versions}\n\n{printed.getvalue()}"
    print(text)
    results = Path("bench/results")
    results.mkdir(parents=True, exist_ok=True)
    (results / "speed.txt").write_text(text)
