"""The command line: look into a database of studies, verify one, carry one away. Errors are sentences."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fairway as fw
from fairway.errors import FairwayError, MissingDependency, StorageError, UsageError
from fairway.events import Opened, to_json
from fairway.history import TrialRecord
from fairway.identity import Identity
from fairway.ledger import Ledger
from fairway.storage.sql import Database
from fairway.text import shown
from fairway.verify import verify


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 if something was found wrong, 2 if it could not be done."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except FairwayError as error:
        sys.stderr.write(f"fairway: {shown(error)}\n")
        return 2
    except BrokenPipeError:  # whoever reads has read enough
        sys.stderr.close()
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fairway", description=fw.__doc__)
    parser.add_argument("--version", action="version", version=fw.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")

    def command(run: Callable[[argparse.Namespace], int], text: str, *, study: bool = True) -> argparse.ArgumentParser:
        name = run.__name__.removeprefix("_")
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        made.add_argument("url", help="sqlite:///file.db or postgresql://user@host/database")
        if study:
            made.add_argument("name", help="the study's name")
        return made

    listing = command(_list, "list the studies in a database", study=False)
    listing.add_argument("--json", action="store_true", help="print JSON")
    show = command(_show, "show a study: its best trial, its limits, its last trials")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.add_argument("--trials", type=int, default=10, metavar="N", help="how many of the last trials to list (10)")
    check = command(_verify, "make every decision of a study again from its log, and compare")
    check.add_argument("--json", action="store_true", help="print JSON")
    export = command(_export, "write a study's trials to a file")
    export.add_argument("-o", "--output", required=True, type=Path, help="trials.csv, .json or .parquet")
    delete = command(_delete, "delete a study")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _list(options: argparse.Namespace) -> int:
    studies = Database(options.url).studies()
    if options.json:
        _print_json([study._asdict() for study in studies])
    elif not studies:
        _print("no studies")
    else:
        rows = [(study.name, _when(study.created), f"{study.events:,}") for study in studies]
        _print_table(("study", "created", "events"), rows)
    return 0


def _load(options: argparse.Namespace) -> tuple[Identity, Ledger]:
    """A study as its small events tell it: reports are not read."""
    events = Database(options.url).log(options.name, create=False).summary()
    if not events or not isinstance(events[0], Opened):
        raise StorageError(f"the study {options.name!r} is empty: nobody has opened it yet")
    identity = Identity.from_json(events[0].config)
    ledger = Ledger(identity.space, identity.problem)
    for event in events:
        ledger.fold(event)
    return identity, ledger


def _show(options: argparse.Namespace) -> int:
    identity, ledger = _load(options)
    records = [ledger.record(number) for number in range(len(ledger.courses))]
    sign, metric = identity.problem.objective.sign, identity.problem.objective.metric
    feasible = [record for record in records if record.feasible and record.status != "failed"]
    best = min(feasible, key=lambda record: sign * (record.metrics[metric] or 0.0), default=None)
    counts = {"running": len(ledger.running), **ledger.counts}
    if options.json:
        document = {
            "name": options.name,
            **identity.to_json(),
            "counts": counts,
            "ended": ledger.ended,
            "verdicts": [to_json(said) for said in ledger.verdicts],
            "best": None if best is None else asdict(best),
            "trials": [asdict(record) for record in records],
        }
        _print_json(document)
        return 0
    limits = [
        f"{limit.metric} {'<=' if limit.sign > 0 else '>='} {limit.threshold:g}"
        for limit in identity.problem.constraints
    ]
    goal = "maximize" if sign < 0 else "minimize"
    _print(
        f"{options.name}: {goal} {metric}"
        + (f" with {' and '.join(limits)}" if limits else "")
        + f", seed {identity.seed}"
    )
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
    last = records[-options.trials :] if options.trials > 0 else []
    if last:
        rows = [(str(one.number), one.status, _verdict(one), _pairs(one.metrics), one.reason) for one in last]
        _print_table(("trial", "status", "feasible", "metrics", "reason"), rows)
    return 0


def _verify(options: argparse.Namespace) -> int:
    result = verify(Database(options.url).log(options.name, create=False).read())
    if options.json:
        _print_json(asdict(result))
    else:
        for fault in result.faults:
            _print(fault)
        verdict = f"{len(result.faults):,} do not agree" if result.faults else "all agree"
        _print(f"{result.rulings:,} rulings made again: {verdict}")
        if result.unchecked:
            _print(f"{result.unchecked:,} verdicts of a terminator of its own were not made again")
    return 1 if result.faults else 0


def _export(options: argparse.Namespace) -> int:
    identity, ledger = _load(options)
    output: Path = options.output
    records = [ledger.record(number) for number in range(len(ledger.courses))]
    rows = [record.row(identity.space, identity.problem) for record in records]
    if output.suffix == ".json":
        text = json.dumps([_finite(row) for row in rows], indent=1)
        output.write_text(text + "\n")
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
    _print(f"{len(rows)} trials written to {output}")
    return 0


def _delete(options: argparse.Namespace) -> int:
    database = Database(options.url)
    database.log(options.name, create=False)
    if not options.yes:
        sys.stderr.write(f"Delete the study {shown(options.name)!r} and all its trials? Type yes: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() != "yes":
            _print("nothing was deleted")
            return 1
    database.delete(options.name)
    _print(f"deleted {options.name}")
    return 0


def _verdict(record: TrialRecord) -> str:
    return {True: "yes", False: "no", None: "unknown"}[record.feasible]


def _pairs(values: Any) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _print(text: str) -> None:
    sys.stdout.write(shown(text) + "\n")


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
