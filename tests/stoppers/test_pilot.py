"""The default stopper: against its definition written out with full sorts, and on curves that show one thing each."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import Reported
from fairway.engine.measurement import Observation
from fairway.engine.referee import Referee
from fairway.engine.verify import verify
from tests.conftest import SPACE, run_curves
from tests.stoppers.test_ace import LIMIT, curves, stops, study_of


def rungs_by_definition(spacing):
    rungs = [1]
    while rungs[-1] < 400:
        rungs.append(max(rungs[-1] + 1, round(rungs[-1] * spacing)))
    return rungs


def heading_by_definition(aucs, rungs, rung):
    """A trial's auc at a rung if it rose once more by as much as since the rung before; `aucs` by step."""
    before = rungs[rungs.index(rung) - 1] if rung != rungs[0] else rung
    return aucs[rung] - (aucs[before] - aucs[rung])


def agreeing_by_definition(seen, rungs, rung, *, by_heading):
    """How many pairs of probes a rung orders as the rung three times later does, of how many.

    `seen` is the auc by trial and step.
    """
    later = next((step for step in rungs if step >= 3 * rung), math.inf)
    probes = [k for k in sorted(seen) if (k < 6 or k % 8 == 0) and rung in seen[k] and later in seen[k]][-48:]
    shown = [heading_by_definition(seen[k], rungs, rung) if by_heading else seen[k][rung] for k in probes]
    both = [(before, seen[k][later]) for before, k in zip(shown, probes, strict=True)]
    same = [(a[0] - b[0]) * (a[1] - b[1]) for i, a in enumerate(both) for b in both[:i]]
    return sum(1.0 if product > 0 else 0.5 if product == 0 else 0.0 for product in same), len(same)


def heads_by_definition(seen, rungs):
    """Whether trials are compared by heading."""
    by_heading, by_auc = (
        sum(agreeing_by_definition(seen, rungs, rung, by_heading=way)[0] for rung in rungs) for way in (True, False)
    )
    return by_heading > by_auc


def trusted_by_definition(seen, rungs, rung, trust):
    """Whether a rung orders the probes as the rung three times later does."""
    agreeing, pairs = agreeing_by_definition(seen, rungs, rung, by_heading=heads_by_definition(seen, rungs))
    guess = (0.65, 0.75, 0.775, 0.8)[min(rungs.index(rung), 3)]
    return (agreeing + 6 * guess) / (pairs + 6) >= trust


def gain_by_definition(seen, upto, completed, rung):
    """The most that a trial gained after a rung; infinite until three were completed and three went on from it."""
    went_on = [k for k in seen if rung in seen[k] and upto.get(k, 0) > rung]
    gains = [max(seen[k][t] for t in seen[k] if t <= upto[k]) - seen[k][rung] for k in went_on]
    return max(gains) if min(len(completed), len(gains)) >= 3 else math.inf


