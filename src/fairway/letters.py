"""Texts that came from elsewhere, made harmless: none moves a cursor, changes colours or turns a line around."""

from __future__ import annotations


def plain(text: str, *, keep: str = "") -> str:
    r"""The text with what is not printable escaped: control characters, marks of direction, halves of characters.

    >>> plain("red: " + chr(27) + "[31m"), plain(chr(0x202E) + "fdp.exe")
    ('red: \\x1b[31m', '\\u202efdp.exe')
    """
    if text.isprintable():
        return text
    escaped = (
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )
    return "".join(escaped)
