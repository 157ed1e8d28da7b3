"""Which stopper deserves to be the default? A fixed pool of rules over many settings, in virtual time, on paired seeds.

    python -m bench run policies [--data credit.npz] [--sst2 sst2.npz] [--vit vit.npz] [--lcbench FOLDER] ...

compas, german, bank and cards (of the table credit) are made by `python -m bench.record`, digits-cnn and adult-mlp by
`python -m bench.record_networks`, pendigits, fourier, optdigits and pixel by `python -m bench.record_perceptrons`. A
setting is a recording, its limits, the price of a check in steps, seconds, and a sampler. Regret is the objective x
1000 short of the best feasible checkpoint of the whole recording; where nothing feasible was found, that of a guess
counts.

optdigits and pixel have 800 configurations. A limit there is what 10% or 25% of all trainings keep at their end, and
the seconds are those in which random search that never stops completes 20 or 60 trials: fixed before any search.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ace_tables import CURVES, WORKERS
from bench.pictures import figure
from bench.reproduction import Found, Given, Need, Reproduction, Result, made_by

RULES: dict[str, fw.Stopper] = {
    "Never": fw.Never(),
    "ASHA": fw.ASHA(),
    "ASHA strata": fw.ASHA(strata=True),
    "Median": fw.Median(),
    "ACE": fw.ACE(),
    "ACE hard": fw.ACE(tolerance="hard"),
    "Pilot": fw.Pilot(),
}
DEFAULT = "Pilot"
SAMPLERS: dict[str, fw.Sampler] = {"random": fw.Random(), "c-TPE": fw.CTPE()}
CHEAP, PAPER, DEAR = 0.04, 1.94, 24.0
GUESS = dict.fromkeys(("vit", "digits-cnn", "pendigits", "fourier", "optdigits", "pixel"), 0.1)
GUESS |= {"adult-mlp": 0.751, "lc126029": 0.399, "lc168331": 0.076, "lc189354": 0.469}
ONLY_JUDGE = ("adult-mlp", "optdigits", "pixel")  # recordings
NOISE, OTHER_NOISE = {"vit": 1.0, "credit": 0.2}, 0.5  # of a validation, x 1000
COIN = 0.5  # where the objective is an AUC, and on sst2
DRAWS = 1000  # of the bootstrap
MOSTLY = 0.9  # of the seeds
AMPLE = 0.5  # the most of a recording that is used, for it to show the rules and not its own end
FIRST_SEED = 1000  # those below were looked at when the default was chosen
Array: TypeAlias = NDArray[np.float64]


class Setting(NamedTuple):
    """One task for all rules."""

    recording: str
    limits: tuple[tuple[str, float], ...]
    price: float
    seconds: float
    sampler: str = "random"

    @property
    def chosen(self) -> bool:
        """Whether the default's settings were chosen on its recording."""
        return self.recording not in ONLY_JUDGE

    @property
    def label(self) -> str:
        """For people, and to keep its runs by."""
        limits = " and ".join(f"{metric} <= {limit:g}" for metric, limit in self.limits)
        how = "" if self.sampler == "random" else f", {self.sampler}"
        return f"{self.recording} {limits}, price {self.price:g}, {self.seconds:g} s{how}"


