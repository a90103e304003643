"""Has the batches of a query in a Connect server written by the process of the task.

A Connect server runs the function for batches in a Python of its own, which has nothing of the task
but what was pickled. So the function is a `BatchCall`: it tells the task which batch there is, by a
socket in the task's folder, and waits for its answer; each is a line of JSON. The task writes the
batch in the session that Spark has made for the query. If either process dies, the other sees the
end of the connection, and the batch has failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TextIO

from worker.spark.session.sessions import session_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOCKET: Final = "batches"
_connections: dict[str, TextIO] = {}
"""Those of this process, by the folder of the task; a Python for batches has one."""


class BatchFailedError(Exception):
    """The task has not written a batch; this is the text of its reason."""


@dataclass(frozen=True, slots=True)
class BatchCall:
    """The function for batches, where the server runs it. It can be pickled."""

    folder: str

    def __call__(self, records: Any, number: int) -> None:
        """Have the task write a batch; return when it has, or raise `BatchFailedError`."""
        if self.folder not in _connections:
            _connections[self.folder] = _connected(Path(self.folder))
        connection = _connections[self.folder]
        asked = {
            "session": records.sparkSession.session_id,
            "relation": records._plan._relation_id,  # noqa: SLF001  # The server finds it by that.
            "number": number,
        }
        _write_line(connection, asked)
        answer = connection.readline()
        failure = json.loads(answer) if answer else "the process of the task is gone"
        if failure:
            raise BatchFailedError(failure)


class BatchRelay:
    """Answers the calls for batches of one query, one after the other, on a thread of its own."""

    def __init__(
        self, spark: SparkSession, folder: Path, write: Callable[[DataFrame, int], None]
    ) -> None:
        """`folder` is one that the task's account alone can enter."""
        self._spark: Any = spark
        self._write = write
        self._session: Any = spark
        self._path = folder / _SOCKET
        self.call = BatchCall(str(folder))
        self._listener = socket.socket(socket.AF_UNIX)
        with _address(folder) as address:
            self._listener.bind(address)
        self._listener.listen()
        Thread(target=self._listen, name="batches", daemon=True).start()

    def close(self) -> None:
        """Hear no further calls: the query is over. It may be closed already."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _listen(self) -> None:
        # A query has one Python for batches.
        with contextlib.suppress(OSError), _as_text(self._listener.accept()[0]) as connection:
            for asked in connection:
                _write_line(connection, self._answer(json.loads(asked)))

    def _answer(self, asked: dict[str, Any]) -> str:
        """Write a batch; return why that has failed, or nothing."""
        try:
            self._write(self._records(asked["session"], asked["relation"]), asked["number"])
        except Exception as error:  # noqa: BLE001  # The writer keeps it; here its text will do.
            return f"{type(error).__name__}: {error}"
        return ""

    def _records(self, session_id: str, relation: str) -> DataFrame:
        if session_id != self._session.session_id:
            self._session = session_beside(self._spark, session_id)
        records: DataFrame = self._session._create_remote_dataframe(relation)  # noqa: SLF001
        return records


def _connected(folder: Path) -> TextIO:
    made = socket.socket(socket.AF_UNIX)
    with _address(folder) as address:
        made.connect(address)
    return _as_text(made)


def _as_text(connection: socket.socket) -> TextIO:
    """Return the connection as a file of lines, which closes it."""
    with connection:
        return connection.makefile("rw", encoding="utf-8")


def _write_line(connection: TextIO, document: Any) -> None:
    connection.write(f"{json.dumps(document)}\n")
    connection.flush()


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Give a name of the socket that is short enough, however long the path of its folder is."""
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{_SOCKET}"
    finally:
        os.close(directory)
