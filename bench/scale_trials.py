"""What an ask, a tell, opening and looking cost when a study has 1,000 to 100,000 trials, beside Optuna.

    python -m bench run scale_trials [--trials 1000,10000,100000] [--before SRC [--turns]] [--million] [--in-a-row]

Each study has three parameters and one limit, and one report a trial. It is filled in bulk, and then asked and told a
few times. Figures are medians of the CPU time of the thread that calls, since the machine may be shared: what a commit
waits for the disk comes on top. `--before` measures another checkout's `src` on the same files. A study of Optuna is
filled by repeating the rows of its first trial, as `bench/scale_peer.py` says, and asked for at most five minutes with
each sampler. *In a row* are many asks and tells; their mean includes what is done only now and then. With `--in-a-row`,
only these are measured.

With `--before` and `--turns`, only the table of old and new code in turn is made: a live process of each asks and tells
40 times in its turn, in memory and in SQLite from every size on. Which code begins changes from run to run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

from bench.reproduction import Given, Reproduction, Result

_CHUNK = 2000  # trials that are written at once
_TIMES = 15  # asks and tells of each kind
_IN_A_TURN, _TURNS, _RUNS = 40, 12, 4
_FIRST, _IN_A_ROW, _IN_A_ROW_OF_PEER = 100, 2800, 400  # asks and tells: not counted; counted; of Optuna in SQLite
_HERE = Path(__file__).resolve().parent.parent


# In a process of its own: one study


def _study(storage: Any = None, name: str = "study") -> Any:
    import fairway as fw  # noqa: PLC0415 - of the checkout that is measured

    space = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0), "k": fw.Int(1, 100)}
    limits = [fw.AtMost("size", 60.0)]
    return fw.Study(space, fw.Minimize("loss"), limits, sampler=fw.Random(), storage=storage, name=name, seed=0)


def _events(study: Any, first: int, n: int) -> Iterator[Any]:
    """Trials as one worker that tells each in one report would have written them."""
    import numpy as np  # noqa: PLC0415

    from fairway.engine.events import Asked, Reported, Told  # noqa: PLC0415
    from fairway.feasibility import Checkpoint  # noqa: PLC0415

    points, none = np.random.default_rng(first).random((n, 3)), np.empty((0, 3))
    for number, x in enumerate(points, first):
        params = study.space.decode(x)
        loss, size, act = (params["x"] - 0.3) ** 2 + params["y"], float(params["k"]), 3 * number
        yield Asked(number, params, 1e9 + number, 0)
        yield Reported(
            number=number,
            worker=0,
            seen=0,
            begun=act + 1,
            begun_seen=0,
            total=None,
            interval=1,
            acts=np.array([act + 2]),
            step=np.array([1]),
            objective=np.array([loss]),
            values=np.array([[size]]),
            train_ns=np.array([1000]),
            check_ns=np.array([[0]]),
            payments=none.astype(np.int64),
            noise=np.empty((0, 4)),
            over=True,
            errors=none,
        )
        best = Checkpoint(1, loss, (size,))
        sums: dict[str, Any] = {
            "checkpoint": best,
            "peak": best,
            "late": best,
            "steps": 1,
            "interval": 1,
            "train_ns": 1000,
        }
        yield Told(number, "completed", "", 1e9 + number, 0, act + 3, last_step=1, by_stopper=False, **sums)


def _fill(study: Any, n: int) -> None:
    for first in range(0, n, _CHUNK):
        study.owner.journal.append(*_events(study, first, min(_CHUNK, n - first)))


def _cpu(call: Callable[[], object], times: int = 1) -> float:
    """The median of the CPU seconds that a call takes in its thread."""
    taken = []
    for _ in range(times):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
    return statistics.median(taken)


def _memory() -> float:
    """The most memory that this process had, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _asks(study: Any) -> dict[str, float]:
    """What an ask takes with each sampler, and a tell."""
    import numpy as np  # noqa: PLC0415

    import fairway as fw  # noqa: PLC0415

    found: dict[str, float] = {}
    tells = []
    for name, sampler in {"Random": fw.Random(), "TPE": fw.TPE(), "c-TPE": fw.CTPE()}.items():

        def propose(number: int, *_: Any, sampler: Any = sampler) -> Any:
            x = sampler.next_point(study.history, np.random.default_rng(number))
            return study.space.decode(np.nan_to_num(x, nan=0.5))

        asks = []
        for i in range(_TIMES + 1):
            began = time.thread_time()
            trial = study.owner.ask(propose)
            asks.append(time.thread_time() - began)
            tells.append(_cpu(partial(study.tell, trial, loss=2.0 + i / 100, size=50.0)))
        found[f"ask {name}"] = statistics.median(asks[1:])  # the first one sorts what is there
    return {**found, "tell": statistics.median(tells)}


