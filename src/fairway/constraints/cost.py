"""What a model costs in production: seconds per prediction, and bytes."""

from __future__ import annotations

import gc
import inspect
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np

from fairway.checks import fraction, positive, whole
from fairway.constraints.rows import take
from fairway.errors import UsageError

_BLOCKS = 5
_CALLS = 30  # at least, over all blocks
_WARM_UP = 3
_LARGEST = 100_000
_SLICES = 256  # batches to cut at most, since each is a copy


def latency(model: Any, rows: Any, *, quantile: float = 0.95, batch: int | None = 1, seconds: float = 0.2) -> float:
    """The seconds that one prediction call takes, at a quantile of many calls.

    `model` has a `predict` method or is a function; `rows` is an array, a DataFrame or a list. Each call gets the next
    `batch` rows, prepared beforehand, or all rows if `batch` is None. After a warm-up, at least 30 calls are timed for
    at least `seconds`, in five blocks with the garbage collector off; the result is the median of the blocks'
    quantiles, which ignores a short load on the machine. `predict` must not return before a GPU has finished.

    >>> from fairway.constraints import latency
    >>> latency(len, ["good", "bad"], quantile=0.5, seconds=0.01) > 0
    True
    """
    fraction(quantile, "quantile", ends=(0, 1))
    positive(seconds, "seconds", what="number of seconds")
    predict = getattr(model, "predict", model)
    if not callable(predict):
        raise UsageError(f"model={model!r}: an object with a predict method, or a function of rows, is expected")
    batches = itertools.cycle(_batches(rows, batch))
    for _ in range(_WARM_UP):
        returned = predict(next(batches))
        if isinstance(returned, Iterator) or inspect.isawaitable(returned):
            raise UsageError(f"predict returned a {type(returned).__name__}, which has computed nothing yet")
    collecting = gc.isenabled()
    gc.disable()
    try:
        blocks = [_block(predict, batches, seconds / _BLOCKS) for _ in range(_BLOCKS)]
    finally:
        if collecting:
            gc.enable()
    return float(np.median([np.quantile(block, quantile) for block in blocks]))


def _block(predict: Callable[[Any], Any], batches: "itertools.cycle[Any]", seconds: float) -> list[float]:
    times: list[float] = []
    began = perf_counter()
    while len(times) < _CALLS // _BLOCKS or perf_counter() - began < seconds:
        given = next(batches)
        start = perf_counter()
        predict(given)
        times.append(perf_counter() - start)
    return times


def _batches(rows: Any, batch: int | None) -> list[Any]:
    if isinstance(rows, str) or not isinstance(rows, Sequence) and not getattr(rows, "shape", None):
        raise UsageError(f"rows is a {type(rows).__name__}: an array, a DataFrame or a list is expected")
    rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
    n = rows.shape[0] if hasattr(rows, "shape") else len(rows)
    if n == 0:
        raise UsageError("rows is empty: at least one row to predict is expected")
    if batch is None:
        return [rows]
    size = whole(batch, "batch")
    if size > max(n, _LARGEST):
        raise UsageError(f"batch={size}: there are {n} rows, and at most {_LARGEST:,} are repeated to fill a batch")
    places = [(np.arange(size) + start) % n for start in range(0, min(n, size * _SLICES), size)]
    return [take(rows, place) for place in places]


def model_size(model: Any) -> int:
    """The size of a pickled model in bytes, by cloudpickle if pickle fails; the bytes are counted, not stored.

    >>> from fairway.constraints import model_size
    >>> model_size(bytes(1000))
    1018
    """
    for pickler in (pickle.Pickler, cloudpickle.Pickler):
        sink = _Sink()
        try:
            pickler(sink, protocol=5).dump(model)
        except Exception as error:  # noqa: BLE001 - whatever a __reduce__ raises
            why = error
        else:
            return sink.bytes
    raise UsageError(f"model_size: a {type(model).__name__} cannot be pickled: {why}") from why


class _Sink:
    """A file that only counts the bytes written to it."""

    bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size
