"""c-TPE and its rivals on 63 constrained tabular settings, ranked among existing optimizers' curves on the same seeds.

    python -m bench run ctpe_tabular --data FOLDER [--methods CTPE GP] [--seeds 8] [--evals 200] [--processes 2]

FOLDER holds `tasks.py`, `rank.py` and `results/`: seven tasks (four of HPOLib, three of NAS-Bench-201), limits on
runtime, size or both, at three levels each, and the anchors' best-so-far curves. Settings of one space share seeds, so
errors are over seeds.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.pictures import figure
from bench.reproduction import Given, Need, Reproduction, Result, made_by

METHODS: dict[str, tuple[fw.Sampler, int, int]] = {  # with seeds and evaluations
    "TPE": (fw.TPE(), 8, 200),
    "CTPE naive": (fw.CTPE(naive=True), 8, 200),
    "CTPE relative only": (fw.CTPE(feasible_split=False), 8, 200),
    "CTPE split only": (fw.CTPE(relative=False), 8, 200),
    "CTPE": (fw.CTPE(), 8, 200),
    "GP": (fw.GP(), 3, 100),
    "BORE": (fw.BORE(), 3, 100),
    "Blend": (fw.Blend(), 3, 100),
}
MODELS = {  # what a sampler's proposals depend on, by its module
    "fairway.samplers.tpe": ("fairway.models.parzen", "fairway.models.neighbours"),
    "fairway.samplers.bore": (),
    "fairway.samplers.blend": ("fairway.samplers.tpe", "fairway.models.parzen", "fairway.models.neighbours"),
    "fairway.samplers.gp": tuple(
        f"fairway.models.{name}" for name in ("gaussian_process", "acquisition", "neighbours", "search", "transform")
    ),
}
LABELS = {
    "random": "random",
    "nsga2": "NSGA-II",
    "tpe": "Optuna TPE",
    "ctpe": "OptunaHub c-TPE",
    "ctpe_paper": "the paper's code",
}
TUNED = ("cifar10", "naval_propulsion", "slice_localization")  # the tasks that c-TPE's settings were chosen on
Setting = tuple[str, str, int]
Curves = NDArray[np.float64]


class _Optimizer:
    """A study as the settings' own loop wants it."""

    def __init__(self, task: Any, seed: int, sampler: fw.Sampler) -> None:
        space = {
            parameter.name: fw.Choice(list(parameter.values), ordered=parameter.kind == "ordinal")
            for parameter in task.space
        }
        limits = [fw.AtMost(name, 0.0) for name in task.thresholds]
        self._task = task
        self._study = fw.Study(space, fw.Minimize("loss"), limits, sampler=sampler, stopper=fw.Never(), seed=seed)

    def ask(self) -> tuple[int, ...]:
        self._trial = self._study.ask()
        indices: tuple[int, ...] = self._task.indices(dict(self._trial.params))
        return indices

    def tell(self, x: tuple[int, ...], loss: float, violation: dict[str, float]) -> None:
        del x
        self._study.tell(self._trial, {"loss": loss, **violation})


def run(job: tuple[str, str, Setting, int, int]) -> list[float]:
    """The best feasible loss after each evaluation of one run."""
    folder, method, setting, seed, evaluations = job
    tasks = anchor("tasks", folder)
    task = tasks.make(*setting)
    curve, _ = tasks.run(task, _Optimizer(task, seed, METHODS[method][0]), seed, evaluations)
    return [float(loss) for loss in np.asarray(curve, np.float32)]