def by_definition(curves, *, keep, spacing, trust, persistence):  # noqa: PLR0915 - all of it in one place
    """What `Pilot(interval=1)` says it does: (stops, checks, best feasible)."""
    rungs = rungs_by_definition(spacing)
    best, checks, finders, back, doublings, verdicts, seen, spent = -math.inf, 0, 0, 0, 0.0, [], {}, 0
    beyond, kept_to = [], set()  # (step, violation, loss) of those beyond their limits; (trial, step) of the others
    upto, completed = {}, set()  # the last rung of each trial, or its end; trials that came to theirs
    for number, curve in enumerate(curves):
        trial, broken, found, excess, checked, waits_to, least, fell_at = [], None, False, 0.0, 0, 0.0, math.inf, 0
        seen[number] = {}
        for t, (auc, limits) in enumerate(curve, start=1):
            seen[number][t] = auc
            spent += 1
            stop = False
            if auc > best and (t >= waits_to or t == len(curve)):
                checks += 1
                before, excess = excess, max(limits["eod"] - 0.25, 0.0) / 0.25
                falls = 0.0 < excess < before
                waits_to = t + min(excess / (before - excess) * (t - checked) / 2, t) if falls else 0.0
                fell_at = t if excess < least < math.inf else fell_at
                least, checked = min(least, excess), t
                if limits["eod"] <= 0.25:
                    back += broken is not None
                    finders += not found
                    best, broken, found = auc, None, True
                elif broken is None:
                    broken = t
            if t in rungs:
                trusted = (step for step in rungs if trusted_by_definition(seen, rungs, step, trust))
                first = next(trusted, math.inf)
                near = True  # not among those that violate most
                if not excess:
                    kept_to.add((number, t))
                if excess:
                    beyond.append((t, excess, -auc))
                    worse = sorted(other[1:] for other in beyond if other[0] == t)
                    kept = max(1, math.floor(len(worse) * keep + 1e-9))
                    near = (excess, -auc) <= worse[kept - 1]
                probes = (number < 6 or number % 8 == 0) and t < 3 * first
                if not probes and (auc < best or not near) and trusted_by_definition(seen, rungs, t, trust):
                    those = [k for k in seen if t in seen[k] and (excess or (k, t) in kept_to)]
                    heads = heads_by_definition(seen, rungs)
                    shown = {k: heading_by_definition(seen[k], rungs, t) if heads else seen[k][t] for k in those}
                    kept = max(1, math.floor(len(shown) * keep + 1e-9))
                    stop = shown[number] < sorted(shown.values(), reverse=True)[kept - 1]
                upto[number] = t
                if number >= 6 and number % 8:
                    stop = stop or best - auc > 1.5 * gain_by_definition(seen, upto, completed, t)
            if broken is not None:
                doublings += math.log2(t / (t - 1)) if t > broken else 0.0
                new_trial, going_on = max(finders, 1) / spent, (back + 1) / (doublings + 1) / t
                stop = stop or (persistence * going_on < new_trial - 1e-9 and not (near and fell_at >= checked / 2 > 0))
            trial.append(stop and t < len(curve))
            if trial[-1]:
                break
        if not trial[-1]:
            completed.add(number)
            upto[number] = len(curve)
        verdicts.append(trial)
    return verdicts, checks, best


@given(
    curves,
    st.sampled_from([0.25, 0.5, 0.8]),
    st.sampled_from([1.25, 1.5, 2.0]),
    st.sampled_from([0.5, 0.75, 0.9]),
    st.sampled_from([0.5, 2.0, 7.0]),
)
def test_decisions_checks_and_best_are_those_of_its_definition(curves, keep, spacing, trust, persistence):
    settings = {"keep": keep, "spacing": spacing, "trust": trust, "persistence": persistence}
    study = study_of(fw.Pilot(interval=1, **settings))
    decisions = run_curves(study, curves)
    expected, checks, best = by_definition(curves, **settings)
    assert stops(decisions) == expected
    assert study.costs.checks == checks
    assert (study.best.metrics["auc"] if study.best else -math.inf) == best


@pytest.mark.parametrize("seed", range(8))
def test_so_they_are_in_longer_searches(seed):
    rng = np.random.default_rng(seed)
    settings = {"keep": 0.5, "spacing": 1.5, "trust": 0.75, "persistence": 7.0}
    shown = []
    for end, moves in rng.random((40, 2)):
        aucs = end * (1 - 0.9 ** np.arange(1, 13)) + 0.02 * rng.random(12)
        shown.append(curve(aucs, np.clip(0.1 + 0.3 * end + 0.3 * (moves - 0.5) * np.linspace(0, 1, 12), 0, 1)))
    study = study_of(fw.Pilot(interval=1, **settings))
    expected, checks, best = by_definition(shown, **settings)
    assert stops(run_curves(study, shown)) == expected
    assert (study.costs.checks, study.best.objective) == (checks, best)


@given(curves, st.sampled_from([fw.Pilot(), fw.Pilot(interval=1), fw.Pilot(interval="end"), fw.Pilot(skip=False)]))
def test_what_it_decided_can_be_verified(curves, stopper):
    study = study_of(stopper)
    run_curves(study, curves)
    result = verify(study.log.read())
    assert not result.faults


