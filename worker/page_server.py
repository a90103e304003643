"""Fetches pages of Spark's UI for an api-server at the worker's own port: `GET /v1/spark-ui`.

The driver of a task of its own, or the server that the task has its session in, is found by the
socket that listens at the port in the attempt's facts. An attempt can write any port there. So the
process with that socket has to be a process of the attempt, or one of the servers of the attempt's
account; the account at the other end of the connection is checked as well. Only these processes
get the token of their pages. A request is always a GET of a listed page (`common.page_access`), to
this computer, limited in size and time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from common.clock import Clock
from common.log_access import LogAccessError, LogGuard
from common.page_access import MOST_BYTES, PATIENCE, PageQuestion, are_arguments, is_page
from common.port_holders import process_of
from common.ports import LOOPBACK, Listener, check_server, listener_of
from common.runtime.health import Asked, Response
from worker.processes.attempt_processes import may_belong, real_uid, seen_now
from worker.processes.spark_facts import read_facts
from worker.spark.host import folders
from worker.spark.jvm import doors
from worker.workspace import is_own_file

_MOST_AT_ONCE: Final = 8
_LONGEST_TOKEN: Final = 1000
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_SERVER: Final = re.compile(r"server-[0-9]+")
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]{1,60}")
_NOT_HERE: Final = "Spark's UI of this attempt can not be found at this worker"
_SHARED: Final = (
    "the session of this task is in a shared server. The UI of the server shows the statements of"
    " all projects, so only users who may see every project can open it. With the profile classic"
    " the task gets a separate driver, and every user who may see the task can open its UI"
)


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pages:
    """The pages of a driver or a server of the account `uid`."""

    port: int
    listener: Listener
    uid: int
    is_shared: bool
    folder: Path
    """The folder with the file that holds the token."""


class Running(Protocol):
    """The attempts that run on this worker."""

    def facts_files(self) -> Mapping[int, Path]:
        """Return the facts file of each attempt that may have a Spark application."""
        ...

    def uid_of(self, task_instance_id: int) -> int | None:
        """Return the account of an attempt; None if it is unknown."""
        ...


class PageServer:
    """A route of the worker's port."""

    def __init__(self, attempts: Running, servers: Path, *, guard: LogGuard, clock: Clock) -> None:
        """`servers` is the folder of the Spark host of the worker's own account."""
        self._attempts = attempts
        self._servers = servers
        self._guard = guard
        self._clock = clock
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def answer(self, asked: Asked) -> Response:
        """Answer a request, in its own thread."""
        try:
            question = PageQuestion.read(asked.query)
            self._guard.check(asked.authorization, question, now=self._clock.now().timestamp())
        except ValueError as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))
        except LogAccessError as error:
            return _refusal(HTTPStatus.UNAUTHORIZED, str(error))
        if not self._places.acquire(blocking=False):
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are being fetched")
        try:
            pages = self._pages_of(question.task)
            if pages.is_shared and not question.sees_shared:
                raise _RefusedError(HTTPStatus.FORBIDDEN, _SHARED)
            return _fetched(pages, question)
        except _RefusedError as error:
            return _refusal(error.status, str(error))
        except (OSError, http.client.HTTPException, ValueError) as error:
            text = f"Spark's UI does not answer ({type(error).__name__})"
            return _refusal(HTTPStatus.BAD_GATEWAY, text)
        finally:
            self._places.release()

    def _pages_of(self, task: int) -> _Pages:
        """Find the pages; `_RefusedError` if the port belongs to any other process."""
        facts_file = self._attempts.facts_files().get(task)
        uid = self._attempts.uid_of(task)
        port = 0 if facts_file is None else _port_of(read_facts(facts_file).ui_link)
        listener = listener_of(port) if port else None
        pid = None if listener is None else process_of(listener)
        if facts_file is None or uid is None or listener is None or pid is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, _NOT_HERE)
        directory = facts_file.parent
        seen = seen_now(pid)
        if seen is None or listener.uid != uid or real_uid(pid) != uid:
            raise _RefusedError(HTTPStatus.NOT_FOUND, _NOT_HERE)
        if seen.execute_path == str(directory) and may_belong(pid, str(directory)):
            return _Pages(port=port, listener=listener, uid=uid, is_shared=False, folder=directory)
        server = self._server_of(pid, uid)
        if seen.execute_path is not None or server is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, _NOT_HERE)
        return _Pages(port=port, listener=listener, uid=uid, is_shared=True, folder=server)

    def _server_of(self, pid: int, uid: int) -> Path | None:
        """Return the folder of a server of this account; None if the process is no server."""
        own = self._servers
        host = own if uid == os.geteuid() else folders.tenant_folder(own, uid)
        try:
            found = Path(f"/proc/{pid}/cwd").readlink()
        except OSError:
            return None
        if found.parent != Path(os.path.realpath(host)) or not _SERVER.fullmatch(found.name):
            return None
        return found


