"""A trial's parameters with their types: `trial.int("depth")` is an `int` to a type checker, and checked at run time.

`trial.params["depth"]` is `Any` to a type checker, which then checks nothing. The methods are named like the types that
they return, so this module has to spell the types as `builtins.int` and so on.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from fairway.errors import UsageError
from fairway.parameters import shortened


class TypedParams:
    """Access to `params` by type.

    >>> import fairway as fw
    >>> study = fw.Study({"depth": fw.Int(2, 8), "kind": fw.Choice(["a", "b"])}, fw.Minimize("loss"), seed=0)
    >>> trial = study.ask()
    >>> trial.int("depth"), trial.float("depth"), trial.str("kind")
    (7, 7.0, 'b')
    """

    __slots__ = ()

    number: builtins.int
    params: Mapping[builtins.str, Any]

    def int(self, name: builtins.str) -> builtins.int:
        """A parameter that is a whole number."""
        value = self._param(name)
        if not isinstance(value, builtins.int) or isinstance(value, builtins.bool):
            raise self._of_another_kind(name, "a whole number")
        return value

    def float(self, name: builtins.str) -> builtins.float:
        """A parameter that is a number."""
        value = self._param(name)
        if not isinstance(value, builtins.int | builtins.float) or isinstance(value, builtins.bool):
            raise self._of_another_kind(name, "a number")
        return builtins.float(value)

    def str(self, name: builtins.str) -> builtins.str:
        """A parameter that is a string."""
        value = self._param(name)
        if not isinstance(value, builtins.str):
            raise self._of_another_kind(name, "a text")
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        """A parameter that is True or False."""
        value = self._param(name)
        if not isinstance(value, builtins.bool):
            raise self._of_another_kind(name, "True or False")
        return value

    def _param(self, name: builtins.str) -> Any:
        if name not in self.params:
            raise UsageError(f"trial {self.number} has no parameter {name!r}: it has {shortened([*self.params])}")
        return self.params[name]

    def _of_another_kind(self, name: builtins.str, wanted: builtins.str) -> UsageError:
        return UsageError(f"trial {self.number}: {name!r} is {self.params[name]!r}, not {wanted}")
