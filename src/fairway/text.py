"""Text that came from elsewhere, on its way to a terminal."""

from __future__ import annotations


def shown(text: object, most: int = 300) -> str:
    r"""What could move a cursor or change colours is spelled out, what is endless is cut.

    >>> shown("red: " + chr(27) + "[31m")
    'red: \\x1b[31m'
    """
    plain = str(text)
    plain = plain if len(plain) <= most else f"{plain[: most - 3]}..."
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in plain)
