"""Finds the page of a driver that is one of the attempt's own processes.

Nobody tells its port; but what the attempt's processes listen on, at every address of the host, the
kernel knows. Spark's other ports listen at one address only, and are left alone: they would
complain in the log about being asked.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from common.ports import check_server
from worker.spark.jvm.doors import headers
from worker.spark.managers.base import Ask, ManagerError, ManagerUnreachableError
from worker.spark.managers.driver_page import about, application_ids
from worker.spark.managers.rest import PAGE, Rest

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")


class OwnPage:
    """The page of the driver that has this tag, once there is one."""

    def __init__(self, tag: str, token: Callable[[], str] = str) -> None:
        """`token` returns the one that the page wants, "" if it wants none."""
        self._tag = tag
        self._token = token
        self._foreign: set[int] = set()
        self.ask: Ask | None = None
        self.application_id = ""
        self.link = ""

    def find(self) -> bool:
        """Look for the page unless it is known; True if it is."""
        if self.ask is None:
            for port in _ports_of_group(os.getpgrp()):
                if port not in self._foreign and self._is_it(port):
                    return True
        return self.ask is not None

    def forget(self) -> None:
        """It does not answer any more: a program may end its session and begin another."""
        self.ask = None

    def _is_it(self, port: int) -> bool:
        ask = self._asking(port)
        try:
            for app_id in application_ids(ask):
                if about(ask, app_id).tag == self._tag:
                    self.ask, self.application_id = ask, app_id
                    self.link = f"http://{socket.gethostname()}:{port}"
                    return True
        except ManagerUnreachableError:
            # It may only be starting; it is asked again.
            return False
        except ManagerError:
            pass
        self._foreign.add(port)
        return False

    def _asking(self, port: int) -> Ask:
        address = f"http://127.0.0.1:{port}"
        rest = Rest(
            [address],
            limits=PAGE,
            headers=lambda: headers(self._token()),
            # The driver may have ended its session, and another account may listen there now.
            check=lambda made: check_server(made, os.geteuid(), "the driver's page"),
        )
        return lambda path, params: rest.json(f"/api/v1/{path}", params)


def _ports_of_group(group: int) -> list[int]:
    """The ports at every address that members of a process group listen on, but for our own."""
    listening = dict(_listening())
    found = []
    for pid in _members(group) if listening else ():
        try:
            descriptors = list((_PROC / str(pid) / "fd").iterdir())
        except OSError:
            continue
        for each in descriptors:
            try:
                name = _SOCKET.match(str(each.readlink()))
            except OSError:
                continue
            if name is not None and name[1] in listening:
                found.append(listening[name[1]])
    return found


def _listening() -> Iterator[tuple[str, int]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == _LISTENS and not address.strip("0"):
                yield fields[9], int(port, 16)


def _members(group: int) -> Iterator[int]:
    own, wanted = os.getpid(), str(group).encode()
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and int(entry.name) != own:
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if len(fields) > 2 and fields[2] == wanted:
                yield int(entry.name)
