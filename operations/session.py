"""The settings, the database and the zone of one installation, as operations are given them.

A session reads the settings and connects when it is first asked for them, so that wrong input is
refused without a server. Connecting checks the schema: an empty or foreign database is an error
with a cure, not a missing table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
)
from zoneinfo import ZoneInfo

from common.config import Config, cluster_zone, database_url, load
from common.model.rights import DATABASE, Principal

if TYPE_CHECKING:
    from common.registry.protocol import Registry
    from common.store.connect import Engine
    from common.store.listen import Notification
    from operations.naming import ChosenProject


P = ParamSpec("P")
Answer = TypeVar("Answer")
Elsewhere: TypeAlias = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]


class News(Protocol):
    """A listener for whoever watches something."""

    def wait(self, timeout: timedelta) -> Sequence[Notification]:
        """Return notifications as soon as there are any; none after the time-out."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Session:
    """The settings and the database that one or more operations work with, and who asks.

    Without a principal it is the owner of the database: whoever has its password.
    """

    def __init__(self, *, checked: bool = True, principal: Principal = DATABASE) -> None:
        self._checked = checked
        self.principal = principal
        self.project: ChosenProject | None = None
        """The project that the operations are limited to; None for all."""
        self.elsewhere: Elsewhere | None = None
        """Carries operations out in another place, by their names; None does it here."""

    @property
    def project_id(self) -> int | None:
        """The id of the project that the operations are limited to."""
        return None if self.project is None else self.project.id

    def keep_to(self, project: str) -> None:
        """Limit the session to a project, given by its name or id."""
        # Imported here because most commands name no project.
        from operations.projects import project_named

        with self.engine.connect() as db:
            self.project = project_named(db, self.principal, project)
        self.principal = self.principal.within(self.project.id)

    @cached_property
    def config(self) -> Config:
        return load()

    @cached_property
    def zone(self) -> ZoneInfo:
        """The cluster's zone, in which people read times, and in which dates without a zone are."""
        return cluster_zone(self.config)

    @cached_property
    def url(self) -> str:
        return database_url(self.config)

    @cached_property
    def engine(self) -> Engine:
        """The database; unless the session is unchecked, with the schema of this version."""
        from common.parameter_keys import parameter_keys
        from common.store.connect import engine
        from common.store.schema import check

        settings = self.config.database
        made = engine(
            self.url,
            pool_size=1,
            max_overflow=1,
            connect_timeout=timedelta(seconds=settings.connect_timeout_seconds),
            statement_timeout=timedelta(seconds=settings.statement_timeout_seconds),
            keys=parameter_keys(self.config, refuses_unknown=True),
        )
        try:
            if self._checked:
                check(made)
        except BaseException:
            made.dispose()
            raise
        return made

    def news(self, channels: Sequence[str], *, application_name: str) -> News:
        """Listen for notifications of the database; each wait ends as soon as there is one."""
        from common.store.listen import Notifications

        return Notifications(self.url, channels, application_name=application_name)

    def registry(self, *, patience: timedelta | None) -> AbstractContextManager[Registry]:
        """Open a session of ZooKeeper; `ServiceUnreachableError` if it does not answer in time."""
        from operations.members import registry

        return registry(self.config, patience=patience)

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "engine" in self.__dict__:
            self.engine.dispose()


def operation(
    function: Callable[Concatenate[Session, P], Answer],
) -> Callable[Concatenate[Session, P], Answer]:
    """Mark a function as one that a session may have carried out in another place."""
    name = f"{function.__module__.removeprefix('operations.')}.{function.__name__}"

    @wraps(function)
    def carry_out(session: Session, /, *arguments: P.args, **named: P.kwargs) -> Answer:
        if session.elsewhere is None:
            return function(session, *arguments, **named)
        answer: Answer = session.elsewhere(name, arguments, named)
        return answer

    return carry_out


MAKER: Final[ContextVar[Callable[[], Session] | None]] = ContextVar("MAKER", default=None)
"""The maker of sessions that `opened` opens; None for those of the settings in force."""


def goes_elsewhere() -> bool:
    """Return True if a server carries out the operations of the sessions from `opened`."""
    return MAKER.get() is not None


PROJECT: Final[ContextVar[str | None]] = ContextVar("PROJECT", default=None)
"""The name or id of the project that `opened` limits its session to; None for no limit."""


@contextmanager
def opened(*, checked: bool = True) -> Iterator[Session]:
    """A session of the settings in force; `checked` refuses any schema but this version's."""
    make, project = MAKER.get(), PROJECT.get()
    session = Session(checked=checked) if make is None else make()
    try:
        if project is not None:
            session.keep_to(project)
        yield session
    finally:
        session.close()


_DAYS_AROUND: Final = 2
"""The days around a run's date that the run needs, plus one for the zones."""


def moment_of(text: str, zone: tzinfo | None) -> datetime:
    """A date, or a date with a time, as an instant; `ValueError` says what is wrong with it."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is no date, as 2013-01-31 or '2013-01-31 02:30:00' is"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
    try:
        # A run needs the days before and after it, in the cluster's zone.
        for days in (-_DAYS_AROUND, _DAYS_AROUND):
            (moment.astimezone(UTC) + timedelta(days=days)).astimezone(zone)
    except OverflowError:
        raise ValueError(
            f"{text!r} is too near to the ends of the calendar, the years 1 and 9999"
        ) from None
    return moment
