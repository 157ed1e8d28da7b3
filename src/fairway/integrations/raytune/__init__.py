"""fairway inside Ray Tune: its stoppers as a scheduler, its samplers as a searcher, its terminators as a stopper.

Each can be used alone, beside Tune's own parts. A `Problem` says which of a result's metrics is the objective, which
are constraints, and their limits. A metric that a result lacks, or that is NaN, is unknown, and never feasible.
"""

from __future__ import annotations

from fairway.errors import MissingDependency

try:
    import ray.tune  # noqa: F401 - all that follows needs it
except ImportError:
    raise MissingDependency("fairway.integrations.raytune needs Ray Tune: pip install 'fairway[ray]'") from None

from fairway.integrations.raytune.parts import SamplerSearch, StopperScheduler, TerminatorStopper
from fairway.integrations.raytune.report import report

__all__ = ["SamplerSearch", "StopperScheduler", "TerminatorStopper", "report"]
