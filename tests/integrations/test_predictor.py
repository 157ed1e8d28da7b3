"""Predictions that grow with a booster equal those from the start, for both libraries, at any round in any order."""

from __future__ import annotations

import gc
import pickle
import weakref

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import fairway as fw
from fairway.integrations import lightgbm as ours_lightgbm
from fairway.integrations import xgboost as ours_xgboost

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
Z = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=240)
TARGETS = {
    "real": Z,
    "sign": (Z > 0).astype(float),
    "class": np.digitize(Z, [-0.5, 0.5]),
    "count": RNG.poisson(np.exp(Z)),
    "positive": np.exp(Z),
    "share": 1 / (1 + np.exp(-Z)),
}
GROUPS = [24] * 10  # of rows, to be ranked
SHOWN = X[:90]
VISITS = st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), min_size=1, max_size=6)
"""How many rounds to train before each prediction, and which of all rounds to predict with."""


def squared(scores, data):
    return scores - data.get_label(), np.ones_like(scores)


# LightGBM

LIGHTGBM = {
    "regression": "real",
    "regression_l1": "real",
    "huber": "real",
    "fair": "real",
    "quantile": "real",
    "mape": "real",
    "poisson": "count",
    "gamma": "positive",
    "tweedie": "positive",
    "binary": "sign",
    "cross_entropy": "share",
    "cross_entropy_lambda": "share",
    "multiclass": "class",
    "multiclassova": "class",
    "lambdarank": "class",
    "rank_xendcg": "class",
    "custom": "real",
}


class Counted(lightgbm.Booster):
    """A booster that counts the rounds it computes."""

    computed = 0

    def predict(self, data, start_iteration=0, num_iteration=None, **more):
        self.computed += num_iteration
        return super().predict(data, start_iteration, num_iteration, **more)


def new_lightgbm(objective="binary", kind=lightgbm.Booster, rounds=0, **params):
    fixed = {"verbosity": -1, "num_threads": 1, "num_leaves": 5, "bagging_freq": 1, "bagging_fraction": 0.7}
    more = {"num_class": 3} if objective.startswith("multi") else {}
    group = GROUPS if "rank" in objective else None
    data = lightgbm.Dataset(X, TARGETS[LIGHTGBM[objective]], group=group, params={"verbosity": -1})
    booster = kind({**fixed, **more, "objective": objective, **params}, data)
    for _ in range(rounds):
        booster.update(fobj=squared if objective == "custom" else None)
    return booster


@pytest.mark.parametrize("objective", LIGHTGBM)
@settings(max_examples=15, deadline=None)
@given(
    visits=VISITS,
    boosting=st.sampled_from(["gbdt", "rf", "dart"]),
    sigmoid=st.sampled_from([1.0, 0.5, 2.25, 1.23456789]),
    root=st.booleans(),
    from_average=st.booleans(),
)
def test_lightgbm_predicts_what_it_predicts_from_the_start(objective, visits, boosting, sigmoid, root, from_average):
    if objective == "custom" and boosting == "rf":
        boosting = "gbdt"  # LightGBM has no such forests
    params = {"sigmoid": sigmoid, "reg_sqrt": root, "boost_from_average": from_average, "boosting": boosting}
    booster = new_lightgbm(objective, rounds=1, **params)
    predict, earlier = ours_lightgbm.Predictor(SHOWN), []
    for more, share in visits:
        for _ in range(more):
            booster.update(fobj=squared if objective == "custom" else None)
        count = booster.current_iteration()
        rounds = max(1, round(share * count))
        found, expected = predict(booster, rounds), booster.predict(SHOWN, num_iteration=rounds)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(predict(booster), booster.predict(SHOWN, num_iteration=count), rtol=1e-9, atol=1e-13)
        earlier.append((found, found.copy()))
    assert all((found == copy).all() for found, copy in earlier)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True).map(sorted))
def test_lightgbm_computes_each_round_once(visited):
    booster, predict = new_lightgbm(kind=Counted), ours_lightgbm.Predictor(SHOWN)
    for rounds in visited:
        while booster.current_iteration() < rounds:
            booster.update()
        predict(booster)
        predict(booster, rounds)  # another constraint at the same round
    assert booster.computed == visited[-1]


def test_lightgbm_computes_an_earlier_round_from_the_start_and_goes_on_from_there():
    booster, predict = new_lightgbm(kind=Counted, rounds=10), ours_lightgbm.Predictor(SHOWN)
    for rounds, computed in ((10, 10), (4, 14), (4, 14), (6, 16)):
        predict(booster, rounds)
        assert booster.computed == computed


