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
from functools import cached_property, lru_cache
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
        parameters = [*space.values()]
        options = np.array([isinstance(one, Choice) and not one.ordered for one in parameters], np.bool_)
        sizes = np.array([one.size for one in parameters], np.float64)
        self.cells = np.where(options | (sizes <= _MOST_CELLS), sizes, 0).astype(np.intp)  # 0 for a real one
        self.log_cells = np.array([math.log(max(cells, 1)) for cells in self.cells.tolist()])
        self.real = np.flatnonzero(self.cells == 0)
        self.discrete = np.flatnonzero((self.cells > 0) & (self.cells <= _MOST_OPTIONS))
        self.many = np.flatnonzero(self.cells > _MOST_OPTIONS)  # choices of so many options that a table is too large
        self.unordered = np.flatnonzero(options)
        self.ordered = np.flatnonzero(~options)
        in_order = np.flatnonzero((self.cells > 0) & ~options)
        self.edges = {int(j): parameters[j].edges() for j in in_order}  # of ordered cells

    @cached_property
    def one_hot_offset(self) -> NDArray[np.intp]:
        """The first column of each discrete dimension in a one-hot row: its cells, then one for inactive."""
        return np.concatenate([[0], np.cumsum(self.cells[self.discrete] + 1)])

    def cell(self, x: Points, dimensions: NDArray[np.intp]) -> NDArray[np.intp]:
        """The cells of points (k, d) in some discrete dimensions (m,): (k, m); for NaN the number after the last."""
        cells, u = self.cells[dimensions], x[:, dimensions]
        absent = np.isnan(u)
        place = np.minimum((np.where(absent, 0.0, u) * cells).astype(np.intp), cells - 1)
        for i, j in enumerate(dimensions.tolist()):
            if j in self.edges:  # which need not be equally far from each other
                place[:, i] = np.searchsorted(self.edges[j][1:-1], u[:, i], side="right")
        return np.where(absent, cells, place)

    def one_hot(self, x: Points) -> NDArray[np.float32]:
        """One-hot rows (k, columns) that mark the cell of points (k, d) in each discrete dimension."""
        out = np.zeros((len(x), int(self.one_hot_offset[-1])), np.float32)
        out[np.arange(len(x))[:, None], self.one_hot_offset[:-1] + self.cell(x, self.discrete)] = 1.0
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
        self._tables = self._log_kernels()

    def _bandwidths(self) -> NDArray[np.float64]:
        axes, kernel = self._axes, self._kernel
        m, spread = _spread(np.concatenate([self._c, np.full((1, self._c.shape[1]), 0.5)]))  # and the prior's centre
        floor = np.where(
            axes.cells > 0, np.maximum(kernel.floor, kernel.cell / np.maximum(axes.cells, 1)), kernel.floor
        )
        return np.asarray(np.clip(kernel.bandwidth * spread * m**-0.2, floor, 0.5))

    def _log_kernels(self) -> NDArray[np.float64]:
        """The log kernels in all discrete dimensions: (columns of a one-hot row, n)."""
        axes, c = self._axes, self._c
        cells, found = axes.cell(c, axes.discrete), np.empty((int(axes.one_hot_offset[-1]), len(c)))
        sizes = axes.cells[axes.discrete]
        alike = np.where(np.isin(axes.discrete, axes.unordered), sizes, -1 - axes.discrete)  # those have one table
        for kind in np.unique(alike).tolist():
            those = np.flatnonzero(alike == kind)
            j = int(axes.discrete[those[0]])
            table = _options_table(kind, self._kernel.stay) if kind > 0 else _cells_table(axes.edges[j], self._h[j])
            rows = axes.one_hot_offset[those][:, None] + np.arange(len(table))
            found[rows] = table[:, cells[:, those]].transpose(2, 0, 1)
        return found

    def log_density(self, x: Points, one_hot: NDArray[np.float32]) -> NDArray[np.float64]:
        """The log density at points (k, d), given also as one-hot rows: (k,).

        A log kernel is a sum of entries of `_tables`, which a one-hot row selects, and of -(x - c)^2 / 2 h^2, which is
        x c / h^2 plus terms of x or c alone: one matrix product gives all k n of them, up to a constant per row.
        """
        axes, c = self._axes, self._c
        all_discrete = np.concatenate([axes.discrete, axes.many])
        each = np.where(np.isnan(x[:, all_discrete]), 0.0, axes.log_cells[all_discrete])
        prior = -np.cumsum(each, axis=1)[:, -1] if len(all_discrete) else np.zeros(len(x))  # `sum` depends on the rows
        if not len(c):
            return prior
        right = [self._tables]
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
            log += self._log_options(int(j), x, c)
        log += np.log(self._w[:-1]).astype(np.float32)
        alone = prior - constant + math.log(self._w[-1])
        highest = np.maximum(log.max(axis=1), alone)
        log -= highest[:, None].astype(np.float32)
        total = np.exp(log, out=log).sum(axis=1, dtype=np.float64) + np.exp(alone - highest)
        return np.asarray(highest + np.log(total) + constant)

    def _log_options(self, j: int, x: Points, c: Points) -> NDArray[np.float32]:
        """The log kernel of a choice of many options at points (k, d), around centres (n, d): (k, n)."""
        size, only = int(self._axes.cells[j]), np.array([j])
        own, other = math.log(self._kernel.stay), math.log((1 - self._kernel.stay) / (size - 1))
        log = np.where(self._axes.cell(x, only) == self._axes.cell(c, only).T, own, other)
        log[:, np.isnan(c[:, j])] = -math.log(size)
        log[np.isnan(x[:, j])] = 0.0
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
        d = len(axes.cells)
        component = np.searchsorted(np.cumsum(self._w), rng.random(n)).clip(max=len(c))
        u, keep = rng.random((n, d)), rng.random((n, d))
        centres = np.vstack([c, np.full((1, d), np.nan)])[component]
        drawn = np.empty((n, d))
        some, h = axes.ordered, h[axes.ordered]
        with np.errstate(invalid="ignore"):
            low, high = ndtr(-centres[:, some] / h), ndtr((1.0 - centres[:, some]) / h)
            inside = np.clip(low + u[:, some] * (high - low), _TINY, 1 - 1e-16)
            drawn[:, some] = centres[:, some] + h * ndtri(inside)
        some, size = axes.unordered, axes.cells[axes.unordered]
        own = axes.cell(centres, some)
        other = np.minimum((u[:, some] * np.maximum(size - 1, 1)).astype(int), np.maximum(size - 2, 0))
        other += other >= own
        drawn[:, some] = (np.where((keep[:, some] < self._kernel.stay) | (size == 1), own, other) + 0.5) / size
        return np.clip(np.where(np.isnan(centres), u, drawn), 0.0, 1.0)

    def nudged(self, x: Points, rng: np.random.Generator) -> Points:
        """Points (n, d) before `Space.snap`, with Gaussian noise of kernel width on their real coordinates."""
        real = self._axes.real
        moved = x.copy()
        moved[:, real] += self._h[real] * rng.normal(size=(len(x), len(real)))
        return np.clip(moved, 0.0, 1.0)


@lru_cache(256)
def _options_table(size: int, stay: float) -> NDArray[np.float64]:
    """The log kernel of a choice by the cells of x and of the centre, the last for inactive: (size + 1, size + 1)."""
    mass = np.full((size, size), (1 - stay) / max(size - 1, 1))
    np.fill_diagonal(mass, stay if size > 1 else 1.0)
    return _with_inactive(mass)


def _cells_table(edges: NDArray[np.float64], h: float) -> NDArray[np.float64]:
    """The same for ordered cells, given their edges (size + 1,)."""
    centres = (edges[:-1] + edges[1:]) / 2
    below = ndtr((edges[:, None] - centres) / h)
    return _with_inactive(np.diff(below, axis=0) / (below[-1] - below[0]))


def _with_inactive(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    size = len(mass)
    table = np.zeros((size + 1, size + 1))
    table[:size, :size] = np.log(np.maximum(mass, _TINY))
    table[:size, size] = -math.log(size)
    return table


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
