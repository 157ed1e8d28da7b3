"""The map of the code in CONTRIBUTING.md leaves no module out, and names none that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fairway

ROOT = Path(__file__).parent.parent
SOURCE = Path(fairway.__file__).parent


def rows():
    """What the map says, by folder: its rows until the next folder's."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## A map of the code")[2]
    found, folder = {}, ""
    for where, what in re.findall(r"^\| (.*?) ?\| (.*) \|$", text.partition("\n## ")[0], re.MULTILINE):
        named = re.fullmatch(r"`(\w+)/`", where)
        folder = named[1] if named else "" if where else folder
        found[folder] = found.get(folder, "") + (what if folder else where)
    return found


@pytest.mark.parametrize("folder", ["", "engine", "storage", "runners"])
def test_every_module_has_its_place_on_the_map(folder):
    modules = {path.stem for path in (SOURCE / folder).glob("*.py") if not path.stem.startswith("__")}
    named = {name.removesuffix(".py") for name in re.findall(r"`([a-z_]+(?:\.py)?)`", rows()[folder])}
    assert modules - named == set()
    assert named - modules <= {"optimize"}  # a function too
