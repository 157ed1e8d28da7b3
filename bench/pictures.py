"""Pictures of results: one look for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def figure(path: Path, panels: int) -> Iterator[Any]:
    """Axes side by side, to draw on; the picture is written at the end."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    drawn, axes = plt.subplots(1, panels, figsize=(5.5 * panels, 4.6), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    yield axes[0]
    drawn.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(drawn)
