"""Evidence for a number without noise, such as a model's size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairway.checks import is_number, short
from fairway.errors import UsageError
from fairway.evidence.evidence import Cells, Evidence
from fairway.problem import Constraint


class Exact(Evidence):
    """A number without noise, such as the size of a model: the limit is kept or not.

    >>> import fairway as fw
    >>> from fairway.evidence import Exact
    >>> Exact(4096).p_value(fw.AtMost("bytes", 5000)), Exact(4096).p_value(fw.AtMost("bytes", 4000))
    (0.0, 1.0)
    """

    kind = "exact"

    def __init__(self, value: float) -> None:
        if not is_number(value):
            raise UsageError(f"value={short(value)}: a number is expected")
        self._keep(float(value))

    def _keep(self, value: float) -> None:
        self.value, self.rows, self.error = value, 0, 0.0

    def cells(self) -> Cells:
        return {}

    def _p_value(self, constraint: Constraint) -> float:
        return 0.0 if constraint.sign * (self.value - constraint.threshold) <= 0 else 1.0  # NaN breaks every limit

    def _bound(self, constraint: Constraint, level: float) -> float:  # noqa: ARG002 - the same at every level
        return constraint.sign * math.inf if math.isnan(self.value) else self.value

    def _least_p(self, constraint: Constraint, scale: float) -> float:  # noqa: ARG002 - it takes no rows
        return 0.0

    def _to_json(self) -> dict[str, Any]:
        return {"value": self.value if math.isfinite(self.value) else str(self.value)}

    def _read(self, data: Mapping[str, Any]) -> None:
        self._keep(float(data["value"]))
