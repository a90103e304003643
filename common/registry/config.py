"""ZooKeeper's address and limits of time, as `common.config` gives them to the registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from common.errors import ConfigurationError

SHORTEST_SESSION = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """`hosts` as ZooKeeper clients write it: `host:port,host:port`.

    `session_timeout` is a request: the server may change it, and the granted one counts.
    `digest` is `user:password` for digest authentication, or empty.
    """

    hosts: str
    root: str = "/dolphinscheduler"
    session_timeout: timedelta = timedelta(seconds=10)
    connection_timeout: timedelta = timedelta(seconds=10)
    digest: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.hosts.strip():
            raise ConfigurationError("zookeeper.hosts is empty; write host:port,host:port")
        if not self.root.startswith("/") or self.root.endswith("/") or "//" in self.root:
            raise ConfigurationError(
                f"zookeeper.root is {self.root!r}; it must be a path like /dolphinscheduler"
            )
        if self.session_timeout < SHORTEST_SESSION:
            raise ConfigurationError(
                f"zookeeper.session_timeout is {self.session_timeout.total_seconds():g} s; "
                f"the shortest possible is {SHORTEST_SESSION.total_seconds():g} s"
            )
        if self.digest and not all(self.digest.partition(":")):
            raise ConfigurationError("zookeeper.digest must be user:password")
