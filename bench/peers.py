"""Optuna's and SMAC3's multi-fidelity tuners on recorded curves, in virtual time with 4 workers.

    python -m bench.peers run Optuna,SMAC3 --anchors FOLDER --seeds 0-8 --out RUNS.jsonl [--recordings vit,credit]
    python -m bench.peers score RUNS.jsonl... --anchors FOLDER --out bench/recordings/multifidelity_peers.json

FOLDER is that of `bench.multifidelity`. `run` appends what was trained when, as segments (configuration, steps before,
steps after, start in seconds); what is there already is not run again. `score` turns these into regrets in the layout
of runs.json, those that the anchors' own peers.py wrote too.

All see the unit cube, with logarithms where the space has them. A suggested configuration is replaced by the nearest
recorded one not yet run, and the tuner learns which. Nobody knows of limits. Past a curve's end a step costs nothing.

- *Optuna*: TPESampler (multivariate, constant liar) with HyperbandPruner from 1 step to the most, by 3. It reports at
  powers of 3 and at the end, because the pruner rules nowhere else.
- *SMAC3*: MultiFidelityFacade, Hyperband from 1 step to the most, by 3, and its random forest, all as they come; a
  configuration that is asked for again trains the added steps only. Expected improvement ranks the recorded
  configurations that are left, where SMAC3 itself would search the space: exact here, and cheaper. The
  initial design is 25 random configurations (a quarter of its 100 trials), or as many as the first bracket begins with.
"""

from __future__ import annotations

import argparse
import heapq
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import multifidelity, runs

ETA = 3
Segment: TypeAlias = tuple[int, int, int, float]  # configuration, steps before, steps after, start


class Leg(NamedTuple):
    """Steps of a trial that nothing interrupts."""

    trial: Any
    k: int
    before: int
    after: int


class Peer(Protocol):
    """A tuner that is asked what to train, and told what came of it."""

    def ask(self) -> Leg | None:
        """What a free worker trains next; None if nothing is left."""

    def tell(self, leg: Leg, value: float) -> Leg | None:
        """The objective (to be maximised) after a leg; what its worker goes on with, or None if the worker is free."""


class Table:
    """The recorded configurations as points of the unit cube, and which of them are left."""

    def __init__(self, recording: fw.Recording, seed: int) -> None:
        self.x = recording.x  # (n, d)
        self.names = [f"x{i}" for i in range(self.x.shape[1])]
        self.most = int(recording.total_steps.max())
        self.left = np.ones(len(self.x), bool)
        self.rng = np.random.default_rng(seed)

    def point(self, k: int) -> dict[str, float]:
        """Configuration k by name."""
        return dict(zip(self.names, self.x[k].tolist(), strict=True))

    def take(self, k: int) -> int:
        """Take configuration k, which is left no longer."""
        self.left[k] = False
        return k

    def take_any(self) -> int:
        """Take one of those left, drawn uniformly."""
        return self.take(int(self.rng.choice(np.flatnonzero(self.left))))

    def take_nearest(self, x: NDArray[np.float64]) -> int:
        """Take the one of those left that is nearest to a point."""
        left = np.flatnonzero(self.left)
        return self.take(int(left[np.argmin(((self.x[left] - x) ** 2).sum(axis=1))]))


class Optuna:
    """TPE with Hyperband; a study's name decides which trial is in which bracket."""

    def __init__(self, table: Table, seed: int) -> None:
        import optuna  # noqa: PLC0415 - optional

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        space: dict[str, Any] = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in table.names}

        class Recorded(optuna.samplers.TPESampler):
            """TPE whose suggestions are recorded configurations."""

            def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
                """The space, from the first trial on."""
                del study, trial
                return space

            def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
                """The nearest to what TPE suggests, or any while it has too few trials."""
                found = super().sample_relative(study, trial, search_space)
                near = [found[name] for name in table.names] if found else None
                return table.point(table.take_any() if near is None else table.take_nearest(np.array(near)))

        self._table, self._space, self._pruned = table, space, optuna.trial.TrialState.PRUNED
        self._study = optuna.create_study(
            study_name=f"study {seed}",
            direction="maximize",
            sampler=Recorded(multivariate=True, constant_liar=True, seed=seed),
            pruner=optuna.pruners.HyperbandPruner(min_resource=1, max_resource=table.most, reduction_factor=ETA),
        )
        self._rungs = [*(ETA**i for i in range(32) if ETA**i < table.most), table.most]

    def ask(self) -> Leg | None:
        """A new trial, up to the first rung."""
        if not self._table.left.any():
            return None
        left = self._table.left.copy()
        trial = self._study.ask(self._space)
        (k,) = np.flatnonzero(left & ~self._table.left)
        return Leg(trial, int(k), 0, self._rungs[0])

    def tell(self, leg: Leg, value: float) -> Leg | None:
        """On to the next rung, unless it is pruned."""
        leg.trial.report(value, leg.after)
        if leg.trial.should_prune():
            self._study.tell(leg.trial, state=self._pruned)
        elif leg.after == self._table.most:
            self._study.tell(leg.trial, value)
        else:
            return Leg(leg.trial, leg.k, leg.after, next(rung for rung in self._rungs if rung > leg.after))
        return None


