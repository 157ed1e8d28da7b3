"""fairway finds the best model that meets its deployment limits, at the least cost."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairway.engine.trial import Trial
    from fairway.errors import FairwayError, StorageError, StudyFailed, UsageError
    from fairway.folds import Folds
    from fairway.problem import AtLeast, AtMost, Maximize, Minimize, Problem
    from fairway.runners.recording import Recording
    from fairway.samplers.blend import Blend
    from fairway.samplers.bore import BORE
    from fairway.samplers.gp import GP
    from fairway.samplers.random import Random
    from fairway.samplers.sampler import Sampler
    from fairway.samplers.tpe import CTPE, TPE
    from fairway.simulation import simulate
    from fairway.space import Choice, Float, Int, Space
    from fairway.stoppers.ace import ACE
    from fairway.stoppers.asha import ASHA
    from fairway.stoppers.half_at import HalfAt
    from fairway.stoppers.median import Median
    from fairway.stoppers.never import Never
    from fairway.stoppers.pilot import Pilot
    from fairway.stoppers.stopper import Stopper
    from fairway.study import Study
    from fairway.terminators.improvement import ExpectedImprovementBelow, ProbabilityOfImprovementBelow
    from fairway.terminators.plateau import Plateau, Target
    from fairway.terminators.regret import RegretBound
    from fairway.terminators.terminator import Terminator, all_of, any_of

__version__ = "0.1.0"

_HOMES = {
    "errors": ("FairwayError", "StorageError", "StudyFailed", "UsageError"),
    "folds": ("Folds",),
    "problem": ("AtLeast", "AtMost", "Maximize", "Minimize", "Problem"),
    "runners.recording": ("Recording",),
    "simulation": ("simulate",),
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
    "stoppers.pilot": ("Pilot",),
    "stoppers.stopper": ("Stopper",),
    "study": ("Study",),
    "terminators.improvement": ("ExpectedImprovementBelow", "ProbabilityOfImprovementBelow"),
    "terminators.plateau": ("Plateau", "Target"),
    "terminators.regret": ("RegretBound",),
    "terminators.terminator": ("Terminator", "all_of", "any_of"),
    "engine.trial": ("Trial",),
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
    "Blend",
    "Choice",
    "ExpectedImprovementBelow",
    "FairwayError",
    "Float",
    "Folds",
    "HalfAt",
    "Int",
    "Maximize",
    "Median",
    "Minimize",
    "Never",
    "Pilot",
    "Plateau",
    "ProbabilityOfImprovementBelow",
    "Problem",
    "Random",
    "Recording",
    "RegretBound",
    "Sampler",
    "Space",
    "Stopper",
    "StorageError",
    "Study",
    "StudyFailed",
    "Target",
    "Terminator",
    "Trial",
    "UsageError",
    "__version__",
    "all_of",
    "any_of",
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
