"""What a Ctrl-C does to a search, here and in peers: what is raised, and what is kept of what was finished.

    python -m bench.ctrl_c [--out bench/results/ctrl_c.md]

Each runs in a process of its own, which sends itself SIGINT in its fourth training, as a terminal would. Lightning
searches nothing: there it is the fourth epoch of one training. Whoever is not installed is left out (lightning 2.6
needs torch, and neither is in the `dev` extra).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_HEAD = """
import os, signal
trainings = 0
def train(*_):
    global trainings
    trainings += 1
    if trainings == 4:
        os.kill(os.getpid(), signal.SIGINT)
    return 0.5
"""
_TAIL = """
try:
    search()
    raised = "nothing"
except BaseException as error:
    raised = type(error).__name__
print(raised, kept())
"""
SEARCHES = {
    "fairway": """
import fairway as fw
study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"))
def search(): study.optimize(train, trials=10, progress=False)
def kept(): return sum(trial.status == "completed" for trial in study.trials)
""",
    "optuna": """
import optuna
study = optuna.create_study()
def search(): study.optimize(train, n_trials=10)
def kept(): return len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
""",
    "scikit-learn": """
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
model = GridSearchCV(DummyClassifier(), {"random_state": range(10)}, scoring=train, cv=[([0, 1], [2, 3])], refit=False)
def search(): model.fit(np.zeros((4, 1)), [0, 1, 0, 1])
def kept(): return len(getattr(model, "cv_results_", {"params": []})["params"])
""",
    "lightning": """
import tempfile, lightning, torch
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, rows, i):
        return train() * self.layer(rows).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters())
trainer = lightning.Trainer(
    max_epochs=10, logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    default_root_dir=tempfile.mkdtemp(),
)
def search(): trainer.fit(Model(), torch.utils.data.DataLoader(torch.zeros(1, 1)))
def kept(): return trainer.current_epoch
""",
}


def measure(search: str) -> tuple[str, int]:
    """The exception that a Ctrl-C ends a search with, and how many of its finished trainings it keeps."""
    script = _HEAD + SEARCHES[search] + _TAIL
    run = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    raised, kept = run.stdout.split()[-2:]
    return raised, int(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/results/ctrl_c.md"))
    given = parser.parse_args()
    lines = ["# Ctrl-C in the fourth training of a search", "", "| | raises | keeps of 3 |", "| --- | --- | --- |"]
    for search in SEARCHES:
        try:
            version = metadata.version(search)
        except metadata.PackageNotFoundError:
            print(f"{search} is not installed, and left out")
            continue
        raised, kept = measure(search)
        lines.append(f"| {search} {version} | `{raised}` | {kept} |")
    lines += ["", "lightning trains one model: its fourth epoch was interrupted."]
    text = "\n".join(lines) + "\n"
    print(text)
    given.out.write_text(text)


if __name__ == "__main__":
    main()
