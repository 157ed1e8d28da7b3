"""A search that keeps some rows back, and certifies its estimator on them."""

from __future__ import annotations

import functools
import pickle
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
import sklearn
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, get_scorer, make_scorer, recall_score
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import fairway as fw
from fairway.constraints import (
    demographic_parity_difference,
    equalized_odds_difference,
    group_gap,
    latency,
    model_size,
)
from fairway.demo import credit_table
from fairway.engine.verify import verify
from fairway.evidence import Decisions, Exact, Mean, Quantile, Resampled
from fairway.integrations.sklearn import ConstrainedSearchCV, group_scorer

X, Y, GROUP = credit_table(2000)
NAMED = np.column_stack([X, np.arange(len(X))])  # the last column is the row's number


class Recording(LogisticRegression):
    """Notes the rows of each fit; their numbers are the last column."""

    fits: ClassVar[list] = []

    def fit(self, data, truth, sample_weight=None):
        self.fits.append(np.asarray(data)[:, -1].astype(int))
        return super().fit(np.asarray(data)[:, :-1], truth, sample_weight)

    def predict(self, data):
        return super().predict(np.asarray(data)[:, :-1])

    def predict_proba(self, data):
        return super().predict_proba(np.asarray(data)[:, :-1])

    def decision_function(self, data):
        return super().decision_function(np.asarray(data))


def search(estimator=None, limit=0.35, **more):
    settings = {
        "scoring": "neg_log_loss",
        "constraints": [fw.AtMost("eod", limit)],
        "scorers": {"eod": group_scorer(equalized_odds_difference)},
        "cv": 4,
        "trials": 8,
        "terminator": None,
        "random_state": 0,
        "certify": 0.25,
        **more,
    }
    return ConstrainedSearchCV(estimator or LogisticRegression(), {"C": fw.Float(1e-4, 1e2, log=True)}, **settings)


@pytest.fixture
def fits(monkeypatch):
    monkeypatch.setattr(Recording, "fits", [])
    return Recording.fits


class Strength:
    """A scorer whose name does not change from process to process, as a function's does."""

    def __call__(self, model, data, truth):
        return model.C

    def __repr__(self):
        return "Strength()"


