"""What the reproductions share: runs that are kept and taken up again, what they depend on, progress, and table cells.

A run is a job with a key that JSON can hold. What it came to is appended to a file in bench/out whose name holds a
digest of what the runs depend on, so that a command that was cut off resumes where it was, and what other code or other
data measured is not taken up.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing import Pool
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fairway as fw

OUT = Path("bench/out")
SOURCES = Path(fw.__file__).parent
Job = TypeVar("Job")
Key = TypeVar("Key", bound=Hashable)


def digest(*parts: object) -> str:
    """A short name for all that runs depend on: files by what they hold, folders by their Python files, else by repr.

    >>> digest("a") == digest("a") != digest("b")
    True
    """
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for file in sorted(part.rglob("*.py")) if part.is_dir() else [part]:
                whole.update(file.read_bytes())
        else:
            whole.update(repr(part).encode())
    return whole.hexdigest()[:12]


def space_columns(space: Mapping[str, Any]) -> dict[str, Any]:
    """How a recording says what its space is, for `np.savez`: of each parameter its name, range, scale and kind.

    >>> space_columns({"depth": fw.Int(1, 9)})
    {'low': [1], 'high': [9], 'log': [False], 'names': ['depth'], 'integer': [True]}
    """
    columns = {name: [getattr(each, name) for each in space.values()] for name in ("low", "high", "log")}
    return {**columns, "names": [*space], "integer": [isinstance(each, fw.Int) for each in space.values()]}


def simulation_sources() -> list[Path]:
    """The parts of fairway that a simulated study runs."""
    parts = ("stoppers", "samplers", "models", "engine", "runners/recording.py", "runners/run.py")
    files = ("feasibility", "history", "interval", "problem", "seeds", "simulation", "space", "study")
    return [SOURCES / part for part in (*parts, *(f"{name}.py" for name in files))]


def run_all(
    run: Callable[[Job], Any], jobs: Mapping[Key, Job], *, kept: str, processes: int, label: str
) -> dict[Key, Any]:
    """What each job comes to, by its key; those kept in bench/out/`kept`.jsonl are not run again."""
    path = OUT / f"{kept}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = dict(_read(path))
    names = {key: json.dumps(key) for key in jobs}
    todo = [key for key in jobs if names[key] not in done]
    if len(todo) < len(jobs):
        say(f"{label}: {len(jobs) - len(todo):,} of {len(jobs):,} runs are kept in {path}")
    with path.open("a") as file, progress(label, len(todo)) as advance:
        for key, result in _results(run, [(key, jobs[key]) for key in todo], processes):
            file.write(json.dumps([key, result]) + "\n")
            file.flush()
            done[names[key]] = result
            advance()
    return {key: done[names[key]] for key in jobs}


class _Keyed:
    """A job's function that hands its key back; a class, because a pool has to send it."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run = run

    def __call__(self, job: tuple[Any, Any]) -> tuple[Any, Any]:
        return job[0], self._run(job[1])


def _results(run: Callable[[Any], Any], jobs: Sequence[tuple[Any, Any]], processes: int) -> Iterator[tuple[Any, Any]]:
    if processes == 1 or len(jobs) < 2:
        yield from map(_Keyed(run), jobs)
        return
    with Pool(processes) as pool:
        yield from pool.imap_unordered(_Keyed(run), jobs)


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    if not path.is_file():
        return
    lines = path.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # it was cut off in the middle of a line
        lines.pop()
        path.write_text("".join(lines))
    for line in lines:
        key, result = json.loads(line)
        yield json.dumps(key), result


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal; a line at every tenth elsewhere."""
    console = Console(stderr=True)
    if not total:
        yield lambda: None
    elif console.is_terminal:
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(label, total=total)
            yield lambda: bar.advance(task)
    else:
        count = 0

        def advance() -> None:
            nonlocal count
            count += 1
            if 10 * count // total > 10 * (count - 1) // total:
                say(f"{label}: {count:,} of {total:,}")

        yield advance


def say(sentence: str) -> None:
    """To whoever watches; what a command is asked for goes to standard output."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def versions() -> dict[str, str]:
    """Of all that a number may depend on."""
    packages = {name: version(name) for name in ("numpy", "scipy")}
    return {"fairway": fw.__version__, **packages, "python": platform.python_version()}


def error(values: ArrayLike) -> float:
    """The standard error of a mean."""
    array = np.asarray(values, float)
    return float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan


def mean(values: ArrayLike, digits: int, sign: str = "") -> str:
    """A mean ± its standard error, as a cell.

    >>> mean([1.0, 2.0, 3.0], 1), mean([0.5], 2, "+")
    ('2.0 ± 0.6', '+0.50')
    """
    array = np.asarray(values, float)
    spread = f" ± {error(array):.{digits}f}" if len(array) > 1 else ""
    return f"{array.mean():{sign}.{digits}f}{spread}" if len(array) else ""


def table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table, as lines."""
    heading = list(heading)
    lines = [heading, ["---"] * len(heading), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def tables_of(text: str) -> list[dict[str, str]]:
    """The rows of every table of a Markdown text, by the names of their columns, with the heading they stand under."""
    rows, section, heading = [], "", list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("#"):
            section = line.strip("# ")
        if not line.startswith("|"):
            heading = []
        elif not heading:
            heading = cells
        elif set("".join(cells)) - set("- "):
            rows.append({"section": section, **dict(zip(heading, cells, strict=True))})
    return rows
