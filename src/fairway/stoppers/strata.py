"""The three groups of ACE (section 3.4), each ranked apart: valid, invalid, not evaluated."""

from __future__ import annotations

from collections import defaultdict

from fairway.stoppers.ranks import DUST, PairRanks, Ranks


class Strata:
    """Reports ranked within their stratum, among reports of the same step (or rung).

    Valid and not evaluated ones by loss; invalid ones by violation, the loss breaking ties.
    """

    __slots__ = ("_invalid", "_unevaluated", "_valid")

    def __init__(self) -> None:
        self._valid: defaultdict[int, Ranks] = defaultdict(Ranks)
        self._invalid: defaultdict[int, PairRanks] = defaultdict(PairRanks)
        self._unevaluated: defaultdict[int, Ranks] = defaultdict(Ranks)

    def among_worst(self, share: float, step: int, loss: float, violation: float | None) -> int:
        """Add a report; the size of its stratum if it is among the worst floor(share * size), else 0.

        The size counts this report; a tie is never worse than the cut.
        """
        if violation:
            pairs = self._invalid[step]
            rank, n = pairs.add(violation, loss), len(pairs)
        else:
            ranks = (self._unevaluated if violation is None else self._valid)[step]
            rank, n = ranks.add(loss), len(ranks)
        return n if rank <= share * n + DUST else 0
