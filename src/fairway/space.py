"""The search space: named parameters, the conditions between them, and the unit cube in which samplers work.

Each parameter has one coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from fairway.checks import short
from fairway.errors import UsageError
from fairway.parameters import Parameter, Value, identity, shortened


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
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        if not isinstance(parameters, Mapping) or not parameters:
            raise UsageError(f"Space({short(parameters)}): a dict of at least one named parameter is expected")
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not name:
                raise UsageError(f"Space: the name {name!r}: a non-empty string is expected")
            if not isinstance(parameter, Parameter):
                raise UsageError(f"Space: {name}={short(parameter)}: a Float, Int or Choice is expected")
        self._parameters = dict(parameters)
        self.names = tuple(self._parameters)
        self._conditions = {name: self._read_condition(name) for name in self.names}
        self._parents_first = self._sorted_by_condition()

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def __repr__(self) -> str:
        return f"Space({self._parameters!r})"

    @property
    def size(self) -> float:
        """The number of configurations if all parameters were always active; infinity if one is continuous."""
        return math.prod(parameter.size for parameter in self.values())

    def check(self, params: Mapping[str, object]) -> dict[str, Value]:
        """The configuration in canonical form and order; raises a `UsageError` that says what is wrong."""
        if not isinstance(params, Mapping):
            raise UsageError(f"{short(params)}: a dict of parameters by name is expected")
        unknown = [name for name in params if name not in self._parameters]
        if unknown:
            raise UsageError(f"unknown parameter {unknown[0]!r}: the space has {shortened(self.names)}")
        checked: dict[str, Value] = {}
        for name in self._parents_first:
            active = self._is_active(name, checked)
            if active and name not in params:
                raise UsageError(f"parameter {name!r} is missing")
            if not active and name in params:
                raise UsageError(f"parameter {name!r} is active only when {dict(self._parameters[name].when or {})!r}")
            if active:
                try:
                    checked[name] = self._parameters[name].check(params[name])
                except UsageError as error:
                    raise UsageError(f"parameter {name!r}: {error}") from None
        return {name: checked[name] for name in self.names if name in checked}

    def encode(self, params: Mapping[str, object]) -> NDArray[np.float64]:
        """The configuration as a point of the unit cube, shape (d,); NaN where inactive."""
        checked = self.check(params)
        x = np.full(len(self), np.nan)
        for i, name in enumerate(self.names):
            if name in checked:
                x[i] = self._parameters[name].encode(checked[name])
        return x

    def decode(self, x: Sequence[float] | NDArray[np.float64]) -> dict[str, Value]:
        """The configuration at a point of the unit cube, shape (d,); coordinates of inactive parameters are ignored."""
        if len(x) != len(self):
            raise UsageError(f"a point of {len(x)} coordinates: this space has {len(self)} parameters")
        coordinate = dict(zip(self.names, x, strict=True))
        decoded: dict[str, Value] = {}
        for name in self._parents_first:
            if self._is_active(name, decoded):
                u = float(coordinate[name])
                if not 0.0 <= u <= 1.0:
                    raise UsageError(f"coordinate {u} of {name!r}: a number from 0 to 1 is expected")
                decoded[name] = self._parameters[name].decode(u)
        return {name: decoded[name] for name in self.names if name in decoded}

    def snap(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points (k, d) as `encode` would return them: the middle of each cell, NaN where inactive."""
        place = {name: i for i, name in enumerate(self.names)}
        snapped = np.column_stack([self._parameters[name].snap(x[:, i]) for name, i in place.items()])
        for name in self._parents_first:
            for parent, allowed in self._conditions[name].items():
                values = np.array([self._parameters[parent].encode(value) for _, value in allowed])
                met = np.isclose(snapped[:, place[parent], None], values, rtol=0.0, atol=1e-12).any(axis=1)
                snapped[~met, place[name]] = np.nan
        return snapped

    def fingerprints(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """A number for each encoded point (k, d), equal for equal configurations: (k,)."""
        weights = np.sqrt(np.arange(2.0, len(self) + 2.0))
        return np.asarray(np.round(np.nan_to_num(x, nan=-1.0) @ weights, 9))

    def grid(self, most: int) -> NDArray[np.float64] | None:
        """Every configuration (k, d); None if `size` exceeds `most`."""
        if self.size > most:
            return None
        axes = [(edges[:-1] + edges[1:]) / 2 for edges in (parameter.edges() for parameter in self.values())]
        everything = self.snap(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(self)))
        _, first = np.unique(self.fingerprints(everything), return_index=True)
        return np.asarray(everything[np.sort(first)])

    def _is_active(self, name: str, params: Mapping[str, Value]) -> bool:
        return all(
            parent in params and identity(params[parent]) in allowed
            for parent, allowed in self._conditions[name].items()
        )

    def _read_condition(self, name: str) -> dict[str, frozenset[tuple[type, object]]]:
        condition = {}
        when = self._parameters[name].when
        if when is not None and not isinstance(when, Mapping):
            raise UsageError(f"{name!r}: when={short(when)}: a dict such as {{'other': value or list}} is expected")
        for parent, allowed in (when or {}).items():
            if parent not in self._parameters:
                raise UsageError(f"{name!r}: when names {parent!r}, which is not a parameter of this space")
            several = isinstance(allowed, Collection) and not isinstance(allowed, str)
            values: Collection[object] = allowed if several else [allowed]  # type: ignore[assignment]
            if not values:
                raise UsageError(f"{name!r}: when={{{parent!r}: {short(allowed)}}}: at least one value is expected")
            try:
                condition[parent] = frozenset(identity(self._parameters[parent].check(value)) for value in values)
            except UsageError as error:
                raise UsageError(f"{name!r}: condition on {parent!r}: {error}") from None
        return condition

    def _sorted_by_condition(self) -> tuple[str, ...]:
        try:
            return tuple(TopologicalSorter(self._conditions).static_order())
        except CycleError as error:
            raise UsageError(f"the conditions of {shortened(error.args[1])} form a cycle; remove one of them") from None
