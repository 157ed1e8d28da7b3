"""The picture of learning curves in the documentation: a search on recorded trainings, with the defaults of fairway.

Made by `python -m bench.learning_curves docs/assets/curves.png`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fairway as fw
from fairway.report import plots

RECORDING = Path(__file__).parent / "recordings" / "credit.npz"
SHOWN = 30  # first trials, and the best


def draw(path: Path) -> None:
    """Search, and write the picture."""
    recording = fw.Recording.load(RECORDING)
    study = fw.Study(recording.space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    fw.simulate(study, recording)
    assert study.best is not None
    plots.curves(study, trials=sorted({*range(SHOWN), study.best.number})).save(path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
