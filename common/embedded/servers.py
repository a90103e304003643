"""The embedded servers of a home, with the settings of its configuration."""

from __future__ import annotations

from datetime import timedelta

from common.config import Config, zookeeper_digest
from common.embedded.firewall import firewall_of
from common.embedded.postgres import EmbeddedPostgres
from common.embedded.zookeeper import EmbeddedZookeeper


def postgres_of(config: Config, *, within: timedelta, port: int | None = None) -> EmbeddedPostgres:
    """Return the PostgreSQL of a home, at `port` or at the port of the settings."""
    return EmbeddedPostgres(
        config.home,
        port=config.embedded.postgres_port if port is None else port,
        start_within=within,
        firewall=firewall_of(config, "postgres"),
    )


def zookeeper_of(
    config: Config, *, within: timedelta, port: int | None = None
) -> EmbeddedZookeeper:
    """Return the ZooKeeper of a home, at `port` or at the port of the settings."""
    embedded = config.embedded
    return EmbeddedZookeeper(
        config.home,
        port=embedded.zookeeper_port if port is None else port,
        tick_ms=embedded.zookeeper_tick_ms,
        heap_mb=embedded.zookeeper_heap_mb,
        # The settings contain the credential of a server that they name.
        digest="" if config.zookeeper.hosts else zookeeper_digest(config),
        start_within=within,
        firewall=firewall_of(config, "zookeeper"),
    )
