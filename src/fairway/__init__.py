"""fairway finds the best model that meets its deployment limits, at the least cost."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairway.errors import FairwayError, MissingDependency, StorageError, StudyFailed, UsageError
    from fairway.history import History, TrialRecord
    from fairway.problem import AtLeast, AtMost, Maximize, Minimize, Problem
    from fairway.runners.recording import Recording
    from fairway.runners.simulated import Simulation, simulate
    from fairway.samplers.blend import Blend
    from fairway.samplers.bore import BORE
    from fairway.samplers.gp import GP
    from fairway.samplers.random import Random
    from fairway.samplers.sampler import Sampler
    from fairway.samplers.tpe import CTPE, TPE
    from fairway.space import Choice, Float, Int, Space
    from fairway.stoppers.ace import ACE
    from fairway.stoppers.asha import ASHA
    from fairway.stoppers.half_at import HalfAt
    from fairway.stoppers.median import Median
    from fairway.stoppers.never import Never
    from fairway.stoppers.stopper import Stopper, StopperState
    from fairway.study import Best, Costs, Study
    from fairway.trial import Decision, Trial

__version__ = "0.1.0"

_HOMES = {
    "errors": ("FairwayError", "MissingDependency", "StorageError", "StudyFailed", "UsageError"),
    "history": ("History", "TrialRecord"),
    "problem": ("AtLeast", "AtMost", "Maximize", "Minimize", "Problem"),
    "runners.recording": ("Recording",),
    "runners.simulated": ("Simulation", "simulate"),
    "samplers.blend": ("Blend",),
    "samplers.bore": ("BORE",),
    "samplers.gp": ("GP",),
    "samplers.random": ("Random",),
    "samplers.sampler": ("Sampler",),
    "samplers.tpe": ("CTPE", "TPE"),
    "space": ("Choice", "Float", "Int", "Space"),
    "stoppers.ace": ("ACE",),
    "stoppers.asha": ("ASHA",),
    "stoppers.half_at": ("HalfAt",),
    "stoppers.median": ("Median",),
    "stoppers.never": ("Never",),
    "stoppers.stopper": ("Stopper", "StopperState"),
    "study": ("Best", "Costs", "Study"),
    "trial": ("Decision", "Trial"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ACE",
    "ASHA",
    "BORE",
    "CTPE",
    "GP",
    "TPE",
    "AtLeast",
    "AtMost",
    "Best",
    "Blend",
    "Choice",
    "Costs",
    "Decision",
    "FairwayError",
    "Float",
    "HalfAt",
    "History",
    "Int",
    "Maximize",
    "Median",
    "Minimize",
    "MissingDependency",
    "Never",
    "Problem",
    "Random",
    "Recording",
    "Sampler",
    "Simulation",
    "Space",
    "Stopper",
    "StopperState",
    "StorageError",
    "Study",
    "StudyFailed",
    "Trial",
    "TrialRecord",
    "UsageError",
    "__version__",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'fairway' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fairway.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