def _port_of(link: str) -> int:
    try:
        found = urlsplit(link)
        return (found.port or 0) if found.scheme == "http" else 0
    except ValueError:
        return 0


def _token_of(pages: _Pages) -> str:
    """Read the token of the pages; "" if they want none."""
    names = ["page.token"] if pages.is_shared else sorted(_token_names(pages.folder))
    for name in names:
        try:
            # Neither a link nor a pipe: the account of the attempt can write this folder.
            file = os.open(pages.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if is_own_file(file) and os.fstat(file).st_uid == pages.uid:
                text = os.read(file, _LONGEST_TOKEN).decode("ascii", "replace")
                if _TOKEN.fullmatch(text):
                    return text
        finally:
            os.close(file)
    return ""


def _token_names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [each.name for each in folder.iterdir() if each.suffix == ".token"]
    return []


def _fetched(pages: _Pages, question: PageQuestion) -> Response:
    connection = http.client.HTTPConnection(LOOPBACK, pages.port, timeout=PATIENCE.total_seconds())
    with contextlib.closing(connection):
        connection.connect()
        taken = connection.sock
        # However slowly its bytes come.
        end = threading.Timer(PATIENCE.total_seconds(), _hang_up, (taken,))
        end.daemon = True
        end.start()
        try:
            check_server(taken, pages.uid, "Spark's UI")
            if listener_of(pages.port) != pages.listener:
                raise _RefusedError(HTTPStatus.NOT_FOUND, _NOT_HERE)
            arguments = f"?{question.arguments}" if question.arguments else ""
            connection.request(
                "GET",
                f"/{question.path}{arguments}",
                headers={
                    **doors.headers(_token_of(pages)),
                    "X-Forwarded-Context": question.base,
                    "Accept-Encoding": "identity",
                },
            )
            found = connection.getresponse()
            body = found.read(MOST_BYTES + 1)
        finally:
            end.cancel()
    return _answer(pages, question, found, body)


def _hang_up(taken: socket.socket) -> None:
    with contextlib.suppress(OSError):
        taken.shutdown(socket.SHUT_RDWR)


def _answer(
    pages: _Pages, question: PageQuestion, found: http.client.HTTPResponse, body: bytes
) -> Response:
    """Pass on a page's type and bytes, or where it leads to, and nothing else."""
    if found.status in (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND):
        place = _place_of(pages, question, found.getheader("Location", ""))
        return Response(status=HTTPStatus.FOUND, headers={"Location": place}, body=b"")
    if found.status == HTTPStatus.NOT_FOUND:
        raise _RefusedError(HTTPStatus.NOT_FOUND, "Spark's UI has no such page")
    if found.status != HTTPStatus.OK:
        raise _RefusedError(HTTPStatus.BAD_GATEWAY, f"Spark's UI answers {found.status:d}")
    if len(body) > MOST_BYTES:
        raise _RefusedError(HTTPStatus.BAD_GATEWAY, f"the page has more than {MOST_BYTES} bytes")
    media_type = found.getheader("Content-Type", "").partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(media_type):
        media_type = "application/octet-stream"
    return Response(status=HTTPStatus.OK, headers={"Content-Type": media_type}, body=body)


def _place_of(pages: _Pages, question: PageQuestion, location: str) -> str:
    """Return the place of another page of the same UI; `_RefusedError` for any other place."""
    place = urlsplit(location)
    path = place.path.removeprefix(question.base)
    is_here = not place.netloc or place.port == pages.port
    if not (is_here and is_page(path.lstrip("/")) and are_arguments(place.query)):
        raise _RefusedError(HTTPStatus.BAD_GATEWAY, "Spark's UI leads to a page that is not shown")
    arguments = f"?{place.query}" if place.query else ""
    return f"{question.base}/{path.lstrip('/')}{arguments}"


def _refusal(status: HTTPStatus, why: str) -> Response:
    body = json.dumps({"error": why}).encode() + b"\n"
    return Response(status=status, headers={"Content-Type": "application/json"}, body=body)
