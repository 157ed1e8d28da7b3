"""Fresh rows, which no search has seen, and the evidence that a model's decisions on them give for its limits."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway import constraints
from fairway.checks import is_finite, short
from fairway.constraints.cost import call_seconds
from fairway.errors import UsageError
from fairway.evidence import Decisions, Evidence, Exact, Quantile, Resampled
from fairway.evidence.decisions import METRICS
from fairway.rows import (
    clusters_of,
    column,
    count_rows,
    group_names,
    labels,
    numbered_groups,
    same_length,
    weights_of,
)

Metric: TypeAlias = Callable[..., Any]

_CALLS = 300  # timed for a limit on latency
_PROBABILITY = 0.5  # the threshold that is meant for probabilities


class FreshRows:
    """Rows that the search never saw, on which `study.certify` tests the limits of a model.

    `rows` are what the model predicts from, `truth` their labels (0 and 1), `groups` the group of each. Give each limit
    of the study by its metric's name, with the function that measures it: one of the five fairness metrics, `latency`,
    `model_size`, or any function of (truth, decision) or (truth, decision, groups), which is bootstrapped. Such a
    function may also return evidence, as in `lambda truth, decision: Mean(truth != decision)`, for which
    `fairway.evidence` has exact tests.

    A model decides 1 where its probability (`predict_proba`, or what `predict` or the model itself returns) is at least
    `threshold`, a number or a function of the model; labels are taken as they are. `predict=lambda model, rows: ...`
    computes probabilities or labels for any other model. `weights`, one for each row, say that rows do not count alike;
    `clusters`, one for each row, say which rows are not independent (several of one person). Your own metric gets the
    weights as `sample_weight`.

    >>> import numpy as np, fairway as fw
    >>> from fairway.constraints import demographic_parity_difference
    >>> rows = np.random.default_rng(0).normal(size=(400, 1))
    >>> truth, groups = rows[:, 0] > 0, ["a", "b"] * 200
    >>> fresh = fw.FreshRows(rows, truth, groups=groups, parity=demographic_parity_difference)
    >>> evidence = fresh(lambda rows: 1 / (1 + np.exp(-rows[:, 0])))["parity"]
    >>> evidence.rows, round(evidence.positive_share, 2)
    (400, 0.47)
    """

    def __init__(
        self,
        rows: Any,
        truth: Any,
        *,
        groups: Any = None,
        threshold: float | Callable[[Any], float] = _PROBABILITY,
        predict: Callable[[Any, Any], Any] | None = None,
        weights: Any = None,
        clusters: Any = None,
        **limits: Metric,
    ) -> None:
        if not callable(threshold) and not is_finite(threshold):
            raise UsageError(
                f"FreshRows: threshold={short(threshold)}: a finite number, or a function of the model, is expected"
            )
        if predict is not None and not callable(predict):
            raise UsageError(f"FreshRows: predict={short(predict)}: a function of a model and rows is expected")
        if not limits:
            raise UsageError(
                "FreshRows: no metric was given; name one for each limit, as in eod=equalized_odds_difference"
            )
        self.rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
        self._threshold, self._predict, self._limits = threshold, predict, limits
        self._weights, self._clusters = weights, clusters
        try:
            n = count_rows(rows)
            self._truth = column(truth, "truth")
            same_length("truth", self._truth, n)
            weights_of(weights, n)
            clusters_of(clusters, n)
            self._groups = None if groups is None else _named(groups, n)
            for name, metric in limits.items():
                self._check(name, metric)
        except UsageError as error:
            raise UsageError(f"FreshRows: {error}") from None

    def __len__(self) -> int:
        return count_rows(self.rows)

    def __call__(self, model: Any) -> dict[str, Evidence]:
        """The evidence that these rows give for each limit of a model."""
        costs = all(cost_metric(metric) is not None for metric in self._limits.values())
        decided = None if costs else self.decide(model)
        return {name: self._evidence(metric, model, decided) for name, metric in self._limits.items()}

    def decide(self, model: Any) -> NDArray[np.int64]:
        """The model's decisions, 0 or 1 for each row."""
        said = np.asarray(_predictor(model, self._predict, "predict_proba", "predict")(self.rows))
        if said.ndim == 2 and said.shape[1] in (1, 2):  # noqa: PLR2004 - of the positive class, or of both
            said = said[:, -1]
        if said.shape != (len(self),):
            raise UsageError(
                f"the model returned shape {said.shape} for {len(self)} rows: one probability or label each is expected"
            )
        return labels(self._above(model, said) if said.dtype.kind == "f" else said, "predictions")

    def _above(self, model: Any, said: NDArray[Any]) -> NDArray[Any]:
        """Labels unchanged; for anything else, whether it is at least the threshold."""
        if np.isnan(said).any():
            raise UsageError("the model returned NaN for some rows: probabilities or labels are expected")
        if np.isin(said, (-1.0, 1.0)).all() or np.isin(said, (0.0, 1.0)).all():
            return said
        if self._threshold == _PROBABILITY and not (said.min() >= 0.0 and said.max() <= 1.0):
            raise UsageError(
                f"the model returned values from {said.min():.4g} to {said.max():.4g}: probabilities or labels are "
                "expected; for scores, give FreshRows a threshold=, such as 0"
            )
        threshold = self._threshold(model) if callable(self._threshold) else self._threshold
        if not is_finite(threshold):
            raise UsageError(f"FreshRows: threshold returned {short(threshold)}: a finite number is expected")
        return said >= threshold

    def _check(self, name: str, metric: Metric) -> None:
        """Raise a `UsageError` if a limit cannot be evaluated on these rows, whatever the model."""
        if not callable(metric):
            raise UsageError(f"{name}={short(metric)}: a metric, such as equalized_odds_difference, is expected")
        if cost_metric(metric) is not None:
            return
        if self._groups is None and (metric in METRICS or _needs_groups(metric)):
            raise UsageError(f"{name} compares groups: pass groups=, the group of each row")
        if metric in METRICS:
            self._decisions(metric, labels(self._truth, "truth"))
        elif self._weights is not None and "sample_weight" not in _parameters(metric):
            raise UsageError(
                f"weights were given, but the metric of {name} takes no sample_weight: give it that argument"
            )

    def _decisions(self, metric: Metric, decided: NDArray[np.int64]) -> Decisions:
        return Decisions(metric, self._truth, decided, self._groups, weights=self._weights, clusters=self._clusters)

    def _evidence(self, metric: Metric, model: Any, decided: NDArray[np.int64] | None) -> Evidence:
        if cost_metric(metric) is not None:
            return cost_evidence(metric, model, self.rows, predict=self._predict)
        assert decided is not None
        if metric in METRICS:
            return self._decisions(metric, decided)
        by_place, by_name = [self._truth, decided], dict[str, Any]()
        if self._groups is not None and "sensitive_features" in _parameters(metric):
            by_name["sensitive_features"] = self._groups
        elif self._groups is not None and _needs_groups(metric):
            by_place.append(self._groups)
        if self._weights is not None:
            by_name["sample_weight"] = self._weights

        def measure(*columns: Any) -> Any:
            return metric(*columns[: len(by_place)], **dict(zip(by_name, columns[len(by_place) :], strict=True)))

        columns = (*by_place, *by_name.values())
        found = measure(*columns)
        return found if isinstance(found, Evidence) else Resampled(measure, *columns, clusters=self._clusters)


