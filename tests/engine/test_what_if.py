"""What would be best under other limits is what a look at every row of the log says."""

from __future__ import annotations

import html
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.cli import main
from fairway.engine.events import Remeasured, Reported
from fairway.engine.trade_off import TradeOff
from fairway.feasibility import Checkpoint
from fairway.report.view import View
from tests.conftest import SPACE, flush
from tests.engine.test_queue import make_two

STOPPERS = [fw.Never(interval=1), fw.Never(interval="end"), fw.ACE(interval=1), fw.ACE(interval=2)]
LEVELS = st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
MEASURED = st.none() | LEVELS | st.just(math.nan)
REPORT = st.tuples(LEVELS, MEASURED, MEASURED, st.booleans())  # auc, eod, recall, whether they are callables
TRIALS = st.lists(st.tuples(st.lists(REPORT, min_size=1, max_size=5), st.booleans()), max_size=8)
LIMITS = st.sampled_from([None, 0.05, 0.1, 0.25, 0.3, 0.45, 0.9])


def build(trials, stopper, *, confidence=None, objective=None, storage=None):
    """A study in which these reports were made, some of them measured late; trials that fail keep theirs."""
    limits = [fw.AtMost("eod", 0.3, confidence=confidence), fw.AtLeast("recall", 0.25)]
    study = fw.Study(
        SPACE,
        objective or fw.Maximize("auc"),
        limits,
        stopper=stopper,
        sampler=fw.Random(),
        seed=0,
        storage=storage,
    )
    for reports, fails in trials:
        trial = study.ask()
        for step in trial.steps(len(reports)):
            auc, eod, recall, lazy = reports[step - 1]
            values = {"eod": eod if confidence is None or eod is None else fw.Measured(eod, 0.05), "recall": recall}
            known = {name: value for name, value in values.items() if value is not None}
            if lazy:
                known = {name: lambda _, value=value: value for name, value in known.items()}
            trial.report({"auc": auc, **known}, checkpoint=step if lazy else None)
        study.tell(trial, **({"failed": "on purpose"} if fails else {}))
    return study


def rows(study):
    """Every checkpoint in the log: trial, step, objective, the values by metric, their errors by metric."""
    found = {}
    for event in study.log.read():
        if not isinstance(event, Reported):
            continue
        errors = {(int(row), int(i)): error for row, i, error in event.errors.tolist()}
        for k, step in enumerate(event.step.tolist()):
            key = event.number, step
            _, values, spread = found.setdefault(key, (float(event.objective[k]), {}, {}))
            for i, name in enumerate(("eod", "recall")):
                if event.check_ns[k, i] >= 0:
                    values[name] = float(event.values[k, i])
                    spread[name] = errors.get((k, i), math.nan)
    return [(*key, *found[key]) for key in sorted(found)]


def brute(study, limits):
    """The best row, and the unknown ones with a better objective, by a loop over all."""
    confidence, maximised = study.problem.constraints[0].confidence, study.problem.objective.sign < 0
    best, unknown = None, []
    for row in rows(study):
        _, _, auc, values, errors = row
        holds = []
        for name, limit in limits.items():
            if limit is None:
                continue
            if name not in values:
                holds.append(None)
            elif name == "eod":
                margin = 0.0 if confidence is None else NormalDist().inv_cdf(confidence) * errors[name]
                holds.append(values[name] + margin <= limit)
            else:
                holds.append(values[name] >= limit)
        if False in holds:
            continue
        if None in holds:
            unknown.append(auc)
        elif best is None or (auc > best[2] if maximised else auc < best[2]):
            best = row
    better = [auc for auc in unknown if best is None or (auc > best[2] if maximised else auc < best[2])]
    return best, better