def anchor(name: str, folder: str) -> Any:
    """A module of the folder."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def _curves(folder: str, method: str, settings: list[Setting], seeds: int, evals: int, processes: int) -> Curves:
    """Every run of a method (settings, seeds, evaluations)."""
    sampler = METHODS[method][0]
    modules = (type(sampler).__module__, "fairway.samplers.sampler", *MODELS[type(sampler).__module__])
    sources = (Path(str(importlib.import_module(module).__file__)) for module in modules)
    kept = f"ctpe_tabular-{method.replace(' ', '-')}-{evals}-{runs.digest(sampler, *sources)}"
    jobs = {(*setting, seed): (folder, method, setting, seed, evals) for setting in settings for seed in range(seeds)}
    done = runs.run_all(run, jobs, kept=kept, processes=processes, label=method)
    return np.reshape(np.array(list(done.values()), np.float32), (len(settings), seeds, evals))


def make(given: Given) -> Result:
    """Each method among the anchors, and our own among themselves."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    folder, methods, evals = str(given.path), given.options.methods, given.options.evals
    anchors = np.load(Path(folder) / "results" / "anchors_curves.npz")
    columns = (anchors["tasks"], anchors["modes"], anchors["percentiles"])
    settings = [(str(task), str(mode), int(level)) for task, mode, level in zip(*columns, strict=True)]
    names = [str(name) for name in anchors["methods"]]
    rank = anchor("rank", folder)
    lines = [
        "# c-TPE on 63 constrained tabular settings",
        "",
        "Per-seed average rank among the five anchors and the method itself (1 is best), ± its error over seeds, and",
        f"the ranks that the anchors have in that company. {made_by(given)}",
        "",
        "| method | @50 | @100 | @200 | Optuna TPE | OptunaHub c-TPE | the paper's code | infeasible | median regret |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    ours = {}
    for method in methods:
        _, most_seeds, most = METHODS[method]
        k, n = min(given.seeds, most_seeds), min(evals, most)
        curves = ours[method] = _curves(folder, method, settings, k, n, given.processes)
        together = np.concatenate([anchors["curves"][:, :, :k, :n], curves[None]])
        at = tuple(b for b in (50, 100, 200) if b <= n)
        found, _ = rank.summarise(together, [*names, "ours"], settings, at)
        cells = [_cell(found["ours"], b) if b in at else "" for b in (50, 100, 200)]
        rivals = [
            " / ".join(f"{found[name][b]['rank_per_seed']:.2f}" for b in at) for name in ("tpe", "ctpe", "ctpe_paper")
        ]
        last = found["ours"][at[-1]]
        regret = " / ".join(f"{found['ours'][b]['median_rel_regret_per_run']:.4f}" for b in at)
        lines.append(f"| {method} | {' | '.join([*cells, *rivals])} | {last['runs_without_feasible']} | {regret} |")
    if "GP" in ours:
        lines += _beside_gp_log(Path(folder), rank, settings, ours["GP"])
    if "CTPE" in ours:
        lines += _unseen(
            anchors["curves"][:, :, : ours["CTPE"].shape[1], : ours["CTPE"].shape[2]], names, ours["CTPE"], settings
        )
    levels = np.array([level for *_, level in settings])
    whole = [method for method in methods if ours[method].shape[1:] == (8, 200)]
    if len(whole) > 1:
        lines += ["", "## Among themselves, at 200 evaluations, by level of the limits", ""]
        lines += [f"| level | {' | '.join(whole)} |", f"| --- |{' --- |' * len(whole)}"]
        values = np.stack([ours[method][:, :, -1] for method in whole])
        ranks = _ranks(values)
        for level in (10, 50, 90):
            inside = ranks[:, levels == level].mean(axis=1)  # (methods, seeds)
            errors = inside.std(axis=1, ddof=1) / np.sqrt(inside.shape[1])
            pairs = zip(inside.mean(axis=1), errors, strict=True)
            lines.append(f"| {level}% | {' | '.join(f'{mean:.2f} ± {error:.2f}' for mean, error in pairs)} |")
    singles = [
        {"method": method, "task": task, "limited": limited, "level": level, "best_of_seeds": best}
        for method, curves in ours.items()
        for (task, limited, level), some in zip(settings, curves, strict=True)
        for best in (
            {str(b): [float(f"{v:.6g}") for v in some[:, b - 1]] for b in (50, 100, 200) if b <= some.shape[1]},
        )
    ]
    picture = None
    if "CTPE" in ours:
        _, k, n = ours["CTPE"].shape
        among = {LABELS.get(name, name): anchors["curves"][j, :, :k, :n] for j, name in enumerate(names)}
        among["c-TPE, ours"] = ours["CTPE"]
        picture = partial(_draw, among=among, levels=levels)
    return Result("\n".join(lines) + "\n", singles, picture)


def _draw(path: Path, among: Mapping[str, Curves], levels: NDArray[np.int64]) -> None:
    """Average ranks over evaluations, as on the poster, a panel for each level of the limits."""
    ranks = _ranks(np.stack(list(among.values())))  # (methods, settings, seeds, evaluations)
    places = np.arange(4, ranks.shape[-1], 5)
    with figure(path, 3) as axes:
        for axis, level in zip(axes, (10, 50, 90), strict=True):
            mean = ranks[:, levels == level].mean(axis=(1, 2))
            for name, row in zip(among, mean, strict=True):
                axis.plot(places + 1, row[places], label=name, lw=3 if name == "c-TPE, ours" else 1.5)
            axis.set(title=f"limits that {level}% meet", xlabel="evaluations")
            axis.invert_yaxis()
        axes[0].set_ylabel("average rank, 1 is best")
        axes[0].legend(frameon=False)


def _beside_gp_log(folder: Path, rank: Any, settings: list[Setting], curves: Curves) -> list[str]:
    """GP against Optuna's on the logarithm of the loss, in the company of all anchors, where that was run."""
    anchors, others = (np.load(folder / "results" / name) for name in ("anchors_curves.npz", "anchors_gp_curves.npz"))
    columns = (others["tasks"], others["modes"], others["percentiles"])
    some = [(str(task), str(mode), int(level)) for task, mode, level in zip(*columns, strict=True)]
    places = [settings.index(setting) for setting in some]
    _, k, n = curves.shape
    theirs = others["curves"][list(others["methods"]).index("gp_log")]
    together = np.concatenate([anchors["curves"][:, places, :k, :n], theirs[None, :, :k, :n], curves[None, places]])
    names = [*map(str, anchors["methods"]), "Optuna GP, log loss", "GP"]
    found, _ = rank.summarise(together, names, some, tuple(b for b in (50, 100) if b <= n))
    lines = ["", f"## GP beside Optuna's GP on the logarithm of the loss, {len(some)} settings", ""]
    lines += ["| method | @50 | @100 |", "| --- | --- | --- |"]
    for name in names[-2:]:
        lines.append(f"| {name} | {' | '.join(_cell(found[name], b) for b in (50, 100) if b <= n)} |")
    return lines


def _unseen(anchors: Curves, names: list[str], curves: Curves, settings: list[Setting]) -> list[str]:
    """CTPE against each anchor, on the tasks that its settings were chosen on and on those they were not."""
    tasks = np.array([task for task, *_ in settings])
    seen = np.isin(tasks, TUNED)
    lines = ["", "## CTPE on tasks that its settings were not chosen on", ""]
    lines += [f"They were chosen on {', '.join(TUNED)}. Its rank less an anchor's, paired, ± the error over seeds:", ""]
    lines += [
        "| tasks | evaluations | Optuna TPE | OptunaHub c-TPE | the paper's code |",
        "| --- | --- | --- | --- | --- |",
    ]
    for label, some in (("chosen on", seen), ("not chosen on", ~seen)):
        for at in (50, 100, 200):
            if at <= curves.shape[2]:
                ranks = _ranks(
                    np.concatenate([anchors, curves[None]])[..., at - 1][:, some]
                )  # (methods, settings, seeds)
                cells = []
                for name in ("tpe", "ctpe", "ctpe_paper"):
                    apart = (ranks[-1] - ranks[names.index(name)]).mean(axis=0)
                    cells.append(f"{apart.mean():+.2f} ± {apart.std(ddof=1) / np.sqrt(len(apart)):.2f}")
                lines.append(f"| {label} | {at} | {' | '.join(cells)} |")
    return lines


def _cell(found: dict[int, Any], at: int) -> str:
    return f"{found[at]['rank_per_seed']:.2f} ± {found[at]['rank_per_seed_se']:.2f}"


def _ranks(values: Curves) -> Curves:
    """Ranks over the first axis, ties shared."""
    from scipy.stats import rankdata  # noqa: PLC0415 - only here

    return np.asarray(rankdata(np.where(np.isinf(values), 1e30, values), axis=0))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--evals", type=int, default=200)


ANCHORS = Need(
    "the settings and existing optimizers' curves (tasks.py, rank.py, results/)",
    "FAIRWAY_ANCHORS",
    flags=("--data", "--anchors"),
    holds=("tasks.py", "rank.py", "results/anchors_curves.npz"),
)
REPRODUCTIONS = (
    Reproduction(
        "ctpe_tabular",
        "c-TPE: average ranks on 63 constrained tabular settings",
        (ANCHORS,),
        make,
        40,
        8,
        options=_options,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "ctpe_tabular", *sys.argv[1:]))
