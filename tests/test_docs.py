"""Every Python block of the documentation runs, in the order in which it stands there, and prints what its page says.

What a page says is the text block right below a Python block. `python -m tests.test_docs docs/tutorial.md` writes anew
what the blocks of a page print, after a change that was meant.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block to run, and the text right below it, if there is any: what the page says it prints."""

    code: str
    said: re.Match[str] | None


def blocks(page):
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    for fence, after in zip(fences, [*fences, None][1:], strict=True):
        if fence["language"] == "python":
            below = after is not None and after["language"] == "text" and not text[fence.end() : after.start()].strip()
            yield Block(fence["body"], after if below else None)


def printed(page):
    """Run the blocks of a page in one namespace; each with what it printed."""
    names = {"__name__": page.stem}
    for block in blocks(page):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block.code, page.name, "exec", dont_inherit=True), names)
        yield block, out.getvalue()


def name(page):
    return page.relative_to(DOCS.parent).as_posix()


def needs_ray(page):
    return any(re.search(r"\bray\b", block.code) for block in blocks(page))


WITH_BLOCKS = [page for page in PAGES if list(blocks(page))]


@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if not needs_ray(page)], ids=name)
@pytest.mark.filterwarnings("ignore")
def test_the_snippets_of_a_page_run_and_print_what_it_says(page, tmp_path, monkeypatch):
    if any("optuna" in block.code for block in blocks(page)):
        pytest.importorskip("optuna").logging.set_verbosity(40)
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray Tune keeps its results
    monkeypatch.chdir(tmp_path)
    for block, out in printed(page):
        if block.said is None:
            assert len(re.findall(r"^trial \d+, step \d+$", out, re.MULTILINE)) == block.code.count("print(study.best)")
        else:
            assert out == block.said["body"]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if needs_ray(page)], ids=name)
@pytest.mark.filterwarnings("ignore")
def test_the_snippets_of_a_page_run_in_ray_and_print_what_it_says(page, tmp_path, monkeypatch, local_ray):
    test_the_snippets_of_a_page_run_and_print_what_it_says(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_snippets_for_frameworks_that_are_not_installed_here_are_python(page):
    for block in re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        compile(block, page.name, "exec")


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=name)
def test_what_a_page_links_to_is_there(page):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def write(page):
    """Have a page say what its blocks print."""
    text, moved = page.read_text(), 0
    for block, out in printed(page):
        if block.said is not None:
            start, end = (place + moved for place in block.said.span("body"))
            text, moved = text[:start] + out + text[end:], moved + len(out) - (end - start)
    page.write_text(text)


if __name__ == "__main__":
    for path in [Path(given).resolve() for given in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            write(path)
            os.chdir(DOCS)
