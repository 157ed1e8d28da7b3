"""Another range in each branch, and conditions that are functions: in the cube, in every sampler, in a log, and out."""

from __future__ import annotations

import json
import math

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.identity import Identity
from fairway.engine.verify import verify
from fairway.integrations.optuna import from_optuna, to_optuna
from fairway.report import plots
from fairway.report.content import configuration
from fairway.report.view import View


def is_deep(params):
    return params["depth"] > 6


BRANCHES = {
    "booster": fw.Choice(["gbdt", "dart", "goss"]),
    "depth": [fw.Int(2, 8, when={"booster": "gbdt"}), fw.Int(2, 16, when={"booster": "dart"}), fw.Int(20, 30)],
    "leaves": [fw.Float(0.1, 1.0, when=is_deep), fw.Choice(["few", "many"], when={"booster": "gbdt"})],
    "drop": fw.Float(0.0, 0.5, when={"depth": [3, 25]}),
}
SPACE = fw.Space(BRANCHES)


def evaluate(trial):
    return {"loss": trial.params["depth"] / 30 + trial.params.get("drop", 1.0), "size": trial.params["depth"]}


@given(st.lists(st.floats(0.0, 1.0), min_size=7, max_size=7))
def test_the_first_branch_that_holds_gives_the_range_and_comes_back(x):
    params = SPACE.decode(x)
    low, high = {"gbdt": (2, 8), "dart": (2, 16), "goss": (20, 30)}[params["booster"]]
    assert low <= params["depth"] <= high
    assert isinstance(params.get("leaves"), float) == (params["depth"] > 6)
    assert (params.get("leaves") in ("few", "many")) == (params["booster"] == "gbdt" and params["depth"] <= 6)
    assert ("drop" in params) == (params["depth"] in (3, 25))
    encoded = SPACE.encode(params)
    assert SPACE.decode(encoded) == params
    snapped = SPACE.snap(np.array([x]))[0]
    np.testing.assert_allclose(SPACE.encode(SPACE.decode(np.nan_to_num(snapped, nan=0.5))), encoded, atol=1e-9)
    assert (np.isnan(snapped) == np.isnan(encoded)).all()


def test_each_branch_has_a_coordinate_that_says_when_it_holds():
    assert list(SPACE) == [
        "booster",
        "depth[booster=gbdt]",
        "depth[booster=dart]",
        "depth[else]",
        "leaves[is_deep]",
        "leaves[booster=gbdt]",
        "drop",
    ]
    assert SPACE.names == ("booster", "depth", "leaves", "drop")
    assert fw.Space(SPACE) == SPACE
    assert SPACE.active({"booster": "dart", "depth": 3, "drop": 0.1})["depth"] == "depth[booster=dart]"
    several = fw.Space(
        {"n": fw.Int(1, 9), "x": [fw.Int(1, 2, when=lambda p: p["n"] > 5), fw.Int(3, 4, when=lambda _: True)]}
    )
    assert list(several) == ["n", "x[<lambda>]", "x[<lambda> 2]"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fw.Space({"x": []}), "a Float, Int or Choice is expected, or a list of them with when="),
        (lambda: fw.Space({"x": [fw.Int(0, 1), fw.Int(0, 2)]}), "which always holds: put it last"),
        (
            lambda: fw.Space({"a": fw.Int(0, 1, when=is_deep), "b": fw.Int(0, 1, when={"a": 1})}).decode([0.5, 0.5]),
            "its condition is_deep raised KeyError('depth') for {}; it sees the active parameters",
        ),
        (lambda: fw.Space({"a": fw.Int(0, 1, when=lambda _: None)}).decode([0.5]), "returned None: True or False"),
        (
            lambda: fw.Space({"a": fw.Int(0, 1, when={"b": 1}), "b": fw.Int(0, 1, when=lambda _: True)}),
            "form a cycle",
        ),
        (
            lambda: SPACE.check({"booster": "gbdt", "depth": 12}),
            "'depth[booster=gbdt]': 12: a whole number from 2 to 8",
        ),
        (
            lambda: SPACE.check({"booster": "goss", "depth": 22, "leaves": 0.5, "drop": 0.1}),
            "active only when {'depth': [3, 25]}",
        ),
        (
            lambda: SPACE.check({"booster": "dart", "depth": 4, "leaves": 0.5}),
            "'leaves' is active only when is_deep holds or {'booster': 'gbdt'}",
        ),
        (
            lambda: fw.Space(
                {"b": fw.Choice([1]), "x": [fw.Int(0, 1, when={"b": 1}), fw.Int(0, 2)], "x[else]": fw.Int(0, 1)}
            ),
            "'x[else]' is a name, and a branch of another",
        ),
    ],
)
def test_what_is_wrong_gets_one_sentence(make, sentence):
    with pytest.raises(fw.UsageError) as caught:
        make()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sampler", [fw.Random(), fw.TPE(5), fw.CTPE(5), fw.GP(5), fw.BORE(5), fw.Blend()])
