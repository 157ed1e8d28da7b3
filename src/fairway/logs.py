"""The logger of fairway: names and reasons from elsewhere cannot forge or colour its lines."""

from __future__ import annotations

import logging
import traceback

from fairway.letters import plain

_LONGEST = 2000  # characters of a line


class _Plain(logging.Filter):
    """Escapes what is not printable in a message, and in the traceback that comes with it."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 3]}..."
        record.msg, record.args = plain(said), ()
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = plain("".join(traceback.format_exception(*record.exc_info)).rstrip(), keep="\n")
        return True


logger = logging.getLogger("fairway")
logger.addFilter(_Plain())
