"""Parzen estimators over a search space: the densities of TPE (Bergstra et al., 2011) and c-TPE.

A density is a mixture of n product kernels, one around each point, and a uniform prior, which weighs as much as the
average kernel. In each dimension a kernel is

- a Gaussian truncated to [0, 1] for a real parameter, or one with many cells,
- the mass of a cell under such a Gaussian for an integer, a stepped float or an ordered choice,
- Aitchison and Aitken's for a choice: 1 - b on the point's own option, b spread over the others.

A parameter that is inactive at x does not count; one that is inactive at a kernel's centre is uniform in that kernel.
Points are (n, d) of the unit cube as `Space.encode` returns them, NaN where inactive.

| symbol | shape | meaning |
| --- | --- | --- |
| c | (n, d) | the points, kernel centres |
| h | (d,) | bandwidths |
| x | (k, d) | where the density is evaluated |
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fairway.models.blas import one_thread
from fairway.parameters import Choice
from fairway.space import Space

_MOST_CELLS = 64  # with more, a cell is narrow enough to use the density at its middle
_MOST_OPTIONS = 1024  # of a choice whose kernel is a table
_MOST_POINTS = 200  # larger sets are subsampled evenly
_TINY = 1e-300

Points = NDArray[np.float64]


class _Axis(NamedTuple):
    """One dimension: real (no edges), ordered cells, or unordered options."""

    edges: NDArray[np.float64] | None
    ordered: bool

    @property
    def cells(self) -> int:
        return 0 if self.edges is None else len(self.edges) - 1

    def cell(self, u: NDArray[np.float64]) -> NDArray[np.intp]:
        """The cell of each coordinate; NaN gets the index after the last cell."""
        assert self.edges is not None
        place = np.searchsorted(self.edges[1:-1], u, side="right")
        return np.where(np.isnan(u), self.cells, place)


class Kernel(NamedTuple):
    """The width of kernels.

    h = `bandwidth` * spread * m^(-1/5), where spread is that of the m points, the prior included; at least `floor` (for
    cells, also the share `cell` of one) and at most 0.5. `stay` is the mass of Aitchison and Aitken's kernel on a
    point's own option.
    """

    bandwidth: float
    floor: float
    stay: float
    cell: float = 1.0


class Axes:
    """The dimensions of a space: which are real, which discrete, and their cells."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.axes = []
        for parameter in space.values():
            unordered = isinstance(parameter, Choice) and not parameter.ordered
            discrete = unordered or parameter.size <= _MOST_CELLS
            self.axes.append(_Axis(parameter.edges() if discrete else None, not unordered))
        self.cells = np.array([axis.cells for axis in self.axes])
        self.real = np.flatnonzero(self.cells == 0)
        self.discrete = np.flatnonzero((self.cells > 0) & (self.cells <= _MOST_OPTIONS))
        self.many = np.flatnonzero(self.cells > _MOST_OPTIONS)  # choices of so many options that a table is too large

    @cached_property
    def one_hot_offset(self) -> NDArray[np.intp]:
        """The first column of each discrete dimension in a one-hot row: its cells, then one for inactive."""
        return np.concatenate([[0], np.cumsum(self.cells[self.discrete] + 1)])

    def one_hot(self, x: Points) -> NDArray[np.float32]:
        """One-hot rows (k, columns) that mark the cell of points (k, d) in each discrete dimension."""
        out = np.zeros((len(x), int(self.one_hot_offset[-1])), np.float32)
        rows = np.arange(len(x))
        for start, j in zip(self.one_hot_offset, self.discrete, strict=False):
            out[rows, start + self.axes[j].cell(x[:, j])] = 1.0
        return out


def thinned(n: int) -> NDArray[np.intp]:
    """The places of the points that a density of n points is made of: all of them, or evenly spaced ones."""
    return np.linspace(0, n - 1, min(n, _MOST_POINTS)).astype(np.intp)


