"""Behavioural tests of a model, given as data, in the manner of CheckList (Ribeiro et al. 2020).

| here | CheckList | a case fails when |
| --- | --- | --- |
| MinimumFunctionality | MFT | the predicted class is not among those allowed |
| Invariance | INV | a harmless change of the input changes the class |
| Directional | DIR | a telling change of the input moves a score the wrong way |

A suite is a list of tests. Its failure rate, the mean over tests of the share of failing cases, is the robustness
constraint of ACE (section 4.2, "average failure rate").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fairway.checks import is_number, whole
from fairway.errors import UsageError


@dataclass(frozen=True)
class _Predicted:
    """What a model said of each distinct input: its class and, unless it gave labels only, all probabilities."""

    classes: list[Any]
    probabilities: list[list[float]] | None


@dataclass(frozen=True)
class MinimumFunctionality:
    """Inputs whose class is plain: `labels` is one label for all, a tuple of allowed ones, or a list with one each.

    >>> from fairway.constraints import MinimumFunctionality
    >>> MinimumFunctionality("negation", ["not bad", "not good"], [(1, 2), 0]).labels
    ((1, 2), (0,))
    """

    name: str
    inputs: Sequence[Any]
    labels: Any

    def __post_init__(self) -> None:
        _check_name(self.name)
        inputs, labels = _filled(self.inputs, f"{self.name}: inputs"), self.labels
        labels = labels.tolist() if hasattr(labels, "tolist") else labels
        if isinstance(labels, Iterable) and not isinstance(labels, str | bytes | tuple):
            labels = list(labels)
        one_each = isinstance(labels, list) or (isinstance(labels, tuple) and all(isinstance(v, tuple) for v in labels))
        if one_each and len(labels) != len(inputs):
            raise UsageError(f"{self.name}: {len(inputs)} inputs have {len(labels)} labels; as many are expected")
        each = labels if one_each else [labels] * len(inputs)
        allowed = tuple(tuple(v) if isinstance(v, tuple | list | set | frozenset) else (v,) for v in each)
        if not all(labels and None not in labels for labels in allowed):
            raise UsageError(f"{self.name}: a case has no label that it may be given")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "labels", allowed)

    def _cases(self) -> Iterable[tuple[Any, ...]]:
        return ((given,) for given in self.inputs)

    def _fails(self, cases: list[list[int]], said: _Predicted) -> list[bool]:
        if said.probabilities is not None:
            classes = range(len(said.probabilities[0]))
            for label in (label for allowed in self.labels for label in allowed):
                if label not in classes:
                    raise UsageError(
                        f"{self.name}: label {label!r} is expected, and predict gave probabilities of "
                        f"{len(classes)} classes, which are 0 to {classes[-1]}"
                    )
        texts = {isinstance(label, str) for allowed in self.labels for label in allowed}
        if texts != {isinstance(said.classes[row], str) for (row,) in cases} and len(texts) == 1:
            raise UsageError(
                f"{self.name}: labels like {self.labels[0][0]!r} are expected, and predict gave {said.classes[0]!r}"
            )
        return [said.classes[row] not in allowed for (row,), allowed in zip(cases, self.labels, strict=True)]


@dataclass(frozen=True)
class Invariance:
    """Groups of inputs that must get one class: the original first, then what it was changed to.

    A change of class is forgiven while the confidence in the original's class moves by at most the `tolerance`; with
    labels only there is no confidence, and nothing is forgiven.

    >>> from fairway.constraints import Invariance
    >>> Invariance("names", [["Anna is nice", "Li is nice"]]).groups
    (('Anna is nice', 'Li is nice'),)
    """

    name: str
    groups: Sequence[Sequence[Any]]
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        _check_groups(self)

    def _cases(self) -> Iterable[Sequence[Any]]:
        return self.groups

    def _fails(self, cases: list[list[int]], said: _Predicted) -> list[bool]:
        classes, scores = said.classes, said.probabilities
        return [
            any(
                classes[row] != classes[first]
                and (
                    scores is None or abs(scores[row][classes[first]] - scores[first][classes[first]]) > self.tolerance
                )
                for row in changed
            )
            for first, *changed in cases
        ]


@dataclass(frozen=True)
class Directional:
    """Groups whose changed inputs must not move a score against the `direction` by more than the `tolerance`.

    The score is the probability of the class `label`, by default the last one, or with "predicted" of the class that
    the original gets.

    >>> from fairway.constraints import Directional
    >>> Directional("praise", [["The food came.", "The food came. I love it."]], "up", tolerance=0.1).label
    -1
    """

    name: str
    groups: Sequence[Sequence[Any]]
    direction: Literal["up", "down"]
    tolerance: float = 0.0
    label: int | Literal["predicted"] = -1

    def __post_init__(self) -> None:
        _check_groups(self)
        if self.direction not in ("up", "down"):
            raise UsageError(f"{self.name}: direction={self.direction!r}: 'up' or 'down' is expected")
        if self.label != "predicted" and (self.label != -1 or isinstance(self.label, float)):
            whole(self.label, f"{self.name}: label", least=0)

    def _cases(self) -> Iterable[Sequence[Any]]:
        return self.groups

    def _fails(self, cases: list[list[int]], said: _Predicted) -> list[bool]:
        classes, scores = said.classes, said.probabilities
        if scores is None:
            raise UsageError(f"{self.name}: a Directional test needs class probabilities, and predict gave labels")
        if self.label != "predicted" and self.label >= len(scores[0]):
            raise UsageError(f"{self.name}: label={self.label}, and predict gave {len(scores[0])} classes")
        sign = 1 if self.direction == "up" else -1
        failed = []
        for first, *changed in cases:
            label = classes[first] if self.label == "predicted" else self.label
            failed.append(any(sign * (scores[first][label] - scores[row][label]) > self.tolerance for row in changed))
        return failed


Case: TypeAlias = MinimumFunctionality | Invariance | Directional


def failure_rate(predict: Callable[[list[Any]], Any], cases: Iterable[Case]) -> float:
    """The mean over tests of the share of their cases that fail: from 0 to 1, each test weighing the same.

    `predict` is called once, with a list of all distinct inputs. It returns labels (n,), or class probabilities (n, k)
    of the classes 0 to k - 1.

    >>> from fairway.constraints import Invariance, MinimumFunctionality, failure_rate
    >>> suite = [
    ...     MinimumFunctionality("words", ["good", "bad"], [1, 0]),
    ...     Invariance("case", [["good", "Good"], ["bad", "Bad"]]),
    ... ]
    >>> failure_rate(lambda texts: [int(text == "good") for text in texts], suite)
    0.25
    """
    shares = failures(predict, cases)
    return sum(shares.values()) / len(shares)


def failures(predict: Callable[[list[Any]], Any], cases: Iterable[Case]) -> dict[str, float]:
    """The share of failing cases of each test, by its name; `failure_rate` is their mean.

    >>> from fairway.constraints import MinimumFunctionality, failures
    >>> failures(lambda texts: [1] * len(texts), [MinimumFunctionality("words", ["good", "bad"], [1, 0])])
    {'words': 0.5}
    """
    if not callable(predict):
        raise UsageError(f"predict={predict!r}: a function of a list of inputs is expected")
    if isinstance(cases, str | Case) or not isinstance(cases, Iterable):
        raise UsageError(f"cases={cases!r}: a list of tests is expected")
    suite = list(cases)
    if not suite:
        raise UsageError("cases is empty: a suite of at least one test is expected")
    names: set[str] = set()
    for case in suite:
        if not isinstance(case, Case):
            raise UsageError(f"cases has {case!r}: MinimumFunctionality, Invariance or Directional is expected")
        if case.name in names:
            raise UsageError(f"two tests are named {case.name!r}: a name of its own for each is expected")
        names.add(case.name)
    inputs: list[Any] = []
    seen: dict[Any, int] = {}
    rows = [[[_row(given, inputs, seen) for given in group] for group in case._cases()] for case in suite]
    said = _read(predict(list(inputs)), len(inputs))
    failed = [case._fails(places, said) for case, places in zip(suite, rows, strict=True)]
    return {case.name: sum(each) / len(each) for case, each in zip(suite, failed, strict=True)}


def _row(given: Any, inputs: list[Any], seen: dict[Any, int]) -> int:
    """The place of an input among the distinct ones; what cannot be hashed is not compared."""
    try:
        row = seen.setdefault(given, len(inputs))
    except TypeError:
        row = len(inputs)
    if row == len(inputs):
        inputs.append(given)
    return row


def _read(said: Any, n: int) -> _Predicted:
    table = np.asarray(said)
    if table.ndim not in {1, 2} or len(table) != n:
        raise UsageError(
            f"predict returned the shape {table.shape} for {n} inputs: ({n},) or ({n}, classes) is expected"
        )
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        raise UsageError("predict returned NaN or infinity: labels or class probabilities are expected")
    if (
        table.dtype.kind not in "biufUO"
        or table.dtype.kind == "O"
        and not all(isinstance(value, str | int) for value in table.ravel().tolist())
    ):
        raise UsageError(
            f"predict returned {table.ravel()[:1].tolist()[0]!r}: labels or class probabilities are expected"
        )
    if table.ndim == 1:
        if table.dtype.kind == "f" and not (table == np.floor(table)).all():
            raise UsageError(f"predict returned fractions: labels, or class probabilities ({n}, classes), are expected")
        return _Predicted(table.tolist(), None)
    if table.shape[1] < 2:  # noqa: PLR2004
        raise UsageError(
            f"predict returned the shape {table.shape}: probabilities of at least two classes are expected"
        )
    return _Predicted(table.argmax(axis=1).tolist(), table.tolist())


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"name={name!r}: a text that is not empty is expected")


def _filled(values: Any, what: str) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable) or hasattr(values, "columns"):
        raise UsageError(f"{what}={repr(values)[:80]}: a list is expected")
    filled = tuple(values)
    if not filled:
        raise UsageError(f"{what} is empty: at least one case is expected")
    return filled


def _check_groups(test: Invariance | Directional) -> None:
    _check_name(test.name)
    groups = tuple(_filled(group, f"{test.name}: a group") for group in _filled(test.groups, f"{test.name}: groups"))
    alone = next((group for group in groups if len(group) == 1), None)
    if alone is not None:
        raise UsageError(
            f"{test.name}: {alone[0]!r} is alone in its group: an original and what it became are expected"
        )
    if not is_number(test.tolerance) or not test.tolerance >= 0:
        raise UsageError(f"{test.name}: tolerance={test.tolerance!r}: a number of at least 0 is expected")
    object.__setattr__(test, "groups", groups)
