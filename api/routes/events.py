"""The stream of events: what goes on in runs, and in all projects that one may see."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header, Query, Request

from api.asking import Asked
from api.live.stream import EventStream
from api.live.streams import Stream, Streams
from api.live.topics import read_topics
from api.route import Route, stream
from operations.live import may_watch


def watch(
    request: Request,
    session: Asked,
    topics: Annotated[
        str,
        Query(
            max_length=2000,
            description="`instance:ID`, several of them, and `overview`, with commas between.",
            examples=["instance:41,overview"],
        ),
    ],
    last_event_id: Annotated[  # noqa: ARG001  # Whatever was seen before, a snapshot comes first.
        str | None, Header(max_length=100)
    ] = None,
) -> EventStream:
    """Follow runs as server-sent events: a `snapshot`, then every change.

    `task`, `instance`, `complement` and `alert` tell a change, `ping` that nothing has, and `end`
    that nothing more comes, since your rights have ended or the server stops. Each connection
    begins with a snapshot, whatever `Last-Event-ID` says, and so does a reader who was too slow.
    """
    asked = read_topics(topics)
    found = may_watch(session, asked.runs, overview=asked.overview)
    streams: Streams = request.app.state.streams
    made = Stream(principal=session.principal, topics=asked, projects=found.projects)
    streams.open(made)
    return EventStream(streams, made)


ROUTES: Final[tuple[Route, ...]] = (stream("/events", watch, EventStream),)
