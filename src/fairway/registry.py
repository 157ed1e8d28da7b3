"""One list of what fairway offers: where each public name lives, and which names a study's JSON may hold.

`import fairway` takes its lazy loading and its `__all__` from this list, and `Identity` takes the classes that it may
build from JSON: a name that is not listed for that is never imported, so opening somebody else's study runs none of
their code.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

STORED = {
    "parameters": ("Float", "Int", "Choice"),
    "problem": ("Minimize", "Maximize", "AtMost", "AtLeast", "Track"),
    "stoppers.pilot": ("Pilot",),
    "stoppers.ace": ("ACE",),
    "stoppers.asha": ("ASHA",),
    "stoppers.median": ("Median",),
    "stoppers.half_at": ("HalfAt",),
    "stoppers.never": ("Never",),
    "samplers.random": ("Random",),
    "samplers.compass": ("Compass",),
    "samplers.tpe": ("TPE", "CTPE"),
    "samplers.gp": ("GP",),
    "samplers.bore": ("BORE",),
    "samplers.blend": ("Blend",),
    "terminators.regret": ("RegretBound",),
    "terminators.improvement": ("ExpectedImprovementBelow", "ProbabilityOfImprovementBelow"),
    "terminators.plateau": ("Plateau", "Target"),
}
"""Public classes that a study's JSON may name, by module."""

_STORED_ONLY = {"terminators.terminator": ("AnyOf", "AllOf")}  # what `any_of` and `all_of` make

_OTHERS = {
    "errors": ("FairwayError", "StorageError", "StudyFailed", "UsageError"),
    "folds": ("Folds",),
    "measured": ("Measured",),
    "fresh": ("FreshRows",),
    "history": ("History",),
    "problem": ("Problem",),
    "space": ("Space",),
    "loading": ("load_study",),
    "study": ("Study",),
    "simulation": ("simulate",),
    "engine.certificate": ("Certificate",),
    "engine.record": ("Best", "TrialRecord"),
    "engine.decision": ("Decision",),
    "engine.keep": ("Keep",),
    "engine.trial": ("Trial",),
    "runners.callbacks": ("Callback",),
    "runners.recording": ("Recording",),
    "samplers.sampler": ("Sampler",),
    "stoppers.stopper": ("Stopper", "StopperState"),
    "terminators.terminator": ("Terminator", "Verdict", "all_of", "any_of"),
}


def _by_name(*tables: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: home for table in tables for home, names in table.items() for name in names}


PUBLIC = _by_name(STORED, _OTHERS)
"""Every public name, with the module that defines it."""

_KINDS = _by_name(STORED, _STORED_ONLY)


def load(name: str, homes: Mapping[str, str] = PUBLIC) -> Any:
    """Import and return a public name."""
    return getattr(importlib.import_module(f"fairway.{homes[name]}"), name)


def kind(name: str) -> type[Any] | None:
    """The class that a study's JSON names; None if it is not listed.

    >>> kind("ACE").__name__, kind("os.system")
    ('ACE', None)
    """
    return load(name, _KINDS) if name in _KINDS else None
