"""Search spaces of Ray Tune as ours, and configurations translated both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ray.tune.search import sample

from fairway.errors import UsageError
from fairway.integrations.bridge import as_choice
from fairway.parameters import Choice, Float, Int, Parameter, Value
from fairway.space import Space

Path = tuple[str, ...]


class Table(NamedTuple):
    """A search space of ours, where its parameters are in a configuration of Tune, and what is constant there.

    Options of a choice that are not JSON scalars become their index.
    """

    space: Space
    paths: Mapping[str, Path]
    options: Mapping[str, list[Any]]  # of the choices that are made by index
    constants: Mapping[Path, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any], space: Space | None = None) -> Table:
        """From Tune's search space, nested or not; with a space of ours it may only hold constants."""
        leaves = dict(_leaves(config))
        searched = {"/".join(path): path for path, part in leaves.items() if _is_searched(part)}
        constants = {path: part for path, part in leaves.items() if not _is_searched(part)}
        parameters = {name: _parameter(name, leaves[path]) for name, path in searched.items()}
        if space is not None:
            if parameters:
                name = min(parameters)
                raise UsageError(f"parameter {name!r} is in param_space, and space= was given: use one of them")
            return cls(space, {name: (name,) for name in space.names}, {}, constants)
        if not parameters:
            raise UsageError("param_space has nothing to search for: give it domains, such as tune.uniform(0, 1)")
        options = {
            name: list(leaves[path].categories)
            for name, path in searched.items()
            if isinstance(leaves[path], sample.Categorical) and as_choice(leaves[path].categories) is None
        }
        return cls(Space(parameters), searched, options, constants)

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


def _leaves(config: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, part in config.items():
        path = (*above, str(key))
        if isinstance(part, Mapping) and not _is_searched(part):
            yield from _leaves(part, path)
        elif isinstance(part, list | tuple) and any(map(_is_searched, part)):
            raise UsageError(f"parameter {'/'.join(path)!r} is a list with domains in it; name each of them")
        else:
            yield path, part


def _put(config: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value


def _is_searched(part: Any) -> bool:
    """Whether a part of a configuration is a domain, or a grid of values."""
    return isinstance(part, sample.Domain) or isinstance(part, Mapping) and set(part) == {"grid_search"}


def _parameter(name: str, domain: Any) -> Parameter:
    if isinstance(domain, Mapping):
        raise UsageError(f"parameter {name!r} is a grid_search, which visits every value; use tune.choice([...])")
    if isinstance(domain, sample.Categorical):
        return as_choice(domain.categories) or Choice(range(len(domain.categories)))
    how, step = domain.get_sampler(), None
    if isinstance(how, sample.Quantized):
        how, step = how.get_sampler(), how.q
    log = isinstance(how, sample.LogUniform)
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
