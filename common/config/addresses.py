"""The addresses of PostgreSQL and ZooKeeper: the configured servers, or the embedded ones."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from common.config.settings import Config
from common.errors import ConfigurationError, ServiceUnreachableError
from common.libpq import dsn as libpq_dsn

_TLS_WORDS = ("sslmode", "sslrootcert", "sslcert", "sslkey")


def api_url(config: Config) -> str:
    """Return the address of the api-server: `api.url`, else that which runs in this home.

    Of several there, the one at the configured port.
    """
    if config.api.url:
        return config.api.url.rstrip("/")
    from common.runtime.pid_file import running_ports

    ports = running_ports(config.home, "api-server")
    if not ports:
        raise ServiceUnreachableError(
            "no api-server runs in this home; start one: orcaflow server start api-server (or"
            " everything: orcaflow server start standalone-server)"
        )
    port = config.api.port if config.api.port in ports else ports[0]
    # A wildcard is an address to listen on, not to talk to.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(  # noqa: S104
        config.api.http_host, config.api.http_host
    )
    scheme = "https" if config.api.tls_cert_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def database_url(config: Config) -> str:
    """Return SQLAlchemy's URL of the configured server, or of the embedded one that is running."""
    if config.database.url:
        return re.sub(
            r"^postgres(ql)?(\+psycopg2)?://", "postgresql+psycopg2://", _with_tls(config)
        )
    # Slow to import, and readers of mere settings don't need it.
    from common.embedded.addresses import postgres_address

    return postgres_address(config.home).url


def database_dsn(config: Config) -> str:
    """Return the server of `database_url` as libpq, psql and psycopg2 take it."""
    if config.database.url:
        return libpq_dsn(_with_tls(config))
    from common.embedded.addresses import postgres_address

    return postgres_address(config.home).dsn


def zookeeper_hosts(config: Config) -> str:
    """Return the configured ensemble, or the embedded server that is running."""
    if config.zookeeper.hosts:
        return config.zookeeper.hosts
    from common.embedded.addresses import zookeeper_address

    return zookeeper_address(config.home).hosts


def zookeeper_digest(config: Config) -> str:
    """Return `user:password`, "" for a server that does without: the embedded one never does."""
    settings = config.zookeeper
    if settings.digest:
        return settings.digest
    if settings.digest_file:
        return _digest_in(Path(settings.digest_file).expanduser())
    if settings.hosts:
        return ""
    from common.embedded.zookeeper_rights import digest_of

    return digest_of(config.home)


def _digest_in(file: Path) -> str:
    try:
        credential = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"zookeeper.digest_file can't be read: {error}") from None
    if not all(credential.partition(":")):
        raise ConfigurationError(f"zookeeper.digest_file {file} does not hold user:password")
    return credential


def _with_tls(config: Config) -> str:
    """The configured URL with the settings about TLS; what the URL itself says of them counts."""
    url = config.database.url
    said = {name for name, _ in parse_qsl(urlsplit(url).query)}
    wanted = {
        name: value
        for name in _TLS_WORDS
        if (value := getattr(config.database, name)) and name not in said
    }
    if not wanted:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(wanted)}"