@parametrize_with_checks(
    [
        ConstrainedSearchCV(
            LogisticRegression(),
            {"C": fw.Float(0.01, 10.0, log=True)},
            constraints=[fw.AtMost("C", 100.0)],
            scorers={"C": Strength()},
            cv=3,
            trials=3,
            random_state=0,
            certify=0.25,
        )
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_an_error_comes_with_each_limit_so_that_safe_and_bold_can_be_told_apart():
    found = search(stopper=fw.Never(skip=False)).fit(X, Y, sensitive_features=GROUP)
    errors = [record.errors["eod"] for record in found.study_.trials]
    assert min(errors) > 0.01  # those of the folds' rows, where the folds agree by chance
    limits = {"constraints": [fw.AtMost("wrong", 0.4)], "scorers": {"wrong": Own()}, "stopper": fw.Never(skip=False)}
    found = search(**limits).fit(X, Y)
    record = found.study_.trials[0]
    values = [found.cv_results_[f"split{k}_test_wrong"][0] for k in range(4)]
    assert record.errors["wrong"] == pytest.approx(fw.Folds(values, test_size=375, train_size=1125).noise)


def test_a_limit_with_a_confidence_is_kept_by_a_margin():
    sure = [fw.AtMost("eod", 0.35, confidence=0.9)]
    found = search(certify=None, constraints=sure).fit(X, Y, sensitive_features=GROUP)
    best = found.study_.best
    assert best.metrics["eod"] + 1.28 * best.errors["eod"] <= 0.35


# What is certified


def test_the_certified_estimator_was_fitted_on_the_searching_rows_alone(fits):
    found = search(Recording()).fit(NAMED, Y, sensitive_features=GROUP)
    certificate, seen = found.certificate_, np.unique(np.concatenate(fits))
    assert certificate.certified
    assert len(seen) == 1500
    assert certificate.findings[0].evidence.rows == 500
    assert found.best_estimator_ is certificate.model
    assert (found.best_index_, found.best_params_) == (certificate.number, dict(certificate.params))
    assert found.best_score_ == found.cv_results_["mean_test_score"][found.best_index_]
    assert found.best_limits_ == {"eod": certificate.metrics["eod"]}
    whole = [rows for rows in fits if len(rows) == 1500]
    assert len(whole) == len(certificate.tested)  # one fit a candidate
    fresh = np.setdiff1d(np.arange(2000), seen)
    assert certificate.matches(found.predict(NAMED[fresh]))
    again = equalized_odds_difference(Y[fresh], found.predict(NAMED[fresh]), sensitive_features=GROUP[fresh])
    assert certificate.findings[0].value == float(again) <= 0.35
    assert certificate.overlap == 0
    assert found.study_.certificate is certificate
    assert verify(found.study_.log.read()).faults == []


def test_the_search_is_the_one_on_those_rows(fits):
    found = search(Recording()).fit(NAMED, Y, sensitive_features=GROUP)
    rows = np.unique(np.concatenate(fits))
    plain = search(Recording(), certify=None, stopper=fw.Pilot(skip=False)).fit(
        NAMED[rows], Y[rows], sensitive_features=GROUP[rows]
    )
    assert not hasattr(plain, "certificate_")
    assert plain.study_.best == found.study_.best
    assert plain.cv_results_.keys() == found.cv_results_.keys()
    for name in ("params", "mean_test_score", "mean_test_eod", "status", "rank_test_score"):
        np.testing.assert_array_equal(plain.cv_results_[name], found.cv_results_[name])


def test_without_a_certificate_the_best_stays_and_is_told(fits):
    with pytest.warns(UserWarning, match=r"^not certified: eod .* where at most .* is allowed") as caught:
        found = search(Recording(), limit=0.12).fit(NAMED, Y, sensitive_features=GROUP)
    assert not found.certificate_.certified
    assert str(found.certificate_) in [str(each.message) for each in caught]
    best = found.study_.best
    assert (found.best_index_, found.best_params_) == (best.number, dict(best.params))
    assert found.best_score_ == best.metrics["neg_log_loss"]
    assert len(np.unique(np.concatenate(fits))) == 1500  # what is fresh stays fresh
    assert len(fits[-1]) == 1500
    assert best.params["C"] == found.best_estimator_.C
    assert found.refit_time_ > 0


def test_without_refit_there_is_a_certificate_with_its_model():
    found = search(refit=False).fit(X, Y, sensitive_features=GROUP)
    assert found.certificate_.certified
    assert found.best_params_["C"] == found.certificate_.model.C
    assert not hasattr(found, "best_estimator_")
    with pytest.raises(AttributeError, match="with refit=False there is none"):
        found.predict(X)


def test_a_higher_confidence_asks_for_more():
    sure = search(confidence=0.999).fit(X, Y, sensitive_features=GROUP).certificate_
    assert sure.confidence == 0.999
    usual = search().fit(X, Y, sensitive_features=GROUP).certificate_
    assert "with 95% confidence" in str(usual)
    assert usual.metrics["neg_log_loss"] >= sure.metrics["neg_log_loss"]


# Which rows are kept back


def kept(fits):
    return np.setdiff1d(np.arange(2000), np.concatenate(fits))


def test_each_class_of_each_group_gives_its_share(fits):
    search(Recording(), trials=2).fit(NAMED, Y, sensitive_features=GROUP)
    fresh = kept(fits)
    for group in (0, 1):
        for label in (0, 1):
            of = (group == GROUP) & (label == Y)
            assert abs(of[fresh].sum() - of.sum() / 4) < 1


def test_the_same_random_state_keeps_the_same_rows_back(fits):
    seen = []
    for state in (0, 0, 1, np.random.RandomState(0)):
        fits.clear()
        search(Recording(), trials=2, random_state=state).fit(NAMED, Y, sensitive_features=GROUP)
        seen.append(kept(fits).tolist())
    assert seen[0] == seen[1] == seen[3] != seen[2]


def test_without_groups_each_class_gives_its_share(fits):
    limit = {"constraints": [fw.AtLeast("accuracy", 0.6)], "scorers": {"accuracy": "accuracy"}}
    search(Recording(), trials=2, **limit).fit(NAMED, Y)
    assert abs(Y[kept(fits)].sum() - Y.sum() / 4) < 1


def test_groups_of_rows_stay_together_and_count_as_clusters(fits):
    person = np.arange(2000) // 4
    found = search(Recording(), trials=3, limit=0.6, cv=GroupKFold(4)).fit(
        NAMED, Y, sensitive_features=GROUP, groups=person
    )
    fresh = kept(fits)
    assert len(fresh) == 500
    assert not set(person[fresh]) & set(np.delete(person, fresh))
    decided = found.certificate_.model.predict(NAMED[fresh])
    expected = Decisions(equalized_odds_difference, Y[fresh], decided, GROUP[fresh], clusters=person[fresh])
    assert found.certificate_.findings[0].evidence == expected


def test_splits_that_name_rows_are_those_without_the_rows_kept_back(fits):
    fold = np.arange(2000) % 4
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(4)]
    scores = []
    for cv in (splits, PredefinedSplit(fold)):
        fits.clear()
        found = search(Recording(), trials=3, stopper=fw.Never(), cv=cv).fit(NAMED, Y, sensitive_features=GROUP)
        assert [set(fold[rows]) for rows in fits[:4]] == [{0, 1, 2, 3} - {k} for k in range(4)]
        assert len(kept(fits)) == 500
        scores.append(found.best_score_)
    assert scores[0] == scores[1]


# Evidence for each kind of scorer


class Own:
    """A scorer that says itself what fresh rows say."""

    def __call__(self, estimator, data, truth):
        return float((estimator.predict(data) != truth).mean())

    def evidence(self, estimator, data, truth):
        return Mean(estimator.predict(data) != truth)


def gap(truth, predicted, *, sensitive_features):
    return group_gap(lambda t, p: float((t == p).mean()), truth, predicted, sensitive_features=sensitive_features)


def evidence_for(limit, scorer, **more):
    limits = {"constraints": [limit], "scorers": {limit.metric: scorer}, "trials": 2, "stopper": fw.Never()}
    found = search(**limits).fit(X, Y, **more)
    return found.certificate_


@pytest.mark.parametrize(
    ("limit", "scorer", "kind", "grouped"),
    [
        (fw.AtMost("parity", 0.4), group_scorer(demographic_parity_difference), Decisions, True),
        pytest.param(fw.AtMost("gap", 0.4), group_scorer(gap), Resampled, True, marks=pytest.mark.slow),
        (fw.AtLeast("accuracy", 0.5), "accuracy", Mean, False),
        (fw.AtLeast("recall", 0.2), "recall", Mean, False),
        (fw.AtLeast("precision", 0.2), "precision", Mean, False),
        (fw.AtLeast("f1", 0.2), "f1", Resampled, False),
        (fw.AtLeast("recall", 0.2), make_scorer(recall_score, average="macro"), Resampled, False),
        (fw.AtMost("bytes", 1e5), model_size, Exact, False),
        (fw.AtMost("bytes", 1e5), lambda model, data, truth: model_size(model), Exact, False),
        (fw.AtMost("weights", 9), lambda model, data, truth: model.coef_.size, Exact, False),
        (fw.AtMost("seconds", 1.0), functools.partial(latency, seconds=0.01), Quantile, False),
        (fw.AtMost("wrong", 0.5), Own(), Mean, False),
    ],
)
def test_a_scorer_has_the_best_evidence_there_is(limit, scorer, kind, grouped):
    certificate = evidence_for(limit, scorer, **({"sensitive_features": GROUP} if grouped else {}))
    assert certificate.certified, str(certificate)
    assert type(certificate.findings[0].evidence) is kind
    assert certificate.approximate == (kind is Resampled)
    assert ("about 95% confidence" in str(certificate)) == (kind is Resampled)


def test_shares_are_those_of_the_scorer_and_weights_are_heard():
    for name in ("accuracy", "recall", "precision"):
        certificate = evidence_for(fw.AtLeast(name, 0.1), name)
        assert certificate.findings[0].evidence.value == pytest.approx(score_on_fresh(certificate, get_scorer(name)))
    with sklearn.config_context(enable_metadata_routing=True):
        weighted = get_scorer("accuracy").set_score_request(sample_weight=True)
        estimator = LogisticRegression().set_fit_request(sample_weight=False)
        limits = {"constraints": [fw.AtLeast("right", 0.1)], "scorers": {"right": weighted}, "trials": 2}
        limits["scoring"] = get_scorer("neg_log_loss").set_score_request(sample_weight=False)
        certificate = search(estimator, **limits).fit(X, Y, sample_weight=1.0 + Y).certificate_
    value = score_on_fresh(certificate, lambda m, x, y: get_scorer("accuracy")(m, x, y, sample_weight=1.0 + y))
    assert certificate.findings[0].evidence.value == pytest.approx(value)
    assert type(certificate.findings[0].evidence) is Mean


def score_on_fresh(certificate, scorer):
    """What a scorer gives on the rows kept back without groups, found by the split of `random_state=0`."""
    from fairway.integrations.sklearn.folds import Scoring
    from fairway.integrations.sklearn.rows import Rows, keep_back

    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    rows = Rows(X, Y, {}, {}, [Scoring("score", scorer, "scorer")])
    _, fresh = keep_back(rows, 0.25, certificate.model, seed)
    return scorer(certificate.model, X[fresh], Y[fresh])


@pytest.mark.slow
def test_resampling_predicts_once_and_finds_what_predicting_each_time_finds():
    calls = []

    class Counting(LogisticRegression):
        def predict(self, data):
            calls.append(len(data))
            return super().predict(data)

    def half(model, data, truth):  # looks at the rows too, and at rows of its own
        model.predict(data[:1])
        return f1_score(truth, model.predict(data)) + 0.0 * data[:, 0].sum()

    limits = {"constraints": [fw.AtLeast("f1", 0.1)], "scorers": {"f1": make_scorer(f1_score)}, "trials": 1, "cv": 2}
    found = search(Counting(), **limits).fit(X, Y).certificate_
    assert len(calls) < 20
    slow = search(Counting(), **{**limits, "scorers": {"f1": half}}).fit(X, Y).certificate_
    assert len(calls) > 2000  # those of rows of its own
    assert slow.findings[0].evidence == found.findings[0].evidence


def test_a_measurement_of_ones_own_that_has_no_rows_is_said():
    timed = lambda model, data, truth: latency(model, data, seconds=0.01)
    limits = {"constraints": [fw.AtMost("seconds", 1.0)], "scorers": {"seconds": timed}, "trials": 1, "cv": 2}
    searching = search(**limits)
    with pytest.raises(fw.UsageError, match=r"the scorer of 'seconds' returned Measured.* give scorers .*: latency"):
        searching.fit(X, Y)
    assert searching.predict(X).shape == Y.shape  # what the search found is there


# Whatever the estimator and the rows


def test_pipelines_and_frames_with_groups_in_a_column(fits):
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)]).assign(group=np.where(GROUP, "a", "b"))
    inner = make_pipeline(sklearn.compose.make_column_transformer((StandardScaler(), frame.columns[:8])), Recorded())
    scorers = {"eod": group_scorer(equalized_odds_difference, column="group")}
    found = search(inner, scorers=scorers).set_params(space={"recorded__C": fw.Float(1e-3, 1e2, log=True)})
    found.fit(frame, pd.Series(Y))
    assert found.certificate_.certified
    assert found.certificate_.overlap == 0
    assert found.feature_names_in_[-1] == "group"
    assert sorted(found.certificate_.findings[0].evidence.groups) == ["a", "b"]