def fill(path: str, n: int) -> dict[str, float]:
    """A file of n trials; filling it keeps its snapshots, as running it would."""
    study = _study(f"sqlite:///{path}")
    _fill(study, n)
    study.owner.end(f"{n} trials were run")
    return {}


def stored(path: str, n: int) -> dict[str, float]:
    """Open a file, ask and tell, list and show."""
    del n
    from fairway.cli import main  # noqa: PLC0415
    from fairway.report.dashboard.desk import Desk  # noqa: PLC0415

    url = f"sqlite:///{path}"
    _study(f"sqlite:///{path}.warm.db")  # loads the modules
    before, found = _memory(), {}
    with contextlib.redirect_stdout(io.StringIO()):
        found["list"] = _cpu(lambda: main(["list", url]))
        found["show"] = _cpu(lambda: main(["show", url, "study"]))
    found["page"] = _cpu(lambda: Desk(url).watch("study").shell())
    opened: list[Any] = []
    found["open"] = _cpu(lambda: opened.append(_study(url)))
    found["open MB"] = _memory() - before
    return found | _asks(opened[0])


def memory(path: str, n: int) -> dict[str, float]:
    """A study in memory."""
    del path
    study = _study()
    began = time.process_time()
    _fill(study, n)
    return {"fill": time.process_time() - began, "MB": _memory(), **_asks(study)}


def run(path: str, n: int) -> dict[str, float]:
    """Random search in memory, from its first trial to its last."""
    del path
    study = _study()
    return {"run": _cpu(lambda: study.optimize(lambda trial: {"loss": trial.params["x"], "size": 1.0}, trials=n))}


def _ask_and_tell(study: Any) -> None:
    study.tell(study.ask(), loss=1.0)


def wide(path: str, n: int) -> dict[str, float]:
    """Spaces of unusual size: an ask of c-TPE after thirty trials."""
    del path, n
    import fairway as fw  # noqa: PLC0415

    chained: dict[str, Any] = {"c0": fw.Choice([0, 1])}
    for i in range(1, 1500):
        chained[f"c{i}"] = fw.Choice([0, 1], when={f"c{i - 1}": [0, 1]})
    spaces = {
        "a choice of 100,000": {"c": fw.Choice([f"option {i}" for i in range(100_000)]), "x": fw.Float(0.0, 1.0)},
        "1,500 chained conditions": chained,
        "200 parameters": {f"x{i}": fw.Float(0.0, 1.0) for i in range(200)},
    }
    found = {}
    for name, space in spaces.items():
        study = fw.Study(space, fw.Minimize("loss"), seed=0)
        for i in range(30):
            study.tell(study.ask(), loss=float(i * 7 % 30))
        found[name] = _cpu(partial(_ask_and_tell, study), 5)
    return found


