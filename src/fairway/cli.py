"""The command line: run and certify a study; list, show, verify, repair, export and delete those in a database."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import platform
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import fairway as fw
from fairway import printing
from fairway.engine import snapshot
from fairway.engine.events import Opened, Sealed
from fairway.engine.identity import Identity
from fairway.engine.journal import write
from fairway.engine.limits import differences
from fairway.engine.record import table
from fairway.engine.verify import verify
from fairway.errors import FairwayError, UsageError
from fairway.report import certificates, export
from fairway.report.view import View
from fairway.runners.evaluate import located
from fairway.storage.inspection import inspect
from fairway.storage.opening import only_study
from fairway.storage.sql import Database
from fairway.text import counted, shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (see `_EPILOG`)."""
    options = parser().parse_args(arguments)
    try:
        if "name" in options:
            _find_study(options)
        return options.run(options) or 0
    except FairwayError as error:
        sys.stderr.write(f"fairway: {shown(error, _SENTENCE)}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("fairway: interrupted\n")
        return 130
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stderr.close()
        return 0


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog="fairway", description=fw.__doc__, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=fw.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")

    def command(run: Callable[[argparse.Namespace], int | None], text: str, *operands: str) -> argparse.ArgumentParser:
        name = run.__name__.removeprefix("_").replace("_", "-")
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        for operand in operands:
            kind, count = (_address if operand == "url" else str), ("?" if operand == "[name]" else None)
            made.add_argument(operand.strip("[]"), type=kind, nargs=count, help=_OPERANDS[operand])
        if run not in (_demo, _completion):
            made.add_argument("--json", action="store_true", help="print JSON")
        return made

    run = command(_run, "start or resume a study that is defined in a file", "target")
    run.add_argument("--function", metavar="NAME", help="the function to optimise (train, objective or evaluate)")
    run.add_argument("--trials", type=int, metavar="N", help="number of trials to add")
    run.add_argument("--total", type=int, metavar="N", help="stop when the study has this many, with earlier runs")
    run.add_argument("--timeout", type=float, metavar="SECONDS", help="stop after this time")
    run.add_argument("--until", metavar="TIME", help='stop at this time of day, such as 18:30, or "2026-03-01 18:30"')
    run.add_argument("--workers", type=int, default=1, metavar="N", help="number of parallel workers (1)")
    run.add_argument("--backend", choices=("process", "thread", "ray"), help="where workers run")
    certify = command(_certify, "test a study's best models on rows that the search never saw", "target")
    certify.add_argument(
        "--evaluate", metavar="NAME", help="fw.FreshRows, or a function of a model (fresh, evaluate_fresh)"
    )
    certify.add_argument("--train", metavar="NAME", help="the function that was optimised (train, objective, evaluate)")
    certify.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="of the certificate (0.95)")
    certify.add_argument("--at-most", type=int, default=10, metavar="N", help="number of candidates to test (10)")
    certify.add_argument("--uses", type=int, default=1, metavar="N", help="certificates that share these rows (1)")
    demo = command(_demo, "tune a credit model under a fairness constraint, in half a minute")
    demo.add_argument("--seconds", type=float, default=30.0, help="search time (30)")
    command(_list, "list the studies in a database", "url")
    _add_commands_of_a_study(command)
    board = command(_dashboard, "show the studies in a database live in a browser", "url")
    board.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    board.add_argument("--port", type=int, default=8321, help="port to listen on, 0 for any free one (8321)")
    board.add_argument("--token", help="password for the page; generated if other machines can reach it")
    board.add_argument("--open", action="store_true", help="open it in a browser")
    command(_version, "show the versions of fairway and of the packages it uses")
    completion = command(_completion, "print a shell script that completes commands")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def _add_commands_of_a_study(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands that take a database and the name of a study in it; only `delete` requires the name."""
    show = command(_show, "show a study: its best trial, its constraints, its last trials", "url", "[name]")
    show.add_argument("--trials", type=int, default=10, metavar="N", help="number of last trials to list (10)")
    show.add_argument("--trial", type=int, metavar="N", help="show one trial, and where your code raised if it failed")
    asked = command(_what_if, "say which model would be best under other limits, from its log alone", "url", "[name]")
    asked.add_argument("limits", nargs="*", metavar="metric=limit", help="eod=0.12, or eod=none for no limit")
    limits = command(_set_limit, "change limits of a study; past trials are judged by the new ones", "url", "[name]")
    limits.add_argument("limits", nargs="+", metavar="metric=limit", help="eod=0.12, or eod=none to drop the limit")
    command(_verify, "check a study for damage, replay every decision from its log, and compare", "url", "[name]")
    repair = command(_repair, "copy what is intact of a damaged study into a new file", "url", "[name]")
    repair.add_argument("-o", "--output", required=True, type=_file, help="new.db, which must not be there yet")
    written = command(_export, "write a study's trials to a file", "url", "[name]")
    written.add_argument("-o", "--output", required=True, type=Path, help="trials.csv, .json or .parquet")
    report = command(_report, "write a study as one self-contained HTML file, or as a PDF", "url", "[name]")
    report.add_argument(
        "-o", "--output", required=True, type=Path, help="report.html, or report.pdf, which Chromium prints"
    )
    delete = command(_delete, "delete a study", "url", "name")
    delete.add_argument("--yes", action="store_true", help="do not ask for confirmation")


_EPILOG = (
    "Exit codes: 0 success, 1 a fault, nothing feasible was found, not certified or not all repaired, "
    "2 the command failed, 130 interrupted."
)
_LONGEST = 320  # characters of a line, enough for a table of five columns
_SENTENCE = 1_000  # characters of an error, which may name two paths
_MANY = 1000  # items that are worth a progress bar
_PACKAGES = ("numpy", "scipy", "sqlalchemy", "scikit-learn", "lightgbm", "xgboost", "fairlearn", "optuna", "ray")
_OPERANDS = {
    "url": "file.db, sqlite:///file.db or postgresql://user@host/database",
    "name": "the study's name",
    "[name]": "the study's name, if the database has several",
    "target": "file.py, or file.py:name if the study is not named study",
}


def _address(given: str) -> str:
    """The address of a database, which may be given as the path of its file."""
    return given if "://" in given else f"sqlite:///{given}"


def _find_study(options: argparse.Namespace) -> None:
    """Fill in the name of the only study; an argument such as eod=0.12 in its place is taken as the first limit."""
    name = options.name
    if name is not None and "=" in name and "limits" in options:
        if name in (stored.name for stored in Database(options.url, reading=True).studies()):
            return
        options.limits.insert(0, name)
        name = None
    options.name = only_study(options.url) if name is None else name


def _run(options: argparse.Namespace) -> int:
    from fairway.scripts import load  # noqa: PLC0415

    budget = {name: getattr(options, name) for name in ("trials", "total", "timeout", "until")}
    if all(given is None for given in budget.values()):
        raise UsageError("no budget was given: pass --trials N, --total N, --timeout SECONDS or --until TIME")
    study, function = load(options.target, options.function)
    try:
        study.optimize(function, **budget, workers=options.workers, backend=options.backend, progress=not options.json)
    finally:
        _answer_study(options, View(study), last=0)
    return 0 if study.best is not None else 1


def _certify(options: argparse.Namespace) -> int:
    from fairway.scripts import load_fresh  # noqa: PLC0415

    asked = {name: getattr(options, name) for name in ("confidence", "at_most", "uses")}
    try:
        study, evaluate, train = load_fresh(options.target, options.evaluate, options.train)
        found = study.certify(evaluate, train, **asked, progress=not options.json)
    except FairwayError:
        raise
    except Exception as error:
        raise UsageError(located(error)) from error
    document = certificates.to_json(found) if options.json else None
    _answer(
        options, document, *printing.certificate(found), *printing.table(*certificates.attempts(study.problem, found))
    )
    return 0 if found.certified else 1


def _demo(options: argparse.Namespace) -> None:
    from fairway import demo  # noqa: PLC0415

    demo.main(options.seconds)


def _version(options: argparse.Namespace) -> None:
    found = {"fairway": fw.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    _answer(options, found, *printing.table(("package", "version"), found.items()))


def _completion(options: argparse.Namespace) -> None:
    from fairway.completion import script  # noqa: PLC0415

    sys.stdout.write(script(options.shell, parser()))


def _list(options: argparse.Namespace) -> int:
    database = Database(options.url, reading=True)
    database.check()
    studies = printing.studies(database)
    _answer(options, studies, *(printing.studies_lines(studies) or ["no studies"]))
    return 1 if any("problem" in study for study in studies) else 0


def _show(options: argparse.Namespace) -> None:
    view = View.read(options.url, options.name)
    if options.trial is None:
        _answer_study(options, view, last=options.trials)
    else:
        record = printing.trial(view, options.trial)
        _answer(options, asdict(record), *printing.trial_lines(view, record))


def _answer_study(options: argparse.Namespace, view: View, *, last: int) -> None:
    _answer(options, printing.study(view) if options.json else None, *printing.study_lines(view, last))


def _what_if(options: argparse.Namespace) -> int:
    limits = dict(_limit(text) for text in options.limits)
    view = View.read(options.url, options.name)
    found = view.what_if(limits)
    _answer(options, printing.what_if(found), *printing.what_if_lines(found))
    return 0 if found.best is not None else 1


def _limit(text: str) -> tuple[str, float | None]:
    metric, _, limit = text.rpartition("=")
    try:
        threshold = None if limit == "none" else float(limit)
    except ValueError:
        threshold = math.nan
    if not metric or threshold is not None and not math.isfinite(threshold):
        raise UsageError(f"{text!r}: a metric and its limit are expected, such as eod=0.12, or eod=none for no limit")
    return metric, threshold


def _set_limit(options: argparse.Namespace) -> None:
    wanted = dict(_limit(text) for text in options.limits)
    view, log = View.read(options.url, options.name), Database(options.url).log(options.name, create=False)
    before = view.ledger.limits.now
    while (event := view.ledger.limits.change(wanted, at=time.time())) and write(log, [event]) is None:
        view.update()  # somebody else changed them at the same moment
    view.update()
    changed = differences(before, view.ledger.limits.now)
    said = changed or ["nothing changed: these limits hold already"]
    best = view.best
    found = "nothing measured so far is within them" if best is None else f"best: trial {best.number}, step {best.step}"
    lines = [line.replace("≤", "<=").replace("≥", ">=") for line in [*said, found]]
    _answer(options, {"changed": changed, "best": None if best is None else asdict(best)}, *lines)


def _verify(options: argparse.Namespace) -> int:
    inspection = inspect(options.url, options.name, _tracked)
    events = [one.event for one in inspection.found if one.event is not None]
    damage = inspection.damage or (
        [] if events else [f"the study {options.name!r} has no events: nobody has opened it yet"]
    )
    if damage:
        advice = f"{counted(len(damage), 'fault')}; `fairway repair` copies what is intact into a new file"
        _answer(options, {"damage": damage, "faults": []}, *damage, *([advice] if events else []))
        return 1
    log = Database(options.url, reading=True).log(options.name, create=False)
    result, certifications = verify(events), sum(isinstance(event, Sealed) for event in events)
    if events and isinstance(events[0], Opened):
        identity = Identity.from_json(events[0].config)
        result.faults += snapshot.faults(log, events, identity.space, identity.problem)
    outcome = f"{len(result.faults):,} do not agree" if result.faults else "all agree"
    if result.groundless:
        outcome += f", but for {result.groundless:,} that may rest on what a repair left out"
    with_them = f", those of {counted(certifications, 'certification')} among them" if certifications else ""
    lines = [*result.faults, f"{result.rulings:,} decisions replayed{with_them}: {outcome}"]
    if result.unchecked:
        lines.append(
            f"{result.unchecked:,} verdicts were not replayed: the log has no code of its terminator or conditions"
        )
    if result.dropped:
        lines.append(f"a repair left out {counted(result.dropped, 'event')}")
    if not inspection.checksums:
        lines.append("its events have no checksums yet: damage shows only where it makes no sense")
    document = {**asdict(result), "certifications": certifications, "checksums": inspection.checksums, "damage": []}
    _answer(options, document, *lines)
    return 1 if result.faults else 0


def _file(given: str) -> Path:
    """A file by its path or as a URL."""
    return Path(given.removeprefix("sqlite:///"))


def _repair(options: argparse.Namespace) -> int:
    from fairway.storage.repair import repair  # noqa: PLC0415 - seldom needed

    inspection = inspect(options.url, options.name, _tracked)
    result = repair(inspection, options.output, _tracked)
    written = f"{counted(result.kept, 'event')} in {options.output}, {len(result.left_out):,} left out"
    _answer(options, {**result._asdict(), "file": str(options.output)}, *result.damage, *result.left_out, written)
    return 1 if result.left_out else 0


def _tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
    """Pass items on, with a progress bar in a terminal."""
    if len(items) < _MANY or sys.stderr is None or not sys.stderr.isatty():
        return items
    from rich.console import Console  # noqa: PLC0415 - only where something is shown
    from rich.progress import track  # noqa: PLC0415

    return track(items, what, console=Console(stderr=True), transient=True)


def _export(options: argparse.Namespace) -> None:
    view = View.read(options.url, options.name)
    rows, output = table(view.trials, view.space, view.problem), options.output
    remarks = export.write(output, rows)
    document = {"trials": len(rows), "file": str(output), "remarks": remarks}
    _answer(options, document, f"{counted(len(rows), 'trial')} written to {output}", *remarks)


def _report(options: argparse.Namespace) -> None:
    from fairway.report import page  # noqa: PLC0415 - loads all the charts

    view = View.read(options.url, options.name)
    size, n = page.write(view, options.output), len(view.courses)
    text = f"{counted(n, 'trial')} in {options.output}, {size / 1e6:.1f} MB"
    _answer(options, {"file": str(options.output), "bytes": size, "trials": n}, text)


def _dashboard(options: argparse.Namespace) -> None:
    from fairway.report.dashboard import serve  # noqa: PLC0415 - loads all the charts

    def ready(address: str) -> None:
        _answer(options, {"address": address}, f"Open {address}  (Ctrl-C to quit)")
        sys.stdout.flush()
        if options.open:
            webbrowser.open(address)

    serve(options.url, options.host, options.port, token=options.token, ready=ready)


def _delete(options: argparse.Namespace) -> int:
    Database(options.url, reading=True).log(options.name, create=False)
    if not options.yes:
        sys.stderr.write(f"Delete the study {shown(options.name)!r} and all its trials? Type yes: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() != "yes":
            sys.stdout.write("nothing was deleted\n")
            return 1
    Database(options.url).delete(options.name)
    _answer(options, {"deleted": options.name}, f"deleted {options.name}")
    return 0


def _answer(options: argparse.Namespace, document: Any, *lines: str) -> None:
    """Print what a command found: the document with --json, otherwise the lines."""
    sys.stdout.write(_json(document) if options.json else "".join(f"{shown(line, _LONGEST)}\n" for line in lines))


def _json(document: Any) -> str:
    return json.dumps(export.finite(document), indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
