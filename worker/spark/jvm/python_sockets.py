"""Unix domain sockets between a JVM of Spark and its Python processes on one computer.

Spark's default is TCP. A process of any account can connect to a TCP port, and PySpark's server for
accumulators serves one connection at a time: a connection that sends nothing stops all jobs of the
driver. TCP is also slower. Each exchange of a small batch takes some 40 ms, because Java leaves
Nagle's algorithm on and the kernel of the other side delays its acknowledgement.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_LONGEST_FOLDER: Final = 60
"""Bytes. Spark adds a name, and Linux limits the path of a socket to 107 bytes."""


class SocketFolder:
    """The folder for the sockets of one driver; it must be private to the account.

    If the path of the folder is too long for a socket, Spark gets a short path to it by way of a
    descriptor of this process. Only processes of this account can follow that path, and only while
    this process runs and the folder is open here.
    """

    def __init__(self, folder: Path) -> None:
        """Open the folder if its path is too long. Raises `OSError` if no short path is usable."""
        self.path = str(folder)
        self._descriptor: int | None = None
        if len(os.fsencode(self.path)) > _LONGEST_FOLDER:
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
            try:
                _check_is_open_to_account(folder)
            except OSError:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def settings(self, master: str) -> dict[str, str]:
        """Return Spark's settings; empty if executors are on other computers.

        Spark before 4.1 ignores these settings and uses TCP.
        """
        is_here = master == "local" or master.startswith("local[")
        return {_ENABLED: "true", _FOLDER: self.path} if is_here else {}

    def close(self) -> None:
        """Close the folder. The driver must have ended."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _check_is_open_to_account(folder: Path) -> None:
    """Raise `PermissionError` if other processes of this account can't use our descriptors.

    The kernel shows the descriptors of a process to root alone if the account may execute the
    program and may not read it.
    """
    if os.stat("/proc/self/fd").st_uid != os.geteuid():  # noqa: PTH116  # Of this process.
        raise PermissionError(
            errno.EPERM,
            "the path is too long for the sockets between Spark and Python, and the account may"
            " execute its Python and not read it: let it read worker.python, or shorten"
            " ORCAFLOW_HOME",
            str(folder),
        )
