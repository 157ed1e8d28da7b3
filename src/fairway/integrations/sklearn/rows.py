"""The rows of a cross-validated search: those it searches by, and those it keeps back to certify on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.model_selection import PredefinedSplit, check_cv
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from fairway.checks import fraction
from fairway.errors import UsageError
from fairway.integrations.sklearn.folds import GroupScorer, Scoring
from fairway.rows import numbered_groups
from fairway.study import Study
from fairway.text import counted


@dataclass
class Rows:
    """Some of the rows that `fit` was given, with the arguments that go with them."""

    data: Any
    truth: Any
    fit: Mapping[str, Any]  # for the estimator's fit
    split: Mapping[str, Any]  # for splitting
    scorings: Sequence[Scoring]  # the objective's, then the constraints'

    def at(self, estimator: Any, places: Any, trained: Any = None) -> Rows:
        """The rows at these places; for a kernel matrix, only with the columns of the rows `trained` on."""
        data, truth = _safe_split(estimator, self.data, self.truth, places, trained)
        parts = dict[int, Any]()  # by the whole's id: what several scorers were given stays one object

        def taken(params: Mapping[str, Any]) -> dict[str, Any]:
            for name, whole in params.items():
                if id(whole) not in parts:
                    parts[id(whole)] = _check_method_params(self.data, params={name: whole}, indices=places)[name]
            return {name: parts[id(whole)] for name, whole in params.items()}

        scorings = [Scoring(each.name, each.scorer, each.role, taken(each.params)) for each in self.scorings]
        return Rows(data, truth, taken(self.fit), taken(self.split), scorings)

    @property
    def groups(self) -> list[Any]:
        """The groups that constraints compare, each once: by the name of their column, or by the array given."""
        found = dict[Any, Any]()
        for each in self.scorings[1:]:
            if isinstance(each.scorer, GroupScorer):
                given, column = each.params.get("sensitive_features"), each.scorer.column
                found[column, id(given) if column is None else None] = each.scorer.groups(self.data, given)
        return [*found.values()]


def keep_back(rows: Rows, share: float, estimator: Any, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of the rows to search by, and of a share of the rows to certify on.

    Each combination of class and group gives its share, by systematic sampling of the sorted rows. If `groups` came for
    splitting, each of those stays together, in the combination of its first row.
    """
    n, rng = _num_samples(rows.data), np.random.default_rng(seed)
    stratum = np.zeros(n, dtype=np.int64)
    columns = [numbered_groups(groups, "sensitive_features")[0] for groups in rows.groups]
    if is_classifier(estimator) and np.size(rows.truth) == n:
        columns.append(np.unique(np.ravel(rows.truth), return_inverse=True)[1])
    for column in columns:
        stratum = stratum * (int(column.max()) + 1) + column
    whole = rows.split.get("groups")
    unit = np.arange(n) if whole is None else np.unique(np.asarray(whole), return_inverse=True)[1]
    first = np.unique(unit, return_index=True)[1]
    order = np.lexsort((rng.random(len(first)), stratum[first]))
    taken = np.diff(np.floor(share * np.arange(len(first) + 1) + rng.random())) > 0
    fresh = np.isin(unit, order[taken])
    if fresh.all() or not fresh.any():
        what = counted(len(first), "sample" if whole is None else "group")
        raise UsageError(f"certify={share:g} of {what} leaves {'all' if fresh.all() else 'none'} to certify on")
    return np.flatnonzero(~fresh), np.flatnonzero(fresh)


def splits_within(places: NDArray[np.int64], cv: Any) -> Any:
    """A `cv` that lists rows by their places, translated to the rows at `places`; any other `cv` unchanged."""
    if not isinstance(cv, PredefinedSplit) and (cv is None or isinstance(cv, Integral) or hasattr(cv, "split")):
        return cv
    splits = [tuple(map(np.asarray, split)) for split in check_cv(cv).split()]
    new = np.full(1 + max(int(part.max(initial=0)) for part in (places, *sum(splits, ()))), -1)
    new[places] = np.arange(len(places))
    return [(new[train][new[train] >= 0], new[test][new[test] >= 0]) for train, test in splits]


def checked_share(certify: Any, confidence: Any, constraints: Sequence[Scoring]) -> float | None:
    """The share of rows to certify on, checked; None without a certificate."""
    if certify is None:
        return None
    if fraction(confidence, "confidence") < 0.5:  # noqa: PLR2004
        raise UsageError(f"confidence={confidence!r}: at least 0.5 is expected, such as 0.95")
    if not constraints:
        raise UsageError(f"certify={certify!r}: there is no limit to certify; give constraints")
    return fraction(certify, "certify")


def tell_searched(study: Study, rows: Rows, estimator: Any) -> bool:
    """Tell a study which rows it searches by; False for a kernel matrix, whose rows cannot be compared."""
    if get_tags(estimator).input_tags.pairwise:
        return False
    groups = rows.groups
    study.searched_by(rows.data, groups=groups[0] if len(groups) == 1 else None)
    return True
