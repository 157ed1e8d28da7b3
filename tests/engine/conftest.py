from __future__ import annotations

import pytest

from fairway.engine.clock import VirtualClock


@pytest.fixture
def timed(make_study):
    """A study in virtual time, and its clock."""

    def make(*args, **more):
        study = make_study(*args, **more)
        study.owner.clock = VirtualClock()
        return study, study.owner.clock

    return make
