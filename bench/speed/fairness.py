"""What a fairness limit costs: our metrics beside Fairlearn's, and what their errors and bounds add.

"before" is the value alone as it was computed before the metrics had errors; "value alone" computes the same rates from
rows read as they are read now. The bar: a value with its error costs at most twice the value alone.

python -m bench.speed.fairness
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import Measured, constraints
from fairway.rows import column, grouped, labels

NAMES = ("equalized_odds_difference", "demographic_parity_difference", "equalized_odds_ratio")


def milliseconds(calls: int, *measures: Callable[[], float]) -> list[float]:
    """The median of so many calls of each, taken in turns so that a busy moment hits all of them."""
    times = np.empty((calls, len(measures)))
    for turn in range(calls):
        for i, measure in enumerate(measures):
            began = time.process_time()
            measure()
            times[turn, i] = time.process_time() - began
    return [float(each) for each in 1000 * np.median(times, axis=0)]


def labels_before(values: Any, name: str) -> NDArray[np.int64]:
    given = column(values, name)
    assert set(given.tolist()) <= {0, 1}
    return np.asarray(given == 1, dtype=np.int64)


def groups_before(values: Any) -> NDArray[np.int64]:
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in column(values, "groups").tolist()], dtype=np.int64)


def value(name: str, truth: NDArray[Any], said: NDArray[Any], group: NDArray[Any], *, before: bool) -> float:
    """A metric without its error, from the rates alone."""
    if before:
        y, p, number = labels_before(truth, "y_true"), labels_before(said, "y_pred"), groups_before(group)
    else:
        y, p = labels(truth, "y_true"), labels(said, "y_pred")
        number = grouped(y, p, group, None).number
    every = np.ones(len(number))
    counted = [every] if name.startswith("demographic") else [every * (y == label) for label in (1, 0)]
    rates = [np.bincount(number, rows * p) / np.bincount(number, rows) for rows in counted]
    if name.endswith("ratio"):
        return min(float(each.min()) / float(each.max()) for each in rates)
    return max(float(each.max() - each.min()) for each in rates)


def bound(measured: Measured) -> float:
    return measured.upper(0.95)


def beside_fairlearn(rows: int, table: tuple[NDArray[Any], ...]) -> None:
    theirs, (truth, said, group) = import_module("fairlearn.metrics"), table
    for name in NAMES:
        our, their = (
            partial(getattr(home, name), truth, said, sensitive_features=group) for home in (constraints, theirs)
        )
        assert abs(our() - their()) < 1e-12
        (mine,), (other,) = milliseconds(50, our), milliseconds(9, their)
        print(f"{name:32} {rows:>7,} {mine:>11.2f} {other:>13.1f} {f'x{other / mine:.0f}':>7}")


def beside_the_value_alone(rows: int, groups: str, table: tuple[NDArray[Any], ...]) -> None:
    truth, said, group = table
    for name in NAMES:
        our = partial(getattr(constraints, name), truth, said, sensitive_features=group)
        before, alone = (partial(value, name, *table, before=each) for each in (True, False))
        assert our() == before() == alone()
        past, now, mine, bounded = milliseconds(200, before, alone, our, partial(bound, our()))
        print(
            f"{name:32} {rows:>7,} {groups:>8} {past:>10.3f} {now:>11.3f} {mine:>11.3f} "
            f"{f'x{mine / past:.2f}':>9} {f'x{mine / now:.2f}':>8} {bounded:>9.3f}"
        )


def main() -> None:
    rng = np.random.default_rng(0)
    tables = {rows: tuple(rng.integers(0, 2, (3, rows))) for rows in (3_000, 30_000)}
    print(f"{'metric':32} {'rows':>7} {'fairway ms':>11} {'Fairlearn ms':>13} {'ratio':>7}")
    for rows, table in tables.items():
        beside_fairlearn(rows, table)
    print(
        f"\n{'metric':32} {'rows':>7} {'groups':>8} {'before ms':>10} {'value alone':>11} {'with error':>11} "
        f"{'to before':>9} {'to alone':>8} {'bound ms':>9}"
    )
    for rows, (truth, said, group) in tables.items():
        named = np.array(["women", "men"])[group]
        for groups, given in (("numbers", group), ("strings", named), ("objects", named.astype(object))):
            beside_the_value_alone(rows, groups, (truth, said, given))


if __name__ == "__main__":
    main()
