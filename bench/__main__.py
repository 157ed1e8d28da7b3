"""The roof over all reproductions: what there is, and one command that runs it.

    python -m bench list
    python -m bench run NAME... [--data ...] [--seeds N] [--processes 2] [--out bench/results]

A name may be a pattern ('ace_*') or `papers`, all of the four papers; of these, what has no data here is left out with
a sentence. Every run is kept in bench/out and taken up again; results are a table (.md), its numbers (.json) and, where
the paper has a figure, a picture (.png).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from importlib import import_module
from itertools import takewhile
from pathlib import Path

from bench import runs
from bench.reproduction import RESULTS, DataMissingError, Given, Need, Reproduction

HOMES = (
    "bench.papers.ace_tables",
    "bench.papers.ace_live",
    "bench.papers.ace_curves",
    "bench.papers.staleness",
    "bench.papers.plugged_in",
    "bench.papers.ctpe_ranks",
    "bench.papers.ctpe_tabular",
    "bench.papers.cikm2021",
    "bench.papers.termination",
    "bench.policies",
    "bench.multifidelity",
    "bench.several",
    "bench.carry_over",
    "bench.front",
    "bench.tables",
    "bench.unseen",
    "bench.scale_trials",
)


def reproductions() -> dict[str, Reproduction]:
    """All there are, by name."""
    return {one.name: one for home in HOMES for one in import_module(home).REPRODUCTIONS}


def main(*arguments: str) -> int:
    """Run a command; the exit status is 2 where data is missing, or the call is off."""
    command, *rest = arguments or ("--help",)
    if command == "run":
        return _run([*takewhile(lambda argument: not argument.startswith("-"), rest)], rest)
    if command == "list":
        print("\n".join(_listed()))
        return 0
    print(__doc__)
    return 0 if command in ("--help", "-h") else 2


def _listed() -> Iterator[str]:
    for one in reproductions().values():
        yield f"{one.name:<15} {one.title} ({_lasts(one.minutes)})"
        for need in one.needs:
            yield f"{'':15} {_here(need)}: {need.what}{', optional' if need.optional else ''} ({need.places})"
    yield f"\npython -m bench run NAME; results come to {RESULTS}. Times are with --processes 2, without kept runs."


def _lasts(minutes: float) -> str:
    return f"about {minutes:g} min" if minutes < 90 else f"about {minutes / 60:.0f} h"


def _here(need: Need) -> str:
    try:
        found = need.find()
    except DataMissingError:
        return f"NOT FOUND, what ${need.variable} names is not there"
    return "NOT FOUND" if found is None else f"found, {found.source}"


def _run(names: Sequence[str], arguments: list[str]) -> int:
    every = reproductions()
    chosen: dict[str, bool] = {}  # whether it was named itself, so that it must not be left out
    for name in names:
        matching = [
            one.name for one in every.values() if (one.of_paper if name == "papers" else fnmatch(one.name, name))
        ]
        if not matching:
            runs.say(f"bench: there is no reproduction {name!r}; `python -m bench list` shows them")
            return 2
        chosen |= {match: match == name for match in matching}
    _parser([every[name] for name in chosen]).parse_args(arguments)
    missing = 0
    for name, named in chosen.items():
        one = every[name]
        options, _ = _parser([one]).parse_known_args(arguments)
        try:
            data = one.find({need.flags[0]: getattr(options, _destination(need), None) for need in one.needs})
        except DataMissingError as sentence:
            runs.say(f"{name}: {sentence}" if named else f"{name} is left out: {sentence}")
            missing += named
            continue
        for need, found in zip(one.needs, data, strict=True):
            if found is not None:
                runs.say(f"{name}: {need.what}: {found.path} ({found.source})")
        given = Given(name, data, one.seeds if options.seeds is None else options.seeds, options.processes, options)
        result = one.run(given)
        one.write(result, given, options.out)
        print(result.text)
    return 2 if missing else 0


def _parser(chosen: Sequence[Reproduction]) -> argparse.ArgumentParser:
    """The options of what was chosen: those of its own for one, for several those that mean the same to all."""
    parser = argparse.ArgumentParser(prog="python -m bench run", conflict_handler="resolve")
    parser.add_argument("names", nargs="+", help="as `python -m bench list` shows them, or a pattern, or `papers`")
    parser.add_argument("--seeds", type=_count, help="how many; by default as many as the results here were made with")
    parser.add_argument("--processes", type=_count, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the results")
    needs = [need for one in chosen for need in one.needs]
    for need in needs:
        if all(need.variable == other.variable for other in needs if need.flags[0] == other.flags[0]):
            parser.add_argument(*need.flags, dest=_destination(need), help=f"{need.what} (or ${need.variable})")
    if len(chosen) == 1:
        chosen[0].options(parser)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 on is expected")
    return int(text)


def _destination(need: Need) -> str:
    return need.flags[0].strip("-").replace("-", "_")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
