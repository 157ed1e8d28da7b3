"""fairway as scikit-learn's own: its checks of estimators, its data, its routing, its learners."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
import sklearn
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.metrics import make_scorer, recall_score, roc_auc_score
from sklearn.model_selection import GroupKFold, KFold, LeaveOneOut, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import fairway as fw
from fairway.constraints import demographic_parity_difference, equalized_odds_difference
from fairway.engine.verify import verify
from fairway.integrations.sklearn import ConstrainedSearchCV, fit_steps, group_scorer
from fairway.report.content import later
from fairway.report.view import View

X, Y = load_breast_cancer(return_X_y=True)
SMALL = np.random.default_rng(0).permutation(len(X))[:200]
TREES = {"max_depth": fw.Int(1, 10), "min_samples_leaf": fw.Int(1, 50, log=True)}


def leaves(tree, data, truth):
    return tree.get_n_leaves()


def search(**settings):
    settings = {
        "scoring": "roc_auc",
        "constraints": [fw.AtMost("leaves", 6)],
        "scorers": {"leaves": leaves},
        "cv": 5,
        "trials": 25,
        "random_state": 0,
        "terminator": None,
        **settings,
    }
    return ConstrainedSearchCV(DecisionTreeClassifier(random_state=0), TREES, **settings)


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.ERROR, logger="fairway")  # trials that fail are said to have


@parametrize_with_checks(
    [
        ConstrainedSearchCV(
            LogisticRegression(), {"C": fw.Float(0.01, 10.0, log=True)}, cv=3, trials=3, random_state=0
        ),
        ConstrainedSearchCV(Ridge(), {"alpha": fw.Float(0.1, 10.0, log=True)}, cv=3, trials=3, random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


# What it finds


def test_the_best_within_the_limit_is_found_and_trained():
    found = search().fit(X, Y)
    assert found.best_limits_["leaves"] <= 6
    assert found.best_score_ > 0.9
    again = cross_val_score(clone(found.estimator).set_params(**found.best_params_), X, Y, scoring="roc_auc", cv=5)
    assert found.best_score_ == pytest.approx(again.mean())
    expected = DecisionTreeClassifier(random_state=0, **found.best_params_).fit(X, Y)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert found.score(X, Y) == pytest.approx(search().fit(X, Y).score(X, Y))  # the same again
    assert (found.n_features_in_, found.classes_.tolist()) == (30, [0, 1])
    assert verify(found.study_.log.read()).faults == []


def test_a_hopeless_configuration_stops_after_a_few_folds_and_its_limits_are_not_scored():
    found = search(trials=40, cv=10, sampler=fw.Random()).fit(X, Y)
    results = found.cv_results_
    stopped = results["status"] == "stopped"
    assert stopped.sum() >= 8
    assert (results["n_folds"][stopped] < 10).all()
    assert (results["n_folds"][results["status"] == "completed"] == 10).all()
    assert np.isnan(results["split9_test_score"][stopped]).all()
    unpaid = np.isnan(results["mean_test_leaves"])
    assert unpaid.any()
    assert {*results["feasible"][unpaid]} == {None}
    assert {True, False} <= {*results["feasible"]}
    assert results["status"][found.best_index_] == "completed"
    assert results["rank_test_score"][found.best_index_] == 1
    assert results["mean_test_score"][found.best_index_] == pytest.approx(found.best_score_)
    assert sorted(results["rank_test_score"]) == list(range(1, 41))
    assert {len(column) for column in results.values()} == {40}


def test_the_search_ends_by_itself():
    found = search(terminator="cv", trials=200, sampler=fw.GP()).fit(X, Y)
    assert len(found.study_.trials) < 200
    assert "the noise of 5-fold cross-validation" in found.study_.ended


def test_workers_find_the_same_kind_of_thing():
    found = search(workers=2, trials=12).fit(X[SMALL], Y[SMALL])
    assert found.best_limits_["leaves"] <= 6
    assert len(found.cv_results_["params"]) == 12


def test_without_limits_it_is_a_search_like_any_other():
    found = ConstrainedSearchCV(
        Ridge(), {"alpha": fw.Float(1e-3, 1e3, log=True)}, trials=10, random_state=0, cv=KFold(4)
    )
    found.fit(X, Y.astype(float))
    assert found.best_limits_ == {}
    assert found.n_splits_ == 4


def test_clustering_has_no_truth():
    found = ConstrainedSearchCV(
        KMeans(n_init=1, random_state=0), {"n_clusters": fw.Int(2, 6)}, cv=3, trials=5, random_state=0
    )
    found.fit(X[SMALL])
    assert found.transform(X[SMALL]).shape == (200, found.best_params_["n_clusters"])
    assert not hasattr(found, "predict_proba")


# As a part of others


def test_it_clones_sets_parameters_and_pickles():
    first = search()
    other = clone(first).set_params(trials=4, estimator__criterion="entropy")
    assert (other.trials, other.estimator.criterion, first.estimator.criterion) == (4, "entropy", "gini")
    other.fit(X[SMALL], Y[SMALL])
    back = pickle.loads(pickle.dumps(other))
    np.testing.assert_array_equal(back.predict(X), other.predict(X))
    assert back.study_.best == other.study_.best


def test_it_searches_pipelines_and_stands_in_them():
    inner = make_pipeline(StandardScaler(), PCA(random_state=0), LogisticRegression())
    space = {"pca__n_components": fw.Int(2, 10), "logisticregression__C": fw.Float(1e-2, 1e2, log=True)}
    outer = make_pipeline(StandardScaler(), ConstrainedSearchCV(inner, space, cv=3, trials=6, random_state=0))
    assert outer.fit(X[SMALL], Y[SMALL]).score(X, Y) > 0.9
    scores = cross_val_score(search(trials=5, constraints=(), scorers=None), X[SMALL], Y[SMALL], cv=3)
    assert scores.min() > 0.7


def test_data_frames_keep_their_names():
    frame = pd.DataFrame(X[SMALL], columns=[f"feature {i}" for i in range(30)])
    found = search(trials=5).fit(frame, pd.Series(Y[SMALL]))
    assert found.feature_names_in_[0] == "feature 0"
    assert len(found.predict(frame)) == 200


def test_a_kernel_that_is_given_is_split_on_both_sides():
    kernel = X[SMALL] @ X[SMALL].T / 1e6
    found = ConstrainedSearchCV(
        SVC(kernel="precomputed"), {"C": fw.Float(0.1, 10.0, log=True)}, cv=3, trials=3, random_state=0
    )
    assert found.fit(kernel, Y[SMALL]).score(kernel, Y[SMALL]) > 0.8


# Groups and weights


def gap(truth, predicted, *, sensitive_features):
    """The difference of the share of positives between two groups."""
    groups = np.asarray(sensitive_features)
    rates = [np.asarray(predicted)[groups == which].mean() for which in (0, 1)]
    return abs(rates[0] - rates[1])


def grouped():
    data, truth = make_classification(300, 6, random_state=1)
    group = (data[:, 0] > 0).astype(int)
    return data, truth, group


def fair(scorer, **settings):
    return ConstrainedSearchCV(
        LogisticRegression(),
        {"C": fw.Float(1e-4, 1e2, log=True)},
        constraints=[fw.AtMost("gap", 0.9)],
        scorers={"gap": scorer},
        cv=3,
        trials=5,
        random_state=0,
        **{"scoring": "roc_auc", **settings},
    )


def test_groups_come_from_a_column_or_beside_the_data_and_agree():
    data, truth, group = grouped()
    both = np.column_stack([data, group])
    other = np.arange(300) % 2
    limits, scorers = [fw.AtMost("beside", 1.0), fw.AtMost("column", 1.0)], {"beside": group_scorer(gap)}
    frames = [(6, both), ("6", pd.DataFrame(both, columns=list("0123456"))), (0, pd.DataFrame(both[:, ::-1]))]
    for column, frame in frames:
        scorers["column"] = group_scorer(gap, column=column)
        found = fair(None, stopper=fw.Never()).set_params(constraints=limits, scorers=scorers)
        found.fit(frame, truth, sensitive_features=group)
        assert found.best_limits_["beside"] == found.best_limits_["column"] > 0
        found.fit(frame, truth, sensitive_features=other)
        assert found.best_limits_["beside"] != found.best_limits_["column"]  # a column is a column
    score = fair(group_scorer(gap), scoring=group_scorer(gap)).fit(data, truth, sensitive_features=group)
    assert score.best_score_ == score.best_limits_["gap"]
    with pytest.raises(fw.UsageError, match="sensitive_features has 100 rows and X has 300: as many are expected"):
        fair(group_scorer(gap)).fit(data, truth, sensitive_features=group[:100])
    with pytest.raises(fw.UsageError, match=r"gap needs the groups: group_scorer\(gap, column=...\), or fit"):
        fair(group_scorer(gap)).fit(data, truth)
    with pytest.raises(fw.UsageError, match="no scorer takes sensitive_features"):
        fair(lambda model, data, truth: 0.0).fit(data, truth, sensitive_features=group)


def test_groups_and_weights_are_routed_by_scikit_learn():
    data, truth, group = grouped()
    weights = np.where(truth == 1, 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = LogisticRegression().set_fit_request(sample_weight=True)
        weighted = make_scorer(recall_score).set_score_request(sample_weight=True)
        routed = fair(group_scorer(gap)).set_params(estimator=estimator, scoring=weighted)
        routed.fit(data, truth, sensitive_features=group, sample_weight=weights)
        assert routed.score(data, truth, sample_weight=weights) > 0.5
        with pytest.raises(TypeError, match="unexpected argument"):
            fair(group_scorer(gap, column=0)).fit(data, truth, sensitive_features=group)
    plain = fair(group_scorer(gap)).fit(data, truth, sensitive_features=group)
    heavier = fair(group_scorer(gap)).fit(data, truth, sensitive_features=group, sample_weight=weights)
    assert routed.best_limits_["gap"] != plain.best_limits_["gap"]
    assert heavier.predict(data).mean() > plain.predict(data).mean()  # the weights reached fit


def test_an_estimator_that_takes_groups_is_given_them():
    seen = []

    class Fair(LogisticRegression):
        def fit(self, data, truth, sensitive_features=None):
            seen.append(len(sensitive_features))
            return super().fit(data, truth)

    data, truth, group = grouped()
    fair(group_scorer(gap)).set_params(estimator=Fair()).fit(data, truth, sensitive_features=group)
    assert set(seen) == {200, 300}  # in the folds, and on all rows


def test_groups_of_rows_stay_together_in_splitting():
    found = search(cv=GroupKFold(4), trials=3)
    found.fit(X[SMALL], Y[SMALL], groups=np.arange(200) % 8)
    assert found.n_splits_ == 4


# What goes wrong


def test_a_scorer_that_raises_fails_its_trial_and_the_search_goes_on():
    def moody(model, data, truth):
        if model.max_depth == 3:
            raise RuntimeError("not my depth")
        return model.get_n_leaves()

    found = search(scorers={"leaves": moody}, stopper=fw.Never()).fit(X[SMALL], Y[SMALL])
    failed = found.cv_results_["status"] == "failed"
    assert failed.any()
    assert (~failed).any()
    reason = found.cv_results_["reason"][failed][0]
    assert reason.startswith("RuntimeError: not my depth, raised by the scorer of 'leaves' on fold 1")
    assert found.best_params_["max_depth"] != 3


def test_a_score_that_is_no_number_fails_its_trial_and_a_limit_that_is_none_is_broken():
    def score(model, data, truth):
        return float("nan") if model.max_depth == 5 else model.score(data, truth)

    def nodes(model, data, truth):
        return float("nan") if model.max_depth > 3 else model.get_n_leaves()

    found = search(scoring=score, scorers={"leaves": nodes}, stopper=fw.Never()).fit(X[SMALL], Y[SMALL])
    results = found.cv_results_
    depth = np.array([params["max_depth"] for params in results["params"]])
    assert (results["status"] == "failed").tolist() == (depth == 5).tolist()
    assert results["reason"][depth == 5][0] == "score is nan at step 1"
    assert not (results["feasible"][depth > 3] == 1).any()
    assert found.best_params_["max_depth"] <= 3


def test_a_fold_with_one_class_is_left_out_where_the_score_needs_two():
    truth = Y[SMALL].copy()
    order = np.argsort(truth, kind="stable")
    data, truth = X[SMALL][order], truth[order]
    ones = int((truth == 0).sum())
    splits = [
        (np.setdiff1d(np.arange(200), test), test)
        for test in (np.arange(ones - 30, ones), np.arange(60, 120), np.arange(40, 110))
    ]
    with pytest.warns(UserWarning, match="1 fold shows one class only, where roc_auc is not defined: left out of 3"):
        found = search(cv=splits, trials=5).fit(data, truth)
    assert found.best_score_ > 0.8
    assert found.cv_results_["n_folds"][found.best_index_] == 2
    tree = DecisionTreeClassifier(random_state=0, **found.best_params_).fit(data[splits[1][0]], truth[splits[1][0]])
    second = roc_auc_score(truth[splits[1][1]], tree.predict_proba(data[splits[1][1]])[:, 1])
    assert found.cv_results_["split1_test_score"][found.best_index_] == second  # the caller's own second split
    accurate = search(cv=splits, trials=5, scoring="accuracy").fit(data, truth)
    assert accurate.cv_results_["n_folds"][accurate.best_index_] == 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"scorers": None}, "the constraint on 'leaves' has no scorer: scorers={'leaves': ...}"),
        ({"constraints": ()}, "there is no constraint on 'leaves'; there are none"),
        ({"scorers": {"leaves": 3}}, "'leaves' is 3: a function of"),
        (
            {"space": {"max_dept": fw.Int(1, 3)}},
            "DecisionTreeClassifier has no parameter 'max_dept': did you mean 'max_depth'",
        ),
        ({"estimator": SVC()}, "SVC has no parameter 'max_depth'"),
        ({"trials": 0}, "trials=0: a whole number of at least 1"),
        ({"scoring": ["accuracy", "roc_auc"]}, "one score is expected, as a name or a function"),
        ({"scorers": ["leaves"]}, r"scorers=\['leaves'\]: a scorer for each constraint, by name, is expected"),
        ({"cv": []}, r"cv=\[\] gives no split"),
        ({"cv": [(np.arange(50), np.arange(0))]}, "cv: split 0 has no rows to test on"),
        ({"scoring": lambda model, data, truth: "0.5"}, "'0.5' is no score: a number is expected"),
        ({"scoring": lambda model, data, truth: None}, "None is no score: a number is expected"),
        ({"constraints": [fw.AtMost("score", 1)], "scorers": {"score": leaves}}, "a constraint is called 'score'"),
    ],
)
def test_what_does_not_fit_together_is_said(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        search().set_params(**settings).fit(X[SMALL], Y[SMALL])


def test_an_estimator_without_the_needed_method_is_said():
    class NoScores(ClassifierMixin, BaseEstimator):
        def __init__(self, depth=1):
            self.depth = depth

        def fit(self, data, truth):
            self.classes_ = np.unique(truth)
            return self

        def predict(self, data):
            return np.zeros(len(data), int)

    searching = ConstrainedSearchCV(NoScores(), {"depth": fw.Int(1, 9)}, scoring="roc_auc", cv=3, trials=5)
    with pytest.raises(Exception, match=r"decision_function.*predict_proba") as caught:
        searching.fit(X[SMALL], Y[SMALL])
    assert "raised by the scorer of 'roc_auc' on fold 1" in caught.value.__notes__
    with pytest.raises(TypeError, match="an estimator with a fit method is expected"):
        ConstrainedSearchCV("tree", {"depth": fw.Int(1, 9)}).fit(X, Y)


def test_when_nothing_is_within_the_limits_the_nearest_is_named_and_nothing_is_trained():
    impossible = search(constraints=[fw.AtMost("leaves", 1)], trials=8)
    with pytest.raises(
        fw.StudyFailed, match=r"none of 8 configurations is within the limits; the nearest had roc_auc .* leaves"
    ):
        impossible.fit(X[SMALL], Y[SMALL])
    with pytest.raises(NotFittedError):
        impossible.predict(X)
    assert len(impossible.cv_results_["params"]) == 8
    with pytest.warns(UserWarning, match="none of 8 configurations"):
        impossible.set_params(refit=False).fit(X[SMALL], Y[SMALL])


def test_the_limit_that_was_not_measured_at_the_nearest_is_not_taken_as_held():
    def slow(tree, data, truth):
        return 33.0 + tree.get_depth()

    limits = [fw.AtMost("ms", 14.0), fw.AtMost("leaves", 12)]
    settings = {"constraints": limits, "scorers": {"ms": slow, "leaves": leaves}, "stopper": fw.ACE(interval=1)}
    searching = search(**settings, trials=12)
    with pytest.raises(
        fw.StudyFailed, match=r"the nearest had .*ms 3\d.*: none of \d+ trials that measured ms kept it"
    ):
        searching.fit(X[SMALL], Y[SMALL])
    ranks, ms = searching.cv_results_["rank_test_score"], searching.cv_results_["mean_test_ms"]
    assert np.isfinite(ms[np.argmin(ranks)])


@pytest.mark.parametrize(("note", "ms"), [("", 20.0), ("while others used 1.9 of 2 cores", 20.0), ("", 40.0)])
def test_a_limit_that_was_measured_again_is_the_same_in_the_results_and_at_the_best(note, ms):
    first = "while others used 1.8 of 2 cores"
    measured = iter([*[fw.Measured(30.0, 0.1, note=first)] * 3, *[fw.Measured(ms, 0.1, note=note)] * 3])
    limit = fw.AtMost("ms", 50.0, alone=True)
    found = search(constraints=[limit], scorers={"ms": lambda *_: next(measured)}, trials=1, cv=3, terminator=None)
    results = found.fit(X[SMALL], Y[SMALL]).cv_results_
    assert results["mean_test_ms"].tolist() == [ms] == [found.best_limits_["ms"]]
    assert np.isnan([results[f"{column}_test_ms"][0] for column in ("std", "split0", "split2")]).all()
    assert results["feasible"].tolist() == [True]


def test_a_limit_that_keeps_its_first_value_keeps_its_folds():
    busy, ms = "while others used 1.9 of 2 cores", [30.0, 31.0, 32.0, *[90.0] * 3]
    measured = iter([fw.Measured(each, 0.1, note=busy) for each in ms])
    limit = fw.AtMost("ms", 50.0, alone=True)
    found = search(constraints=[limit], scorers={"ms": lambda *_: next(measured)}, trials=1, cv=3, terminator=None)
    results = found.fit(X[SMALL], Y[SMALL]).cv_results_
    assert results["mean_test_ms"].tolist() == [31.0] == [found.best_limits_["ms"]]
    assert [results[f"split{k}_test_ms"][0] for k in range(3)] == [30.0, 31.0, 32.0]


def test_a_fit_that_fails_leaves_nothing_of_the_one_before():
    found = search(trials=8).fit(X[SMALL], Y[SMALL])
    found.set_params(constraints=[fw.AtMost("leaves", 0)])
    with pytest.raises(fw.StudyFailed):
        found.fit(X[SMALL], Y[SMALL])
    assert not hasattr(found, "best_params_")
    with pytest.raises(NotFittedError):
        found.predict(X)


@pytest.mark.parametrize("limit", [6, 0])
def test_ctrl_c_is_raised_and_what_was_found_is_kept(limit):
    scored = []

    def interrupted(tree, data, truth):
        scored.append(tree)
        if len(scored) == 30:
            raise KeyboardInterrupt
        return tree.score(data, truth)

    found = search(scoring=interrupted, constraints=[fw.AtMost("leaves", limit)], stopper=fw.Never())
    with pytest.raises(KeyboardInterrupt) as raised:
        found.fit(X[SMALL], Y[SMALL])
    assert found.study_.ended == "interrupted"
    assert len(found.cv_results_["params"]) == len(found.study_.trials) == 6
    assert hasattr(found, "best_params_") == (limit == 6)
    assert raised.value.__notes__[-1] == "fairway: study_ and cv_results_ have what was found so far"
    with pytest.raises(NotFittedError):
        found.predict(X)


@pytest.mark.parametrize(
    ("named", "ours"), [("n_jobs", "workers"), ("n_iter", "trials"), ("param_grid", "space"), ("verbose", "progress")]
)
def test_words_of_scikit_learn_are_answered_with_ours(named, ours):
    said = rf"ConstrainedSearchCV\(\) has no argument '{named}': write {ours}="
    with pytest.raises(TypeError, match=said):
        ConstrainedSearchCV(DecisionTreeClassifier(), {"max_depth": fw.Int(1, 4)}, **{named: 2})


def test_a_search_that_had_no_time_says_so():
    with pytest.raises(fw.StudyFailed, match=r"none of \d configurations had all 5 folds when the search ended"):
        search(timeout=1e-9, constraints=(), scorers=None).fit(X, Y)
    hard = search(constraints=[fw.AtMost("leaves", 0)], stopper=fw.ACE(tolerance="hard", interval=1), trials=4)
    with pytest.raises(fw.StudyFailed, match="is within the limits; the nearest had roc_auc"):
        hard.fit(X[SMALL], Y[SMALL])


def test_a_score_that_no_fold_has_is_said():
    with pytest.raises(fw.UsageError, match="roc_auc is not defined on any of 200 folds: each shows one class only"):
        search(cv=LeaveOneOut(), trials=1).fit(X[SMALL], Y[SMALL])


def test_without_refit_there_are_parameters_and_no_model():
    found = search(refit=False, trials=5).fit(X[SMALL], Y[SMALL])
    assert found.best_params_
    with pytest.raises(AttributeError, match="with refit=False there is none"):
        found.predict(X)


# Learners that train in steps


@pytest.mark.parametrize(
    "estimator",
    [
        SGDClassifier(loss="log_loss", random_state=0),
        GaussianNB(),
        MLPClassifier((4,), learning_rate_init=0.1, random_state=0),
        MLPClassifier((4,), solver="lbfgs", max_iter=40, random_state=0),
        RandomForestClassifier(n_estimators=20, random_state=0),
        GradientBoostingClassifier(n_estimators=20, random_state=0),
        HistGradientBoostingClassifier(max_iter=20, random_state=0),
        LogisticRegression(max_iter=20),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_learners_train_in_steps_and_the_best_one_is_built_again(estimator):
    scaled = StandardScaler().fit_transform(X[SMALL])
    study = fw.Study({"unused": fw.Float(0.0, 1.0)}, fw.Maximize("accuracy"), seed=0)
    seen = []

    def train(trial):
        for model in fit_steps(trial, estimator, scaled, Y[SMALL], total=4):
            trial.report(accuracy=model.score(scaled, Y[SMALL]))
            seen.append(model)
        return model

    study.optimize(train, trials=2)
    assert study.best.metrics["accuracy"] > 0.8
    assert study.trials[0].steps == 4
    assert not hasattr(estimator, "classes_")  # the user's own is untouched
    assert study.rebuild(train).score(scaled, Y[SMALL]) == study.best.metrics["accuracy"]


def test_a_forest_grows_evenly_to_its_own_size_and_a_stopped_trial_trains_no_further():
    sizes = []

    class Growing(RandomForestClassifier):
        def fit(self, data, truth):
            sizes.append(self.n_estimators)
            return super().fit(data, truth)

    study = fw.Study({"unused": fw.Float(0.0, 1.0)}, fw.Maximize("accuracy"), seed=0, stopper=fw.HalfAt(2, after=1))
    for accuracy in (0.9, 0.1, 0.05):
        trial = study.ask()
        for _ in fit_steps(trial, Growing(n_estimators=10), X[SMALL], Y[SMALL], total=5):
            trial.report(accuracy=accuracy)
        study.tell(trial)
    assert sizes[:5] == [2, 4, 6, 8, 10]
    assert study.trials[-1].status == "stopped"
    assert study.trials[-1].steps == 2


def test_rows_may_be_sparse():
    study = fw.Study({"unused": fw.Float(0.0, 1.0)}, fw.Maximize("accuracy"), seed=0)
    trial, rows = study.ask(), csr_matrix(StandardScaler().fit_transform(X[SMALL]))
    for model in fit_steps(trial, SGDClassifier(random_state=0), rows, Y[SMALL], total=3):
        trial.report(accuracy=model.score(rows, Y[SMALL]))
    study.tell(trial)
    assert study.best.metrics["accuracy"] > 0.8


def test_regressors_clusters_and_weights_train_in_passes():
    study = fw.Study({"unused": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), stopper=fw.Never(), seed=0)
    scaled = StandardScaler().fit_transform(X[SMALL])
    for estimator, truth, more in (
        (SGDRegressor(random_state=0), Y[SMALL].astype(float), {"sample_weight": np.ones(200)}),
        (MiniBatchKMeans(3, random_state=0, n_init=1), None, {}),
    ):
        trial = study.ask()
        for model in fit_steps(trial, estimator, scaled, truth, total=3, **more):
            trial.report(loss=-model.score(scaled, truth))
        study.tell(trial)
    assert study.counts["completed"] == 2


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        (SVC(), "SVC cannot be trained in steps: it has no partial_fit, and no warm_start"),
        (RandomForestClassifier(n_estimators=3), "has n_estimators=3: it cannot be trained in 4 steps"),
        (LogisticRegression(solver="liblinear"), "LogisticRegression cannot be trained in steps"),
        (SGDClassifier(early_stopping=True), "has early_stopping=True: set it to False"),
    ],
)
def test_what_cannot_train_in_steps_is_said(estimator, sentence):
    study = fw.Study({"unused": fw.Float(0.0, 1.0)}, fw.Maximize("accuracy"), seed=0)
    with pytest.raises(fw.UsageError, match=sentence):
        list(fit_steps(study.ask(), estimator, X, Y, total=4))


# Kept in a database, with options of any kind, in tables of any kind


def seen(search):
    return [(record.number, dict(record.params)) for record in search.study_.trials]


def test_a_search_in_a_storage_is_resumed_on_the_same_rows_only(tmp_path):
    kept = {"storage": f"sqlite:///{tmp_path / 'search.db'}", "name": "trees", "stopper": fw.Never()}
    first = search(**kept, trials=4).fit(X[SMALL], Y[SMALL])
    again = search(**kept, trials=7).fit(X[SMALL], Y[SMALL])
    whole = search(trials=7, stopper=fw.Never()).fit(X[SMALL], Y[SMALL])
    assert seen(again)[:4] == seen(first)
    assert len(again.cv_results_["params"]) == 7
    assert seen(again) == seen(whole)
    once_more = search(**kept, trials=7, random_state=None).fit(X[SMALL], Y[SMALL])  # nothing is left to run
    assert once_more.best_params_ == again.best_params_
    with pytest.raises(fw.UsageError, match="'trees' in this storage has searched by other rows or folds"):
        search(**kept, trials=9).fit(X[SMALL[:150]], Y[SMALL[:150]])
    with pytest.raises(fw.UsageError, match="searched by other rows or folds"):
        search(**kept, trials=9, cv=4).fit(X[SMALL], Y[SMALL])


def kept_fair(tmp_path, estimator=None, **scored):
    """A search under a limit on the gap between groups, kept in one place."""
    return ConstrainedSearchCV(
        DecisionTreeClassifier(random_state=0) if estimator is None else estimator,
        {"max_depth": fw.Int(1, 6)},
        constraints=[fw.AtMost("gap", 1.0)],
        scorers={"gap": group_scorer(scored.pop("metric", demographic_parity_difference), **scored)},
        storage=f"sqlite:///{tmp_path / 'search.db'}",
        name="fair",
        cv=3,
        trials=2,
        random_state=0,
    )


def test_a_stored_search_is_not_resumed_for_another_model_or_for_other_groups(tmp_path):
    data, truth = X[SMALL], Y[SMALL]
    groups = np.arange(len(data)) % 2
    kept = kept_fair(tmp_path).fit(data, truth, sensitive_features=groups)
    assert len(kept.study_.notes) == 2
    assert not later(View(kept.study_))  # what it knows itself by tells people nothing
    same = kept_fair(tmp_path, DecisionTreeClassifier(max_depth=3, random_state=0))  # which depth is searched for
    same.fit(data, truth, sensitive_features=pd.Series(groups))
    others = [
        (kept_fair(tmp_path), {"sensitive_features": 1 - groups}),
        (kept_fair(tmp_path, DecisionTreeClassifier(random_state=1)), {"sensitive_features": groups}),
        (kept_fair(tmp_path, RandomForestClassifier(random_state=0)), {"sensitive_features": groups}),
        (kept_fair(tmp_path, threshold=0.4), {"sensitive_features": groups}),
        (kept_fair(tmp_path, metric=equalized_odds_difference), {"sensitive_features": groups}),
        (kept_fair(tmp_path), {"sensitive_features": groups, "sample_weight": np.ones(len(data))}),
    ]
    for other, given in others:
        with pytest.raises(fw.UsageError, match="'fair' in this storage has searched with another estimator"):
            other.fit(data, truth, **given)


def test_a_metric_in_place_of_a_scorer_is_answered_with_what_makes_one():
    with pytest.raises(fw.UsageError, match=r"group_scorer\(demographic_parity_difference\) makes one"):
        search(scorers={"leaves": demographic_parity_difference}).fit(X, Y)
    with pytest.raises(fw.UsageError, match=r"sklearn.metrics.make_scorer\(recall_score\) makes one"):
        search(scorers={"leaves": recall_score}).fit(X, Y)
    with pytest.raises(fw.UsageError, match=r"scorers=\{'leaves': ...\} is expected; scorers has 'leafs'"):
        search(scorers={"leafs": leaves}).fit(X, Y)


def test_tuples_and_estimators_are_options_whose_names_the_log_keeps():
    pipeline = make_pipeline(StandardScaler(), SGDClassifier(random_state=0))
    space = {
        "standardscaler": {"standard": StandardScaler(), "none": "passthrough"},
        "sgdclassifier": [SGDClassifier(random_state=0), LogisticRegression(C=2)],
        "sgdclassifier__class_weight": ["balanced", None],
    }
    found = ConstrainedSearchCV(pipeline, space, cv=3, trials=6, terminator=None, random_state=0)
    found.fit(X[SMALL], Y[SMALL])
    logged = found.study_.best.params
    assert logged["standardscaler"] in ("standard", "none")
    assert logged["sgdclassifier"] in ("SGDClassifier(random_state=0)", "LogisticRegression(C=2)")
    assert type(found.best_estimator_[-1]).__name__ in logged["sgdclassifier"]
    assert {type(each) for each in found.cv_results_["param_sgdclassifier"]} == {SGDClassifier, LogisticRegression}
    assert not hasattr(space["sgdclassifier"][0], "coef_")
    assert not hasattr(found.best_params_["sgdclassifier"], "coef_")
    assert pickle.loads(pickle.dumps(found)).best_params_.keys() == found.best_params_.keys()
    network = MLPClassifier(max_iter=5, random_state=0)
    sizes = ConstrainedSearchCV(network, {"hidden_layer_sizes": [(4,), (8, 4)]}, cv=2, trials=2, random_state=0)
    with pytest.warns(UserWarning, match="Stochastic Optimizer"):
        sizes.fit(X[SMALL], Y[SMALL])
    assert sizes.best_params_["hidden_layer_sizes"] in ((4,), (8, 4))
    assert sizes.study_.best.params["hidden_layer_sizes"] in ("(4,)", "(8, 4)")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([lambda: 1, lambda: 2], "which is no name to keep in a log: give a dict of options by name"),
        ({1: "best"}, "has an option named 1: a dict of options by name is expected"),
        ([(1,), (1,)], "which is no name to keep in a log"),
    ],
)
def test_options_without_a_name_are_refused_in_a_sentence(options, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        ConstrainedSearchCV(DecisionTreeClassifier(), {"splitter": options}).fit(X, Y)


def test_a_group_scorer_judges_decisions_at_its_threshold():
    groups = (X[:, 0] > np.median(X[:, 0])).astype(int)
    data = np.column_stack([groups, X[:, :3]])
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(data, Y)
    for threshold in (0.05, 0.5, 0.95):
        scorer = group_scorer(demographic_parity_difference, 0, threshold=threshold)
        decided = (model.predict_proba(data)[:, 1] >= threshold).astype(int)
        wanted = demographic_parity_difference(Y, decided, sensitive_features=groups)
        assert float(scorer(model, data, Y)) == float(wanted)
    with pytest.raises(fw.UsageError, match="threshold=50"):
        group_scorer(demographic_parity_difference, 0, threshold=50)
    with pytest.raises(fw.UsageError, match="SVC has no predict_proba"):
        group_scorer(demographic_parity_difference, 0, threshold=0.5)(SVC().fit(data, Y), data, Y)


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_printed_unless_it_is_not_wanted(progress, capsys):
    search(trials=2, progress=progress).fit(X[SMALL], Y[SMALL])
    assert ("trials in" in capsys.readouterr().err) == progress


def test_callbacks_are_told_of_every_configuration():
    class Ends(fw.Callback):
        def __init__(self):
            self.numbers, self.why = [], []

        def on_trial_end(self, study, trial):
            self.numbers.append(trial.number)

        def on_run_end(self, study, reason):
            self.why.append(reason)

    told = Ends()
    search(trials=4, callbacks=[told]).fit(X[SMALL], Y[SMALL])
    assert (told.numbers, told.why) == ([0, 1, 2, 3], ["the study has 4 trials"])


def test_transformers_give_the_output_that_was_asked_for():
    data = pd.DataFrame(X[SMALL][:, :5], columns=list("abcde"))
    searching = ConstrainedSearchCV(
        PCA(random_state=0), {"n_components": fw.Int(1, 4)}, cv=3, trials=3, terminator=None, random_state=0
    )
    searching.set_output(transform="pandas")
    assert isinstance(searching.fit(data).transform(data), pd.DataFrame)
    assert isinstance(clone(searching).fit(data).transform(data), pd.DataFrame)
    assert isinstance(searching.set_output(transform="default").transform(data), np.ndarray)


def test_the_steps_of_a_pipeline_that_ends_in_a_classifier_get_the_output_that_was_asked_for():
    data, kinds = pd.DataFrame(X[SMALL][:, :5], columns=list("abcde")), set()

    def look(table):
        kinds.add(type(table).__name__)
        return table

    steps = make_pipeline(StandardScaler(), FunctionTransformer(look), LogisticRegression())
    space = {"logisticregression__C": fw.Float(0.1, 10.0)}
    searching = ConstrainedSearchCV(steps, space, cv=3, trials=2, terminator=None, random_state=0)
    searching.set_output(transform="pandas").fit(data, Y[SMALL])
    assert kinds == {"DataFrame"}


def test_tables_of_pandas_and_of_polars_find_the_same():
    pl = pytest.importorskip("polars")
    group = (X[SMALL][:, 0] > np.median(X[SMALL][:, 0])).astype(int)
    columns = {"group": group, "a": X[SMALL][:, 1], "b": X[SMALL][:, 2]}

    def searching(column):
        limits, scorers = [fw.AtMost("gap", 0.95)], {"gap": group_scorer(demographic_parity_difference, column)}
        return search(constraints=limits, scorers=scorers, trials=3, cv=3, certify=0.3, stopper=fw.Never())

    plain = searching(0).fit(np.column_stack([*columns.values()]), Y[SMALL])
    tables = [(pd.DataFrame(columns), pd.Series(Y[SMALL])), (pl.DataFrame(columns), pl.Series(Y[SMALL]))]
    for data, truth in tables:
        for column in ("group", 0):
            found = searching(column).fit(data, truth)
            assert seen(found) == seen(plain)
            assert found.best_params_ == plain.best_params_
            assert found.certificate_.certified == plain.certificate_.certified
        scores = cross_val_score(searching("group").set_params(certify=None), data, truth, cv=2)
        assert np.isfinite(scores).all()
