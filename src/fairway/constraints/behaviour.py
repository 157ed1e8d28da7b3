"""Behavioural tests of a model, given as data, in the style of CheckList (Ribeiro et al., 2020).

| here | CheckList | a case fails when |
| --- | --- | --- |
| MinimumFunctionality | MFT | the predicted class is not among those allowed |
| Invariance | INV | a change of the input that should not matter changes the class |
| Directional | DIR | a change of the input that should matter moves a score the wrong way |

A suite is a list of tests. Its failure rate, the mean over tests of the share of failing cases, is the robustness
constraint of ACE (section 4.2, "average failure rate").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fairway.checks import at_least_zero, one_of, short, whole
from fairway.constraints.gaps import smoothed
from fairway.errors import UsageError
from fairway.measured import Measured


class _Predicted(NamedTuple):
    """The predicted class of each distinct input and, unless the model returned labels, all class probabilities."""

    classes: list[Any]
    probabilities: list[list[float]] | None


@dataclass(frozen=True)
class MinimumFunctionality:
    """Inputs whose class is known: `labels` is one label for all, a tuple of allowed labels, or a list with one each.

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
            raise UsageError(f"{self.name}: {len(inputs)} inputs have {len(labels)} labels; one for each is expected")
        each = labels if one_each else [labels] * len(inputs)
        allowed = tuple(tuple(v) if isinstance(v, tuple | list | set | frozenset) else (v,) for v in each)
        if not all(labels and None not in labels for labels in allowed):
            raise UsageError(f"{self.name}: a case has no allowed label; at least one for each is expected")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "labels", allowed)


@dataclass(frozen=True)
class Invariance:
    """Groups of inputs that must all get the same class: an original, then its variants.

    A change of class is allowed if the probability of the original's class moves by at most `tolerance`; for a model
    that returns only labels, no change is allowed.

    >>> from fairway.constraints import Invariance
    >>> Invariance("names", [["Anna is nice", "Li is nice"]]).groups
    (('Anna is nice', 'Li is nice'),)
    """

    name: str
    groups: Sequence[Sequence[Any]]
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        _check_groups(self)


