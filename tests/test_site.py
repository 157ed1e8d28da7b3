"""The documentation's site builds without a warning, shows every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fairway as fw

ROOT = Path(__file__).parent.parent
LOADS = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href", "object": "data"}
MODULES = ["fairway", "fairway.constraints", "fairway.evidence"]
MODULES += [f"fairway.integrations.{name}" for name in ("lightgbm", "xgboost", "sklearn", "optuna", "raytune")]


class Page(HTMLParser):
    """What a page loads by itself, and the names that one may link to."""

    def __init__(self, file):
        super().__init__()
        self.loads, self.names, self.diagrams = [], set(), False
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names.add(given.get("id"))
        self.diagrams = self.diagrams or "mermaid" in (given.get("class") or "")
        if given.get(LOADS.get(tag)):
            self.loads.append(given[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    if not (ROOT / "mkdocs.yml").is_file():
        pytest.skip("the tests came without the documentation")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    made = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {file: Page(file) for file in site.rglob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for file, page in pages.items():
        for address in page.loads:
            assert not re.match(r"(\w+:)?//", address), f"{file.name} loads {address}"
        assert not page.diagrams, f"{file.name} has a diagram, whose renderer the theme would load from elsewhere"
    for style in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import\s)\s*[\"']?([^\"')\s]+)", style.read_text(encoding="utf-8")):
            assert not re.match(r"(https?:)?//", address), f"{style.name} loads {address}"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(pages, module):
    names = set().union(*(page.names for page in pages.values()))
    public = fw.__all__ if module == "fairway" else pytest.importorskip(module).__all__
    missing = [name for name in public if f"{module}.{name}" not in names]
    assert not missing


@pytest.mark.parametrize("kind", [fw.Study, fw.Trial], ids=lambda kind: kind.__name__)
def test_what_a_user_holds_in_hand_is_all_in_the_reference(pages, kind):
    names = set().union(*(page.names for page in pages.values()))
    slots = getattr(kind, "__slots__", ())
    public = [name for name in vars(kind) if not name.startswith("_") and name not in slots and hasattr(kind, name)]
    assert [name for name in public if f"fairway.{kind.__name__}.{name}" not in names] == []


def test_measured_results_and_examples_are_pages(pages, site):
    there = {file.relative_to(site).as_posix() for file in pages}
    for kind, found in {"benchmarks": "bench/results/*.md", "examples": "examples/*.py"}.items():
        assert {f"{kind}/{file.stem}.html" for file in ROOT.glob(found) if file.stem != "README"} <= there
    assert "benchmarks/speed.html" in there
    assert (site / "benchmarks" / "termination.png").is_file()


def test_the_commands_say_what_they_do(site):
    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for name in ("run", "demo", "list", "show", "verify", "export", "delete", "report", "dashboard", "version"):
        assert f'id="fairway-{name}"' in text
