"""A real PostgreSQL that is stopped while a study runs, and started again."""

from __future__ import annotations

import random
import tempfile
import threading
from pathlib import Path

import pytest

import fairway as fw
from fairway.engine.verify import verify
from fairway.storage.sql import Database
from tests import faults
from tests.conftest import SPACE, within


@pytest.fixture(scope="module")
def folder():
    """Of a server of its own: nobody else's tests may lose theirs."""
    with tempfile.TemporaryDirectory() as place, faults.postgres(Path(place) / "postgres") as uri:
        faults.spare_the_disk(uri)
        yield Path(place) / "postgres"


@pytest.fixture
def url(folder):
    return faults.make_database(faults.get_server(folder).get_uri())


def open_study(url, **more):
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(), storage=url, name="credit", seed=0, **more)


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_training_continues_while_the_server_is_down_and_a_tell_waits_for_it(folder, url, how):
    study = open_study(url)
    trial = study.ask()
    with within(120):
        with faults.away(folder, how):
            for step in range(500):
                trial.report(auc=step / 1000, eod=0.1)
                study.owner.journal.drain(trial.driver.batch)
            telling = threading.Thread(target=study.tell, args=(trial,))
            telling.start()
            telling.join(0.2)
            assert study.counts["running"] == 1
        telling.join()
    again = open_study(url)
    assert again.trials == study.trials
    assert (again.trials[0].status, again.trials[0].steps) == ("completed", 500)
    assert verify(again.log.read()).faults == []


def test_a_server_that_stays_away_ends_the_run_and_what_was_told_can_be_saved(folder, url, tmp_path):
    study = open_study(url, patience=0.5)

    def train(trial):
        return {"auc": trial.params["x"], "eod": 0.1}

    study.optimize(train, trials=5)
    with faults.away(folder):
        with within(60), pytest.raises(fw.StorageError, match=r"patience=0.5.*study.save_as"):
            study.optimize(train, trials=5)
        study.save_as(f"sqlite:///{tmp_path}/saved.db", "elsewhere")
    (stored,) = Database(f"sqlite:///{tmp_path}/saved.db").studies()
    assert stored.name == "elsewhere"
    assert len(study.trials) == 5


@pytest.mark.parametrize("scenario", ["several owners", "a worker process"])  # `make faults` has the others
def test_nothing_told_is_lost_by_a_kill_while_the_server_restarts(folder, url, scenario):
    with faults.restarted(folder, every=2.0):
        faults.fault(scenario, url, random.Random(7))
