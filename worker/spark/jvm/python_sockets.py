"""Unix domain sockets between a JVM of Spark's and its processes for Python, of one computer.

By TCP, which is Spark's default, each hand-over of a small batch waits for some 40 ms: Java leaves
Nagle's algorithm on, and the kernel of the other side holds its acknowledgement back. A port can
also be taken for another program's by whoever still looks for that there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
_FOLDER: Final = "spark.python.unix.domain.socket.dir"
_LONGEST_FOLDER: Final = 60
"""Bytes that Spark takes: a name of its own is to follow, and Linux has 107 for both."""


def settings(folder: Path, master: str) -> dict[str, str]:
    """Return Spark's settings; `folder` has to be the account's alone.

    None if executors are elsewhere, where there is no such folder, or if its path is too long:
    then it is TCP. The folder stays as long as the JVM, which asks for it once. An older Spark than
    4.1 knows neither setting, and goes on with TCP too.
    """
    is_here = master == "local" or master.startswith("local[")
    if not is_here or len(str(folder).encode()) > _LONGEST_FOLDER:
        return {}
    return {_ENABLED: "true", _FOLDER: str(folder)}
