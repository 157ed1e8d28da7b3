"""Courses that have ended are packed, and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.course import Course
from fairway.engine.courses import BLOCK, Courses, pack, unpack
from fairway.feasibility import Checkpoint

number = st.floats(allow_nan=False)
checkpoints = st.builds(
    Checkpoint,
    st.integers(1, 99),
    number,
    st.tuples(st.none() | number, number),
    st.none() | number,
    st.integers(1, 5),
    st.integers(1, 5),
    st.just(()) | st.tuples(st.none(), number),
)
courses = st.builds(
    Course,
    st.dictionaries(st.text(max_size=3), st.none() | st.booleans() | st.integers() | number | st.text(max_size=3)),
    st.integers(0, 9),
    number,
    ended=number,
    status=st.sampled_from(["running", "completed", "stopped", "failed"]),
    reason=st.text(max_size=5),
    checkpoint=st.none() | checkpoints,
    peak=st.none() | checkpoints,
    late=st.none() | checkpoints,
    by_octave=st.dictionaries(st.integers(1, 9), checkpoints, max_size=2),
    means=st.dictionaries(st.integers(1, 9), number, max_size=2),
    notes=st.dictionaries(st.text(max_size=3), st.none() | st.lists(number, max_size=2), max_size=2),
    total=st.none() | st.integers(1, 9),
    aim=st.dictionaries(st.text(max_size=3), number, max_size=2),
    front=st.lists(checkpoints, max_size=2).map(tuple),
)


@given(st.lists(courses, max_size=3), st.booleans())
def test_a_packed_course_comes_back_as_it_was(some, repeated):
    for course in some:
        if repeated:
            course.peak = course.late = course.checkpoint
    assert list(unpack(pack(some))) == some


def ended(number: int) -> Course:
    return Course({"x": number}, 0, 0.0, ended=1.0, status="completed")


def filled(n: int, *, running: int) -> Courses:
    """So many trials, of which all have ended but one."""
    kept = Courses()
    for k in range(n):
        kept.append(Course({"x": k}, 0, 0.0))
        if k != running:
            kept.replace(k, ended(k))
            kept.end(k)
    return kept


def test_every_trial_is_found_by_its_number_whether_it_is_packed_or_not():
    n, running = 2 * BLOCK + 3, BLOCK + 1
    kept = filled(n, running=running)
    assert [course.params["x"] for course in kept] == list(range(n))
    assert [kept[k].status for k in (0, running, n - 1, -1)] == ["completed", "running", "completed", "completed"]
    assert [course.params["x"] for course in kept[BLOCK - 1 : BLOCK + 1]] == [BLOCK - 1, BLOCK]
    with pytest.raises(IndexError):
        kept[n]


def test_a_trial_that_still_runs_is_never_packed_and_may_change():
    kept = filled(BLOCK, running=7)
    kept[7].reason = "changed"
    assert kept[7].reason == "changed"


def test_a_snapshot_keeps_what_was_there():
    kept = filled(BLOCK, running=-1)
    still = kept.still()
    kept.replace(3, ended(99))
    kept.append(Course({"x": BLOCK}, 0, 0.0))
    assert (kept[3].params["x"], still[3].params["x"], len(still)) == (99, 3, BLOCK)


def test_a_note_on_a_packed_trial_is_kept():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    study.optimize(lambda trial: trial.params["x"], trials=BLOCK + 5)
    study.note(3, test_loss=0.5)
    assert study.trials[3].notes == {"test_loss": 0.5}
    assert not study.trials[4].notes


def test_a_log_in_memory_is_read_from_any_position_whatever_is_packed():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    study.optimize(lambda trial: trial.params["x"], trials=700)
    everything = study.log.read()
    kinds = [type(event).__name__ for event in everything]
    assert kinds.count("Asked") == kinds.count("Told") == 700
    for since, most in ((0, 3), (511, 2), (512, 512), (1000, None), (1700, 600), (len(kinds) - 1, 5), (len(kinds), 1)):
        end = None if most is None else since + most
        assert [type(one).__name__ for one in study.log.read(since, most)] == kinds[since:end]
    assert [event.number for event in study.log.reports([0, 699])] == [0, 699]
