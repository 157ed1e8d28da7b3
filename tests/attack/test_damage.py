from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.attack.damage import attack, mutations, prepare

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
