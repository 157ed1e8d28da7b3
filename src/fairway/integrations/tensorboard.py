"""fairway's studies in TensorBoard: an event file for each trial, with its curves and its row on the HParams page.

The events are made with TensorBoard's own package, without TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairway.engine.certificate import Certificate
from fairway.engine.record import Best
from fairway.errors import MissingDependency, UsageError
from fairway.integrations.tracking import Entry, Tracker, described, measured_at
from fairway.letters import plain
from fairway.parameters import Choice, Float, Int, Parameter
from fairway.study import Study

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2, summary_v2
    from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
    from tensorboard.plugins.text.metadata import create_summary_metadata as text_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto
except ImportError:
    needs = "fairway.integrations.tensorboard needs TensorBoard: pip install 'fairway[tensorboard]'"
    raise MissingDependency(needs) from None

__all__ = ["TensorBoardTracker"]

_DONE = "fairway-logged"  # a file beside the events of a trial that is logged to its end


class TensorBoardTracker(Tracker):
    """Logs a study to event files, for `study.optimize(callbacks=[...])` and `study.certify(callbacks=[...])`.

    In `folder`, every study has a folder of its own, named after it, with one for each trial: the trial's metrics by
    step, those of the checkpoint that represents it as `best/NAME`, its parameters, and whether it failed. So
    TensorBoard shows curves, and the HParams page a table of trials. The folder `study` in it has each new best, what
    the study is, and its certificate. A study that is resumed continues in its folder.

    >>> import fairway as fw
    >>> from fairway.integrations.tensorboard import TensorBoardTracker
    >>> tracker = TensorBoardTracker("runs")
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), name="credit")
    >>> study.optimize(lambda trial: trial.params["x"], trials=20, callbacks=[tracker])  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str] = "runs", *, report: bool = True) -> None:
        super().__init__(report=report)
        if not isinstance(folder, str | os.PathLike):
            raise UsageError(f"folder={folder!r}: the path of a folder is expected")
        self._root = self._folder = Path(folder)
        self._study: _Events | None = None
        self._texts: set[str] = set()  # parameters that are logged as texts

    @property
    def folder(self) -> Path:
        """The study's own folder, once its first trial has ended."""
        return self._folder

    def open(self, study: Study, key: str) -> Collection[int]:
        self._folder = self._root / re.sub(r"[^\w\-.]", "_", key)
        self._texts = {plain(name) for name, parameter in study.space.items() if _is_mixed(parameter)}
        if not (self._folder / "study").exists():
            hparams = [summary_v2.HParam(plain(name), _domain(parameter)) for name, parameter in study.space.items()]
            metrics = [summary_v2.Metric(f"best/{plain(name)}") for name in study.problem.metrics]
            about = "\n".join(f"| {name} | {text.replace('|', '/')} |" for name, text in described(study).items())
            self._write(summary_v2.hparams_config_pb(hparams, metrics))
            self._write(_text("study", f"| | |\n| --- | --- |\n{about}"))
        return {int(path.parent.name.removeprefix("trial-")) for path in self._folder.glob(f"trial-*/{_DONE}")}

    def log_trial(self, entry: Entry) -> None:
        name = f"trial-{entry.number:05d}"
        shutil.rmtree(self._folder / name, ignore_errors=True)  # what was left when it could not be written
        params = {each: str(value) if each in self._texts else value for each, value in entry.params.items()}
        with contextlib.closing(_Events(self._folder / name)) as events:
            events.write(summary_v2.hparams_pb(params, trial_id=name, start_time_secs=entry.began), at=entry.began)
            for step, at, row in entry.series:
                events.write(_scalars(row), step, at)
            last = entry.series[-1][0] if entry.series else 0
            events.write(_scalars(entry.result), last, entry.ended)
            words = "\n\n".join(f"**{what}**: {text}" for what, text in entry.texts.items() if text)
            events.write(_text("trial", words), at=entry.ended)
            events.write(_over(entry), at=entry.ended)
        (self._folder / name / _DONE).touch()

    def log_best(self, best: Best) -> None:
        self._write(_scalars(measured_at(best)), best.number)

    def log_end(self, results: Mapping[str, float], texts: Mapping[str, str]) -> None:
        trials = sum(int(n) for name, n in results.items() if name.startswith("trials/"))
        self._write(_scalars(results), trials)
        self._write(_text("result", "\n\n".join(f"**{name}**: {text}" for name, text in texts.items())), trials)

    def on_certificate(self, study: Study, certificate: Certificate) -> None:
        if self._is_open(study):
            self._write(_text("certificate", str(certificate)))
        super().on_certificate(study, certificate)

    def log_file(self, path: Path) -> None:
        shutil.copy(path, self._folder)

    def close(self) -> None:
        if self._study is not None:
            self._study.close()
            self._study = None

    def _write(self, summary: Any, step: int = 0) -> None:
        """Write something of the study itself."""
        self._study = self._study or _Events(self._folder / "study")
        self._study.write(summary, step)
        self._study.flush()


class _Events:
    """One event file."""

    def __init__(self, folder: Path) -> None:
        self._writer = EventFileWriter(str(folder))
        self.flush, self.close = self._writer.flush, self._writer.close

    def write(self, summary: Any, step: int = 0, at: float | None = None) -> None:
        self._writer.add_event(Event(wall_time=time.time() if at is None else at, step=step, summary=summary))


def _is_mixed(parameter: Parameter) -> bool:
    """Whether a parameter has options of several kinds, or None; TensorBoard shows those only as texts."""
    kinds = {type(option) for option in parameter.options} if isinstance(parameter, Choice) else {float}
    return len(kinds) > 1 or not kinds <= {bool, int, float, str}


def _domain(parameter: Parameter) -> Any:
    """A parameter's domain, in TensorBoard's terms."""
    if isinstance(parameter, Float):
        return summary_v2.RealInterval(float(parameter.low), float(parameter.high))
    if isinstance(parameter, Int):
        return summary_v2.IntInterval(int(parameter.low), int(parameter.high))
    assert isinstance(parameter, Choice)
    mixed = _is_mixed(parameter)
    texts = [plain(str(option)) if mixed or isinstance(option, str) else option for option in parameter.options]
    return summary_v2.Discrete(texts)


def _over(entry: Entry) -> Any:
    """The summary that says that a trial has ended."""
    status = STATUS_FAILURE if entry.status == "failed" else STATUS_SUCCESS
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=entry.ended)
    about = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=info))
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])


def _scalars(row: Mapping[str, float]) -> Any:
    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in row.items()])


def _text(tag: str, words: str) -> Any:
    """A text, which TensorBoard reads as Markdown."""
    tensor = make_tensor_proto(np.array([words.encode()], dtype=object))
    about = text_metadata(display_name=tag, description="")
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=tensor)])
