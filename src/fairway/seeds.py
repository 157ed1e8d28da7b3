"""One random stream per (study, trial, purpose), so that no draw depends on another part's draws."""

from __future__ import annotations

import zlib

import numpy as np


def _sequence(study_seed: int, number: int, purpose: str) -> np.random.SeedSequence:
    return np.random.SeedSequence((study_seed, number, zlib.crc32(purpose.encode())))


def stream(study_seed: int, number: int, purpose: str) -> np.random.Generator:
    """The generator for one trial and one purpose, the same on every machine.

    >>> float(stream(0, 3, "sampler").random()) == float(stream(0, 3, "sampler").random())
    True
    """
    return np.random.Generator(np.random.PCG64(_sequence(study_seed, number, purpose)))


def trial_seed(study_seed: int, number: int) -> int:
    """A 31-bit seed for a trial's own training code."""
    return int(_sequence(study_seed, number, "trial").generate_state(1)[0]) >> 1


def fresh_seed() -> int:
    """A seed from the operating system's entropy, short enough to retype."""
    return int(np.random.SeedSequence().generate_state(1)[0])
