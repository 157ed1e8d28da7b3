"""A live line while a study runs: trials done, running and stopped, the best feasible one, checks paid and saved."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairway.study import Study


@contextmanager
def show(study: Study, trials: int | None, wanted: bool | None) -> Iterator[None]:
    """Show progress inside the block: a live line in a terminal, a plain line every few seconds elsewhere.

    `wanted` None: only in a terminal.
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

        with Live(
            console=Console(stderr=True),
            get_renderable=lambda: Text(describe(study, trials, time.monotonic() - begun)),
            refresh_per_second=8,
        ):
            yield
    else:
        done = threading.Event()
        printer = threading.Thread(target=_print_lines, args=(study, trials, begun, done), daemon=True)
        printer.start()
        try:
            yield
        finally:
            done.set()
            printer.join()
            sys.stderr.write(describe(study, trials, time.monotonic() - begun) + "\n")


def _print_lines(study: Study, trials: int | None, begun: float, done: threading.Event) -> None:
    while not done.wait(5.0):
        sys.stderr.write(describe(study, trials, time.monotonic() - begun) + "\n")
        sys.stderr.flush()


def describe(study: Study, trials: int | None, seconds: float) -> str:
    """One line on where a study stands."""
    counts, referee = study.counts, study._referee
    finished = counts["completed"] + counts["stopped"] + counts["failed"]
    goal = "" if trials is None else f"/{trials}"
    parts = [f"{finished}{goal} trials in {seconds:.0f} s"]
    parts += [f"{counts[status]} {status}" for status in ("running", "stopped", "failed") if counts[status]]
    best = study.best
    if best is None:
        parts.append("nothing feasible yet" if study.problem.constraints else "nothing measured yet")
    else:
        parts.append("best " + ", ".join(f"{name} {value:.4g}" for name, value in best.metrics.items()))
    if study.problem.constraints:
        parts.append(f"checks {sum(referee.checks):,} paid, {sum(referee.saved):,} saved")
    return " | ".join(parts)
