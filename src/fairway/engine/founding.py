"""The first event of a log: written by whoever opens a study first, and compared by everybody who opens it later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairway.engine.carried import Source, carry
from fairway.engine.events import Carried, Dropped, Opened
from fairway.engine.identity import Identity
from fairway.engine.journal import read, write
from fairway.engine.log import Log
from fairway.errors import StorageError, UsageError
from fairway.seeds import fresh_seed


def open_study(
    identity: Identity, log: Log, start_from: Callable[[], Sequence[Source]] | None = None
) -> tuple[int, bool, Mapping[str, Any]]:
    """Open a study's log; return its seed, whether this process founded it (as worker 0), and its configuration.

    Refuse the log of another study. The trials that the study starts from are written together with the opening, all or
    nothing; whoever opens the study later reads them there.
    """
    first, *then = [*read(log, 0, most=2), None]
    if first is None:
        seed = fresh_seed() if identity.seed is None else identity.seed
        config = replace(identity, seed=seed).to_json()
        known = [] if start_from is None else carry(start_from(), identity.space, identity.problem)
        if write(log, [Opened(0, config), *known]) is not None:
            return seed, True, config
        first, *then = [*read(log, 0, most=2), None]  # another process was faster
    if not isinstance(first, Opened) or type(first.config.get("seed")) is not int:
        raise StorageError("the log does not begin by saying what study it is of: it is damaged")
    identity.refuse_another(first.config)
    seed = first.config["seed"]
    if identity.seed not in (None, seed):
        raise UsageError(f"the study in this storage has seed {seed}; leave seed out, or give that one")
    if start_from is not None and not isinstance(then[0], Carried | Dropped):
        raise UsageError("the study in this storage began without start_from; leave it out, or give another name")
    return seed, False, first.config