@given(curves, st.randoms(use_true_random=False))
def test_replicas_agree_in_whatever_order_trials_reached_them(curves, rng):
    study = study_of(fw.Pilot())
    run_curves(study, curves)
    events = [event for event in study.log.read() if type(event).__name__ in ("Reported", "Told")]
    by_trial = {}
    for event in events:
        by_trial.setdefault(event.number, []).append(event)
    mixed = []
    while by_trial:  # each trial's own events stay in their order
        number = rng.choice(list(by_trial))
        mixed.append(by_trial[number].pop(0))
        if not by_trial[number]:
            del by_trial[number]
    verdicts = []
    for order in (events, mixed):
        referee = Referee(study.problem, study.stopper)
        for event in order:
            referee.replay(event)
        after = random.Random(0)
        rows = [(after.randint(1, 6), -after.random(), after.choice([None, 0.0, 0.5])) for _ in range(20)]
        verdicts.append(
            [
                referee.rule(1000 + i, Observation(step, -loss, loss, (0.1,), (5,), violation, 7, False))[0]
                for i, (step, loss, violation) in enumerate(rows)
            ]
        )
    assert verdicts[0] == verdicts[1]


def curve(aucs, eods):
    return [(auc, {"eod": eod}) for auc, eod in zip(aucs, eods, strict=True)]


def test_where_a_broken_limit_stays_broken_it_gives_such_trials_up_sooner_and_sooner():
    grows = [curve([0.5 + k / 1000 + t / 100 for t in range(30)], [0.1] * 3 + [0.4] * 27) for k in range(20)]
    study = study_of(fw.Pilot(interval=1))
    lengths = [len(trial) for trial in run_curves(study, grows)]
    assert lengths[0] == 30
    assert max(lengths[-5:]) < 8
    assert "violated since step 4; trials recovered in 0 of " in study.trials[-1].reason
    assert study.trials[-1].reason.startswith("eod 0.4 > 0.25, ")


def test_where_trials_come_back_they_are_let_go_on():
    comes_back = [
        curve([0.5 + k / 1000 + t / 100 for t in range(30)], [0.1] * 3 + [0.4] * 20 + [0.2] * 7) for k in range(20)
    ]
    lengths = [len(trial) for trial in run_curves(study_of(fw.Pilot(interval=1)), comes_back)]
    assert sum(length == 30 for length in lengths) >= 18


def test_what_is_near_its_limit_and_falls_is_not_given_up_where_others_never_came_back():
    stays = [curve([0.5 + k / 1000 + t / 100 for t in range(30)], [0.1] * 3 + [0.8] * 27) for k in range(20)]
    falls = curve([0.6 + t / 100 for t in range(30)], [0.6 - t / 100 for t in range(30)])
    far = curve([0.6 + t / 100 for t in range(30)], [1.0 - t / 100 for t in range(30)])
    lengths = [len(trial) for trial in run_curves(study_of(fw.Pilot(interval=1)), [*stays, far, falls])]
    assert max(lengths[15:20]) < 8
    assert lengths[20] < 8
    assert lengths[21] == 30


def test_what_nears_its_limit_unsteadily_is_not_given_up_until_half_of_its_steps_brought_no_new_low():
    stays = [curve([0.5 + k / 1000 + t / 100 for t in range(30)], [0.1] * 3 + [0.9] * 27) for k in range(20)]
    nears = [0.8 - t / 100 + 0.03 * (t % 2) for t in range(30)]
    turns = [0.8, 0.7, 0.6, *[0.62] * 27]
    unsteady, turned = (curve([0.6 + t / 100 for t in range(30)], eod) for eod in (nears, turns))
    study = study_of(fw.Pilot(interval=1))
    lengths = [len(trial) for trial in run_curves(study, [*stays, unsteady, turned])]
    assert lengths[20] == 30
    assert 3 < lengths[21] < 12


