"""A standalone Master's page, for days that a real one rarely has."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from tests.integration.managers.server import Asked, FakeServer, Said, as_json


class FakeMaster(FakeServer):
    """Applications by id; `pages` are the drivers' own, by id, with the tag that they tell."""

    def __init__(self, *, url: str = "spark://h:7077") -> None:
        self.master_url = url
        self.status = "ALIVE"
        self.apps: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, str] = {}
        self.token: str | None = "t0ken"
        self.kills = True
        super().__init__()

    def add(
        self, app_id: str, *, name: str = "mine", state: str = "RUNNING", tag: str = ""
    ) -> None:
        with self.lock:
            self.apps[app_id] = {"id": app_id, "name": name, "state": state, "user": "etl"}
            if tag:
                self.tags[app_id] = tag

    def answer(self, asked: Asked) -> Said:
        match asked.method, asked.path:
            case "GET", "/json/":
                return self._state()
            case "GET", "/app/":
                link = f'<a href="/driver/{asked.query["appId"]}">Application Detail UI</a>'
                return Said(body=link.encode(), kind="text/html")
            case "GET", "/":
                form = f'<input type="hidden" name="csrfToken" value="{self.token}"/>'
                return Said(body=form.encode() if self.token else b"", kind="text/html")
            case "POST", "/app/kill/" if self.kills:
                return self._kill(dict(parse_qsl(asked.body.decode())))
        parts = asked.path.strip("/").split("/")
        if parts[0] == "driver" and parts[-1] == "environment" and parts[1] in self.tags:
            return as_json({"sparkProperties": [["spark.orcaflow.attempt", self.tags[parts[1]]]]})
        return Said(status=404, kind="text/html")

    def _state(self) -> Said:
        live = [each for each in self.apps.values() if each["state"] in ("RUNNING", "WAITING")]
        return as_json(
            {
                "url": self.master_url,
                "status": self.status,
                "activeapps": live if self.status == "ALIVE" else [],
                "completedapps": [each for each in self.apps.values() if each not in live],
                "activedrivers": [],
                "completeddrivers": [],
            }
        )

    def _kill(self, form: dict[str, str]) -> Said:
        if self.token and form.get("csrfToken") != self.token:
            return Said(status=403)
        self.apps[form["id"]]["state"] = "KILLED"
        return Said(status=302, headers={"Location": f"{self.url}/"})
