"""Live progress: trials done, running, stopped and why, the best feasible one, checks paid and saved.

Live lines in a terminal and in a notebook's cell; elsewhere, and in the log, a line every ten seconds and when there is
a new best. Whatever fails here, such as a closed terminal or a full disk, does not affect the run.
"""

from __future__ import annotations

import contextlib
import html
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from fairway.engine.owner import Owner
from fairway.engine.record import named_errors
from fairway.logs import logger
from fairway.runners.repeating import repeating
from fairway.runners.times import Times
from fairway.text import duration, measured, shown

_PLAIN_SECONDS = 10.0  # between plain lines, unless there is a new best
_LOOK_SECONDS = 0.5  # between looks for a new best, and between pictures in a notebook
_SHOWN = 16  # running trials, at most


class Running(Protocol):
    """The part of a run that is shown."""

    trials: int | None  # that it will make
    done: int  # trials that it has made
    times: Times

    def waits(self) -> Sequence[str]:
        """What it is waiting for past its time, a sentence each."""


@contextmanager
def show(owner: Owner, run: Running, wanted: bool) -> Iterator[None]:
    """Show the progress of a run during the block."""
    if not wanted:
        yield
        return
    begun, before = time.monotonic(), owner.ledger.ended_trials

    def lines(most: int | None = None) -> list[str]:
        seconds = time.monotonic() - begun
        told = describe(owner, run.done, run.trials, seconds, before=before, left=run.times.left)[:most]
        return [shown(line) for line in (*told, *run.waits())]

    with contextlib.ExitStack() as displays:
        printed = False
        if _is_notebook():
            displays.enter_context(_cell(lines))
        elif _is_terminal() and not _log_is_printed():
            displays.enter_context(_live_lines(lines))
        else:
            printed = True
        if printed or logger.isEnabledFor(logging.INFO):
            tell = say if printed else _log
            displays.enter_context(
                _plain_lines(lambda: tell(" | ".join(lines(2))), best=lambda: owner.referee.incumbent)
            )
        yield


def say(line: str) -> None:
    """Tell a line to the log, and print it unless the log does so already."""
    printed = _log_is_printed()
    _log(line)
    if sys.stderr is not None and not printed:
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed file
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def paced(tell: Callable[[str], None]) -> Callable[[str], None]:
    """`tell` for lines that may come fast: lines within ten seconds of the last one told are left out."""
    due = -math.inf

    def sometimes(line: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _PLAIN_SECONDS
            tell(line)

    return sometimes


def _log(line: str) -> None:
    logger.info("%s", line)


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False


def _is_notebook() -> bool:
    """Whether this runs in a notebook's kernel, whose cells can be changed later."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _log_is_printed() -> bool:
    """Whether what is logged at INFO goes to where progress would be printed."""
    if not logger.isEnabledFor(logging.INFO):
        return False
    here, place = {sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__}, logger
    while place is not None:
        for handler in place.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.level <= logging.INFO and handler.stream in here:
                return True
        place = place.parent if place.propagate else None  # type: ignore[assignment]
    return False


@contextmanager
def _live_lines(lines: Callable[[], list[str]]) -> Iterator[None]:
    """Lines in a terminal that change in place."""
    from rich.console import Console  # noqa: PLC0415 - only where something is shown
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def picture() -> Text:
        return Text("\n".join(lines()), no_wrap=True, overflow="ellipsis")

    live = Live(console=Console(stderr=True), get_renderable=picture, refresh_per_second=8)
    live.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # the terminal was closed meanwhile
            live.stop()


@contextmanager
def _cell(lines: Callable[[], list[str]]) -> Iterator[None]:
    """Lines below a notebook's cell that change in place."""
    from IPython.display import display  # noqa: PLC0415 - optional, and here it is loaded already

    def picture() -> dict[str, str]:
        text = "\n".join(lines())
        return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}

    handle = display(picture(), raw=True, display_id=True)

    def update() -> None:
        with contextlib.suppress(Exception):  # the notebook's, which may be closed
            handle.update(picture(), raw=True)

    try:
        with repeating(update, _LOOK_SECONDS, "progress"):
            yield
    finally:
        update()


@contextmanager
def _plain_lines(tell: Callable[[], None], *, best: Callable[[], Any]) -> Iterator[None]:
    """Tell a line every few seconds, when the best has changed, and at the end."""
    told, known = time.monotonic(), best()

    def look() -> None:
        nonlocal told, known
        now, found = time.monotonic(), best()
        if found is not known or now - told >= _PLAIN_SECONDS:
            told, known = now, found
            tell()

    try:
        with repeating(look, _LOOK_SECONDS, "progress"):
            yield
    finally:
        with contextlib.suppress(Exception):  # of whoever handles the log
            tell()


def describe(
    owner: Owner, done: int, trials: int | None, seconds: float, *, before: int = 0, left: float = math.inf
) -> list[str]:
    """How far a run is: its trials; the best one and the checks; the last verdict, stop and failure; what runs."""
    counts, referee, ledger, best = owner.counts, owner.referee, owner.ledger, owner.best
    tally = [f"{done}{'' if trials is None else f'/{trials}'} trial{'s' * (done != 1)} in {seconds:.0f} s"]
    tally += [f"{duration(round(left))} left"] if 1.0 <= left < math.inf else []
    tally += [f"{before} earlier"] if before else []
    tally += [f"{counts[each]} {each}" for each in ("running", "completed", "stopped", "failed") if counts[each]]
    tally += [f"{ledger.retries} of these tried again"] if ledger.retries else []
    state = ["nothing feasible yet" if owner.problem.limits else "nothing measured yet"]
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
