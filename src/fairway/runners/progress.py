"""Live progress: trials done, running, stopped and why, the best feasible one, checks paid and saved."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairway.engine.owner import Owner
from fairway.engine.record import named_errors
from fairway.text import measured, shown

_PLAIN_SECONDS = 5.0  # between plain lines
_SHOWN = 16  # running trials, at most


@contextmanager
def show(
    owner: Owner, trials: int | None, wanted: bool | None, *, waits: Callable[[], Sequence[str]] = tuple
) -> Iterator[None]:
    """Show progress during the block: live lines in a terminal, a plain line every few seconds elsewhere.

    `trials` is the number that this run will make; `wanted=None` means only in a terminal. `waits` says what it waits
    for past the time.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if wanted is False or sys.stderr is None or (wanted is None and not terminal):
        yield
        return
    begun, before = time.monotonic(), _finished(owner)

    def lines(most: int | None = None) -> list[str]:
        told = describe(owner, trials, time.monotonic() - begun, before=before)[:most]
        return [shown(line) for line in (*told, *waits())]

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

    def print_lines() -> None:
        over = False
        while not over:
            over = done.wait(_PLAIN_SECONDS)
            sys.stderr.write(" | ".join(lines(2)) + "\n")
            sys.stderr.flush()

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield
    finally:
        done.set()
        printer.join()


def _finished(owner: Owner) -> int:
    return sum(owner.counts.values()) - owner.counts["running"]


def describe(owner: Owner, trials: int | None, seconds: float, *, before: int = 0) -> list[str]:
    """How far a run is: its trials; the best one and the checks; the last verdict, stop and failure; what runs."""
    counts, referee, ledger, best = owner.counts, owner.referee, owner.ledger, owner.best
    done = _finished(owner) - before
    tally = [f"{done}{'' if trials is None else f'/{trials}'} trial{'s' * (done != 1)} in {seconds:.0f} s"]
    tally += [f"{before} earlier"] if before else []
    tally += [f"{counts[each]} {each}" for each in ("running", "completed", "stopped", "failed") if counts[each]]
    state = ["nothing feasible yet" if owner.problem.constraints else "nothing measured yet"]
    if best is not None:
        state = [f"best {measured(best.metrics.keys(), best.metrics.values(), best.errors)}"]
    if owner.problem.constraints:
        state.append(f"checks {sum(referee.checks):,} paid, {sum(referee.saved):,} saved")
    lines = [", ".join([*tally, f"seed {owner.seed}"]), "; ".join(state)]
    verdict = ledger.verdicts[-1].reason if ledger.verdicts else ""
    last = {"verdict": verdict, "stop": ledger.last_stop, "failure": ledger.last_failure}
    return [*lines, *(f"last {what}: {why}" for what, why in last.items() if why), *_describe_running(owner)]


def _describe_running(owner: Owner) -> list[str]:
    """How far each running trial is, if there are several."""
    with owner.lock:
        running = sorted(owner.ledger.running.items())
    if len(running) < 2:  # noqa: PLR2004 - one is no crowd
        return []
    lines = []
    for number, course in running[:_SHOWN]:
        parts = [f"step {course.last_step}" + ("" if course.total is None else f"/{course.total}")]
        if course.checkpoint is not None:
            values, errors = course.checkpoint.values, named_errors(owner.problem, course.checkpoint)
            parts.append(measured(owner.problem.metrics, (course.checkpoint.objective, *values), errors))
        lines.append(f"  trial {number}: {', '.join(parts) if course.last_step else 'begins'}")
    more = len(running) - len(lines)
    return lines + ([f"  and {more} more"] if more else [])
