"""One check of the regret bound, milliseconds of CPU, against Optuna's RegretBoundEvaluator on the same trials."""

from __future__ import annotations

from functools import partial

import fairway as fw
from bench.speed.samplers import compare, fill_optuna, fill_ours, make_rows


def main() -> None:
    from optuna.samplers import RandomSampler  # noqa: PLC0415 - the peer
    from optuna.terminator import RegretBoundEvaluator  # noqa: PLC0415

    print("one check of the regret bound, 8 mixed dimensions, CPU")
    for n, bar in ((50, 1.0), (100, 1.0), (200, 1.0), (500, 2.0), (1000, 2.0)):
        rows = make_rows(n, 0)
        study, _ = fill_optuna(rows, RandomSampler(seed=0))
        ours = partial(_ours, fill_ours(rows, 0))
        theirs = partial(_theirs, RegretBoundEvaluator(seed=0), study)
        compare(f"ours, Optuna's, {n:5,} trials", ours, theirs, bar)


def _ours(study: fw.Study, k: int) -> object:
    del k
    return fw.RegretBound(0.01).check(study.history)


def _theirs(evaluator: object, study: object, k: int) -> object:
    del k
    return evaluator.evaluate(study.get_trials(), study.direction)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