class _Ranking:
    """An acquisition maximizer for SMAC3: the recorded configurations that are left, the best first.

    At random moments of SMAC3's choosing it is any of them. A configuration is taken as it is handed out.
    """

    def __init__(self, table: Table, configurations: list[Any]) -> None:
        self._acquisition_function: Any = None
        self.meta: dict[str, Any] = {"name": "the recorded configurations that are left"}
        self._table, self._configurations = table, configurations

    @property
    def acquisition_function(self) -> Any:
        """What it ranks by; SMAC3 sets it, and compares it by its private name."""
        return self._acquisition_function

    @acquisition_function.setter
    def acquisition_function(self, function: Any) -> None:
        self._acquisition_function = function

    def maximize(self, previous: Any, n_points: Any = None, random_design: Any = None) -> Iterator[Any]:
        """The configurations from the best on, until none is left."""
        del previous, n_points
        random_design.next_iteration()
        return self._ranked(random_design)

    def _ranked(self, random_design: Any) -> Iterator[Any]:
        table, ranked = self._table, None
        for i in count():
            if not table.left.any():
                return
            if random_design.check(i):
                k = table.take_any()
            else:
                ranked = ranked or self._by_acquisition()
                k = table.take(next(k for k in ranked if table.left[k]))
            yield self._configurations[k]

    def _by_acquisition(self) -> Iterator[int]:
        left = self._table.rng.permutation(np.flatnonzero(self._table.left))
        values = self.acquisition_function([self._configurations[k] for k in left]).ravel()
        return iter(left[np.argsort(-values, kind="stable")].tolist())


def _never_called(config: Any, seed: int, budget: float) -> float:
    """What SMAC3 would run by itself; it looks at the names of the arguments."""
    raise NotImplementedError((config, seed, budget))


class SMAC3:
    """Hyperband with a random forest, as `MultiFidelityFacade` sets them up."""

    def __init__(self, table: Table, seed: int) -> None:
        from ConfigSpace import Configuration, ConfigurationSpace  # noqa: PLC0415 - optional
        from smac import MultiFidelityFacade, Scenario  # noqa: PLC0415 - optional
        from smac.runhistory import TrialValue  # noqa: PLC0415 - optional

        self._table, self._value = table, TrialValue
        space = ConfigurationSpace(dict.fromkeys(table.names, (0.0, 1.0)), seed=seed)
        configurations = [Configuration(space, values=table.point(k)) for k in range(len(table.x))]
        self._k_of = {configuration: k for k, configuration in enumerate(configurations)}
        self._reached: dict[int, int] = {}
        scenario = Scenario(
            space,
            output_directory=Path(tempfile.mkdtemp()),
            deterministic=True,
            min_budget=1,
            max_budget=table.most,
            n_trials=len(table.x),  # at least as many as the initial design; nothing else looks at it
            seed=seed,
        )
        brackets = int(np.log(table.most) / np.log(ETA) + 1e-9)
        first = [configurations[table.take_any()] for _ in range(min(len(table.x), max(25, ETA**brackets)))]
        model = MultiFidelityFacade.get_model(scenario)
        # As it comes, a tree allocates 2^20 leaves, which is nearly all of its time; the trees are the same with fewer.
        model._rf_opts |= {"max_leaf_nodes": 2**13, "n_jobs": 1}  # noqa: SLF001 - no other way through the facade
        self._smac = MultiFidelityFacade(
            scenario,
            _never_called,
            model=model,
            acquisition_maximizer=_Ranking(table, configurations),
            initial_design=MultiFidelityFacade.get_initial_design(scenario, n_configs=0, additional_configs=first),
            intensifier=MultiFidelityFacade.get_intensifier(scenario, eta=ETA),
            logging_level=False,
            overwrite=True,
        )

    def ask(self) -> Leg | None:
        """A configuration up to a rung of its bracket."""
        trial = self._smac.ask()
        k = self._k_of.get(trial.config)
        if k is None:  # drawn from the space because no recorded one is left
            return None
        before = self._reached.get(k, 0)
        after = self._reached[k] = max(before, round(trial.budget))
        return Leg(trial, k, before, after)

    def tell(self, leg: Leg, value: float) -> None:
        """The worker is free after every leg."""
        self._smac.tell(leg.trial, self._value(cost=1.0 - value), save=False)


