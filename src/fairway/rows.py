"""Checks what users pass for each row: labels, groups, weights and clusters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.checks import is_number, short
from fairway.errors import UsageError

_FEW = 16  # groups that are numbered one after the other


class Groups(NamedTuple):
    """The group of each row."""

    number: NDArray[np.int64]  # (n,), into names
    names: list[Hashable]
    weights: NDArray[np.float64] | None  # (n,)


def column(values: Any, name: str) -> NDArray[Any]:
    """One value per row, (n,)."""
    given = array(values, name)
    if given.ndim == 2 and given.shape[1] == 1:  # noqa: PLR2004
        given = given[:, 0]
    if given.ndim != 1:
        raise UsageError(f"{name} has shape {given.shape}: one value per row is expected")
    return given


def array(values: Any, name: str) -> NDArray[Any]:
    """An array of the values as they are: NaN in a list of strings stays a number."""
    if isinstance(values, np.ma.MaskedArray):
        raise UsageError(f"{name} is masked: remove the masked rows")
    return np.asarray(values) if hasattr(values, "__array__") else np.array(values, dtype=object)


def labels(values: Any, name: str) -> NDArray[np.int64]:
    """1 where a label is 1, and 0 where it is 0 or -1; Fairlearn accepts no other labels."""
    given = column(values, name)
    if given.dtype.kind in "biuf":
        ones = np.asarray(given == 1)
        if (ones | (given == 0)).all() or (ones | (given == -1)).all():
            return np.asarray(ones, dtype=np.int64)
    try:
        seen = set(given.tolist())
    except TypeError:  # what cannot be hashed
        raise UsageError(f"{name}={short(values)}: 0 and 1 are expected") from None
    if seen <= {0, 1} or seen <= {-1, 1}:
        return np.asarray(given == 1, dtype=np.int64)
    if all(is_number(value) and 0 <= value <= 1 for value in seen):
        raise UsageError(f"{name} has values between 0 and 1: labels are expected, as in probabilities >= 0.5")
    if any(map(missing, seen)):
        raise UsageError(f"{name} has missing values: 0 and 1 are expected")
    some = sorted(map(short, seen))
    shown = ", ".join(some[:3]) + (", ..." if len(some) > 3 else "")  # noqa: PLR2004
    raise UsageError(f"{name} has the labels {shown}: 0 and 1 are expected, as in {name} == {some[-1]}")


def grouped(truth: NDArray[Any], predicted: NDArray[Any], sensitive_features: Any, sample_weight: Any) -> Groups:
    """The group and the weight of each row, after checking that all lengths agree."""
    number, keys = numbered_groups(sensitive_features, "sensitive_features")
    try:
        weights = None if sample_weight is None else column(sample_weight, "sample_weight").astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"sample_weight={short(sample_weight)}: a number for each row is expected") from None
    for name, rows in (("y_pred", predicted), ("sensitive_features", number), ("sample_weight", weights)):
        if rows is not None and len(rows) != len(truth):
            raise UsageError(f"{name} has {len(rows)} rows and y_true has {len(truth)}: equal lengths are expected")
    if weights is not None and not (np.isfinite(weights) & (weights >= 0)).all():
        raise UsageError("sample_weight has negative or non-finite values: numbers of at least 0 are expected")
    return Groups(number, keys, weights)


def numbered_groups(groups: Any, name: str) -> tuple[NDArray[np.int64], list[Hashable]]:
    """The number of each row's group (n,), and the groups' keys in the order in which they first appear.

    Several columns may come as a 2-D array or as a dict by name; a key is then a tuple. Errors call the argument
    `name`.
    """
    if groups is None:
        raise UsageError(f"{name}=None: the group of each row is expected")
    try:
        number, keys = _numbered(_keys(groups, name))
    except TypeError:  # what cannot be hashed
        raise UsageError(f"{name}={short(groups)}: a name or a number for each row is expected") from None
    if any(missing(part) for key in keys for part in (key if isinstance(key, tuple) else (key,))):
        raise UsageError(f"{name} has missing values: give these rows a group of their own, or remove them")
    return number, keys


def group_names(keys: Sequence[Hashable]) -> tuple[str, ...]:
    """The names of groups; several columns are joined, and names that would be equal are told apart."""
    texts = [" & ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in keys]
    return tuple(texts if len({*texts}) == len(texts) else map(repr, keys))


def numbers(values: Any, name: str) -> NDArray[np.float64]:
    """A finite number for each row, (n,)."""
    try:
        given = column(values, name).astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{name}={short(values)}: a number for each row is expected") from None
    if not len(given):
        raise UsageError(f"{name} is empty: at least one row is expected")
    if not np.isfinite(given).all():
        raise UsageError(f"{name} has missing or infinite values: remove these rows, or give them a value")
    return given


def weights_of(values: Any, rows: int) -> NDArray[np.float64] | None:
    """The weight of each row, (n,); None if all weigh the same."""
    if values is None:
        return None
    given = numbers(values, "weights")
    same_length("weights", given, rows)
    if (given < 0).any() or not 0 < given.sum() < np.inf:
        raise UsageError(
            "weights has negative values, only zeros, or no finite sum: numbers of at least 0 are expected"
        )
    return None if (given == given[0]).all() else given


def clusters_of(values: Any, rows: int) -> NDArray[np.int64] | None:
    """The number of each row's cluster, (n,); None if each row is its own cluster."""
    if values is None:
        return None
    try:
        number, keys = _numbered(column(values, "clusters").tolist())
    except TypeError:  # what cannot be hashed
        raise UsageError(f"clusters={short(values)}: a name or a number for each row is expected") from None
    same_length("clusters", number, rows)
    if any(map(missing, keys)):
        raise UsageError("clusters has missing values: give each such row a cluster of its own, or remove it")
    return None if len(keys) == rows else number


