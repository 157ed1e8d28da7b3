"""The owner's part in saved checkpoints: it says where a trial saves, and deletes what is no longer worth keeping.

It deletes only in its own folder, only what has a name that fairway gave, and only what the log says was saved or what
a killed trial left behind.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from fairway.engine.events import Removed, Saved
from fairway.engine.journal import Journal
from fairway.engine.keep import Keep, kept, resumable
from fairway.engine.saver import Place, Saver, delete, name_of, there
from fairway.engine.saves import Save
from fairway.logs import logger


class Keeper:
    """Keeps the checkpoints of a study in this process."""

    def __init__(self, journal: Journal, keep: Keep, beside: Path | None) -> None:
        self._journal, self.keep = journal, keep
        default = Path("fairway-checkpoints") if beside is None else beside.with_name(f"{beside.stem}-checkpoints")
        self._folder = (default if keep.folder is None else Path(keep.folder).expanduser()).resolve()
        self._token = secrets.token_hex(4)
        self._lock = threading.Lock()  # one thread deletes at a time
        self._seen = -1  # the version of the saves that was looked at last
        self._failed = 0  # trials that had failed by then
        self._told = set[str]()  # kinds of trouble that were logged

    def path(self, number: int, step: int) -> Path | None:
        """Where the checkpoint of a trial's step is; None if it was not saved, or is gone."""
        save = self._journal.ledger.saves.at(number, step)
        return None if save is None else there(save.path, self._folder)

    def place(self, number: int) -> Place:
        """Where a trial saves, and the checkpoints that it may continue, except one of its last step."""
        with self._journal.lock:
            ledger = self._journal.ledger
            saves = resumable(ledger, number)
            totals = {save.number: ledger.courses[save.number].total for save in saves}
        found = [(save.step, save.path) for save in saves if save.step < (totals[save.number] or save.step + 1)]
        return Place(str(self._folder), self._token, found)

    def saver(self, number: int) -> Saver:
        """A saver for a trial of this process."""

        def saved(step: int, path: str) -> None:
            self._journal.post(Saved(number, step, path, self._journal.clock.at()))
            self.tidy()

        return Saver(number, self.place(number), saved, self.warn)

    def warn(self, trouble: str) -> None:
        """Log a warning about a disk that fails, once for each kind of trouble."""
        kind = trouble.partition("(")[0]
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("%s", trouble)

    def tidy(self) -> None:
        """Delete what is no longer worth keeping. Do not call this while you hold the journal's lock."""
        ledger = self._journal.ledger
        if ledger.saves.version == self._seen:
            return
        with self._lock:
            with self._journal.lock:
                self._seen, saves = ledger.saves.version, list(ledger.saves)
                wanted = kept(ledger.problem, ledger, self.keep.best)
                running, failed = {*ledger.running, *ledger.queue.revivable}, ledger.counts["failed"]
            gone = [save.path for save in saves if save.path not in wanted and self._is_deleted(save.path)]
            if failed != self._failed and self._sweep(saves, running):
                self._failed = failed
            if gone:
                self._journal.post_later(Removed(gone))

    def _sweep(self, saves: Sequence[Save], running: Collection[int]) -> bool:
        """Delete what killed trials left behind, half-written or not in the log; return whether nothing is left."""
        known = {Path(save.path).name for save in saves}
        ours = {name_of(save.path) for save in saves}
        pairs = {(name.number, name.token) for name in ours if name is not None}
        try:
            found = [*self._folder.iterdir()]
        except OSError:
            return True
        left = False
        for path in found:
            name = name_of(path)
            if name is None or path.name in known:
                continue
            if name.token == self._token or (name.number, name.token) in pairs:
                left = left or name.number in running or not self._is_deleted(str(path))
        return not left

    def _is_deleted(self, path: str) -> bool:
        """Delete a checkpoint if it is one of ours and in our folder; return whether it was deleted."""
        place = there(path, self._folder)
        if place is None or name_of(place) is None or place.parent.resolve() != self._folder.resolve():
            return False
        try:
            delete(place)
        except OSError as error:
            self.warn(f"a checkpoint that is no longer needed could not be deleted ({error}); the search goes on")
            return False
        return True
