from __future__ import annotations

from fairway.storage.memory import MemoryLog


def test_what_only_one_may_have_is_refused_to_the_second_with_all_that_comes_with_it(make_study):
    log = MemoryLog()
    study = make_study(storage=log)
    study.tell(study.ask(), auc=0.5, eod=0.1)
    opened, asked, reported, told = log.read()
    for events in ([opened], [asked], [told], [reported, told]):
        assert log.append(events) is None
    assert len(log.read()) == 4
    assert log.append([reported]) == 5
