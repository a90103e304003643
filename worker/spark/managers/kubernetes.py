"""Kubernetes, by the pods of applications: drivers and executors, told apart by Spark's labels.

An application is over when its driver's pod is, or is gone; one whose driver runs elsewhere has
executors alone. The token is read from its file for each request, since it is replaced from time to
time, and goes to the configured server and nowhere else. A pod that is being deleted still lives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from worker.spark.managers.base import (
    Application,
    AppState,
    Ask,
    ManagerRefusedError,
    ManagerUnreachableError,
)
from worker.spark.managers.rest import PAGE, PATIENT, Limits, Rest
from worker.spark.managers.shapes import an_object, needed_text, objects, text
from worker.spark.managers.tags import CLUSTER_LABEL, LABEL, cluster_of_prefix

_DRIVER: Final = "driver"
_DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
_PAGE_PORT: Final = 4040
_LOG_BYTES: Final = 512 * 1024
_GRACE_SECONDS: Final = 5
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PHASES: Final[Mapping[str, AppState]] = {
    "Pending": AppState.WAITING,
    "Running": AppState.RUNNING,
    # The node is silent; the pod may well go on there.
    "Unknown": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
}


class KubernetesManager:
    """The applications in some namespaces of one Kubernetes cluster."""

    name: ClassVar[str] = "Kubernetes"

    def __init__(
        self,
        url: str,
        *,
        namespaces: Sequence[str],
        token_file: str = "",
        ca_file: str = "",
        history_url: str = "",
        limits: Limits = PATIENT,
    ) -> None:

        def rest(limits: Limits) -> Rest:
            return Rest([url], limits=limits, headers=lambda: _headers(token_file), ca_file=ca_file)

        self._rest = rest(limits)
        self._pages = rest(PAGE)
        self._url = url
        self._namespaces = tuple(namespaces)
        self._history_url = history_url
        self._pods: dict[str, tuple[str, ...]] = {}
        """The live pods of an application, by its id, as they were seen last."""

    def with_tag(self, tag: str) -> list[Application]:
        return [each for each in self._labelled(f"{LABEL}={tag}") if tag in each.tags]

    def with_prefix(self, prefix: str) -> list[Application]:
        found = self._labelled(f"{CLUSTER_LABEL}={cluster_of_prefix(prefix)},{LABEL}")
        return [each for each in found if any(tag.startswith(prefix) for tag in each.tags)]

    def nameless(self) -> Sequence[Application]:
        return ()

    def kill(self, application: Application) -> None:
        # The driver's comes first: it would replace executors.
        for pod in self._pods.get(application.id, (application.place,)):
            self._rest.delete(pod, {"gracePeriodSeconds": _GRACE_SECONDS})

    def log(self, application: Application) -> str:
        if "/pods/" not in application.place:
            return ""
        query = {"container": _DRIVER_CONTAINER, "tailLines": "5000"}
        return self._rest.text(f"{application.place}/log", query, tail_bytes=_LOG_BYTES)

    def ask(self, application: Application) -> Ask | None:
        if application.state is not AppState.RUNNING or "/pods/" not in application.place:
            return None
        page = f"{application.place}:{_PAGE_PORT}/proxy/api/v1"
        return lambda path, params: self._pages.json(f"{page}/{path}", params)

    def _labelled(self, selector: str) -> list[Application]:
        found: list[Application] = []
        for namespace in self._namespaces:
            place = f"/api/v1/namespaces/{namespace}/pods"
            document = an_object(self._rest.json(place, {"labelSelector": selector}), "the answer")
            pods = objects(document.get("items"), "items")
            by_application: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
            for pod in pods:
                labels = _part(_part(pod, "metadata"), "labels")
                tag, app_id = text(labels, LABEL), text(labels, "spark-app-selector")
                by_application.setdefault((tag, app_id or tag), []).append(pod)
            for (tag, app_id), own in by_application.items():
                found.append(self._application(place, tag, app_id, own))
        return found

    def _application(
        self, place: str, tag: str, app_id: str, pods: Sequence[Mapping[str, Any]]
    ) -> Application:
        states = {_pod_name(pod): _state(pod) for pod in pods}
        drivers = [pod for pod in pods if _label(pod, "spark-role") == _DRIVER]
        driver = max(drivers, key=_created, default=None)
        first = driver if driver is not None else pods[0]
        executors_live = any(not state.is_final for state in states.values())
        if driver is not None:
            state = states[_pod_name(driver)]
        else:
            # The driver is elsewhere and says itself how it ended.
            state = AppState.RUNNING if executors_live else AppState.SUCCEEDED
        live = [name for name, each in states.items() if not each.is_final]
        own = _pod_name(first)
        live.sort(key=lambda name: name != own)
        self._pods[app_id] = tuple(f"{place}/{name}" for name in live)
        application = Application(
            id=app_id,
            tags=(tag,),
            name=_label(first, "spark-app-name"),
            state=state,
            history=f"{self._history_url}/history/{app_id}" if self._history_url else "",
            diagnostics=_why(first),
        )
        if driver is None:
            return application
        pod_place = f"{place}/{own}"
        ui = f"{self._url}{pod_place}:{_PAGE_PORT}/proxy/" if not state.is_final else ""
        return replace(application, place=pod_place, ui=ui)


def _headers(token_file: str) -> dict[str, str]:
    if not token_file:
        return {}
    try:
        token = Path(token_file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ManagerRefusedError(
            f"spark.kubernetes_token_file can't be read: {type(error).__name__}"
        ) from None
    if not token.isprintable():
        raise ManagerRefusedError("spark.kubernetes_token_file holds more than a token")
    return {"Authorization": f"Bearer {token}"}


def _state(pod: Mapping[str, Any]) -> AppState:
    phase = needed_text(_part(pod, "status"), "phase")
    state = _PHASES.get(phase)
    if state is None:
        raise ManagerUnreachableError(f"{phase[:40]!r} is no phase that is known of a pod")
    return state


def _why(pod: Mapping[str, Any]) -> str:
    """Return the cause for which a pod fails or can't start, the most telling one first."""
    status = _part(pod, "status")
    found = []
    for container in status.get("containerStatuses") or []:
        state = container.get("state") if isinstance(container, Mapping) else None
        for kind in ("terminated", "waiting"):
            about = state.get(kind) if isinstance(state, Mapping) else None
            if isinstance(about, Mapping) and text(about, "reason") not in ("", "Completed"):
                found.append(f"{text(about, 'reason')} {text(about, 'message')}".strip())
    found += [
        f"Unschedulable {text(condition, 'message')}".strip()
        for condition in status.get("conditions") or []
        if isinstance(condition, Mapping) and text(condition, "reason") == "Unschedulable"
    ]
    found += [f"{text(status, 'reason')} {text(status, 'message')}".strip()]
    return "; ".join(dict.fromkeys(filter(None, found)))


def _pod_name(pod: Mapping[str, Any]) -> str:
    name = needed_text(_part(pod, "metadata"), "name")
    if not _NAME.fullmatch(name):
        raise ManagerUnreachableError(f"{name[:80]!r} is no name of a pod")
    return name


def _created(pod: Mapping[str, Any]) -> str:
    return text(_part(pod, "metadata"), "creationTimestamp")


def _label(pod: Mapping[str, Any], key: str) -> str:
    return text(_part(_part(pod, "metadata"), "labels"), key)


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return an_object(document.get(key), key)
