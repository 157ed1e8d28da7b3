"""Exceptions as no library expects them: the trial fails with a reason, and the run goes on."""

from __future__ import annotations

import pytest

from fairway.engine.verify import verify
from tests.attack.texts import is_plain
from tests.conftest import within


def fails(trial):
    """Succeed once, then fail in one way after another; all of it is here, so that it travels to a worker."""
    import sys

    class Mute(Exception):  # noqa: N818
        def __str__(self):
            raise SystemExit(3)

    class Long(Exception):  # noqa: N818
        def __str__(self):
            return "x" * 5_000_000

    class Wrong(Exception):  # noqa: N818
        def __str__(self):
            return 5  # noqa: PLE0307

    class Poisoned(Exception):  # noqa: N818
        def __reduce__(self):
            return sys.exit, (4,)

    class Unhashable(Exception):  # noqa: N818
        __hash__ = None

    errors = [
        Mute(),
        Long(),
        Wrong(),
        Poisoned("no"),
        Unhashable("no"),
        ValueError("\x1b[31m\udc80\x00"),
        ExceptionGroup("\x1b", [ValueError("a"), Mute()]),
        StopIteration(),
        MemoryError(),
        RecursionError("deep"),
    ]
    if trial.number:
        raise errors[trial.number - 1]
    return {"auc": 0.5, "eod": 0.1}


@pytest.mark.parametrize("backend", [None, "thread", "process"])
def test_a_strange_exception_fails_its_trial_and_not_the_run(make_study, backend, caplog):
    study = make_study()
    with within(60):
        study.optimize(fails, trials=11, workers=1, backend=backend)
    assert study.counts == {"running": 0, "completed": 1, "stopped": 0, "failed": 10}
    assert [trial.reason.partition(":")[0] for trial in study.trials[1:]] == [
        *("Mute", "Long", "Wrong", "Poisoned", "Unhashable"),
        *("ValueError", "ExceptionGroup", "StopIteration", "MemoryError", "RecursionError"),
    ]
    assert max(len(trial.reason) for trial in study.trials) < 10_100
    assert all(is_plain(record.getMessage()) for record in caplog.records)
    assert verify(study.log.read()).faults == []
