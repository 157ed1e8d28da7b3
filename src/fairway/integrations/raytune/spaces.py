"""Search spaces of Ray Tune as ours, and configurations between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ray.tune.search import sample

from fairway.errors import UsageError
from fairway.parameters import Choice, Float, Int, Parameter, Value
from fairway.space import Space

Path = tuple[str, ...]


class Table(NamedTuple):
    """A search space of ours, how its parameters are found in a configuration of Tune, and what is constant there.

    The options of a choice are told apart by their index where they are no JSON scalars.
    """

    space: Space
    paths: Mapping[str, Path]
    options: Mapping[str, list[Any]]
    constants: Mapping[Path, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any], space: Space | None = None) -> Table:
        """From Tune's search space, nested or not; beside a space of ours it may hold constants alone."""
        paths: dict[str, Path] = {}
        parameters: dict[str, Parameter] = {}
        options: dict[str, list[Any]] = {}
        constants: dict[Path, Any] = {}
        for path, part in _leaves(config):
            name = "/".join(path)
            if isinstance(part, sample.Domain) or _is_grid(part):
                paths[name], parameters[name] = path, _parameter(name, part)
                if isinstance(part, sample.Categorical) and not _are_scalars(part.categories):
                    options[name] = list(part.categories)
            else:
                constants[path] = part
        if space is None and not parameters:
            raise UsageError("param_space has nothing to search for: give it domains, such as tune.uniform(0, 1)")
        if space is not None and parameters:
            raise UsageError(f"parameter {min(parameters)!r} is in param_space, and space= was given: use one of them")
        if space is None:
            return cls(Space(parameters), paths, options, constants)
        return cls(space, {name: (name,) for name in space}, {}, constants)

    def to_theirs(self, params: Mapping[str, Value]) -> dict[str, Any]:
        """A configuration for Tune, constants included."""
        config: dict[str, Any] = {}
        for path, value in self.constants.items():
            _put(config, path, value)
        for name, value in params.items():
            _put(config, self.paths[name], self.options[name][int(value)] if name in self.options else value)  # type: ignore[arg-type]
        return config

    def to_ours(self, config: Mapping[str, Any]) -> dict[str, Value]:
        """The parameters in a configuration of Tune."""
        params: dict[str, Value] = {}
        for name, path in self.paths.items():
            part: Any = config
            for key in path:
                if not isinstance(part, Mapping) or key not in part:
                    break
                part = part[key]
            else:
                params[name] = self.options[name].index(part) if name in self.options else part
        return params


def _leaves(config: Mapping[str, Any], path: Path = ()) -> list[tuple[Path, Any]]:
    found = []
    for key, part in config.items():
        if isinstance(part, Mapping) and not _is_grid(part):
            found += _leaves(part, (*path, str(key)))
        elif isinstance(part, list | tuple) and any(isinstance(each, sample.Domain) or _is_grid(each) for each in part):
            raise UsageError(
                f"parameter {'/'.join((*path, str(key)))!r} is a list with domains in it; name each of them"
            )
        else:
            found.append(((*path, str(key)), part))
    return found


def _put(config: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value


def _is_grid(part: Any) -> bool:
    return isinstance(part, Mapping) and set(part) == {"grid_search"}


def _are_scalars(options: Any) -> bool:
    try:
        Choice(list(options))
    except UsageError:
        return False
    return True


def _parameter(name: str, domain: Any) -> Parameter:
    if _is_grid(domain):
        raise UsageError(f"parameter {name!r} is a grid_search, which visits every value; use tune.choice([...])")
    how, step = domain.get_sampler(), None
    if isinstance(how, sample.Quantized):
        how, step = how.get_sampler(), how.q
    log = isinstance(how, sample.LogUniform)
    if isinstance(domain, sample.Categorical):
        scalars = _are_scalars(domain.categories)
        return Choice(list(domain.categories) if scalars else range(len(domain.categories)))
    if isinstance(how, sample.Uniform | sample.LogUniform):
        try:
            if isinstance(domain, sample.Float):
                return Float(domain.lower, domain.upper, log=log, step=step)
            if isinstance(domain, sample.Integer):
                upper = domain.upper if step is not None and step > 1 else domain.upper - 1  # Tune leaves the last out
                return Int(domain.lower, upper, log=log, step=int(step or 1))
        except UsageError as error:
            raise UsageError(f"parameter {name!r}: {error}") from error
    kind = type(how).__name__.strip("_").lower()
    raise UsageError(
        f"parameter {name!r} is drawn by {kind}, which has no bounds to search within; use tune.uniform, "
        "tune.loguniform, tune.randint or tune.choice"
    )
