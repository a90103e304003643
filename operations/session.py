"""The settings, the database and the zone of one installation, as operations are given them.

The database is only reached through `common.store`; opening checks its schema, so that an operation
on an empty or foreign database says what to do and not which table is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from common.config import Config, database_url, load

if TYPE_CHECKING:
    from common.store.connect import Engine


class Session:
    """The settings and the database that one or more operations work with."""

    def __init__(self, config: Config, engine: Engine, url: str) -> None:
        self.config = config
        self.engine = engine
        self.url = url
        self.zone = zone_of(config)


@contextmanager
def opened(*, checked: bool = True) -> Iterator[Session]:
    """The database of the settings in force; `checked` refuses any schema but this code's."""
    from common.store.connect import engine
    from common.store.schema import check

    config = load()
    url = database_url(config)
    made = engine(
        url,
        pool_size=1,
        max_overflow=1,
        application_name="orcaflow-cli",
        connect_timeout=timedelta(seconds=config.database.connect_timeout_seconds),
        statement_timeout=timedelta(seconds=config.database.statement_timeout_seconds),
    )
    try:
        if checked:
            check(made)
        yield Session(config, made, url)
    finally:
        made.dispose()


def zone_of(config: Config) -> tzinfo | None:
    """The zone of dates that name none; None is this computer's own."""
    return ZoneInfo(config.time_zone) if config.time_zone else None


def moment_of(text: str, zone: tzinfo | None) -> datetime:
    """A date, or a date with a time, as an instant; `ValueError` says what is wrong with it."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is no date, as 2013-01-31 or '2013-01-31 02:30:00' is"
        ) from None
    if moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
