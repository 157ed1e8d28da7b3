"""Every Python block of the documentation runs, in the order in which it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def blocks(name):
    return re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore")
def test_the_snippets_of_the_migration_page_run(tmp_path, monkeypatch, capsys):
    optuna = pytest.importorskip("optuna")
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray Tune keeps its results
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ray.shutdown()
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    names = {"__name__": "migrate"}
    ran = blocks("migrate.md")
    assert len(ran) == 9
    try:
        for block in ran:
            exec(compile(block, "migrate.md", "exec"), names)
            if isinstance(names.get("study"), optuna.Study):
                names.setdefault("optuna_study", names["study"])
    finally:
        ray.shutdown()
    printed = capsys.readouterr().out
    assert printed.count("Best(number=") == 3
