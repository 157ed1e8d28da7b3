"""A large study, 10,000 trials of 100 reports in SQLite: its pictures, its report, its live page in a browser.

    python -m bench.speed.report_page [--trials 10000] [--keep study.db]

The study is made once, in bench/out, and goes on where making it was cut off. The last lines need chromium.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairway as fw
from fairway.report import page, plots
from fairway.report.view import View

REPORTS = 100
NAME = "large"


def make(url: str, trials: int) -> None:
    """A study of several parameters, none of whose trials is stopped."""
    space = {
        "rate": fw.Float(1e-4, 1.0, log=True),
        "depth": fw.Int(1, 12),
        "booster": fw.Choice(["gbdt", "dart", "goss"]),
        "drop": fw.Float(0.0, 0.5, when={"booster": "dart"}),
        **{f"other {k}": fw.Float(0.0, 1.0) for k in range(6)},
    }
    study = fw.Study(
        space,
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.25)],
        sampler=fw.Random(),
        stopper=fw.ACE(truncation=1e-6, skip=False, interval=1),
        storage=url,
        name=NAME,
        seed=0,
    )

    def train(trial: fw.Trial) -> None:
        params = trial.params
        depth, other = params["depth"], params["other 0"]
        assert isinstance(depth, int)
        assert isinstance(other, float)
        for step in trial.steps(REPORTS):
            rise = step / (step + depth)
            trial.report(auc=0.5 + 0.4 * rise * other, eod=lambda: 0.05 * other * depth)

    missing = trials - len(study.trials)
    if missing > 0:
        study.optimize(train, trials=missing, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="where the study is, or is put")
    options = parser.parse_args()
    path = options.keep or Path("bench/out") / f"report_page-{options.trials}.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{path}"
    make(url, options.trials)
    began = time.perf_counter()
    view = View.read(url, NAME)
    read = time.perf_counter() - began
    print(f"{len(view.courses):,} trials of {REPORTS} reports, {path.stat().st_size / 1e6:.0f} MB in SQLite")
    print(f"  read without reports   {read:6.2f} s")
    makers = (plots.best, plots.limits, plots.trade_off, plots.curves, plots.spending, plots.intervals, plots.slices)
    for make_chart in (*makers, plots.parallel, plots.importance):
        began = time.perf_counter()
        chart = make_chart(view)
        text = json.dumps(chart.plotly(), allow_nan=False)
        print(f"  {chart.name:22} {time.perf_counter() - began:6.2f} s  {len(text) / 1e6:6.2f} MB")
    began = time.perf_counter()
    text = json.dumps([chart.plotly() for chart in plots.drawn(view)], allow_nan=False)
    print(f"  all, as JSON           {time.perf_counter() - began:6.2f} s  {len(text) / 1e6:6.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        size = page.write(view, Path(folder) / "report.html")
        print(f"the report               {time.perf_counter() - began:6.2f} s  {size / 1e6:6.2f} MB")
    live(url)


def live(url: str) -> None:
    """The live page of the study, each time from a server that has just begun."""
    with serving(url) as (address, process):
        for when in ("first byte, cold", "first byte, warm"):
            began = time.perf_counter()
            with urllib.request.urlopen(f"{address}study?name={NAME}") as answer:  # noqa: S310 - our own server
                answer.read(1)
            print(f"  {when:22} {time.perf_counter() - began:6.2f} s")
        print(f"  its server's peak      {_peak_mb(process):6.0f} MB")
    with serving(url) as (address, process):
        for name, seconds in in_browser(f"{address}study?name={NAME}").items():
            print(f"  {name:22} {seconds:6.2f} s")
        print(f"  its server's peak      {_peak_mb(process):6.0f} MB")


@contextmanager
def serving(url: str) -> Iterator[tuple[str, int]]:
    """A live page in a process of its own: its address and its process."""
    command = [sys.executable, "-m", "fairway.cli", "dashboard", url, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        assert server.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        try:
            yield json.loads(text)["address"], server.pid
        finally:
            server.terminate()


def in_browser(address: str) -> dict[str, float]:
    """Seconds until a browser has painted, lists trials and has drawn a picture; and those of a slider's move."""
    from tests.browser.browser import is_there, open_browser  # noqa: PLC0415 - selenium is for tests

    if not is_there():
        print("  no chromium: make test-browser installs it")
        return {}
    looks = {
        "first paint": "performance.getEntriesByName('first-contentful-paint')[0]?.startTime",
        "trials listed": "document.querySelector('.trials tbody tr') && performance.now()",
        "a picture drawn": "document.querySelector('.cartesianlayer .trace path') && performance.now()",
    }
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as profile, open_browser(Path(profile)) as browser:
        browser.set_script_timeout(120)
        browser.get(address)
        browser.execute_script("document.getElementById('charts-title').scrollIntoView()")
        patience = time.monotonic() + 60
        while time.monotonic() < patience and len(found) < len(looks):
            seen = {name: browser.execute_script(f"return {look}") for name, look in looks.items() if name not in found}
            found |= {name: milliseconds / 1000 for name, milliseconds in seen.items() if milliseconds}
        moves = [milliseconds / 1000 for milliseconds in browser.execute_async_script(_MOVES)]
    found = {name: found[name] for name in looks if name in found}
    return found | {"a move of the limit": statistics.median(moves), "the slowest of 40": max(moves)}


_MOVES = """
const done = arguments[0], took = [];
(async () => {
  while (!document.querySelector('[data-chart=trade_off] svg.main-svg')) {
    document.querySelector('[data-chart=trade_off]')?.scrollIntoView();
    await new Promise((next) => setTimeout(next, 100));
  }
  document.querySelector('[data-chart=trade_off]').scrollIntoView();
  const slider = document.querySelector('[data-chart=trade_off] input');
  for (let i = 0; i < 40; i++) {
    const began = performance.now();
    slider.value = String((i * 377) % 1000);
    slider.dispatchEvent(new Event('input'));
    await new Promise((next) => requestAnimationFrame(() => setTimeout(next, 0)));
    took.push(performance.now() - began);
  }
  done(took);
})();
"""
"""Moves a slider 40 times, each until the next frame is painted."""


def _peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
