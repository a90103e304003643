"""The settings, the database and the zone of one installation, as operations are given them.

A session reads the settings and connects when it is first asked for them, so that wrong input is
refused without a server. Connecting checks the schema: an empty or foreign database is an error
with a cure, not a missing table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from common.config import Config, database_url, load
from common.model.rights import DATABASE, Principal

if TYPE_CHECKING:
    from common.store.connect import Engine


class Session:
    """The settings and the database that one or more operations work with, and who asks.

    Without a principal it is the owner of the database: whoever has its password.
    """

    def __init__(self, *, checked: bool = True, principal: Principal = DATABASE) -> None:
        self._checked = checked
        self.principal = principal

    @cached_property
    def config(self) -> Config:
        return load()

    @cached_property
    def zone(self) -> tzinfo | None:
        """The zone of dates that name none; None is this computer's own."""
        return zone_of(self.config)

    @cached_property
    def url(self) -> str:
        return database_url(self.config)

    @cached_property
    def engine(self) -> Engine:
        """The database; unless the session is unchecked, with the schema of this version."""
        from common.store.connect import engine
        from common.store.schema import check

        settings = self.config.database
        made = engine(
            self.url,
            pool_size=1,
            max_overflow=1,
            connect_timeout=timedelta(seconds=settings.connect_timeout_seconds),
            statement_timeout=timedelta(seconds=settings.statement_timeout_seconds),
        )
        try:
            if self._checked:
                check(made)
        except BaseException:
            made.dispose()
            raise
        return made

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "engine" in self.__dict__:
            self.engine.dispose()


@contextmanager
def opened(*, checked: bool = True) -> Iterator[Session]:
    """A session of the settings in force; `checked` refuses any schema but this version's."""
    session = Session(checked=checked)
    try:
        yield session
    finally:
        session.close()


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