@dataclass(frozen=True)
class Directional:
    """Groups whose changed inputs must not move a score against `direction` by more than `tolerance`.

    The score is the probability of the class `label`, by default the last class; "predicted" is the class predicted for
    the original.

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
        one_of(self.direction, f"{self.name}: direction", options=("up", "down"))
        if not (isinstance(self.label, str | Integral) and self.label in ("predicted", -1)):
            whole(self.label, f"{self.name}: label", least=0)


Case: TypeAlias = MinimumFunctionality | Invariance | Directional


def failure_rate(predict: Callable[[list[Any]], Any], cases: Iterable[Case]) -> Measured:
    """The mean over tests of their share of failing cases, from 0 to 1; every test has the same weight.

    `predict` is called once, with a list of all distinct inputs. It returns labels (n,) or probabilities (n, k) of the
    classes 0 to k - 1.

    The error treats the cases of a test as a sample of all the cases that could have been written for it: with T tests
    of n_t cases and the smoothed shares s_t = (failures + 1) / (n_t + 2), it is sqrt(sum of s_t (1 - s_t) / n_t) / T.

    >>> from fairway.constraints import Invariance, MinimumFunctionality, failure_rate
    >>> suite = [
    ...     MinimumFunctionality("words", ["good", "bad"], [1, 0]),
    ...     Invariance("case", [["good", "Good"], ["bad", "Bad"]]),
    ... ]
    >>> failure_rate(lambda texts: [int(text == "good") for text in texts], suite)
    Measured(0.25, error=0.234)
    """
    failed = failed_cases(predict, cases)
    shares, sizes = _shares(failed), np.array([len(each) for each in failed.values()], dtype=float)
    smooth = smoothed(np.array([*shares.values()]), sizes)
    error = float(np.sqrt((smooth * (1 - smooth) / sizes).sum())) / len(failed)
    return Measured(sum(shares.values()) / len(shares), error, rows=int(sizes.sum()))


def failures(predict: Callable[[list[Any]], Any], cases: Iterable[Case]) -> dict[str, float]:
    """Each test's share of failing cases, by name; `failure_rate` is their mean.

    >>> from fairway.constraints import MinimumFunctionality, failures
    >>> failures(lambda texts: [1] * len(texts), [MinimumFunctionality("words", ["good", "bad"], [1, 0])])
    {'words': 0.5}
    """
    return _shares(failed_cases(predict, cases))


def failed_cases(predict: Callable[[list[Any]], Any], cases: Iterable[Case]) -> dict[str, list[bool]]:
    """Whether each case of each test fails, by the test's name, in the order of its cases; `failures` is their mean.

    It shows which cases to look at, and gives the 0/1 rows that a statement about unseen cases is made from.

    >>> from fairway.constraints import MinimumFunctionality, failed_cases
    >>> failed_cases(lambda texts: [1] * len(texts), [MinimumFunctionality("words", ["good", "bad"], [1, 0])])
    {'words': [False, True]}
    """
    if not callable(predict):
        raise UsageError(f"predict={short(predict)}: a function of a list of inputs is expected")
    if isinstance(cases, str | Case) or not isinstance(cases, Iterable):
        raise UsageError(f"cases={short(cases)}: a list of tests is expected")
    suite = _listed(cases, "cases")
    if not suite:
        raise UsageError("cases is empty: a suite of at least one test is expected")
    names: set[str] = set()
    for case in suite:
        if not isinstance(case, Case):
            raise UsageError(f"cases has {short(case)}: MinimumFunctionality, Invariance or Directional is expected")
        if case.name in names:
            raise UsageError(f"two tests are named {case.name!r}: a different name for each is expected")
        names.add(case.name)
    inputs: list[Any] = []
    seen: dict[Any, int] = {}
    rows = []
    for case in suite:
        groups = [(given,) for given in case.inputs] if isinstance(case, MinimumFunctionality) else case.groups
        rows.append([[_row(given, inputs, seen) for given in group] for group in groups])
    predicted = _read(predict(list(inputs)), len(inputs))
    return {case.name: _failed(case, places, predicted) for case, places in zip(suite, rows, strict=True)}


def _shares(failed: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    return {name: sum(each) / len(each) for name, each in failed.items()}


def _failed(case: Case, groups: list[list[int]], predicted: _Predicted) -> list[bool]:
    """Whether each group of inputs, given by their indices, fails the test."""
    if isinstance(case, Invariance):
        return _fails_invariance(case, groups, predicted)
    if isinstance(case, Directional):
        return _fails_direction(case, groups, predicted)
    labels = [label for allowed in case.labels for label in allowed]
    if predicted.probabilities is not None:
        classes = range(len(predicted.probabilities[0]))
        unknown = [label for label in labels if label not in classes]
        if unknown:
            raise UsageError(
                f"{case.name}: label {unknown[0]!r} is expected, but predict returned probabilities of "
                f"{len(classes)} classes, 0 to {classes[-1]}"
            )
    texts = {isinstance(label, str) for label in labels}
    if texts != {isinstance(predicted.classes[row], str) for (row,) in groups} and len(texts) == 1:
        raise UsageError(
            f"{case.name}: labels like {case.labels[0][0]!r} are expected, but predict returned "
            f"{predicted.classes[0]!r}"
        )
    return [predicted.classes[row] not in allowed for (row,), allowed in zip(groups, case.labels, strict=True)]


def _fails_invariance(case: Invariance, groups: list[list[int]], predicted: _Predicted) -> list[bool]:
    classes, scores = predicted.classes, predicted.probabilities

    def fails(first: int, row: int) -> bool:
        label = classes[first]
        return classes[row] != label and (
            scores is None or abs(scores[row][label] - scores[first][label]) > case.tolerance
        )

    return [any(fails(first, row) for row in changed) for first, *changed in groups]


def _fails_direction(case: Directional, groups: list[list[int]], predicted: _Predicted) -> list[bool]:
    classes, scores = predicted.classes, predicted.probabilities
    if scores is None:
        raise UsageError(f"{case.name}: a Directional test needs class probabilities, but predict returned labels")
    if case.label != "predicted" and case.label >= len(scores[0]):
        raise UsageError(f"{case.name}: label={case.label}, but predict returned {len(scores[0])} classes")
    sign = 1 if case.direction == "up" else -1
    failed = []
    for first, *changed in groups:
        label = classes[first] if case.label == "predicted" else case.label
        failed.append(any(sign * (scores[first][label] - scores[row][label]) > case.tolerance for row in changed))
    return failed


def _row(given: Any, inputs: list[Any], seen: dict[Any, int]) -> int:
    """The index of an input in `inputs`, to which a new one is appended; unhashable inputs always count as new."""
    try:
        row = seen.setdefault(given, len(inputs))
    except TypeError:
        row = len(inputs)
    if row == len(inputs):
        inputs.append(given)
    return row


def _read(returned: Any, n: int) -> _Predicted:
    values = np.asarray(returned)
    if values.ndim not in {1, 2} or len(values) != n:
        raise UsageError(f"predict returned shape {values.shape} for {n} inputs: ({n},) or ({n}, classes) is expected")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UsageError("predict returned NaN or infinity: labels or class probabilities are expected")
    if (
        values.dtype.kind not in "biufUO"
        or values.dtype.kind == "O"
        and not all(isinstance(value, str | int) for value in values.ravel().tolist())
    ):
        raise UsageError(f"predict returned {values.item(0)!r}: labels or class probabilities are expected")
    if values.ndim == 1:
        if values.dtype.kind == "f" and not (values == np.floor(values)).all():
            raise UsageError(f"predict returned fractions: labels, or class probabilities ({n}, classes), are expected")
        return _Predicted(values.tolist(), None)
    if values.shape[1] < 2:  # noqa: PLR2004
        raise UsageError(f"predict returned shape {values.shape}: probabilities of at least two classes are expected")
    return _Predicted(values.argmax(axis=1).tolist(), values.tolist())


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"name={short(name)}: a non-empty string is expected")


def _listed(values: Iterable[Any], what: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:  # a 0-d array claims to be iterable
        raise UsageError(f"{what}={short(values)}: a list is expected") from None


def _filled(values: Any, what: str) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable) or hasattr(values, "columns"):
        raise UsageError(f"{what}={short(values)}: a list is expected")
    filled = tuple(_listed(values, what))
    if not filled:
        raise UsageError(f"{what} is empty: at least one case is expected")
    return filled


def _check_groups(test: Invariance | Directional) -> None:
    _check_name(test.name)
    groups = tuple(_filled(group, f"{test.name}: a group") for group in _filled(test.groups, f"{test.name}: groups"))
    alone = next((group for group in groups if len(group) == 1), None)
    if alone is not None:
        raise UsageError(f"{test.name}: {alone[0]!r} is alone in its group: an original and its variants are expected")
    at_least_zero(test.tolerance, f"{test.name}: tolerance")
    object.__setattr__(test, "groups", groups)
