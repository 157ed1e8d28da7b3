"""The default among multi-fidelity tuners, on recorded curves in virtual time: without a limit, and with one.

    python -m bench run multifidelity --anchors FOLDER [--peers FILE] [--seeds 8]

FOLDER holds settings.json (recordings, objectives, chance levels, two budgets, limits) and runs.json, the regrets of
peers by setting, method and seed. FILE has more of these: by default those that `bench.peers` made. Peers know nothing
of limits and check for free: their best is the best feasible of all that they trained. fairway pays one step a check.
Regret is the objective x 1000 short of the best feasible checkpoint of the whole recording; where nothing feasible was
found, the chance level counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.reproduction import Given, Need, Reproduction, Result, made_by
from fairway.engine.events import Asked, Reported
from fairway.runners.recording import key

DEFAULT, DENSITIES, RANDOM = "fairway", "fairway, c-TPE", "fairway, random search"
OURS: dict[str, fw.Sampler | None] = {DEFAULT: None, DENSITIES: fw.CTPE(), RANDOM: fw.Random()}
CHOSEN_ON: tuple[str, ...] = (
    "vit",
    "lc126029",
    "lc168331",
    "lc189354",
    "credit",
    "sst2",
    "digits-cnn",
)  # recordings that were looked at when the default was chosen
SHORT_ONLY = ("sst2",)  # the long budget runs through nearly all of it
BUDGETS = ("short", "long")
NOISE = {"vit": 1.0, "credit": 0.2}  # of a validation, x 1000
OTHER_NOISE = 0.5
WORKERS, PRICE = 4, 1.0
DRAWS = 2000  # of the bootstrap
MOST_SEEDS = 64
FIRST_SEED = 1000  # of fairway's studies: those below were looked at when the default was chosen
Array: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.int64]
Limit: TypeAlias = tuple[str, float]
Key: TypeAlias = tuple[str, str, int]  # label without budget, method, seed
Regrets: TypeAlias = dict[str, dict[str, Array]]  # by setting and method: a regret per seed


class Task(NamedTuple):
    """A recording, what is maximised on it, the seconds of each budget, and the limits that are asked for."""

    name: str
    path: str
    objective: str
    chance: float
    seconds: tuple[float, float]  # as BUDGETS
    limits: tuple[Limit, ...]


class Setting(NamedTuple):
    """A task without a limit or with one, at one of the budgets."""

    recording: str
    limit: Limit | None
    budget: str

    @property
    def label(self) -> str:
        """What runs.json calls it."""
        return f"{label(self.recording, self.limit)} | {self.budget}"

    @property
    def column(self) -> tuple[bool, str]:
        """Whether there is a limit, and the budget: what settings are averaged by."""
        return self.limit is not None, self.budget

    @property
    def noise(self) -> float:
        """A regret below this cannot be told from another."""
        return NOISE.get(self.recording, OTHER_NOISE)


COLUMNS = {
    (limited, budget): f"{'one limit' if limited else 'no limit'}, {budget}"
    for limited, budget in product((False, True), BUDGETS)
}


def label(recording: str, limit: Limit | None) -> str:
    """A setting without its budget.

    >>> label("vit", ("mmacs", 5.0)), label("vit", None)
    ('vit | mmacs <= 5.0', 'vit | no limit')
    """
    return f"{recording} | {'no limit' if limit is None else f'{limit[0]} <= {limit[1]}'}"


def tasks(folder: Path) -> dict[str, Task]:
    """The tasks of settings.json, by name."""
    found = {}
    for name, one in json.loads((folder / "settings.json").read_text()).items():
        limits = tuple((str(metric), float(limit)) for metric, limit in one["limits"])
        path = str((folder / one["path"]).resolve())
        found[name] = Task(name, path, one["objective"], one["chance"], (one["short"], one["long"]), limits)
    return found


@cache
def load(path: str) -> fw.Recording:
    return fw.Recording.load(path)


# From what was trained to regrets


def trained(recording: fw.Recording, segments: Iterable[tuple[int, int, int, float]]) -> tuple[Rows, Array]:
    """The rows of the recording that segments train through, and when each is done.

    A segment is a configuration, the steps it had before, the steps it has then, and its start in seconds; steps past
    a curve's end take no time and bring nothing new.
    """
    rows, times = [np.empty(0, np.int64)], [np.empty(0)]
    for k, before, after, start in segments:
        first, end = recording.offset[k] + before, min(recording.offset[k] + after, recording.offset[k + 1])
        if first < end:
            rows.append(np.arange(first, end))
            times.append(start + np.cumsum(recording.seconds[first:end]))
    return np.concatenate(rows), np.concatenate(times)


def checked(study: fw.Study, recording: fw.Recording) -> tuple[Rows, Array]:
    """The rows of the recording whose constraints a simulated study has measured, and when it knew the last of them."""
    rows, times = [np.empty(0, np.int64)], [np.empty(0)]
    k_of, clock = dict[int, int](), dict[int, int]()
    for event in study.log.read():
        if isinstance(event, Asked):
            k_of[event.number], clock[event.number] = recording.index[key(event.params)], round(event.at * 1e9)
        elif isinstance(event, Reported):
            k = k_of[event.number]
            spent = np.maximum(event.train_ns, 0) + np.maximum(event.check_ns, 0).sum(axis=1)
            done = clock[event.number] + np.cumsum(spent)
            clock[event.number] = int(done[-1])
            known = (event.check_ns >= 0).all(axis=1)  # of every row where there is no limit
            rows.append(np.minimum(recording.offset[k] + event.step[known], recording.offset[k + 1]) - 1)
            times.append(done[known] / 1e9)
    return np.concatenate(rows), np.concatenate(times)


def regrets(recording: fw.Recording, task: Task, limit: Limit | None, rows: Rows, times: Array) -> tuple[float, float]:
    """At each budget: how far the best feasible of the rows by then is from the recording's best feasible, x 1000."""
    objective = recording.metrics[task.objective]
    allowed = np.ones(len(objective), bool) if limit is None else recording.metrics[limit[0]] <= limit[1]
    best = float(objective[allowed].max())

    def regret(seconds: float) -> float:
        reached = rows[(times <= seconds) & allowed[rows]]
        return 1000 * (best - (float(objective[reached].max()) if len(reached) else task.chance))

    short, long = task.seconds
    return regret(short), regret(long)


