"""The search space: named parameters, the conditions between them, and the unit cube in which samplers work.

Each parameter has one coordinate; a name with several branches, a range for each, has one coordinate per branch.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.checks import short
from fairway.conditions import Stored, function_name, holds
from fairway.errors import UsageError
from fairway.matching import Matches
from fairway.parameters import Parameter, Value, identity, shortened

Declared: TypeAlias = Mapping[str, Parameter | Sequence[Parameter]]
"""A space as the user declares it: one parameter for each name, or a list of its branches."""


class Space(Mapping[str, Parameter]):
    """Parameters by name: checks configurations and maps them to the unit cube and back.

    A parameter whose `when` does not hold is inactive: absent from the configuration, NaN in the cube.

    >>> import fairway as fw
    >>> space = fw.Space({"booster": fw.Choice(["gbdt", "dart"]),
    ...                   "drop": fw.Float(0.0, 0.5, when={"booster": "dart"})})
    >>> space.decode([0.9, 0.5])
    {'booster': 'dart', 'drop': 0.25}
    >>> space.encode({"booster": "gbdt"})
    array([0.25,  nan])

    A list gives a name a different range in each branch; the first branch whose `when` holds is active. The mapping has
    one entry for each coordinate of the cube, so such a name has several entries; `names` lists the names in a
    configuration.

    >>> space = fw.Space({"booster": fw.Choice(["gbdt", "dart"]),
    ...                   "depth": [fw.Int(2, 8, when={"booster": "gbdt"}), fw.Int(2, 16)]})
    >>> list(space), space.names
    (['booster', 'depth[booster=gbdt]', 'depth[else]'], ('booster', 'depth'))
    >>> space.decode([0.9, 0.0, 1.0])
    {'booster': 'dart', 'depth': 16}
    """

    def __init__(self, parameters: Declared) -> None:
        if not isinstance(parameters, Mapping) or not parameters:
            raise UsageError(f"Space({short(parameters)}): a dict of at least one named parameter is expected")
        given: Declared = parameters.declared if isinstance(parameters, Space) else parameters
        self.declared: dict[str, tuple[Parameter, ...]] = {name: _declared(name, part) for name, part in given.items()}
        self.names = tuple(self.declared)
        self._parameters: dict[str, Parameter] = {}  # by coordinate
        self._name: dict[str, str] = {}  # of each coordinate
        for name, branches in self.declared.items():
            for key, branch in _coordinates(name, branches).items():
                if key in self._parameters:
                    raise UsageError(f"Space: {key!r} is a name, and a branch of another: rename it")
                self._parameters[key], self._name[key] = branch, name
        self._keys = {name: tuple(key for key, of in self._name.items() if of == name) for name in self.names}
        self._place = {key: i for i, key in enumerate(self._parameters)}
        self._values = {key: self._read_values(key) for key in self._parameters}
        self._parents_first = self._sorted_by_condition()
        self._conditional = [name for name in self._parents_first if self._is_conditional(name)]
        self._always = {name: keys[0] for name, keys in self._keys.items() if not self._is_conditional(name)}
        self._conditions: dict[
            str, list[list[tuple[int, int]]]
        ] = {}  # for each parent, pairs of a place in `_matches` and a coordinate; one of them must hold
        wanted: list[tuple[int, NDArray[np.float64]]] = []
        for key, found in self._values.items():
            codes = [self._encoded(*each) for each in found.items()]
            places = itertools.count(len(wanted))
            self._conditions[key] = [[(next(places), at) for at in of_parent] for of_parent in codes]
            wanted += [each for of_parent in codes for each in of_parent.items()]
        self._matches = Matches(wanted)
        sizes = np.array([parameter.size for parameter in self._parameters.values()])
        is_even = np.array([parameter.is_even for parameter in self._parameters.values()])
        self._even = np.flatnonzero(np.isfinite(sizes) & is_even)  # coordinates with cells of one width
        self._uneven = np.flatnonzero(~is_even).tolist()
        self._cells = sizes[self._even]
        self._weights = np.sqrt(np.arange(2.0, len(self) + 2.0))  # of a fingerprint

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def __repr__(self) -> str:
        return f"Space({ {name: part[0] if len(part) == 1 else list(part) for name, part in self.declared.items()}!r})"

    @property
    def size(self) -> float:
        """The number of configurations if all parameters were always active; infinity if one is continuous.

        A number too large for a float counts as infinity too.
        """
        size = math.prod(parameter.size for parameter in self.values())
        return size if size <= sys.float_info.max else math.inf

    @property
    def has_stored(self) -> bool:
        """Whether some condition is a function that the log only names; nothing can be proposed without its code."""
        return any(isinstance(parameter.when, Stored) for parameter in self.values())

    def name_of(self, key: str) -> str:
        """The name that a coordinate's parameter has in a configuration."""
        return self._name[key]

    def active(self, params: Mapping[str, object]) -> dict[str, str]:
        """The coordinate of each parameter in a configuration, by name."""
        return {name: key for name, (key, _) in self._checked(params).items()}

    def check(self, params: Mapping[str, object]) -> dict[str, Value]:
        """The configuration in canonical form and order; raises a `UsageError` that says what is wrong."""
        return {name: value for name, (_, value) in self._checked(params).items()}

    def _checked(self, params: Mapping[str, object]) -> dict[str, tuple[str, Value]]:
        """The coordinate and the canonical value of each parameter, in the space's order."""
        self._refuse_unknown(params)
        checked: dict[str, Value] = {}
        keys: dict[str, str] = {}
        for name in self._parents_first:
            key = self._active(name, checked, params)
            if key is not None and name not in params:
                raise UsageError(f"parameter {name!r} is missing")
            if key is None and name in params:
                self._refuse_inactive(name)
            if key is not None:
                checked[name], keys[name] = self._check_value(key, params[name]), key
        return {name: (keys[name], checked[name]) for name in self.names if name in checked}

    def _refuse_unknown(self, params: Mapping[str, object]) -> None:
        if not isinstance(params, Mapping):
            raise UsageError(f"{short(params)}: a dict of parameters by name is expected")
        unknown = [name for name in params if name not in self.declared]
        if unknown:
            raise UsageError(f"unknown parameter {unknown[0]!r}: the space has {shortened(self.names)}")

    def _refuse_inactive(self, name: str) -> NoReturn:
        allowed = " or ".join(_words(branch.when) for branch in self.declared[name])
        raise UsageError(f"parameter {name!r} is active only when {allowed}")

    def _check_value(self, key: str, value: object) -> Value:
        try:
            return self._parameters[key].check(value)
        except UsageError as error:
            raise UsageError(f"parameter {key!r}: {error}") from None

    def _possible(self, name: str, params: Mapping[str, object]) -> list[str]:
        """The coordinates of a parameter that are active in some configuration with these parameters."""
        found = []
        for key in self._keys[name]:
            allowed = self._values[key]
            known = [identity(self._in_some_branch(p, params[p])) in allowed[p] for p in allowed if p in params]
            if all(known):
                found.append(key)
                if len(known) == len(allowed) and not callable(self._parameters[key].when):
                    break  # it holds in every such configuration
        return found

    def is_whole(self, params: Mapping[str, object]) -> bool:
        """Whether parameters that `check_some` accepts form a complete configuration."""
        try:
            self._checked(params)
        except UsageError:
            return False
        return True

    def check_some(self, params: Mapping[str, object]) -> dict[str, Value]:
        """Part of a configuration in canonical form, with the parameters that its conditions determine filled in.

        Raises a `UsageError` if no configuration of the space has them.

        >>> import fairway as fw
        >>> space = fw.Space({"booster": fw.Choice(["gbdt", "dart"]),
        ...                   "drop": fw.Float(0.0, 0.5, when={"booster": "dart"})})
        >>> space.check_some({"drop": 0.25})
        {'booster': 'dart', 'drop': 0.25}
        """
        self._refuse_unknown(params)
        checked: dict[str, Value] = {}
        for name in reversed(self._parents_first):  # children first: their conditions may determine their parents
            if name not in params and name not in checked:
                continue
            value = params.get(name, checked.get(name))
            branches = self._possible(name, params)
            if not branches:
                self._refuse_inactive(name)
            accepting = [key for key in branches if _accepts(self._parameters[key], value)]
            checked[name] = self._check_value((accepting or branches)[0], value)
            conditions = [self._values[key] for key in accepting]
            for parent in set.intersection(*map(set, conditions)):
                values = {each: value for condition in conditions for each, value in condition[parent].items()}
                if len(values) == 1 and parent not in params:
                    checked[parent] = next(iter(values.values()))
        return {name: checked[name] for name in self.names if name in checked}

    def encode_some(self, params: Mapping[str, object]) -> NDArray[np.float64]:
        """Part of a configuration as a point, shape (d,); NaN where inactive or not given."""
        x, checked = np.full(len(self), np.nan), self.check_some(params)
        for name, value in checked.items():
            for key in self._possible(name, checked):
                if _accepts(self._parameters[key], value):
                    x[self._place[key]] = self._parameters[key].encode(value)
        return x

    def decode_some(self, x: NDArray[np.float64]) -> dict[str, Value]:
        """The parameters of a point (d,) that `encode_some` returned, without those whose coordinate is NaN."""
        known = [(self._name[key], self._parameters[key], u) for key, u in zip(self, x.tolist(), strict=True)]
        return {name: parameter.decode(u) for name, parameter, u in known if not math.isnan(u)}

    def with_given(self, x: NDArray[np.float64], given: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points (k, d) as `snap` returns them, with the given coordinates (d,) in place of their own where not NaN.

        A point is left out if a parameter with a given coordinate is inactive there.
        """
        there = ~np.isnan(given)
        snapped = self.snap(np.where(there, given, np.nan_to_num(x, nan=0.5)))
        right = np.ones(len(x), np.bool_)
        for name in {self._name[key] for key, one in zip(self, there, strict=True) if one}:
            places = [self._place[key] for key in self._keys[name] if there[self._place[key]]]
            right &= ~np.isnan(snapped[:, places]).all(axis=1)
        return np.asarray(snapped[right])

    def encode(self, params: Mapping[str, object]) -> NDArray[np.float64]:
        """The configuration as a point of the unit cube, shape (d,); NaN where inactive."""
        x = np.full(len(self), np.nan)
        for key, value in self._checked(params).values():
            x[self._place[key]] = self._parameters[key].encode(value)
        return x

    def decode(self, x: Sequence[float] | NDArray[np.float64]) -> dict[str, Value]:
        """The configuration at a point of the unit cube, shape (d,); coordinates of inactive parameters are ignored."""
        if len(x) != len(self):
            raise UsageError(f"a point of {len(x)} coordinates: this space has {len(self)} parameters")
        decoded: dict[str, Value] = {}
        for name in self._parents_first:
            key = self._active(name, decoded)
            if key is not None:
                u = float(x[self._place[key]])
                if not 0.0 <= u <= 1.0:
                    raise UsageError(f"coordinate {u} of {key!r}: a number from 0 to 1 is expected")
                decoded[name] = self._parameters[key].decode(u)
        return {name: decoded[name] for name in self.names if name in decoded}

    def snap(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points (k, d) as `encode` would return them: the middle of each cell, NaN where inactive."""
        snapped = np.array(np.clip(x, 0.0, 1.0), order="C")
        low = np.clip(np.floor(x[:, self._even] * self._cells), 0, self._cells - 1)
        snapped[:, self._even] = (low + 0.5) / self._cells
        parameters = [*self._parameters.values()]
        for i in self._uneven:
            snapped[:, i] = parameters[i].snap(x[:, i])
        if self._conditional:
            snapped[~self._active_at(snapped).T] = np.nan
        return snapped

    def _active_at(self, snapped: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each coordinate is active at snapped points (k, d): (d, k)."""
        active, matches = np.ones(snapped.shape[::-1], np.bool_), self._matches.of(snapped)
        functions = any(callable(self._parameters[key].when) for key in self._parameters)
        configurations = [dict[str, Value]() for _ in snapped] if functions else []  # so far
        for name in self._parents_first if functions else self._conditional:
            taken: NDArray[np.bool_] | None = None  # where an earlier branch is active
            for key in self._keys[name]:
                place, parameter = self._place[key], self._parameters[key]
                met = active[place]
                if taken is not None:
                    met &= ~taken
                if callable(parameter.when):
                    for i in np.flatnonzero(met):
                        met[i] = holds(name, parameter.when, self._above(name, configurations[i]))
                for of_parent in self._conditions[key]:
                    held = [matches[which] & active[at] for which, at in of_parent]
                    met &= held[0] if len(held) == 1 else np.logical_or.reduce(held)
                taken = met if taken is None else taken | met
                for i in np.flatnonzero(met) if functions else ():
                    configurations[i][name] = parameter.decode(float(snapped[i, place]))
        return active

    def fingerprints(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """A number for each encoded point (k, d), equal for equal configurations: (k,)."""
        return np.asarray(np.round(np.where(np.isnan(x), -1.0, x) @ self._weights, 9))

    def grid(self, most: int) -> NDArray[np.float64] | None:
        """Every configuration (k, d); None if `size` exceeds `most`."""
        if self.size > most:
            return None
        axes = [(edges[:-1] + edges[1:]) / 2 for edges in (parameter.edges() for parameter in self.values())]
        everything = self.snap(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(self)))
        _, first = np.unique(self.fingerprints(everything), return_index=True)
        return np.asarray(everything[np.sort(first)])

    def _active(self, name: str, known: Mapping[str, Value], params: Mapping[str, object] | None = None) -> str | None:
        """The coordinate of the active branch; None if no branch is active.

        A condition that the log only names counts as met if `params` has the parameter, with a value that the branch
        accepts.
        """
        if name in self._always:
            return self._always[name]
        for key in self._keys[name]:
            parameter = self._parameters[key]
            when, values = parameter.when, self._values[key]
            if isinstance(when, Stored) and params is not None:
                met = name in params and _accepts(parameter, params[name])
            elif callable(when):
                met = holds(name, when, self._above(name, known))
            else:
                met = all(parent in known and identity(known[parent]) in values[parent] for parent in values)
            if met:
                return key
        return None

    def _is_conditional(self, name: str) -> bool:
        return len(self.declared[name]) > 1 or self.declared[name][0].when is not None

    def _above(self, name: str, known: Mapping[str, Value]) -> dict[str, Value]:
        """The active parameters that are declared above `name`, which its condition sees."""
        return {above: known[above] for above in self.names[: self.names.index(name)] if above in known}

    def _read_values(self, key: str) -> dict[str, dict[tuple[type, object], Value]]:
        """For each parent, the values at which a coordinate is active; empty if its `when` is None or a function."""
        name, when = self._name[key], self._parameters[key].when
        if when is None or callable(when):
            return {}
        if not isinstance(when, Mapping):
            raise UsageError(
                f"{name!r}: when={short(when)}: a dict such as {{'other': value or list}}, or a function, is expected"
            )
        condition = {}
        for parent, allowed in when.items():
            if parent not in self.declared:
                raise UsageError(f"{name!r}: when names {parent!r}, which is not a parameter of this space")
            several = isinstance(allowed, Collection) and not isinstance(allowed, str)
            values: Collection[object] = allowed if several else [allowed]  # type: ignore[assignment]
            if not values:
                raise UsageError(f"{name!r}: when={{{parent!r}: {short(allowed)}}}: at least one value is expected")
            try:
                checked = [self._in_some_branch(parent, value) for value in values]
            except UsageError as error:
                raise UsageError(f"{name!r}: condition on {parent!r}: {error}") from None
            condition[parent] = {identity(value): value for value in checked}
        return condition

    def _encoded(self, name: str, values: Mapping[Any, Value]) -> dict[int, NDArray[np.float64]]:
        """Values of a parameter as coordinates, by the place of the branch that accepts them."""
        found = {}
        for key in self._keys[name]:
            parameter = self._parameters[key]
            codes = [parameter.encode(value) for value in values.values() if _accepts(parameter, value)]
            found[self._place[key]] = np.array(codes)
        return found

    def _in_some_branch(self, name: str, value: object) -> Value:
        """The value in canonical form, by the first branch that accepts it; a `UsageError` if none does."""
        wanted = []
        for branch in self.declared[name]:
            try:
                return branch.check(value)
            except UsageError as error:
                wanted.append(str(error).removeprefix(f"{short(value)}: ").removesuffix(" is expected"))
        raise UsageError(f"{short(value)}: {' or '.join(wanted)} is expected")

    def _sorted_by_condition(self) -> tuple[str, ...]:
        parents: dict[str, set[str]] = {name: set() for name in self.names}
        for key, parameter in self.items():
            name = self._name[key]
            parents[name] |= set(self._values[key])
            if callable(parameter.when):
                parents[name] |= set(self.names[: self.names.index(name)])
        try:
            return tuple(TopologicalSorter(parents).static_order())
        except CycleError as error:
            raise UsageError(f"the conditions of {shortened(error.args[1])} form a cycle; remove one of them") from None


def _declared(name: object, part: object) -> tuple[Parameter, ...]:
    """The branches of a name, checked; one for a parameter that is not a list."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"Space: the name {name!r}: a non-empty string is expected")
    branches = tuple(part) if isinstance(part, list | tuple) else (part,)
    if not branches or not all(isinstance(branch, Parameter) for branch in branches):
        raise UsageError(
            f"Space: {name}={short(part)}: a Float, Int or Choice is expected, or a list of them with when="
        )
    if any(branch.when is None for branch in branches[:-1]):
        raise UsageError(f"Space: {name!r} has a branch without when=, which always holds: put it last")
    return branches


def _coordinates(name: str, branches: Sequence[Parameter]) -> dict[str, Parameter]:
    """The branches of a name, keyed by the names of their coordinates."""
    if len(branches) == 1:
        return {name: branches[0]}
    found: dict[str, Parameter] = {}
    for branch in branches:
        key = wanted = f"{name}[{_label(branch.when)}]"
        for again in range(2, len(branches) + 1):
            key = key if key not in found else f"{wanted[:-1]} {again}]"
        found[key] = branch
    return found


def _label(when: Any) -> str:
    if isinstance(when, Mapping):
        return ", ".join(f"{parent}={_listed(allowed)}" for parent, allowed in when.items())
    return "else" if when is None else function_name(when)


def _listed(allowed: Any) -> str:
    several = isinstance(allowed, Collection) and not isinstance(allowed, str)
    return "|".join(map(str, allowed)) if several else str(allowed)


def _words(when: Any) -> str:
    return f"{function_name(when)} holds" if callable(when) else repr(dict(when or {}))


def _accepts(parameter: Parameter, value: object) -> bool:
    try:
        parameter.check(value)
    except UsageError:
        return False
    return True