def _settings() -> list[Setting]:
    eod, afr = (0.15, 0.20, 0.25, 0.30), (0.19, 0.20, 0.24, 0.25)
    found = [Setting("credit", (("eod", limit),), price, 6.0) for limit, price in product(eod, (CHEAP, PAPER, DEAR))]
    found += [Setting("credit", (("eod", limit),), PAPER, 3.0) for limit in eod]
    found += [Setting("credit", (("eod", limit),), price, 20.0) for limit, price in product(eod[1:], (PAPER, DEAR))]
    found += [Setting("credit", (("dpd", 0.025),), price, 6.0) for price in (PAPER, DEAR)]
    found += [Setting("credit", (("eod", 0.20), ("dpd", 0.025)), price, 6.0) for price in (PAPER, DEAR)]
    found += [
        Setting("sst2", (("afr", limit),), price, seconds)
        for limit, (price, seconds) in product(afr, ((CHEAP, 1.5), (PAPER, 2.0), (PAPER, 3.0), (DEAR, 6.0)))
    ]
    for limit, price in product((0.20, 0.25), (PAPER, DEAR)):
        found.append(Setting("credit", (("eod", limit),), price, 3.0, "c-TPE"))
    for limit, price in product((0.20, 0.24), (PAPER, DEAR)):
        found.append(Setting("sst2", (("afr", limit),), price, 3.0 if price == PAPER else 6.0, "c-TPE"))
    for price, wide in ((PAPER, 1.0), (DEAR, 2.0)):  # limits that few trainings ever meet
        found.append(Setting("sst2", (("afr", 0.14),), price, 2.0 if price == PAPER else 6.0))
        found.append(Setting("compas", (("eod", 0.10),), price, 0.4 * wide))
        found.append(Setting("german", (("eod", 0.01),), price, 0.14 * wide))
    for name, limits, scale in (("compas", (0.17, 0.19, 0.21), 1.0), ("german", (0.03, 0.06, 0.10), 0.35)):
        found += [
            Setting(name, (("eod", limit),), price, scale * seconds)
            for limit, (price, seconds) in product(limits, ((CHEAP, 0.4), (PAPER, 0.4), (DEAR, 0.8)))
        ]
    found += [
        Setting("bank", (("eod", limit),), price, seconds)
        for limit, (price, seconds) in product((0.06, 0.067, 0.073), ((CHEAP, 1.2), (PAPER, 1.2), (DEAR, 2.4)))
    ]
    found += [
        Setting("cards", (("eod", limit),), price, seconds)
        for limit, (price, wide) in product((0.033, 0.037), ((CHEAP, 1.0), (PAPER, 1.0), (DEAR, 1.5)))
        for seconds in (wide, 3 * wide)
    ]
    networks: dict[str, tuple[tuple[float, float], dict[str, tuple[float, ...]]]] = {  # seconds, and limits by metric
        "vit": (
            (150.0, 450.0),
            {"drop": (0.02, 0.03), "worst_error": (0.65, 0.6), "ece": (0.02, 0.04), "mmacs": (5.0, 2.0)},
        ),
        "lc126029": ((840.0, 2600.0), {"balanced_error": (0.1853, 0.15)}),
        "lc168331": ((1300.0, 4200.0), {"balanced_error": (0.5119, 0.6)}),
        "lc189354": ((6300.0, 19600.0), {"balanced_error": (0.4046, 0.35)}),
        "digits-cnn": ((60.0, 180.0), {"worst_error": (0.12,), "ece": (0.1,), "drop": (0.01,), "mmacs": (0.03,)}),
        "adult-mlp": ((40.0, 115.0), {"eod": (0.05,), "worst_error": (0.28,), "drop": (0.01,), "ece": (0.04,)}),
        "pendigits": ((0.9, 2.7), {"worst_error": (0.06, 0.077), "ece": (0.075, 0.1), "drop": (0.08, 0.107)}),
        "fourier": ((0.63, 1.9), {"worst_error": (0.57, 0.64), "ece": (0.033, 0.053), "drop": (0.037, 0.054)}),
        "optdigits": (
            (0.905, 2.715),
            {"worst_error": (0.1146, 0.1495), "ece": (0.0305, 0.0527), "drop": (0.0325, 0.046)},
        ),
        "pixel": ((0.731, 2.192), {"worst_error": (0.1343, 0.1589), "ece": (0.0252, 0.0407), "drop": (0.01, 0.02)}),
    }
    for name, (budgets, limited) in networks.items():
        for metric, allowed in limited.items():
            found += [Setting(name, ((metric, limit),), 1.0, seconds) for limit, seconds in product(allowed, budgets)]
    return found


SETTINGS = _settings()
RECORDINGS = (
    "credit",
    "sst2",
    "compas",
    "german",
    "bank",
    "vit",
    "lc126029",
    "lc168331",
    "lc189354",
    "digits-cnn",
    "adult-mlp",
    "cards",
    "pendigits",
    "fourier",
    "optdigits",
    "pixel",
)
OBJECTIVE = {"sst2": "accuracy", **dict.fromkeys(GUESS, "accuracy")}
Key: TypeAlias = tuple[str, str, int]  # setting, rule, seed
Job: TypeAlias = tuple[str, Setting, str, int]


@cache
def _load(path: str) -> fw.Recording:
    return fw.Recording.load(path)


def _best(recording: fw.Recording, setting: Setting, objective: str) -> float:
    allowed = np.ones(len(recording.seconds), bool)
    for metric, limit in setting.limits:
        allowed &= recording.metrics[metric] <= limit
    return float(recording.metrics[objective][allowed].max())


