"""`cv_results_`: what a search's study holds, in scikit-learn's columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairway import feasibility
from fairway.study import Study


def results_of(study: Study, folds: int) -> dict[str, Any]:
    """A column an array, a row a configuration in the order tried; NaN for folds that were not run, or not paid for.

    Beside scikit-learn's columns: `split0_test_<limit>` and `mean_test_<limit>`, `n_folds`, `status`, `reason` and
    `feasible` (1 within all limits, 0 not, NaN unknown). `rank_test_score` ranks by score what is within the limits,
    then the others.
    """
    records = study.trials
    columns: dict[str, Any] = {}
    for role, seconds in (("fit", "fit_seconds"), ("score", "score_seconds")):
        spent = [record.notes.get(seconds, []) for record in records]
        columns[f"mean_{role}_time"] = np.array([np.mean(times) if times else np.nan for times in spent])
        columns[f"std_{role}_time"] = np.array([np.std(times) if times else np.nan for times in spent])
    for name in study.space:
        given = [record.params.get(name) for record in records]
        absent = [name not in record.params for record in records]
        filled = np.empty(len(records), dtype=object)
        filled[:] = given
        columns[f"param_{name}"] = np.ma.MaskedArray(filled, mask=absent)
    columns["params"] = [dict(record.params) for record in records]
    limits = study.problem.metrics[1:]
    _add_scores(columns, "score", [record.notes.get("scores", []) for record in records], folds)
    for limit in limits:
        _add_scores(columns, limit, [record.notes.get("limits", {}).get(limit, []) for record in records], folds)
    columns["n_folds"] = np.isfinite([columns[f"split{k}_test_score"] for k in range(folds)]).sum(axis=0)
    columns["status"] = np.array([record.status for record in records], dtype=object)
    columns["reason"] = np.array([record.reason for record in records], dtype=object)
    columns["feasible"] = np.array(
        [np.nan if record.feasible is None else float(record.feasible) for record in records]
    )
    columns["rank_test_score"] = _ranks(study)
    return columns


def _add_scores(columns: dict[str, Any], name: str, rows: list[list[float | None]], folds: int) -> None:
    table = np.array([[*row, *[None] * (folds - len(row))] for row in rows], dtype=float).reshape(len(rows), folds)
    for k in range(folds):
        columns[f"split{k}_test_{name}"] = table[:, k]
    known = np.isfinite(table)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0.0).sum(axis=1) / count
        spread = np.sqrt((np.where(known, table - mean[:, None], 0.0) ** 2).sum(axis=1) / count)
    columns[f"mean_test_{name}"], columns[f"std_test_{name}"] = mean, spread


def _ranks(study: Study) -> Any:
    """The place of each configuration, by number; running ones, if any, are last."""
    history = study.history
    order = feasibility.order(history.loss, np.where(history.partial, np.nan, history.violation))
    ranks = np.full(len(study.trials), len(study.trials), dtype=np.int32)
    ranks[history.number[order]] = np.arange(1, len(order) + 1)
    return ranks
