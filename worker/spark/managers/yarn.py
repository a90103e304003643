"""YARN, by the REST API of its ResourceManager.

Of several ResourceManagers the active one answers; a standby redirects, or says in words that there
is none. Who kills says on whose behalf by `user.name`, which counts where YARN believes everybody;
where it wants Kerberos it answers 401, which is told and not got round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from worker.spark.managers.base import Application, AppState, Ask, ManagerUnreachableError
from worker.spark.managers.rest import PAGE, PATIENT, Limits, Rest
from worker.spark.managers.shapes import an_object, link, needed_text, objects, text
from worker.spark.managers.tags import cluster_tag
from worker.spark.managers.yarn_logs import ContainerLogs

_APPS: Final = "/ws/v1/cluster/apps"
_ID = re.compile(r"application_[0-9]+_[0-9]+")
_CONTAINER = re.compile(r"(https?://[^/\s]+)/node/containerlogs/(container_\w+)/")

_STATES: Final[Mapping[str, AppState]] = {
    "NEW": AppState.WAITING,
    "NEW_SAVING": AppState.WAITING,
    "SUBMITTED": AppState.WAITING,
    "ACCEPTED": AppState.WAITING,
    "RUNNING": AppState.RUNNING,
    "FAILED": AppState.FAILED,
    "KILLED": AppState.KILLED,
}
_FINISHED: Final[Mapping[str, AppState]] = {
    "SUCCEEDED": AppState.SUCCEEDED,
    "KILLED": AppState.KILLED,
}


class YarnManager:
    """The applications of one YARN cluster."""

    name: ClassVar[str] = "YARN"

    def __init__(
        self,
        urls: Sequence[str],
        *,
        user: str,
        log_url: str = "",
        history_url: str = "",
        limits: Limits = PATIENT,
    ) -> None:
        self._logs = ContainerLogs(urls, log_url, limits=limits)
        self._rest = Rest(urls, limits=limits)
        self._user = user
        self._history_url = history_url

    def with_tag(self, tag: str) -> list[Application]:
        return [each for each in self._tagged(tag) if tag in each.tags]

    def with_prefix(self, prefix: str) -> list[Application]:
        found = self._tagged(cluster_tag(prefix))
        return [each for each in found if any(tag.startswith(prefix) for tag in each.tags)]

    def nameless(self) -> Sequence[Application]:
        return ()

    def kill(self, application: Application) -> None:
        user = application.user or self._user
        state = {"state": "KILLED"}
        self._rest.put(f"{_APPS}/{application.id}/state", state, {"user.name": user})

    def log(self, application: Application) -> str:
        found = _CONTAINER.match(application.place)
        if found is None:
            return ""
        return self._logs.end(found[1], found[2], application.user or self._user)

    def ask(self, application: Application) -> Ask | None:
        if application.state is not AppState.RUNNING or not application.ui:
            return None
        rest = Rest([application.ui.rstrip("/")], limits=PAGE)
        return lambda path, params: rest.json(f"/api/v1/{path}", params)

    def _tagged(self, tag: str) -> list[Application]:
        found = self._rest.json(_APPS, {"applicationTags": tag, "user.name": self._user})
        document = an_object(found, "the answer")
        if "apps" not in document:
            raise ManagerUnreachableError("half an answer: there is no apps")
        # Nothing at all is what YARN says when it has none.
        apps = document["apps"]
        listed = an_object(apps, "apps").get("app", []) if apps is not None else []
        # One alone comes without a list from some versions.
        listed = [listed] if isinstance(listed, Mapping) else listed
        return [self._application(each) for each in objects(listed or [], "app")]

    def _application(self, document: Mapping[str, Any]) -> Application:
        app_id = needed_text(document, "id")
        if not _ID.fullmatch(app_id):
            raise ManagerUnreachableError(f"{app_id[:80]!r} is no id of an application")
        state = _state(needed_text(document, "state"), text(document, "finalStatus"))
        history = f"{self._history_url}/history/{app_id}" if self._history_url else ""
        return Application(
            id=app_id,
            tags=tuple(filter(None, text(document, "applicationTags").split(","))),
            name=text(document, "name"),
            state=state,
            user=text(document, "user"),
            ui=link(text(document, "trackingUrl")),
            history=history,
            diagnostics=text(document, "diagnostics"),
            place=text(document, "amContainerLogs"),
        )


def _state(state: str, final: str) -> AppState:
    if state == "FINISHED":
        # What it did not call a success itself is none.
        return _FINISHED.get(final, AppState.FAILED)
    known = _STATES.get(state)
    if known is None:
        raise ManagerUnreachableError(f"{state[:40]!r} is no state that is known of YARN")
    return known
