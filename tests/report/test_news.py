"""What is learned after a search reaches a live page that is open."""

from __future__ import annotations

from tests.report.hiring import hiring
from tests.report.test_dashboard import Stream, file, serving, url  # noqa: F401 - two are fixtures


def test_a_certificate_and_later_notes_arrive_live(url):  # noqa: F811
    made = hiring(storage=url, name="hiring")
    with serving(url) as (_, address), Stream(address, "/events?name=hiring") as stream:
        before, _ = stream.event("change")
        assert before["study"]["badge"]["words"] == "within the limit on the judging rows; not yet certified"
        assert before["study"]["certificate"] is None
        made.study.certify(made.fresh, made.train)
        changed, _ = stream.event("change")
        while changed["study"]["certificate"] is None:  # sealed, or a part of the tests
            changed, _ = stream.event("change")
        assert changed["study"]["badge"]["sentence"] == str(made.study.certificate)
        made.study.note(3, test_accuracy=0.7)
        noted, _ = stream.event("change")
        assert noted["study"]["later"] == [["trial 3", "test_accuracy 0.7"]]
        assert [row[0] for row in noted["rows"]] == [3]
