"""The error of any metric, from resampled rows: the bootstrap of Efron (1979), by rows or by clusters of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.checks import is_number, short, whole
from fairway.errors import UsageError
from fairway.measured import Measured, quantile
from fairway.rows import clusters_of, count_rows, take

MOST_RESAMPLES = 1_000_000
"""Each is a call of the metric."""

_FEWEST = 20  # resamples from which a standard deviation is worth reporting
_UNDEFINED = 0.05  # the largest share of resamples without a value


def bootstrap(
    metric: Callable[..., float],
    *columns: Any,
    resamples: int = 200,
    seed: int = 0,
    clusters: Any = None,
    **named: Any,
) -> Measured:
    """The value of `metric(*columns, **named)`, with its error: the standard deviation over resampled rows.

    Each column has one entry per row: an array, a list, a Series or a DataFrame. Named columns are resampled along with
    the others; fix any other argument beforehand with `functools.partial`. `clusters` names the cluster of each row,
    such as its person; then whole clusters are resampled.

    The bounds are percentiles of the resamples, and never on the wrong side of the value. Beyond what the resamples can
    show (0.995 for 200 of them) a bound is at least z errors from the value. A resample on which the metric is not
    finite or divides by 0 is left out; more than 5% of such are refused. It costs `resamples` calls of the metric.

    >>> import numpy as np
    >>> from fairway.constraints import bootstrap, group_gap
    >>> rng = np.random.default_rng(0)
    >>> truth, group = rng.normal(size=400), rng.choice(["a", "b"], size=400)
    >>> said = truth + rng.normal(scale=np.where(group == "a", 1.0, 1.5))
    >>> def gap(truth, said, *, sensitive_features):
    ...     return group_gap(lambda y, p: abs(y - p).mean(), truth, said, sensitive_features=sensitive_features)
    >>> found = bootstrap(gap, truth, said, sensitive_features=group, resamples=50)
    >>> round(found, 2), round(found.error, 2), round(found.upper(0.9), 2)
    (0.36, 0.07, 0.47)
    """
    if not callable(metric):
        raise UsageError(f"bootstrap: metric={short(metric)}: a function of the columns is expected")
    whole(resamples, "resamples", least=_FEWEST, most=MOST_RESAMPLES)
    whole(seed, "seed", least=0)
    given = {**{f"column {i}": values for i, values in enumerate(columns, 1)}, **named}
    n = _length(given)
    cluster = clusters_of(clusters, n)
    if cluster is not None and not cluster.any():
        raise UsageError("clusters names one cluster: at least 2 are expected")
    value = value_of(metric, columns, named)
    if math.isnan(value):
        return Measured(math.nan, math.nan)
    if math.isinf(value):
        raise UsageError(f"bootstrap: metric returned {value}: a finite number is expected")
    found = resampled(metric, columns, named, draws(n, cluster, seed=seed, resamples=resamples))
    drawn = np.sort(found[np.isfinite(found)])
    undefined = resamples - len(drawn)
    if undefined > _UNDEFINED * resamples:
        raise UsageError(
            f"bootstrap: the metric is undefined on {undefined} of {resamples} resamples, so its error is not known: "
            "more rows are needed, or fewer groups"
        )
    error = float(drawn.std(ddof=1))
    upper, lower = partial(_at_most, drawn, value, error), partial(_at_least, drawn, value, error)
    return Measured(value, error, rows=n, upper=upper, lower=lower)


def draws(rows: int, clusters: NDArray[np.int64] | None, *, seed: int, resamples: int) -> Iterator[NDArray[np.int64]]:
    """The places of each resample's rows; as many clusters as there are, whatever their sizes."""
    rng = np.random.default_rng(seed)
    if clusters is None:
        for _ in range(resamples):
            yield rng.integers(rows, size=rows)
        return
    order = np.argsort(clusters, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(clusters[order])) + 1)
    for _ in range(resamples):
        yield np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])


def resampled(
    metric: Callable[..., float],
    columns: Sequence[Any],
    named: Mapping[str, Any],
    drawn: Iterator[NDArray[np.int64]],
) -> NDArray[np.float64]:
    """The metric's value on each of the resamples drawn (resamples,); NaN where it divides by 0."""
    found = []
    for places in drawn:
        again = [_at(values, places) for values in columns]
        try:
            found.append(value_of(metric, again, {name: _at(values, places) for name, values in named.items()}))
        except ZeroDivisionError:
            found.append(math.nan)
    return np.array(found)


def value_of(metric: Callable[..., float], columns: Sequence[Any], named: Mapping[str, Any]) -> float:
    """The metric of these columns, which must be one number."""
    value = metric(*columns, **named)
    if not is_number(value):
        raise UsageError(f"metric returned {short(value)}: one number is expected")
    return float(value)


def _at_most(drawn: NDArray[np.float64], value: float, error: float, confidence: float) -> float:
    beyond = (1 - confidence) * len(drawn) < 1
    normal = value + quantile(confidence) * error if beyond else value
    return max(value, normal, float(np.quantile(drawn, confidence, method="higher")))


def _at_least(drawn: NDArray[np.float64], value: float, error: float, confidence: float) -> float:
    return -_at_most(-drawn, -value, error, confidence)


def _length(given: Mapping[str, Any]) -> int:
    """The number of rows that all columns have."""
    lengths = {}
    for name, values in given.items():
        if values is None:
            continue
        try:
            lengths[name] = count_rows(values, name)
        except UsageError as error:
            hint = "; fix other arguments with functools.partial" if name.isidentifier() else ""
            raise UsageError(f"bootstrap: {error}{hint}") from None
    if not lengths:
        raise UsageError("bootstrap: there are no columns: at least one is expected, as in bootstrap(metric, y_true)")
    if len({*lengths.values()}) > 1:
        shown = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise UsageError(f"bootstrap: the columns have different numbers of rows: {shown}")
    n = next(iter(lengths.values()))
    if n < 2:  # noqa: PLR2004
        raise UsageError(f"bootstrap: the columns have {n} rows: at least 2 are expected")
    return n


def _at(values: Any, places: NDArray[np.int64]) -> Any:
    return None if values is None else take(values.tocsr() if hasattr(values, "tocsr") else values, places)