class Recorded(LogisticRegression):
    """Another name in a pipeline."""


def test_sparse_rows_texts_kernels_and_clusters_are_certified():
    small = slice(0, 400)
    limits = {"constraints": [fw.AtLeast("accuracy", 0.5)], "scorers": {"accuracy": "accuracy"}, "trials": 2, "cv": 3}
    assert search(**limits).fit(csr_matrix(X), Y).certificate_.overlap == 0
    texts = ["late debt" if y else "income age" for y in Y[small]]
    model = make_pipeline(sklearn.feature_extraction.text.CountVectorizer(), MultinomialNB())
    space = {"multinomialnb__alpha": fw.Float(0.1, 2.0)}
    certificate = search(model, **limits).set_params(space=space).fit(texts, Y[small]).certificate_
    assert certificate.certified
    assert certificate.overlap == 100  # which duplicates explain
    scaled = StandardScaler().fit_transform(X[small])
    found = search(SVC(kernel="precomputed"), scoring="roc_auc", **limits).fit(scaled @ scaled.T, Y[small])
    assert found.certificate_.certified
    assert found.certificate_.overlap is None
    limits = {"constraints": [fw.AtMost("clusters", 4)], "scorers": {"clusters": lambda m, *rows: m.n_clusters}}
    found = search(KMeans(n_init=1, random_state=0), scoring=None, **limits)
    found.set_params(space={"n_clusters": fw.Int(2, 6)}).fit(X[small])
    assert found.certificate_.certified
    assert found.best_params_["n_clusters"] <= 4


