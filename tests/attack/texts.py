"""Texts as an attacker, a careless colleague or a broken program might send them, and what no output may hold."""

from __future__ import annotations

import os
import re

from hypothesis import strategies as st

ATTACKS = int(os.environ.get("FAIRWAY_ATTACKS", "6"))
"""Draws of each property; `make faults` asks for many."""

TEXTS = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\x00b",
    "over\rwritten",
    "two\nlines",
    "back\x08\x7f",
    "</script><script>window.ran=1</script>",
    "<img src=x onerror=alert(1)>",
    "'\"><svg onload=alert(1)>",
    "\u202egnp.exe",
    "\u2066hidden\u2069\u200b\ufeff",
    "\u2028\u2029\x85",
    "half \udc80 and \ud800",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "[red]rich[/red]",
    "[/]",
    "[link=http://x]y[/link]",
    "| a | b |\n|---|---|",
    "${jndi:ldap://x}",
    "%s %d %n {0} {name} $name",
    "data: x\n\nevent: reset\n\n",
    "x" * 3000,
    "日本語 العربية",
    " ",
    "'; DROP TABLE fairway_event; --",
]
"""A name or a message each."""

hostile = st.sampled_from(TEXTS) | st.text(
    alphabet=st.characters(codec=None, exclude_categories=()), min_size=1, max_size=30
)

_MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def is_plain(text: str) -> bool:
    """Whether a terminal shows the text as it is: nothing moves the cursor, colours or turns it around."""
    return _MOVES.search(text) is None
