from __future__ import annotations

import json

import numpy as np
import pytest

import fairway as fw
from fairway.engine.identity import Identity
from tests.conftest import SPACE
from tests.engine.logs import LIMITS, STOPPERS


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
            ({"constraints": ()}, r"has another constraints: \['eod'\] there, \[\] here"),
            (
                {"constraints": fw.AtMost("eod", 0.3)},
                "constraints: threshold 0.25 there, 0.3 here; give this one another name",
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


def test_numbers_of_other_kinds_are_stored_and_what_is_known_of_the_best_value_may_change(tmp_path):
    url, space = f"sqlite:///{tmp_path / 'study.db'}", {"x": fw.Float(0.0, 1.0)}
    limits = [fw.AtMost("eod", np.float32(0.25), scale=np.int64(2))]
    fw.Study(space, fw.Maximize("auc", best=np.int64(1)), limits, storage=url, seed=0)
    again = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25, scale=2.0)], storage=url)
    assert again.seed == 0
