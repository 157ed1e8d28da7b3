"""Scorers for constraints: how a metric of groups gets them, from a column or from beside the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from fairway.errors import UsageError

Scorer = Callable[..., float]


@dataclass
class Scoring:
    """A scorer, the name of its metric, its role in metadata routing, and its arguments beside the data."""

    name: str
    scorer: Scorer
    role: str
    params: Mapping[str, Any] = field(default_factory=dict)


def group_scorer(metric: Callable[..., float], column: str | int | None = None) -> GroupScorer:
    """A scorer from a metric of groups, metric(truth, predicted, sensitive_features=), as in `fairway.constraints`.

    `column` is the name or the position of the column that holds the groups. Without it, pass them beside the data:
    `search.fit(X, y, sensitive_features=groups)`.

    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from fairway.constraints import demographic_parity_difference
    >>> data, labels = np.array([[0], [0], [1], [1]]), np.array([0, 1, 0, 1])
    >>> scorer = group_scorer(demographic_parity_difference, column=0)
    >>> scorer(DummyClassifier().fit(data, labels), data, labels)
    0.0
    """
    return GroupScorer(metric, column)


@dataclass(frozen=True)
class GroupScorer:
    """What `group_scorer` makes."""

    metric: Callable[..., float]
    column: str | int | None = None

    def __call__(self, estimator: Any, data: Any, truth: Any, *, sensitive_features: Any = None) -> float:
        """The metric of an estimator's predictions."""
        if self.column is not None or sensitive_features is None:
            sensitive_features = self._groups(data)
        return float(self.metric(truth, estimator.predict(data), sensitive_features=sensitive_features))

    def _groups(self, data: Any) -> Any:
        name = getattr(self.metric, "__name__", "the metric")
        if self.column is None:
            raise UsageError(
                f"{name} needs the groups: group_scorer({name}, column=...), or fit(X, y, sensitive_features=groups)"
            )
        try:
            if hasattr(data, "iloc"):
                return data[self.column] if self.column in data.columns else data.iloc[:, self.column]
            table = data.toarray() if hasattr(data, "toarray") else np.asarray(data)
            return table[:, self.column]  # type: ignore[index]
        except (IndexError, KeyError, TypeError, ValueError):
            raise UsageError(f"{name}: the data has no column {self.column!r}") from None

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn's metadata routing must pass."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=self.column is None)
        return request


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name, and uses it."""
    if isinstance(function, GroupScorer) and function.column is not None:
        return False
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
