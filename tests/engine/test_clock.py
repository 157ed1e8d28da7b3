from __future__ import annotations

from fairway.engine.clock import VirtualClock, WallClock


def test_the_machines_clock_never_runs_back():
    readings = [WallClock().ns() for _ in range(1000)]
    assert readings == sorted(readings)
    assert WallClock().at() > 1.7e9  # seconds since 1970, as people's clocks have it


def test_virtual_time_stands_still_until_it_is_set():
    clock = VirtualClock()
    assert (clock.ns(), clock.at()) == (0, 0.0)
    clock.now += 1_500_000_000
    assert (clock.ns(), clock.at()) == (1_500_000_000, 1.5)
