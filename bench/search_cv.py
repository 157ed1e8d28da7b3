"""Is the best feasible cross-validated score found sooner by ConstrainedSearchCV or by scikit-learn's own searches?

    python -m bench.search_cv --data FOLDER [--seeds 5] [--seconds 40] [--jobs 2] [--methods ...] [--datasets ...]

FOLDER, the processes and what is kept of them are those of bench.practitioner; `--probe` shows what the limits were
chosen from. LightGBM on two of its tables, 10 folds, the budget in CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.experimental import enable_halving_search_cv  # type: ignore[import-untyped,unused-ignore] # noqa: F401
from sklearn.model_selection import HalvingRandomSearchCV, RandomizedSearchCV, StratifiedKFold

import fairway as fw
from bench import practitioner
from bench.practitioner import CHANCE, FIXED, PROBE_SEED, SPACE, Array, Key, Odds, Task
from fairway.integrations.sklearn import ConstrainedSearchCV

FOLDS = 10
ROUNDS = 40
FACTOR = 3
PROBED = 25
# By --probe, of 25 random configurations with a seed of their own: those that make a split and meet the limit. On
# german four stumps share an eod of 0.1176, so that a share between 11% and 33% cannot be had.
DATASETS = {
    "compas": practitioner.DATASETS["compas"]._replace(rows=6_156, limit=0.207, share=0.20),
    "german": practitioner.DATASETS["german"]._replace(rows=999, limit=0.118, share=0.33),
}


class Model(LGBMClassifier):  # type: ignore[misc,unused-ignore]
    """LightGBM on a table whose last column is the number of the row: by it scorers know groups and fold."""

    def fit(self, table: Array, truth: NDArray[np.bool_]) -> Model:  # type: ignore[override,unused-ignore]
        """Train on the columns before it."""
        self.share_ = float(truth.mean())
        super().fit(table[:, :-1], truth)
        return self

    def chances(self, table: Array) -> Array:
        """Of being positive; asked for again, they are those of the last time, so that no second score pays twice."""
        if not hasattr(self, "chances_"):
            self.chances_ = np.asarray(self.predict_proba(table[:, :-1]))[:, 1]
        return self.chances_


class Folded(Task):
    """A table in 10 folds, and the record of the configurations that have both scores on all of them.

    Every method scores through it, one trained model of one fold after the other.
    """

    def __init__(self, name: str, folder: Path, seconds: float) -> None:
        super().__init__(name, folder, seconds)
        # Halving never reaches all rows unless their number is a power of 3 times that of its first rung.
        rows = len(self.target) // FACTOR**3 * FACTOR**3
        assert rows == DATASETS[name].rows
        self.table: Array = np.column_stack([self.features[:rows], np.arange(rows)])
        self.truth, self._group = self.target[:rows], self.group[:rows]
        self.cv = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        self._fold = np.empty(rows, np.intp)
        for k, (_, test) in enumerate(self.cv.split(self.table, self.truth)):
            self._fold[test] = k
        self._size = np.bincount(self._fold)
        self._found: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}  # by configuration, score and fold
        self.full = 0  # folds run on all their rows

    @property
    def configurations(self) -> int:
        """How many were begun."""
        return len(self._found)

    def auc(self, model: Model, table: Array, _: object = None) -> float:
        """The score. Whoever scores begins with it: past the budget the run ends here."""
        self.trainings += 1
        if self.spent > self.seconds:
            raise practitioner.Over
        rows, chances = self._rows(table), model.chances(table)
        truth = self.truth[rows]
        # Below full size a fold may show one class only.
        auc = CHANCE if truth.all() or not truth.any() else Odds(truth, self._group[rows], model.share_).auc(chances)
        self._note(model, rows, "auc", auc)
        return auc

    def eod(self, model: Model, table: Array, _: object = None) -> float:
        """The equalized-odds difference, of labels at the share of positives in training."""
        rows = self._rows(table)
        cell = 2 * self.truth[rows] + self._group[rows]
        size = np.bincount(cell, minlength=4)
        labelled = np.bincount(cell, weights=model.chances(table) >= model.share_, minlength=4)
        gaps = np.abs(np.diff((labelled / np.maximum(size, 1)).reshape(2, 2))).ravel()
        seen = size.reshape(2, 2).all(axis=1)  # below full size a group may be missing: then there is no gap to see
        eod = float(gaps[seen].max(initial=0.0))
        self._note(model, rows, "eod", eod)
        return eod

    @staticmethod
    def _rows(table: Array) -> NDArray[np.intp]:
        return table[:, -1].astype(np.intp)

    def _note(self, model: Model, rows: NDArray[np.intp], name: str, value: float) -> None:
        key = tuple(getattr(model, parameter) for parameter in SPACE)
        scores = self._found.setdefault(key, {"auc": {}, "eod": {}})
        fold = int(self._fold[rows[0]])
        if len(rows) < self._size[fold]:
            return
        self.full += name == "auc"
        scores[name][fold] = value
        if all(len(by_fold) == FOLDS for by_fold in scores.values()):
            auc, eod = (float(np.mean(list(by_fold.values()))) for by_fold in scores.values())
            self.record(auc, eod)


def constrained(task: Folded, seed: int, sampler: fw.Sampler | None = None) -> None:
    """Fold by fold; the stopper decides which configurations go on, and which checks are worth their price."""
    search = ConstrainedSearchCV(
        Model(**FIXED, n_estimators=ROUNDS),
        SPACE,
        scoring=task.auc,
        constraints=[fw.AtMost("eod", task.limit)],
        scorers={"eod": task.eod},
        cv=task.cv,
        trials=None,
        timeout=1e6,  # it must have an end; the budget comes long before
        sampler=sampler,
        terminator=None,
        random_state=seed,
        refit=False,
    )
    task.start()
    try:
        search.fit(task.table, task.truth)
    except practitioner.Over:
        counted = {trial.metrics["score"] for trial in search.study_.trials if trial.feasible}
        assert counted.issuperset(auc for _, auc, _ in task.path)  # what is recorded counts for the study
        raise


def constrained_ctpe(task: Folded, seed: int) -> None:
    """The same with a model of the space."""
    constrained(task, seed, fw.CTPE())


def _again(task: Folded, seed: int, search: Callable[[dict[str, practitioner.Draw], int], Any]) -> None:
    """A search with new seeds, again and again."""
    space = {name: practitioner.Draw(parameter) for name, parameter in SPACE.items()}
    task.start()
    again = 0
    while True:
        search(space, 1000 * seed + again).fit(task.table, task.truth)
        again += 1


def randomized(task: Folded, seed: int) -> None:
    """4 configurations on all folds, again and again; both scores on each fold."""

    def both(model: Model, table: Array, _: object) -> dict[str, float]:
        return {"auc": task.auc(model, table), "eod": task.eod(model, table)}

    def search(space: dict[str, practitioner.Draw], random_state: int) -> Any:
        return RandomizedSearchCV(
            Model(**FIXED, n_estimators=ROUNDS),
            space,
            n_iter=4,
            scoring=both,
            cv=task.cv,
            refit=False,
            error_score="raise",
            random_state=random_state,
        )

    _again(task, seed, search)


def _candidates(rows: int) -> int:
    """As many as leave ten rows to each test fold of the first rung."""
    return max(n for n in (3, 9, 27, 81) if rows // n >= 10 * FOLDS)


def halving(task: Folded, seed: int) -> None:
    """27 configurations (9 on german) on a share of the rows, a third of them on three times as many, and so on to one on all rows, again and again."""  # noqa: E501 - a line of the table

    def score(model: Model, table: Array, _: object) -> float:
        auc, eod = task.auc(model, table), task.eod(model, table)
        return auc if eod <= task.limit else task.limit - eod

    def search(space: dict[str, practitioner.Draw], random_state: int) -> Any:
        return HalvingRandomSearchCV(
            Model(**FIXED, n_estimators=ROUNDS),
            space,
            n_candidates=_candidates(len(task.truth)),
            factor=FACTOR,
            min_resources="exhaust",
            scoring=score,
            cv=task.cv,
            refit=False,
            return_train_score=False,
            error_score="raise",
            random_state=random_state,
        )

    _again(task, seed, search)


METHODS: dict[str, tuple[str, Callable[[Folded, int], None]]] = {
    "fairway": ("ConstrainedSearchCV, defaults (Compass, Pilot)", constrained),
    "fairway-ctpe": ("ConstrainedSearchCV, `sampler=fw.CTPE()`", constrained_ctpe),
    "randomized": ("RandomizedSearchCV", randomized),
    "halving": ("HalvingRandomSearchCV", halving),
}
OURS = "fairway"


def run(key: Key, folder: Path, seconds: float) -> dict[str, Any]:
    """One run, in this process."""
    name, method, seed = key
    task, began = Folded(name, folder, seconds), time.monotonic()
    with suppress(practitioner.Over):
        METHODS[method][1](task, seed)
    packages = ("fairway", "lightgbm", "numpy", "scikit-learn")
    return {
        "key": key,
        "seconds": seconds,
        "limit": task.limit,
        "path": task.path,
        "configurations": task.configurations,
        "checks": task.checks,
        "trainings": task.trainings,
        "full": task.full,
        "cpu": task.spent,
        "wall": time.monotonic() - began,
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
        "sources": practitioner.sources(),
    }


def _report(results: Mapping[Key, Mapping[str, Any]], seconds: float) -> str:
    names = list(dict.fromkeys(name for name, _, _ in results))
    methods = list(dict.fromkeys(method for _, method, _ in results))
    seeds = list(dict.fromkeys(seed for _, _, seed in results))
    times = [seconds / 4, seconds / 2, seconds]
    found = np.array(  # (data set, method, seed, time)
        [[[[practitioner.at(results[n, m, s], t) for t in times] for s in seeds] for m in methods] for n in names]
    )
    heading = " | ".join(f"{t:g} s" for t in times)
    counted = {
        "configurations": "configurations begun",
        "checks": "with both scores on all folds",
        "trainings": "folds run",
        "full": "on all rows",
    }
    lines = ["# The best feasible cross-validated score after so many seconds", ""]
    lines += [_how(methods, len(seeds), seconds, next(iter(results.values()))["versions"]), ""]
    lines += ["| data set | rows | target | groups | limit on eod | of random configurations meet it |"]
    lines += ["| --- " * 6 + "|"]
    for name in names:
        data = DATASETS[name]
        lines.append(f"| {name} | {data.rows:,} | {data.target} | {data.group} | {data.limit:g} | {data.share:.0%} |")
    for i, name in enumerate(names):
        lines += ["", f"## {name}, mean eod <= {DATASETS[name].limit:g}", ""]
        lines += [f"| method | {heading} | {' | '.join(counted.values())} |", "| --- " * (4 + len(counted)) + "|"]
        for j, method in enumerate(methods):
            cells = []
            for k in range(len(times)):
                there = int((found[i, j, :, k] != CHANCE).sum())
                few = "" if there == len(seeds) else f" ({there} of {len(seeds)} seeds)"
                cells.append(practitioner.mean(found[i, j, :, k], 4) + few)
            rows = [results[name, method, seed] for seed in seeds]
            cells += [f"{np.mean([row[what] for row in rows]):,.0f}" for what in counted]
            lines.append(f"| {METHODS[method][0]} | {' | '.join(cells)} |")
        if OURS in methods and len(methods) > 1:
            ours = methods.index(OURS)
            lines += ["", f"{METHODS[OURS][0]} less the others, in AUC x 1000, paired by seed:", ""]
            lines += [f"| less | {heading} |", "| --- " * 4 + "|"]
            for j, method in enumerate(methods):
                if method != OURS:
                    less = 1000 * (found[i, ours] - found[i, j])
                    cells = [practitioner.mean(less[:, k], 2, "+") for k in range(len(times))]
                    lines.append(f"| {METHODS[method][0]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _how(methods: Sequence[str], seeds: int, seconds: float, versions: Mapping[str, str]) -> str:
    how = "\n".join(f"- {METHODS[m][0]}: {str(METHODS[m][1].__doc__).splitlines()[0]}" for m in methods)
    return f"""\
