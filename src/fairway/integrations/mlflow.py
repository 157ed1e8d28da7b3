"""fairway's studies in MLflow: a run for the study, and a run inside it for each trial.

It uses only `MlflowClient`, which keeps no state in the process: a run that you have started yourself stays the active
one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairway.engine.events import Status
from fairway.engine.record import Best
from fairway.errors import MissingDependency, UsageError
from fairway.integrations.tracking import Entry, Tracker, described, measured_at
from fairway.storage.access import public
from fairway.study import Study

try:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, Run, RunTag
except ImportError:
    raise MissingDependency("fairway.integrations.mlflow needs MLflow: pip install 'fairway[mlflow]'") from None

__all__ = ["MLflowTracker"]

_STATUS: dict[Status, str] = {"completed": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
_SETTLE_SECONDS = 1.0  # for other processes, which made a run for the same study at the same moment, to be seen
_MOST = 1000  # metrics in one call
_MOST_TEXTS = 100  # parameters or tags in one call


class MLflowTracker(Tracker):
    """Logs a study to MLflow, for `study.optimize(callbacks=[...])` and `study.certify(callbacks=[...])`.

    The study becomes a run of the `experiment`: its goal, limits and algorithms as parameters, each new best as a
    metric, the report and the certificate as artifacts. Each trial becomes a run inside it: its parameters, its metrics
    by step, those of the checkpoint that represents it as `best/NAME`, and how and why it ended as tags.

    `tracking_uri` is MLflow's, such as "sqlite:///mlflow.db" or a server's address; by default the one that MLflow is
    set to. A study that is resumed continues its run, and several processes that share a study share the run.

    >>> import fairway as fw
    >>> from fairway.integrations.mlflow import MLflowTracker
    >>> tracker = MLflowTracker("credit", tracking_uri="sqlite:///mlflow.db")
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), name="credit")
    >>> study.optimize(lambda trial: trial.params["x"], trials=20, callbacks=[tracker])  # doctest: +SKIP
    """

    def __init__(self, experiment: str = "fairway", *, tracking_uri: str | None = None, report: bool = True) -> None:
        super().__init__(report=report)
        if not isinstance(experiment, str) or not experiment.strip():
            raise UsageError(f"experiment={experiment!r}: the name of an MLflow experiment is expected")
        self._experiment_name, self._uri = experiment, tracking_uri
        self._client: Any = None
        self._tag = self._experiment = self._run = ""  # of the study; the others' ids
        self._begun: dict[int, str] = {}  # runs of trials that are not logged to their end

    def __str__(self) -> str:
        """The name with the address, which a message about a server should give."""
        return super().__str__() if self._uri is None else f"{super().__str__()} at {public(self._uri)}"

    @property
    def run_id(self) -> str:
        """The id of the study's run; empty before its first trial has ended."""
        return self._run

    def open(self, study: Study, key: str) -> Collection[int]:
        self._client = client = self._client or MlflowClient(tracking_uri=self._uri)
        found = client.get_experiment_by_name(self._experiment_name)
        self._experiment = client.create_experiment(self._experiment_name) if found is None else found.experiment_id
        self._tag = re.sub(r"['\"\\]", "_", key)  # as a filter of MLflow takes it
        runs = self._runs()
        trials = {int(run.data.tags["fairway.trial"]): run for run in runs if "fairway.trial" in run.data.tags}
        self._run = _first(runs) or self._begin(study)
        client.update_run(self._run, status="RUNNING")
        self._begun = {number: run.info.run_id for number, run in trials.items() if run.info.status == "RUNNING"}
        return trials.keys() - self._begun.keys()

    def _runs(self, also: str = "") -> list[Run]:
        """The runs of the study and its trials, or those of them that `also` matches."""
        wanted = f"tags.`fairway.study` = '{self._tag}'{also}"
        found = self._client.search_runs([self._experiment], wanted)
        runs = list(found)
        while found.token:
            found = self._client.search_runs([self._experiment], wanted, page_token=found.token)
            runs += found
        return runs

    def _begin(self, study: Study) -> str:
        """Create a run for the study; processes that do so at once all settle on the same one."""
        about, began = described(study), study.owner.ledger.courses[0].began
        tags = {"fairway.study": self._tag, "mlflow.note.content": about["goal"]}
        run = self._client.create_run(self._experiment, _ms(began), tags=tags, run_name=study.name)
        mine = str(run.info.run_id)
        self._log(mine, params=about)
        if study.log.leases is None:  # it is in memory: nobody else can know it
            return mine
        time.sleep(_SETTLE_SECONDS)
        first = _first(self._runs())
        if first != mine:
            self._client.delete_run(mine)
        return first

    def log_trial(self, entry: Entry) -> None:
        if entry.number not in self._begun:
            if self._runs(f" and tags.`fairway.trial` = '{entry.number}'"):
                return  # another process has just found it missing
            tags = {
                "fairway.study": self._tag,
                "fairway.trial": str(entry.number),
                "mlflow.parentRunId": self._run,
            }
            name = f"trial {entry.number}"
            run = self._client.create_run(self._experiment, _ms(entry.began), tags=tags, run_name=name)
            self._begun[entry.number] = run.info.run_id
        run_id = self._begun[entry.number]
        last = entry.series[-1][0] if entry.series else 0
        metrics = [*entry.series, (last, entry.ended, entry.result)]
        texts = {f"fairway.{name}": text for name, text in entry.texts.items()}
        self._log(run_id, metrics, {name: str(value) for name, value in entry.params.items()}, texts)
        self._client.set_terminated(run_id, _STATUS[entry.status], _ms(entry.ended))
        del self._begun[entry.number]

    def log_best(self, best: Best) -> None:
        self._log(self._run, [(best.number, time.time(), measured_at(best))])

    def log_end(self, results: Mapping[str, float], texts: Mapping[str, str]) -> None:
        trials = sum(int(n) for name, n in results.items() if name.startswith("trials/"))
        tags = {f"fairway.{name}": text for name, text in texts.items()}
        self._log(self._run, [(trials, time.time(), results)], tags=tags)

    def log_file(self, path: Path) -> None:
        self._client.log_artifact(self._run, str(path))

    def close(self) -> None:
        self._client.set_terminated(self._run, "FINISHED")

    def _log(
        self,
        run: str,
        metrics: Sequence[tuple[int, float, Mapping[str, float]]] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log in as few calls as MLflow allows."""
        points = [Metric(_name(name), value, _ms(at), step) for step, at, row in metrics for name, value in row.items()]
        given = [Param(_name(name), text) for name, text in (params or {}).items()]
        marks = [RunTag(_name(name), text) for name, text in (tags or {}).items()]
        for i in range(0, max(len(given), len(marks)), _MOST_TEXTS):
            self._client.log_batch(run, params=given[i : i + _MOST_TEXTS], tags=marks[i : i + _MOST_TEXTS])
        for i in range(0, len(points), _MOST):
            self._client.log_batch(run, metrics=points[i : i + _MOST])


def _first(runs: Sequence[Run]) -> str:
    """The id of the study's own run; empty if there is none."""
    return min((str(run.info.run_id) for run in runs if "fairway.trial" not in run.data.tags), default="")


def _name(name: str) -> str:
    """A name that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", name)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
