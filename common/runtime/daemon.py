"""The parts that all daemons share, derived from the configuration and the host."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from zoneinfo import ZoneInfo

from common import config as configuration
from common.clock import Clock
from common.config import Config
from common.host import host_load
from common.model.cluster import Heartbeat
from common.model.workers import WorkerStatus
from common.parameter_keys import parameter_keys
from common.registry.protocol import Registry, Standing
from common.runtime import metrics
from common.store.connect import Engine, engine
from common.store.transaction import observe_transactions


def product_version() -> str:
    """The installed version; a checkout that is not installed has none."""
    try:
        return version("orcaflow")
    except PackageNotFoundError:
        return "unknown"


def engine_of(config: Config, *, application_name: str) -> Engine:
    """The database, as a daemon of this name reaches it, which measures its transactions."""
    observe_transactions(metrics.db_transaction_seconds.observe)
    return engine(
        configuration.database_url(config),
        pool_size=config.database.pool_size,
        application_name=application_name,
        connect_timeout=timedelta(seconds=config.database.connect_timeout_seconds),
        statement_timeout=timedelta(seconds=config.database.statement_timeout_seconds),
        keys=parameter_keys(config),
    )


def heartbeat_text(
    host: str,
    *,
    created: datetime,
    zone: ZoneInfo,
    clock: Clock,
    status: Callable[[], WorkerStatus | None] = lambda: None,
    database_away: Callable[[], int | None] = lambda: None,
) -> Callable[[], str]:
    """Writes a daemon's heartbeat as of each call; `status` is a worker's.

    `database_away`: the seconds for which a master has not reached the database; None while it
    does.
    """

    def text() -> str:
        load = host_load()
        return Heartbeat(
            host=host,
            pid=os.getpid(),
            cpu=load.cpu_usage,
            memory=load.memory_usage,
            load=load.load_average,
            created=created.astimezone(zone),
            beaten=clock.now().astimezone(zone),
            status=status(),
            database_away=database_away(),
        ).text()

    return text


def show_standing(registry: Registry) -> None:
    """Show in the metrics how this daemon stands with ZooKeeper."""
    metrics.watch_zookeeper(
        lambda: registry.membership.standing().value,
        states=[standing.value for standing in Standing],
    )


def standing_problem(registry: Registry) -> str | None:
    """Return the session's reason why a daemon is not ready; None if there is none."""
    standing = registry.membership.standing()
    return None if standing is Standing.TRUSTED else f"the session is {standing.value}"