Made by `python -m bench.search_cv --data FOLDER --seeds {seeds} --seconds {seconds:g}`, with
{", ".join(f"{k} {v}" for k, v in versions.items())}.

Mean AUC over {FOLDS} stratified folds of the best LightGBM configuration ({ROUNDS} rounds, seven hyperparameters) whose
mean equalized-odds difference (eod) over the same folds is within the limit: mean ± standard error over {seeds} seeds
of the search. A configuration counts from the moment when both scores of all its folds, on all rows, are known; nobody
has to finish a search for it. A run without a feasible one by then, or with the constant model only, counts as
{CHANCE}. Seconds are CPU seconds of a process with one thread, the search's own included, imports and loading not. A
model predicts once, however many scores are asked for. Labels are positive from the share of positives in training on;
the sensitive column is not a feature. No search ends by itself.

{how}

HalvingRandomSearchCV takes one score: the AUC of a fold where its eod is within the limit, else minus what is beyond
it. On small rungs a gap between groups of which one is missing is not counted. So that its last rung is all rows, the
last 16 rows of compas and the last one of german are left out, for everybody. The limits were chosen before any search
ran, from {PROBED} random configurations with a seed of their own, among those that make a split; `--probe` shows them.
The score is the one that was searched by: on new data expect less."""


def _probe(name: str, folder: Path) -> None:
    """What the limit of a data set is chosen from."""
    task, space, found = Folded(name, folder, math.inf), fw.Space(SPACE), []
    task.start()
    rng = np.random.default_rng(PROBE_SEED)
    for _ in range(PROBED):
        params, scores = space.decode(rng.random(len(SPACE))), []
        for train, test in task.cv.split(task.table, task.truth):
            model = Model(**FIXED, n_estimators=ROUNDS).set_params(**params)
            model.fit(task.table[train], task.truth[train])
            scores.append((task.auc(model, task.table[test]), task.eod(model, task.table[test])))
        found.append(np.mean(scores, axis=0))
    every = np.array(found)
    auc, eod = every[every[:, 0] > CHANCE].T
    within = eod <= task.limit
    print(
        f"{name}: {len(every)} configurations in {task.spent:.0f} s, {len(auc)} make a split; of these, best AUC "
        f"{auc.max():.4f}, eod {' '.join(f'{value:.4f}' for value in np.sort(eod))}\n"
        f"  {within.mean():.0%} meet eod <= {task.limit:g}, best AUC {auc[within].max(initial=CHANCE):.4f}",
        flush=True,
    )


_run = subprocess.run


def _here(command: Sequence[str], **options: Any) -> Any:
    """The process that practitioner makes for a run, with this module in its place."""
    return _run([__spec__.name if part == practitioner.__name__ else part for part in command], **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FAIRWAY_DATA", ""), help="the folder of fairness_tabular/")
    parser.add_argument("--datasets", nargs="+", default=[*DATASETS], choices=[*DATASETS])
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40.0, help="shown after a quarter, a half and all of them")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--probe", action="store_true", help="only show what the limits were chosen from")
    parser.add_argument("--out", type=Path, default=Path("bench/results/search_cv.md"))
    parser.add_argument("--kept", type=Path, default=Path("bench/out/search_cv.jsonl"), help="where runs are kept")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = Path(given.data).expanduser().resolve()
    if not given.data or not (folder / "fairness_tabular").is_dir():
        where = f"{folder} does not hold it" if given.data else "pass --data FOLDER or set FAIRWAY_DATA"
        parser.exit(2, f"search_cv: it needs fairness_tabular/; {where}\n")
    with patch.object(practitioner, "DATASETS", DATASETS):  # the limits are others here
        if given.one:
            name, method, seed = given.one
            print(json.dumps(run((name, method, int(seed)), folder, given.seconds)))
            return
        if given.probe:
            for name in given.datasets:
                _probe(name, folder)
            return
        practitioner.agrees_with_fairlearn()
        keys = [(n, m, s) for s in range(given.seeds) for n in given.datasets for m in given.methods]
        with patch("subprocess.run", _here):
            results = practitioner.run_all(keys, folder, given.seconds, given.jobs, given.kept)
    text = _report(results, given.seconds)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
