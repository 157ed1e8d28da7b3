"""Limits that are not known yet: the front of objective and tracked metric, at equal virtual seconds.

    python -m bench run front --data FOLDER [--seeds 20]

FOLDER holds recorded trainings (credit, vit, sst2 and three of LCBench). Every way sees a recording for the same
virtual seconds with 4 workers, and counts the checkpoints at which it measured both metrics.

- *fairway*: `fw.Track`, the default sampler and stopper.
- *NSGA-II*, *TPE*: Optuna's samplers with two objectives. A trial trains to its end and is measured there. A suggestion
  is replaced by the nearest recorded configuration not yet run, and the sampler learns which.
- *random + ASHA*: random configurations, stopped by ASHA on the objective; each is measured where it ends.
- *nine searches*: fairway under each of the nine limits that regret is measured at, for a ninth of the seconds each.

Hypervolume is relative to that of the whole recording; the reference point is the worst value of each metric in it.
Regret is the objective x 1000 short of the best of the recording, in the mean over nine limits spread over its front;
where nothing within a limit was measured, the worst objective of the recording counts.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.peers import Table
from bench.reproduction import Given, Need, Reproduction, Result, made_by
from fairway.report.view import View

Array: TypeAlias = NDArray[np.float64]
DATA = Need("recorded curves", "FAIRWAY_CURVES", holds=("credit.npz", "vit.npz", "sst2.npz"))
WORKERS, LIMITS = 4, 9
OURS = "fairway"


class Setting(NamedTuple):
    """A recording, its objective, the metric to track, what a check costs in steps, and for how long."""

    recording: str
    objective: str
    tracked: str
    price: float
    seconds: float

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.recording} {self.tracked}"


SETTINGS = (
    Setting("credit", "auc", "eod", 1.94, 6.0),
    Setting("vit", "accuracy", "drop", 1.0, 450.0),
    Setting("vit", "accuracy", "ece", 1.0, 450.0),
    Setting("vit", "accuracy", "mmacs", 1.0, 450.0),
    Setting("lcbench-126029", "accuracy", "balanced_error", 1.0, 2600.0),
    Setting("lcbench-168331", "accuracy", "balanced_error", 1.0, 4200.0),
    Setting("lcbench-189354", "accuracy", "balanced_error", 1.0, 19600.0),
    Setting("sst2", "accuracy", "afr", 1.94, 3.0),
)


@cache
def recording(name: str, folder: str) -> fw.Recording:
    return fw.Recording.load(Path(folder) / f"{name}.npz")


# What a way found: rows of objective (larger is better) and tracked metric (smaller is better)


def front(points: Array) -> Array:
    """The points that none other beats, from the tightest limit to the loosest."""
    points = points[np.lexsort((-points[:, 0], points[:, 1]))]
    best = np.maximum.accumulate(np.append(-np.inf, points[:, 0]))
    return points[points[:, 0] > best[:-1]]


def hypervolume(points: Array, worst: Array) -> float:
    """The area between a reference point and the front.

    >>> round(hypervolume(np.array([[0.9, 2.0], [0.8, 1.0]]), np.array([0.5, 3.0])), 6)
    0.7
    """
    found = front(points)
    ends = np.append(found[1:, 1], worst[1])
    return float(((ends - found[:, 1]) * (found[:, 0] - worst[0])).sum())


class Scale(NamedTuple):
    """What a recording allows."""

    worst: Array  # (2,)
    area: float
    limits: Array  # (9,)
    best: Array  # (9,)


@cache
def scale(setting: Setting, folder: str) -> Scale:
    recorded = recording(setting.recording, folder)
    points = np.column_stack([recorded.metrics[setting.objective], recorded.metrics[setting.tracked]])
    worst, whole = np.array([points[:, 0].min(), points[:, 1].max()]), front(points)
    places = np.linspace(0, len(whole) - 1, LIMITS + 2)[1:-1].round().astype(int)
    return Scale(worst, hypervolume(points, worst), whole[places, 1], whole[places, 0])


def judged(points: Array, known: Scale) -> tuple[float, float]:
    """Hypervolume and regret of what a way measured."""
    points = np.vstack([points, known.worst])
    best = np.array([points[points[:, 1] <= limit, 0].max(initial=known.worst[0]) for limit in known.limits])
    return hypervolume(points, known.worst) / known.area, 1000 * float((known.best - best).mean())


# The ways


class Job(NamedTuple):
    """One way in one setting."""

    setting: Setting
    way: str
    seed: int
    folder: str


def measured(study: fw.Study) -> Array:
    """The checkpoints of a study at which both metrics are known."""
    table = View(study).checkpoints()
    known = table.paid.all(axis=1)
    return np.column_stack([table.objective[known], table.values[known, 0]])


def searched(job: Job, constraint: fw.AtMost | fw.Track, seconds: float, seed: int) -> Array:
    setting, recorded = job.setting, recording(job.setting.recording, job.folder)
    study = fw.Study(recorded.space, fw.Maximize(setting.objective), [constraint], seed=seed)
    fw.simulate(study, recorded, workers=WORKERS, budget=seconds, constraint_price=setting.price)
    return measured(study)


def tracked(job: Job) -> Array:
    """What fairway measures."""
    return searched(job, fw.Track(job.setting.tracked), job.setting.seconds, job.seed)


def nine(job: Job) -> Array:
    """A search under each limit, for a ninth of the time."""
    limits, seconds = scale(job.setting, job.folder).limits, job.setting.seconds / LIMITS
    found = [
        searched(job, fw.AtMost(job.setting.tracked, float(limit)), seconds, LIMITS * job.seed + i)
        for i, limit in enumerate(limits)
    ]
    return np.concatenate(found)


class Peer(Protocol):
    """A tuner that runs one trial after the other."""

    def ask(self) -> tuple[Any, int]:
        """The next trial, and its recorded configuration."""

    def goes_on(self, trial: Any, step: int, objective: float) -> bool:
        """Whether a trial goes on after a step."""

    def tell(self, trial: Any, objective: float, value: float) -> None:
        """What was measured where a trial ended."""


class Optuna:
    """A sampler of Optuna's, on recorded configurations."""

    def __init__(self, table: Table, kind: str, seed: int) -> None:
        import optuna  # noqa: PLC0415 - optional

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space: dict[str, Any] = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in table.names}
        base: Any = {"NSGA-II": optuna.samplers.NSGAIISampler, "TPE": optuna.samplers.TPESampler}[kind]
        options = {} if kind == "NSGA-II" else {"multivariate": True, "constant_liar": True}
        space = self._space

        class Recorded(base):  # type: ignore[misc]
            """The sampler, whose suggestions are recorded configurations."""

            def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
                """The space, from the first trial on."""
                del study, trial
                return space

            def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
                """The nearest to what the sampler suggests, or any while it has too few trials."""
                found = super().sample_relative(study, trial, search_space)
                near = np.array([found.get(name, table.rng.random()) for name in table.names]) if found else None
                return table.point(table.take_any() if near is None else table.take_nearest(near))

        self._table = table
        self._study = optuna.create_study(directions=["maximize", "minimize"], sampler=Recorded(seed=seed, **options))

    def ask(self) -> tuple[Any, int]:
        """The sampler's choice."""
        left = self._table.left.copy()
        trial = self._study.ask(self._space)
        (k,) = np.flatnonzero(left & ~self._table.left)
        return trial, int(k)

    def goes_on(self, trial: Any, step: int, objective: float) -> bool:
        """Always: with several objectives, Optuna does not prune."""
        del trial, step, objective
        return True

    def tell(self, trial: Any, objective: float, value: float) -> None:
        """Both objectives."""
        self._study.tell(trial, [objective, value])


