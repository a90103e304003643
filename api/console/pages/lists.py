"""The lists that are plain tables: schedules, complements, pools, cluster, audit and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from fastapi import Response

from api import cursors
from api.console.looks import of_run
from api.console.rendering import rendered
from api.console.table import Page, Visit, page
from api.marking import marked
from api.policy import BASE, POLICIES
from common.clock import SystemClock
from common.config import cluster_zone
from operations import (
    alerts,
    audits,
    datasources,
    members,
    pools,
    scheduling,
    stored_complements,
    streams,
    topologies,
)
from operations.documents.alerts import alert_row
from operations.documents.audits import audit_row
from operations.documents.complements import complement_row
from operations.documents.datasources import datasource_row
from operations.documents.pools import pool_row
from operations.documents.schedules import schedule_row
from operations.documents.servers import member_row
from operations.documents.streams import stream_row
from operations.documents.topologies import line_row
from operations.errors import UsageError

_LIMIT: Final = 50
_LARGEST_ID: Final = 2**31 - 1
_PATIENCE: Final = timedelta(seconds=3)
_clock = SystemClock()

Row: TypeAlias = Mapping[str, Any]
Found: TypeAlias = tuple[Sequence[Row], str | None]
"""The rows of a page, and the cursor to go on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: the field of the row that it shows, and what its cells lead to.

    `link` is a path with the row's fields in it; a row without that field has no link.
    """

    title: str
    key: str
    link: str | None = None
    is_told: bool = False
    """True for words of operations, which are English in every language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell as its template shows it, by the type of its value."""

    value: Any
    link: str | None
    is_told: bool
    is_moment: bool
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A field that chooses among the rows; of a few `words`, or any text."""

    key: str
    title: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """A list; where there is nothing, it says `empty` and the command that helps."""

    title: str
    path: str
    columns: tuple[Column, ...]
    read: Callable[[Visit], Found]
    empty: str
    command: str
    policy: str
    """The resource below `/api/v1` whose policy it has."""
    filters: tuple[Filter, ...] = ()


def _serve(shown: List) -> Callable[[Visit], Response]:
    def serve(visit: Visit) -> Response:
        rows, more = shown.read(visit)
        return rendered(
            "list.html",
            zone=visit.session.zone,
            visit=visit,
            shown=shown,
            rows=[[_cell(row, column) for column in shown.columns] for row in rows],
            given={each.key: visit.query.get(each.key, "") for each in shown.filters},
            next=more,
        )

    return serve


def _cell(row: Row, column: Column) -> Cell:
    value = row.get(column.key)
    link = None
    if column.link is not None and value is not None:
        link = column.link.format_map(row)
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return Cell(
        value=value,
        link=link,
        is_told=column.is_told,
        is_moment=isinstance(value, datetime),
        is_number=isinstance(value, int | float) and not isinstance(value, bool),
    )


def _next(name: str, found: Iterable[Any]) -> str | None:
    return cursors.next_of(name, [each.id for each in found], _LIMIT)


def _after(name: str, visit: Visit) -> int | None:
    return cursors.read(name, visit.query.get("after"))


def _schedules(visit: Visit) -> Found:
    found = scheduling.page(
        visit.session, definition_id=None, after=_after("schedules", visit) or 0, limit=_LIMIT
    )
    zone = cluster_zone(visit.session.config)
    rows = [
        {
            **row,
            "release_state": visit.said(str(row["release_state"])),
            "next": row["next_fire_time"] if each.definition_is_online else None,
        }
        for each in found
        for row in (schedule_row(each, zone=zone),)
    ]
    return rows, _next("schedules", found)


def _complements(visit: Visit) -> Found:
    found = stored_complements.find(
        visit.session,
        definition_id=None,
        states=None,
        limit=_LIMIT,
        before=_after("complements", visit),
    )
    rows = [
        {
            **row,
            "look": of_run(each.state),
            "progress": visit.said("%(count)s of %(whole)s", count=row["done"], whole=row["dates"]),
        }
        for each in found
        for row in (complement_row(each, now=_clock.now()),)
    ]
    return rows, _next("complements", found)


def _streams(visit: Visit) -> Found:
    after = cursors.read_name("streams", visit.query.get("after"))
    found = streams.list_streams(visit.session, after=after, limit=_LIMIT)
    return [stream_row(each) for each in found], cursors.next_name(
        "streams", [each.id for each in found], _LIMIT
    )