def run(job: Job) -> tuple[float, float]:
    """One simulated search: its regret, and the share of the recording it used."""
    path, setting, rule, seed = job
    recording, objective = _load(path), OBJECTIVE.get(setting.recording, "auc")
    limits = [fw.AtMost(metric, limit) for metric, limit in setting.limits]
    study = fw.Study(
        recording.space,
        fw.Maximize(objective),
        limits,
        sampler=SAMPLERS[setting.sampler],
        stopper=RULES[rule],
        seed=seed,
    )
    result = fw.simulate(study, recording, workers=WORKERS, budget=setting.seconds, constraint_price=setting.price)
    if study.best is None:
        return chance(path, setting), result.share_used
    found = study.best.metrics[objective]
    assert found is not None
    return 1000 * (_best(recording, setting, objective) - found), result.share_used


def chance(path: str, setting: Setting) -> float:
    """The regret where nothing feasible was found: that of a guess."""
    best = _best(_load(path), setting, OBJECTIVE.get(setting.recording, "auc"))
    return 1000 * (best - GUESS.get(setting.recording, COIN))


class Judged(NamedTuple):
    """The default in one setting, beside the best of the other rules there."""

    best: str
    difference: float
    error: float
    p_of: Mapping[str, float]  # one-sided, by rule: that the default is no worse

    def is_worse_than(self, rule: str) -> bool:
        """At 95%, paired by seed."""
        return self.p_of[rule] < 0.05


def _judge(regret: Mapping[str, Array]) -> Judged:
    ours = regret[DEFAULT]
    others = {rule: values for rule, values in regret.items() if rule != DEFAULT}
    best = min(others, key=lambda rule: float(others[rule].mean()))
    p_of = {}
    for rule, values in others.items():
        less = ours - values
        p_of[rule] = 1.0 if not less.any() else float(stats.ttest_1samp(less, 0.0, alternative="greater").pvalue)
    less = ours - others[best]
    return Judged(best, float(less.mean()), runs.error(less), p_of)


def noise_of(settings: Sequence[Setting]) -> Array:
    """The noise of a validation in each setting, (s, 1): no mean regret counts as less."""
    return np.array([[NOISE.get(setting.recording, OTHER_NOISE)] for setting in settings])


def floored(regret: Array, noise: Array | float) -> Array:
    """The means (s, r) of regrets (s, r, seeds), none below the noise of its setting."""
    return np.asarray(np.maximum(regret.mean(axis=2), noise))


def beside_best(means: Array) -> Array:
    """Mean regrets (s, r) divided by the lowest of their setting."""
    return np.asarray(means / means.min(axis=1, keepdims=True))


def ratios(means: Array) -> Array:
    """By rule (r,): the geometric mean over settings of its mean regret (s, r) divided by the lowest of the setting."""
    return np.asarray(np.exp(np.log(beside_best(means)).mean(axis=0)))


def split_ratios(regret: Array, noise: Array | float) -> Array:
    """By rule (r,): as `ratios`, but the best rule is chosen on half of the seeds and compared on the other half.

    Both ways count. A rule may come out below 1: the one that was chosen need not be the best on the other half. The
    lowest of several means is partly luck: beside it, even a rule that is the best everywhere comes off badly, the
    more so the fewer seeds there are. (Of seven rules that are alike, with regrets that scatter as much as they are
    large, each is 1.7 times the least one with 8 seeds.)
    """
    logs, settings = [], np.arange(len(regret))
    halves = [floored(regret[:, :, i::2], noise) for i in (0, 1)]
    for chosen_on, compared_on in (halves, halves[::-1]):
        best = compared_on[settings, chosen_on.argmin(axis=1)]
        logs.append(np.log(compared_on / best[:, None]).mean(axis=0))
    return np.asarray(np.exp(np.mean(logs, axis=0)))


def beside(regret: Array, noise: Array | float, place: int) -> tuple[Array, Array]:
    """By rule: the bounds, at 95%, of its ratio to that of one rule, by a bootstrap of seeds, the same for all."""
    rng, seeds = np.random.default_rng(0), regret.shape[2]
    drawn = np.array([ratios(floored(regret[:, :, rng.integers(0, seeds, seeds)], noise)) for _ in range(DRAWS)])
    low, high = np.quantile(drawn / drawn[:, [place]], (0.025, 0.975), axis=0)
    return low, high


