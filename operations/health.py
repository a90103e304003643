"""Probes the readiness of a daemon over HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
from datetime import timedelta

AWAITED = "servers"
"""The part of a daemon that its start waits for (`common.runtime.service`)."""
NOT_READY = "not ready"
"""The state of a daemon that answers, and says why it does no work."""
WAITING = "degraded"
"""The state of a daemon that waits for a server, and begins once that answers."""


def health(
    host: str,
    port: int,
    *,
    within: timedelta = timedelta(seconds=2),
    certificate: str = "",
    tls: ssl.SSLContext | None = None,
) -> tuple[str, str | None]:
    """The answer of `/readyz`: ready, degraded or not ready with the reason, or not answering.

    `certificate` is the file of the daemon's own, if it speaks TLS: no other is accepted. `tls` is
    what another one's is checked by.
    """
    # A wildcard is an address to listen on, not to talk to.
    place = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    connection = http.client.HTTPConnection(place, port, timeout=within.total_seconds())
    try:
        if certificate:
            tls = _pinned(certificate)
        if tls is not None:
            connection = http.client.HTTPSConnection(
                place, port, timeout=within.total_seconds(), context=tls
            )
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read(100_000)
    except (OSError, http.client.HTTPException) as error:
        return "not answering", str(error)
    finally:
        connection.close()
    if answer.status == 200:
        return "ready", None
    try:
        problems = json.loads(body)["problems"]
        if [each["part"] for each in problems] == [AWAITED]:
            return WAITING, str(problems[0]["why"])
        reason = "; ".join(f"{each['part']}: {each['why']}" for each in problems)
    except (ValueError, KeyError, TypeError):
        reason = f"/readyz answers {answer.status}"
    return NOT_READY, reason


def _pinned(certificate: str) -> ssl.SSLContext:
    """Return what trusts this certificate itself, by whatever name the daemon is reached."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(certificate)
    return context
