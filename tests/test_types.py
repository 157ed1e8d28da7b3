"""What a type checker says of a user's code: nothing, where it is right, and something, where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

import fairway as fw

USER = """
import fairway as fw
import pandas as pd
import polars as pl

def train(trial: fw.Trial) -> dict[str, float]:
    twice: float = trial.params["x"] * 2
    rounds: int = trial.int("depth") * 2
    named: str = trial.str("booster").upper()
    rate: float = trial.float("x") / 3
    deep: bool = trial.bool("deep") and rounds > 4
    return {"loss": twice + rate, "size": float(rounds + len(named) + deep)}

space = fw.Space(
    {
        "x": fw.Float(0.0, 1.0),
        "depth": [fw.Int(2, 8, when={"booster": "gbdt"}), fw.Int(2, 16)],
        "booster": fw.Choice(["gbdt", "dart"]),
        "deep": fw.Choice([True, False], when=lambda params: params["depth"] > 6),
    }
)
study = fw.Study(space, fw.Minimize("loss"), [fw.AtMost("size", 20.0)], seed=0)
study.optimize(train, trials=3)
frame: pd.DataFrame = study.to_frame()
table: pl.DataFrame = study.to_frame("polars")
means: float = float(frame["metric.loss"].mean())
best = study.best
if best is not None:
    doubled: float = best.params["x"] * 2
    loss: float = best.objective + 1.0
for trial in study.trials:
    again: float = trial.params["x"] ** 2
"""
WRONG = """
import fairway as fw

def train(trial: fw.Trial) -> str:
    return trial.int("depth")

def tune(study: fw.Study, trial: fw.Trial) -> None:
    study.optimize(train, n_trials=30)
    trial.suggest_float("x", 0.0, 1.0)
"""


CONFIG = """
[mypy]
strict = True
follow_imports = silent

[mypy-numpy.*,pandas.*,polars.*,pyarrow.*,scipy.*,sqlalchemy.*]
follow_imports = skip
follow_imports_for_stubs = True
"""  # what they say of themselves takes minutes to check


def test_a_users_code_passes_strict_mypy_and_a_mistake_in_it_does_not(tmp_path, monkeypatch):
    for name, text in (("mypy.ini", CONFIG), ("user.py", USER), ("wrong.py", WRONG)):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("MYPYPATH", str(Path(fw.__file__).parent.parent))
    monkeypatch.chdir(tmp_path)
    said, errors, _ = api.run(["--config-file=mypy.ini", "user.py", "wrong.py"])
    assert not errors
    mistake, argument, attribute = (line for line in said.splitlines() if ": error: " in line)
    assert 'Unexpected keyword argument "n_trials" for "optimize" of "Study"' in argument
    assert '"Trial" has no attribute "suggest_float"' in attribute
    assert mistake.startswith('wrong.py:5: error: Incompatible return value type (got "int", expected "str")')


@pytest.fixture
def trial():
    space = {"n": fw.Int(1, 9), "x": fw.Float(0.0, 1.0), "kind": fw.Choice(["a"]), "on": fw.Choice([True])}
    study = fw.Study(space, fw.Minimize("loss"), seed=0)
    study.enqueue({"n": 3, "x": 0.5, "kind": "a", "on": True})
    return study.ask()


def test_parameters_come_with_their_types(trial):
    assert (trial.int("n"), trial.float("x"), trial.float("n"), trial.str("kind"), trial.bool("on")) == (
        3, 0.5, 3.0, "a", True
    )  # fmt: skip
    assert isinstance(trial.float("n"), float)


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("int", "x", "trial 0: 'x' is 0.5, not a whole number"),
        ("int", "on", "'on' is True, not a whole number"),
        ("float", "kind", "'kind' is 'a', not a number"),
        ("str", "n", "'n' is 3, not a text"),
        ("bool", "n", "'n' is 3, not True or False"),
        ("int", "depth", "trial 0 has no parameter 'depth': it has 'n', 'x', 'kind', 'on'"),
    ],
)
def test_another_kind_of_parameter_gets_a_sentence(trial, kind, name, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        getattr(trial, kind)(name)


def test_tables_of_every_library_hold_the_same():
    space = {"kind": fw.Choice([1, "b"]), "n": [fw.Int(1, 9, when={"kind": 1}), fw.Float(0.0, 1.0)]}
    study = fw.Study(space, fw.Minimize("loss"), sampler=fw.Random(), seed=0)

    def evaluate(trial):
        trial.note(test_auc=0.5, curve=[1, 2])
        return trial.params["n"]

    assert (len(study.to_frame()), study.to_frame("polars").height, study.to_frame("pyarrow").num_rows) == (0, 0, 0)
    study.optimize(evaluate, trials=12, progress=False)
    plain, polars, arrow = (study.to_frame(library) for library in ("pandas", "polars", "pyarrow"))
    assert [*plain.reset_index()] == polars.columns == arrow.column_names
    assert polars["param.n"].to_list() == arrow["param.n"].to_pylist() == [float(n) for n in plain["param.n"]]
    assert polars["param.kind"].to_list() == [str(kind) for kind in plain["param.kind"]]
    assert polars["note.test_auc"].to_list() == [0.5] * 12
    with pytest.raises(fw.UsageError, match="'pandas', 'polars' or 'pyarrow' is expected"):
        study.to_frame("duckdb")
