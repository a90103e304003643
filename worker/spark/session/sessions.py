"""A session in a Connect server: its place, its opening, and its verified closing.

Runs in processes that the Spark host has forked, since it blocks. A session counts as closed only
after the server itself reports that it runs nothing for it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.proto.base_pb2 import GetStatusResponse

from common.own_http import OPENER
from worker.spark.jvm import doors
from worker.spark.jvm.connect_channel import LoopbackChannel

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

USER = "orcaflow"
_STATES = GetStatusResponse.OperationStatus.OperationState
_HTTP_SECONDS = 5.0
_OVER = frozenset((_STATES.OPERATION_STATE_SUCCEEDED, _STATES.OPERATION_STATE_FAILED))
_THREAD = "SparkConnectExecuteThread_opId="
_CLOSE_SECONDS = 12.0
_PATIENCE_SECONDS = 1.0
_QUIET_SECONDS = 0.5
_QUIET_LOOKS = 8
_REST_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A session in a server: everything that it takes to get there."""

    port: int
    token: str
    session_id: str
    application_id: str = ""
    ui_link: str = ""
    page_token: str = ""
    """The token that the pages of the UI want."""
    python: str = ""
    """The program that the server starts for this session's UDFs; "" is its own choice."""
    interpreter: str = ""
    """The Python of the server's profile."""
    gateway_port: int = 0
    gateway_secret: str = ""
    """Of the server's gateway, for classic sessions."""
    keeps_warehouse: bool = False
    """Managed tables of classic sessions are where the profile says, and not the task's own."""
    prototype: str = ""
    """The session to clone it off (see `prototype.py`); "" if it is to be isolated."""

    def for_udfs_by(self, python: str) -> Place:
        """This place, with another Python for its UDFs."""
        return replace(self, python=python)

    def beside(self, session_id: str) -> Place:
        """Another session in the same server."""
        return replace(self, session_id=session_id)

    @property
    def parameters(self) -> str:
        """The parameters of a connection string, with the token among them."""
        return f"user_id={USER};session_id={self.session_id};token={quote(self.token)}"


def tag_of(session_id: str) -> str:
    """Return the tag of the jobs of a classic session, which is also the name of its threads."""
    return f"orcaflow-{session_id}"


def open_session(place: Place) -> SparkSession:
    """The session at a place. It is this process's own from now on."""
    from pyspark.sql.connect.session import SparkSession as Session

    # So that pyspark.sql's functions and types are those of such a session.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    builder = LoopbackChannel(place.port, place.parameters)
    session: SparkSession = Session.builder.channelBuilder(builder).create()
    # The server is on this very computer: no connection is lost that could be taken up again.
    session.client.disable_reattachable_execute()
    return session


def session_beside(session: SparkSession, session_id: str) -> SparkSession:
    """Another session in the server of one; Spark has made it, and ends it.

    So it must not be stopped here.
    """
    from pyspark.sql.connect.session import SparkSession as Session

    builder: Any = copy.deepcopy(session.client._builder)  # noqa: SLF001  # open_session's.
    builder.set("session_id", session_id)
    found: SparkSession = Session.builder.channelBuilder(builder).create()
    found.client.disable_reattachable_execute()
    found.release_session_on_close = False
    return found


def operates(session: SparkSession) -> bool:
    """True while an operation of a session may be running."""
    found = session.client._get_operation_statuses().operation_statuses  # noqa: SLF001
    return any(each.state not in _OVER for each in found)