PEERS: dict[str, Callable[[Table, int], Peer]] = {"Optuna": Optuna, "SMAC3": SMAC3}


def train(peer: Peer, recording: fw.Recording, objective: str, budget: float) -> list[Segment]:
    """What the workers trained until the budget (seconds) was spent, and when."""
    until = np.concatenate([[0.0], np.cumsum(recording.seconds)])
    segments, events, order, now = list[Segment](), list[tuple[float, int, Leg]](), count(), 0.0

    def begin(leg: Leg) -> None:
        segments.append((leg.k, leg.before, leg.after, now))
        first, end = recording.offset[leg.k], recording.offset[leg.k + 1]
        seconds = until[min(first + leg.after, end)] - until[min(first + leg.before, end)]
        heapq.heappush(events, (now + float(seconds), next(order), leg))

    for _ in range(multifidelity.WORKERS):
        leg = peer.ask()
        if leg is not None:
            begin(leg)
    while events and events[0][0] <= budget:
        now, _, leg = heapq.heappop(events)
        further = peer.tell(leg, recording.at(objective, leg.k, leg.after)) or peer.ask()
        if further is not None:
            begin(further)
    return segments


def run(methods: list[str], folder: Path, seeds: range, names: list[str], out: Path) -> None:
    """Append to a file what every method trained on every recording with every seed, at the long budget."""
    there = {(row["rec"], row["method"], row["seed"]) for row in map(json.loads, out.open())} if out.exists() else set()
    tasks = multifidelity.tasks(folder)
    for seed in seeds:
        for name in names or list(tasks):
            task, recording = tasks[name], multifidelity.load(tasks[name].path)
            for method in methods:
                if (name, method, seed) in there:
                    continue
                began, table = time.process_time(), Table(recording, seed)
                segments = train(PEERS[method](table, seed), recording, task.objective, task.seconds[-1])
                cpu, used = round(time.process_time() - began, 1), len({k for k, *_ in segments}) / len(recording)
                row = {"rec": name, "method": method, "seed": seed, "used": used, "cpu": cpu, "segments": segments}
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                runs.say(f"{name} {method} {seed}: {cpu:.1f} s of CPU, {used:.0%} used")


def score(files: list[Path], folder: Path) -> dict[str, dict[str, dict[int, float]]]:
    """The regrets of what was trained, by setting, method and seed, as in runs.json."""
    tasks, found = multifidelity.tasks(folder), dict[str, dict[str, dict[int, float]]]()
    for row in (json.loads(line) for file in files for line in file.open()):
        task, recording = tasks[row["rec"]], multifidelity.load(tasks[row["rec"]].path)
        trained = multifidelity.trained(recording, row["segments"])
        for limit in (None, *task.limits):
            both = multifidelity.regrets(recording, task, limit, *trained)
            for budget, regret in zip(multifidelity.BUDGETS, both, strict=True):
                setting = found.setdefault(multifidelity.Setting(task.name, limit, budget).label, {})
                setting.setdefault(row["method"], {})[row["seed"]] = round(regret, 2)
    return {setting: dict(sorted(methods.items())) for setting, methods in sorted(found.items())}


def _written(found: dict[str, dict[str, dict[int, float]]]) -> str:
    """JSON with a line for each setting and method."""
    parts = []
    for setting, methods in found.items():
        inner = ",\n".join(
            f"  {json.dumps(method)}: {json.dumps(dict(sorted(seeds.items())))}" for method, seeds in methods.items()
        )
        parts.append(f" {json.dumps(setting)}: {{\n{inner}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    commands = parser.add_subparsers(dest="command", required=True)
    running, scoring = commands.add_parser("run"), commands.add_parser("score")
    running.add_argument("methods", help=f"of {', '.join(PEERS)}, with commas")
    running.add_argument("--seeds", default="0-8", help="the first, and the one after the last")
    running.add_argument("--recordings", default="", help="with commas; by default all")
    scoring.add_argument("files", nargs="+", type=Path)
    for command in (running, scoring):
        command.add_argument("--anchors", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "score":
        given.out.write_text(_written(score(given.files, given.anchors)))
        return 0
    logging.disable(logging.CRITICAL)
    first, end = map(int, given.seeds.split("-"))
    names = [name for name in given.recordings.split(",") if name]
    run(given.methods.split(","), given.anchors, range(first, end), names, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
