"""Reads CheckList's test suites from JSON."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from fairway.checks import short
from fairway.constraints.behaviour import Case, Directional, Invariance, MinimumFunctionality
from fairway.errors import UsageError

_INV_TOLERANCE = 0.1  # CheckList's default
_EXPECTED = ("labels", "direction", "tolerance", "label")


def _is_nested(expect: Any) -> bool:
    return isinstance(expect, Mapping) and all(isinstance(one, Mapping) for one in expect.values())


def load_cases(path: str | PathLike[str], *, expect: Mapping[str, Mapping[str, Any]] | None = None) -> list[Case]:
    """The suite in a JSON file, gzipped or not: a list of tests, each with a `name`, a `type` and `data`.

    An MFT test has a list of inputs and `labels`; INV and DIR tests have a list of groups, the original first. DIR has
    a `direction`; both may have a `tolerance` (for INV 0.1 by default, as in CheckList). `run_idxs` selects cases.
    CheckList keeps some expectations in code; `expect` supplies them by test name, as in
    `{"not negative": {"labels": (1, 2)}, "praise": {"direction": "up", "tolerance": 0.1}}`. An MFT test without labels
    and a DIR test without a direction are left out.

    >>> import json, pathlib, tempfile
    >>> from fairway.constraints import load_cases
    >>> tests = [
    ...     {"name": "words", "type": "MFT", "labels": 1, "data": ["good", "fine", "great"], "run_idxs": [0, 2]},
    ...     {"name": "praise", "type": "DIR", "labels": None, "data": [["Hello.", "Hello. I love it."]]},
    ... ]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "suite.json")
    ...     _ = path.write_text(json.dumps(tests))
    ...     load_cases(path)
    ...     len(load_cases(path, expect={"praise": {"direction": "up"}}))
    [MinimumFunctionality(name='words', inputs=('good', 'great'), labels=((1,), (1,)))]
    2
    """
    if not isinstance(path, str | PathLike):
        raise UsageError(f"path={short(path)}: the path of a JSON file is expected")
    if expect is not None and not _is_nested(expect):
        raise UsageError(f"expect={short(expect)}: a dict of dicts, by the names of tests, is expected")
    try:
        raw = Path(path).read_bytes()
        tests = json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UsageError(f"{path}: JSON is expected, gzipped or not ({error})") from None
    if not isinstance(tests, list) or not all(map(_is_test, tests)):
        raise UsageError(f"{path}: a list of tests, each with a name, a type and a list of data, is expected")
    more = expect or {}
    unknown = sorted(set(more) - {test["name"] for test in tests})
    if unknown:
        raise UsageError(f"expect names {unknown[0]!r}, but no test in {path} has that name")
    odd = [key for expected in more.values() for key in expected if key not in _EXPECTED]
    if odd:
        raise UsageError(f"expect has the key {odd[0]!r}: only {', '.join(_EXPECTED)} are allowed")
    suite = [case for test in tests if (case := _case({**test, **more.get(test["name"], {})})) is not None]
    incomplete = sorted(set(more) - {case.name for case in suite})
    if incomplete:
        raise UsageError(f"expect is incomplete for {incomplete[0]!r}: MFT needs labels, DIR a direction")
    if not suite:
        raise UsageError(f"{path}: no test states what it expects; pass expect=")
    return suite


def _is_test(test: Any) -> bool:
    if not isinstance(test, dict) or not isinstance(test.get("name"), str) or "type" not in test:
        return False
    return isinstance(test.get("data"), list) and bool(test["data"])


def _case(test: Mapping[str, Any]) -> Case | None:
    name, kind, data, labels = test["name"], test["type"], test["data"], test.get("labels")
    chosen = test.get("run_idxs")
    if chosen is not None:
        if not all(isinstance(i, int) and 0 <= i < len(data) for i in chosen):
            raise UsageError(f"{name}: run_idxs={chosen!r}: indices of its {len(data)} cases are expected")
        data = [data[i] for i in chosen]
    if kind == "MFT":
        if isinstance(labels, list) and chosen is not None and len(labels) == len(test["data"]):
            labels = [labels[i] for i in chosen]
        return None if labels is None else MinimumFunctionality(name, data, labels)
    if not all(isinstance(group, list) for group in data):
        raise UsageError(f"{name}: a list of groups, the original first, is expected")
    groups = [group for group in data if len(group) > 1]  # where no change applies, CheckList writes only the original
    if not groups:
        return None
    if kind == "INV":
        return Invariance(name, groups, test.get("tolerance", _INV_TOLERANCE))
    if kind == "DIR":
        direction, tolerance, label = test.get("direction"), test.get("tolerance", 0.0), test.get("label", -1)
        return None if direction is None else Directional(name, groups, direction, tolerance, label)
    raise UsageError(f"{name}: type={kind!r}: 'MFT', 'INV' or 'DIR' is expected")