def taking_turns(path: str, n: int) -> None:
    """Ask and tell a few times whenever a line comes in, and say what each ask and each tell took."""
    del n
    study = _study(f"sqlite:///{path}" if path else None)
    for _ in sys.stdin:
        asks, tells = [], []
        for i in range(_IN_A_TURN):
            began = time.thread_time()
            trial = study.ask()
            asks.append(time.thread_time() - began)
            tells.append(_cpu(partial(study.tell, trial, loss=2.0 + i / 100, size=50.0)))
        sys.stdout.write(json.dumps({"ask": asks, "tell": tells}) + "\n")
        sys.stdout.flush()


def in_a_row(path: str, n: int) -> dict[str, float]:
    """Ask and tell n times in a file."""
    study = _study(f"sqlite:///{path}")

    def tell(trial: Any) -> None:
        x, y, k = trial.params.values()
        study.tell(trial, loss=(x - 0.3) ** 2 + y, size=float(k))

    return _in_a_row(study.ask, tell, n)


def optuna_in_a_row(path: str, n: int) -> dict[str, float]:
    """The same in Optuna."""
    from bench import scale_peer  # noqa: PLC0415

    return _in_a_row(*scale_peer.ask_and_tell(path), n)


def _in_a_row(ask: Callable[[], Any], tell: Callable[[Any], object], n: int) -> dict[str, float]:
    """What n asks and n tells take by turns, after the first few, which load modules and fill caches."""
    asks, tells = [], []
    for _ in range(n + _FIRST):
        began = time.thread_time()
        trial = ask()
        asked = time.thread_time()
        tell(trial)
        tells.append(time.thread_time() - asked)
        asks.append(asked - began)
    found = dict[str, float]()
    for name, taken in (("ask", asks[_FIRST:]), ("tell", tells[_FIRST:])):
        found |= {f"{name}, least": min(taken), f"{name}, median": statistics.median(taken)}
        found[f"{name}, mean"] = statistics.mean(taken)
    return found


def optuna(path: str, n: int) -> dict[str, float]:
    """The same in Optuna, in memory or in a file, by the path's ending."""
    from bench import scale_peer  # noqa: PLC0415

    return scale_peer.measure(path, n, _TIMES, _cpu, _memory)


# All of them


def _command(what: Callable[..., Any], path: str, n: int, source: Path | None) -> tuple[list[str], dict[str, str]]:
    """A command, and its environment, that calls something of this checkout, or of another one's source."""
    paths = [str(source or _HERE / "src"), str(_HERE)]
    environment = os.environ | {"PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    code = f"import json, bench.scale_trials as b; print(json.dumps(b.{what.__name__}({path!r}, {n})))"
    return [sys.executable, "-c", code], environment


def measured(what: Callable[..., Any], path: str = "", n: int = 0, *, source: Path | None = None) -> dict[str, float]:
    """What one process measures, of this checkout or of another one's source."""
    command, environment = _command(what, path, n, source)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:])
        return {}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(f"{what.__name__} {n:,} {'before' if source else ''}: {found}\n")
    return found


