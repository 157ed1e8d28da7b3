"""Makes text from elsewhere harmless: it cannot move a cursor, change colours or reverse a line."""

from __future__ import annotations


def plain(text: str, *, keep: str = "") -> str:
    r"""The text with unprintable characters escaped: control characters, direction marks, lone surrogates.

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
