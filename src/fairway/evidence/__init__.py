"""What fresh rows say about a limit: tests that hold their level, and bounds."""

from __future__ import annotations

from fairway.evidence.decisions import Decisions
from fairway.evidence.evidence import Evidence
from fairway.evidence.evidence import from_json as from_json
from fairway.evidence.evidence import rows_needed as rows_needed
from fairway.evidence.exact import Exact
from fairway.evidence.mean import Mean
from fairway.evidence.quantile import Quantile
from fairway.evidence.resampled import Resampled

__all__ = ["Decisions", "Evidence", "Exact", "Mean", "Quantile", "Resampled"]
