"""Opens a stored study by its address and name; the log says what the study is."""

from __future__ import annotations

from typing import Any

from fairway.conditions import Stored
from fairway.engine.events import Opened
from fairway.engine.identity import Identity
from fairway.engine.keep import Keep
from fairway.engine.limits import in_force
from fairway.engine.outage import PATIENCE
from fairway.errors import UsageError
from fairway.samplers.sampler import Sampler
from fairway.space import Declared, Space
from fairway.stoppers.stopper import Stopper
from fairway.storage.opening import only_study
from fairway.study import Study
from fairway.terminators.terminator import Terminator


def load_study(
    url: str,
    name: str | None = None,
    *,
    space: Declared | None = None,
    sampler: Sampler | None = None,
    stopper: Stopper | None = None,
    terminator: Terminator | None = None,
    patience: float = PATIENCE,
    checkpoints: Keep | None = None,
) -> Study:
    """Open a study in a database, to look at it or to resume it; no name is needed if it is the only one there.

    Its space, objective, constraints and seed come from the log, and so do the sampler, the stopper and the terminator
    that it was created with, unless you give others. A log holds no code: if a parameter's `when` is a function
    (`when=lambda params: ...`), pass the `space` again, and pass any sampler, stopper or terminator that is your own
    class. `patience` and `checkpoints` are those of `Study`.

    >>> import tempfile
    >>> import fairway as fw
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     url = f"sqlite:///{folder}/credit.db"
    ...     study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=url, name="credit", seed=0)
    ...     study.optimize(lambda trial: trial.params["x"], trials=5)
    ...     fw.load_study(url, "credit").best == study.best
    True
    """
    from fairway.storage.sql import Database  # noqa: PLC0415 - SQLAlchemy takes its time to load

    name = only_study(url) if name is None else name
    log = Database(url, reading=True).log(name, create=False)
    events = log.read(0, 1)
    if not events or not isinstance(events[0], Opened):
        raise UsageError(f"the study {name!r} is empty: nobody has opened it yet; create it with fw.Study")
    config = events[0].config
    stored = Identity.from_json(config)
    if space is None:
        _refuse_functions(stored.space)
    return Study(
        stored.space if space is None else space,
        stored.problem.objective,
        in_force(log, stored.problem),
        sampler=sampler or _known("sampler", stored.sampler, config.get("sampler")),
        stopper=stopper or _known("stopper", stored.stopper, config.get("stopper")),
        terminator=terminator or _known("terminator", stored.terminator, config.get("terminator")),
        storage=url,
        name=name,
        patience=patience,
        checkpoints=checkpoints,
    )


def _refuse_functions(space: Space) -> None:
    for key, parameter in space.items():
        if isinstance(parameter.when, Stored):
            raise UsageError(
                f"the parameter {space.name_of(key)!r} is active by the function {parameter.when.name!r}, of which the "
                "log keeps only the name: pass the space too, load_study(url, name, space=...)"
            )


def _known(part: str, built: Any, said: Any) -> Any:
    """A sampler, stopper or terminator that was built from the log; None if the study has none."""
    if built is None and said is not None:
        kind = said.get("kind") if isinstance(said, dict) else said
        raise UsageError(f"the {part} of this study is {kind}, of which the log keeps only the name: pass {part}=...")
    return built
