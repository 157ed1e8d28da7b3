"""What a fairness limit costs: our metrics beside Fairlearn's, on the same rows in one run.

python -m bench.speed.fairness
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np

from fairway import constraints

NAMES = ("equalized_odds_difference", "demographic_parity_difference", "equalized_odds_ratio")


def seconds(measure: Callable[[], float], calls: int) -> float:
    """The median of so many calls."""
    times = []
    for _ in range(calls):
        began = time.process_time()
        measure()
        times.append(time.process_time() - began)
    return float(np.median(times))


def main() -> None:
    theirs, rng = import_module("fairlearn.metrics"), np.random.default_rng(0)
    print(f"{'metric':32} {'rows':>7} {'fairway ms':>11} {'Fairlearn ms':>13} {'ratio':>7}")
    for rows in (3_000, 30_000):
        truth, said, group = rng.integers(0, 2, (3, rows))
        for name in NAMES:
            our, their = (
                partial(getattr(home, name), truth, said, sensitive_features=group) for home in (constraints, theirs)
            )
            assert abs(our() - their()) < 1e-12
            mine, other = 1000 * seconds(our, 50), 1000 * seconds(their, 9)
            print(f"{name:32} {rows:>7,} {mine:>11.2f} {other:>13.1f} {f'x{other / mine:.0f}':>7}")


if __name__ == "__main__":
    main()
