"""The definition of a study as JSON and back: its space, objective, constraints, seed, sampler, stopper and terminator.

Only classes that the registry lists are built from JSON. A condition that is a function is kept by its name, and comes
back as `Stored`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fairway import registry
from fairway.conditions import Stored, function_name
from fairway.errors import StorageError, UsageError
from fairway.problem import Problem
from fairway.samplers.sampler import Sampler
from fairway.space import Space
from fairway.stoppers.earlier import EarlierPilot
from fairway.stoppers.stopper import Stopper
from fairway.terminators.terminator import AllOf, AnyOf, Terminator

WORDING = 2
"""Version of the sentences that say why a trial stops. Logs keep them, and `verify` compares those of this version."""


@dataclass(frozen=True)
class Identity:
    """A study without its history; a sampler, stopper or terminator of the user's own comes back from JSON as None."""

    space: Space
    problem: Problem
    seed: int | None  # None until it is chosen
    sampler: Sampler | None
    stopper: Stopper | None
    terminator: Terminator | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "space": {name: plain(part[0] if len(part) == 1 else part) for name, part in self.space.declared.items()},
            "objective": plain(self.problem.objective),
            "constraints": plain(self.problem.constraints),
            "seed": self.seed,
            "sampler": plain(self.sampler),
            "stopper": plain(self.stopper),
            "terminator": plain(self.terminator),
            "wording": WORDING,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """The identity that `to_json` wrote."""
        try:
            parameters = {
                name: [build(each) for each in part] if isinstance(part, list) else build(part)
                for name, part in data["space"].items()
            }
            constraints = [build(part) for part in data["constraints"]]
            return cls(
                space=Space(parameters),
                problem=Problem(build(data["objective"]), constraints),
                seed=int(data["seed"]),
                sampler=build(data["sampler"]),
                stopper=build(data["stopper"]),
                terminator=build(data.get("terminator")),
            )
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise StorageError(f"the log does not say what study it is of ({error}): it is damaged") from error

    def refuse_another(self, stored: Mapping[str, Any]) -> None:
        """Raise a `UsageError` that says how a stored study differs, if its space or objective is another."""
        mine = self.to_json()
        for part in ("space", "objective"):
            there, here = stored.get(part), mine[part]
            if part != "space":
                there, here = _lasting(there), _lasting(here)
            difference = _difference(there, here)
            if difference:
                raise UsageError(
                    f"the study in this storage has another {part}: {difference}; give this one another name"
                )

    def has_other_limits(self, stored: Sequence[Any]) -> bool:
        """Whether stored constraints, as JSON, differ from this study's."""
        return bool(_difference(_lasting(stored), _lasting(plain(self.problem.constraints))))

    def refuse_other_limits(self, stored: Sequence[Any], *, changed: bool) -> None:
        """Raise a `UsageError` that says how a stored study's constraints in force differ from this one's, if they do.

        Once limits have `changed`, a constraint keeps the scale that it began with, which need not be given again.
        """
        there, here = _lasting(list(stored)), _lasting(plain(self.problem.constraints))
        if changed:
            there, here = (sorted(each, key=lambda one: str(one["metric"])) for each in (there, here))
            scales = {one["metric"]: one.get("scale") for one in there}
            for one in here:
                if one.get("scale", 0.0) is None:
                    one["scale"] = scales.get(one["metric"])
        difference = _difference(there, here)
        if difference:
            now, moves = ", ".join(_written(one) for one in there if one not in here), _moves(there, here)
            raise UsageError(
                f"the study in this storage has other constraints: {difference}; write here what holds there"
                f"{now and f', {now}'}{moves and ', or open it with fw.load_study(url, name) and call '}{moves}, "
                "or give this one another name"
            )


def _moves(there: Sequence[Mapping[str, Any]], here: Sequence[Mapping[str, Any]]) -> str:
    """The call that gives a stored study these constraints; empty if `set_limit` cannot."""
    stored, added, moved = {one["metric"]: one for one in there}, list[str](), list[str]()
    for one in here:
        before = stored.pop(one["metric"], None)
        if before == one:
            continue
        same_but_threshold = before is not None and {**before, "threshold": one.get("threshold")} == one
        if before is None and "threshold" in one:
            added.append(_written(one))
        elif same_but_threshold or before is not None and before["kind"] == "Track":
            moved.append(_keyword(one["metric"], f"{one['threshold']:.12g}"))
        else:
            return ""
    moved += [_keyword(metric, "None") for metric, one in stored.items() if "threshold" in one]
    return f"study.set_limit({', '.join(added + moved)})" if added or moved else ""


def _keyword(name: str, value: str) -> str:
    return f"{name}={value}" if name.isidentifier() else f"**{{{name!r}: {value}}}"


def _written(one: Mapping[str, Any]) -> str:
    """A constraint from its JSON, as the user writes it in Python."""
    threshold = f", {one['threshold']:.12g}" if "threshold" in one else ""
    return f"fw.{one['kind']}({one['metric']!r}{threshold})"


def _lasting(part: Any) -> Any:
    """An objective or a list of constraints, without the fields that affect no value and no order and so may change."""
    if isinstance(part, list):
        return [_lasting(each) for each in part]
    return {k: v for k, v in part.items() if k not in ("best", "cost", "alone")} if isinstance(part, dict) else part


def _difference(there: Any, here: Any, path: str = "") -> str:
    """Where two JSON values first differ, in words; empty if they do not."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here}:
            found = _difference(there.get(key), here.get(key), f"{path}{key} ")
            if found:
                return found
        return ""
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = [(one, other, f"{path}{_metric(one, other)}") for one, other in zip(there, here, strict=True)]
        return next(filter(None, (_difference(*pair) for pair in pairs)), "")
    return "" if there == here else f"{path}{_short(there)} there, {_short(here)} here"


def _metric(there: Any, here: Any) -> str:
    """The metric that two constraints share, and a space; empty if they share none."""
    metrics = [each.get("metric") if isinstance(each, dict) else None for each in (there, here)]
    return f"{metrics[0]} " if metrics[0] is not None and metrics[0] == metrics[1] else ""


def _short(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("metric") or value.get("kind") or value
    if isinstance(value, list):
        return f"[{', '.join(_short(item) for item in value)}]"
    return repr(value) if value is not None else "missing"


def plain(part: Any) -> Any:
    """A part of a study as JSON."""
    if callable(part):
        return function_name(part)
    if is_dataclass(part):
        kind = type(part)
        name = kind.__name__ if registry.kind(kind.__name__) is kind else f"{kind.__module__}.{kind.__qualname__}"
        return {"kind": name, **{item.name: plain(getattr(part, item.name)) for item in fields(part) if item.init}}
    if isinstance(part, Mapping):
        return {name: plain(value) for name, value in part.items()}
    if isinstance(part, list | tuple | set | frozenset):
        return [plain(item) for item in part]
    return part


def build(part: Mapping[str, Any] | None) -> Any:
    """The part of a study that `plain` wrote; None for a class of the user's own."""
    if part is None:
        return None
    arguments = dict(part)
    if isinstance(arguments.get("when"), str):
        arguments["when"] = Stored(arguments["when"])
    name = arguments.pop("kind")
    kind = EarlierPilot if name == "Pilot" and "reduction" in arguments else registry.kind(name)
    if kind in (AnyOf, AllOf):
        arguments["parts"] = [build(each) for each in arguments["parts"]]
        kind = None if None in arguments["parts"] else kind
    return None if kind is None else kind(**arguments)