class Job(NamedTuple):
    """One simulated search at the long budget, which holds the one at the short."""

    task: Task
    limit: Limit | None
    method: str
    seed: int


def run(job: Job) -> tuple[tuple[float, float], tuple[float, float]]:
    """At each budget: the regret, and the share of the recording used."""
    task, limit, recording = job.task, job.limit, load(job.task.path)
    limits = [] if limit is None else [fw.AtMost(*limit)]
    study = fw.Study(recording.space, fw.Maximize(task.objective), limits, sampler=OURS[job.method], seed=job.seed)
    fw.simulate(study, recording, workers=WORKERS, budget=task.seconds[-1], constraint_price=PRICE)
    began = np.array([event.at for event in study.log.read() if isinstance(event, Asked)])
    short, long = ((began <= seconds).sum() / len(recording) for seconds in task.seconds)
    return regrets(recording, task, limit, *checked(study, recording)), (float(short), float(long))


# From regrets to ratios


def draws(methods: Iterable[str]) -> dict[str, Array]:
    """By method: numbers in [0, 1) by which a bootstrap draws its seeds, the same in all settings; (DRAWS, seeds).

    Methods are drawn apart from each other, since nothing links their seeds.
    """
    rng = np.random.default_rng(0)
    return {method: rng.random((DRAWS, MOST_SEEDS)) for method in methods}


def means(values: Array, drawn: Array) -> Array:
    """The mean over seeds, and after it that of every draw; (1 + DRAWS,)."""
    n = len(values)
    return np.concatenate([[values.mean()], values[(drawn[:, :n] * n).astype(int)].mean(axis=1)])


def against(cells: Sequence[Mapping[str, Array]], peer: str, drawn: Mapping[str, Array]) -> Array:
    """The default's regret over a peer's, the geometric mean over settings that have both; (1 + DRAWS,)."""
    logs = [np.log(means(c[DEFAULT], drawn[DEFAULT]) / means(c[peer], drawn[peer])) for c in cells if peer in c]
    return np.asarray(np.exp(np.mean(logs, axis=0)))


