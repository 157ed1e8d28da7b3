"""Records LightGBM on a public table, round by round, so that stoppers can be judged on curves nobody chose them by.

    python -m bench.record compas --data FOLDER -o compas.npz [--configurations 400]

FOLDER and the tables are those of bench.practitioner. Configurations are random; a round's seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fairway as fw
from bench.practitioner import DATASETS, SPACE, Task
from bench.runs import space_columns

SEED = 2_000_003
PARAMETERS: dict[str, fw.Int | fw.Float] = {**SPACE, "n_estimators": fw.Int(4, 512, log=True)}


def record(name: str, folder: Path, configurations: int, path: Path) -> None:
    """Train them all and write the recording."""
    task, space = Task(name, folder, math.inf), fw.Space(PARAMETERS)
    task.start()
    rng = np.random.default_rng(SEED)
    rows: list[tuple[float, float, float]] = []
    config, total, offset = [], [], [0]
    for k in range(configurations):
        params: dict[str, Any] = dict(space.decode(rng.random(len(space))))
        rounds = int(params["n_estimators"])
        config.append([float(params[parameter]) for parameter in space])
        booster, began = task.booster({key: params[key] for key in SPACE}), time.process_time()
        for _ in task.rounds(booster, rounds):
            checkpoint = task.checkpoint(booster)
            spent = time.process_time() - began
            rows.append((checkpoint.auc, checkpoint.eod(), spent))
            began = time.process_time()
        total.append(rounds)
        offset.append(len(rows))
        if sys.stderr.isatty() or (k + 1) % 50 == 0:
            sys.stderr.write(f"\r{k + 1} of {configurations} configurations, {len(rows):,} rounds")
            sys.stderr.flush()
    sys.stderr.write("\n")
    auc, eod, seconds = np.array(rows).T
    np.savez_compressed(
        path,
        config=np.array(config),
        total_steps=np.array(total),
        offset=np.array(offset),
        auc=auc,
        eod=eod,
        seconds=seconds,
        **space_columns(space),
    )
    print(f"{path}: {configurations} configurations, {len(rows):,} rounds, {seconds.sum():.0f} s of training")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*DATASETS])
    parser.add_argument("--data", default=os.environ.get("FAIRWAY_DATA", ""), help="the folder of the tables")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--configurations", type=int, default=400)
    given = parser.parse_args()
    folder = Path(given.data).expanduser()
    if not given.data or not all((folder / part).is_dir() for part in ("uci_credit_card", "fairness_tabular")):
        where = f"{folder} does not hold them" if given.data else "pass --data FOLDER or set FAIRWAY_DATA"
        parser.exit(2, f"record: it needs uci_credit_card/ and fairness_tabular/; {where}\n")
    record(given.table, folder, given.configurations, given.output)


if __name__ == "__main__":
    main()
