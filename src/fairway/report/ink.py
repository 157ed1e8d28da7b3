"""What everything looks like, once: a role has one colour, one symbol and one dash in every picture.

The colours are of middling lightness, so that each stands out at 3:1 or more from white and from near-black, and apart
from each other for the colour-blind (Okabe and Ito's blue, vermillion and green, with grey and two more).
"""

from __future__ import annotations

from fairway.report.marks import Dash, Role, Symbol

COLOUR: dict[Role, str] = {
    "valid": "#0d7fc2",
    "invalid": "#d55e00",
    "not evaluated": "#858585",
    "best": "#009e73",
    "limit": "#c2408c",
    "failed": "#a3654f",
    "plain": "#0d7fc2",
    "other": "#8a6fc7",
}
SYMBOL: dict[Role, Symbol] = {
    "valid": "circle",
    "invalid": "cross",
    "not evaluated": "ring",
    "best": "star",
    "limit": "square",
    "failed": "triangle",
    "plain": "circle",
    "other": "square",
}
DASH: dict[Role, Dash] = {
    "valid": "solid",
    "invalid": "dash",
    "not evaluated": "dot",
    "best": "solid",
    "limit": "dash",
    "failed": "dot",
    "plain": "solid",
    "other": "dash",
}
FEW_DECADES = 1.5
"""A log axis that spans fewer has names between the powers of ten."""


def columns(panels: int) -> int:
    """How many panels stand side by side."""
    return panels if panels <= 3 else 2 if panels == 4 else 3  # noqa: PLR2004


def height(panels: int) -> int:
    """How many pixels a picture of so many panels is high, unless it says so itself."""
    rows = -(-panels // columns(panels)) if panels else 1
    return 400 if rows == 1 else 270 * rows
