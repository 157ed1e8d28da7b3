"""What everything looks like, once: a role has one colour, one symbol and one dash in every picture.

The colours are of medium lightness, so that each has a contrast of at least 3:1 to white and to near-black, and the
colour-blind can tell them apart (Okabe and Ito's blue, vermillion and green, with grey and two more).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Role: TypeAlias = Literal["valid", "invalid", "not evaluated", "best", "limit", "failed", "plain", "other"]
"""What a mark stands for."""
Symbol: TypeAlias = Literal["circle", "cross", "ring", "star", "square", "triangle"]
Dash: TypeAlias = Literal["solid", "dash", "dot"]


class Look(NamedTuple):
    """How a role is drawn."""

    colour: str
    symbol: Symbol
    dash: Dash


LOOK: dict[Role, Look] = {
    "valid": Look("#0d7fc2", "circle", "solid"),
    "invalid": Look("#d55e00", "cross", "dash"),
    "not evaluated": Look("#858585", "ring", "dot"),
    "best": Look("#009e73", "star", "solid"),
    "limit": Look("#c2408c", "square", "dash"),
    "failed": Look("#a3654f", "triangle", "dot"),
    "plain": Look("#0d7fc2", "circle", "solid"),
    "other": Look("#8a6fc7", "square", "dash"),
}
FILLED = ("circle", "star")  # symbols without an outline
FEW_DECADES = 1.5  # a log axis that spans fewer has names between the powers of ten
NAME, TICK = 60, 24  # letters, at most, of a title or a name, and of a tick


def grid(panels: int) -> tuple[int, int]:
    """The rows and columns in which panels are arranged."""
    columns = min(panels, 3) if panels != 4 else 2  # noqa: PLR2004
    return (-(-panels // columns), columns) if panels else (1, 1)
