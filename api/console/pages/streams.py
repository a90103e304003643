"""A supervisor of a stream: its state, lag, groups, tasks and errors, and the orders to it.

A reset and a hand-over have a key of the form that was shown, so that one sent twice is one order.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console.looks import Look, of_task
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page
from api.policy import Policy
from common.model.rights import Action
from common.model.streams.partitions import Partition, read_chosen, read_partition
from common.store.people.rights import Thing
from common.store.people.stream_tasks import StreamTaskInfo
from common.store.people.supervisors import StreamTaskView, SupervisorView
from operations import streams
from operations.documents.streams import lag_rows, stream_row, version_row
from operations.errors import UsageError
from operations.rights import may
from operations.stream_resets import plan_reset
from operations.stream_tasks import list_stream_tasks

_VIEW: Final = Policy(takes=Action.VIEW, thing="stream")
_OPERATE: Final = Policy(takes=Action.OPERATE, thing="stream")
_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="stream")
_MOST_ENDED: Final = 20
_MOST_VERSIONS: Final = 20
_MOST_RECORDS: Final = 20
_GROUP: Final = "group."
_ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task with the look of its newest attempt, as its own report tells of it."""

    view: StreamTaskView
    look: Look
    status: str
    offsets: str
    processed: int | None
    flawed: int | None
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A task group: its partitions, from where they are read, and the number of its tasks."""

    number: int
    starts: str
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record that could not be read, as a task kept it."""

    task: str
    partition: object
    offset: object
    value: str


def show(visit: Visit) -> Response:
    """Show a supervisor."""
    session = visit.session
    found = streams.stream_given(session, visit.name)
    view = found.view
    ended = list_stream_tasks(session, supervisor=view.id, most_complete=_MOST_ENDED)
    return rendered(
        "stream.html",
        zone=session.zone,
        visit=visit,
        stream=stream_row(view),
        place=f"/streams/{quote(view.id)}",
        verbs=_verbs(visit, view),
        partitions=lag_rows(view),
        groups=_groups(found.tasks),
        tasks=[_task(each) for each in found.tasks],
        ended=[(each, of_task(each.state)) for each in _handed_over(ended)],
        errors=[
            {"at": _moment(each.get("timestamp")), "message": str(each.get("message"))}
            for each in reversed(view.recent_errors)
        ],
        records=_records(found.tasks),
        versions=[
            version_row(each) for each in streams.stream_history(session, view.id)[:_MOST_VERSIONS]
        ],
        once=secrets.token_hex(16),
    )


def look_at_reset(visit: Visit) -> Response:
    """Show which records a reset would have read again, or never; a mistake is told there too."""
    partitions = visit.form.get("partitions", "")
    plan, mistake = None, None
    try:
        chosen = _chosen(visit)
        plan = plan_reset(
            visit.session,
            visit.name,
            partitions=chosen.partitions,
            topics=chosen.topics,
            offsets=chosen.offsets,
        )
    except UsageError as error:
        # Whoever may not reset is told so, and not what is wrong with the form.
        streams.check_operator(visit.session, visit.name)
        mistake = error.message
    return rendered(
        "stream_reset.html",
        zone=visit.session.zone,
        visit=visit,
        status=200 if mistake is None else 422,
        name=visit.name,
        place=f"/streams/{quote(visit.name)}",
        partitions=partitions,
        plan=plan,
        mistake=mistake,
        once=secrets.token_hex(16),
    )


def _reset(visit: Visit) -> None:
    chosen = _chosen(visit)
    once = visit.once("stream.reset", visit.name)
    if chosen.offsets is not None:
        streams.reset_stream_to(visit.session, visit.name, offsets=chosen.offsets, once=once)
    else:
        streams.reset_stream(
            visit.session,
            visit.name,
            partitions=chosen.partitions,
            topics=chosen.topics,
            once=once,
        )