def test_a_regressor_is_certified():
    target = X[:, 0] * 2 + np.random.default_rng(0).normal(size=2000)
    limits = {"constraints": [fw.AtLeast("r2", 0.5)], "scorers": {"r2": "r2"}, "cv": KFold(3), "scoring": None}
    found = search(Ridge(), **limits).set_params(space={"alpha": fw.Float(0.1, 10.0)}).fit(X, target)
    assert found.certificate_.certified
    assert found.certificate_.approximate


def test_groups_and_weights_are_routed_to_the_rows_they_belong_to(fits):
    weights = np.where(Y == 1, 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = Recording().set_fit_request(sample_weight=True)
        scoring = get_scorer("neg_log_loss").set_score_request(sample_weight=False)
        routed = search(estimator, limit=0.6, scoring=scoring).fit(
            NAMED, Y, sensitive_features=GROUP, sample_weight=weights
        )
    rows = fits[-1]
    expected = LogisticRegression(C=routed.best_params_["C"]).fit(X[rows], Y[rows], weights[rows])
    np.testing.assert_array_equal(routed.predict(NAMED), expected.predict(X))
    plain = search(Recording(), limit=0.6).fit(NAMED, Y, sensitive_features=GROUP, sample_weight=weights)
    np.testing.assert_array_equal(routed.predict(NAMED), plain.predict(NAMED))


def test_workers_clones_and_pickles():
    found = search(trials=6, workers=2).fit(X, Y, sensitive_features=GROUP)
    assert found.certificate_.certified
    assert clone(found).certify == 0.25
    back = pickle.loads(pickle.dumps(found))
    assert str(back.certificate_) == str(found.certificate_)
    assert back.certificate_.findings[0].evidence == found.certificate_.findings[0].evidence
    np.testing.assert_array_equal(back.certificate_.model.predict(X), found.predict(X))
    np.testing.assert_array_equal(back.predict(X), found.predict(X))
    assert back.study_.certificate.certified


def test_two_limits_with_groups_of_their_own():
    young = X[:, 2] < 0
    table = np.column_stack([X, GROUP, young])
    limits = {
        "constraints": [fw.AtMost("sex", 0.5), fw.AtMost("age", 0.5), fw.AtMost("bytes", 1e5)],
        "scorers": {
            "sex": group_scorer(demographic_parity_difference, column=8),
            "age": group_scorer(demographic_parity_difference, column=9),
            "bytes": model_size,
        },
    }
    found = search(**limits).fit(table, Y)
    assert found.certificate_.certified
    assert [type(each.evidence) for each in found.certificate_.findings] == [Decisions, Decisions, Exact]


@pytest.mark.parametrize(
    ("column", "groups"),
    [(None, GROUP), (None, {"sex": GROUP, "age": X[:, 2] < 0}), (None, pd.Series(GROUP)), (8, None)],
    ids=["array", "mapping", "series", "column"],
)
def test_two_limits_on_the_same_groups_name_them_to_the_study(column, groups):
    limits = {
        "constraints": [fw.AtMost("parity", 0.9), fw.AtMost("odds", 0.9)],
        "scorers": {
            "parity": group_scorer(demographic_parity_difference, column=column),
            "odds": group_scorer(equalized_odds_difference, column=column),
        },
    }
    given = {} if groups is None else {"sensitive_features": groups}
    found = search(**limits, trials=2).fit(np.column_stack([X, GROUP]), Y, **given)
    (searched,) = found.study_.owner.ledger.searched
    assert searched.groups == sorted(found.certificate_.findings[0].evidence.groups)


# What goes wrong


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"certify": 25}, "certify=25: a fraction between 0 and 1 is expected; did you mean 0.25"),
        ({"certify": 1.0}, "certify=1.0: a fraction between 0 and 1 is expected"),
        ({"certify": True}, "certify=True: a fraction between 0 and 1 is expected"),
        ({"certify": {"share": 0.2}}, "certify={'share': 0.2}: a fraction between 0 and 1 is expected"),
        ({"confidence": 95}, "confidence=95: a fraction between 0 and 1 is expected; did you mean 0.95"),
        ({"confidence": 0.3}, "confidence=0.3: at least 0.5 is expected, such as 0.95"),
        ({"constraints": (), "scorers": None}, "certify=0.25: there is no limit to certify; give constraints"),
        ({"certify": 0.01, "limit": 0.05}, "certify=0.01 leaves .* rows, too few for the limit on eod: whatever they"),
        ({"certify": 0.0001}, "certify=0.0001 of 2,000 samples leaves none to certify on"),
    ],
)
def test_what_cannot_be_certified_is_said_before_anything_is_trained(settings, sentence, fits):
    given = {} if "scorers" in settings else {"sensitive_features": GROUP}
    with pytest.raises(ValueError, match=sentence):
        search(Recording(), **settings).fit(NAMED, Y, **given)
    assert not fits