def in_turn(codes: dict[str, Path | None], kept: str = "") -> dict[str, dict[str, list[float]]]:
    """What each ask and each tell took, by code, of live processes that take turns in this order."""
    taken: dict[str, dict[str, list[float]]] = {code: {"ask": [], "tell": []} for code in codes}
    with contextlib.ExitStack() as stack:
        folder, running = stack.enter_context(tempfile.TemporaryDirectory()), {}
        for code, source in codes.items():
            path = kept and shutil.copy(kept, f"{folder}/{code}.db")
            command, environment = _command(taking_turns, path, 0, source)
            process = subprocess.Popen(  # noqa: S603
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            assert process.stdin is not None
            assert process.stdout is not None
            running[code] = process.stdin, process.stdout
        for turn in range(_TURNS + 1):
            for code, (tell, answers) in running.items():
                tell.write("\n")
                tell.flush()
                found = json.loads(answers.readline())
                for what in found if turn else ():  # the first one is slow
                    taken[code][what] += found[what]
        for tell, answers in running.values():
            tell.close()
            answers.read()  # to its end
    return taken


def _turns(codes: dict[str, Path | None], folder: str, sizes: Sequence[int]) -> list[str]:
    """The table of old and new code in turn: least of all runs, and the median of what a tenth of each falls below."""
    rows: dict[str, dict[str, float]] = {}
    for n in (0, *sizes):
        kept = f"{folder}/{n}.db" if n else ""
        if kept:
            measured(fill, kept, n)
        runs = [in_turn(dict(list(codes.items())[:: (1, -1)[i % 2]]), kept) for i in range(_RUNS)]
        for what in ("ask", "tell"):
            row = rows[f"{what} in {f'SQLite, {n:,} trials' if n else 'memory'}"] = {}
            for code in codes:
                row[f"least, {code}"] = min(min(run[code][what]) for run in runs)
                tenths = [statistics.quantiles(run[code][what], n=10) for run in runs]
                row[f"tenth percentile, {code}"] = statistics.median(each[0] for each in tenths)
                row[f"median, {code}"] = statistics.median(each[4] for each in tenths)
    columns = {name: {what: row[name] for what, row in rows.items()} for name in next(iter(rows.values()))}
    return _table("Old and new code in turn", tuple(rows), columns)


def _many_in_a_row(codes: Mapping[str, Path | None], folder: str, n: int) -> list[str]:
    """The table of asks and tells in a row, from no trial on and from n on.

    Of the runs of each code, which take turns, it shows the one whose mean tell is the median one.
    """
    kept, columns = f"{folder}/kept.db", dict[str, dict[str, float]]()
    measured(fill, kept, n)
    for since in (0, n):
        found: dict[str, list[dict[str, float]]] = {code: [] for code in codes}
        for _, (code, source) in product(range(_RUNS + 1), codes.items()):
            path = f"{folder}/row.db"
            if since:
                shutil.copy(kept, path)
            found[code].append(measured(in_a_row, path, _IN_A_ROW, source=source))
            for file in Path(folder).glob("row.db*"):
                file.unlink()
        for code, each in found.items():
            columns[f"{code}, from {since:,} on"] = sorted(each, key=itemgetter("tell, mean"))[_RUNS // 2]
    columns["Optuna, SQLite"] = measured(optuna_in_a_row, f"{folder}/row.db", _IN_A_ROW_OF_PEER)
    columns["Optuna, journal"] = measured(optuna_in_a_row, f"{folder}/row.log", _IN_A_ROW)
    title = f"{_IN_A_ROW:,} trials in a row in a file ({_IN_A_ROW_OF_PEER} of Optuna in SQLite)"
    return _table(title, tuple(columns["Optuna, journal"]), columns)


_ROWS = ("ask Random", "ask TPE", "ask c-TPE", "tell")


def _cell(found: dict[str, float], name: str) -> str:
    if name not in found:
        return "-"
    return f"{found[name]:,.0f} MB" if "MB" in name else _time(found[name])


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1000:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _table(title: str, names: Sequence[str], columns: dict[str, dict[str, float]]) -> list[str]:
    lines = ["", f"## {title}", "", f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    return lines + [f"| {name} | {' | '.join(_cell(found, name) for found in columns.values())} |" for name in names]


_BREAKS = 1.0  # seconds of CPU time that an ask and a tell take together


def _breaking_point(found: dict[int, dict[str, float]], sampler: str) -> str:
    """The number of trials at which an ask and a tell cost `_BREAKS`, by the line through the two nearest sizes."""
    costs = {n: one[f"ask {sampler}"] + one["tell"] for n, one in found.items() if one}
    sizes = sorted(costs)
    if len(sizes) < 2:
        return "-"
    above = next((n for n in sizes[1:] if costs[n] > _BREAKS), sizes[-1])
    below = sizes[sizes.index(above) - 1]
    grows = (costs[above] - costs[below]) / (above - below)
    if grows <= 0.1 * costs[below] / below:  # a change that the noise explains
        return "not by these figures"
    n = below + (_BREAKS - costs[below]) / grows
    return f"{'extrapolated' if n > sizes[-1] else 'interpolated'}: {float(f'{n:.2g}'):,.0f}"


def _breaking_points(columns: dict[str, dict[int, dict[str, float]]]) -> list[str]:
    names = ("Random", "TPE", "c-TPE")
    title = f"Where an ask and a tell take {_BREAKS:g} s of CPU time"
    lines = ["", f"## {title}", "", f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    return lines + [
        f"| {name} | {' | '.join(_breaking_point(found, name) for found in columns.values())} |" for name in names
    ]


def make(given: Given) -> Result:
    """All tables."""
    sizes = [int(each) for each in given.options.trials.split(",")]
    before = {"before": given.options.before} if given.options.before else {}
    codes: dict[str, Path | None] = {**before, "fairway": None}
    lines = ["# What a study of many trials costs", "", *__doc__.split("\n\n")[2].strip().splitlines()]
    everywhere: dict[str, dict[int, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if before and given.options.turns:
            return Result("\n".join(_turns(codes, folder, sizes)) + "\n")
        lines += _many_in_a_row(codes, folder, sizes[-1])
        if given.options.in_a_row:
            return Result("\n".join(lines) + "\n")
        for n in sizes:
            kept = f"{folder}/{n}.db"
            measured(fill, kept, n)
            columns = {}
            for code, source in codes.items():
                shutil.copy(kept, f"{folder}/copy.db")
                columns[code] = measured(stored, f"{folder}/copy.db", n, source=source)
            columns["Optuna, SQLite"] = measured(optuna, f"{folder}/optuna-{n}.db", n)
            columns["Optuna, journal"] = measured(optuna, f"{folder}/optuna-{n}.log", n)
            for code in ("fairway", "Optuna, SQLite", "Optuna, journal"):
                where = code if "," in code else f"{code}, SQLite"
                everywhere.setdefault(where, {})[n] = columns[code]
            lines += _table(f"{n:,} trials in SQLite", (*_ROWS, "open", "open MB", "list", "show", "page"), columns)
            columns = {code: measured(memory, n=n, source=source) for code, source in codes.items()}
            columns["Optuna"] = measured(optuna, n=n)
            for code in ("fairway", "Optuna"):
                everywhere.setdefault(f"{code}, memory", {})[n] = columns[code]
            lines += _table(f"{n:,} trials in memory", (*_ROWS, "MB"), columns)
        lines += _breaking_points(everywhere)
        columns = {}
        for n in sizes:
            for code, source in codes.items():
                if source is None or n <= 10_000:
                    columns[f"{code}, {n:,}"] = measured(run, n=n, source=source)
        lines += _table("Random search in memory, all of it", ("run",), columns)
        if given.options.million:
            lines += _table(
                "A million trials in memory", (*_ROWS, "fill", "MB"), {"fairway": measured(memory, n=10**6)}
            )
        names = ("a choice of 100,000", "1,500 chained conditions", "200 parameters")
        lines += _table("An ask and a tell with c-TPE in spaces of unusual size", names, {"fairway": measured(wide)})
    return Result("\n".join(lines) + "\n")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", default="1000,10000,100000", help="sizes of studies, with commas between")
    parser.add_argument("--before", type=Path, metavar="SRC", help="another checkout's src, to be measured beside")
    parser.add_argument("--turns", action="store_true", help="with --before: only what is measured in turn")
    parser.add_argument("--in-a-row", action="store_true", help="only many asks and tells in a row")
    parser.add_argument("--million", action="store_true", help="fill a study in memory with a million trials too")


REPRODUCTIONS = (
    Reproduction(
        "scale_trials",
        "What an ask, a tell and opening cost with many trials, beside Optuna",
        (),
        make,
        30,
        1,
        options=_options,
        of_paper=False,
    ),
)