class Parzen:
    """A density over the unit cube with a kernel around each point (n, d); uniform without points.

    All kernels weigh the same, or with `ranked` in proportion to n, n - 1, ..., 1.
    """

    def __init__(self, axes: Axes, points: Points, kernel: Kernel, *, ranked: bool = False) -> None:
        points = points[thinned(len(points))]
        self._axes, self._c, self._kernel = axes, points, kernel
        n = len(points)
        weights = np.arange(n, 0, -1) * (2 / (n + 1)) if ranked else np.ones(n)  # they sum to n; the prior weighs 1
        self._w = np.append(weights, 1.0) / (n + 1)
        self._h = self._bandwidths()
        self._tables = [self._table(int(j)) for j in axes.discrete]

    def _bandwidths(self) -> NDArray[np.float64]:
        axes, kernel = self._axes, self._kernel
        m, spread = _spread(np.concatenate([self._c, np.full((1, self._c.shape[1]), 0.5)]))  # and the prior's centre
        floor = np.where(
            axes.cells > 0, np.maximum(kernel.floor, kernel.cell / np.maximum(axes.cells, 1)), kernel.floor
        )
        return np.asarray(np.clip(kernel.bandwidth * spread * m**-0.2, floor, 0.5))

    def _table(self, j: int) -> NDArray[np.float64]:
        """The log kernel of a discrete dimension by the cells of x and of the centre: (cells + 1, cells + 1)."""
        axis = self._axes.axes[j]
        size = axis.cells
        assert axis.edges is not None
        if axis.ordered:
            centres = (axis.edges[:-1] + axis.edges[1:]) / 2
            below = ndtr((axis.edges[:, None] - centres) / self._h[j])
            mass = np.diff(below, axis=0) / (below[-1] - below[0])
        else:
            other = (1 - self._kernel.stay) / max(size - 1, 1)
            mass = np.full((size, size), other)
            np.fill_diagonal(mass, self._kernel.stay if size > 1 else 1.0)
        table = np.zeros((size + 1, size + 1))
        table[:size, :size] = np.log(np.maximum(mass, _TINY))
        table[:size, size] = -math.log(size)
        return table

    def log_density(self, x: Points, one_hot: NDArray[np.float32]) -> NDArray[np.float64]:
        """The log density at points (k, d), given also as one-hot rows: (k,).

        A log kernel is a sum of entries of `_tables`, which a one-hot row selects, and of -(x - c)^2 / 2 h^2, which is
        x c / h^2 plus terms of x or c alone: one matrix product gives all k n of them, up to a constant per row.
        """
        axes, c = self._axes, self._c
        prior = np.zeros(len(x))
        for j in (*axes.discrete, *axes.many):
            prior -= np.where(np.isnan(x[:, j]), 0.0, math.log(axes.cells[j]))
        if not len(c):
            return prior
        tables = zip(self._tables, axes.discrete, strict=True)
        right = [np.empty((0, len(c))), *(table[:, axes.axes[j].cell(c[:, j])] for table, j in tables)]
        left: list[NDArray[np.floating]] = [one_hot]
        constant = np.zeros(len(x))
        inactive = np.isnan(x[:, axes.real]).any() or np.isnan(c[:, axes.real]).any()
        if axes.real.size and not inactive:
            h = self._h[axes.real]
            a, b = (x[:, axes.real] - 0.5) / h, (c[:, axes.real] - 0.5) / h  # small numbers: float32 is enough
            size = ndtr((1.0 - c[:, axes.real]) / h) - ndtr(-c[:, axes.real] / h)
            bias = -np.log(size * h * math.sqrt(2 * math.pi)) - 0.5 * b * b
            left += [a, np.ones((len(x), 1))]
            right += [b.T, bias.sum(axis=1)[None]]
            constant = -0.5 * (a * a).sum(axis=1)
        with one_thread():
            log = np.concatenate(left, axis=1, dtype=np.float32) @ np.concatenate(right, dtype=np.float32)
        if inactive:
            log += self._log_gaussian(x[:, axes.real], c[:, axes.real], self._h[axes.real])
        for j in axes.many:
            log += self._log_options(int(j), x[:, j], c[:, j])
        log += np.log(self._w[:-1]).astype(np.float32)
        alone = prior - constant + math.log(self._w[-1])
        highest = np.maximum(log.max(axis=1), alone)
        log -= highest[:, None].astype(np.float32)
        total = np.exp(log, out=log).sum(axis=1, dtype=np.float64) + np.exp(alone - highest)
        return np.asarray(highest + np.log(total) + constant)

    def _log_options(self, j: int, x: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float32]:
        """The log kernel of a choice of many options at coordinates (k,), around centres (n,): (k, n)."""
        axis = self._axes.axes[j]
        own, other = math.log(self._kernel.stay), math.log((1 - self._kernel.stay) / (axis.cells - 1))
        log = np.where(axis.cell(x)[:, None] == axis.cell(c), own, other)
        log[:, np.isnan(c)] = -math.log(axis.cells)
        log[np.isnan(x)] = 0.0
        return log.astype(np.float32)

    @staticmethod
    def _log_gaussian(x: Points, c: Points, h: NDArray[np.float64]) -> NDArray[np.float32]:
        """Truncated Gaussians, summed over those dimensions that are active on both sides: (k, n)."""
        total = np.zeros((len(x), len(c)))
        for j in range(x.shape[1]):
            size = ndtr((1.0 - c[:, j]) / h[j]) - ndtr(-c[:, j] / h[j])
            scale = -np.log(size * h[j] * math.sqrt(2 * math.pi))
            total += np.nan_to_num(scale - 0.5 * ((x[:, j, None] - c[:, j]) / h[j]) ** 2, nan=0.0)
        return total.astype(np.float32)

    def sample(self, n: int, rng: np.random.Generator) -> Points:
        """Draws (n, d) before `Space.snap`: a component for each, then a draw from its product kernel."""
        axes, c, h = self._axes, self._c, self._h
        d = len(axes.axes)
        component = np.searchsorted(np.cumsum(self._w), rng.random(n)).clip(max=len(c))
        u, keep = rng.random((n, d)), rng.random((n, d))
        centres = np.vstack([c, np.full((1, d), np.nan)])[component]
        with np.errstate(invalid="ignore"):
            low, high = ndtr(-centres / h), ndtr((1.0 - centres) / h)
            drawn = centres + h * ndtri(np.clip(low + u * (high - low), _TINY, 1 - 1e-16))
        for j in np.flatnonzero([not axis.ordered for axis in axes.axes]):
            size = axes.cells[j]
            own = axes.axes[j].cell(centres[:, j])
            other = np.minimum((u[:, j] * max(size - 1, 1)).astype(int), max(size - 2, 0))
            other += other >= own
            option = np.where((keep[:, j] < self._kernel.stay) | (size == 1), own, other)
            drawn[:, j] = (option + 0.5) / size
        return np.clip(np.where(np.isnan(centres), u, drawn), 0.0, 1.0)

    def nudged(self, x: Points, rng: np.random.Generator) -> Points:
        """Points (n, d) before `Space.snap`, with Gaussian noise of kernel width on their real coordinates."""
        real = self._axes.real
        moved = x.copy()
        moved[:, real] += self._h[real] * rng.normal(size=(len(x), len(real)))
        return np.clip(moved, 0.0, 1.0)


def _spread(values: Points) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The number of values in each column of (m, d), and their spread: min(interquartile range / 1.34, deviation)."""
    there = ~np.isnan(values)
    m = there.sum(axis=0)
    in_order = np.sort(values, axis=0)  # NaN last
    columns = np.arange(values.shape[1])
    quartiles = []
    for share in (0.25, 0.75):
        place = share * (m - 1)
        low = place.astype(np.intp)
        at, after = in_order[low, columns], in_order[np.minimum(low + 1, m - 1), columns]
        quartiles.append(at + (place - low) * (after - at))
    filled = np.where(there, values, 0.0)
    mean = filled.sum(axis=0) / m
    deviation = np.sqrt(np.where(there, (filled - mean) ** 2, 0.0).sum(axis=0) / m)
    return m, np.minimum((quartiles[1] - quartiles[0]) / 1.34, deviation)
