"""Conditions that are functions: how they are called, and what replaces one in a study that was read from a log.

A log holds no code, so it keeps only the name of a function. To continue a search, the user passes the function again.
Reading a study needs no function: a configuration in the log has exactly the parameters that were active.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairway.errors import UsageError

Function = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Stored:
    """Stands for a condition whose name is in the log, but whose code is not."""

    name: str

    def __call__(self, params: Mapping[str, Any]) -> bool:
        """Raise a `UsageError`: there is no code to call."""
        del params
        raise UsageError(
            f"the log only names the condition {self.name!r}: to search on, open the study with its space again"
        )


def function_name(function: Function) -> str:
    """The name by which a log keeps a function.

    >>> function_name(lambda params: True), function_name(Stored("is_deep"))
    ('<lambda>', 'is_deep')
    """
    if isinstance(function, Stored):
        return function.name
    return str(getattr(function, "__name__", type(function).__name__))


def holds(parameter: str, function: Function, params: Mapping[str, Any]) -> bool:
    """Whether a function says that a parameter is active, given the active parameters above it."""
    try:
        said = function(dict(params))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{parameter!r}: its condition {function_name(function)} raised {error!r} for {dict(params)!r}; "
            "it sees the active parameters that are declared above it, so use params.get(...)"
        ) from error
    if not isinstance(said, bool | np.bool_):
        raise UsageError(
            f"{parameter!r}: its condition {function_name(function)} returned {said!r}: True or False is expected"
        )
    return bool(said)
