"""Choices that are not JSON scalars: tuples, estimators and other objects, which the log stores by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import clone

from fairway.errors import UsageError
from fairway.integrations.bridge import as_choice
from fairway.parameters import Choice, Parameter
from fairway.space import Declared, Space

_LONGEST = 80  # characters of a name


class Options:
    """A space of an estimator's parameters, and the objects behind the names in it.

    Beside the parameters of fairway, a space may have lists of options, as in scikit-learn's grids, and dicts of
    options by name. In a list, an option that is not a JSON scalar is named by its repr.

    >>> options = Options({"hidden_layer_sizes": [(50,), (100, 50)], "activation": ["relu", "tanh"]})
    >>> options.space["hidden_layer_sizes"].options
    ('(50,)', '(100, 50)')
    >>> options.params({"hidden_layer_sizes": "(50,)", "activation": "relu"})
    {'hidden_layer_sizes': (50,), 'activation': 'relu'}
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._objects: dict[str, dict[str, Any]] = {}
        if isinstance(space, Space) or not isinstance(space, Mapping):
            self.space = Space(space)
            return
        declared: dict[str, Parameter | Sequence[Parameter]] = {}
        for name, part in space.items():
            is_list = isinstance(part, list | tuple) and not any(isinstance(each, Parameter) for each in part)
            if isinstance(part, Mapping):
                self._objects[name] = _named(name, part)
            elif is_list and as_choice(part) is None:
                self._objects[name] = _named_by_print(name, part)
            declared[name] = Choice([*self._objects[name]]) if name in self._objects else part
            if is_list and name not in self._objects:
                declared[name] = Choice(part)
        self.space = Space(declared)

    def params(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """A configuration for the estimator; estimators among the options are cloned, so that none is shared."""
        return {
            name: clone(self._objects[name][value], safe=False) if name in self._objects else value
            for name, value in chosen.items()
        }


def _named(name: str, options: Mapping[Any, Any]) -> dict[str, Any]:
    for key in options:
        if not isinstance(key, str) or not key:
            raise UsageError(f"space: {name!r} has an option named {key!r}: a dict of options by name is expected")
    return dict(options)


def _named_by_print(name: str, options: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in options:
        key = " ".join(repr(option).split())
        if len(key) > _LONGEST or " at 0x" in key or key in found:
            raise UsageError(
                f"space: {name!r} has the option {key[:_LONGEST]}, which is no name to keep in a log: give a dict of "
                f"options by name, {{{name!r}: {{'short': ...}}}}"
            )
        found[key] = option
    return found


SearchSpace = Declared | Mapping[str, Any]
