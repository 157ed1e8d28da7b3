"""The three strata of ACE (section 3.4): valid, invalid and not evaluated."""

from __future__ import annotations

from collections import defaultdict

from fairway.stoppers.ranks import DUST, PairRanks, Ranks


class Strata:
    """Ranks reports within their stratum, among reports of the same step (or rung).

    Valid and not evaluated reports are ranked by loss, invalid ones by violation and then by loss.
    """

    __slots__ = ("_invalid", "_unevaluated", "_valid")

    def __init__(self) -> None:
        self._valid: defaultdict[int, Ranks] = defaultdict(Ranks)
        self._invalid: defaultdict[int, PairRanks] = defaultdict(PairRanks)
        self._unevaluated: defaultdict[int, Ranks] = defaultdict(Ranks)

    def among_worst(self, share: float, step: int, loss: float, violation: float | None) -> int:
        """Add a report; the new size of its stratum if the report is among the worst floor(share * size), else 0.

        Reports that tie across that boundary are not among the worst.
        """
        if violation:
            pairs = self._invalid[step]
            rank, n = pairs.add(violation, loss), len(pairs)
        else:
            ranks = (self._unevaluated if violation is None else self._valid)[step]
            rank, n = ranks.add(loss), ranks.size
        return n if rank <= share * n + DUST else 0
