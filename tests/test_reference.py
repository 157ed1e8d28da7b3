"""The reference can be read in the repository: below each directive of the site stands what the code says of itself.

`python -m tests.test_reference` writes it anew. The site leaves it out, and shows the directive's own page instead.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parent.parent / "docs" / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"<!-- ::: (?P<path>[\w.]+)\n(?P<options>.*?)-->\n(?P<said>.*?)<!-- end -->\n", re.DOTALL)


PLAIN = re.compile(r"^::: ([\w.]+)\n((?:[ \t]+.*\n)*)", re.MULTILINE)


def rewritten(text):
    """A page with what the code says now; a plain directive of the site gets its comment."""
    text = PLAIN.sub(r"<!-- ::: \1\n\2-->\n<!-- end -->\n", text)
    return DIRECTIVE.sub(lambda found: f"{_directive(found)}{_said(found)}<!-- end -->\n", text)


def _directive(found):
    return f"<!-- ::: {found['path']}\n{found['options']}-->\n"


def _said(found):
    thing = _resolved(found["path"])
    lines = [_line(f"**`{found['path']}{_signature(thing)}`**", thing)]
    listed = re.search(r"members:\s*(\[.*?\]|(?:\n\s+- \w+)+)", found["options"])
    members = re.findall(r"\w+", listed[1]) if listed else []
    lines += ["", *(_line(f"- `{name}{_signature(member)}`", member) for name, member in _members(thing, members))]
    return "\n" + "\n".join(lines).rstrip() + "\n\n"


def _members(thing, names):
    for name in names:
        member = inspect.getattr_static(thing, name, None)  # None: set when one is made
        yield name, getattr(member, "__func__", member)


def _resolved(path):
    home, parts = path, []
    while True:
        try:
            found = importlib.import_module(home)
            break
        except ModuleNotFoundError:
            home, _, last = home.rpartition(".")
            parts.insert(0, last)
    for part in parts:
        found = getattr(found, part)
    return found


def _signature(thing):
    """The arguments and their defaults; empty for what is not called."""
    if not callable(thing):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    named = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in signature.parameters.values()
        if one.name != "self" and (one.name == "_" or not one.name.startswith("_"))
    ]
    shown = str(signature.replace(parameters=named, return_annotation=inspect.Signature.empty))
    shown = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", shown)
    return re.sub(r"<factory>|<[^>]* at 0x\w+>|<function \w+[^>]*>", "...", shown)


def _line(label, thing):
    if isinstance(thing, property):
        thing = thing.fget
    documented = None if thing is None or isinstance(thing, str | int | float) else inspect.getdoc(thing)
    first = (documented or "").split("\n\n")[0].replace("\n", " ")
    indent = "  " if label.startswith("- ") else ""
    said = f"{label}: {first}" if first else label
    return textwrap.fill(said, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_reference_says_what_the_code_says(page):
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run python -m tests.test_reference"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