def test_it_never_stops_what_is_as_good_as_the_best_feasible_by_its_rank():
    shown = [curve([0.9, 0.9], [0.4, 0.4]), curve([0.9, 0.9], [0.4, 0.4]), curve([0.5, 0.5], [0.1, 0.1])]
    assert stops(run_curves(study_of(fw.Pilot(interval=1)), shown))[2] == [False, False]


def test_what_violates_a_limit_is_no_reason_to_stop_what_does_not():
    fast = curve([0.99] * 12, [0.4] * 12)
    slow = curve([0.4 + step / 20 for step in range(12)], [0.1] * 12)
    study = study_of(fw.Pilot(interval=1, trust=0.0, persistence=1000.0))
    lengths = [len(trial) for trial in run_curves(study, [slow, *[fast] * 8, slow])]
    assert lengths[-1] == 12  # though it is behind all that are fast


def fading(end, lead):
    """A curve whose early lead fades while it learns."""
    steps = np.arange(1, 41)
    return [(auc, {}) for auc in end * (1 - np.exp(-steps / 8)) + lead * np.exp(-steps / 2)]


@pytest.mark.parametrize("seed", range(4))
def test_where_early_leads_fade_trials_are_stopped_by_where_they_head(seed):
    rng = np.random.default_rng(seed)
    shown = [fading(end, lead) for end, lead in rng.uniform((0.4, 0.0), (0.9, 0.5), (60, 2))]
    study = study_of(fw.Pilot(), constraints=())
    run_curves(study, shown)
    stopped = [trial for trial in study.trials if "not on course for the best 55% of " in trial.reason]
    assert len(stopped) > 30

    def has_led(trial):
        """Whether it was stopped at a step where a trial that was behind it continued."""
        at = trial.steps
        return any(
            shown[other.number][at - 1][0] < shown[trial.number][at - 1][0]
            for other in study.trials
            if other.steps > at
        )

    assert any(map(has_led, stopped))
    assert not verify(study.log.read()).faults


@pytest.mark.parametrize("seed", range(4))
def test_where_curves_are_flat_and_noisy_hardly_anybody_is_judged_by_where_they_head(seed):
    rng = np.random.default_rng(seed)
    noisy = [[(auc, {}) for auc in end + 0.03 * rng.normal(size=40)] for end in rng.uniform(0.4, 0.9, 60)]
    study = study_of(fw.Pilot(), constraints=())
    run_curves(study, noisy)
    reasons = [trial.reason for trial in study.trials if trial.status == "stopped"]
    assert len(reasons) > 40
    assert sum("on course" in reason for reason in reasons) <= len(reasons) / 4


def saturating(end, pace, n=60):
    return [(end * (1 - math.exp(-step / pace)), {}) for step in range(1, n + 1)]


def test_a_slow_learner_too_far_behind_to_catch_up_is_stopped():
    study = study_of(fw.Pilot(trust=1), constraints=())  # ranks stop nobody
    run_curves(study, [*[saturating(0.6, 10.0)] * 5, saturating(0.9, 8.0), saturating(0.6, 10.0)])
    assert [trial.steps for trial in study.trials] == [60] * 6 + [9]  # at 6, one had gained enough
    why = "auc 0.3561, 0.5434 behind the best, and no trial gained 67% of that after step 9"
    assert study.trials[6].reason == why
    assert not verify(study.log.read()).faults


def test_a_trial_that_may_catch_up_as_others_did_is_not_stopped():
    late = [(0.1 if step < 50 else 0.8, {}) for step in range(1, 61)]
    study = study_of(fw.Pilot(trust=1), constraints=())
    run_curves(study, [late, *[saturating(0.9, 5.0)] * 6, late])
    assert study.trials[7].steps == 60


def test_trials_of_a_single_report_are_never_too_far_behind():
    study = study_of(fw.Pilot(), constraints=())
    for number in range(30):
        trial = study.ask()
        trial.report(auc=number % 7 / 10)
        study.tell(trial)
    assert "behind the best" not in " ".join(trial.reason for trial in study.trials)


