"""Ready-made metrics to constrain: fairness, behavioural tests, latency and size."""

from __future__ import annotations

from fairway.constraints.behaviour import Directional, Invariance, MinimumFunctionality, failure_rate, failures
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

__all__ = [
    "Directional",
    "Invariance",
    "MinimumFunctionality",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "failure_rate",
    "failures",
    "group_gap",
    "latency",
    "load_cases",
    "model_size",
]