def against_best(cells: Sequence[Mapping[str, Array]], drawn: Mapping[str, Array]) -> Array:
    """The default's regret over that of each setting's best peer, the geometric mean over settings; (1 + DRAWS,).

    The best is chosen on half of the seeds and compared on the other half, both ways: a peer that is only lucky is not
    taken for good.
    """
    logs = []
    for cell in cells:
        halves = [{m: means(v[i::2], drawn[m][:, i::2]) for m, v in cell.items() if len(v) > 1} for i in (0, 1)]
        peers = [method for method in halves[0] if method not in OURS]
        for chosen_on, compared_on in (halves, halves[::-1]):
            best = np.argmin([chosen_on[peer] for peer in peers], axis=0)
            theirs = np.choose(best, [compared_on[peer] for peer in peers])
            logs.append(np.log(compared_on[DEFAULT] / theirs))
    return np.asarray(np.exp(np.mean(logs, axis=0)))


def of_peers(*files: Path) -> dict[str, dict[str, dict[int, float]]]:
    """The regrets of peers by setting, method and seed; what comes in a later file counts."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for file in files:
        for setting, methods in json.loads(file.read_text()).items():
            for method, values in methods.items():
                seeds = found.setdefault(setting, {}).setdefault(method, {})
                seeds |= {int(seed): float(regret) for seed, regret in values.items()}
    return found


# The report


def make(given: Given) -> Result:
    if not 2 <= given.seeds <= MOST_SEEDS:
        raise SystemExit(f"{given.name}: --seeds {given.seeds}: 2 to {MOST_SEEDS} seeds are expected")
    every = tasks(given.path)
    cases = [(task, limit) for task in every.values() for limit in (None, *task.limits)]
    jobs: dict[Key, Job] = {
        (label(task.name, limit), method, seed): Job(task, limit, method, FIRST_SEED + seed)
        for (task, limit), method, seed in product(cases, OURS, range(given.seeds))
    }
    files = [*(Path(task.path) for task in every.values()), given.path / "settings.json"]
    kept = f"multifidelity-{runs.digest(*runs.simulation_sources(), OURS, FIRST_SEED, *files)}"
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
    settings = [
        Setting(task.name, limit, budget)
        for (task, limit), budget in product(cases, BUDGETS)
        if budget == "short" or task.name not in SHORT_ONLY
    ]
    extra = given.data[1]
    peers = of_peers(given.path / "runs.json", *([extra.path] if extra else []))
    regret: Regrets = {}
    shares = dict[str, list[str]]()
    for setting in settings:
        name, place = label(setting.recording, setting.limit), BUDGETS.index(setting.budget)
        ours = {method: [done[name, method, seed] for seed in range(given.seeds)] for method in OURS}
        regret[setting.label] = {
            **{method: np.array([one[0][place] for one in found]) for method, found in ours.items()},
            **{m: np.array([v[s] for s in sorted(v)]) for m, v in sorted(peers.get(setting.label, {}).items())},
        }
        shares[setting.label] = [f"{np.mean([one[1][place] for one in found]):.0%}" for found in ours.values()]
    singles = [
        {"setting": name, "method": method, "regret_of_seeds": values.round(4).tolist()}
        for name, methods in regret.items()
        for method, values in methods.items()
    ]
    return Result("\n".join(_report(given, settings, regret, shares)) + "\n", singles)


def _report(
    given: Given, settings: Sequence[Setting], regret: Regrets, shares: Mapping[str, Sequence[str]]
) -> list[str]:
    cells = {s: {m: np.maximum(values, s.noise) for m, values in regret[s.label].items()} for s in settings}
    names = list(dict.fromkeys(method for cell in cells.values() for method in cell))
    noises = ", ".join(f"{name} {noise:g}" for name, noise in NOISE.items())
    lines = [
        "# The default among multi-fidelity tuners",
        "",
        f"Regret (objective x 1000), {WORKERS} virtual workers; {given.seeds} seeds of fairway, and of each peer those",
        "that were run. Peers know nothing of limits and check for free; fairway pays one step a check. Where nothing",
        "feasible was found, the chance level counts. A regret below the noise of validation counts as that noise",
        f"({noises}, others {OTHER_NOISE:g}); the JSON has it as it was measured. ASHA stops, promotes (prom), or",
        "promotes in 4 brackets (4b). HyperTune and MOBSTER fit their models less often than they would, to be",
        "affordable, which may understate them.",
        f"fairway's studies have seeds from {FIRST_SEED} on, none of which was looked at when the default was chosen.",
        f"{' and '.join(SHORT_ONLY)} is small: its long budget is left out, and see below what its short one used.",
        _chosen_on(list(dict.fromkeys(setting.recording for setting in settings))),
        made_by(given),
        "",
        "## Over all settings",
        "",
        f"Mean regret of {DEFAULT} over that of the peer, the geometric mean over the settings that the peer has runs",
        "for, in brackets the 95% bounds of a bootstrap over seeds, and the number of settings. Below 1: fairway is",
        "better. The best peer of a setting is chosen on half of the seeds and compared on the other half, both ways.",
        "",
        *_overall(cells, names),
        "",
        "## By setting",
        "",
        f"Mean ± standard error over seeds. Used: the mean share of the recording's configurations that {DEFAULT}, its",
        "c-TPE and its random search began; where it is large, the table decides more than the method.",
        "",
    ]
    rows = []
    for setting, cell in cells.items():
        least = min(values.mean() for values in cell.values())
        shown = [runs.mean(cell[name], 1) if name in cell else "" for name in names]
        bold = [name in cell and cell[name].mean() == least for name in names]
        texts = [f"**{text}**" if is_least else text for text, is_least in zip(shown, bold, strict=True)]
        limit = "no limit" if setting.limit is None else f"{setting.limit[0]} <= {setting.limit[1]:g}"
        rows.append((setting.recording, limit, setting.budget, *texts, " / ".join(shares[setting.label])))
    return lines + runs.table(("recording", "limit", "budget", *names, "used"), rows)


def _overall(cells: Mapping[Setting, Mapping[str, Array]], names: Sequence[str]) -> list[str]:
    drawn = draws(names)
    groups = {column: [setting for setting in cells if setting.column == column] for column in COLUMNS}
    rows = []
    judging = [setting for setting in cells if setting.recording not in CHOSEN_ON]
    subsets: dict[str, Sequence[Setting]] = {"the best peer of each setting": list(cells)}
    if judging and len(judging) < len(cells):
        subsets["the best peer, recordings that only judge"] = judging
    for name, subset in subsets.items():
        chosen = [[cells[s] for s in group if s in subset and set(cells[s]) - set(OURS)] for group in groups.values()]
        rows.append((name, *(_bounded(against_best(some, drawn), len(some)) if some else "" for some in chosen)))
    for name in names:
        if name != DEFAULT:
            chosen = [[cells[s] for s in group if name in cells[s]] for group in groups.values()]
            rows.append((name, *(_bounded(against(some, name, drawn), len(some)) if some else "" for some in chosen)))
    return runs.table((f"{DEFAULT} against", *COLUMNS.values()), rows)


def _bounded(ratio: Array, settings: int) -> str:
    low, high = np.quantile(ratio[1:], (0.025, 0.975))
    return f"{ratio[0]:.2f} ({low:.2f} to {high:.2f}), {settings}"


def _chosen_on(recordings: Sequence[str]) -> str:
    chosen = [name for name in recordings if name in CHOSEN_ON]
    only = [name for name in recordings if name not in CHOSEN_ON]
    if not CHOSEN_ON:
        return "Which recordings the default was chosen on, and which only judge, is not declared."
    if not chosen:
        return f"The default was chosen on other recordings; all of these ({', '.join(only)}) only judge."
    rest = f"; only judging: {', '.join(only)}" if only else "; none only judges"
    return f"The default was chosen on {', '.join(chosen)}{rest}."


ANCHORS = Need(
    "settings and peers' regrets on recorded curves (settings.json and runs.json)",
    "FAIRWAY_MULTIFIDELITY",
    flags=("--anchors",),
    holds=("settings.json", "runs.json"),
)
PEERS = Need(
    "further peers' regrets (made by python -m bench.peers)",
    "FAIRWAY_MULTIFIDELITY_PEERS",
    flags=("--peers",),
    carried=Path(__file__).parent / "recordings" / "multifidelity_peers.json",
    optional=True,
)
REPRODUCTIONS = (
    Reproduction(
        "multifidelity",
        "The default among multi-fidelity tuners, on recorded curves",
        (ANCHORS, PEERS),
        make,
        15,
        16,
        of_paper=False,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "multifidelity", *sys.argv[1:]))
