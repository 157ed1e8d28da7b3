"""fairway's studies in Weights & Biases: a group of runs for the study, one for each trial and one for the whole."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from fairway.checks import one_of
from fairway.engine.record import Best
from fairway.errors import MissingDependency, UsageError
from fairway.integrations.tracking import Entry, Tracker, described, measured_at
from fairway.study import Study

try:
    import wandb
except ImportError:
    raise MissingDependency("fairway.integrations.wandb needs Weights & Biases: pip install 'fairway[wandb]'") from None

__all__ = ["WandbTracker"]


class WandbTracker(Tracker):
    """Logs a study to Weights & Biases, for `study.optimize(callbacks=[...])` and `study.certify(callbacks=[...])`.

    The study becomes a group of runs in the `project`. Each trial is a run: its parameters as configuration, its
    metrics by step, those of the checkpoint that represents it as `best/NAME` in the summary, and why it ended. One
    more run for each process that opens the study, of type "study", has each new best, and the report and the
    certificate as artifacts. Trials of earlier runs of a resumed study are not logged. `mode="offline"` writes to
    `folder`, for `wandb sync` later; by default WANDB_MODE says which.

    >>> import fairway as fw
    >>> from fairway.integrations.wandb import WandbTracker
    >>> tracker = WandbTracker("credit", mode="offline")
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), name="credit")
    >>> study.optimize(lambda trial: trial.params["x"], trials=20, callbacks=[tracker])  # doctest: +SKIP
    """

    def __init__(
        self,
        project: str = "fairway",
        *,
        entity: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        folder: str | os.PathLike[str] | None = None,
        report: bool = True,
    ) -> None:
        super().__init__(report=report)
        if not isinstance(project, str) or not project.strip():
            raise UsageError(f"project={project!r}: the name of a W&B project is expected")
        if mode is not None:
            one_of(mode, "mode", options=("online", "offline", "disabled"))
        self._settings: dict[str, Any] = {"project": project, "entity": entity, "mode": mode, "dir": folder}
        self._id = self._group = self._process = ""
        self._about: Mapping[str, str] = {}
        self._run: Any = None  # the study's, while it is open

    def on_run_start(self, study: Study) -> None:  # noqa: ARG002
        """Log nothing: offline, it cannot know which earlier trials are missing."""
        self._missed = []

    def open(self, study: Study, key: str) -> Collection[int]:
        self._id, self._group, self._about = re.sub(r"[^\w\-]", "_", key)[-100:], study.name, described(study)
        self._process = f"study-{study.owner.referee.worker}"
        return ()

    def log_trial(self, entry: Entry) -> None:
        run = self._begin("trial", str(entry.number), f"trial {entry.number}", dict(entry.params), [entry.status])
        try:
            for step, at, row in entry.series:
                run.log({**row, "_timestamp": at}, step=step)
            run.summary.update({**entry.result, **entry.texts})
        finally:
            run.finish(exit_code=1 if entry.status == "failed" else 0)

    def log_best(self, best: Best) -> None:
        self._of_study().log({"trial": best.number, **measured_at(best)})

    def log_end(self, results: Mapping[str, float], texts: Mapping[str, str]) -> None:
        self._of_study().summary.update({**results, **texts})

    def log_file(self, path: Path) -> None:
        artifact = wandb.Artifact(f"{self._id}-{path.stem}", type=path.stem)
        artifact.add_file(str(path))
        self._of_study().log_artifact(artifact)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _of_study(self) -> Any:
        self._run = self._run or self._begin("study", self._process, self._group, dict(self._about), [])
        return self._run

    def _begin(self, kind: str, which: str, name: str, config: dict[str, Any], tags: list[str]) -> Any:
        return wandb.init(
            **self._settings,
            id=f"{self._id}-{which}",
            name=name,
            group=self._group,
            job_type=kind,
            config=config,
            tags=tags,
            resume=None if self._settings["mode"] == "offline" else "allow",
            reinit="create_new",  # beside a run of the user's
            settings=wandb.Settings(console="off", silent=True),
        )