@given(TRIALS, st.sampled_from(STOPPERS), st.sampled_from([None, 0.9]), st.booleans(), LIMITS, LIMITS)
@settings(max_examples=40)
def test_the_answer_is_that_of_a_loop_over_every_row_of_the_log(trials, stopper, confidence, maximised, eod, recall):
    objective = fw.Maximize("auc") if maximised else fw.Minimize("auc")
    study = build(trials, stopper, confidence=confidence, objective=objective)
    for limits in ({"eod": eod, "recall": recall}, {"eod": 0.3, "recall": 0.25}):
        found, (best, better) = study.what_if(limits), brute(study, limits)
        assert found.checkpoints == len(rows(study))
        assert (found.best and (found.best.number, found.best.step)) == (best and best[:2])
        assert found.unknown == len(better)
        assert found.unknown_best == ((max if maximised else min)(better) if better else None)
        assert found.best_now == study.best
        assert str(found).endswith(".")
    assert study.what_if().best == study.best


@given(TRIALS, st.sampled_from([None, 0.9]), LIMITS, LIMITS)
@settings(max_examples=25)
def test_the_curve_the_front_and_the_map_agree_with_the_answer(trials, confidence, eod, recall):
    study = build(trials, fw.Never(interval=1), confidence=confidence)
    table = View(study).checkpoints()
    cost = TradeOff(study.problem, table)
    moved = {"eod": 0.3 if eod is None else eod, "recall": 0.25 if recall is None else recall}
    for i, name in enumerate(("eod", "recall")):
        sign = study.problem.constraints[i].sign
        best, loss = study.what_if({name: moved[name]}).best, cost.steps(i).best(sign * moved[name])
        assert (best and best.metrics["auc"]) == (loss and -loss)
        assert cost.in_words(i).endswith(".") or not len(cost.steps(i).at)
    found = study.what_if(moved)
    limits = np.array([moved["eod"], -moved["recall"]])
    for possible in (False, True):
        front = cost.front(1000, possible=possible)
        kept = front[(cost.least(front) <= limits).all(axis=1)]
        first = None if not len(kept) else int(kept[0])
        if possible:
            if found.unknown_best is not None:
                assert float(table.objective[first]) == found.unknown_best
        else:
            place = None if first is None else (int(table.number[first]), int(table.step[first]))
            assert place == (found.best and (found.best.number, found.best.step))
    (tile,) = cost.grid(limits[:1], limits[1:]).ravel()
    assert (None if np.isnan(tile) else -tile) == (found.best and found.best.metrics["auc"])


def test_every_checkpoint_counts_and_not_only_the_one_that_stands_for_its_trial(make_study):
    study = make_study(fw.Never(interval=1), [fw.AtMost("eod", 0.1)])
    trial = study.ask()
    for auc, eod in ((0.7, 0.05), (0.8, 0.12), (0.9, 0.3)):
        trial.report(auc=auc, eod=eod)
    study.tell(trial)
    assert study.trials[0].step == 1
    assert [study.what_if(eod=limit).best.step for limit in (0.1, 0.12, 0.2, 0.3, None)] == [1, 2, 2, 3, 3]
    assert study.what_if(eod=0.01).best is None


def test_checkpoints_that_were_never_paid_for_could_hide_a_better_one(make_study):
    study = make_study(fw.Never(interval="end"), [fw.AtMost("eod", 0.1)])
    trial = study.ask()
    for step in trial.steps(4):
        trial.report(auc=(0.5, 0.9, 0.8, 0.7)[step - 1], eod=lambda: 0.08)
    study.tell(trial)
    found = study.what_if(eod=0.12)
    assert (found.best.step, found.checkpoints, found.unknown, found.unknown_best) == (4, 4, 2, 0.9)
    assert str(found) == (
        "With eod ≤ 0.12 the best is trial 0, step 4: auc 0.7, eod 0.08. That is as good as the study's best. "
        "2 of 4 checkpoints could be better, up to auc 0.9: eod was not measured there."
    )
    assert found._repr_html_() == f"<p>{html.escape(str(found))}</p>"
    assert study.what_if(eod=None).best.metrics["auc"] == 0.9
    assert study.what_if(eod=None).unknown == 0


