"""Every Python block of the documentation runs, in the order in which it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import shut_ray_down

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore")
def test_the_snippets_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    found = blocks(page)
    if any("optuna" in block for block in found):
        pytest.importorskip("optuna").logging.set_verbosity(40)
    if any(re.search(r"\bray\b", block) for block in found):
        ray = pytest.importorskip("ray")
        ray.shutdown()
        ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray Tune keeps its results
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    try:
        for block in found:
            exec(compile(block, page.name, "exec"), names)
    finally:
        shut_ray_down()
    printed = sum(block.count("print(study.best)") for block in found)
    assert capsys.readouterr().out.count("Best(number=") == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_for_frameworks_that_are_not_installed_here_are_python(page):
    for block in re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        compile(block, page.name, "exec")


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link
