from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from starlette.testclient import TestClient

import fairway as fw
from fairway.report import dashboard
from fairway.report.dashboard import watch as watching
from fairway.report.dashboard.desk import Desk
from fairway.report.view import View
from fairway.storage.sql import Database
from tests import faults
from tests.conftest import SPACE, run_curves

HERE = "http://127.0.0.1:8321"
CURVES = [[(auc / 10, {"eod": auc / 30}) for auc in (1, 5, 9)], [(0.4, {"eod": 0.1})] * 3]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "studies.db"


@pytest.fixture
def url(file):
    return f"sqlite:///{file}"


def open_study(url, name="credit", **more):
    return fw.Study(
        SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], stopper=fw.ACE(interval=1), storage=url, name=name, seed=0
    )


@pytest.fixture
def study(url):
    study = open_study(url)
    run_curves(study, CURVES)
    study.tell(study.ask(), failed="out of memory")
    return study


@pytest.fixture
def client(study, url):
    return TestClient(dashboard.app(url), base_url=HERE, raise_server_exceptions=True)


@contextmanager
def serving(*arguments):
    """The command itself, in a process of its own: its process and its address."""
    command = [sys.executable, "-m", "fairway.cli", "dashboard", *arguments, "--port", "0", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as server, closing(server.stdout), closing(server.stderr):
        text = ""
        while not text.endswith("}\n"):
            line = server.stdout.readline()
            assert line, server.stderr.read()
            text += line
        try:
            yield server, json.loads(text)["address"]
        finally:
            server.kill()


class Stream:
    """Server-sent events, as a browser reads them."""

    def __init__(self, address, path, **headers):
        where = urlsplit(address)
        self.connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()

    def event(self, kind):
        """The next event of a kind: its data and its id."""
        found, beats = {}, 0
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
                beats += line.startswith(":")
                assert beats < 3, f"{kind!r} never came"
            elif found.get("event") == kind:
                return json.loads(found["data"]), found.get("id")
            else:
                assert not self.answer.isclosed(), f"the stream ended before {kind!r}"
                found = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answer.close()
        self.connection.close()


class TestPages:
    def test_the_list_knows_every_study(self, client, url):
        open_study(url, "other")
        page = client.get("/").text
        assert '"key":"credit"' in page
        assert '"key":"other"' in page

    def test_a_study_comes_with_its_summary_and_its_trials_follow(self, client, study):
        page = client.get("/study?name=credit").text
        assert ": auc 0.5, eod 0.1667." in page
        rows = client.get("/trials.json?name=credit").json()["rows"]
        assert [row[0] for row in rows] == [0, 1, 2]

    def test_charts_come_when_asked_for(self, client):
        charts = client.get("/charts.json?name=credit").json()["charts"]
        assert {"name", "title", "caption", "data", "layout"} <= charts[0].keys()
        assert client.get("/charts.json?name=credit&slow").status_code == 200

    def test_a_trial_has_a_page_of_its_own(self, client, study):
        best = study.best.number
        assert f"Trial {best}" in client.get(f"/trial?name=credit&number={best}").text
        whole = client.get(f"/trial.json?name=credit&number={best}").json()
        assert whole["trial"]["status"] == "completed"
        assert whole["charts"][0]["data"]
        failed = client.get("/trial.json?name=credit&number=2").json()
        assert ["reason", "out of memory"] in failed["trial"]["facts"]
        assert failed["charts"] == []

    def test_a_long_curve_is_thinned(self, client, url):
        study = open_study(url, "long")
        trial = study.ask()
        for step in trial.steps(5000):
            trial.report(auc=step / 5000, eod=0.1)
        study.tell(trial)
        (chart,) = client.get("/trial.json?name=long&number=0").json()["charts"]
        assert max(len(trace["x"]) for trace in chart["data"]) <= 600
        assert "of its 5,000 reports" in chart["caption"]

    @pytest.mark.parametrize(
        "name", ["a/b", "50%", "x?y=1&z#w", "..", " ", "日本", "long" * 2000, "<script>", "\u202e"]
    )
    def test_any_name_is_found(self, client, url, name):
        study = open_study(url, name)
        study.tell(study.ask(), auc=0.5, eod=0.1)
        key = quote(name, safe="")
        assert client.get(f"/study?name={key}").status_code == 200
        assert len(client.get(f"/trials.json?name={key}").json()["rows"]) == 1
        page = client.get(f"/trial?name={key}&number=0").text
        assert "<script>Trial" not in page
        assert f'href="/study?name={key}"' in page

    def test_what_is_not_there_is_a_sentence(self, client):
        for path, text in {
            "/study?name=nothing": "has no study &#x27;nothing&#x27;; it has &#x27;credit&#x27;",
            "/study": "names no study",
            "/trial?name=credit&number=99": "has no trial",
            "/trial?name=credit&number=-1": "has no trial",
            "/trial?name=credit&number=x": "has no trial",
            "/elsewhere": "There is no such page",
            "/assets/../page.py": "There is no such page",
        }.items():
            answer = client.get(path)
            assert answer.status_code == 404
            assert text in answer.text
            assert "Traceback" not in answer.text
        assert "no study" in client.get("/trials.json?name=nothing").json()["error"]

    def test_a_study_that_nobody_opened_yet_is_a_sentence(self, client, url):
        Database(url).log("empty")
        answer = client.get("/study?name=empty")
        assert (answer.status_code, "nobody has opened it yet" in answer.text) == (503, True)
        assert "empty" in client.get("/").text

    def test_studies_with_next_to_nothing_in_them_are_shown(self, client, url):
        open_study(url, "none")
        one = open_study(url, "one")
        one.tell(one.ask(), auc=0.5, eod=0.9)
        assert "No trial has begun yet" in client.get("/study?name=none").text
        assert client.get("/charts.json?name=none").json()["charts"] == []
        assert "No model within the limit was found yet" in client.get("/study?name=one").text

    def test_a_database_that_is_deleted_and_comes_again(self, client, file, url, study):
        assert client.get("/study?name=credit").status_code == 200
        kept = {path: path.read_bytes() for path in file.parent.iterdir()}
        for path in kept:
            path.unlink()
        answer = client.get("/study?name=credit")
        assert (answer.status_code, "there is no such file" in answer.text) == (404, True)
        assert "there is no such file" in client.get("/").text
        open_study(url, "another")
        assert client.get("/study?name=another").status_code == 200
        assert client.get("/study?name=credit").status_code == 404

    def test_a_broken_database_is_a_sentence(self, client, file):
        client.get("/")
        for path in file.parent.iterdir():
            path.unlink()
        file.write_bytes(b"this is no database" * 1000)
        answer = client.get("/study?name=credit")
        assert answer.status_code == 503
        assert "file is not a database" in answer.text

    def test_a_fault_of_our_own_is_a_sentence_too(self, client, monkeypatch, capsys):
        monkeypatch.setattr(Desk, "studies", lambda self: 1 / 0)
        answer = client.get("/")
        assert (answer.status_code, "ZeroDivisionError" in answer.text, "Traceback" in answer.text) == (
            500,
            True,
            False,
        )
        assert capsys.readouterr().err == "fairway: /: ZeroDivisionError: division by zero\n"

    def test_a_script_hears_of_a_fault_as_json(self, client, monkeypatch):
        monkeypatch.setattr(Desk, "watch", lambda self, name: 1 / 0)
        answer = client.get("/trials.json?name=credit")
        assert (answer.status_code, "ZeroDivisionError" in answer.json()["error"]) == (500, True)

    def test_no_page_makes_the_others_wait_for_a_database(self, client, monkeypatch):
        still = View.still

        def apart(self):
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            return still(self)

        monkeypatch.setattr(View, "still", apart)
        assert client.get("/trial?name=credit&number=0").status_code == 200
        assert client.get("/trial.json?name=credit&number=0").status_code == 200

    def test_a_metric_called_as_a_moment_is_a_number(self, client, url):
        study = fw.Study(SPACE, fw.Minimize("began"), storage=url, name="odd", seed=0)
        study.tell(study.ask(), began=0.5)
        facts = client.get("/trial.json?name=odd&number=0").json()["trial"]["facts"]
        number, moment = (value for label, value in facts if label == "began")
        assert (number, list(moment)) == (0.5, ["time"])


class TestGuard:
    def test_only_reading_is_possible(self, client):
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            answer = client.request(method, "/")
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        assert client.head("/").status_code == 200
        assert client.head("/events").status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.com",
            "evil.com:8321",
            "127.0.0.1",
            "127.0.0.1:80",
            "",
            "localhost:8321.evil",
            "localhost:" + "9" * 5000,
        ],
    )
    def test_another_host_is_refused(self, client, host):
        assert client.get("/", headers={"host": host}).status_code == 400

    @pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost:8321", "LOCALHOST:8321", "[::1]:8321"])
    def test_its_own_names_are_not(self, client, host):
        assert client.get("/", headers={"host": host}).status_code == 200

    def test_other_sites_are_refused(self, client):
        for headers in (
            {"origin": "http://evil.com"},
            {"origin": "null"},
            {"origin": "https://127.0.0.1:8321"},
            {"origin": "http://127.0.0.1:9999"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
            {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        ):
            for path in ("/", "/trials.json?name=credit", "/assets/page.js"):
                assert client.get(path, headers=headers).status_code == 403

    def test_a_link_from_elsewhere_and_its_own_requests_are_not(self, client):
        for headers in (
            {"origin": HERE, "sec-fetch-site": "same-origin"},
            {"sec-fetch-site": "none"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        ):
            assert client.get("/", headers=headers).status_code == 200

    def test_every_answer_is_strict(self, client):
        for path in ("/", "/study?name=credit", "/trials.json?name=credit", "/nothing", "/study?name=nothing"):
            headers = client.get(path).headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == "'self'"
            assert policy["frame-ancestors"] == "'none'"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"

    def test_large_files_are_kept_by_the_browser(self, client):
        first = client.get("/assets/plotly.js")
        assert "max-age" in first.headers["cache-control"]
        again = client.get("/assets/plotly.js", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get("/assets/plotly.js", headers={"accept-encoding": "identity"}).text == first.text

    def test_a_token_is_asked_for_and_exchanged_for_a_cookie(self, study, url):
        client = TestClient(dashboard.app(url, token="sesame ü"), base_url=HERE)
        for path in ("/", "/?token=wrong", "/trials.json?name=credit", "/events", "/?token=", "/?token=%ff"):
            answer = client.get(path)
            assert answer.status_code == 401
            assert "credit" not in answer.text
        answer = client.get("/study?name=credit&token=sesame%20%C3%BC")
        assert 'url=/study?name=credit"' in answer.text
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "sesame" not in cookie
        assert "the best model" in client.get("/study?name=credit").text
        assert client.get("/", headers={"cookie": "fairway-8321=wrong"}).status_code == 401

    def test_the_page_after_a_token_stays_here(self, study, url):
        client = TestClient(dashboard.app(url, token="t"), base_url=HERE)
        answer = client.get(f"{HERE}//evil.com/?token=t&a=%22%3E%3Cscript%3E")
        assert "url=/evil.com/?a=%22%3E%3Cscript%3E" in answer.text
        for path in ("/%09/evil.com/", "/%0a/evil.com/", "/%5cevil.com/"):  # browsers drop tabs, and turn slashes
            client.cookies.clear()
            assert f"url={path}".lower() in client.get(f"{HERE}{path}?token=t").text.lower()

    def test_cookies_of_other_servers_do_not_lock_anybody_out(self, study, url):
        client = TestClient(dashboard.app(url, token="t"), base_url=HERE)
        mine = client.get("/?token=t").headers["set-cookie"].partition(";")[0]
        client.cookies.clear()
        for other in ('settings={"a": [1, 2]}', "a@b=c", "broken", "fairway-8321=old"):
            assert client.get("/", headers={"cookie": f"{other}; {mine}"}).status_code == 200
            assert client.get("/", headers={"cookie": other}).status_code == 401

    def test_on_all_addresses_numbers_pass_and_names_do_not(self, study, url):
        client = TestClient(dashboard.app(url, host="0.0.0.0", token="t"), base_url="http://192.168.1.5:8321")
        assert client.get("/?token=t").status_code == 200
        assert client.get("/", headers={"host": "[fe80::1]:8321"}).status_code != 400
        assert client.get("/?token=t", headers={"host": "rebound.example:8321"}).status_code == 400


class TestServing:
    def test_a_new_trial_is_sent_and_only_it(self, study, url):
        with serving(url) as (_, address):
            with Stream(address, "/events?name=credit&last=") as stream:
                first, _ = stream.event("change")
                assert first["rows"] == []
                study.tell(study.ask(), auc=0.9, eod=0.1)
                rows = {}
                while not rows or rows[3][1] == 0:
                    changed, last = stream.event("change")
                    rows |= {row[0]: row for row in changed["rows"]}
                assert set(rows) == {3}
                assert "auc 0.9" in changed["study"]["headline"]
            study.tell(study.ask(), auc=0.8, eod=0.1)
            with Stream(address, "/events?name=credit&last=ignored", **{"Last-Event-ID": last}) as stream:
                changed, _ = stream.event("change")
                assert [row[0] for row in changed["rows"]] == [4]

    def test_a_study_that_was_deleted_and_made_again_is_loaded_anew(self, study, url):
        with serving(url) as (_, address), Stream(address, "/events?name=credit&last=") as stream:
            stream.event("change")
            Database(url).delete("credit")
            said, _ = stream.event("problem")
            assert said == "the study was deleted"
            open_study(url)
            stream.event("reset")

    def test_the_list_follows(self, study, url):
        with serving(url) as (_, address), Stream(address, "/events") as stream:
            listed, _ = stream.event("studies")
            while "trials" not in listed[0]:
                listed, _ = stream.event("studies")
            assert (listed[0]["trials"], listed[0]["best"]) == (3, "auc 0.5, eod 0.1667")
            open_study(url, "later")
            while len(listed) < 2:
                listed, _ = stream.event("studies")
            assert listed[1]["name"] == "later"

    def test_one_look_serves_all_browsers(self, study, url, monkeypatch):
        looks = []
        update = watching.Watch.update
        monkeypatch.setattr(watching.Watch, "update", lambda self: looks.append(threading.get_ident()) or update(self))
        monkeypatch.setattr(watching, "POLL_SECONDS", 0.05)
        desk = Desk(url)
        watch = desk.watch("credit")

        async def listen():
            streams = [watch.news("") for _ in range(5)]
            for stream in streams:
                for _ in range(2):
                    await anext(stream)
            task = watch.feed.task
            assert task is not None
            assert watch.feed.listeners == 5
            study.tell(study.ask(), auc=0.1, eod=0.1)
            events = await asyncio.gather(*(anext(stream) for stream in streams))
            assert len(set(events)) == 1
            assert watch.feed.task is task
            for stream in streams:
                await stream.aclose()
            assert watch.feed.listeners == 0
            await task

        asyncio.run(listen())
        assert looks

    def test_ctrl_c_ends_it_quietly_while_browsers_follow(self, study, url):
        with serving(url) as (server, address), Stream(address, "/events?name=credit") as stream:
            stream.event("change")
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 0
            assert server.stderr.read() == ""

    def test_a_port_that_is_taken_is_a_sentence(self, study, url, capsys):
        from fairway.cli import main

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert main(["dashboard", url, "--port", str(port)]) == 2
        assert f"port {port} is taken: choose another" in capsys.readouterr().err

    def test_bad_input_is_a_sentence(self, tmp_path, url, study, capsys):
        from fairway.cli import main

        for arguments, text in (
            ([f"sqlite:///{tmp_path}/none.db"], "there is no such file"),
            ([url, "--port", "70000"], "a number from 0 to 65535 is expected"),
            ([url, "--host", "no.such.host.invalid", "--port", "0"], "there is no such address"),
            ([url, "--host", "x" * 70, "--port", "0"], "there is no such address"),
            ([url, "--token", "", "--port", "0"], "one or more printable characters are expected"),
            ([url, "--token", "a\udcff", "--port", "0"], "one or more printable characters are expected"),
            (["nothing"], "sqlite:///nothing: there is no such file"),
        ):
            assert main(["dashboard", *arguments]) == 2
            assert text in capsys.readouterr().err
        assert not (tmp_path / "none.db").exists()

    def test_where_others_can_reach_it_a_token_is_made(self, study, url):
        with serving(url, "--host", "0.0.0.0") as (_, address):
            where = urlsplit(address)
            token = where.query.removeprefix("token=")
            assert len(token) >= 32
            for query, status in (("", 401), (f"?token={token}", 200)):
                with closing(http.client.HTTPConnection("127.0.0.1", where.port, timeout=30)) as connection:
                    connection.request("GET", f"/{query}")
                    assert connection.getresponse().status == status

    def test_the_address_that_is_printed_opens_whatever_the_token(self, study, url):
        with serving(url, "--token", "a+b&c#d %é") as (_, address):
            where = urlsplit(address)
            with closing(http.client.HTTPConnection("127.0.0.1", where.port, timeout=30)) as connection:
                connection.request("GET", f"/?{where.query}")
                assert connection.getresponse().status == 200

    def test_a_long_name_fits_into_an_address(self, url):
        name = "é" * 20_000
        study = open_study(url, name)
        study.tell(study.ask(), auc=0.5, eod=0.1)
        with serving(url) as (_, address):
            where = urlsplit(address)
            with closing(http.client.HTTPConnection("127.0.0.1", where.port, timeout=30)) as connection:
                connection.request("GET", f"/trials.json?name={quote(name, safe='')}")
                assert len(json.loads(connection.getresponse().read())["rows"]) == 1


def test_no_more_browsers_are_served_in_a_burst_than_there_are_seats(study, url, monkeypatch):
    monkeypatch.setattr("fairway.report.dashboard.desk.STREAMS", 5)
    application = dashboard.app(url)

    async def ask(statuses, answered, leave):
        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if len(statuses) == 20:
                    answered.set()

        async def receive():
            await leave.wait()
            return {"type": "http.disconnect"}

        headers = [(b"host", b"127.0.0.1:8321")]
        scope = {"type": "http", "method": "GET", "path": "/events", "query_string": b"", "headers": headers}
        await application({**scope, "root_path": "", "scheme": "http", "server": ("127.0.0.1", 8321)}, receive, send)

    async def burst():
        statuses, answered, leave = [], asyncio.Event(), asyncio.Event()
        browsers = [asyncio.create_task(ask(statuses, answered, leave)) for _ in range(20)]
        await answered.wait()
        leave.set()
        await asyncio.gather(*browsers)
        return statuses

    async def bursts():  # in one loop, as a server has it
        return [await burst(), await burst()]

    for statuses in asyncio.run(bursts()):  # the seats are free again
        assert (statuses.count(200), statuses.count(503)) == (5, 15)


def test_few_studies_are_kept_in_memory(url):
    for i in range(7):
        study = open_study(url, f"study {i}")
        study.tell(study.ask(), auc=0.5, eod=0.1)
    desk = Desk(url)
    for i in range(7):
        desk.watch(f"study {i}")
    assert list(desk.watches) == [f"study {i}" for i in range(3, 7)]
    assert [line["trials"] for line in desk.studies(60.0)] == [1] * 7


def test_the_list_does_not_take_a_study_for_one_before_it(url):
    Database(url)
    desk = Desk(url)
    for auc in (0.5, 0.6):
        study = open_study(url)
        study.tell(study.ask(), auc=auc, eod=0.1)
        study.owner.end("it is done")
        assert "best" not in desk.studies()[0]
        assert desk.studies(60.0)[0]["best"] == f"auc {auc}, eod 0.1"
        Database(url).delete("credit")


def test_a_study_that_could_not_be_read_is_read_again(study, url, monkeypatch):
    open_study(url, "other")
    desk, watch = Desk(url), Desk.watch

    def broken(self, name):
        return watch(self, name) if name == "other" else {}["no such thing"]

    monkeypatch.setattr(Desk, "watch", broken)
    listed = {line["name"]: line for line in desk.studies(60.0)}
    assert "no such thing" in listed["credit"]["problem"]
    assert listed["other"]["trials"] == 0
    monkeypatch.undo()
    assert desk.studies(60.0)[0]["trials"] == 3


def test_pictures_that_could_not_be_drawn_are_drawn_later(study, url, monkeypatch):
    watch = Desk(url).watch("credit")
    monkeypatch.setattr(watching, "drawn", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        watch.charts()
    monkeypatch.undo()
    assert json.loads(watch.charts())["charts"]


@pytest.mark.parametrize("known", ["²", "9" * 5000, "", "x"])
def test_a_browser_that_knows_nothing_sensible_loads_the_page_again(study, url, known):
    desk = Desk(url)
    watch = desk.watch("credit")

    async def heard():
        return [event async for event in watch.news(f"{watch.last.rpartition('.')[0]}.{known}")]

    assert asyncio.run(heard()) == ["retry: 2000\n\n", "event: reset\ndata: null\n\n"]


def test_no_password_is_shown_wherever_it_stands(server):
    url = faults.make_database(server)
    open_study(url)
    assert "secret" not in Desk(f"{url}&password=secret").shown


def test_nothing_can_be_written(study, url):
    desk = Desk(url)
    with pytest.raises(fw.StorageError, match=r"read-?only"):
        desk.watch("credit").view.log.append(study.log.read()[:1])
    assert os.access(Path(url.removeprefix("sqlite:///")), os.W_OK)


def test_the_report_command_writes_a_file_and_says_so(study, url, tmp_path, capsys):
    from fairway.cli import main

    path = tmp_path / "report.html"
    assert main(["report", url, "credit", "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(path), "bytes": path.stat().st_size, "trials": 3}
    assert main(["report", url, "credit", "-o", str(path)]) == 0
    assert "3 trials in" in capsys.readouterr().out
    one = open_study(url, "one")
    one.tell(one.ask(), auc=0.5, eod=0.1)
    assert main(["report", url, "one", "-o", str(path)]) == 0
    assert "1 trial in" in capsys.readouterr().out
    assert main(["report", url, "nothing", "-o", str(path)]) == 2
