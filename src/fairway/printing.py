"""What the commands print about a study, a trial and a certificate: lines for people, and JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fairway.engine.certificate import Certificate
from fairway.engine.event_json import to_json
from fairway.engine.record import TrialRecord, unchecked
from fairway.engine.what_if import WhatIf
from fairway.errors import FairwayError, UsageError
from fairway.report import certificates, content
from fairway.report.summary import answer, ending, state, to_ship
from fairway.report.view import View
from fairway.storage.sql import Database
from fairway.text import counted, duration, goal, measured, moment, params, shown

_WIDTH = 100  # characters of a line of a sentence
_FEASIBLE = {True: "yes", False: "no", None: "unknown"}


def studies(database: Database) -> list[dict[str, Any]]:
    """The studies of a database as JSON, by name; one that cannot be read is listed with the reason."""
    found = []
    for stored in database.studies():
        try:
            view = View(database.log(stored.name, create=False), stored.name)
            known = {**content.line(view), "state": state(view)}
        except FairwayError as error:
            known = {"problem": str(error)}
        found.append({**stored._asdict(), **known})
    return found


def studies_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The studies of a database: how many trials each has, its best one, and whether somebody works on it."""
    rows, problems = [], []
    for one in found:
        known = "?", "", "cannot be read"
        if "problem" in one:
            problems.append(f"{one['name']} cannot be read: {one['problem']}")
        else:
            known = f"{one['trials']:,}", one["best"], one["state"]
        rows.append((one["name"], moment(one["created"]), known[0], known[1] or "-", known[2]))
    return [*table(("study", "created", "trials", "best", "state"), rows), *problems] if rows else []


def study(view: View) -> dict[str, Any]:
    """A study as JSON."""
    ledger, best = view.ledger, view.best
    return {
        "name": view.name,
        **view.identity.to_json(),
        "counts": view.counts,
        "ended": ledger.ended,
        "verdicts": [to_json(verdict) for verdict in ledger.verdicts],
        "certificate": None if view.certificate is None else certificates.to_json(view.certificate),
        "notes": dict(ledger.later.get(None, {})),
        "best": None if best is None else asdict(best),
        "trials": [asdict(record) for record in view.trials],
    }


def study_lines(view: View, last: int) -> list[str]:
    """A study as lines: its goal, its best trial, and its last trials, `last` of them."""
    identity, ledger, best, trials = view.identity, view.ledger, view.best, len(view.courses)
    asked = goal(identity.problem).replace("≤", "<=").replace("≥", ">=")  # which every terminal has
    lines = [
        f"{view.name}: {asked}, seed {identity.seed}",
        f"{counted(trials, 'trial')}: " + ", ".join(f"{n} {status}" for status, n in view.counts.items() if n),
    ]
    if best is None:
        said = " ".join(answer(view))
        lines += textwrap.wrap(shown(said, certificates.LONGEST_SENTENCE), _WIDTH)
    else:
        lines.append(f"best: trial {best.number}, step {best.step}: {_metrics(best)}")
        lines.append(f"      {params(best.params, most=1000)}")
        better = unchecked(view.problem, view.courses[best.number])
        lines += [f"      not checked: {better}"] if better else []
        lines += [] if best.checkpoint is None else [f"      checkpoint: {best.checkpoint}"]
    badge = certificates.badge(view)
    said = badge.words if badge is not None and badge.kind == "open" else to_ship(view)
    lines += textwrap.wrap(said, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    if view.certificate is not None:
        lines += certificate(view.certificate)
    changed = (f"limits changed {when}: {what}" for when, what in content.changes(view))
    lines += [line.replace("≤", "<=").replace("≥", ">=") for line in changed]
    later = content.later(view)
    lines += ["measured later:", *(f"  {': '.join(filter(None, line))}" for line in later)] if later else []
    if ledger.dropped:
        lines.append(f"repaired: {counted(ledger.dropped, 'event')} left out")
    if ledger.ended:
        lines.append(f"ended: {ledger.ended}")
    elif state(view) == "idle" and ledger.running:
        lines.append(ending(view))
    elif ledger.verdicts:
        lines.append(f"last verdict: {ledger.verdicts[-1].reason}")
    if last > 0 and trials:
        records = [ledger.record(number) for number in range(max(trials - last, 0), trials)]
        starred = {r.number for r in records if unchecked(view.problem, view.courses[r.number])}
        rows = [
            (str(r.number), r.status, _FEASIBLE[r.feasible], _metrics(r) + " *" * (r.number in starred), r.reason)
            for r in records
        ]
        lines += table(("trial", "status", "feasible", "metrics", "reason"), rows)
        lines += ["* a better step was not checked: --trial N says which"] if starred else []
    return lines


def trial(view: View, number: int) -> TrialRecord:
    """One trial of a study."""
    trials = len(view.courses)
    if not 0 <= number < trials:
        has = f"its trials are 0 to {trials - 1}" if trials else "it has no trials yet"
        raise UsageError(f"the study {view.name!r} has no trial {number}; {has}")
    return view.ledger.record(number)


def trial_lines(view: View, record: TrialRecord) -> list[str]:
    """One trial, with the lines of the user's code that raised."""
    ended = f"{record.status}: {record.reason}" if record.reason else record.status
    lines = [f"trial {record.number}: {ended}", *(f"  {line}" for line in record.traceback.splitlines())]
    lines += [f"parameters: {params(record.params, most=1000)}"] if record.params else []
    if record.step is not None:
        lines += [f"metrics: {_metrics(record)}, at step {record.step}", f"feasible: {_FEASIBLE[record.feasible]}"]
        better = unchecked(view.problem, view.courses[record.number])
        lines += [f"not checked: {better}"] if better else []
    lines += [] if record.checkpoint is None else [f"checkpoint: {record.checkpoint}"]
    spent = f"training {duration(record.training_seconds)}, checks {duration(record.check_seconds)}"
    lines.append(f"{counted(record.steps, 'step')}: {spent}")
    return lines + [f"note {name}: {value}" for name, value in record.notes.items()]


def what_if(found: WhatIf) -> dict[str, Any]:
    """What would be best under other limits, as JSON."""
    limits = {one.metric: {"kind": type(one).__name__, "threshold": one.threshold} for one in found.problem.limits}
    best, now = (None if one is None else one._asdict() for one in (found.best, found.best_now))
    known = {name: getattr(found, name) for name in ("checkpoints", "unknown", "unknown_best")}
    return {"limits": limits, "best": best, "best_now": now, **known}


def what_if_lines(found: WhatIf) -> list[str]:
    """What would be best under other limits, and its parameters."""
    said = str(found).replace("≤", "<=").replace("≥", ">=")  # which every terminal has
    lines = textwrap.wrap(shown(said, certificates.LONGEST_SENTENCE), _WIDTH)
    return lines + ([f"parameters: {params(found.best.params, most=1000)}"] if found.best is not None else [])


def certificate(found: Certificate) -> list[str]:
    """A certificate as lines: its sentence, and the warnings to read before shipping the model."""
    said = [f"certified: {found}" if found.certified else str(found)]
    said += [f"  {params(found.params, most=1000)}"] if found.certified else []
    said += [f"warning: {text}" for text in found.warnings]
    whole = (shown(each, certificates.LONGEST_SENTENCE) for each in said)
    return [line for each in whole for line in textwrap.wrap(each, _WIDTH, subsequent_indent="  ")]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table with aligned columns; long cells are cut."""
    cells = [[shown(cell, 60) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _metrics(record: TrialRecord) -> str:
    return measured(record.metrics.keys(), record.metrics.values(), record.errors)
