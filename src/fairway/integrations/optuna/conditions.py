"""The space of an Optuna study, with the conditions that its trials show.

In Optuna a space is what the code suggests: `drop` after an `if booster == "dart"` is in some trials only. The trials
show which parameters before it decide that: a condition is accepted if it holds in all trials that have the parameter,
and in no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from fairway.errors import UsageError
from fairway.integrations.optuna.table import Table
from fairway.parameters import Int, Parameter, Value, identity
from fairway.space import Space

_MOST_PARENTS = 2  # in one condition


def inferred(finished: Sequence[FrozenTrial]) -> Table:
    """The space of all trials; raises a `UsageError` where no condition tells which of them have a parameter."""
    kinds: dict[str, list[BaseDistribution]] = {}  # of each parameter, in the order in which they are first suggested
    for trial in finished:
        for name, each in trial.distributions.items():
            found = kinds.setdefault(name, [])
            found += [] if each in found else [each]
    first = {name: each[0] for name, each in kinds.items()}
    table = Table.of(first, scalars=True)
    if all(trial.distributions == first for trial in finished):
        return table
    rows = [table.to_ours(trial.params) for trial in finished]
    declared: dict[str, Parameter | list[Parameter]] = {}
    for name, distributions in kinds.items():
        branches = []
        for distribution in distributions:
            has = [trial.distributions.get(name) == distribution for trial in finished]
            parents = [other for other in declared if _comes_first(other, name, finished)]
            branch = table.space[name] if distribution == first[name] else Table.of({name: distribution}).space[name]
            when = {} if all(has) else _condition(parents, rows, has, table)
            if when is None:
                odd = finished[has.index(not has[0])].number
                raise UsageError(
                    f"parameter {name!r} is not the same in all trials of the Optuna study (trial {odd}), and none "
                    "before it tells where: declare the space, with when=, and pass it as from_optuna(study, space=...)"
                )
            branches.append(_with(branch, when))
        declared[name] = branches[0] if len(branches) == 1 else branches
    return table._replace(space=Space(declared))


def _comes_first(parent: str, name: str, finished: Sequence[FrozenTrial]) -> bool:
    """Whether a parameter has a few values, and is suggested before another wherever that one is."""
    for trial in finished:
        order = list(trial.distributions)
        if name in order and (parent not in order or order.index(parent) > order.index(name)):
            return False
    kinds = (trial.distributions[parent] for trial in finished if parent in trial.distributions)
    return all(isinstance(each, CategoricalDistribution | IntDistribution) for each in kinds)


def _condition(
    parents: Sequence[str], rows: Sequence[Mapping[str, Value]], has: Sequence[bool], table: Table
) -> dict[str, list[Value]] | None:
    """The values of one or two parents that a parameter goes with, in the trials that have it and no others."""
    for chosen in _sets(parents, table):
        when = {parent: _values(parent, rows, has, table) for parent in chosen}
        if [_holds(when, row) for row in rows] == list(has):
            return when
    return None


def _sets(parents: Sequence[str], table: Table) -> Iterator[tuple[str, ...]]:
    """The sets of parents to try: small ones first, categories before numbers."""
    in_order = sorted(parents, key=lambda parent: isinstance(table.space[parent], Int))
    for size in range(1, _MOST_PARENTS + 1):
        yield from combinations(in_order, size)


def _values(parent: str, rows: Sequence[Mapping[str, Value]], has: Sequence[bool], table: Table) -> list[Value]:
    """The values of a parent where a parameter is present; of a number, also those nearby that no other trial had."""
    with_it = {identity(row[parent]): row[parent] for row, there in zip(rows, has, strict=True) if there}
    parameter = table.space[parent]
    if not isinstance(parameter, Int):
        return list(with_it.values())
    inside: list[Any] = sorted(with_it.values())
    outside: list[Any] = [row[parent] for row, there in zip(rows, has, strict=True) if not there and parent in row]
    low, high = inside[0], inside[-1]
    if all(value < low for value in outside):
        high = parameter.high
    if all(value > high for value in outside):
        low = parameter.low
    between = range(low, high + 1, parameter.step)
    return list(between) if not any(low <= value <= high for value in outside) else inside


def _holds(when: Mapping[str, list[Value]], row: Mapping[str, Value]) -> bool:
    allowed = {parent: {identity(value) for value in values} for parent, values in when.items()}
    return all(parent in row and identity(row[parent]) in allowed[parent] for parent in when)


def _with(branch: Parameter, when: Mapping[str, list[Value]]) -> Parameter:
    """A parameter with a condition, as one would write it."""
    plain = {parent: values[0] if len(values) == 1 else values for parent, values in when.items()}
    return replace(branch, when=plain or None)  # type: ignore[call-arg]
