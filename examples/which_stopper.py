"""Compares stopping rules over the same time: their trials, their checks, the best result, and a picture.

    python examples/which_stopper.py [recording.npz] [--objective auc] [--limit eod=0.25] [--price 1.94] [--seconds 4]

Training is not run but replayed from a recording in virtual time; the repository includes one of credit models.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import fairway as fw
from fairway.report import plots
from fairway.report.chart import Chart, Panel

INCLUDED = Path(__file__).parent.parent / "bench" / "recordings" / "credit.npz"
RULES: dict[str, fw.Stopper] = {
    "Never": fw.Never(),
    "ASHA": fw.ASHA(),
    "ASHA strata": fw.ASHA(strata=True),
    "ACE": fw.ACE(),
    "ACE hard": fw.ACE(tolerance="hard"),
    "Pilot": fw.Pilot(),
}


def search(recording: fw.Recording, stopper: fw.Stopper, seed: int, given: argparse.Namespace) -> fw.Study:
    """One study in virtual time; all rules see the same configurations in the same order."""
    metric, limit = given.limit.split("=")
    constraints = [fw.AtMost(metric, float(limit))]
    study = fw.Study(
        recording.space, fw.Maximize(given.objective), constraints, sampler=fw.Random(), stopper=stopper, seed=seed
    )
    fw.simulate(study, recording, workers=4, budget=given.seconds, constraint_price=given.price)
    return study


def panel(name: str, study: fw.Study) -> Panel:
    """The learning curves of one study, labelled with its rule."""
    drawn = plots.curves(study).panels[0]
    return replace(drawn, x=replace(drawn.x, title=f"step, {name}: {len(study.trials)} trials"))


def main() -> None:
    """Compare the rules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, default=INCLUDED)
    parser.add_argument("--objective", default="auc")
    parser.add_argument("--limit", default="eod=0.25", help="a metric and its upper limit")
    parser.add_argument("--price", type=float, default=1.94, help="cost of one check, in training steps")
    parser.add_argument("--seconds", type=float, default=4.0, help="virtual search time")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--picture", type=Path, help="file to draw to: .png, .svg, .pdf or .html")
    given = parser.parse_args()
    recording, panels = fw.Recording.load(given.recording), []
    print(f"{given.limit.replace('=', ' <= ')}, {given.seconds:g} s of 4 workers, {given.seeds} seeds")
    print(f"{'rule':<12} {'best feasible ' + given.objective:>22} {'trials':>7} {'checks':>7}")
    for name, stopper in RULES.items():
        studies = [search(recording, stopper, seed, given) for seed in range(given.seeds)]
        found = np.array([np.nan if s.best is None else s.best.metrics[given.objective] for s in studies], float)
        error = np.nanstd(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
        trials, checks = (
            np.mean(counts) for counts in zip(*((len(s.trials), s.costs.checks) for s in studies), strict=True)
        )
        missed = f" ({int(np.isnan(found).sum())} found none)" if np.isnan(found).any() else ""
        print(f"{name:<12} {np.nanmean(found):>13.4f} ± {error:.4f} {trials:>7.0f} {checks:>7.0f}{missed}")
        panels.append(panel(name, studies[0]))
    if given.picture is not None:
        caption = "Each curve is a trial, coloured by its feasibility; a square marks where one was stopped."
        Chart("which-stopper", "The same time under each rule", caption, panels).save(given.picture)
        print(f"wrote {given.picture}")


if __name__ == "__main__":
    main()
