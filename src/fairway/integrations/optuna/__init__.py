"""fairway inside Optuna: its samplers, its stoppers as a pruner that knows constraints, its terminators.

And studies carried across: `from_optuna` goes on here with a study that began there, `to_optuna` opens a study of ours
in Optuna and its dashboard. Optuna's convention holds throughout: a constraint is met where its value is at most 0.
What was never measured is unknown, and unknown is never feasible.
"""

from __future__ import annotations

from fairway.errors import MissingDependency

try:
    import optuna  # noqa: F401 - all that follows needs it
except ImportError:
    raise MissingDependency("fairway.integrations.optuna needs Optuna: pip install 'fairway[optuna]'") from None

from fairway.integrations.optuna.carry import from_optuna, to_optuna
from fairway.integrations.optuna.history import UNKNOWN
from fairway.integrations.optuna.pruner import ACEPruner, FairwayPruner, report
from fairway.integrations.optuna.samplers import CTPESampler, FairwaySampler, GPSampler
from fairway.integrations.optuna.terminator import terminate_when

__all__ = [
    "UNKNOWN",
    "ACEPruner",
    "CTPESampler",
    "FairwayPruner",
    "FairwaySampler",
    "GPSampler",
    "from_optuna",
    "report",
    "terminate_when",
    "to_optuna",
]