def _hand_over(visit: Visit) -> None:
    names = [each.removeprefix(_GROUP) for each in visit.form if each.startswith(_GROUP)]
    groups = [_number(visit, "groups", each) for each in names]
    once = visit.once("stream.handoff", visit.name)
    streams.hand_over_stream(visit.session, visit.name, groups=groups, once=once)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The partitions and topics to forget, None for all partitions; or the offsets to read from."""

    partitions: list[Partition] | None = None
    topics: list[str] = field(default_factory=list)
    offsets: dict[Partition, int] | None = None


def _chosen(visit: Visit) -> _Chosen:
    """Read `all`, `0 3`, `0=1500 3=0`, `clicks:0`, `clicks:0=1500` or `clicks:*`."""
    words = visit.form.get("partitions", "").replace(",", " ").split()
    if words == [_ALL]:
        return _Chosen()
    if not words:
        raise UsageError("partitions", visit.said("is missing"))
    pairs = [each.partition("=") for each in words]
    partitions, topics = _partitions(visit, [each for each, _, _ in pairs])
    if len({*partitions, *topics}) < len(pairs):
        raise UsageError("partitions", visit.said("has a partition twice"))
    named = [bool(equals) for _, equals, _ in pairs]
    if not any(named):
        return _Chosen(partitions=partitions, topics=topics)
    if topics or not all(named):
        raise UsageError(
            "partitions",
            visit.said("has partitions with an offset and without one"),
        )
    offsets = [_number(visit, "partitions", offset) for _, _, offset in pairs]
    return _Chosen(offsets=dict(zip(partitions, offsets, strict=True)))


def _partitions(visit: Visit, words: list[str]) -> tuple[list[Partition], list[str]]:
    for word in words:
        try:
            read_chosen([word])
        except ValueError:
            raise UsageError(
                "partitions", visit.said("%(text)s is no number", text=f"{word!r:.50}")
            ) from None
    return read_chosen(words)


def _number(visit: Visit, field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise UsageError(field, visit.said("%(text)s is no number", text=f"{text!r:.50}"))
    return int(text)


def _verbs(visit: Visit, view: SupervisorView) -> frozenset[str]:
    """Return the orders that may be given by the visitor, and now."""
    found = set()
    if may(visit.session, Action.OPERATE, Thing.PROJECT, view.project_id):
        found.add("reset")
        if view.active and view.document is not None:
            found |= {"resume"} if view.suspended else {"suspend"}
            found.add("handoff")
    if view.document is not None and may(
        visit.session, Action.AUTHOR, Thing.PROJECT, view.project_id
    ):
        found.add("terminate")
    return frozenset(found)


def _groups(tasks: Iterable[StreamTaskView]) -> list[Group]:
    by_number: dict[int, list[StreamTaskView]] = defaultdict(list)
    for each in tasks:
        by_number[each.group_id].append(each)
    return [
        Group(number=number, starts=_offsets(found[0].assignment.get("starts")), tasks=len(found))
        for number, found in sorted(by_number.items())
    ]


def _task(view: StreamTaskView) -> Task:
    report = view.status or {}
    counts, errors = _object(report.get("counts")), _object(report.get("errors"))
    flawed = [counts.get(each) for each in ("unparseable", "processedWithError")]
    return Task(
        view=view,
        look=of_task(view.state),
        status=str(report.get("state") or ""),
        offsets=_offsets(report.get("current") or view.assignment.get("starts")),
        processed=_whole(counts.get("processed")),
        flawed=sum(each or 0 for each in map(_whole, flawed)) if counts else None,
        trouble=str(errors.get("trouble") or ""),
    )


def _records(tasks: Iterable[StreamTaskView]) -> list[Record]:
    found = []
    for task in tasks:
        kept = _object((task.status or {}).get("errors")).get("parse")
        for each in kept if isinstance(kept, list) else ():
            error = each if isinstance(each, dict) else {"value": each}
            found.append(
                Record(
                    task=task.name,
                    partition=error.get("partition"),
                    offset=error.get("offset"),
                    value=str(error.get("value")),
                )
            )
    return found[-_MOST_RECORDS:]


def _handed_over(tasks: Iterable[StreamTaskInfo]) -> list[StreamTaskInfo]:
    return [each for each in tasks if each.closed]


def _offsets(given: object) -> str:
    """Return offsets as `0=1500 1=0` or `a:0=15`; processes of tenants write reports."""
    found: dict[Partition, object] = {}
    for key, value in _object(given).items():
        with suppress(ValueError):
            found[read_partition(key)] = value
    return " ".join(f"{key}={found[key]}" for key in sorted(found))


def _object(given: object) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


def _whole(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _ordered(give: Callable[[Visit], object]) -> Serve:
    def serve(visit: Visit) -> Response:
        give(visit)
        return RedirectResponse(f"/streams/{quote(visit.name)}", status_code=303)

    return serve


_ORDERS: Final[Mapping[str, tuple[Policy, Callable[[Visit], object]]]] = {
    "suspend": (
        _OPERATE,
        lambda visit: streams.suspend_stream(visit.session, visit.name, suspended=True),
    ),
    "resume": (
        _OPERATE,
        lambda visit: streams.suspend_stream(visit.session, visit.name, suspended=False),
    ),
    "reset": (_OPERATE, _reset),
    "handoff": (_OPERATE, _hand_over),
    "terminate": (_AUTHOR, lambda visit: streams.terminate_stream(visit.session, visit.name)),
}
PAGES: Final = (
    page("/streams/{name}", _VIEW, show),
    order("/streams/{name}/reset/check", _OPERATE, look_at_reset),
    *(
        order(f"/streams/{{name}}/{verb}", policy, _ordered(give))
        for verb, (policy, give) in _ORDERS.items()
    ),
)
