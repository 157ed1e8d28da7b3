"""Workers as Ray actors: a real local Ray, and a cluster of three nodes one of which is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from multiprocessing.connection import Client

import pytest

import fairway as fw
from fairway.engine.verify import verify
from fairway.errors import MissingDependency
from fairway.runners import times
from fairway.runners.ray import _how, accept
from tests.conftest import within

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def make_study(**settings):
    space, limits = {"x": fw.Float(0.0, 1.0)}, [fw.AtMost("size", 0.5)]
    return fw.Study(space, fw.Minimize("loss"), limits, seed=0, sampler=fw.Random(), **settings)


def train(trial):
    trial.note(pid=os.getpid())
    for step in trial.steps(10):
        time.sleep(0.001)
        trial.report(loss=(trial.params["x"] - 0.3) ** 2 + 1 / step, size=lambda: trial.params["x"])


def test_trials_run_in_actors_and_every_ruling_can_be_made_again(local_ray):
    study = make_study()
    study.optimize(train, trials=40, workers=2, backend="ray", resources={"CPU": 0.5})
    pids = {record.notes["pid"] for record in study.trials}
    assert os.getpid() not in pids
    assert len(pids) <= 2  # on a busy machine one may have run them all before the other was there
    assert study.counts["completed"] + study.counts["stopped"] == 40
    assert study.best is not None
    assert study.best.metrics["size"] <= 0.5
    assert verify(study.log.read()).faults == []
    assert study.ended == "40 trials were run"


def test_a_worker_that_dies_costs_its_trial_and_is_replaced(local_ray, tmp_path):
    seen = tmp_path / "seen"

    def fragile(trial):
        if trial.params["x"] > 0.5 and not seen.exists():
            seen.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": trial.params["x"], "size": 0.1}

    study = make_study()
    study.optimize(fragile, trials=6, workers=2, backend="ray")
    failed = [record.reason for record in study.trials if record.status == "failed"]
    assert failed == ["lost its worker (its worker process has died)"]
    assert study.counts["completed"] == 6  # what was lost was tried again


def test_an_error_arrives_as_itself_with_its_place(local_ray):
    def broken(trial):
        raise ValueError("no such solver")

    study = make_study()
    with pytest.raises(fw.StudyFailed, match="none succeeded; the last one: ValueError: no such solver") as raised:
        study.optimize(broken, trials=9, workers=1, backend="ray")
    assert isinstance(raised.value.__cause__, ValueError)
    assert "in broken" in str(raised.value.__cause__.__cause__)


def test_a_timeout_ends_a_trial_and_an_interrupted_one_cleans_up(local_ray, ctrl_c, tmp_path):
    def slow(trial):
        for _ in trial.steps(100_000):
            time.sleep(0.01)
            trial.report(loss=trial.params["x"], size=0.1)

    study = make_study(stopper=fw.Never())
    study.optimize(slow, trials=1, trial_timeout=0.5, workers=1, backend="ray")
    assert [(record.status, record.reason) for record in study.trials] == [
        ("stopped", "longer than trial_timeout=0.5 s")
    ]

    def sleepy(trial):
        (tmp_path / "began").touch()
        try:
            time.sleep(1000)
        finally:
            (tmp_path / "woken").touch()

    def interrupt():
        while not (tmp_path / "began").exists():
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    study = make_study()
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        study.optimize(sleepy, trials=1, workers=1, backend="ray")
    assert study.ended == "interrupted"
    assert (tmp_path / "woken").exists()


@pytest.mark.parametrize("what", ["trial", "check"])
def test_an_actor_whose_trial_or_check_never_ends_is_killed_and_replaced(local_ray, monkeypatch, what):
    monkeypatch.setattr(times, "GRACE_SECONDS", 0.3)

    def hang():
        ctypes.PyDLL(None).usleep(100_000_000)  # with Python's lock held
        return 0.1

    def sometimes(trial):
        if trial.number == 1 and what == "trial":
            hang()
        trial.report(loss=0.5 - trial.number / 100, size=hang if trial.number == 1 else lambda: 0.1)

    study = make_study(stopper=fw.ACE(interval=1))
    with within(90):
        study.optimize(sometimes, trials=3, workers=1, backend="ray", **{f"{what}_timeout": 1})
    assert [record.status for record in study.trials] == ["completed", "failed", "completed"]
    assert f"longer than {what}_timeout=1 s; its worker was killed " in study.trials[1].reason
    assert verify(study.log.read()).faults == []


def test_what_cannot_be_is_said_in_a_sentence(local_ray):
    study = make_study()
    lock = threading.Lock()
    for wrong, sentence in (
        ({"resources": {"CPU": -1}}, r"resources=\{'CPU': -1\}: amounts by name"),
        ({"resources": 3}, "resources=3: amounts by name"),
        ({"backend": "process", "resources": {"CPU": 1}}, "are for backend='ray'"),
        ({"function": lambda trial: lock}, "cannot be sent"),
    ):
        given = {"function": train, "backend": "ray", **wrong}
        with pytest.raises(fw.UsageError, match=sentence):
            study.optimize(given.pop("function"), trials=2, workers=2, **given)


ADDRESSES = {
    "127.0.0.1:1": "there is no Ray cluster",
    "ray://127.0.0.1:10001": "run the script on a machine of the cluster, or as a Ray job",
    "auto": "Could not find any running Ray",
    "nonsense": "Invalid address",
}


def test_a_cluster_that_is_not_there_is_said_soon():
    code = f"""
        import ray._private.services
        import fairway as fw
        ray._private.services._find_address_from_flag = lambda flag: set()  # whatever else is on this machine
        study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Minimize("loss"), seed=0)
        for address in {list(ADDRESSES)}:
            try:
                study.optimize(lambda trial: 1.0, trials=1, backend="ray", address=address)
            except fw.UsageError as error:
                print("said of", address, error)
    """
    said = run_python(code).split("said of ")[1:]
    for answer, (address, sentence) in zip(said, ADDRESSES.items(), strict=True):
        assert answer.startswith(address)
        assert sentence in answer


def test_without_ray_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "fairway.runners.ray")
    with pytest.raises(MissingDependency, match=r"^backend='ray' needs Ray: pip install 'fairway\[ray\]'$"):
        make_study().optimize(lambda trial: 1.0, trials=1, backend="ray")


def test_more_than_this_machine_has_is_refused_where_ray_is_ours():
    code = """
        import fairway as fw
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
        try:
            study.optimize(lambda trial: 1.0, trials=1, backend="ray", resources={"GPU": 64})
        except fw.UsageError as error:
            print(error)
    """
    assert "resources={'GPU': 64}: this machine has CPU" in run_python(code)


def test_a_killed_node_loses_only_its_running_trials(local_ray):
    nodes = [local_ray.add_node(num_cpus=1, resources={"place": 1}) for _ in range(2)]
    local_ray.wait_for_nodes()
    study = make_study(stopper=fw.Never())

    def place(trial):
        trial.note(node=ray.get_runtime_context().get_node_id())
        for step in trial.steps(20):
            time.sleep(0.02)
            trial.report(loss=trial.params["x"] + 1 / step, size=0.1)

    def kill():
        while study.counts["completed"] < 50 and len({record.notes.get("node") for record in study.trials}) < 4:
            time.sleep(0.05)  # until all three nodes have brought a trial; None is one that runs
        local_ray.remove_node(nodes[0], allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    study.optimize(place, trials=60, workers=3, backend="ray", resources={"place": 1})
    killer.join()
    local_ray.remove_node(nodes[1])
    lost = [record for record in study.trials if record.status == "failed"]
    assert len(lost) == 1
    assert lost[0].reason.startswith("lost its worker (")
    assert study.counts["completed"] == 60
    assert len({record.notes["node"] for record in study.trials if record.notes}) == 3
    assert verify(study.log.read()).faults == []


def test_a_driver_that_dies_leaves_a_study_that_goes_on(tmp_path, local_ray):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    code = f"""
        import time, fairway as fw
        def train(trial):
            for step in trial.steps(20):
                time.sleep(0.01)
                trial.report(loss=trial.params["x"] + 1 / step, size=0.1)
        study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Minimize("loss"), [fw.AtMost("size", 0.5)],
                         seed=0, sampler=fw.Random(), storage={url!r})
        study.optimize(train, trials=10_000, workers=2, backend="ray", resources={{"CPU": 0.5}},
                       address={ray.get_runtime_context().gcs_address!r})
    """
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL)
    study = make_study(storage=url)
    deadline = time.monotonic() + 60
    while study.counts["completed"] + study.counts["stopped"] < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
        study.owner.journal.catch_up()
    driver.kill()
    driver.wait()
    told = study.counts["completed"] + study.counts["stopped"]
    assert told >= 4
    study.optimize(train, trials=10, workers=2, backend="ray", resources={"CPU": 0.5})
    assert study.counts["completed"] + study.counts["stopped"] >= told + 10
    assert verify(study.log.read()).faults == []


def test_the_cluster_that_ray_address_names_is_taken(local_ray):
    code = """
        import ray, fairway as fw
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0, sampler=fw.Random())
        study.optimize(lambda trial: trial.params["x"], trials=4, workers=2, backend="ray", resources={"CPU": 0.5})
        print("found", study.counts["completed"], ray.get_runtime_context().gcs_address)
    """
    address = ray.get_runtime_context().gcs_address
    job = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "RAY_ADDRESS": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    assert f"found 4 {address}\n" in job.stdout  # among what the cluster has to say


def test_an_actor_waits_for_its_owner_only_so_long():
    with socket.create_server(("127.0.0.1", 0)) as listener, within(20):
        silent = socket.create_connection(listener.getsockname())  # says nothing, and proves nothing
        with pytest.raises(TimeoutError, match=r"no owner connected within 0\.2 s"):
            accept(listener, b"key", 0.2)
        silent.close()


def test_a_stranger_who_says_nothing_does_not_keep_the_owner_out(monkeypatch):
    monkeypatch.setattr("fairway.runners.ray._PROOF_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener, within(20):
        stranger = socket.create_connection(listener.getsockname())
        owner = []
        calling = threading.Thread(target=lambda: owner.append(Client(listener.getsockname(), authkey=b"key")))
        calling.start()
        with accept(listener, b"key", 15) as connection:
            calling.join()
            owner[0].send("hello")
            assert connection.recv() == "hello"
        stranger.close()
        owner[0].close()


def test_rays_many_words_are_cut_to_the_reason():
    assert _how(Exception("died.\nThe actor is dead because its node has died. Node Id: 5")) == "its node has died"
    assert _how(Exception("The actor is dead because it was killed by `ray.kill`.")) == "it was killed by `ray.kill`"
    assert _how(Exception("something\nelse")) == "else"


def run_python(code: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as out,  # a pipe would be held open by what Ray leaves behind
    ):
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        environment["RAY_TMPDIR"] = folder  # where no cluster is noted down
        subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=60, check=True, env=environment)
        out.seek(0)
        return out.read().decode()
