from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings

from tests.attack.damage import Mutation, attack, mutations, prepare, swap, writing

RUNS = {True: 100, False: 20}
once = HealthCheck.function_scoped_fixture  # each example has its own copy of the database


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    return folder, *prepare(folder)


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    folder = tmp_path_factory.mktemp("older")
    return folder, *prepare(folder, checksums=False)


@settings(max_examples=RUNS[True], suppress_health_check=[once, HealthCheck.too_slow], derandomize=True)
@given(mutation=mutations())
def test_damage_changes_no_study_silently_and_hangs_or_breaks_nothing(sound, mutation):
    folder, base, before = sound
    attack(base, before, folder, mutation)


@settings(max_examples=RUNS[False], suppress_health_check=[once, HealthCheck.too_slow], derandomize=True)
@given(mutation=mutations())
def test_damage_without_checksums_hangs_or_breaks_nothing(older, mutation):
    folder, base, before = older
    attack(base, before, folder, mutation, checksums=False)


def test_a_test_that_does_not_speak_of_every_limit_is_left_out_of_a_repair(sound):
    """A limit that was added after a certificate comes before it."""
    folder, base, before = sound
    with writing(base) as connection:
        found = "SELECT rowid FROM fairway_event WHERE kind = ? ORDER BY position"
        changes = [row for (row,) in connection.execute(found, ("LimitsChanged",))]
        early = [row for (row,) in connection.execute(found, ("Asked",))][:3]
    assert len(changes) == 3
    for change, one in itertools.product(changes, early):
        attack(base, before, folder, Mutation("", lambda path, rows=(change, one): swap_in(path, *rows)))


def swap_in(path, one, other):
    with writing(path) as connection:
        swap(connection, one, other)


def test_an_event_that_a_report_stands_for_is_missed(sound):
    """Those who only sum up a log do not read its reports."""
    folder, base, before = sound
    with writing(base) as connection:
        found = "SELECT rowid FROM fairway_event WHERE kind = ? AND study = 1 ORDER BY position DESC"
        report, (last, *_) = ([row for (row,) in connection.execute(found, (kind,))] for kind in ("Reported", "Asked"))
    for one in report[-3:]:
        attack(base, before, folder, Mutation("", lambda path, rows=(one, last): swap_in(path, *rows)))