def make(given: Given) -> Result:
    if given.seeds < 2:
        raise SystemExit(
            f"{given.name}: --seeds {given.seeds}: at least 2 are expected, to choose on some, compare on others"
        )
    there = {name: found for name, found in zip(RECORDINGS, given.data, strict=True) if found}
    settings = [setting for setting in SETTINGS if setting.recording in there]
    jobs: dict[Key, Job] = {
        (setting.label, rule, seed): (str(there[setting.recording].path), setting, rule, FIRST_SEED + seed)
        for setting, rule, seed in product(settings, RULES, range(given.seeds))
    }
    kept = f"policies-{runs.digest(*runs.simulation_sources(), RULES, FIRST_SEED, *_digests(there))}"
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label="policies")
    regret = np.array(  # (setting, rule, seed)
        [[[done[s.label, rule, seed][0] for seed in range(given.seeds)] for rule in RULES] for s in settings]
    )
    shares = [max(np.mean([done[s.label, rule, k][1] for k in range(given.seeds)]) for rule in RULES) for s in settings]
    singles = [
        {"setting": setting.label, "rule": rule, "regret_of_seeds": [round(float(value), 4) for value in values]}
        for setting, row in zip(settings, regret, strict=True)
        for rule, values in zip(RULES, row, strict=True)
    ]
    found = regret < np.array([[[chance(str(there[s.recording].path), s)]] for s in settings])
    text = "\n".join(_report(given, settings, regret, found, shares)) + "\n"
    return Result(text, singles, lambda path: _draw(path, settings, floored(regret, noise_of(settings))))


def _digests(there: Mapping[str, Found]) -> list[Path]:
    return [found.path for found in there.values()]


def _report(
    given: Given, settings: Sequence[Setting], regret: Array, found: NDArray[np.bool_], shares: Sequence[float]
) -> list[str]:
    rules = list(RULES)
    judged = [_judge(dict(zip(rules, row, strict=True))) for row in regret]
    lines = [
        "# The default stopper among others",
        "",
        f"Regret (objective x 1000) under each rule, mean ± standard error over {given.seeds} seeds, {WORKERS} virtual",
        "workers; all rules see the same configurations in the same order where the sampler is random. Prices are",
        "in mean steps. Used: the largest mean share of the recording that a rule went through. *Chosen on*: the",
        "recording was looked at when the numbers inside `Pilot` were chosen, with seeds below those that count here.",
        f"{', '.join(ONLY_JUDGE)} only judge.",
        "Mean regrets below the noise of a validation count as that noise: 1 on vit, 0.2 on credit, 0.5 elsewhere.",
        made_by(given),
        "",
    ]
    lines += _counts("all settings", judged)
    for chosen, what in ((True, "chosen on"), (False, "only judged")):
        some = [one for one, setting in zip(judged, settings, strict=True) if setting.chosen is chosen]
        lines += _counts(what, some) if some else []
    lines += [_missed(settings, found.mean(axis=2)), "", "## Over all settings", ""]
    lines += _overall(settings, regret, shares)
    lines += ["", "## By recording", ""]
    lines += _by_recording(settings, regret)
    lines += ["", "## By setting", ""]
    rows = []
    for setting, row, one, share in zip(settings, regret, judged, shares, strict=True):
        least = row.mean(axis=1).min()
        cells = [f"**{runs.mean(v, 2)}**" if v.mean() == least else runs.mean(v, 2) for v in row]
        worse = "worse" if one.is_worse_than(one.best) else ""
        against = f"{one.difference:+.2f} ± {one.error:.2f} {worse}".strip()
        rows.append((setting.label, *cells, against, f"{share:.0%}", "yes" if setting.chosen else "no"))
    return lines + runs.table(("setting", *rules, f"{DEFAULT} less the best other", "used", "chosen on"), rows)


def _counts(what: str, judged: Sequence[Judged]) -> list[str]:
    held = sum(not one.is_worse_than(one.best) for one in judged)
    both = sum(one.is_worse_than("ASHA") and one.is_worse_than("ACE") for one in judged)
    share = f"{held} of {len(judged)} ({held / len(judged):.0%})"
    held_up = f"{DEFAULT} is not significantly worse (paired, 95%, one-sided) than the best other rule in {share}"
    return [f"- {what}: {held_up}; worse than both ASHA and ACE in {both}."]


