from __future__ import annotations

import enum
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.testing import MIXED

units = st.floats(0.0, 1.0)
finite = st.floats(-1e12, 1e12)


@st.composite
def floats(draw):
    if draw(st.booleans()):
        low = draw(st.floats(1e-12, 1e6))
        return fw.Float(low, low * draw(st.floats(1.001, 1e12)), log=True)
    low, width = draw(finite), draw(st.floats(1e-6, 1e12))
    width = max(width, abs(low) * 1e-6)
    return fw.Float(low, low + width)


@st.composite
def ints(draw):
    if draw(st.booleans()):
        low = draw(st.integers(1, 10**6))
        return fw.Int(low, low + draw(st.integers(1, 10**9)), log=True)
    low, step = draw(st.integers(-(10**9), 10**9)), draw(st.integers(1, 1000))
    return fw.Int(low, low + step * draw(st.integers(1, 10**9)), step=step)


@st.composite
def grids(draw):
    step, low = draw(st.sampled_from([0.1, 0.25, 0.05, 1e-3, 3.0])), draw(st.integers(-50, 50))
    return fw.Float(low * step, (low + draw(st.integers(1, 500))) * step, step=step)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
choices = st.lists(scalars, min_size=1, max_size=9, unique_by=lambda v: (type(v), v)).map(fw.Choice)


@given(st.one_of(floats(), ints(), grids(), choices), units)
def test_whatever_the_space_proposes_round_trips_exactly(parameter, u):
    value = parameter.decode(u)
    assert parameter.check(value) == value
    again = parameter.decode(parameter.encode(value))
    assert again == value
    assert type(again) is type(value)


@given(ints(), st.data())
def test_every_integer_round_trips_exactly(parameter, data):
    k = data.draw(st.integers(0, (parameter.high - parameter.low) // parameter.step))
    value = parameter.low + k * parameter.step
    assert parameter.decode(parameter.encode(value)) == value


@given(floats(), units)
def test_a_float_of_the_user_comes_back_to_ten_digits(parameter, u):
    value = parameter.low + u * (parameter.high - parameter.low)
    value = min(max(value, parameter.low), parameter.high)
    again = parameter.decode(parameter.encode(value))
    assert math.isclose(again, value, rel_tol=1e-9, abs_tol=1e-9 * (parameter.high - parameter.low))


@given(floats())
def test_the_bounds_themselves_are_reached(parameter):
    assert parameter.decode(0.0) == parameter.low
    assert parameter.decode(1.0) == parameter.high
    assert parameter.encode(parameter.low) == 0.0


def test_a_uniform_draw_of_the_cube_is_fair_to_cells():
    u = (np.arange(1000) + 0.5) / 1000
    drawn = [fw.Int(1, 4).decode(v) for v in u]
    assert [drawn.count(k) for k in range(1, 5)] == [250] * 4
    drawn = [fw.Choice(["a", "b", "c", "d", "e"]).decode(v) for v in u]
    assert [drawn.count(k) for k in "abcde"] == [200] * 5


TREE = fw.Space(
    {
        "drop": fw.Float(0.0, 0.5, when={"booster": "dart"}),  # declared before its parent
        "booster": fw.Choice(["gbdt", "dart", "goss"]),
        "top": fw.Int(1, 9, when={"booster": ["goss", "dart"], "flag": True}),
        "flag": fw.Choice([True, False]),
        "deep": fw.Float(0.0, 1.0, when={"top": [1, 2, 3]}),
    }
)


@given(st.lists(units, min_size=5, max_size=5))
def test_conditions_hold_in_what_is_decoded_and_round_trip(x):
    params = TREE.decode(x)
    assert ("drop" in params) == (params["booster"] == "dart")
    assert ("top" in params) == (params["booster"] in ("goss", "dart") and params["flag"] is True)
    assert ("deep" in params) == (params.get("top") in (1, 2, 3))
    encoded = TREE.encode(params)
    assert [not math.isnan(u) for u in encoded] == [name in params for name in TREE.names]
    assert TREE.decode(encoded) == params
    assert list(params) == [name for name in TREE.names if name in params]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fw.Float(1.0, 0.0), "low must be below high"),
        (lambda: fw.Float(1.0, 1.0), "a constant is not a parameter"),
        (lambda: fw.Int(5, 2), "did you mean Int(2, 5)?"),
        (lambda: fw.Float(0.0, 1.0, log=True), "log=True needs low above 0"),
        (lambda: fw.Int(-3, 5, log=True), "log=True needs low above 0"),
        (lambda: fw.Float(float("nan"), 1.0), "bounds must be finite numbers"),
        (lambda: fw.Float("0", 1.0), "bounds must be finite numbers"),
        (lambda: fw.Int(0.5, 3), "bounds must be whole numbers"),
        (lambda: fw.Float(0.0, 1.0, step=0.3), "did you mean high=0.9?"),
        (lambda: fw.Float(0.0, 1.0, step=-1), "a positive number is expected"),
        (lambda: fw.Float(0.1, 1.0, step=0.1, log=True), "cannot be combined"),
        (lambda: fw.Int(0, 2**60), "too wide to be exact"),
        (lambda: fw.Float(-1e308, 1e308), "overflow"),
        (lambda: fw.Float(1e9, 1e9 + 1e-3), "too narrow"),
        (lambda: fw.Choice([]), "at least one option"),
        (lambda: fw.Choice("abc"), "a list of options is expected"),
        (lambda: fw.Choice(["a", "a"]), "each option may be listed once"),
        (lambda: fw.Choice([object()]), "in ConstrainedSearchCV give a list of the objects"),
        (lambda: fw.Choice([float("inf")]), "JSON has no such number"),
        (lambda: fw.Float(0, 10**400), "bounds must be finite numbers"),
        (lambda: fw.Space({"x": fw.Int(0, 1, when="c"), "c": fw.Choice(["a"])}), "a dict such as"),
        (lambda: fw.Space({"x": fw.Int(0, 1, when={"c": []}), "c": fw.Choice(["a"])}), "at least one value"),
        (lambda: fw.Space({}), "at least one named parameter"),
        (lambda: fw.Space({"x": (0, 1)}), "a Float, Int or Choice is expected"),
        (lambda: fw.Space({"x": fw.Float(0, 1, when={"y": 1})}), "which is not a parameter of this space"),
        (
            lambda: fw.Space({"x": fw.Int(0, 1, when={"y": 1}), "y": fw.Int(0, 1, when={"x": 1})}),
            "form a cycle; remove one of them",
        ),
        (lambda: fw.Space({"x": fw.Int(0, 1, when={"x": 1})}), "form a cycle"),
        (
            lambda: fw.Space({"x": fw.Int(0, 1, when={"c": "z"}), "c": fw.Choice(["a"])}),
            "condition on 'c': 'z': one of 'a' is expected",
        ),
    ],
)
def test_a_bad_space_gets_one_clear_sentence(make, sentence):
    with pytest.raises(fw.UsageError) as caught:
        make()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"booster": "gbdt", "flag": True, "z": 1}, "unknown parameter 'z'"),
        ({"booster": "gbdt"}, "parameter 'flag' is missing"),
        ({"booster": "gbdt", "flag": True, "drop": 0.1}, "active only when {'booster': 'dart'}"),
        ({"booster": "dart", "flag": False, "drop": 0.9}, "parameter 'drop': 0.9: a number from 0.0 to 0.5"),
        ({"booster": "dart", "flag": 1, "drop": 0.1}, "parameter 'flag': 1: one of True, False"),
        ({"booster": ["gbdt"], "flag": True}, "one of 'gbdt', 'dart', 'goss'"),
        (None, "a dict of parameters by name is expected"),
        ({"booster": "goss", "flag": True, "top": 2.5}, "a whole number from 1 to 9"),
        ({"booster": "goss", "flag": True, "top": True}, "a whole number from 1 to 9"),
    ],
)
def test_a_bad_configuration_gets_one_clear_sentence(params, sentence):
    with pytest.raises(fw.UsageError) as caught:
        TREE.check(params)
    assert sentence in str(caught.value)


