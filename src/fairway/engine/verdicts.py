"""The terminator's part in a study: when it is asked, what it said, and whose verdicts count for this owner."""

from __future__ import annotations

import threading
import time

import numpy as np

from fairway.engine.events import Judged
from fairway.engine.journal import Journal
from fairway.errors import UsageError
from fairway.terminators.terminator import Terminator, Verdict


class Verdicts:
    """Asks the terminator of one owner, and writes its verdicts; without a terminator it does nothing."""

    def __init__(self, terminator: Terminator | None, journal: Journal) -> None:
        self._terminator, self._journal = terminator, journal
        self._judging = threading.Lock()  # one verdict at a time

    def ask(self) -> Verdict | None:
        """Ask the terminator about the trials that have finished, and write its verdict; None if it is not asked."""
        terminator, journal = self._terminator, self._journal
        if terminator is None:
            return None
        if not self._judging.acquire(blocking=False):
            time.sleep(0)  # lets the thread that judges take the lock: very short trials would keep it for themselves
            return None
        try:
            with journal.lock:
                history, seen = journal.ledger.history(), journal.position
                last = next((said for said in reversed(journal.ledger.verdicts) if self._is_mine(said)), None)
            if last is not None and len(history) < last.finished + terminator.pause(last.finished):
                return None
            verdict = terminator.check(history.first(len(history)).aimed({}))  # running trials must not matter
            if not isinstance(verdict, Verdict) or not isinstance(verdict.stop, bool | np.bool_):
                raise UsageError(f"{terminator!r} said {verdict!r}: a Verdict(stop, reason, ...) is expected")
            reason = str(verdict.reason) or "the terminator said so"
            verdict = Verdict(bool(verdict.stop), reason, float(verdict.value), float(verdict.threshold))
            journal.append(Judged(journal.referee.worker, len(history), *verdict, journal.clock.at(), seen))
            journal.follow()
        finally:
            self._judging.release()
        return verdict

    def since(self, first: int) -> list[Judged]:
        """The verdicts of this terminator, or of another owner's equal one, after the log's first `first` verdicts."""
        return [said for said in self._journal.ledger.verdicts[first:] if self._is_mine(said)]

    def _is_mine(self, said: Judged) -> bool:
        """Whether a verdict comes from a terminator equal to this one."""
        terminators = self._journal.ledger.terminators
        return bool(terminators.get(said.worker) == terminators[self._journal.referee.worker])
