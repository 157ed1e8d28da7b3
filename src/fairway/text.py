"""Formats text from elsewhere, numbers, durations, limits and goals for people to read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from fairway.letters import plain
from fairway.problem import Constraint, Problem

_UNITS = (  # the least seconds to use it for, its length in seconds, its name, its short name
    (172_800.0, 86_400.0, "days", "days"),
    (7200.0, 3600.0, "hours", "h"),
    (120.0, 60.0, "minutes", "min"),
    (1.0, 1.0, "seconds", "s"),
    (1e-3, 1e-3, "milliseconds", "ms"),
    (5e-324, 1e-6, "microseconds", "µs"),
    (0.0, 1e-3, "milliseconds", "ms"),
)


def shown(text: object, most: int = 300) -> str:
    r"""A text that cannot move a cursor or change colours, cut to a length.

    >>> shown("red: " + chr(27) + "[31m")
    'red: \\x1b[31m'
    """
    given = str(text)
    return plain(given if len(given) <= most else f"{given[: most - 3]}...")


def squeezed(name: str, most: int) -> str:
    """A name cut to a length by leaving out its middle, since names often differ at their ends.

    >>> squeezed("randomforestclassifier__max_depth", 24)
    'randomfores..._max_depth'
    """
    half = (most - 3) // 2
    return name if len(name) <= most else f"{name[: most - 3 - half]}...{name[-half:]}"


def named(name: object) -> str:
    """A name that came from elsewhere, as part of a sentence."""
    return shown(name, 60)


def counted(n: int, what: str) -> str:
    """A count and its noun, in the plural unless the count is 1.

    >>> counted(1, "trial"), counted(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def number(value: float) -> str:
    """A number as a sentence shows it.

    >>> number(0.87812), number(1234567.0), number(3.0), number(21000)
    ('0.8781', '1,234,567', '3', '21,000')
    """
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"  # noqa: PLR2004


def beside(value: float, other: float) -> str:
    """A number that is compared with another, with enough digits to tell them apart.

    >>> beside(0.2500001, 0.25)
    '0.2500001'
    """
    if value == other or value != value:  # noqa: PLR0124 - NaN
        return number(value)
    digits = next((n for n in range(4, 17) if f"{value:.{n}g}" != f"{other:.{n}g}"), 17)
    return number(value) if digits == 4 else f"{value:.{digits}g}"  # noqa: PLR2004


def rounded(value: float, error: float | None, other: float | None = None) -> str:
    """A number rounded to two digits of its error, unless rounding would move it across `other`.

    >>> rounded(0.07123, 0.012), rounded(0.2504, 0.012, 0.25), rounded(0.07123, None)
    ('0.071', '0.2504', '0.07123')
    """
    plain = number(value) if other is None else beside(value, other)
    decimals = _decimals(error)
    if decimals is None or not math.isfinite(value) or value == 0.0:
        return plain
    short = f"{value:,.{decimals}f}"
    near = float(short.replace(",", ""))
    return short if other is None or (near > other) - (near < other) == (value > other) - (value < other) else plain


def plus_minus(value: float, error: float | None, other: float | None = None) -> str:
    """A number with its error, if that is known.

    >>> plus_minus(0.07123, 0.0119), plus_minus(12.0, None), plus_minus(5120.0, 210.0)
    ('0.071 ± 0.012', '12', '5,120 ± 210')
    """
    return f"{rounded(value, error, other)} {rounded_error(error)}".rstrip()


def rounded_error(error: float | None) -> str:
    """An error in two digits, after its sign; empty if it is unknown, or if there is none.

    >>> rounded_error(0.0119), rounded_error(None), rounded_error(0.0)
    ('± 0.012', '', '')
    """
    if not error or math.isnan(error):
        return ""
    decimals = _decimals(error)
    return f"± {number(float(f'{error:.2g}')) if decimals is None else f'{error:,.{decimals}f}'}"


def _decimals(error: float | None) -> int | None:
    """The decimals that show two digits of an error; None if the error is unknown, below 1e-6, or at least 1e15."""
    if error is None or not 1e-6 <= error < 1e15:  # noqa: PLR2004
        return None
    return max(1 - math.floor(math.log10(float(f"{error:.2g}"))), 0)


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.123), percent(0.0001), percent(1e9)
    ('12%', '<1%', '>9,999%')
    """
    if 0.0 < share < 0.005 or 0.995 < share < 1.0:  # noqa: PLR2004
        return "<1%" if share < 1.0 / 2.0 else ">99%"
    return f"{share:.0%}" if share < 100.0 else ">9,999%"  # noqa: PLR2004


def confidence(share: float) -> str:
    """A confidence in percent, with the digits that `percent` would drop.

    >>> confidence(0.95), confidence(0.995)
    ('95%', '99.5%')
    """
    return f"{100.0 * share:.4g}%"


def unit(longest: float) -> tuple[float, str]:
    """The unit in which durations up to the longest are best read: its seconds and its name.

    >>> unit(5000.0)
    (60.0, 'minutes')
    """
    return next((size, name) for least, size, name, _ in _UNITS if longest >= least)


def duration(seconds: float) -> str:
    """A duration as people say it.

    >>> [duration(s) for s in (0.0042, 3.21, 75.0, 5000.0, 1e6)]
    ['4.2 ms', '3.2 s', '75 s', '83 min', '12 days']
    """
    size, short = next((size, short) for least, size, _, short in _UNITS if seconds >= least)
    return f"{seconds / size:,.0f} {short}" if seconds / size >= 9.95 else f"{seconds / size:.2g} {short}"  # noqa: PLR2004


def limit(constraint: Constraint) -> str:
    """A constraint's limit as a formula, with the confidence at which a search keeps it.

    >>> import fairway as fw
    >>> limit(fw.AtMost("eod", 0.25)), limit(fw.AtMost("eod", 0.1, confidence=0.9))
    ('≤ 0.25', '≤ 0.1 at 90%')
    """
    if not constraint.has_limit:
        return "without a limit"
    sure = "" if constraint.confidence is None else f" at {confidence(constraint.confidence)}"
    return f"{'≤' if constraint.sign > 0 else '≥'} {constraint.threshold:g}{sure}"


def limits(problem: Problem) -> str:
    """How a sentence refers to the limits of a problem: in the singular if there is one.

    >>> import fairway as fw
    >>> limits(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]))
    'the limit'
    """
    return "the limit" if len(problem.limits) == 1 else "the limits"


def limit_in_words(constraint: Constraint) -> str:
    """A constraint's limit in words, without its confidence.

    >>> import fairway as fw
    >>> limit_in_words(fw.AtMost("eod", 0.25))
    'at most 0.25'
    """
    return f"at {'most' if constraint.sign > 0 else 'least'} {constraint.threshold:g}"


def goal(problem: Problem) -> str:
    """The goal of a study in words.

    >>> import fairway as fw
    >>> goal(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]))
    'maximize auc with eod ≤ 0.25'
    """
    limits = " and ".join(f"{named(constraint.metric)} {limit(constraint)}" for constraint in problem.limits)
    asked = f"{'maximize' if problem.objective.sign < 0 else 'minimize'} {named(problem.objective.metric)}"
    asked += f" with {limits}" if limits else ""
    tracked = " and ".join(named(one.metric) for one in problem.tracked)
    return f"{asked}, tracking {tracked}" if tracked else asked


def measured(names: Iterable[str], values: Iterable[float | None], errors: Mapping[str, float] | None = None) -> str:
    """Metrics and their values, with the errors that are known, without those that were not measured.

    >>> measured(["auc", "eod", "ms"], [0.87812, None, 12.0])
    'auc 0.8781, ms 12'
    >>> measured(["auc", "eod"], [0.87812, 0.0712], {"eod": 0.012})
    'auc 0.8781, eod 0.071 ± 0.012'
    """
    known = errors or {}
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{named(name)} {plus_minus(v, known.get(name))}" for name, v in pairs if v is not None)


def distance(
    constraint: Constraint, value: float | None, error: float | None = None, compared: float | None = None
) -> str:
    """How far a value is from its limit, in a sentence; `compared` is its bound, if that is compared with the limit.

    >>> import fairway as fw
    >>> distance(fw.AtMost("eod", 0.25), 0.31)
    'eod 0.31 is 0.06 (24%) beyond its limit of at most 0.25.'
    >>> distance(fw.AtMost("eod", 0.1, confidence=0.9), 0.071, 0.012, 0.0864)
    'eod 0.071 ± 0.012, its bound at 90% 0.086, is 0.014 (14%) within its limit of at most 0.1.'
    """
    if value is None:
        return f"{named(constraint.metric)} was not measured there."
    decides = value if compared is None else compared
    what = f"{named(constraint.metric)} {plus_minus(value, error, constraint.threshold)}"
    if constraint.confidence is not None:
        sure = f"its bound at {confidence(constraint.confidence)}"
        what += f", {sure} {rounded(decides, error, constraint.threshold)},"
    where, over = f"its limit of {limit_in_words(constraint)}", constraint.sign * (decides - constraint.threshold)
    if over == 0.0:
        return f"{what} is exactly {where}."
    if over != over:  # noqa: PLR0124 - NaN
        return f"{what} counts as beyond {where}."
    share = f" ({percent(abs(over / constraint.threshold))})" if constraint.threshold else ""
    return f"{what} is {abs(over):.2g}{share} {'beyond' if over > 0 else 'within'} {where}."


def params(given: Mapping[str, Any], most: int = 8) -> str:
    """A configuration in a few words.

    >>> params({"rate": 0.123456, "booster": "dart"})
    'rate 0.1235, booster dart'
    """
    parts = [f"{named(name)} {number(v) if isinstance(v, float) else named(v)}" for name, v in given.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def moment(seconds: float) -> str:
    """A time since the epoch as a date and a time of day, UTC.

    >>> moment(0.0)
    '1970-01-01 00:00'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, TypeError, ValueError):  # the clock was wrong
        return "unknown"
