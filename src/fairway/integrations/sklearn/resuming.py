"""Checks that a stored search is continued with the same rows, folds, estimator and scorers.

Each is kept as a digest, in the notes of the study. Functions and classes count by their names: code that changed under
the same name is not noticed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from fairway.errors import UsageError
from fairway.hashing import DIGEST, hashes
from fairway.integrations.sklearn.rows import Rows
from fairway.study import Study

_ROWS, _MODEL = f"{DIGEST}the rows and folds", f"{DIGEST}the estimator and scorers"  # the notes
_FREE = ("n_jobs", "verbose", "memory")  # parameters that change no result
_DEPTH = 6  # of what is described part by part


def refuse_another_search(
    study: Study, rows: Rows, splits: Sequence[tuple[Any, Any]], estimator: Any, searched: Collection[str]
) -> None:
    """Note in a stored study what it searches by; refuse to continue it with anything else."""
    _refuse_other(
        study,
        _ROWS,
        _digest(_of_rows(rows, splits)),
        "searched by other rows or folds: give this search another name, or fit it on the same rows with a cv that "
        "splits them alike; where it is fitted on several parts of the rows, as in cross_val_score, keep it nowhere, "
        "with storage=None",
    )
    _refuse_other(
        study,
        _MODEL,
        _digest(_of_model(rows, estimator, searched)),
        "searched with another estimator, other scorers or other arguments of fit, such as sensitive_features: what it "
        "measured is not what this search would; give this search another name",
    )


def _refuse_other(study: Study, note: str, here: str, how: str) -> None:
    there = study.notes.get(note)
    if there is None:
        study.note(**{note: here})
    elif there != here:
        raise UsageError(f"the study {study.name!r} in this storage has {how}")


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _of_rows(rows: Rows, splits: Sequence[tuple[Any, Any]]) -> Iterator[bytes]:
    yield hashes(rows.data).tobytes()
    if rows.truth is not None:
        yield hashes(np.asarray(rows.truth)).tobytes()
    for split in splits:
        for part in split:
            yield np.ascontiguousarray(part).tobytes()


def _of_model(rows: Rows, estimator: Any, searched: Collection[str]) -> Iterator[bytes]:
    fixed = {name: value for name, value in estimator.get_params().items() if name not in searched}
    yield _described([estimator, fixed]).encode()
    for scoring in rows.scorings:
        yield _described([scoring.name, scoring.scorer, scoring.params]).encode()
    yield _described(rows.fit).encode()


def _described(value: Any, depth: int = _DEPTH) -> str:
    """A description of a value that is the same in every process; a value that has none counts by its type."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return repr(value)
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if not depth:
        return name
    deeper = functools.partial(_described, depth=depth - 1)
    if hasattr(value, "__array__") or hasattr(value, "toarray"):
        return f"{np.shape(value)} {_digest([hashes(value).tobytes()]) if np.ndim(value) else deeper(value.item())}"
    if isinstance(value, Mapping):
        kept = {str(key): item for key, item in value.items() if not str(key).endswith(_FREE)}
        return f"{{{', '.join(f'{key}: {deeper(kept[key])}' for key in sorted(kept))}}}"
    if isinstance(value, AbstractSet):
        return f"{name}{sorted(map(deeper, value))}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(deeper, value))}]"
    if hasattr(value, "get_params"):
        return name  # its parameters are among those of the estimator that it is a part of
    if isinstance(value, functools.partial):
        return f"{deeper(value.func)} {deeper(value.args)} {deeper(value.keywords)}"
    return f"{name} {deeper(vars(value))}" if hasattr(value, "__dict__") else name
