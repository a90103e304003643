"""Logs of tasks: some bytes, the last lines, a download, a stream; decisions of control tasks."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import Header, Query, Request, Response

from api.answers import Decision, state_of
from api.asking import Asked
from api.live.log_stream import LogDownload, LogStream
from api.live.streams import Streams
from api.problems import OutOfRangeError, TooManyError
from api.route import Id, Route, get, stream
from common.clock import SystemClock
from common.model.states import ProcessState
from operations.attempt_logs import FollowedLog, LogPiece, log_end, log_piece
from operations.control_decisions import decision_of
from operations.documents.instances import name_of, task_row
from operations.errors import UsageError
from operations.task_log import LogMissingError

_clock = SystemClock()

_LARGEST_OFFSET: Final = 2**53
_MOST_BYTES: Final = 256 * 1024
_MOST_LINES: Final = 10_000
_MOST_READERS: Final = 16
_RANGE: Final = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")
_readers = threading.BoundedSemaphore(_MOST_READERS)

From = Annotated[
    int,
    Query(alias="from", ge=0, le=_LARGEST_OFFSET, description="The offset of the first byte."),
]


class LogBytes(Response):
    """Bytes of a log, which are UTF-8 as far as the task wrote it."""

    media_type = "text/plain"
    charset = "utf-8"


def show_log(
    id: Id,  # noqa: A002  # The path's name.
    session: Asked,
    start: From = 0,
    most: Annotated[
        int, Query(alias="max", ge=0, le=_MOST_BYTES, description="No more bytes than these.")
    ] = _MOST_BYTES,
    lines: Annotated[
        int | None, Query(ge=0, le=_MOST_LINES, description="Only the last so many, and no bytes.")
    ] = None,
) -> LogBytes:
    """Show some bytes of a log, or its last lines, of which at most 200,000 bytes.

    `Log-Start` is the offset of the first byte: behind `from` if what is between is out of reach.
    `Log-Size` is the size now. `Log-Ended` is true if nothing will come behind these bytes.
    """
    if lines is not None and start:
        raise UsageError("lines", "are the last ones: leave `from` out")
    with _reading():
        if lines is not None:
            found = log_end(session, id, lines=lines)
        else:
            found = log_piece(session, id, start=start, most=most)
    return LogBytes(found.body, headers=_headers(found))


def download_log(
    id: Id,  # noqa: A002
    session: Asked,
    request: Request,
    range: Annotated[str | None, Header(max_length=100)] = None,  # noqa: A002
) -> LogDownload:
    """Download a whole log, or with `Range` one part of it, as `bytes=1000-` is.

    Its length is not told, since the task may still write. A download without an end broke off;
    ask for what is missing by `Range`.
    """
    given = _RANGE.fullmatch(range or "")
    first, last = given.groups() if given is not None else ("", "")
    followed = FollowedLog(session, id, clock=_clock)
    try:
        with _reading():
            # What is wrong with the log shows here, while there is an answer to give.
            size = _read(followed, id, 0, 0).size
            if first:
                start, until = int(first), int(last) + 1 if last else _LARGEST_OFFSET
            else:
                start, until = max(0, size - int(last or size)), _LARGEST_OFFSET
            if (first or last) and not start < min(until, size):
                raise OutOfRangeError(size)
            found = _read(followed, id, start, min(_MOST_BYTES, until - start))
    except BaseException:
        followed.close()
        raise
    headers = _headers(found) | {"Content-Disposition": f'attachment; filename="task-{id}.log"'}
    is_part = bool(first or last)
    if is_part:
        end = min(until, max(found.size, found.start + 1)) - 1
        headers["Content-Range"] = f"bytes {found.start}-{end}/{found.size}"
        until = end + 1
    return LogDownload(
        followed,
        found,
        until=until,
        headers=headers | {"Accept-Ranges": "bytes"},
        status=206 if is_part else 200,
        limiter=request.app.state.log_threads,
    )


def follow_log(
    id: Id,  # noqa: A002
    session: Asked,
    request: Request,
    start: From = 0,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> LogStream:
    """Follow a log as server-sent events, whose ids are offsets, until its task has ended.

    `log` has text, whose escapes are colours alone; `gap` tells bytes that are out of reach, or
    that the log was cut; `end` that nothing more comes, with the reason and the state of the task.
    After a break `Last-Event-ID` goes on where the events ended.
    """
    if last_event_id is not None and re.fullmatch("[0-9]{1,15}", last_event_id):
        start = int(last_event_id)
    followed = FollowedLog(session, id, clock=_clock)
    streams: Streams = request.app.state.streams
    user = session.principal.user_id
    try:
        with _reading():
            # What is wrong with the log shows here, while there is an answer to give.
            followed.read(start, 0)
        streams.seats.take(user)
    except BaseException:
        followed.close()
        raise
    return LogStream(
        followed,
        at=start,
        user_id=user,
        streams=streams,
        limiter=request.app.state.log_threads,
    )


def show_decision(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Show what a control task has decided and why, which it has in the place of a log.

    Other tasks decide nothing.
    """
    found = decision_of(session, id)
    row = task_row(found.task, now=_clock.now())
    child = found.child
    return {
        "task": row | {"state": state_of(row)},
        "branch": found.branch,
        "looked_at": [
            {"task": each.task, "wanted": each.wanted, "state": each.state}
            for each in found.looked_at
        ],
        "evidence": found.evidence,
        "child": None
        if child is None
        else {
            "process_instance_id": child.process_instance_id,
            "definition": child.definition_name,
            "state": {"code": child.state, "name": name_of(ProcessState, child.state)},
        },
    }


@contextmanager
def _reading() -> Iterator[None]:
    """Have some threads of the server left, however many workers don't answer."""
    if not _readers.acquire(timeout=1):
        raise TooManyError("too many logs are being read whose workers are slow to answer")
    try:
        yield
    finally:
        _readers.release()


def _read(followed: FollowedLog, number: int, start: int, most: int) -> LogPiece:
    found = followed.read(start, most)
    if found is None:
        raise LogMissingError(f"task instance {number} has no log yet")
    return found


def _headers(found: LogPiece) -> dict[str, str]:
    return {
        "Log-Start": str(found.start),
        "Log-Size": str(found.size),
        "Log-Ended": "true" if found.ended else "false",
    }


ROUTES: Final[tuple[Route, ...]] = (
    get("/tasks/{id}/decision", show_decision, Decision),
    stream("/tasks/{id}/log", show_log, LogBytes),
    stream("/tasks/{id}/log/download", download_log, LogDownload, other_status=206),
    stream("/tasks/{id}/log/stream", follow_log, LogStream),
)
