"""Keeps PostgreSQL's queue of notifications short.

A session that listens and does not read, because it stays in a transaction, keeps all later
notifications in the queue. A commit that notifies fails while the queue is full, as every start and
end of a run does. PostgreSQL also keeps delivered notifications until the usage is queried. The
reading role does not need to listen, but PostgreSQL can't forbid it. Used by masters.
"""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy import Engine

from common.errors import ConfigurationError
from common.store.connect import answer_of
from common.store.reading import READER

log = logging.getLogger(__name__)

MOST_USAGE: Final = 0.05
"""The part of the queue, by default 400 MB, from which sessions of the reading role are ended."""

_FUNCTION: Final = "pg_notification_queue_usage()"
_USAGE: Final = f"SELECT {_FUNCTION}"
_END: Final = """
    SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE usename = %(role)s AND datname = current_database()
"""


class NotifyQueue:
    """The queue of notifications of one server."""

    def __init__(self, made: Engine, *, most_usage: float = MOST_USAGE) -> None:
        self._made = made
        self._most_usage = most_usage
        self._is_refused = False

    def shorten(self) -> None:
        """Drop delivered notifications; end sessions of the reading role while the queue is long.

        Raises `ServiceUnreachableError` if the server does not answer. The start of a daemon checks
        the right to query the usage. If it is revoked later, one warning names the right to grant.
        """
        try:
            usage = float(answer_of(self._made, _USAGE))
        except ConfigurationError as error:
            if not self._is_refused:
                cure = f"GRANT EXECUTE ON FUNCTION {_FUNCTION} TO PUBLIC"
                extra: dict[str, object] = {"cause": str(error), "cure": cure}
                log.warning("may not query the usage of the queue of notifications", extra=extra)
            self._is_refused = True
            return
        self._is_refused = False
        if usage > self._most_usage:
            self._end_readers({"usage": round(usage, 4), "role": READER})

    def _end_readers(self, extra: dict[str, object]) -> None:
        try:
            ended = int(answer_of(self._made, _END, role=READER))
        except ConfigurationError as error:
            cure = "grant pg_signal_backend to the role of the daemons"
            extra |= {"cause": str(error), "cure": cure}
            log.warning("may not end sessions that fill the queue of notifications", extra=extra)
            return
        if ended:
            extra["sessions"] = ended
            log.warning("ended sessions that may fill the queue of notifications", extra=extra)
        else:
            extra["cure"] = "end the session that listens and stays in a transaction"
            log.warning("queue of notifications is long", extra=extra)