def _topologies(visit: Visit) -> Found:
    after = cursors.read_name("topologies", visit.query.get("after"))
    found = topologies.list_topologies(visit.session, after=after, limit=_LIMIT)
    rows = [{**row, "status": visit.said(str(row["status"]))} for row in map(line_row, found)]
    return rows, cursors.next_name("topologies", [each.name for each in found], _LIMIT)


def _pools(visit: Visit) -> Found:
    after = _after("pools", visit) or 0
    found = pools.list_pools(visit.session, name=None, after=after, limit=_LIMIT)
    return [pool_row(each) for each in found], _next("pools", found)


def _cluster(visit: Visit) -> Found:
    found = members.members_with_health(visit.session, patience=_PATIENCE)
    return [member_row(each) for each in found], None


def _alerts(visit: Visit) -> Found:
    found = alerts.list_alerts(visit.session, before=_after("alerts", visit), limit=_LIMIT)
    return [alert_row(each) for each in found], _next("alerts", found)


def _datasources(visit: Visit) -> Found:
    after = _after("datasources", visit) or 0
    found = datasources.datasource_page(visit.session, after=after, limit=_LIMIT)
    return [datasource_row(each) for each in found], _next("datasources", found)


def _audit(visit: Visit) -> Found:
    query = visit.query
    found = audits.list_audit(
        visit.session,
        user=query.get("user"),
        action=query.get("action"),
        object_type=query.get("object_type"),
        object_id=_number(visit, "object_id"),
        outcome=query.get("outcome"),
        before=cursors.read("audit", query.get("after"), largest=cursors.LARGEST_BIG_ID),
        limit=_LIMIT,
    )
    rows = [
        {**row, "about": f"{row['object_type']} {row['object_id'] or ''}".strip()}
        for row in map(audit_row, found)
    ]
    return rows, _next("audit", found)


def _number(visit: Visit, name: str) -> int | None:
    text = visit.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:11]) <= _LARGEST_ID):
        raise UsageError(
            name, visit.said("%(text)s is no number of anything here", text=f"{text!r:.50}")
        )
    return int(text)


