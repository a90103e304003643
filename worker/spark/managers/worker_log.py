"""The log of a driver in a standalone cluster, by the page of the Worker that runs it.

A Worker writes the driver's command into its standard error before it starts the program. So the
tag in that command is the submission's, and the program can't change it. The id of the driver and
the address of the Worker come from the Master. `/log/` is the plain text of the page `/logPage`.
"""

from __future__ import annotations

import re
from typing import Final

from worker.spark.managers.rest import PAGE, PATIENT, Limits, Rest
from worker.spark.managers.tags import SETTING

_END_BYTES: Final = 256 * 1024
_COMMAND_BYTES: Final = 256 * 1024
_HEAD_BYTES: Final = 8 * 1024
"""The room for the first line, which a Worker adds."""
_WRAPPER: Final = '"org.apache.spark.deploy.worker.DriverWrapper"'
_HEAD = re.compile(r"\A==== Bytes [0-9]+-[0-9]+ of [0-9]+ of [^\n]*\n")
_COMMAND = re.compile(r"\ALaunch Command: ([^\n]*)")
_BEFORE_PROGRAM = re.compile(r"\A[^\n]*\n={40}\n+")
"""The command, or the end of it in a log that was cut within."""
_TAG = re.compile(rf'"-D{re.escape(SETTING)}=([^"]*)"')
_NO_LOG: Final = "Error getting logs due to exception"


class WorkerLog:
    """The log of one driver."""

    def __init__(self, page: str, driver: str) -> None:
        self._page = page
        self._driver = driver

    def tag(self) -> str | None:
        """Return the tag in the driver's command, "" without one; None if there is no command."""
        return tag_in(self._read("stderr", PAGE, offset="0", byteLength=str(_COMMAND_BYTES)))

    def end(self) -> str:
        """Return the end of what the driver has printed."""
        parts = []
        for name in ("stdout", "stderr"):
            printed = without_command(self._read(name, PATIENT, byteLength=str(_END_BYTES)))
            if printed.strip():
                parts.append(f"{name}:\n{printed.rstrip()}")
        return "\n".join(parts)

    def _read(self, name: str, limits: Limits, **window: str) -> str:
        query = {"driverId": self._driver, "logType": name, **window}
        whole = Rest([self._page], limits=limits).text(
            "/log/", query, tail_bytes=_END_BYTES + _HEAD_BYTES
        )
        printed = _HEAD.sub("", whole)
        return "" if printed.startswith(_NO_LOG) else printed


def tag_in(log: str) -> str | None:
    """Return the tag in the command at the start of a driver's log."""
    found = _COMMAND.match(log)
    if found is None:
        return None
    # Behind the class are the program's arguments, which may be anything.
    tags = set(_TAG.findall(found[1].partition(_WRAPPER)[0]))
    return tags.pop() if len(tags) == 1 else ""


def without_command(log: str) -> str:
    """Return a log without its command, which has all settings of the submission."""
    return _BEFORE_PROGRAM.sub("", log)