def test_numbers_of_numpy_are_accepted_and_made_plain():
    space = fw.Space({"a": fw.Int(0, 9), "b": fw.Float(0, 1), "c": fw.Choice([1, 2])})
    params = space.check({"a": np.int64(3), "b": np.float32(0.5), "c": np.int32(2)})
    assert params == {"a": 3, "b": 0.5, "c": 2}
    assert [type(value) for value in params.values()] == [int, float, int]


class Booster(enum.StrEnum):
    GBDT = "gbdt"
    DART = "dart"


def test_options_are_made_plain_so_that_a_log_in_json_can_hold_them():
    assert fw.Choice(list(np.logspace(-3, -1, 3))) == fw.Choice([0.001, 0.01, 0.1])
    choice = fw.Choice(list(Booster))
    assert choice.options == ("gbdt", "dart")
    assert {type(option) for option in choice.options} == {str}
    assert choice.check(Booster.DART) == "dart"
    assert type(fw.Int(0, 10, step=np.int64(2)).decode(0.3)) is int
    space = fw.Space({"c": fw.Choice(["a", "b"]), "x": fw.Int(0, 1, when={"c": {"a", "b"}})})
    assert space.decode([0.1, 0.9]) == {"c": "a", "x": 1}


@pytest.mark.parametrize(
    "parameter",
    [fw.Float(118927.99999999988, 237855.99999999977, log=True), fw.Float(-1e9 / 3, 1e-7), fw.Float(1.0, 1.0 + 2e-9)],
)
def test_a_value_that_the_cube_cannot_tell_from_a_bound_is_that_bound(parameter):
    near = [10.0**-digits for digits in range(1, 18)]
    for u in (*near, *(1 - each for each in near)):
        value = parameter.decode(u)
        assert parameter.low <= value <= parameter.high
        assert parameter.decode(parameter.encode(value)) == value


