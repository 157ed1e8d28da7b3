"""Live progress: trials done, running, stopped and why, the best feasible one, constraint checks paid and saved."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairway.engine.owner import Owner
from fairway.text import shown

_PLAIN_SECONDS = 5.0  # between lines where nobody watches live
_SHOWN = 16  # running trials, at most


@contextmanager
def show(owner: Owner, trials: int | None, wanted: bool | None) -> Iterator[None]:
    """Show progress inside the block: a few live lines in a terminal, a plain line every few seconds elsewhere.

    `trials` is how many this run will make; `wanted` None: only in a terminal.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if wanted is False or sys.stderr is None or (wanted is None and not terminal):
        yield
        return
    begun, before = time.monotonic(), _finished(owner)

    def lines() -> list[str]:
        return [shown(line) for line in describe(owner, trials, time.monotonic() - begun, before=before)]

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


def _finished(owner: Owner) -> int:
    return sum(owner.counts.values()) - owner.counts["running"]


def describe(owner: Owner, trials: int | None, seconds: float, *, before: int = 0) -> list[str]:
    """Where a run stands: how many trials; the best one and the checks; the last verdict, stop, failure; what runs."""
    counts, referee, ledger = owner.counts, owner.referee, owner.ledger
    done = _finished(owner) - before
    tally = [f"{done}{'' if trials is None else f'/{trials}'} trial{'s' * (done != 1)} in {seconds:.0f} s"]
    tally += [f"{before} earlier"] if before else []
    tally += [
        f"{counts[status]} {status}" for status in ("running", "completed", "stopped", "failed") if counts[status]
    ]
    tally.append(f"seed {owner.seed}")
    best = owner.best
    if best is None:
        state = ["nothing feasible yet" if owner.problem.constraints else "nothing measured yet"]
    else:
        state = ["best " + ", ".join(f"{name} {value:.4g}" for name, value in best.metrics.items())]
    if owner.problem.constraints:
        state.append(f"checks {sum(referee.checks):,} paid, {sum(referee.saved):,} saved")
    lines = [", ".join(tally), "; ".join(state)]
    lines += [f"last verdict: {ledger.verdicts[-1].reason}"] if ledger.verdicts else []
    lines += [f"last stop: {ledger.last_stop}"] if ledger.last_stop else []
    lines += [f"last failure: {ledger.last_failure}"] if ledger.last_failure else []
    return lines + _describe_running(owner)


def _describe_running(owner: Owner) -> list[str]:
    """Where each running trial stands, if there are several."""
    with owner.lock:
        running = sorted(owner.ledger.running.items())
    if len(running) < 2:  # noqa: PLR2004 - one is no crowd
        return []
    lines = []
    for number, course in running[:_SHOWN]:
        parts = [f"step {course.last_step}" + ("" if course.total is None else f"/{course.total}")]
        if course.checkpoint is not None:
            metrics = zip(owner.problem.metrics, (course.checkpoint.objective, *course.checkpoint.values), strict=True)
            parts += [f"{name} {value:.4g}" for name, value in metrics if value is not None]
        lines.append(f"  trial {number}: {', '.join(parts) if course.last_step else 'begins'}")
    more = len(running) - len(lines)
    return lines + ([f"  and {more} more"] if more else [])
