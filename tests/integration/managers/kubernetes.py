"""A fake API server of pods: by label, to be deleted, with logs and a proxy to their pages."""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.integration.managers.server import Asked, FakeServer, Said, as_json


class FakeKubernetes(FakeServer):
    """Pods of one namespace; every request has to bring the token."""

    def __init__(self, *, token: str = "a-token", namespace: str = "jobs") -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.token = token
        self.namespace = namespace
        self.dies_after = 0.0
        self.shows_after = 0.0
        self.kills_at_all = True
        self.kills = 0
        """The requests for a kill that were answered."""
        self.refuses_submissions = False
        self.logs: dict[str, str] = {}
        self.pages: dict[str, Any] = {}
        self._shown_at: dict[str, float] = {}
        self._dies_at: dict[str, float] = {}
        self._numbers = itertools.count(1)
        super().__init__()

    def submit(self, labels: dict[str, str], name: str = "job") -> str:
        """Submit a driver's pod; return its application's id."""
        with self.lock:
            number = next(self._numbers)
            app_id = f"spark-{number:032x}"
            driver = {**labels, "spark-role": "driver", "spark-app-name": name}
            self.add(f"{name}-{number}-driver", {**driver, "spark-app-selector": app_id})
        return app_id

    def add(self, name: str, labels: dict[str, str], phase: str = "Running") -> None:
        with self.lock:
            self._shown_at[name] = time.monotonic() + self.shows_after
            self.pods[name] = {
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": labels,
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                },
                "status": {"phase": phase},
            }

    def end(self, phase: str = "Succeeded", **terminated: Any) -> None:
        with self.lock:
            for pod in self.pods.values():
                pod["status"] = {"phase": phase}
                if terminated:
                    pod["status"]["containerStatuses"] = [{"state": {"terminated": terminated}}]

    def live(self) -> list[str]:
        with self.lock:
            self._let_die()
            final = ("Succeeded", "Failed")
            return [name for name, pod in self.pods.items() if pod["status"]["phase"] not in final]

    def answer(self, asked: Asked) -> Said:
        with self.lock:
            self._let_die()
            if asked.path == "/fake/submit":
                if self.refuses_submissions:
                    return as_json({}, 503)
                about = asked.json()
                return as_json({"id": self.submit(about["labels"], about["name"])})
            if asked.headers.get("Authorization") != f"Bearer {self.token}":
                return as_json({"kind": "Status", "reason": "Unauthorized"}, 401)
            place = f"/api/v1/namespaces/{self.namespace}/pods"
            if not asked.path.startswith(place):
                return as_json({"kind": "Status", "reason": "Forbidden"}, 403)
            rest = asked.path.removeprefix(place).strip("/").split("/")
            match asked.method, rest:
                case "GET", [""]:
                    return self._list(asked)
                case "DELETE", [name] if name in self.pods:
                    return self._delete(name)
                case "GET", [name, "log"] if name in self.pods:
                    return Said(body=self.logs.get(name, "").encode(), kind="text/plain")
                case "GET", [proxy, "proxy", "api", "v1", _, _, what] if proxy.endswith(":4040"):
                    known = self.pages.get(what)
                    return Said(status=404) if known is None else as_json(known)
        return as_json({"kind": "Status", "reason": "NotFound"}, 404)

    def _list(self, asked: Asked) -> Said:
        wanted = asked.query["labelSelector"].split(",")
        now = time.monotonic()
        items = []
        for name, pod in self.pods.items():
            labels = pod["metadata"]["labels"]
            suits = all(
                labels.get(key) == value if sign else key in labels
                for key, sign, value in (each.partition("=") for each in wanted)
            )
            if suits and self._shown_at[name] <= now:
                items.append(pod)
        return as_json({"kind": "PodList", "apiVersion": "v1", "items": items})

    def _delete(self, name: str) -> Said:
        self.kills += 1
        pod = self.pods[name]
        if self.kills_at_all and name not in self._dies_at:
            self._dies_at[name] = time.monotonic() + self.dies_after
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:06Z"
        self._let_die()
        return as_json(pod)

    def _let_die(self) -> None:
        for name, at in list(self._dies_at.items()):
            if time.monotonic() >= at:
                self.pods.pop(name, None)
                del self._dies_at[name]
