"""The sockets of kazoo's clients: waiting for them, TLS, and the reasons for which none is open."""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Sequence
from ssl import SSLSocket
from typing import Any

from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.handlers.threading import SequentialThreadingHandler

from common.ports import check_server
from common.registry.config import RegistryTls

log = logging.getLogger(__name__)


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types.
    """kazoo's threads, without the epoll that its own `select` opens and closes for each call.

    Watches fire on the thread that has read of them: theirs only note and wake, and to be handed to
    another thread first would be the longer part of that. `trouble` is the last reason for which no
    connection was made, which kazoo keeps to itself.
    """

    def __init__(self, account: int | None = None) -> None:
        """`account` is that of the server, if it must be checked before a credential is sent."""
        super().__init__()
        self.trouble = ""
        self._account = account

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        try:
            made = super().create_connection(*arguments, **options)
            self._check_account(made)
        except (OSError, ValueError) as error:
            self.trouble = reason_of(error)
            raise
        self.trouble = ""
        return made

    def _check_account(self, connection: Any) -> None:
        """Close a connection to a program that has taken the port of the embedded server."""
        if self._account is None:
            return
        try:
            check_server(connection, self._account, "the embedded ZooKeeper")
        except OSError:
            connection.close()
            raise

    def dispatch_callback(self, callback: Any) -> None:
        try:
            callback.func(*callback.args)
        except Exception:
            log.exception("a watch could not be answered")

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], _: Sequence[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # Bytes that TLS has unpacked already are in memory, where no poll sees them.
        unpacked = [file for file in rlist if isinstance(file, SSLSocket) and file.pending()]
        poll = select.poll()
        wanted: dict[int, int] = {}
        for files, event in ((rlist, select.POLLIN), (wlist, select.POLLOUT)):
            for file in files:
                number = _number_of(file)
                wanted[number] = wanted.get(number, 0) | event
        for number, event in wanted.items():
            poll.register(number, event)
        milliseconds = None if timeout is None else max(0, math.ceil(timeout * 1000))
        seen = dict(poll.poll(0 if unpacked else milliseconds))
        # An error or the end of a connection is noticed by who reads or writes.
        broken = select.POLLERR | select.POLLHUP
        readable = [
            file
            for file in rlist
            if file in unpacked or seen.get(_number_of(file), 0) & (select.POLLIN | broken)
        ]
        writable = [f for f in wlist if seen.get(_number_of(f), 0) & (select.POLLOUT | broken)]
        return readable, writable, []


def _number_of(file: Any) -> int:
    """The descriptor; `ValueError`, which kazoo expects, for what has been closed."""
    number: int = file if isinstance(file, int) else file.fileno()
    if number < 0:
        raise ValueError("the connection is closed")
    return number


def tls_options(tls: RegistryTls | None) -> dict[str, Any]:
    """Return kazoo's options."""
    if tls is None:
        return {}
    if tls.verify == "none":
        log.warning(
            "zookeeper's certificate is not checked, so anybody may pass for it",
            extra={"cure": "set zookeeper.tls_verify to full"},
        )
    return {
        "use_ssl": True,
        "ca": tls.ca_file or None,
        "certfile": tls.cert_file or None,
        "keyfile": tls.key_file or None,
        "verify_certs": tls.verify != "none",
        "check_hostname": tls.verify == "full",
    }


def reason_of(error: BaseException) -> str:
    if isinstance(error, NoAuthError | AuthFailedError):
        return (
            f"{type(error).__name__}: the nodes belong to another credential than that of"
            " zookeeper.digest, or of the embedded server's zookeeper.digest file; set the one that"
            " made them"
        )
    return f"{type(error).__name__} {error}".strip()