def same_length(name: str, values: Any, rows: int) -> None:
    """Raise a `UsageError` unless there is a value for each row."""
    if len(values) != rows:
        raise UsageError(f"{name} has {len(values)} rows where {rows} are expected: one for each row")


def count_rows(rows: Any, name: str = "rows") -> int:
    """The number of rows, at least one."""
    if isinstance(rows, str | bytes) or not (getattr(rows, "shape", None) or isinstance(rows, Sequence)):
        raise UsageError(f"{name} is a {type(rows).__name__}: an array, a DataFrame or a list is expected")
    n = int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
    if not n:
        raise UsageError(f"{name} is empty: at least one row is expected")
    return n


def take(rows: Any, places: NDArray[np.int64]) -> Any:
    """The rows at these places, of an array, a sparse matrix, a Series, a DataFrame or a list."""
    if hasattr(rows, "shape"):
        return getattr(rows, "iloc", rows)[places]
    return [rows[place] for place in places]


def _numbered(keys: NDArray[Any] | list[Any]) -> tuple[NDArray[np.int64], list[Hashable]]:
    """The number of each row's key (n,) and the distinct keys, in the order in which they first appear."""
    if isinstance(keys, np.ndarray):
        number, left, names = np.zeros(len(keys), dtype=np.int64), np.ones(len(keys), dtype=bool), list[Hashable]()
        while len(names) < _FEW and left.any():
            key = keys[left.argmax()]
            same = keys == key
            np.copyto(number, len(names), where=same)
            left &= ~same
            names.append(key.item())
        if not left.any():
            return number, names
        keys = keys.tolist()
    found = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.fromiter(map(found.__getitem__, keys), np.int64, len(keys)), [*found]


def missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NaT or NA, which cannot be compared."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    unlike_itself = value != value  # noqa: PLR0124
    return isinstance(unlike_itself, bool | np.bool_) and bool(unlike_itself)


def _keys(groups: Any, name: str) -> NDArray[Any] | list[Any]:
    """The key of each row's group; several columns may come as a 2-D array, or by name.

    Whole numbers, booleans and strings stay in their array, where comparing them is fast.
    """
    if isinstance(groups, Mapping):
        columns = [column(each, f"{name}[{of!r}]") for of, each in groups.items()]
        if len({len(each) for each in columns}) != 1:
            raise UsageError(f"{name} has columns of different lengths, or none")
        return list(zip(*(each.tolist() for each in columns), strict=True))
    table = array(groups, name)
    if table.ndim == 2:  # noqa: PLR2004
        return [tuple(row) for row in table.tolist()]
    keys = column(table, name)
    return keys if keys.dtype.kind in "biuU" else list(keys.tolist())
