"""A session whose operations an api-server answers, with the right of a token."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self
from zoneinfo import ZoneInfo

from common.config import cluster_zone
from common.errors import NotAllowedError
from operations.installation import orcaflow_version
from operations.session import News, Session
from orcaflow.remote.answers import answer_of
from orcaflow.remote.client import Client, other_version
from orcaflow.remote.contexts import Server

if TYPE_CHECKING:
    from common.store.connect import Engine
    from common.store.listen import Notification


class RemoteSession(Session):
    """A session without a database: it answers what a server answers, and refuses the rest."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._client = Client(server)
        self.elsewhere = self._carry_out

    @cached_property
    def zone(self) -> ZoneInfo:
        """The zone of the server's cluster; this computer's for a server that names none."""
        try:
            name = self._client.get("/me").get("time_zone")
            return ZoneInfo(name) if name is not None else cluster_zone(self.config)
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            raise other_version(self._client, orcaflow_version()) from error

    def keep_to(self, project: str) -> None:
        """Limit the session to a project: each later request names it."""
        from orcaflow.remote.people import project_named

        self.project = project_named(self._client, project)
        self._client.project_id = self.project.id

    def _carry_out(self, operation: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Have the server carry the operation out; the value is that of the operation itself."""
        answer = answer_of(operation)
        if answer is None:
            self._refuse()
        try:
            return answer(self._client, *arguments, **named)
        except (KeyError, ValueError, TypeError) as error:
            raise other_version(self._client, orcaflow_version()) from error

    @property
    def url(self) -> str:
        self._refuse()

    @property
    def engine(self) -> Engine:
        self._refuse()

    def news(self, channels: Sequence[str], *, application_name: str) -> News:
        """Wait in vain: nothing is called out over HTTP yet, and whoever watches looks again."""
        del channels, application_name
        return _NoNews()

    def _refuse(self) -> NoReturn:
        raise NotAllowedError(
            "this asks the database itself, and is not there over HTTP yet: give it on a computer"
            " that reaches the database, without --server (orcaflow context use local)"
        )


class _NoNews:
    """A listener that hears nothing."""

    def __init__(self) -> None:
        self._never = threading.Event()

    def wait(self, timeout: timedelta) -> Sequence[Notification]:
        self._never.wait(timeout.total_seconds())
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
