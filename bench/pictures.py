"""Pictures of results: one look for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def figure(path: Path, panels: int) -> Iterator[Any]:
    """Axes side by side, more than three in two rows, to draw on; the picture is written at the end."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    rows = 1 if panels <= 3 else 2
    across = -(-panels // rows)
    size = (5.5 * across, 4.6 * rows)
    drawn, axes = plt.subplots(rows, across, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    for spare in axes.flat[panels:]:
        spare.set_axis_off()
    yield axes.flat[:panels]
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)
