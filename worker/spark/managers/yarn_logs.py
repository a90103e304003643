"""The logs of a container of YARN, during its life and after.

A NodeManager has them while the application runs. Log aggregation then moves them to a file system,
from which a log server reads them: the NodeManager answers 404, or redirects to the log server. The
configured log server is queried then. Without one a redirect is followed once, and only to a host
of a ResourceManager, for the same log of the same container.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from worker.spark.managers.base import ManagerRefusedError, ManagerUnreachableError
from worker.spark.managers.rest import Limits, Rest, host_of

_BYTES: Final = 256 * 1024
_NAMES: Final = ("stdout", "stderr")
_NO_LOG: Final = "Can not find "
_BEGIN: Final = "LogContents:\n"
_END = re.compile(r"\n?End of LogType:[^\n]*\n?(?:\*+\s*)?\Z")


class ContainerLogs:
    """Reads logs of containers of one cluster."""

    def __init__(
        self, resource_managers: Sequence[str], log_url: str = "", *, limits: Limits
    ) -> None:
        """`log_url` is that of `yarn.log.server.web-service.url`; "" without a log server."""
        self._log_url = log_url
        self._hosts = frozenset(urlsplit(url).hostname for url in resource_managers)
        self._limits = limits

    def end(self, node: str, container: str, user: str) -> str:
        """Return the end of what a container has printed; `node` is its NodeManager.

        An error without an answer may be over a moment later: aggregation takes some seconds.
        """
        read = {name: self._read(node, container, name, user) for name in _NAMES}
        if all(log is None for log in read.values()):
            raise ManagerUnreachableError("the log server does not have the log yet")
        found = {name: contents(log or "").rstrip() for name, log in read.items()}
        return "\n".join(f"{name}:\n{printed}" for name, printed in found.items() if printed)

    def _read(self, node: str, container: str, name: str, user: str) -> str | None:
        """Read one log; None if the log server does not have it."""
        query = {"size": str(-_BYTES), "user.name": user}
        path = f"/containers/{container}/logs/{name}"
        rest = Rest([node], limits=self._limits)
        location = ""
        try:
            answer = rest.look(f"/ws/v1/node/containerlogs/{container}/{name}", query, _BYTES)
            if not (answer.is_missing or answer.location):
                return answer.text
            location = answer.location
        except ManagerUnreachableError:
            # A node that is gone has left its logs to the log server.
            if not self._log_url:
                raise
        server = f"{self._log_url}{path}" if self._log_url else self._followed(location, path)
        if not server:
            moved = f"redirects to {_host(location)}" if location else "no longer has the log"
            raise ManagerRefusedError(
                f"{host_of(node)} {moved}: log aggregation has moved it, and spark.yarn_log_url in"
                " worker.toml does not name the log server"
            )
        parts = urlsplit(server)
        origin = Rest([f"{parts.scheme}://{parts.netloc}"], limits=self._limits)
        found = origin.look(parts.path, query, _BYTES)
        is_there = not (found.is_missing or found.location or found.text.startswith(_NO_LOG))
        return found.text if is_there else None

    def _followed(self, location: str, path: str) -> str:
        """Return the target of a redirect without its query; "" if it must not be followed."""
        try:
            parts = urlsplit(location)
            is_ours = parts.hostname in self._hosts and "@" not in parts.netloc
        except ValueError:
            return ""
        is_log = parts.scheme in ("http", "https") and parts.path.endswith(path)
        return f"{parts.scheme}://{parts.netloc}{parts.path}" if is_ours and is_log else ""


def contents(log: str) -> str:
    """Return a log without the lines that YARN writes around it."""
    head, found, rest = log.partition(_BEGIN)
    return _END.sub("", rest if found and "LogType:" in head else log)


def _host(location: str) -> str:
    try:
        return host_of(location)[:80] or "nowhere"
    except ValueError:
        return "nowhere"
