"""Learning curves of real trainings with their constraint curves, recorded step by step, for simulation.

A recording is ragged: configuration k owns rows offset[k] to offset[k + 1] of every metric. A curve shorter than its
total number of steps ended because the model could not change any more: it stays flat from there, at almost no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.parameters import Float, Int, Parameter, Value
from fairway.space import Space

_SPACE = ("names", "low", "high", "log", "integer")
_LAYOUT = (*_SPACE, "config", "total_steps", "offset", "seconds")


@dataclass(frozen=True, eq=False)
class Recording:
    """A table of trainings: n configurations, their curves, and what each step cost.

    >>> import fairway as fw, numpy as np
    >>> recording = fw.Recording(
    ...     space=fw.Space({"depth": fw.Int(1, 9)}), config=np.array([[3.0], [5.0]]), total_steps=np.array([2, 3]),
    ...     offset=np.array([0, 2, 4]), seconds=np.array([0.1, 0.1, 0.3, 0.3]),
    ...     metrics={"auc": np.array([0.6, 0.7, 0.7, 0.8])})
    >>> len(recording), recording.params(1), recording.at("auc", 1, 3)
    (2, {'depth': 5}, 0.8)
    """

    space: Space
    config: NDArray[np.float64]  # (n, d)
    total_steps: NDArray[np.int64]  # (n,)
    offset: NDArray[np.int64]  # (n + 1,)
    seconds: NDArray[np.float64]  # (rows,)
    metrics: Mapping[str, NDArray[np.float64]]  # (rows,) each

    def __post_init__(self) -> None:
        n, rows = len(self.config), len(self.seconds)
        if self.space.names != tuple(self.space):
            raise UsageError("a recording's space has branches: give each parameter one range")
        if not n or np.shape(self.config) != (n, len(self.space)):
            shape = np.shape(self.config)
            raise UsageError(f"a recording's config has shape {shape}: (n, {len(self.space)}) is expected")
        if len(self.total_steps) != n or len(self.offset) != n + 1 or (self.offset[0], self.offset[-1]) != (0, rows):
            raise UsageError("a recording's total_steps, offset and seconds do not match; see Recording's layout")
        if (np.diff(self.offset) < 1).any() or (np.asarray(self.total_steps) < 1).any():
            raise UsageError("a recording has a configuration without a single step")
        if not (np.isfinite(self.seconds) & (np.asarray(self.seconds) >= 0)).all():
            raise UsageError("a recording has steps whose seconds are negative or not finite")
        for name, column in self.metrics.items():
            if len(column) != rows:
                raise UsageError(f"a recording's metric {name!r} has {len(column)} rows where seconds has {rows}")

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read an .npz with names, low, high, log, integer, config, total_steps, offset, seconds and metric curves."""
        path = Path(path)
        if not path.is_file():
            raise UsageError(f"{path}: there is no such recording")
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (ValueError, OSError, EOFError) as error:
            raise UsageError(f"{path}: a recording is expected, but it cannot be read ({error})") from error
        missing = [name for name in _LAYOUT if name not in arrays]
        if missing:
            raise UsageError(f"{path}: a recording is expected, but it lacks {', '.join(missing)}")
        rows = len(arrays["seconds"])
        curves = {name: column for name, column in arrays.items() if column.shape == (rows,) and name not in _LAYOUT}
        parameters: dict[str, Parameter] = {}
        for name, low, high, log, integer in zip(*(arrays[name].tolist() for name in _SPACE), strict=True):
            parameters[name] = Int(round(low), round(high), log=log) if integer else Float(low, high, log=log)
        return cls(
            space=Space(parameters),
            config=arrays["config"].astype(np.float64),
            total_steps=arrays["total_steps"].astype(np.int64),
            offset=arrays["offset"].astype(np.int64),
            seconds=arrays["seconds"].astype(np.float64),
            metrics={name: column.astype(np.float64) for name, column in curves.items()},
        )

    def __len__(self) -> int:
        return len(self.config)

    def params(self, k: int) -> dict[str, Value]:
        """Configuration k by name."""
        pairs = zip(self.space.items(), self.config[k].tolist(), strict=True)
        return {name: int(value) if isinstance(each, Int) else value for (name, each), value in pairs}

    @cached_property
    def index(self) -> dict[tuple[tuple[str, Value], ...], int]:
        """Every configuration by the `key` of its parameters."""
        index = {key(self.params(k)): k for k in range(len(self))}
        if len(index) < len(self):
            raise UsageError(f"a recording lists {len(self) - len(index)} of its configurations more than once")
        return index

    @cached_property
    def x(self) -> NDArray[np.float64]:
        """Every configuration as a point of the unit cube, (n, d)."""
        return np.array([self.space.encode(self.params(k)) for k in range(len(self))])

    def row(self, k: int, step: int) -> int | None:
        """The row of configuration k at a step from 1 on; None past its recorded end."""
        row = int(self.offset[k]) + step - 1
        return row if row < self.offset[k + 1] else None

    def at(self, metric: str, k: int, step: int) -> float:
        """A metric of configuration k at a step; flat past its recorded end."""
        row = self.row(k, step)
        return float(self.metrics[metric][self.offset[k + 1] - 1 if row is None else row])


def key(params: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """A configuration as a key for look-ups."""
    return tuple(params.items())