def test_an_objective_that_is_not_known_is_predicted_from_the_start():
    booster = new_lightgbm(kind=Counted, rounds=5, sigmoid=1.23456789)  # a model file has fewer digits
    predict = ours_lightgbm.Predictor(SHOWN)
    assert (predict(booster, 3) == booster.predict(SHOWN, num_iteration=3)).all()
    predict(booster, 5)
    assert booster.computed == 3 + 3 + 5


def test_lightgbm_scores_beyond_what_exp_can_take_warn_nobody():
    x, y = np.arange(100.0).reshape(-1, 1), np.r_[np.zeros(50), np.ones(50)]
    settings = {"objective": "cross_entropy", "verbosity": -1, "num_threads": 1, "learning_rate": 1e4}
    booster = lightgbm.train(settings, lightgbm.Dataset(x, y), 3)
    np.testing.assert_array_equal(ours_lightgbm.Predictor(x)(booster), booster.predict(x))


def test_a_model_without_a_round_or_a_split_is_predicted_too():
    empty = new_lightgbm()
    np.testing.assert_array_equal(ours_lightgbm.Predictor(SHOWN)(empty), empty.predict(SHOWN))
    constant = new_lightgbm(rounds=3, min_data_in_leaf=1000)
    np.testing.assert_array_equal(ours_lightgbm.Predictor(SHOWN)(constant), constant.predict(SHOWN))


def test_lightgbm_takes_the_rows_that_its_predict_takes():
    table = pd.DataFrame(X, columns=list("abcd"))
    table["d"] = pd.Categorical(np.where(X[:, 3] > 0, "up", "down"))
    booster = lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(table, Z), 5)
    np.testing.assert_allclose(ours_lightgbm.Predictor(table)(booster, 3), booster.predict(table, num_iteration=3))
    booster = new_lightgbm(rounds=5)
    for rows in (csr_matrix(SHOWN), SHOWN.astype(np.float32), np.asfortranarray(SHOWN)):
        predict = ours_lightgbm.Predictor(rows)
        predict(booster, 2)
        np.testing.assert_allclose(predict(booster), booster.predict(rows))


# XGBoost

XGBOOST = {
    "reg:squarederror": "real",
    "reg:absoluteerror": "real",
    "reg:logistic": "share",
    "reg:gamma": "positive",
    "reg:tweedie": "positive",
    "count:poisson": "count",
    "binary:logistic": "sign",
    "binary:logitraw": "sign",
    "binary:hinge": "sign",
    "multi:softprob": "class",
    "multi:softmax": "class",
    "rank:ndcg": "class",
    "survival:cox": "positive",
    "custom": "real",
}


def xgboost_data(objective):
    matrix = xgboost.DMatrix(X, TARGETS[XGBOOST[objective]])
    if objective.startswith("rank"):
        matrix.set_group(GROUPS)
    return matrix


def new_xgboost(objective="binary:logistic", rounds=0, data=None, **params):
    fixed = {"nthread": 1, "max_depth": 2, "disable_default_eval_metric": 1, "verbosity": 0}
    more = {"num_class": 3} if objective.startswith("multi") else {}
    named = {} if objective == "custom" else {"objective": objective}
    data = xgboost_data(objective) if data is None else data
    booster = xgboost.Booster({**fixed, **more, **named, **params}, [data])
    for k in range(rounds):
        booster.update(data, k, fobj=squared if objective == "custom" else None)
    return booster


@pytest.mark.parametrize("objective", XGBOOST)
@settings(max_examples=15, deadline=None)
@given(
    visits=VISITS,
    booster=st.sampled_from(["gbtree", "dart", "gblinear"]),
    base=st.sampled_from([None, 0.3]),
    trees=st.integers(1, 2),
)
def test_xgboost_predicts_what_it_predicts_from_the_start(objective, visits, booster, base, trees):
    if objective == "reg:absoluteerror" and booster == "gblinear":
        booster = "gbtree"  # XGBoost has no such linear models
    params = {"booster": booster}
    params |= {} if base is None else {"base_score": base}
    params |= {} if booster == "gblinear" else {"num_parallel_tree": trees, "subsample": 0.7}
    params |= {"rate_drop": 0.5} if booster == "dart" else {}
    data = xgboost_data(objective)
    model = new_xgboost(objective, 1, data, **params)
    predict, earlier = ours_xgboost.Predictor(SHOWN), []
    for more, share in visits:
        for _ in range(more):
            model.update(data, model.num_boosted_rounds(), fobj=squared if objective == "custom" else None)
        count = model.num_boosted_rounds()
        rounds = max(1, round(share * count))
        found = predict(model, rounds)
        expected = model.predict(xgboost.DMatrix(SHOWN), iteration_range=(0, rounds))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(predict(model), model.predict(xgboost.DMatrix(SHOWN)), rtol=1e-6)
        earlier.append((found, found.copy()))
    assert all((found == copy).all() for found, copy in earlier)