class RandomASHA:
    """Any of the configurations that are left, stopped by ASHA."""

    def __init__(self, table: Table) -> None:
        self._table, self._asked = table, 0
        self._state = fw.ASHA().start(fw.Problem(fw.Maximize("objective")))

    def ask(self) -> tuple[Any, int]:
        """A number, and any configuration."""
        self._asked += 1
        return self._asked, self._table.take_any()

    def goes_on(self, trial: Any, step: int, objective: float) -> bool:
        """Unless ASHA stops it."""
        return self._state.judge(trial, step, -objective, 0.0) is None

    def tell(self, trial: Any, objective: float, value: float) -> None:
        """ASHA ranks by the objective alone."""
        del objective, value
        self._state.finish(trial, completed=True)


def simulated(job: Job, make: Callable[[Table], Peer]) -> Array:
    """What a peer measures in virtual time, where each trial ends; what ends after the budget does not count."""
    setting, recorded = job.setting, recording(job.setting.recording, job.folder)
    table = Table(recorded, job.seed)
    peer, found, events = make(table), list[tuple[float, float]](), list[tuple[float, int, Any, int, int]]()

    def train(now: float, trial: Any, k: int, step: int) -> None:
        row = recorded.row(k, step)
        seconds = 1e-4 if row is None else float(recorded.seconds[row])
        heapq.heappush(events, (now + seconds, k, trial, step, 0))

    for _ in range(WORKERS):
        train(0.0, *peer.ask(), 1)
    while events and events[0][0] <= setting.seconds:
        now, k, trial, step, checked = heapq.heappop(events)
        objective = recorded.at(setting.objective, k, step)
        if not checked and step < recorded.total_steps[k] and peer.goes_on(trial, step, objective):
            train(now, trial, k, step + 1)
        elif not checked:
            first = recorded.seconds[recorded.offset[k] : recorded.offset[k + 1]][:50]
            heapq.heappush(events, (now + setting.price * float(first.mean()), k, trial, step, 1))
        else:
            value = recorded.at(setting.tracked, k, step)
            found.append((objective, value))
            peer.tell(trial, objective, value)
            if table.left.any():
                train(now, *peer.ask(), 1)
    return np.array(found).reshape(-1, 2)


