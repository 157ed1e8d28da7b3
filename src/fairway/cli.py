"""The command line: run a study; list, show, verify, export and delete those in a database."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import platform
import sys
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import fairway as fw
from fairway.engine.events import to_json
from fairway.engine.record import TrialRecord
from fairway.engine.verify import verify
from fairway.errors import FairwayError, MissingDependency, UsageError
from fairway.report.view import View
from fairway.storage.sql import Database
from fairway.text import shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (see `_EPILOG`)."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except FairwayError as error:
        sys.stderr.write(f"fairway: {shown(error)}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("fairway: interrupted\n")
        return 130
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stderr.close()
        return 0
    return code


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog="fairway", description=fw.__doc__, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=fw.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")

    def command(run: Callable[[argparse.Namespace], int], text: str, *operands: str) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__.removeprefix("_"), help=text, description=text)
        made.set_defaults(run=run)
        for operand in operands:
            made.add_argument(operand, help=_OPERANDS[operand])
        if run not in (_demo, _completion):
            made.add_argument("--json", action="store_true", help="print JSON")
        return made

    run = command(_run, "start or resume a study that is defined in a file", "target")
    run.add_argument("--function", metavar="NAME", help="the function to optimise (train, objective or evaluate)")
    run.add_argument("--trials", type=int, metavar="N", help="number of trials to add")
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="stop after this time")
    run.add_argument("--workers", type=int, default=1, metavar="N", help="number of parallel workers (1)")
    run.add_argument("--backend", choices=("process", "thread", "ray"), help="where workers run")
    demo = command(_demo, "tune a credit model under a fairness constraint, in half a minute")
    demo.add_argument("--seconds", type=float, default=30.0, help="search time (30)")
    command(_list, "list the studies in a database", "url")
    show = command(_show, "show a study: its best trial, its constraints, its last trials", "url", "name")
    show.add_argument("--trials", type=int, default=10, metavar="N", help="number of last trials to list (10)")
    command(_verify, "replay every decision of a study from its log, and compare", "url", "name")
    export = command(_export, "write a study's trials to a file", "url", "name")
    export.add_argument("-o", "--output", required=True, type=Path, help="trials.csv, .json or .parquet")
    report = command(_report, "write a study as one self-contained HTML file", "url", "name")
    report.add_argument("-o", "--output", required=True, type=Path, help="report.html")
    board = command(_dashboard, "show the studies in a database live in a browser", "url")
    board.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    board.add_argument("--port", type=int, default=8321, help="port to listen on, 0 for any free one (8321)")
    board.add_argument("--token", help="password for the page; generated if other machines can reach it")
    board.add_argument("--open", action="store_true", help="open it in a browser")
    delete = command(_delete, "delete a study", "url", "name")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    command(_version, "show the versions of fairway and of the packages it uses")
    completion = command(_completion, "print a shell script that completes commands")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


_EPILOG = "Exit codes: 0 success, 1 a fault or nothing feasible was found, 2 the command failed, 130 interrupted."
_PACKAGES = ("numpy", "scipy", "sqlalchemy", "scikit-learn", "lightgbm", "xgboost", "fairlearn", "optuna", "ray")
_OPERANDS = {
    "url": "sqlite:///file.db or postgresql://user@host/database",
    "name": "the study's name",
    "target": "file.py, or file.py:name if the study is not named study",
}


def _run(options: argparse.Namespace) -> int:
    from fairway.scripts import load  # noqa: PLC0415

    if options.trials is None and options.timeout is None:
        raise UsageError("no budget was given: pass --trials N, --timeout SECONDS, or both")
    study, function = load(options.target, options.function)
    try:
        study.optimize(
            function,
            trials=options.trials,
            timeout=options.timeout,
            workers=options.workers,
            backend=options.backend,
            progress=not options.json,
        )
    finally:
        _print_study(View(study), last=0, as_json=options.json)
    return 0 if study.best is not None else 1


def _demo(options: argparse.Namespace) -> int:
    from fairway import demo  # noqa: PLC0415

    demo.main(options.seconds)
    return 0


def _version(options: argparse.Namespace) -> int:
    found = {"fairway": fw.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    if options.json:
        _print_json(found)
    else:
        _print_table(("package", "version"), list(found.items()))
    return 0


def _completion(options: argparse.Namespace) -> int:
    from fairway.completion import script  # noqa: PLC0415

    sys.stdout.write(script(options.shell, parser()))
    return 0


def _list(options: argparse.Namespace) -> int:
    studies = Database(options.url, reading=True).studies()
    if options.json:
        _print_json([study._asdict() for study in studies])
    elif not studies:
        _print("no studies")
    else:
        rows = [(study.name, _when(study.created), f"{study.events:,}") for study in studies]
        _print_table(("study", "created", "events"), rows)
    return 0


def _show(options: argparse.Namespace) -> int:
    _print_study(View.read(options.url, options.name), last=options.trials, as_json=options.json)
    return 0


def _print_study(view: View, *, last: int, as_json: bool) -> None:
    name, identity, ledger = view.name, view.identity, view.ledger
    records, best, counts = view.trials, view.best, view.counts
    sign, metric = identity.problem.objective.sign, identity.problem.objective.metric
    if as_json:
        document = {
            "name": name,
            **identity.to_json(),
            "counts": counts,
            "ended": ledger.ended,
            "verdicts": [to_json(verdict) for verdict in ledger.verdicts],
            "best": None if best is None else asdict(best),
            "trials": [asdict(record) for record in records],
        }
        _print_json(document)
        return
    constraints = [
        f"{constraint.metric} {'<=' if constraint.sign > 0 else '>='} {constraint.threshold:g}"
        for constraint in identity.problem.constraints
    ]
    goal = "maximize" if sign < 0 else "minimize"
    subject_to = f" with {' and '.join(constraints)}" if constraints else ""
    _print(f"{name}: {goal} {metric}{subject_to}, seed {identity.seed}")
    _print(f"{len(records)} trials: " + ", ".join(f"{n} {status}" for status, n in counts.items() if n))
    if best is None:
        _print("nothing feasible yet")
    else:
        _print(f"best: trial {best.number}, step {best.step}: {_pairs(best.metrics)}")
        _print(f"      {_pairs(best.params)}")
    if ledger.ended:
        _print(f"ended: {ledger.ended}")
    elif ledger.verdicts:
        _print(f"last verdict: {ledger.verdicts[-1].reason}")
    if last > 0 and records:
        rows = [(str(r.number), r.status, _feasible(r), _pairs(r.metrics), r.reason) for r in records[-last:]]
        _print_table(("trial", "status", "feasible", "metrics", "reason"), rows)


def _verify(options: argparse.Namespace) -> int:
    result = verify(Database(options.url, reading=True).log(options.name, create=False).read())
    if options.json:
        _print_json(asdict(result))
    else:
        for fault in result.faults:
            _print(fault)
        outcome = f"{len(result.faults):,} do not agree" if result.faults else "all agree"
        _print(f"{result.rulings:,} decisions replayed: {outcome}")
        if result.unchecked:
            _print(f"{result.unchecked:,} verdicts of a user-defined terminator were not replayed")
    return 1 if result.faults else 0


def _export(options: argparse.Namespace) -> int:
    view = View.read(options.url, options.name)
    output: Path = options.output
    rows = [record.row(view.space, view.problem) for record in view.trials]
    if output.suffix == ".json":
        output.write_text(json.dumps(_finite(rows), indent=1) + "\n")
    elif output.suffix == ".csv":
        written = io.StringIO()
        writer = csv.DictWriter(written, list(rows[0]) if rows else ["number"])
        writer.writeheader()
        writer.writerows(rows)
        output.write_text(written.getvalue())
    elif output.suffix == ".parquet":
        try:
            import pandas as pd  # noqa: PLC0415 - optional

            pd.DataFrame(rows).to_parquet(output)
        except ImportError as error:
            raise MissingDependency("parquet needs pandas and pyarrow: pip install pandas pyarrow") from error
    else:
        raise UsageError(f"{output}: a file that ends in .csv, .json or .parquet is expected")
    _answer(options, {"trials": len(rows), "file": str(output)}, f"{len(rows)} trials written to {output}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from fairway.report import page  # noqa: PLC0415 - loads all the charts

    view = View.read(options.url, options.name)
    size, n = page.write(view, options.output), len(view.courses)
    text = f"{n:,} trial{'' if n == 1 else 's'} in {options.output}, {size / 1e6:.1f} MB"
    _answer(options, {"file": str(options.output), "bytes": size, "trials": n}, text)
    return 0


def _dashboard(options: argparse.Namespace) -> int:
    from fairway.report.dashboard import serve  # noqa: PLC0415 - loads all the charts

    def ready(address: str) -> None:
        _answer(options, {"address": address}, f"Open {address}  (Ctrl-C to quit)")
        sys.stdout.flush()
        if options.open:
            webbrowser.open(address)

    serve(options.url, options.host, options.port, token=options.token, ready=ready)
    return 0


def _delete(options: argparse.Namespace) -> int:
    database = Database(options.url, reading=True)
    database.log(options.name, create=False)
    if not options.yes:
        sys.stderr.write(f"Delete the study {shown(options.name)!r} and all its trials? Type yes: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() != "yes":
            _print("nothing was deleted")
            return 1
    Database(options.url).delete(options.name)
    _answer(options, {"deleted": options.name}, f"deleted {options.name}")
    return 0


def _feasible(record: TrialRecord) -> str:
    return {True: "yes", False: "no", None: "unknown"}[record.feasible]


def _pairs(values: Any) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _print(text: str) -> None:
    sys.stdout.write(shown(text) + "\n")


def _answer(options: argparse.Namespace, document: Any, text: str) -> None:
    if options.json:
        _print_json(document)
    else:
        _print(text)


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(_finite(document), indent=1) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cells = [[shown(cell, 60) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    for row in cells:
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
