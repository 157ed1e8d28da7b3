from __future__ import annotations

import json
import re

import numpy as np
import pytest

import fairway as fw
from fairway.engine.identity import Identity
from fairway.engine.verify import verify
from fairway.terminators.terminator import Terminator, Verdict
from fairway.testing import MIXED
from tests.conftest import LINE, SPACE, TERMINATORS, judged
from tests.engine.logs import LIMITS, STOPPERS
from tests.trainings import parabola


def test_an_identity_comes_back_from_json():
    space = {
        "c": fw.Choice(["a", None, 1]),
        "x": fw.Float(0.1, 1, log=True, when={"c": ["a", 1]}),
        "k": fw.Int(0, 8, step=2),
    }
    for stopper in STOPPERS:
        problem = fw.Problem(fw.Minimize("loss"), LIMITS)
        identity = Identity(fw.Space(space), problem, 7, fw.Random(), stopper, None)
        again = Identity.from_json(json.loads(json.dumps(identity.to_json())))
        assert again.to_json() == identity.to_json()
        assert (again.problem, again.stopper, again.sampler) == (problem, stopper, fw.Random())
    with pytest.raises(fw.StorageError, match="does not say what study it is of"):
        Identity.from_json({"space": {"x": {"kind": "Float", "low": 1, "high": 0}}})


class TestOpening:
    @pytest.mark.parametrize(
        ("other", "sentence"),
        [
            ({"space": {"y": fw.Float(0, 1)}}, "has another space: x 'Float' there, missing here"),
            ({"objective": fw.Minimize("auc")}, "has another objective: kind 'Maximize' there, 'Minimize' here"),
            ({"constraints": ()}, r"has other constraints: \['eod'\] there, \[\] here"),
            (
                {"constraints": fw.AtMost("eod", 0.3)},
                r"eod threshold 0.25 there, 0.3 here; write here what holds there, .* call study.set_limit\(eod=0.3\)",
            ),
            ({"seed": 5}, "has seed 3; leave seed out"),
        ],
    )
    def test_a_log_of_another_study_is_refused(self, other, sentence):
        parts = {"space": SPACE, "objective": fw.Maximize("auc"), "constraints": [fw.AtMost("eod", 0.25)], "seed": 3}
        log = fw.Study(**parts).log
        with pytest.raises(fw.UsageError, match=sentence):
            fw.Study(**{**parts, **other}, storage=log)
        assert fw.Study(**{**parts, "seed": None}, storage=log, stopper=fw.Never()).seed == 3


@pytest.mark.parametrize(
    ("constraints", "call"),
    [
        ([fw.AtMost("eod", 0.1), fw.AtMost("kb", 1), fw.AtMost("ms", 5)], "study.set_limit(fw.AtMost('kb', 1))"),
        ([fw.AtMost("eod", 0.125), fw.AtMost("kb", 1)], "study.set_limit(fw.AtMost('kb', 1), eod=0.125, ms=None)"),
        ([fw.AtMost("eod", 0.1)], "study.set_limit(ms=None)"),
        ([fw.AtMost("eod", 0.1), fw.AtLeast("ms", 5)], None),
        ([fw.AtMost("eod", 0.1, confidence=0.9), fw.AtMost("ms", 5)], None),
    ],
)
def test_the_advice_on_other_limits_is_a_call_that_makes_them_hold(constraints, call):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.1), fw.AtMost("ms", 8.0)], seed=0)
    study.set_limit(ms=5.0)
    with pytest.raises(fw.UsageError) as refused:
        fw.Study(SPACE, fw.Maximize("auc"), constraints, storage=study.log)
    found = re.search(r"study\.set_limit\(.*\)(?=, or give)", str(refused.value))
    assert (found and found.group()) == call
    if call is not None:
        eval(call, {"study": study, "fw": fw})
        assert fw.Study(SPACE, fw.Maximize("auc"), constraints, storage=study.log).seed == 0


def test_numbers_of_other_kinds_are_stored_and_what_is_known_of_the_best_value_may_change(tmp_path):
    url, space = f"sqlite:///{tmp_path / 'study.db'}", {"x": fw.Float(0.0, 1.0)}
    limits = [fw.AtMost("eod", np.float32(0.25), scale=np.int64(2))]
    fw.Study(space, fw.Maximize("auc", best=np.int64(1)), limits, storage=url, seed=0)
    again = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25, scale=2.0)], storage=url)
    assert again.seed == 0


def test_what_a_check_costs_is_stored_may_change_and_is_missing_from_older_logs():
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25, cost=np.float32(5))], seed=0)
    config = json.loads(json.dumps(study.owner.identity.to_json()))
    assert Identity.from_json(config).problem == study.problem
    assert fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25, cost=7.0)], storage=study.log).seed == 0
    del config["constraints"][0]["cost"]
    older = Identity.from_json(config)
    assert older.problem.constraints[0].cost is None
    study.owner.identity.refuse_another(config)


def test_parameters_may_be_named_as_what_may_change_of_others():
    log = fw.Study({"cost": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), seed=0).log
    with pytest.raises(fw.UsageError, match="another space"):
        fw.Study({"cost": fw.Float(0.0, 2.0)}, fw.Maximize("auc"), storage=log)


@pytest.mark.parametrize("terminator", TERMINATORS, ids=str)
def test_a_terminator_is_stored_with_its_study(terminator):
    space, problem = fw.Space(LINE), fw.Problem(fw.Minimize("loss"))
    identity = Identity(space, problem, 0, fw.Random(), fw.Never(), terminator)
    assert Identity.from_json(identity.to_json()).terminator == terminator


def test_numbers_of_numpy_can_be_stored(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    ends = fw.any_of(
        fw.Plateau(np.int64(3)), fw.Target(np.float32(0.5)), fw.RegretBound(np.float64(0.1), start=np.int32(5))
    )
    assert Identity.from_json(judged(ends, storage=url).owner.identity.to_json()).terminator == ends


def test_a_class_of_ones_own_is_not_taken_for_ours():
    class Plateau(Terminator):
        def check(self, history):
            return Verdict(False, f"{len(history)} trials")

    study = judged(Plateau())
    study.optimize(parabola, trials=2)
    assert Identity.from_json(study.owner.identity.to_json()).terminator is None
    assert verify(study.log.read(0)).unchecked == 2


def test_a_blend_comes_back_from_json():
    problem = fw.Problem(fw.Minimize("loss"))
    identity = Identity(fw.Space(MIXED), problem, 0, fw.Blend({"depth": 3}, threads=2), fw.Never(), None)
    assert Identity.from_json(identity.to_json()).sampler == identity.sampler