PEERS: dict[str, Callable[[Job], Array]] = {
    "NSGA-II": lambda job: simulated(job, lambda table: Optuna(table, "NSGA-II", job.seed)),
    "TPE": lambda job: simulated(job, lambda table: Optuna(table, "TPE", job.seed)),
    "random + ASHA": lambda job: simulated(job, RandomASHA),
}
WAYS: dict[str, Callable[[Job], Array]] = {OURS: tracked, **PEERS, "nine searches": nine}


def run(job: Job) -> tuple[float, float]:
    """Hypervolume and regret."""
    return judged(WAYS[job.way](job), scale(job.setting, job.folder))


# The report


def make(given: Given) -> Result:
    folder = str(given.path)
    files = sorted({given.path / f"{setting.recording}.npz" for setting in SETTINGS})
    jobs = {
        (setting.label, way, seed): Job(setting, way, seed, folder)
        for seed, setting, way in product(range(given.seeds), SETTINGS, WAYS)  # whole seeds, were it cut off
    }
    peers = {key: job for key, job in jobs.items() if job.way in PEERS}  # what they do depends on nothing of fairway
    ours = {key: job for key, job in jobs.items() if job.way not in PEERS}
    kept = f"front-{runs.digest(*runs.simulation_sources(), *files, SETTINGS)}"
    kept_peers = f"front-peers-{runs.digest(*files, SETTINGS)}"
    done = runs.run_all(run, peers, kept=kept_peers, processes=given.processes, label=f"{given.name}, peers")
    done |= runs.run_all(run, ours, kept=kept, processes=given.processes, label=given.name)
    found = np.array(  # (setting, way, seed, measure)
        [[[done[s.label, way, seed] for seed in range(given.seeds)] for way in WAYS] for s in SETTINGS]
    )
    singles = [
        {
            "setting": setting.label,
            "way": way,
            "hypervolume": row[:, 0].round(5).tolist(),
            "regret": row[:, 1].round(3).tolist(),
        }
        for setting, rows in zip(SETTINGS, found, strict=True)
        for way, row in zip(WAYS, rows, strict=True)
    ]
    return Result("\n".join(_report(given, found)) + "\n", singles)


class Measure(NamedTuple):
    """What is compared: (setting, way, seed); by sign, larger is better."""

    name: str
    values: Array
    sign: float
    digits: int

    def cells(self, j: int) -> list[str]:
        """A way in the mean over settings, and how far fairway, the first way, is ahead of it."""
        means = self.values.mean(axis=0)
        ahead = self.sign * (means[0] - means[j])
        shown = runs.mean(ahead, self.digits, "+") if j else ""
        bold = shown and abs(ahead.mean()) > 2 * runs.error(ahead)
        return [runs.mean(means[j], self.digits), f"**{shown}**" if bold else shown]


def _report(given: Given, found: Array) -> list[str]:
    regret = found[..., 1]
    measures = (
        Measure("hypervolume", found[..., 0], 1.0, 4),
        Measure("regret", regret, -1.0, 1),
        Measure("relative regret", regret / regret.mean(axis=(1, 2), keepdims=True), -1.0, 2),
    )
    lines = [
        "# The front, where limits are not known yet",
        "",
        "Hypervolume, as a share of the whole recording's, and the regret (objective x 1000) over nine limits spread",
        f"over its front, at equal virtual seconds with {WORKERS} workers; mean ± standard error over seeds. *Ahead*:",
        "how far fairway is ahead in the mean over settings, paired by seed; bold if by more than two standard errors.",
        "*Relative regret* is in units of the setting's mean over all ways, so that every setting counts alike. On the",
        "three of LCBench objective and tracked metric hardly conflict: the front has one or two points, and regret",
        "says whether they were found. How trials aim,",
        "are checked, stopped and sampled was chosen on vit and sst2, with the seeds 0 to 2, which are among these.",
        made_by(given),
        "",
        "## In the mean over settings",
        "",
    ]
    heading = [text for one in measures for text in (one.name, "ahead")]
    rows = [[way, *(cell for one in measures for cell in one.cells(j))] for j, way in enumerate(WAYS)]
    lines += runs.table(("way", *heading), rows)
    for one in measures[:2]:
        lines += ["", f"## {one.name.capitalize()} by setting", ""]
        pairs = zip(SETTINGS, one.values, strict=True)
        cells = [[setting.label, *(runs.mean(row, one.digits) for row in ways)] for setting, ways in pairs]
        lines += runs.table(("setting", *WAYS), cells)
    return lines


REPRODUCTIONS = (
    Reproduction(
        "front",
        "Limits that are not known yet: the front, beside Optuna's samplers and separate searches",
        (DATA,),
        make,
        60,
        20,
        of_paper=False,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "front", *sys.argv[1:]))
