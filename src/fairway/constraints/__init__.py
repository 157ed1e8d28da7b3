"""Ready-made metrics to constrain: fairness, behavioural tests, latency and size."""

from __future__ import annotations

from fairway.constraints.behaviour import (
    Directional,
    Invariance,
    MinimumFunctionality,
    failed_cases,
    failure_rate,
    failures,
)
from fairway.constraints.checklist import load_cases
from fairway.constraints.cost import latency, model_size
from fairway.constraints.fairness import (
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equalized_odds_difference,
    equalized_odds_ratio,
    group_gap,
)
from fairway.constraints.resampling import bootstrap

__all__ = [
    "Directional",
    "Invariance",
    "MinimumFunctionality",
    "bootstrap",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "failed_cases",
    "failure_rate",
    "failures",
    "group_gap",
    "latency",
    "load_cases",
    "model_size",
]