def test_when_nothing_is_within_the_limits_there_is_no_certificate():
    with pytest.raises(fw.StudyFailed, match="none of 3 configurations is within the limits"):
        search(limit=0.01, certify=0.5, trials=3, confidence=0.5).fit(X, Y, sensitive_features=GROUP)
    found = search(limit=0.01, certify=0.5, trials=3, confidence=0.5, refit=False)
    with pytest.warns(UserWarning, match="none of 3 configurations"):
        found.fit(X, Y, sensitive_features=GROUP)
    assert not hasattr(found, "certificate_")


def test_a_tree_may_be_limited_by_its_leaves_and_by_its_fairness():
    space = {"max_depth": fw.Int(1, 8), "min_samples_leaf": fw.Int(5, 80, log=True)}
    found = search(DecisionTreeClassifier(random_state=0), trials=20, scoring="roc_auc").set_params(space=space)
    limits = [fw.AtMost("eod", 0.45), fw.AtMost("leaves", 20)]
    leaves = lambda tree, data, truth: tree.get_n_leaves()
    found.set_params(constraints=limits, scorers={**found.scorers, "leaves": leaves})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.fit(X, Y, sensitive_features=GROUP)
    assert [type(each.evidence) for each in found.certificate_.findings] == [Decisions, Exact]
    assert found.certificate_.findings[1].value == found.certificate_.model.get_n_leaves()