def test_xgboost_takes_a_matrix_and_what_makes_one():
    data = xgboost.DMatrix(X, TARGETS["sign"], base_margin=Z)
    model = new_xgboost(rounds=5, data=data)
    for rows in (data, csr_matrix(SHOWN), pd.DataFrame(SHOWN)):
        predict = ours_xgboost.Predictor(rows)
        predict(model, 2)
        matrix = rows if rows is data else xgboost.DMatrix(rows)
        np.testing.assert_allclose(predict(model), model.predict(matrix), rtol=1e-6)


# Both

BOTH = pytest.mark.parametrize(("ours", "new"), [(ours_lightgbm, new_lightgbm), (ours_xgboost, new_xgboost)])


@BOTH
def test_boosters_may_take_turns(ours, new):
    one, two = new(rounds=8), new(rounds=8, learning_rate=0.9)
    predict = ours.Predictor(SHOWN)
    for rounds in (2, 5, 8):
        first, second = predict(one, rounds), predict(two, rounds)
        assert np.abs(first - second).max() > 0.01
        np.testing.assert_allclose(first, ours.Predictor(SHOWN)(one, rounds), rtol=1e-6)
        np.testing.assert_allclose(second, ours.Predictor(SHOWN)(two, rounds), rtol=1e-6)


@BOTH
def test_a_predictor_keeps_no_booster_alive(ours, new):
    predict, booster = ours.Predictor(SHOWN), new(rounds=2)
    predict(booster)
    gone = weakref.ref(booster)
    del booster
    gc.collect()
    assert gone() is None


@BOTH
def test_a_predictor_can_be_pickled(ours, new):
    predict, booster = ours.Predictor(SHOWN), new(rounds=4)
    found = predict(booster, 3)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(predict))(booster, 3), found, rtol=1e-6)


@BOTH
def test_rounds_that_a_booster_does_not_have_are_refused(ours, new):
    predict, booster = ours.Predictor(SHOWN), new(rounds=4)
    with pytest.raises(fw.UsageError, match="rounds=5: the booster has 4"):
        predict(booster, 5)
    for rounds in (0, -1, 2.5, True):
        with pytest.raises(fw.UsageError, match=f"rounds={rounds}: a whole number of at least 1 is expected"):
            predict(booster, rounds)


def test_a_cross_validation_of_lightgbm_gives_a_list():
    seen, predict = [], ours_lightgbm.Predictor(SHOWN)

    def measure(boosters, rounds):
        found, expected = predict(boosters, rounds), boosters.predict(SHOWN, num_iteration=rounds)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        seen.append(len(found))
        return 0.1

    trial = limited().ask()
    report = ours_lightgbm.callback(trial, "auc", constraints={"eod": measure})
    settings = {"objective": "binary", "metric": "auc", "verbosity": -1, "num_threads": 1}
    lightgbm.cv(settings, lightgbm.Dataset(X, TARGETS["sign"]), 6, nfold=3, callbacks=[report])
    assert seen == [3] * 6


def test_a_cross_validation_of_xgboost_gives_a_list():
    seen, predict = [], ours_xgboost.Predictor(SHOWN)

    def measure(boosters, rounds):
        folds = [fold.bst for fold in boosters.cvfolds]
        expected = [fold.predict(xgboost.DMatrix(SHOWN), iteration_range=(0, rounds)) for fold in folds]
        found = predict(boosters, rounds)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        seen.append(len(found))
        return 0.1

    trial = limited().ask()
    report = ours_xgboost.callback(trial, "auc", constraints={"eod": measure})
    settings = {"objective": "binary:logistic", "eval_metric": "auc", "nthread": 1}
    xgboost.cv(settings, xgboost.DMatrix(X, TARGETS["sign"]), 6, nfold=3, callbacks=[report])
    assert seen == [3] * 6


def limited():
    stopper = fw.Never(interval=1, skip=False)
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], stopper=stopper, seed=0)