def _named(groups: Any, rows: int) -> NDArray[Any]:
    """The group of each row, (n,); several columns are joined into one name."""
    number, keys = numbered_groups(groups, "groups")
    same_length("groups", number, rows)
    names = np.empty(len(keys), dtype=object)  # in any other array 1 and "1" would be one group
    names[:] = group_names(keys) if any(isinstance(key, tuple) for key in keys) else keys
    return np.asarray(names[number])


def cost_metric(metric: Metric) -> Metric | None:
    """`latency` or `model_size`, if a metric is one of them, maybe with arguments fixed by `functools.partial`."""
    function = metric.func if isinstance(metric, partial) else metric
    return function if function in (constraints.latency, constraints.model_size) else None


def cost_evidence(
    metric: Metric, model: Any, rows: Any, *, predict: Callable[[Any, Any], Any] | None = None
) -> Exact | Quantile:
    """Evidence for what a model costs, by a metric that `cost_metric` knows: its size, or the seconds of single calls.

    `predict` is a function of the model and rows, for a model that is not a function and has no `predict` method.
    """
    if cost_metric(metric) is constraints.model_size:
        return Exact(float(metric(model)))
    settings, predictor = getattr(metric, "keywords", {}), _predictor(model, predict, "predict")
    batch, pin = settings.get("batch", 1), settings.get("pin")
    (times,) = call_seconds(predictor, rows, batch, blocks=1, calls=_CALLS, seconds=0.0, pin=pin)
    return Quantile(times, settings.get("quantile", 0.95))


def _predictor(model: Any, predict: Callable[[Any, Any], Any] | None, *methods: str) -> Callable[[Any], Any]:
    """The function that predicts from rows: `predict` if given, else the first of these methods, else the model."""
    if predict is not None:
        return partial(predict, model)
    if type(model).__module__.startswith("xgboost.") and type(model).__name__ == "Booster":
        matrix = importlib.import_module("xgboost").DMatrix
        return lambda rows: model.predict(matrix(rows, enable_categorical=True))
    found = next((getattr(model, name) for name in methods if hasattr(model, name)), model)
    if not callable(found):
        raise UsageError(
            f"the model is a {type(model).__name__} without predict: give FreshRows predict=lambda model, rows: ..."
        )
    made: Callable[[Any], Any] = found
    return made


def _parameters(metric: Metric) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(metric).parameters
    except (TypeError, ValueError):
        return {}


def _needs_groups(metric: Metric) -> bool:
    """Whether a metric has to be given three columns, or sensitive_features."""
    required = [each for each in _parameters(metric).values() if each.default is each.empty]
    places = [each for each in required if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(places) > 2 or any(each.name == "sensitive_features" for each in required)  # noqa: PLR2004