def _missed(settings: Sequence[Setting], found: Array) -> str:
    """Where others mostly find something feasible, and the default less often; `found` is the share of seeds (s, r)."""
    ours = list(RULES).index(DEFAULT)
    others = (np.delete(found, ours, axis=1) >= MOSTLY).sum(axis=1)
    where = [
        f"{setting.label} ({row[ours]:.0%})"
        for setting, row, n in zip(settings, found, others, strict=True)
        if row[ours] < MOSTLY and n > 1
    ]
    what = f"settings in which two other rules find something feasible in {MOSTLY:.0%} of the seeds, {DEFAULT} in fewer"
    return f"- {what}: {', '.join(where) or 'none'}."


def _overall(settings: Sequence[Setting], regret: Array, shares: Sequence[float]) -> list[str]:
    ours, noise = list(RULES).index(DEFAULT), noise_of(settings)
    means = floored(regret, noise)
    of_best, of_split = ratios(means), split_ratios(regret, noise)
    worst = beside_best(means).max(axis=0)
    judging, ample = np.array([not setting.chosen for setting in settings]), np.array(shares) <= AMPLE
    apart, unexhausted = (
        split_ratios(regret[some], noise[some]) if some.any() else np.full(len(RULES), math.nan)
        for some in (judging, ample)
    )
    rows = [
        (rule, *(f"{each:.2f}" for each in (s, j, u, r, r / of_best[ours])), f"{a:.2f} to {b:.2f}", f"{w:.2f}")
        for rule, s, j, u, r, a, b, w in zip(
            RULES, of_split, apart, unexhausted, of_best, *beside(regret, noise, ours), worst, strict=True
        )
    ]
    heading = (
        "rule",
        "regret / best rule's",
        "only judged settings",
        "settings that use half at most",
        "regret / best rule's, same seeds",
        f"regret / {DEFAULT}'s",
        "bootstrap 95% of that",
        "worst setting, same seeds",
    )
    lines = [
        "Geometric means over settings. The best rule of a setting is chosen on half of the seeds and compared on",
        "the other half, both ways. Below 1: better than the rule that was chosen. *Same seeds*: the best rule is",
        f"chosen on the seeds that it is compared on, so that the lowest of {len(RULES)} means, which is partly luck,",
        "counts as the best. The bootstrap draws seeds, the same for all rules.",
        f"{ample.sum()} settings use at most half of their recording under every rule; in the others the end of the",
        "recording decides in part.",
        "",
    ]
    return lines + runs.table(heading, rows)


def _by_recording(settings: Sequence[Setting], regret: Array) -> list[str]:
    rows, noise = [], noise_of(settings)
    for name in dict.fromkeys(setting.recording for setting in settings):
        some = np.array([setting.recording == name for setting in settings])
        shown = [f"{ratio:.2f}" for ratio in split_ratios(regret[some], noise[some])]
        same = ratios(floored(regret[some], noise[some]))[list(RULES).index(DEFAULT)]
        rows.append((name, str(int(some.sum())), *shown, f"{same:.2f}"))
    lines = [
        "A rule's regret over that of the setting's best rule, chosen on half of the seeds and compared on the other",
        "half, both ways: geometric means over a recording's settings. Below 1: better than the rule that was chosen.",
        "",
    ]
    return lines + runs.table(("recording", "settings", *RULES, f"{DEFAULT}, same seeds"), rows)


def _draw(path: Path, settings: Sequence[Setting], means: Array) -> None:
    ratio = beside_best(means)
    names = list(dict.fromkeys(setting.recording for setting in settings))
    with figure(path, len(names)) as axes:
        for axis, name in zip(axes, names, strict=True):
            rows = [i for i, setting in enumerate(settings) if setting.recording == name]
            for j, rule in enumerate(RULES):
                values = np.sort(ratio[rows, j])
                bold = rule == DEFAULT
                axis.step(
                    values, np.arange(1, len(values) + 1) / len(values), where="post", label=rule, lw=3 if bold else 1.5
                )
            axis.set(title=name, xlabel="regret over the best rule's", ylabel="share of settings", xscale="log")
            axis.set_xticks((1, 1.5, 2, 3, 4), ("1", "1.5", "2", "3", "4"))
            axis.minorticks_off()
        axes[0].legend(frameon=False)


def _need(name: str) -> Need:
    variable = f"FAIRWAY_{name.upper().replace('-', '_')}_CURVES"
    return Need(f"recorded {name} curves", variable, flags=(f"--{name}",), optional=True)


REPRODUCTIONS = (
    Reproduction(
        "policies",
        "The default stopper among others, on up to sixteen recordings",
        (CURVES, *(_need(name) for name in RECORDINGS[1:])),
        make,
        30,
        16,
        of_paper=False,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "policies", *sys.argv[1:]))