def test_means_of_some_folds_are_not_checkpoints(make_study):
    study = make_study(fw.Never(interval=1), [fw.AtMost("eod", 0.1)])
    trial = study.ask()
    trial.report(auc=fw.Folds([0.9], of=2), eod=0.05)
    trial.report(auc=fw.Folds([0.9, 0.5], of=2), eod=0.05)
    study.tell(trial)
    found = study.what_if(eod=0.2)
    assert (found.checkpoints, found.best.metrics["auc"]) == (1, 0.7)


def test_reports_of_running_trials_count_and_those_of_ended_ones_are_read_once(make_study):
    study = make_study(fw.Never(interval=1), [fw.AtMost("eod", 0.1)])
    study.tell(study.ask(), auc=0.5, eod=0.05)
    trial = study.ask()
    trial.report(auc=0.6, eod=0.11)
    flush(study)
    assert study.what_if(eod=0.2).best.number == 1
    trial.report(auc=0.7, eod=0.15)
    asked, reports = [], study.log.reports
    study.log.reports = lambda numbers: asked.append(set(numbers)) or reports(numbers)
    flush(study)
    assert study.what_if(eod=0.2).best.metrics["auc"] == 0.7
    study.tell(trial)
    assert study.what_if(eod=0.2).checkpoints == study.what_if(eod=0.1).checkpoints == 3
    assert asked == [{1}, {1}]


def test_a_trial_that_was_given_up_counts_as_far_as_it_had_come_and_in_full_once_it_is_revived():
    _, silent, other = make_two()
    trial = silent.ask()
    trial.steps(4)
    trial.report(auc=0.5, eod=0.1, ms=1.0)
    flush(silent)
    other.owner.journal.catch_up()
    other.owner.give_up(0, "lost its worker", retry=1)
    trial.report(auc=0.6, eod=0.1, ms=1.0)
    flush(silent)
    other.owner.journal.catch_up()
    assert other.what_if().best.metrics["auc"] == 0.5
    trial.report(auc=0.9, eod=0.1, ms=1.0)
    silent.tell(trial)
    other.owner.journal.catch_up()
    assert other.what_if().best.metrics["auc"] == other.best.metrics["auc"] == 0.9
    assert other.what_if().checkpoints == 3


def test_what_was_measured_again_counts_with_its_newer_value(make_study):
    study = make_study(constraints=[fw.AtMost("eod", 0.25)])
    for auc, eod in ((0.5, 0.1), (0.6, 0.15)):
        study.tell(study.ask(), auc=auc, eod=eod)
    assert study.what_if(eod=0.2).best.number == 1
    now = Checkpoint(1, 0.6, (0.3,))
    study.owner.journal.append(Remeasured(1, 1, (0.3,), (None,), now, now, now, seen=len(study.log.read()), at=0.0))
    assert study.what_if(eod=0.2).best.number == 0
    assert study.what_if(eod=0.3).best.metrics == {"auc": 0.6, "eod": 0.3}


def test_a_stored_study_answers_the_same_as_the_one_that_wrote_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    trials = [([(0.5, 0.1, 0.3, True), (0.6, 0.4, 0.3, False)], False), ([(0.4, None, 0.3, True)], True)]
    study = build(trials, fw.Never(interval=1), storage=url)
    again = fw.load_study(url, "study")
    for limits in ({}, {"eod": 0.5}, {"eod": None, "recall": 0.1}):
        assert again.what_if(limits) == study.what_if(limits)


def test_nothing_was_measured_yet(make_study):
    found = make_study().what_if(eod=0.1)
    assert (found.best, found.best_now, found.checkpoints, found.unknown) == (None, None, 0, 0)
    assert str(found) == "No checkpoint was measured yet."


@pytest.mark.parametrize("wrong", ["0.1", math.nan, math.inf, True, [0.1], 1j, 10**400])
def test_a_limit_that_is_no_number_is_one_sentence(make_study, wrong):
    with pytest.raises(fw.UsageError, match=r"^what_if: eod=.*: a finite number is expected, or None for no limit$"):
        make_study().what_if(eod=wrong)


