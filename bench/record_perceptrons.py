"""Records scikit-learn's perceptrons on a public table, epoch by epoch, on a CPU: networks that nobody chose rules by.

    python -m bench.record_perceptrons pendigits --data FOLDER -o pendigits.npz [--configurations 400] [--epochs 25]
    python -m bench.record_perceptrons mfeat_fourier --data FOLDER -o fourier.npz

FOLDER holds openml_tabular/. A tenth of the training rows have a random label. Validation rows are clean: `worst_error`
is 1 - the recall of the worst class, `ece` the calibration error, `drop` the accuracy lost to Gaussian noise on them.
Configurations are random; an epoch's seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import fairway as fw
from bench.runs import space_columns

SEED = 77
TRAINED = {"pendigits": 1500, "mfeat_fourier": 900, "optdigits": 1500, "mfeat_pixel": 900}  # rows
JUDGED = 2000  # rows at most
WRONG, NOISE = 0.1, 0.5  # the share of wrong labels; the deviation of what is added to rows of unit deviation
BINS = 15  # of the calibration error
METRICS = ("accuracy", "worst_error", "ece", "drop")
SPACE: dict[str, fw.Int | fw.Float] = {
    "lr": fw.Float(1e-4, 0.1, log=True),
    "alpha": fw.Float(1e-6, 1.0, log=True),
    "width": fw.Int(4, 128, log=True),
    "depth": fw.Int(1, 3),
    "batch": fw.Int(16, 256, log=True),
    "beta": fw.Float(0.5, 0.99),
}
Array: TypeAlias = NDArray[np.float64]


class Judge:
    """Measures a perceptron on clean rows."""

    def __init__(self, x: Array, y: NDArray[np.int64], rng: np.random.Generator) -> None:
        self._x, self._y = x, y
        self._noisy = x + NOISE * rng.normal(size=x.shape)

    def measure(self, model: MLPClassifier) -> tuple[float, float, float, float]:
        """What `METRICS` names."""
        chances = np.nan_to_num(model.predict_proba(self._x))
        right, sure = chances.argmax(axis=1) == self._y, chances.max(axis=1)
        worst = max(1 - float(right[self._y == one].mean()) for one in np.unique(self._y))
        place = np.minimum((BINS * sure).astype(int), BINS - 1)
        gaps = [np.abs((right[place == i] - sure[place == i]).sum()) for i in range(BINS)]
        noisy = float((model.predict(self._noisy) == self._y).mean())
        return float(right.mean()), worst, float(sum(gaps)) / len(right), float(right.mean()) - noisy


def record(name: str, folder: Path, configurations: int, epochs: int, path: Path) -> None:
    """Train them all and write the recording."""
    rng, space = np.random.default_rng(SEED), fw.Space(SPACE)
    table = rng.permutation(np.loadtxt(folder / "openml_tabular" / f"{name}.tsv.gz", delimiter="\t", skiprows=1))
    y, n = np.unique(table[:, -1], return_inverse=True)[1], TRAINED[name]
    x = StandardScaler().fit(table[:n, :-1]).transform(table[:, :-1])
    classes = np.arange(y.max() + 1)
    labels = np.where(rng.random(n) < WRONG, rng.integers(0, len(classes), n), y[:n])
    judge = Judge(x[n : n + JUDGED], y[n : n + JUDGED], rng)
    rows: list[tuple[float, ...]] = []
    config = []
    for k in range(configurations):
        params = {key: float(value) for key, value in space.decode(rng.random(len(space))).items()}  # type: ignore[arg-type]
        config.append([params[key] for key in space])
        model = MLPClassifier(
            [int(params["width"])] * int(params["depth"]),
            learning_rate_init=params["lr"],
            alpha=params["alpha"],
            batch_size=int(params["batch"]),
            beta_1=params["beta"],
            random_state=k,
        )
        for _ in range(epochs):
            began = time.process_time()
            model.partial_fit(x[:n], labels, classes=classes)
            rows.append((time.process_time() - began, *judge.measure(model)))
        if sys.stderr.isatty() or (k + 1) % 50 == 0:
            sys.stderr.write(f"\r{k + 1} of {configurations} configurations")
            sys.stderr.flush()
    sys.stderr.write("\n")
    seconds, *curves = np.array(rows).T
    np.savez_compressed(
        path,
        config=np.array(config),
        total_steps=np.full(configurations, epochs),
        offset=np.arange(configurations + 1) * epochs,
        seconds=seconds,
        **space_columns(space),
        **dict(zip(METRICS, curves, strict=True)),
    )
    print(f"{path}: {configurations} configurations, {epochs} epochs, best accuracy {curves[0].max():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*TRAINED])
    parser.add_argument("--data", default=os.environ.get("FAIRWAY_DATA", ""), help="the folder of the tables")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--configurations", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=25)
    given = parser.parse_args()
    folder = Path(given.data).expanduser()
    if not (folder / "openml_tabular").is_dir():
        raise SystemExit(f"record_perceptrons: it needs openml_tabular/; {folder} does not hold it")
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", RuntimeWarning)  # of those that diverge
    record(given.table, folder, given.configurations, given.epochs, given.output)


if __name__ == "__main__":
    main()