_DEFINITION: Final = "/definitions/{process_definition_id}"
_PROJECT_COLUMN: Final = Column(title=marked("Project"), key="project")
LISTS: Final = (
    List(
        title=marked("Schedules"),
        path="/schedules",
        columns=(
            Column(title=marked("Schedule"), key="id", link="/schedules/{id}"),
            Column(title=marked("Definition"), key="definition", link=_DEFINITION),
            _PROJECT_COLUMN,
            Column(title=marked("State"), key="release_state"),
            Column(title=marked("Fires"), key="description"),
            Column(title=marked("Line"), key="crontab"),
            Column(title=marked("Zone"), key="timezone_id"),
            Column(title=marked("Next"), key="next"),
            Column(title=marked("Fault"), key="fault"),
        ),
        read=_schedules,
        empty=marked("No schedule. Make one with"),
        command="orcaflow schedule create",
        policy="schedules",
    ),
    List(
        title=marked("Complements"),
        path="/complements",
        columns=(
            Column(title=marked("Complement"), key="id", link="/complements/{id}"),
            Column(title=marked("Definition"), key="definition", link=_DEFINITION),
            _PROJECT_COLUMN,
            Column(title=marked("State"), key="look"),
            Column(title=marked("Dates done"), key="progress"),
            Column(title=marked("At a time"), key="parallelism"),
            Column(title=marked("Began"), key="create_time"),
            Column(title=marked("Took"), key="duration"),
            Column(title=marked("Reason"), key="reason", is_told=True),
        ),
        read=_complements,
        empty=marked("No complement. Run past dates with"),
        command="orcaflow complement",
        policy="complements",
    ),
    List(
        title=marked("Streams"),
        path="/streams",
        columns=(
            Column(title=marked("Supervisor"), key="id", link="/streams/{id}"),
            _PROJECT_COLUMN,
            Column(title=marked("State"), key="detailed_state"),
            Column(title=marked("Topic"), key="stream"),
            Column(title=marked("Partitions"), key="partitions"),
            Column(title=marked("Lag"), key="lag"),
            Column(title=marked("Master"), key="master"),
            Column(title=marked("Changed"), key="updated"),
        ),
        read=_streams,
        empty=marked("No supervisor. Submit one with"),
        command="orcaflow stream submit FILE",
        policy="streams",
    ),
    List(
        title=marked("Topologies"),
        path="/topologies",
        columns=(
            Column(title=marked("Topology"), key="name", link="/topologies/{name}"),
            _PROJECT_COLUMN,
            Column(title=marked("State"), key="status"),
            Column(title=marked("Worker"), key="verdict"),
            Column(title=marked("Version"), key="version"),
            Column(title=marked("Components"), key="components"),
            Column(title=marked("Tasks"), key="tasks"),
            Column(title=marked("Batch"), key="batch"),
            Column(title=marked("Lag"), key="lag"),
            Column(title=marked("Since"), key="created"),
            Column(title=marked("Reason"), key="reason", is_told=True),
        ),
        read=_topologies,
        empty=marked("No topology. Submit one with"),
        command="orcaflow topology submit FILE:FUNCTION",
        policy="topologies",
    ),
    List(
        title=marked("Pools"),
        path="/pools",
        columns=(
            Column(title=marked("Pool"), key="name", link="/pools/{id}"),
            Column(title=marked("Slots"), key="size"),
            Column(title=marked("Taken"), key="used"),
            Column(title=marked("Free"), key="free"),
            Column(title=marked("Waiting"), key="waiting"),
            Column(title=marked("Description"), key="description"),
        ),
        read=_pools,
        empty=marked("No pool. Make one with"),
        command="orcaflow pool create NAME SLOTS",
        policy="pools",
    ),
    List(
        title=marked("Cluster"),
        path="/cluster",
        columns=(
            Column(title=marked("Server"), key="address"),
            Column(title=marked("Kind"), key="kind"),
            Column(title=marked("Health"), key="health"),
            Column(title=marked("Groups"), key="groups"),
            Column(title=marked("Reserved"), key="reserved"),
            Column(title=marked("Slots"), key="slots"),
            Column(title=marked("Version"), key="version"),
            Column(title=marked("Since"), key="since"),
            Column(title=marked("Last heartbeat"), key="beaten"),
            Column(title=marked("Reason"), key="reason", is_told=True),
        ),
        read=_cluster,
        empty=marked("No master and no worker is alive. Start them with"),
        command="orcaflow server start standalone-server",
        policy="servers",
    ),
    List(
        title=marked("Alerts"),
        path="/alerts",
        columns=(
            Column(title=marked("Alert"), key="id"),
            Column(title=marked("Title"), key="title"),
            Column(title=marked("Status"), key="status"),
            Column(title=marked("Group"), key="alertgroup"),
            Column(title=marked("At"), key="create_time"),
        ),
        read=_alerts,
        empty=marked("No alert. Groups are made with"),
        command="orcaflow alert",
        policy="alerts",
    ),
    List(
        title=marked("Data sources"),
        path="/datasources",
        columns=(
            Column(title=marked("Name"), key="name", link="/datasources/{id}"),
            Column(title=marked("Type"), key="type"),
            Column(title=marked("Address"), key="address"),
            Column(title=marked("Database"), key="database"),
            Column(title=marked("User"), key="user"),
            Column(title=marked("Problem"), key="problem"),
            Column(title=marked("Note"), key="note"),
        ),
        read=_datasources,
        empty=marked("No data source. Make one with"),
        command="orcaflow datasource create NAME",
        policy="datasources",
    ),
    List(
        title=marked("Audit"),
        path="/audit",
        columns=(
            Column(title=marked("At"), key="at"),
            Column(title=marked("User"), key="user"),
            Column(title=marked("Action"), key="action"),
            Column(title=marked("About"), key="about"),
            Column(title=marked("Name"), key="object"),
            Column(title=marked("Outcome"), key="outcome"),
            Column(title=marked("Detail"), key="detail"),
            Column(title=marked("From"), key="address"),
        ),
        read=_audit,
        empty=marked("No such line. At a terminal it is"),
        command="orcaflow audit list",
        policy="audit",
        filters=(
            Filter(key="user", title=marked("User")),
            Filter(key="action", title=marked("Action")),
            Filter(key="object_type", title=marked("Kind of object")),
            Filter(key="object_id", title=marked("Its number")),
            Filter(key="outcome", title=marked("Outcome"), words=audits.OUTCOMES),
        ),
    ),
)
PAGES: Final[tuple[Page, ...]] = tuple(
    page(each.path, POLICIES[f"GET {BASE}/{each.policy}"], _serve(each)) for each in LISTS
)
