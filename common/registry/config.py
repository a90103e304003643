"""ZooKeeper's address, limits of time, credential and TLS, as the settings give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from common.config import Config, zookeeper_digest, zookeeper_hosts
from common.embedded.addresses import zookeeper_account
from common.errors import ConfigurationError

SHORTEST_SESSION = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryTls:
    """TLS towards ZooKeeper's servers: the checks of theirs, and the own certificate if any."""

    verify: Literal["full", "ca", "none"] = "full"
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __post_init__(self) -> None:
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigurationError(
                "zookeeper.tls_cert_file and zookeeper.tls_key_file go together; "
                "one of them is empty"
            )
        for key, file in (
            ("tls_ca_file", self.ca_file),
            ("tls_cert_file", self.cert_file),
            ("tls_key_file", self.key_file),
        ):
            if file and not Path(file).is_file():
                raise ConfigurationError(f"zookeeper.{key}: there is no file {file!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """`hosts` as ZooKeeper clients write it: `host:port,host:port`.

    `session_timeout` is a request: the server may change it, and the granted one counts.
    `digest` is `user:password` for digest authentication, or empty; then nodes are everybody's.
    `tls` is None for connections in the clear. `account` is the number of the account that runs an
    embedded server. Clients send their credential only to a program of this account.
    """

    hosts: str
    root: str = "/dolphinscheduler"
    session_timeout: timedelta = timedelta(seconds=10)
    connection_timeout: timedelta = timedelta(seconds=10)
    digest: str = field(default="", repr=False)
    tls: RegistryTls | None = None
    account: int | None = None

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


def registry_config(config: Config, *, patience: timedelta | None = None) -> RegistryConfig:
    """Derive ZooKeeper's connection from the settings; `patience` replaces the connection timeout.

    `ServiceUnreachableError` if no server is configured and the embedded one does not run.
    """
    settings = config.zookeeper
    return RegistryConfig(
        hosts=zookeeper_hosts(config),
        root=settings.root,
        session_timeout=timedelta(seconds=settings.session_timeout_seconds),
        connection_timeout=patience or timedelta(seconds=settings.connection_timeout_seconds),
        digest=zookeeper_digest(config),
        tls=_tls_of(config),
        account=None if settings.hosts else zookeeper_account(config.home),
    )


def _tls_of(config: Config) -> RegistryTls | None:
    settings = config.zookeeper
    files = [settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file]
    if not settings.tls:
        if any(files):
            raise ConfigurationError(
                "files for TLS are named and zookeeper.tls is false; set it to true"
            )
        return None
    if not settings.hosts:
        return None  # The embedded server is on this computer alone.
    ca_file, cert_file, key_file = (str(Path(file).expanduser()) if file else "" for file in files)
    return RegistryTls(
        verify=settings.tls_verify, ca_file=ca_file, cert_file=cert_file, key_file=key_file
    )