def test_until_three_trials_were_completed_nobody_is_too_far_behind():
    study = study_of(fw.Pilot(trust=1), constraints=())
    run_curves(study, [saturating(0.9, 5.0)[:30]] * 6)
    assert study.counts["completed"] == 6
    few = study_of(fw.Pilot(trust=1), constraints=())
    for number in range(8):
        trial = few.ask()
        for step in trial.steps(30 if number < 2 else 60):
            trial.report(auc=0.9 if number < 2 else 0.1 - step / 1000)
            if number >= 2 and step == 40:
                break
        few.tell(trial, failed="it broke off") if 2 <= number < 7 else few.tell(trial)
    assert few.trials[7].steps == 40


def test_as_good_as_the_best_feasible_is_not_worth_a_check():
    shown = [curve([0.5] * 4, [0.1] * 4), curve([0.5] * 4, [0.1] * 4), curve([0.5, 0.6, 0.6, 0.7], [0.1] * 4)]
    study = study_of(fw.Pilot(interval=1))
    run_curves(study, shown)
    assert study.costs.checks == 3
    study = study_of(fw.Pilot(interval=1, skip=False))
    run_curves(study, shown)
    assert study.costs.checks == 12


def test_a_violation_that_falls_is_measured_again_halfway_to_its_limit_and_at_the_last_step():
    eods = [1.25 - step / 20 for step in range(1, 16)]  # it would meet its limit at step 20
    study = study_of(fw.Pilot(interval=1))
    run_curves(study, [curve([step / 100 for step in range(1, 16)], eods)])
    reported = [event for event in study.log.read() if isinstance(event, Reported)]
    steps = np.concatenate([event.step[event.check_ns[:, 0] >= 0] for event in reported])
    assert steps.tolist() == [1, 2, 4, 8, 14, 15]


def test_a_violation_that_does_not_fall_is_measured_at_every_step():
    study = study_of(fw.Pilot(interval=1, persistence=1000.0))
    run_curves(study, [curve([step / 100 for step in range(1, 11)], [0.5 + step / 100 for step in range(10)])])
    assert study.costs.checks == 10


def test_a_first_trial_that_never_meets_its_limits_does_not_eat_the_budget():
    study = study_of(fw.Pilot(interval=1))
    run_curves(study, [curve([0.8] * 500, [0.9] * 500)])
    assert study.trials[0].steps == 65  # six doublings without a way back, where seven times as much is asked for
    assert study.trials[0].reason.endswith("violated since step 1; trials recovered in 0 of 6 doublings of training")


def test_without_limits_it_is_successive_halving_with_rungs_close_together():
    shown = [[(auc, {})] * 10 for auc in (0.5, 0.6, 0.4, 0.55, 0.45, 0.7, 0.3)]
    study = study_of(fw.Pilot(), constraints=())
    assert [len(trial) for trial in run_curves(study, shown)][-1] == 1
    assert study.trials[6].reason == "auc 0.3, not among the best 55% of 7 at step 1"


def blind(seed, until, n=80, steps=30):
    """Curves whose order is drawn anew at every step before one, and stays from then on."""
    rng = np.random.default_rng(seed)
    before, after = rng.random((n, until)), rng.random(n)
    return [[((before[k, t] if t < until else after[k]) / 2 + t / 100, {}) for t in range(1, steps)] for k in range(n)]


@pytest.mark.parametrize("until", [1, 2, 4, 9])
def test_where_early_steps_say_nothing_hardly_anybody_is_stopped_there(until):
    early = late = 0
    for seed in range(6):
        study = study_of(fw.Pilot(), constraints=())
        run_curves(study, blind(seed, until))
        stopped = [trial.steps for trial in study.trials[40:] if trial.status == "stopped"]
        early, late = early + sum(steps < until for steps in stopped), late + sum(steps >= until for steps in stopped)
    assert early <= 0.15 * (early + late)
    assert late > 100