def test_a_limit_on_an_unknown_metric_is_one_sentence(make_study):
    with pytest.raises(fw.UsageError, match=r"^what_if: the study has no limit on 'ms'; it limits 'eod'$"):
        make_study().what_if(ms=3.0)
    with pytest.raises(fw.UsageError, match=r"^what_if: the study has no limit on 'auc'; it has none$"):
        make_study(constraints=()).what_if(auc=0.5)


def tell_all(study, pairs):
    for auc, eod in pairs:
        study.tell(study.ask(), auc=auc, eod=eod)
    return TradeOff(study.problem, View(study).checkpoints()).in_words(0)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (
            [(0.8005, 0.09), (0.8107, 0.1), (0.8147, 0.12)],
            "If the limit of eod moves from 0.10 to 0.12, auc rises by 0.0040; from 0.10 to 0.09 it falls by 0.0102.",
        ),
        (
            [(0.8, 0.1)],
            "If the limit of eod moves from 0.10 to 0.12, auc stays as it is; from 0.10 to 0.09 it is not known.",
        ),
        ([(0.8, 0.3)], "Nothing is known to keep eod at 0.10."),
        ([(0.8, 0.11)], "Nothing is known to keep eod at 0.10; at 0.11 auc 0.8 is known."),
    ],
)
def test_the_price_of_a_limit_in_words(make_study, pairs, words):
    assert tell_all(make_study(constraints=[fw.AtMost("eod", 0.1)]), pairs) == words


@given(
    st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats()), max_size=6),
    st.floats(allow_nan=False, allow_infinity=False),
)
@settings(max_examples=40)
def test_any_numbers_have_their_price_in_words(pairs, limit):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", limit)], sampler=fw.Random(), seed=0)
    words = tell_all(study, pairs)
    assert words.isprintable()
    assert words.endswith(".") or not words


def test_limits_that_were_added_and_dropped_are_asked_about_too(tmp_path):
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0)},
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.5)],
        storage=f"sqlite:///{tmp_path / 'study.db'}",
        seed=0,
    )
    study.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"]}, trials=8, progress=False)
    assert study.what_if(eod=0.9).best.metrics["auc"] > 0.5
    study.set_limit(fw.AtMost("ms", 0.3))
    assert study.what_if(eod=0.9).best is None  # nobody has measured ms
    assert study.what_if(ms=None) == study.what_if(ms=None, eod=0.5)
    measure = lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"], "ms": trial.params["x"]}
    study.optimize(measure, trials=8, progress=False)
    assert study.what_if().best == study.best
    study.set_limit(eod=None)
    assert study.what_if().best == study.best
    assert study.what_if(ms=0.8).best.metrics["ms"] > 0.3


def test_a_limit_that_was_dropped_can_be_asked_about(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/study.db"
    limits = [fw.AtMost("eod", 0.1), fw.AtMost("ms", 20.0)]
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, stopper=fw.Never(skip=False), storage=url)
    for auc, eod, ms in ((0.7, 0.05, 10.0), (0.8, 0.15, 10.0), (0.9, 0.3, 10.0), (0.95, 0.3, 30.0)):
        study.tell(study.ask(), auc=auc, eod=eod, ms=ms)
    before = study.what_if(eod=0.2)
    study.set_limit(eod=None)
    assert study.best.number == 2
    found = study.what_if(eod=0.2)
    assert (found.best, found.best_now.number) == (before.best, 2)
    assert found.best_now.metrics == {"auc": 0.9, "eod": 0.3, "ms": 10.0}
    assert study.what_if(eod=0.2, ms=None).best.number == 1
    assert study.what_if(ms=40.0).best.metrics == {"auc": 0.95, "ms": 30.0}
    assert main(["what-if", url, "study", "eod=0.2"]) == 0
    assert "trial 1, step 1" in capsys.readouterr().out


def test_a_study_starts_from_one_whose_limits_changed():
    earlier = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], seed=0)
    earlier.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"]}, trials=8, progress=False)
    earlier.set_limit(fw.AtMost("ms", 0.3), eod=None)
    earlier.optimize(lambda trial: {"auc": trial.params["x"], "ms": trial.params["x"]}, trials=8, progress=False)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], start_from=[earlier])
    assert len(study.history.earlier[0]) == 16
