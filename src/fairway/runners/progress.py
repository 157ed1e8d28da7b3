"""Live progress: trials done, running, stopped and why, the best feasible one, constraint checks paid and saved."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairway.text import shown

if TYPE_CHECKING:
    from fairway.study import Study

_PLAIN_SECONDS = 5.0  # between lines where nobody watches live
_SHOWN = 16  # running trials, at most


@contextmanager
def show(study: Study, trials: int | None, wanted: bool | None) -> Iterator[None]:
    """Show progress inside the block: a few live lines in a terminal, a plain line every few seconds elsewhere.

    `trials` is how many this run will make; `wanted` None: only in a terminal.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if wanted is False or sys.stderr is None or (wanted is None and not terminal):
        yield
        return
    begun, before = time.monotonic(), _finished(study)

    def lines() -> list[str]:
        return [shown(line) for line in describe(study, trials, time.monotonic() - begun, before=before)]

    if terminal:
        from rich.console import Console  # noqa: PLC0415 - only where something is shown
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        def picture() -> Text:
            return Text("\n".join(lines()), no_wrap=True, overflow="ellipsis")

        with Live(console=Console(stderr=True), get_renderable=picture, refresh_per_second=8):
            yield
        return
    done = threading.Event()
    printer = threading.Thread(target=_print_lines, args=(lines, done), daemon=True)
    printer.start()
    try:
        yield
    finally:
        done.set()
        printer.join()


def _print_lines(lines: Callable[[], list[str]], done: threading.Event) -> None:
    over = False
    while not over:
        over = done.wait(_PLAIN_SECONDS)
        sys.stderr.write(" | ".join(lines()[:2]) + "\n")
        sys.stderr.flush()


def _finished(study: Study) -> int:
    return sum(study.counts.values()) - study.counts["running"]


def describe(study: Study, trials: int | None, seconds: float, *, before: int = 0) -> list[str]:
    """Where a run stands: how many trials; the best one and the checks; the last verdict, stop, failure; what runs."""
    counts, referee = study.counts, study._owner.referee
    done = _finished(study) - before
    tally = [f"{done}{'' if trials is None else f'/{trials}'} trial{'s' * (done != 1)} in {seconds:.0f} s"]
    tally += [f"{before} earlier"] if before else []
    tally += [
        f"{counts[status]} {status}" for status in ("running", "completed", "stopped", "failed") if counts[status]
    ]
    tally.append(f"seed {study.seed}")
    best = study.best
    if best is None:
        state = ["nothing feasible yet" if study.problem.constraints else "nothing measured yet"]
    else:
        state = ["best " + ", ".join(f"{name} {value:.4g}" for name, value in best.metrics.items())]
    if study.problem.constraints:
        state.append(f"checks {sum(referee.checks):,} paid, {sum(referee.saved):,} saved")
    lines = [", ".join(tally), "; ".join(state)]
    verdicts = study._owner.ledger.verdicts
    lines += [f"last verdict: {verdicts[-1].reason}"] if verdicts else []
    lines += [f"last stop: {study.last_stop}"] if study.last_stop else []
    lines += [f"last failure: {study.last_failure}"] if study.last_failure else []
    return lines + _describe_running(study)


def _describe_running(study: Study) -> list[str]:
    """Where each running trial stands, if there are several."""
    with study._owner.lock:
        running = sorted(study._owner.ledger.running.items())
    if len(running) < 2:  # noqa: PLR2004 - one is no crowd
        return []
    lines = []
    for number, course in running[:_SHOWN]:
        parts = [f"step {course.last_step}" + ("" if course.total is None else f"/{course.total}")]
        if course.checkpoint is not None:
            metrics = zip(study.problem.metrics, (course.checkpoint.objective, *course.checkpoint.values), strict=True)
            parts += [f"{name} {value:.4g}" for name, value in metrics if value is not None]
        lines.append(f"  trial {number}: {', '.join(parts) if course.last_step else 'begins'}")
    more = len(running) - len(lines)
    return lines + ([f"  and {more} more"] if more else [])
