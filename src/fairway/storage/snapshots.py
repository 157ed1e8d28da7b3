"""The parts of a study's snapshot in a table of their own: see `fairway.engine.snapshot`."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from fairway.errors import StorageError
from fairway.storage import schema
from fairway.storage.access import Access

_AT_ONCE = 500  # parts in one statement


def keep(access: Access, study: int, parts: Mapping[str, bytes]) -> None:
    """Keep these parts and no others; only those that changed are written."""
    table = schema.snapshot
    table.create(access.engine, checkfirst=True)  # an older database has none
    digests = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    try:
        with access.writing() as connection:
            there = sa.select(table.c.part, table.c.digest).where(table.c.study == study)
            known = {str(name): str(digest) for name, digest in connection.execute(there)}
            stale = [name for name, digest in known.items() if digests.get(name) != digest]
            for i in range(0, len(stale), _AT_ONCE):
                these = table.c.part.in_(stale[i : i + _AT_ONCE])
                connection.execute(table.delete().where(table.c.study == study, these))
            rows = [
                {"study": study, "part": name, "digest": digest, "body": parts[name]}
                for name, digest in digests.items()
                if known.get(name) != digest
            ]
            if rows:
                connection.execute(table.insert(), rows)
    except IntegrityError as error:
        raise StorageError(f"{access.shown}: another process keeps a snapshot at this moment") from error


def kept(access: Access, study: int, names: Collection[str] | None = None) -> Mapping[str, bytes]:
    """The parts that were kept last, or those with these names; a row that is not a part is left out.

    The head holds the hashes of the other parts; its own hash is in its row.
    """
    if not sa.inspect(access.engine).has_table(schema.snapshot.name):
        return {}
    table = schema.snapshot.c
    those = sa.select(table.part, table.digest, table.body).where(table.study == study)
    with access.reading() as connection:
        rows = connection.execute(those if names is None else those.where(table.part.in_(names))).all()
    found = {name: body for name, _, body in rows if isinstance(body, bytes)}
    digests = {name: digest for name, digest, _ in rows}
    if "head" in found and hashlib.sha256(found["head"]).hexdigest() != digests["head"]:
        return {}  # damaged; the log has it all
    return found
