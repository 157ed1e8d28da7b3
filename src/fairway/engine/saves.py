"""The checkpoints that trials saved as files, according to the log: where each is, and what was measured there.

A checkpoint may be saved before its report or after it. So the last reports of each running trial are kept at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.engine import courses
from fairway.engine.course import checkpoint_of
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import Reported, Saved
from fairway.feasibility import Checkpoint


@dataclass(frozen=True, slots=True)
class Save:
    """One checkpoint that was saved."""

    number: int
    step: int
    path: str
    measured: Checkpoint | None = None  # what was reported at its step


class Saves:
    """The saved checkpoints, by trial and step, in the order of saving."""

    def __init__(self, saves: Iterable[Save] = (), latest: Iterable[Reported] = ()) -> None:
        self._saves: dict[int, dict[int, Save]] = {}
        self._latest = {event.number: event for event in latest}  # the last reports of each running trial
        for save in saves:
            self._saves.setdefault(save.number, {})[save.step] = save
        self.version = 0  # rises with every change

    def __len__(self) -> int:
        return sum(map(len, self._saves.values()))

    def __iter__(self) -> Iterator[Save]:
        for saves in self._saves.values():
            yield from saves.values()

    @property
    def numbers(self) -> list[int]:
        """The trials that have a saved checkpoint."""
        return [*self._saves]

    def of(self, number: int) -> list[Save]:
        """The checkpoints that a trial saved, in order."""
        return [*self._saves.get(number, {}).values()]

    def at(self, number: int, step: int) -> Save | None:
        """The checkpoint that a trial saved at a step; None if it did not."""
        return self._saves.get(number, {}).get(step)

    def path(self, number: int, step: int) -> Path | None:
        """Where a trial saved its checkpoint of a step; None if it did not."""
        save = self.at(number, step)
        return None if save is None else Path(save.path)

    def still(self) -> Saves:
        """A snapshot."""
        return Saves(self, self._latest.values())

    # What the log says

    def add(self, event: Saved) -> None:
        """Add a saved checkpoint."""
        saves = self._saves.setdefault(event.number, {})
        saves.pop(event.step, None)  # it is the latest now
        saves[event.step] = Save(event.number, event.step, event.path)
        if event.number in self._latest:
            self._match(self._latest[event.number])
        self.version += 1

    def measure(self, event: Reported) -> None:
        """Take in the reports of a running trial."""
        self._latest[event.number] = event
        if event.number in self._saves:
            self._match(event)
            self.version += 1

    def end(self, number: int) -> None:
        """Forget the reports of a trial that ended."""
        self._latest.pop(number, None)
        self.version += number in self._saves

    def remove(self, paths: Iterable[str]) -> None:
        """Remove checkpoints that were deleted."""
        gone = set(paths)
        for number in self.numbers:
            left = {step: save for step, save in self._saves[number].items() if save.path not in gone}
            self._saves[number] = left
            if not left:
                del self._saves[number]
        self.version += 1

    def _match(self, event: Reported) -> None:
        """Attach reports to the checkpoints saved at the same steps; a late check replaces the earlier report."""
        saves = self._saves[event.number]
        for i, step in enumerate(event.step.tolist()):
            if step in saves:
                saves[step] = Save(event.number, step, saves[step].path, checkpoint_of(event, i))

    # As JSON

    def to_json(self) -> list[Any]:
        """Plain values, for a snapshot."""
        saves = [[save.number, save.step, save.path, save.measured] for save in self]
        return [saves, [to_json(event) for event in self._latest.values()]]

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> Saves:
        """The saves that `to_json` wrote."""
        saves = [
            Save(number, step, path, measured and courses.checkpoint(measured))
            for number, step, path, measured in plain[0]
        ]
        latest = [event for event in map(from_json, plain[1]) if isinstance(event, Reported)]
        return cls(saves, latest)