def test_every_sampler_stays_inside_the_branches(sampler):
    study = fw.Study(BRANCHES, fw.Minimize("loss"), [fw.AtMost("size", 12)], sampler=sampler, seed=0)
    study.optimize(evaluate, trials=14)
    assert all(study.space.check(record.params) == record.params for record in study.trials)
    assert len({tuple(record.params.items()) for record in study.trials}) == 14


def test_a_small_space_with_branches_is_searched_to_its_end():
    space = {"kind": fw.Choice(["ab", "x"]), "n": [fw.Int(1, 2, when={"kind": "x"}), fw.Int(5, 7)]}
    study = fw.Study(space, fw.Minimize("loss"), seed=0)
    study.optimize(lambda trial: trial.params["n"], trials=50)
    assert sorted((record.params["kind"], record.params["n"]) for record in study.trials) == [
        ("ab", 5), ("ab", 6), ("ab", 7), ("x", 1), ("x", 2)
    ]  # fmt: skip


class TestTheLog:
    def study(self, tmp_path, space=None, **settings):
        url = f"sqlite:///{tmp_path / 'study.db'}"
        limits = [fw.AtMost("size", 12)]
        return fw.Study(space or BRANCHES, fw.Minimize("loss"), limits, storage=url, **settings)

    def test_it_keeps_branches_and_the_names_of_functions_and_no_code(self, tmp_path):
        study = self.study(tmp_path, seed=0)
        stored = study.owner.identity.to_json()
        assert [part["high"] for part in stored["space"]["depth"]] == [8, 16, 30]
        assert stored["space"]["leaves"][0]["when"] == "is_deep"
        again = Identity.from_json(json.loads(json.dumps(stored)))
        assert again.to_json() == stored
        with pytest.raises(fw.UsageError, match="only names the condition 'is_deep': to search on, open the study"):
            again.space.decode(np.full(7, 0.5))

    def test_a_study_resumes_with_its_space(self, tmp_path):
        self.study(tmp_path, seed=0).optimize(evaluate, trials=8)
        again = self.study(tmp_path)
        again.optimize(evaluate, trials=4)
        whole = fw.Study(BRANCHES, fw.Minimize("loss"), [fw.AtMost("size", 12)], seed=0)
        whole.optimize(evaluate, trials=12)
        assert [record.params for record in again.trials] == [record.params for record in whole.trials]

    def test_another_function_is_refused_by_its_name_or_by_the_trials(self, tmp_path):
        self.study(tmp_path, seed=0).optimize(evaluate, trials=8)

        def is_shallow(params):
            return params["depth"] <= 6

        other = {**BRANCHES, "leaves": [fw.Float(0.1, 1.0, when=is_shallow), BRANCHES["leaves"][1]]}
        with pytest.raises(
            fw.UsageError, match="leaves when 'is_deep' there, 'is_shallow' here; give this one another"
        ):
            self.study(tmp_path, other)
        is_shallow.__name__ = "is_deep"
        with pytest.raises(
            fw.StorageError, match=r"trial \d of the log does not fit .* not the one that the study began"
        ):
            self.study(tmp_path, other)

    def test_whoever_looks_needs_no_code(self, tmp_path):
        study = self.study(tmp_path, seed=0, terminator=fw.RegretBound(0.001))
        study.optimize(evaluate, trials=25)
        view = View(study)
        assert view.space.has_stored
        assert [record.params for record in view.trials] == [record.params for record in study.trials]
        result = verify(study.log.read())
        assert not result.faults
        assert result.rulings
        assert result.unchecked == len(study.verdicts)
        shown = configuration(view, study.best.number)["parameters"]
        assert [part["name"] for part in shown] == list(study.best.params)
        for chart in (plots.slices, plots.parallel, plots.importance):
            assert chart(view).panels


