"""A ResourceManager: applications by tag, the state to be put to KILLED, a container's logs.

Responses have the keys and the quirks of the real one: no applications is `{"apps": null}`, a killed
one may go on for a while, and a standby redirects or answers with a text.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

from tests.integration.managers.server import Asked, FakeServer, Said, as_json

_FINAL = ("FINISHED", "FAILED", "KILLED")


@dataclass(slots=True, kw_only=True)
class FakeApplication:
    """One application; times are of the monotonic clock."""

    id: str
    tags: str
    name: str
    user: str = "etl"
    state: str = "RUNNING"
    final: str = "UNDEFINED"
    shown_at: float = 0.0
    dies_at: float | None = None
    diagnostics: str = ""
    stderr: str = ""

    def end(self, state: str, final: str, diagnostics: str = "") -> None:
        if self.state not in _FINAL:
            self.state, self.final, self.diagnostics = state, final, diagnostics


class FakeYarn(FakeServer):
    """One ResourceManager, which is also the containers' node and the log server."""

    def __init__(self) -> None:
        self.apps: dict[str, FakeApplication] = {}
        self.shows_after = 0.0
        """The seconds from the submission of an application until it is shown."""
        self.dies_after = 0.0
        """The seconds that a kill takes."""
        self.kills_at_all = True
        self.kills = 0
        """The requests for a kill that were answered."""
        self.active: str | None = None
        """The address of the active one, for a standby; "" if there is none."""
        self.pages: dict[str, Any] = {}
        """The responses of drivers' own pages, by the path below `/api/v1/`."""
        self.refuses_submissions = False
        self.aggregates = ""
        """The answer of the node for a container that has ended, with log aggregation: "404" or the
        base of the log server to which it redirects."""
        self.has_moved = True
        """True if log aggregation is over."""
        self._numbers = itertools.count(1)
        super().__init__()

    # Requests of tests and of the fake spark-submit.

    def submit(self, tags: str, name: str = "job", **changes: Any) -> FakeApplication:
        with self.lock:
            app = FakeApplication(
                id=f"application_1700000000000_{next(self._numbers):04}",
                tags=tags,
                name=name,
                shown_at=time.monotonic() + self.shows_after,
                **changes,
            )
            self.apps[app.id] = app
        return app

    def live(self) -> list[FakeApplication]:
        """All applications that have not ended, shown or not."""
        with self.lock:
            self._let_die()
            return [each for each in self.apps.values() if each.state not in _FINAL]

    def end_all(self, state: str = "FINISHED", final: str = "SUCCEEDED", why: str = "") -> None:
        with self.lock:
            for each in self.apps.values():
                each.end(state, final, why)

    # The REST API.

    def answer(self, asked: Asked) -> Said:
        with self.lock:
            self._let_die()
            if asked.path.startswith("/fake/"):
                return self._fake(asked)
            if asked.path == "/ws/v1/cluster/info":
                # A standby answers this one itself.
                state = "ACTIVE" if self.active is None else "STANDBY"
                return as_json({"clusterInfo": {"state": "STARTED", "haState": state}})
            if self.active is not None:
                return self._standby(asked)
            parts = asked.path.strip("/").split("/")
            match asked.method, parts:
                case "GET", ["ws", "v1", "cluster", "apps"]:
                    return self._list(asked)
                case "PUT", ["ws", "v1", "cluster", "apps", app_id, "state"]:
                    return self._put_state(app_id, asked)
                case "GET", ["ws", "v1", "node", "containerlogs", container, name]:
                    return self._log(container, name)
                case "GET", [
                    "ws",
                    "v1",
                    "applicationhistory",
                    "containers",
                    container,
                    "logs",
                    name,
                ]:
                    return self._aggregated(container, name)
                case "GET", ["proxy", app_id, "api", "v1", *rest] if app_id in self.apps:
                    return self._page("/".join(rest))
        return Said(status=404, body=b"<html>404</html>", kind="text/html")

    def _let_die(self) -> None:
        for each in self.apps.values():
            if each.dies_at is not None and time.monotonic() >= each.dies_at:
                each.end("KILLED", "KILLED", "Application killed by user.")

    def _list(self, asked: Asked) -> Said:
        wanted = set(filter(None, asked.query.get("applicationTags", "").lower().split(",")))
        now = time.monotonic()
        found = [
            self._shown(each)
            for each in self.apps.values()
            if each.shown_at <= now and (not wanted or wanted & set(each.tags.lower().split(",")))
        ]
        return as_json({"apps": {"app": found} if found else None})

    def _shown(self, app: FakeApplication) -> dict[str, Any]:
        container = app.id.replace("application", "container") + "_01_000001"
        is_final = app.state in _FINAL
        return {
            "id": app.id,
            "user": app.user,
            "name": app.name,
            "queue": "default",
            "state": app.state,
            "finalStatus": app.final,
            "progress": 100.0 if is_final else 10.0,
            "trackingUI": "History" if is_final else "ApplicationMaster",
            "trackingUrl": f"{self.url}/proxy/{app.id}/",
            "diagnostics": app.diagnostics,
            "applicationType": "SPARK",
            "applicationTags": app.tags.lower(),
            "amContainerLogs": f"{self.url}/node/containerlogs/{container}/{app.user}",
        }

    def _put_state(self, app_id: str, asked: Asked) -> Said:
        self.kills += 1
        app = self.apps.get(app_id)
        if app is None:
            return as_json({"RemoteException": {"exception": "NotFoundException"}}, 404)
        if "user.name" not in asked.query:
            return as_json({"RemoteException": {"message": "user not authenticated"}}, 401)
        if asked.json() == {"state": "KILLED"} and self.kills_at_all and app.dies_at is None:
            app.dies_at = time.monotonic() + self.dies_after
            self._let_die()
        return as_json({"state": app.state}, 200 if app.state == "KILLED" else 202)

    def _log(self, container: str, name: str) -> Said:
        app = next((a for a in self.apps.values() if a.id[12:] in container), None)
        if app is None:
            return Said(status=404)
        if self.aggregates and app.state in _FINAL:
            if self.aggregates == "404":
                return as_json({"RemoteException": {"exception": "NotFoundException"}}, 404)
            target = f"{self.aggregates}/containers/{container}/logs/{name}"
            location = f"{target}?redirected_from_node=true"
            return Said(status=307, headers={"Location": location})
        return Said(body=self._printed(app, name).encode(), kind="text/plain")

    def _aggregated(self, container: str, name: str) -> Said:
        app = next((a for a in self.apps.values() if a.id[12:] in container), None)
        if app is None or not self.has_moved or name != "stderr":
            text = f"Can not find any log file matching the pattern: [{name}] for {container}"
            return Said(body=text.encode(), kind="text/plain")
        return Said(body=self._printed(app, name).encode(), kind="text/plain")

    def _printed(self, app: FakeApplication, name: str) -> str:
        text = app.stderr if name == "stderr" else ""
        end = f"End of LogType:{name}."
        return (
            f"LogAggregationType: AGGREGATED\n{'=' * 40}\nLogType:{name}\n"
            f"LogLastModifiedTime:Mon Nov 30 00:00:00 +0000 2026\nLogLength:{len(text)}\n"
            f"LogContents:\n{text}{end}\n{'*' * (len(end) + 50)}\n\n"
        )

    def _page(self, path: str) -> Said:
        known = self.pages.get(path.partition("/")[2].partition("/")[2])
        return Said(status=404) if known is None else as_json(known)

    def _standby(self, asked: Asked) -> Said:
        if not self.active:
            text = b"Can not find any active RM. Will retry in next 4 seconds."
            return Said(body=text, kind="text/plain", headers={"Refresh": "4"})
        target = f"{self.active}{asked.path}"
        text = f"This is standby RM. The redirect url is: {target}\n".encode()
        return Said(status=307, body=text, kind="text/plain", headers={"Location": target})

    def _fake(self, asked: Asked) -> Said:
        if asked.path == "/fake/end":
            self.apps[asked.json()["id"]].end("FINISHED", "SUCCEEDED")
            return as_json({})
        if self.refuses_submissions:
            return as_json({}, 503)
        about = asked.json()
        app = self.submit(about["tags"], about["name"])
        return as_json({"id": app.id})
