"""People who ask the HTTP API of a whole cluster, by a token or as a browser does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


class Asking:
    """Somebody with a token at the API's address."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: object = None, **more: str) -> tuple[int, Any]:
        """Ask until it is answered; the status and the document."""
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._url}{path}", data=sent, method=method, headers=self._headers | more
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, json.loads(answer.read())
            except urllib.error.HTTPError as error:
                # On a busy machine a server counts as away now and then; nothing was done then.
                if error.code != 503:
                    raise


class Cookies(urllib.request.HTTPRedirectHandler):
    """Sends the cookie of an answer along to where it leads, as browsers do on loopback."""

    def redirect_request(self, request: Any, *answer: Any) -> Any:
        followed = super().redirect_request(request, *answer)
        assert followed is not None
        followed.add_header("Cookie", answer[3]["set-cookie"].partition(";")[0])
        return followed


def ended_by_events(url: str, token: str, run: int) -> str:
    """Follow a run's events to the state in which it ends."""
    request = urllib.request.Request(
        f"{url}/api/v1/events?topics=instance:{run}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            name, _, data = line.decode().partition(": ")
            told = json.loads(data) if name == "data" else {}
            runs = told.get("instances", [told] if "wanted_state" in told else [])
            for each in runs:
                if each["end"] is not None:
                    return str(each["state"]["name"])
    return "no end"