@pytest.mark.parametrize(
    "parameter",
    [
        fw.Float(1e-300, 1e300, log=True),
        fw.Float(0, 1e13, step=1),
        fw.Float(1000, 1001, step=1e-9),
        fw.Float(0, 1e300),
        fw.Int(-(2**49), 2**49),
        fw.Int(1, 2**40, log=True),
    ],
)
def test_extreme_ranges_round_trip(parameter):
    for u in np.random.default_rng(0).random(2000).tolist():
        value = parameter.decode(u)
        assert parameter.decode(parameter.encode(parameter.check(value))) == value
        assert abs(parameter.encode(value) - u) < (1e-6 if not isinstance(parameter, fw.Int) else 0.05)


def test_points_outside_the_cube_are_refused():
    with pytest.raises(fw.UsageError, match="a number from 0 to 1"):
        fw.Space({"a": fw.Int(0, 9)}).decode([1.5])
    with pytest.raises(fw.UsageError, match="1 parameters"):
        fw.Space({"a": fw.Int(0, 9)}).decode([0.5, 0.5])


def test_parameters_print_and_compare():
    assert fw.Float(0.0, 1.0, log=False) == fw.Float(0, 1)
    assert eval(repr(fw.Int(1, 8, log=True)), vars(fw)) == fw.Int(1, 8, log=True)


@given(st.integers(0, 2**32 - 1))
def test_snapping_points_is_encoding_what_they_decode_to(seed):
    space = fw.Space(MIXED)
    points = np.random.default_rng(seed).random((8, len(space)))
    snapped = space.snap(points)
    again = np.array([space.encode(space.decode(point)) for point in points])
    assert snapped == pytest.approx(again, abs=1e-9, nan_ok=True)
    assert space.fingerprints(snapped) == pytest.approx(space.fingerprints(again), abs=1e-8)


def test_a_grid_holds_every_configuration_once():
    space = fw.Space({"a": fw.Int(1, 3), "b": fw.Choice(["x", "y"]), "c": fw.Int(1, 3, when={"b": "y"})})
    everything = [space.decode(np.nan_to_num(point, nan=0.5)) for point in space.grid(100)]
    assert len(everything) == len({str(params) for params in everything}) == 12
    assert space.grid(10) is None
    assert fw.Space({"x": fw.Float(0.0, 1.0)}).grid(10**6) is None


def test_cells_of_a_log_integer_cover_the_cube():
    edges = fw.Int(1, 9, log=True).edges()
    assert edges[[0, -1]] == pytest.approx([0.0, 1.0])
    assert [fw.Int(1, 9, log=True).decode(u) for u in (edges[:-1] + edges[1:]) / 2] == list(range(1, 10))


def test_an_integer_always_has_a_step():
    with pytest.raises(fw.UsageError, match=r"Int\(1, 9\): step=None: a positive number is expected"):
        fw.Int(1, 9, step=None)


def test_a_long_chain_of_conditions_ends_where_one_does_not_hold():
    chain = {"c0": fw.Choice([0, 1])} | {f"c{i}": fw.Choice([0, 1], when={f"c{i - 1}": 1}) for i in range(1, 60)}
    space = fw.Space(chain)
    points = space.snap(np.random.default_rng(0).random((40, 60)) ** 0.1)
    for x in points:
        active = np.flatnonzero(~np.isnan(x))
        assert active.tolist() == list(range(len(active)))
        assert (x[active[:-1]] > 0.5).all()
        assert np.array_equal(space.encode(space.decode(np.nan_to_num(x, nan=0.5))), x, equal_nan=True)


@given(st.integers(0, 2**32 - 1), st.data())
def test_any_part_of_a_configuration_is_one_that_the_space_completes(seed, data):
    space = fw.Space(
        {
            "model": fw.Choice(["linear", "network"]),
            "layers": fw.Int(1, 3, when={"model": "network"}),
            "third": fw.Float(0.0, 1.0, when={"layers": 3}),
            "width": [fw.Int(1, 9, when={"layers": [2, 3]}), fw.Choice([5, "auto"])],
        }
    )
    rng = np.random.default_rng(seed)
    whole = space.decode(rng.random(len(space)))
    part = {name: whole[name] for name in data.draw(st.sets(st.sampled_from(sorted(whole))))}
    checked = space.check_some(part)
    assert part.items() <= checked.items() <= whole.items()
    assert space.is_whole(checked) or len(checked) < len(whole)
    assert space.decode_some(space.encode_some(part)) == checked
    points = space.with_given(rng.random((500, len(space))), space.encode_some(part))
    assert len(points)
    assert all(part.items() <= space.decode(np.nan_to_num(x, nan=0.5)).items() for x in points)
