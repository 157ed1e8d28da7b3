"""fairway inside Optuna: its samplers, its stoppers as a pruner that knows constraints, its terminators.

Studies can move, too: `from_optuna` continues an Optuna study here, `to_optuna` opens a study of ours in Optuna and its
dashboard. Optuna's convention holds throughout: a constraint is satisfied if its value is at most 0. What was never
measured is unknown, and unknown is never feasible.
"""

from __future__ import annotations

from fairway.errors import MissingDependency

try:
    import optuna  # noqa: F401 - all that follows needs it
except ImportError:
    raise MissingDependency("fairway.integrations.optuna needs Optuna: pip install 'fairway[optuna]'") from None

from fairway.integrations.optuna.pruner import ACEPruner, FairwayPruner, report
from fairway.integrations.optuna.search import (
    CTPESampler,
    FairwaySampler,
    GPSampler,
    from_optuna,
    terminate_when,
    to_optuna,
)
from fairway.integrations.optuna.table import UNKNOWN

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
