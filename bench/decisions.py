"""A digest of every decision, to show that a change of the code changed none.

    python -m bench.decisions [--credit credit.npz] [--sst2 sst2.npz] [--compas ...] [--german ...] [--bank ...]

Run it in two checkouts and compare what it prints, line by line. Simulated studies of `bench.policies` (three settings
a recording, three seeds, every rule) and what each sampler proposes: a line holds the SHA-256 of the whole log, event
by event, with every number exact. Of a sentence it counts that there is one, not how it is worded; fields that a log
did not have before are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

import fairway as fw
from bench.papers.ace_tables import WORKERS
from bench.policies import OBJECTIVE, RECORDINGS, RULES, SAMPLERS, SETTINGS

ADDED = {"by_stopper", "means"}  # to `Told`, so that a summary equals the whole log
SENTENCES = ("reason", "verdict")  # may be worded anew; that there is one may not change
RENAMED = {"times_lost": "losses", "stop_reason": "verdict"}
SEEDS = 3
TRIALS = 40


def digest(study: fw.Study) -> str:
    """The SHA-256 of a study's log."""
    lines = []
    for event in study.log.read(0):
        content = {RENAMED.get(item.name, item.name): _exact(getattr(event, item.name)) for item in fields(event)}
        content = {name: value for name, value in content.items() if name not in ADDED}
        content |= {name: bool(content[name]) for name in SENTENCES if name in content}
        content.get("config", {}).pop("wording", None)
        lines.append(json.dumps([type(event).__name__, content], sort_keys=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _exact(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): _exact(item) for name, item in value.items()}
    return [_exact(item) for item in value] if isinstance(value, list | tuple) else value


def simulated(paths: dict[str, str]) -> Iterator[str]:
    for name in RECORDINGS:
        if name not in paths:
            continue
        recording, settings = fw.Recording.load(paths[name]), [each for each in SETTINGS if each.recording == name]
        for setting in (settings[0], settings[len(settings) // 2], settings[-1]):
            for rule, stopper in RULES.items():
                for seed in range(SEEDS):
                    study = fw.Study(
                        recording.space,
                        fw.Maximize(OBJECTIVE.get(name, "auc")),
                        [fw.AtMost(metric, limit) for metric, limit in setting.limits],
                        sampler=SAMPLERS[setting.sampler],
                        stopper=stopper,
                        seed=seed,
                    )
                    stale = 0.05 if seed == SEEDS - 1 else 0.0
                    fw.simulate(
                        study,
                        recording,
                        workers=WORKERS,
                        budget=setting.seconds,
                        constraint_price=setting.price,
                        staleness=stale,
                    )
                    yield f"{setting.label} | {rule} | seed {seed} | {digest(study)}"


def proposed() -> Iterator[str]:
    space = {
        "rate": fw.Float(1e-3, 1.0, log=True),
        "leaves": fw.Int(2, 512, log=True),
        "kind": fw.Choice(["plain", "dart", "goss"]),
        "drop": fw.Float(0.0, 0.5, when={"kind": "dart"}),
    }
    for sampler in (fw.Random(), fw.TPE(), fw.CTPE(), fw.GP(), fw.BORE(), fw.Blend()):
        for seed in range(SEEDS):
            study = fw.Study(space, fw.Minimize("loss"), [fw.AtMost("size", 60.0)], sampler=sampler, seed=seed)
            points = []
            for _ in range(TRIALS):
                trial = study.ask()
                params: dict[str, Any] = dict(trial.params)
                rate, leaves = params["rate"], params["leaves"]
                loss = abs(np.log(rate / 0.05)) + abs(np.log(leaves / 40)) / 3 + params.get("drop", 0.2)
                study.tell(trial, loss=float(loss), size=float(leaves * (1 + rate)))
                points.append({name: _exact(value) for name, value in trial.params.items()})
            text = json.dumps([points, [record.status for record in study.trials]], sort_keys=True)
            yield f"{sampler!r} | seed {seed} | {hashlib.sha256(text.encode()).hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in RECORDINGS:
        parser.add_argument(f"--{name}", help=f"the recording {name}.npz")
    paths = {name: path for name, path in vars(parser.parse_args()).items() if path}
    for line in proposed():
        print(line, flush=True)
    for line in simulated(paths):
        print(line, flush=True)


if __name__ == "__main__":
    main()
