"""Evidence for the mean of a bounded loss: an error rate, a failure rate, a clipped squared error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from fairway.checks import is_finite, short
from fairway.errors import UsageError
from fairway.evidence.evidence import Cells, Evidence, crossing
from fairway.evidence.tails import binomial
from fairway.evidence.variables import Array, Variables
from fairway.problem import Constraint
from fairway.rows import clusters_of, numbers, weights_of


class Mean(Evidence):
    """The mean of a loss between `low` and `high`, one value per row.

    0/1 losses of equal weight get the exact binomial test; others the Hoeffding-Bentkus bound, or Chernoff's if weights
    differ. Rows of the same cluster (a person, a document) may depend on each other; they count as one. Weights are
    fixed numbers, not estimates.

    >>> import fairway as fw
    >>> from fairway.evidence import Mean
    >>> wrong = Mean([0] * 95 + [1] * 5)
    >>> wrong, round(wrong.p_value(fw.AtMost("error", 0.1)), 4)
    (Mean(0.05, rows=100), 0.0576)
    >>> round(wrong.bound(fw.AtMost("error", 0.1), 0.95), 4)
    0.1023
    """

    kind = "mean"

    def __init__(
        self, values: Any, *, low: float = 0.0, high: float = 1.0, weights: Any = None, clusters: Any = None
    ) -> None:
        given = numbers(values, "values")
        if not (is_finite(low) and is_finite(high) and low < high and math.isfinite(high - low)):
            raise UsageError(f"low={short(low)}, high={short(high)}: finite numbers with low below high are expected")
        if given.min() < low or given.max() > high:
            worst = given.min() if given.min() < low else given.max()
            raise UsageError(f"values has {worst:g}: values between low={low:g} and high={high:g} are expected")
        rows = len(given)
        weight = weights_of(weights, rows)
        weight = np.full(rows, 1 / rows) if weight is None else weight / weight.sum()
        unit = (given - low) / (high - low)
        total = {"rows": rows, "mean": float(weight @ given)}
        self._keep(
            Variables.of(unit, weight, clusters_of(clusters, rows)), float(low), float(high), rows, {"all": total}
        )

    @classmethod
    def over_tests(cls, tests: Mapping[str, Any]) -> Self:
        """The mean over tests of their share of failing cases, given 1 for each case that fails and 0 for the others.

        This is what `fairway.constraints.failure_rate` returns: every test has the same weight.

        >>> from fairway.evidence import Mean
        >>> Mean.over_tests({"negation": [0, 1], "names": [0, 0, 0, 0]})
        Mean(0.25, rows=6)
        """
        if not isinstance(tests, Mapping) or not tests:
            raise UsageError(f"tests={short(tests)}: the outcomes of each test by its name are expected")
        each = {str(name): numbers(outcomes, f"tests[{name!r}]") for name, outcomes in tests.items()}
        weights = np.concatenate([np.full(len(outcomes), 1 / len(outcomes)) for outcomes in each.values()])
        made = cls(np.concatenate([*each.values()]), weights=weights)
        cells = {name: {"rows": len(outcomes), "mean": float(outcomes.mean())} for name, outcomes in each.items()}
        made._keep(made._variables, 0.0, 1.0, made.rows, cells)
        return made

    def _keep(self, variables: Variables, low: float, high: float, rows: int, cells: Cells) -> None:
        values, weights = variables
        self._even = bool(np.ptp(weights) <= 1e-12)  # noqa: PLR2004 - the weights add up to 1
        if self._even:
            weights = np.full(len(values), 1 / len(values))
        self._variables = Variables(values, weights)
        self._low, self._high, self._cells, self.rows = low, high, cells, rows
        self._counted = self._even and bool(((values == 0) | (values == 1)).all())
        mean = float(values.mean()) if self._even else self._variables.total
        self.value = low + (high - low) * mean
        self.error = (high - low) * _error(values, weights)

    def cells(self) -> Cells:
        return {name: {**counts} for name, counts in self._cells.items()}

    def _p_value(self, constraint: Constraint) -> float:
        return self._tail(constraint, self._variables.values, 1.0)

    def _least_p(self, constraint: Constraint, scale: float) -> float:
        return self._tail(constraint, np.full(len(self._variables.values), float(constraint.sign < 0)), scale)

    def _bound(self, constraint: Constraint, level: float) -> float:
        kind = type(constraint)
        ends = (self._low, self._high) if constraint.sign > 0 else (self._high, self._low)
        return crossing(lambda limit: self._p_value(kind(constraint.metric, limit)) <= level, *ends)

    def _tail(self, constraint: Constraint, values: Array, scale: float) -> float:
        limit = (constraint.threshold - self._low) / (self._high - self._low)
        if constraint.sign < 0:
            limit, values = 1 - limit, 1 - values
        if limit >= 1:
            return 0.0
        if limit <= 0:
            return 1.0
        if self._counted:
            return binomial(float(values.sum()), round(len(values) * scale), limit)
        return Variables(values, self._variables.weights).p_value(limit, scale=scale)

    def _to_json(self) -> dict[str, Any]:
        values, weights = self._variables
        return {
            "rows": self.rows,
            "low": self._low,
            "high": self._high,
            "values": values.tolist(),
            "weights": None if self._even else weights.tolist(),
            "cells": self.cells(),
        }

    def _read(self, data: Mapping[str, Any]) -> None:
        values = np.array(data["values"], float)
        weights = np.ones(len(values)) if data["weights"] is None else np.array(data["weights"], float)
        self._keep(Variables(values, weights), data["low"], data["high"], data["rows"], data["cells"])


def _error(values: Array, weights: Array) -> float:
    """The standard error of a mean whose weights sum to 1; one more row of 0 and of 1 keeps it above 0.

    For n equal 0/1 rows with k ones: sqrt(p (1 - p) / n) with p = (k + 1) / (n + 2).
    """
    rows = 1 / float(weights @ weights)  # as many rows of equal weight
    mean = (rows * float(weights @ values) + 1) / (rows + 2)
    spread = rows * float(weights @ (values - mean) ** 2) + mean**2 + (1 - mean) ** 2
    return math.sqrt(spread / (rows + 2) / rows)
