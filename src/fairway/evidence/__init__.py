"""What fresh rows say about a limit: tests that hold their level, and bounds."""

from __future__ import annotations

from fairway.evidence.costs import Exact, Quantile
from fairway.evidence.decisions import Decisions
from fairway.evidence.evidence import Evidence, from_json, rows_needed
from fairway.evidence.mean import Mean
from fairway.evidence.resampled import Resampled

__all__ = ["Decisions", "Evidence", "Exact", "Mean", "Quantile", "Resampled", "from_json", "rows_needed"]
