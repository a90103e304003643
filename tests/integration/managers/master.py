"""A fake of a standalone Master's page, for faults that a real one rarely has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from tests.integration.managers.server import Asked, FakeServer, Said, as_json


class FakeMaster(FakeServer):
    """Applications by id, with the tags that the pages of their drivers show.

    `drivers` are those that run in the cluster, by id with their states, all of `main_class`;
    `driver_of` names the driver of an application. If `has_worker`, the fake is also the Worker with
    their logs.
    """

    def __init__(self, *, url: str = "spark://h:7077") -> None:
        self.master_url = url
        self.status = "ALIVE"
        self.apps: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, str] = {}
        self.drivers: dict[str, str] = {}
        self.driver_of: dict[str, str] = {}
        self.main_class = "Job"
        self.has_worker = False
        self.commands: dict[str, str] = {}
        """The tags in the commands of drivers, by id."""
        self.printed: dict[str, str] = {}
        """The standard error of drivers, by id."""
        self.token: str | None = "t0ken"
        self.kills = True
        super().__init__()

    def add(
        self,
        app_id: str,
        *,
        name: str = "mine",
        state: str = "RUNNING",
        tag: str = "",
        driver: str = "",
        user: str = "etl",
    ) -> None:
        with self.lock:
            self.apps[app_id] = {"id": app_id, "name": name, "state": state, "user": user}
            if tag:
                self.tags[app_id] = tag
            if driver:
                self.driver_of[app_id] = driver

    def answer(self, asked: Asked) -> Said:
        match asked.method, asked.path:
            case "POST", "/fake/submit":
                # By a spark-submit in cluster mode.
                driver = f"driver-20260102030405-{len(self.drivers) + 1:04}"
                self.drivers[driver] = "SUBMITTED"
                self.commands[driver] = asked.json()["attempt"]
                return as_json({"id": driver})
            case "GET", "/log":
                return Said(status=302, headers={"Location": "/log/"})
            case "GET", "/log/":
                return self._log(asked.query)
            case "GET", "/json/":
                return self._state()
            case "GET", "/app/":
                link = f'<a href="/driver/{asked.query["appId"]}">Application Detail UI</a>'
                return Said(body=link.encode(), kind="text/html")
            case "GET", "/":
                form = f'<input type="hidden" name="csrfToken" value="{self.token}"/>'
                return Said(body=form.encode() if self.token else b"", kind="text/html")
            case "POST", "/app/kill/" | "/driver/kill/" if self.kills:
                return self._kill(dict(parse_qsl(asked.body.decode())))
        parts = asked.path.strip("/").split("/")
        if parts[0] == "driver" and parts[-1] == "environment" and parts[1] in self.tags:
            return as_json(self._environment(parts[1]))
        return Said(status=404, kind="text/html")

    def _log(self, query: Mapping[str, str]) -> Said:
        driver = query["driverId"]
        text = ""
        if query["logType"] == "stderr":
            words = (
                "/usr/bin/java",
                f"-Dspark.orcaflow.attempt={self.commands.get(driver, '')}",
                "org.apache.spark.deploy.worker.DriverWrapper",
                "spark://w:1",
            )
            command = " ".join(f'"{word}"' for word in words)
            text = f"Launch Command: {command}\n{'=' * 40}\n\n{self.printed.get(driver, '')}"
        size, wanted = len(text), int(query["byteLength"])
        start = int(query.get("offset", max(0, size - wanted)))
        end = min(size, start + wanted)
        head = (
            f"==== Bytes {start}-{end} of {size} of /srv/spark/{driver}/{query['logType']} ====\n"
        )
        return Said(body=(head + text[start:end]).encode(), kind="text/plain")

    def _environment(self, app_id: str) -> dict[str, Any]:
        driver = self.driver_of.get(app_id, "")
        wrapper = "org.apache.spark.deploy.worker.DriverWrapper spark://w:1"
        command = (
            f"{wrapper} /opt/spark/drivers/{driver}/job.jar Job"
            if driver
            else "org.apache.spark.Job"
        )
        return {
            "sparkProperties": [["spark.orcaflow.attempt", self.tags[app_id]]],
            "systemProperties": [["sun.java.command", command]],
        }

    def _state(self) -> Said:
        live = [each for each in self.apps.values() if each["state"] in ("RUNNING", "WAITING")]
        live_states = ("SUBMITTED", "RUNNING", "RELAUNCHING")
        drivers = [
            {
                "id": each,
                "state": state,
                "mainclass": self.main_class,
                "worker": "worker-1" if self.has_worker and state != "SUBMITTED" else "None",
            }
            for each, state in self.drivers.items()
        ]
        return as_json(
            {
                "url": self.master_url,
                "status": self.status,
                "workers": [{"id": "worker-1", "webuiaddress": self.url}],
                "activeapps": live if self.status == "ALIVE" else [],
                "completedapps": [each for each in self.apps.values() if each not in live],
                "activedrivers": [each for each in drivers if each["state"] in live_states],
                "completeddrivers": [each for each in drivers if each["state"] not in live_states],
            }
        )

    def _kill(self, form: dict[str, str]) -> Said:
        if self.token and form.get("csrfToken") != self.token:
            return Said(status=403)
        if form["id"] in self.drivers:
            self.drivers[form["id"]] = "KILLED"
        else:
            self.apps[form["id"]]["state"] = "KILLED"
        return Said(status=302, headers={"Location": f"{self.url}/"})
