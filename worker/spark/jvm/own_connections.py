"""Checks of the account at the other end of each connection of Py4J.

After the end of a JVM, a program of another account may listen at its port. Py4J connects again by
itself, sends its secret, and Python unpickles what it is told to. So a connection proves that the
other end has this process's account before it sends anything. `common.ports` has the rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import GatewayConnection

from common.ports import check_server


def check_connections() -> None:
    """Check all connections to a JVM that this process makes from now on.

    A connection to another account's program raises `ConnectionRefusedError`.
    """
    for kind in (ClientServerConnection, GatewayConnection):
        authenticate = kind._authenticate_connection  # noqa: SLF001
        if authenticate.__name__ != _CHECKED:
            kind._authenticate_connection = _checked(authenticate)  # noqa: SLF001


def _checked(authenticate: Callable[[Any], None]) -> Callable[[Any], None]:
    def check_and_authenticate(connection: Any) -> None:
        check_server(connection.socket, os.geteuid(), "Spark's JVM")
        authenticate(connection)

    return check_and_authenticate


_CHECKED = "check_and_authenticate"