@pytest.mark.parametrize(("price", "share"), [(0.1, 0.26), (8.0, 0.9), (80.0, 0.99)])
def test_checks_take_their_share_of_the_seconds_but_for_the_first_few_and_the_last(price, share):
    recording = fw.Recording(
        space=fw.Space(SPACE),
        config=np.array([[0.5]]),
        total_steps=np.array([60]),
        offset=np.array([0, 60]),
        seconds=np.full(60, 0.1),
        metrics={"auc": np.linspace(0.5, 0.9, 60), "eod": np.linspace(0.1, 0.11, 60)},
    )
    study = fw.Study(recording.space, fw.Maximize("auc"), [LIMIT], sampler=fw.Random(), seed=0)
    fw.simulate(study, recording, workers=1, budget=1e4, constraint_price=price)
    assert isinstance(study.stopper, fw.Pilot)
    assert study.best.step == 60  # the last step is checked whatever it costs
    costs = study.costs
    assert costs.check_seconds <= share * (costs.check_seconds + costs.training_seconds)
    free = 5 * price * 0.1  # four to learn the price, and the last
    assert costs.check_seconds - free <= 0.75 * (costs.check_seconds + costs.training_seconds)


def test_with_a_fixed_interval_nothing_depends_on_the_clock():
    shown = [curve([0.5 + k / 50 + t / 100 for t in range(9)], [0.1, 0.3] * 4 + [0.1]) for k in range(9)]
    seen = [stops(run_curves(study_of(fw.Pilot(interval=1)), shown)) for _ in range(3)]
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize(("cost", "most"), [(None, 60), (0.5, 60), (4.0, 47), (1000.0, 5)])
def test_with_a_fixed_interval_checks_take_their_share_by_the_costs_that_are_declared(make_study, cost, most):
    study = make_study(fw.Pilot(interval=1), [fw.AtMost("eod", 0.25, cost=cost)])
    run_curves(study, [curve([0.5 + t / 200 for t in range(60)], [0.1] * 60)])
    assert study.costs.checks <= most
    assert study.costs.checks >= min(most, 60 // max(round(cost or 1), 1))
    assert study.best.step == 60  # the last step is checked whatever it costs
    assert verify(study.log.read()).faults == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"keep": 1}, "keep=1: a fraction between 0 and 1 is expected"),
        ({"spacing": 1}, "spacing=1: a number above 1 is expected"),
        ({"trust": 2}, "trust=2: a number from 0 to 1 is expected"),
        ({"persistence": 0}, "persistence=0: a positive number is expected"),
        ({"checks": 0}, "checks=0: a fraction between 0 and 1 is expected"),
        ({"grace": 0}, "grace=0: a whole number of at least 1 is expected"),
        ({"interval": "often"}, "interval='often': a whole number, 'end' or 'adaptive' is expected"),
    ],
)
def test_bad_settings_are_refused(settings, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        fw.Pilot(**settings)


def test_means_of_folds_that_break_a_limit_are_ranked_by_how_far():
    study = study_of(fw.Pilot(interval=1))
    trials = []
    for eod in (0.3, 0.35, 0.32, 0.28):
        trial = study.ask()
        for k in trial.steps(4):
            trial.report(auc=fw.Folds([0.8] * k, of=4), eod=eod)
        study.tell(trial)
        trials.append(study.trials[-1])
    assert [trial.steps for trial in trials] == [4, 1, 1, 4]
    why = "eod 0.35 > 0.25, not among the best 55% of 2 that violate least at step 1"
    assert trials[1].reason == why
    assert not verify(study.log.read()).faults


def test_a_mean_of_some_folds_within_its_limits_is_no_bar_for_others():
    study = study_of(fw.Pilot(interval=1))
    for auc in (0.9, 0.8, 0.5):
        trial = study.ask()
        for k in trial.steps(3):
            trial.report(auc=fw.Folds([auc] * k, of=3), eod=0.1)
            if auc == 0.9:
                break
        study.tell(trial)
    assert [trial.status for trial in study.trials] == ["completed", "completed", "stopped"]
    assert study.best.number == 1