def test_a_branch_is_drawn_by_its_own_range_and_exported_by_its_name():
    study = fw.Study(BRANCHES, fw.Minimize("loss"), [fw.AtMost("size", 12)], sampler=fw.Random(), seed=0)
    study.optimize(evaluate, trials=40)
    panels = {panel.x.title: panel for panel in plots.slices(study).panels}
    for title, low, high in (("depth[booster=gbdt]", 2, 8), ("depth[else]", 20, 30)):
        x = np.concatenate([mark.x for mark in panels[title].marks])
        assert x.min() >= low
        assert x.max() <= high
    frame = study.to_frame()
    assert [name for name in frame if name.startswith("param.")] == [
        "param.booster", "param.depth", "param.leaves", "param.drop"
    ]  # fmt: skip
    assert frame["param.depth"].notna().all()


def test_branches_go_to_optuna_and_come_back():
    space = {
        "kind": fw.Choice(["a", "b"]),
        "n": [fw.Int(1, 5, when={"kind": "a"}), fw.Int(3, 9)],
        "how": [fw.Choice(["u", "v"], when={"kind": "a"}), fw.Choice(["v", "w"])],
        "x": fw.Float(0.0, 1.0, when=lambda params: params["n"] > 4),
    }
    ours = fw.Study(space, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    ours.optimize(lambda trial: trial.params["n"] + trial.params.get("x", 0.0), trials=20)
    theirs = to_optuna(ours)
    again = from_optuna(theirs, metric="loss", space=space, seed=0)
    assert [record.params for record in again.trials] == [record.params for record in ours.trials]
    found = from_optuna(theirs).space  # as far as the trials show it
    assert {part.when["kind"]: (part.low, part.high) for part in found.declared["n"]} == {"a": (1, 5), "b": (3, 9)}
    assert found["x"].when == {"n": [5, 6, 7, 8, 9]}
    with pytest.raises(fw.UsageError, match=r"trial \d of the Optuna study does not fit the space: "):
        from_optuna(theirs, space={**space, "n": fw.Int(1, 4)})
    mixed = {"kind": fw.Choice(["a", "b"]), "n": [fw.Int(1, 5, when={"kind": "a"}), fw.Float(0.0, 1.0)]}
    with pytest.raises(fw.UsageError, match="branches of several kinds, which Optuna does not hold"):
        to_optuna(fw.Study(mixed, fw.Minimize("loss"), seed=0))


def test_a_conditional_optuna_study_is_carried_over_by_a_declared_space():
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        booster = trial.suggest_categorical("booster", ["gbdt", "dart"])
        return trial.suggest_int("depth", 2, 8 if booster == "gbdt" else 16)

    theirs = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    theirs.optimize(objective, n_trials=10)
    space = {"booster": fw.Choice(["gbdt", "dart"]), "depth": [fw.Int(2, 8, when={"booster": "gbdt"}), fw.Int(2, 16)]}
    ours = from_optuna(theirs, space=space, seed=0)
    assert ours.best.metrics["value"] == theirs.best_value
    assert math.isfinite(ours.best.params["depth"])


def test_a_condition_on_a_value_that_no_branch_has_names_what_each_has():
    branches = [fw.Int(1, 2, when={"k": "a"}), fw.Int(3, 4, when={"k": "b"})]
    with pytest.raises(fw.UsageError, match="7: a whole number from 1 to 2 or a whole number from 3 to 4 is expected"):
        fw.Space({"k": fw.Choice(["a", "b"]), "d": branches, "z": fw.Float(0.0, 1.0, when={"d": 7})})
