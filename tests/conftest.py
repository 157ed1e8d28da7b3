"""Shared pieces of the tests: small problems, recordings and a way to run given curves through a study."""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import fairway as fw
from fairway.engine.clock import VirtualClock
from tests import faults

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before LightGBM is loaded: its threads wait for each other

settings.register_profile("fairway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fairway")

SPACE = LINE = {"x": fw.Float(0.0, 1.0)}
TERMINATORS = [
    fw.Plateau(3),
    fw.Target(0.2),
    fw.ExpectedImprovementBelow(0.01),
    fw.ProbabilityOfImprovementBelow(0.01),
    fw.any_of(fw.Plateau(3), fw.Target(0.2)),
    fw.all_of(fw.Plateau(3), fw.any_of(fw.RegretBound("cv", factor=2.0), fw.Target(0.2))),
]


GROUPS = {  # whose tests share what takes seconds to start
    "Ray": re.compile(r"tests/runners/test_ray\.py|tests/integrations/test_raytune\.py|_run_in_ray_"),
    "MLflow": re.compile(r"tests/integrations/test_mlflow\.py"),
    "the site": re.compile(r"tests/test_site\.py"),
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A group goes to one process as a whole, the largest first; every other test to whichever process is free."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((name for name, tests in GROUPS.items() if tests.search(nodeid)), nodeid)

    return Groups(config, log)


def pytest_collection_modifyitems(items):
    """What needs a Ray comes first and together: it is ended when a test comes that does not."""
    items.sort(key=lambda item: "local_ray" not in getattr(item, "fixturenames", ()))


def pytest_runtest_teardown(item, nextitem):
    if "local_ray" in getattr(item, "fixturenames", ()) and "local_ray" not in getattr(nextitem, "fixturenames", ()):
        shut_ray_down()


@pytest.fixture
def local_ray():
    """A Ray on this machine, one for all tests that ask for it: a cluster to which nodes may be added."""
    ray = pytest.importorskip("ray")
    if not ray.is_initialized():
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "include_dashboard": False, "resources": {"place": 1}}
        CLUSTER.append(Cluster(initialize_head=True, head_node_args=head))
        ray.init(CLUSTER[0].address, logging_level="ERROR", log_to_driver=False)
    return CLUSTER[0]


CLUSTER = []  # the one of this process


@pytest.fixture
def ctrl_c():
    """Ctrl-C raises KeyboardInterrupt: a shell has it ignored in its background, and Ray Tune takes it over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def server(testrun_uid):
    """A real PostgreSQL, one for all processes that run tests.

    Its folder is not pytest's: another run of tests by the same person would lock its user out of that one.
    """
    with faults.postgres(Path(tempfile.gettempdir()) / f"fairway-postgres-{testrun_uid}") as uri:
        faults.spare_the_disk(uri)
        yield uri


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.db'}"
    return faults.make_database(request.getfixturevalue("server"))


@pytest.fixture
def make_study():
    """A study of auc under eod <= 0.25, on one parameter, by random search."""

    def make(stopper=None, constraints=(fw.AtMost("eod", 0.25),), objective=fw.Maximize("auc"), **more):
        return fw.Study(SPACE, objective, constraints, stopper=stopper, seed=0, **{"sampler": fw.Random(), **more})

    return make


@contextmanager
def within(seconds):
    """Fail what takes longer."""

    def late(*_):
        raise AssertionError(f"it still ran after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_curves(study, curves, *, lazy=True):
    """Run each curve, a list of (auc, {constraint: value}), as one trial; returns the decisions of each trial."""
    everything = []
    for curve in curves:
        trial, decisions = study.ask(), []
        for step in trial.steps(len(curve)):
            objective, constraints = curve[step - 1]
            if isinstance(study.owner.clock, VirtualClock):
                study.owner.clock.now += 1000  # training takes time, checks next to none
            offers = {name: (lambda value=value: value) if lazy else value for name, value in constraints.items()}
            decisions.append(trial.report({study.problem.objective.metric: objective, **offers}))
        study.tell(trial)
        everything.append(decisions)
    return everything


def judged(terminator, **more):
    """A study of one loss on one parameter, with a terminator, by random search."""
    kinds = {"sampler": fw.Random(), "seed": 0, **more}
    return fw.Study(LINE, fw.Minimize("loss"), terminator=terminator, **kinds)


def flush(study):
    """Have the study's log, and what is folded from it, hold all that running trials have reported."""
    study.owner.journal.flush()
    study.owner.journal.catch_up()


def make_recording(n=60, seed=0):
    """Curves that rise and flatten, with a constraint that grows as they rise; some end before their total."""
    rng = np.random.default_rng(seed)
    depth, rate = rng.integers(1, 10, n), rng.random(n)
    total = rng.integers(1, 40, n)
    recorded = np.maximum(1, (total * rng.choice([0.5, 1.0], n)).astype(int))
    offset = np.concatenate([[0], np.cumsum(recorded)])
    t = np.concatenate([np.arange(1, k + 1) for k in recorded])
    k = np.repeat(np.arange(n), recorded)
    auc = 0.5 + 0.4 * (1 - np.exp(-t * (0.02 + rate[k] / 10))) + rng.normal(0, 0.01, len(t))
    eod = 0.5 * rate[k] * (1 - np.exp(-t / 8)) + rng.normal(0, 0.02, len(t))
    dpd = 0.3 * (1 - rate[k]) * t / 40
    return fw.Recording(
        space=fw.Space({"depth": fw.Int(1, 9), "rate": fw.Float(0.0, 1.0)}),
        config=np.column_stack([depth, rate]),
        total_steps=total,
        offset=offset,
        seconds=rng.uniform(0.01, 0.1, len(t)),
        metrics={"auc": auc, "eod": eod, "dpd": dpd},
    )


@pytest.fixture
def recording():
    return make_recording()


def shut_ray_down():
    """End Ray, and collect what it leaves open now: its warnings are not for whichever test comes next."""
    import ray

    ray.shutdown()
    while CLUSTER:
        CLUSTER.pop().shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
