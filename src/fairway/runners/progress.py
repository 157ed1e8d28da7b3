"""Live progress: trials done, running, stopped and why, the best feasible one, constraint checks paid and saved."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairway.study import Study

_PLAIN_SECONDS = 5.0  # between lines where nobody watches live


@contextmanager
def show(study: Study, goal: int | None, wanted: bool | None) -> Iterator[None]:
    """Show progress inside the block: a few live lines in a terminal, a plain line every few seconds elsewhere.

    `goal` is how many trials there will be; `wanted` None: only in a terminal.
    """
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        yield
        return
    begun = time.monotonic()
    if terminal:
        from rich.console import Console  # noqa: PLC0415 - only where something is shown
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        def picture() -> Text:
            lines = "\n".join(describe(study, goal, time.monotonic() - begun))
            return Text(lines, no_wrap=True, overflow="ellipsis")

        with Live(console=Console(stderr=True), get_renderable=picture, refresh_per_second=8):
            yield
        return
    done = threading.Event()
    printer = threading.Thread(target=_print_lines, args=(study, goal, begun, done), daemon=True)
    printer.start()
    try:
        yield
    finally:
        done.set()
        printer.join()


def _print_lines(study: Study, goal: int | None, begun: float, done: threading.Event) -> None:
    over = False
    while not over:
        over = done.wait(_PLAIN_SECONDS)
        sys.stderr.write(" | ".join(describe(study, goal, time.monotonic() - begun)[:2]) + "\n")
        sys.stderr.flush()


def describe(study: Study, goal: int | None, seconds: float) -> list[str]:
    """Where a study stands: how many trials; the best one and the checks; the last stop."""
    counts, referee = study.counts, study._referee
    finished = counts["completed"] + counts["stopped"] + counts["failed"]
    of = "" if goal is None else f"/{goal}"
    tally = [f"{finished}{of} trials in {seconds:.0f} s"]
    tally += [
        f"{counts[status]} {status}" for status in ("running", "completed", "stopped", "failed") if counts[status]
    ]
    best = study.best
    if best is None:
        state = ["nothing feasible yet" if study.problem.constraints else "nothing measured yet"]
    else:
        state = ["best " + ", ".join(f"{name} {value:.4g}" for name, value in best.metrics.items())]
    if study.problem.constraints:
        state.append(f"checks {sum(referee.checks):,} paid, {sum(referee.saved):,} saved")
    state.append(f"seed {study.seed}")
    return [", ".join(tally), "; ".join(state)] + ([f"last stop: {study.last_stop}"] if study.last_stop else [])
