"""Transactions on connections that may be lost in the middle of one."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from fairway.storage.statements import Cursors


@pytest.mark.parametrize("keep", [True, False])
def test_a_connection_that_is_lost_in_a_function_that_fails_is_replaced_without_a_word(tmp_path, caplog, keep):
    cursors = Cursors(sa.create_engine(f"sqlite:///{tmp_path / 'study.db'}"), keep=keep)
    cursors.run(lambda cursor: cursor.execute("CREATE TABLE row (text)"))

    def fail(cursor):
        cursor.execute("INSERT INTO row VALUES ('x')")
        cursor.connection.close()
        raise KeyError

    with pytest.raises(KeyError):
        cursors.run(fail, ["BEGIN"])
    assert cursors.run(lambda cursor: cursor.execute("SELECT * FROM row").fetchall()) == []
    assert caplog.records == []