class Silence:
    """Says how long a server has run nothing for a session, by looks at it one after the other.

    One look says little: Spark tells nobody when a session is over, its pages know of a job a
    little later than it begins, and what a task has asked for last may not have become an
    operation yet. A busy computer takes longer for all of that, and for each look as well, hence
    a number of looks besides a time.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._looks = 0

    def is_long(self, now: float, *, is_busy: bool) -> bool:
        """Take what a look has found; True once it has been quiet for long enough."""
        if is_busy:
            self._since, self._looks = None, 0
            return False
        if self._since is None:
            self._since = now
        self._looks += 1
        return self._looks >= _QUIET_LOOKS and now - self._since >= _QUIET_SECONDS


def close_sessions(place: Place, others: Collection[str] = ()) -> bool:
    """Close a session whose task is gone, with all that it runs, and others of that task.

    True once the server runs nothing for them; False if that takes longer than `_CLOSE_SECONDS`.
    What the server was about to begin may still begin after that: see `end_late_jobs`.
    """
    places = (place, *map(place.beside, others))
    operations = {each for at in places for each in _release(at)}
    now = time.monotonic()
    limit, kill_at = now + _CLOSE_SECONDS, now + _PATIENCE_SECONDS
    silence = Silence()
    while True:
        jobs = _running(place, {each.session_id for each in places})
        is_busy = bool(jobs) or _executing(place, operations)
        now = time.monotonic()
        if silence.is_long(now, is_busy=is_busy):
            return True
        if now >= limit:
            return False
        if jobs and now >= kill_at:
            # Stages of a query may get away from the end of their operation.
            _kill(place, jobs)
            kill_at = now + _PATIENCE_SECONDS
        time.sleep(_REST_SECONDS)


def end_late_jobs(place: Place, others: Collection[str] = ()) -> bool:
    """Kill the jobs of sessions that are closed already; True if there were any.

    An operation that a server takes on while it closes the session is interrupted by nobody, and
    has no end of its own.
    """
    jobs = _running(place, {place.session_id, *others})
    _kill(place, jobs)
    return bool(jobs)


def _release(place: Place) -> list[str]:
    """Release a session, which has its operations interrupted; their ids."""
    session = open_session(place)
    try:
        # What its task has asked for last may still be on its way to the server. A session that it
        # has never heard of would be made by that; one that was closed won't.
        session.conf.get("spark.app.id")
        found = session.client._get_operation_statuses().operation_statuses  # noqa: SLF001
        session.client.release_session()
    except SparkConnectGrpcException as error:
        if error.getCondition() != "INVALID_HANDLE.SESSION_CLOSED":
            raise
        return []
    return [each.operation_id for each in found]


def _running(place: Place, sessions: Collection[str]) -> list[int]:
    """The jobs that a server still runs for sessions, as its own UI tells them."""
    marks = [mark for each in sessions for mark in (f"_Session_{each}_", tag_of(each))]
    return [
        job["jobId"]
        for job in _listed(place, "jobs?status=running")
        if any(mark in tag for tag in job.get("jobTags", ()) for mark in marks)
    ]


def _executing(place: Place, operations: Collection[str]) -> bool:
    """True if a server has threads for operations.

    One that was interrupted while it planned goes on now and then, and has its first job yet to
    come, though Spark calls its operation cancelled.
    """
    names = {f"{_THREAD}{each}" for each in operations}
    return bool(names) and any(
        each["threadName"] in names for each in _listed(place, "executors/driver/threads")
    )


def _listed(place: Place, what: str) -> list[dict[str, Any]]:
    if not (place.ui_link and place.application_id):
        return []
    page = _ask_page(place, f"/api/v1/applications/{place.application_id}/{what}")
    found: list[dict[str, Any]] = json.loads(page)
    return found


def _kill(place: Place, jobs: Collection[int]) -> None:
    """Kill jobs by the form on the UI's page of jobs."""
    if not jobs:
        return
    token = re.search(rb'name="csrfToken"\s+value="([^"]+)"', _ask_page(place, "/jobs/"))
    form = {"csrfToken": token[1].decode()} if token else {}
    for job in jobs:
        with contextlib.suppress(urllib.error.HTTPError):  # It may be over by now.
            _ask_page(place, "/jobs/job/kill/", urlencode({"id": job, **form}).encode())


def _ask_page(place: Place, path: str, form: bytes | None = None) -> bytes:
    request = urllib.request.Request(  # noqa: S310  # An address that the host has made.
        f"{place.ui_link}{path}", form, dict(doors.headers(place.page_token))
    )
    with OPENER.open(request, timeout=_HTTP_SECONDS) as answer:
        content: bytes = answer.read()
        return content
