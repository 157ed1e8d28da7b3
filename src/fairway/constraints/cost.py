"""What a model costs in production: seconds per prediction, and bytes."""

from __future__ import annotations

import gc
import inspect
import itertools
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from fairway import crowd
from fairway.checks import fraction, number, short, whole
from fairway.errors import UsageError
from fairway.logs import logger
from fairway.measured import Measured
from fairway.measured import quantile as z_score
from fairway.rows import count_rows, take

_BLOCKS = 5
_MEDIAN_ERROR = 0.54  # of five normal values, sd(median) / E(b_4 - b_2) = 0.536 / 0.990
_CALLS = 30  # at least, over all blocks
_WARM_UP = 3
_LONGEST = 3600.0
_SECONDS = f"a positive number of seconds, at most {_LONGEST:g},"
_LARGEST = 100_000
_SLICES = 256  # batches to cut at most, since each is a copy
_said: list[str] = []  # what this process has warned of


def latency(
    model: Any,
    rows: Any,
    *,
    quantile: float = 0.95,
    batch: int | None = 1,
    seconds: float = 0.2,
    pin: int | Iterable[int] | None = None,
) -> Measured:
    """The seconds that one prediction call takes, at a quantile of many calls.

    `model` has a `predict` method or is a function; `rows` is an array, a DataFrame or a list. Each call gets the next
    `batch` rows, prepared beforehand, or all rows if `batch` is None. After a warm-up, at least 30 calls are timed for
    at least `seconds`, in five blocks with the garbage collector off; the result is the median of the blocks'
    quantiles, which ignores a short load on the machine. `predict` must not return before a GPU has finished.

    The error is that of a median of five, 0.54 (b_4 - b_2), where b_2 and b_4 are the second smallest and the second
    largest of the blocks' quantiles: one loaded block does not change it much. The bounds make no assumption about the
    times: each block gives the order statistic that bounds its quantile, and their median is the bound. If the
    blocks have too few calls for that, it is the order statistic of all calls together; if those are too few as well,
    as 58 are for the 0.95 quantile and a confidence of 0.95, the slowest call plus z errors. Give more `seconds` then.

    `pin` names one or several cores to which all threads of the process are pinned meanwhile (on Linux). If the run has
    other workers, or others use more than a quarter of all cores meanwhile, the value's `note` says so, and one warning
    is logged. Declare the constraint with `alone=True`, and `optimize` measures its best again with nothing beside it.

    >>> from fairway.constraints import latency
    >>> took = latency(len, ["good", "bad"], quantile=0.5, seconds=0.01)
    >>> 0 < took <= took.upper(0.95)
    True
    """
    fraction(quantile, "quantile", ends=(0, 1))
    number(seconds, "seconds", what=_SECONDS, within=lambda given: 0 < given <= _LONGEST)
    predict = getattr(model, "predict", model)
    if not callable(predict):
        raise UsageError(f"model={short(model)}: an object with a predict method, or a function of rows, is expected")
    watch = crowd.Watch()
    blocks = call_seconds(predict, rows, batch, blocks=_BLOCKS, calls=_CALLS, seconds=seconds, pin=pin)
    company = watch.company()
    if company and not crowd.in_run() and not _said:
        _said.append(company)
        logger.warning("a latency was measured %s: it may be longer than it is alone", company)
    found = sorted(float(np.quantile(block, quantile)) for block in blocks)
    value, error = found[_BLOCKS // 2], _MEDIAN_ERROR * (found[-2] - found[1])
    times = [np.array(block) for block in blocks]
    return Measured(
        value,
        error,
        upper=partial(_at_most, times, quantile, value, error),
        lower=partial(_at_least, times, quantile, value, error),
        note=company,
    )


def call_seconds(
    predict: Callable[[Any], Any],
    rows: Any,
    batch: int | None,
    *,
    blocks: int,
    calls: int,
    seconds: float,
    pin: int | Iterable[int] | None = None,
) -> list[list[float]]:
    """The seconds that each call took, in blocks: at least `calls` calls and `seconds` seconds, over all blocks.

    Each call gets the next `batch` rows, prepared beforehand, or all rows if `batch` is None. A few calls warm up, and
    the garbage collector is off. With `pin`, all threads of the process are pinned to those cores.
    """
    cores, batches = crowd.checked_cores(pin), itertools.cycle(_batches(rows, batch))
    with crowd.pinned(cores):
        return _timed(predict, batches, blocks=blocks, calls=calls, seconds=seconds)


def _timed(
    predict: Callable[[Any], Any], batches: "itertools.cycle[Any]", *, blocks: int, calls: int, seconds: float
) -> list[list[float]]:
    for _ in range(_WARM_UP):
        returned = predict(next(batches))
        if isinstance(returned, Iterator) or inspect.isawaitable(returned):
            raise UsageError(f"predict returned a {type(returned).__name__}, which has computed nothing yet")
    collecting = gc.isenabled()
    gc.disable()
    try:
        return [_block(predict, batches, calls // blocks, seconds / blocks) for _ in range(blocks)]
    finally:
        if collecting:
            gc.enable()


def _at_most(times: list[NDArray[np.float64]], share: float, value: float, error: float, confidence: float) -> float:
    """A bound of the blocks' median quantile, from the order statistics of each.

    The k-th smallest of n calls is at least the quantile if at most k - 1 calls are below it, and Bin(n, share) calls
    are. The median of five bounds holds if three of them do: each is taken at the confidence r for which
    P(Bin(5, r) >= 3) = confidence.
    """
    from scipy.special import betaincinv  # noqa: PLC0415 - loads slowly

    middle = _BLOCKS // 2 + 1
    each = float(betaincinv(middle, middle, confidence))
    bound = float(np.median([_order_statistic(block, share, each) for block in times]))
    if bound == math.inf:
        every = np.concatenate(times)
        longest = sorted(times, key=len)[-middle:]  # whose bounds are the last to be infinite
        alone = float(max(block.max() for block in longest))  # so that more confidence never lowers the bound
        bound = max(alone, _order_statistic(every, share, confidence))
        if bound == math.inf:
            bound = float(every.max()) + max(z_score(confidence), 0.0) * error
    return max(value, bound)


def _order_statistic(times: NDArray[np.float64], share: float, confidence: float) -> float:
    """The smallest of the times that is at least their quantile with this confidence; infinite if none is."""
    from scipy.special import bdtr  # noqa: PLC0415

    n = len(times)
    k = int(np.searchsorted(bdtr(np.arange(n), n, share), confidence))
    return float(np.partition(times, k)[k]) if k < n else math.inf


def _at_least(times: list[NDArray[np.float64]], share: float, value: float, error: float, confidence: float) -> float:
    return -_at_most([-block for block in times], 1 - share, -value, error, confidence)


def _block(predict: Callable[[Any], Any], batches: "itertools.cycle[Any]", calls: int, seconds: float) -> list[float]:
    times: list[float] = []
    began = perf_counter()
    while len(times) < calls or perf_counter() - began < seconds:
        given = next(batches)
        start = perf_counter()
        predict(given)
        times.append(perf_counter() - start)
    return times


def _batches(rows: Any, batch: int | None) -> list[Any]:
    n = count_rows(rows)
    rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
    if batch is None:
        return [rows]
    size = whole(batch, "batch")
    if size > max(n, _LARGEST):
        raise UsageError(f"batch={size}: there are {n} rows, and at most {_LARGEST:,} are repeated to fill a batch")
    places = [(np.arange(size) + start) % n for start in range(0, min(n, size * _SLICES), size)]
    return [take(rows, place) for place in places]


def model_size(model: Any) -> Measured:
    """The size of a pickled model in bytes, by cloudpickle if pickle fails; the bytes are counted, not stored.

    It is known exactly: its error is 0.

    >>> from fairway.constraints import model_size
    >>> model_size(bytes(1000))
    Measured(1018, error=0)
    """
    for pickler in (pickle.Pickler, cloudpickle.Pickler):
        sink = _Sink()
        try:
            pickler(sink, protocol=5).dump(model)
        except Exception as error:  # noqa: BLE001 - whatever a __reduce__ raises
            why = error
        else:
            return Measured(sink.bytes, 0.0)
    raise UsageError(f"model_size: a {type(model).__name__} cannot be pickled: {why}") from why


class _Sink:
    """A file that only counts the bytes written to it."""

    bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size
