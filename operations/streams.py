"""Submits, shows, suspends, resets, hands over and terminates supervisors of streams.

A supervisor belongs to the project of its process definition, which is made with it: authors submit
and terminate, operators suspend, resume, reset and hand over. Changes of a specification are
versions of it; other orders wait in the tables for the master that keeps the supervisor.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from common.destinations import listed
from common.errors import InvalidSpecError, NotAllowedError, NotFoundError
from common.masking import (
    CONSUMER_PROPERTIES,
    MASK,
    holds_mask,
    mask_value,
    restored,
)
from common.model.grants import GrantKind, cure, missing
from common.model.rights import Action
from common.model.states import FINISHED_TASK_CODES, TaskState
from common.model.streams.partitions import Partition, TopicPartition, number_of
from common.model.streams.properties import ROUTE
from common.model.streams.reading import Rules, read_spec
from common.model.streams.requests import RequestKind
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import offsets_document, offsets_of
from common.store.connect import Connection
from common.store.people import supervisors as store
from common.store.people.datasets import own_dataset
from common.store.people.rights import Thing, is_administrator
from common.store.people.supervisors import StreamTaskView, SupervisorView, VersionView
from common.store.streams.connections import kafka_connection
from common.store.streams.offsets import drop_offsets, offsets_of_dataset
from operations.errors import NameTakenError, UsageError
from operations.projects import authored_project, project_given
from operations.repeating import Once, first_answer, keep_answer
from operations.reviewing import check_submitter
from operations.rights import Change, change, seen
from operations.session import Session, operation
from operations.stream_definitions import (
    AS_IT_IS,
    TaskPlace,
    put_definition,
    wanted_definition,
)
from operations.stream_limits import check_limits
from operations.stream_offsets import check_stream

_MOST_PARTITION: Final = 2**31 - 1
_MOST_OFFSET: Final = 2**63 - 1
MOST_REQUESTS: Final = 100
"""The requests to a supervisor that wait at a time, because a master reads all of them."""
_GOOD: Final = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A submission: the supervisor's id and version, and the keys that change nothing here.

    `outcome`: created, changed, restarted (it had been terminated) or unchanged.
    """

    id: str
    version: int
    outcome: str
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDetail:
    """A supervisor with its open tasks."""

    view: SupervisorView
    tasks: tuple[StreamTaskView, ...]


@operation
def submit_stream(
    session: Session,
    text: str,
    *,
    project: str | int | None = None,
    place: TaskPlace = AS_IT_IS,
) -> Submitted:
    """Make a supervisor, or give one another specification; the same again changes nothing.

    `InvalidSpecError` names every mistake. `project` and `place` are those of its tasks; the
    tasks that there are stay where they are. A secret that is masked, as specifications are shown,
    stays what it is.
    """
    variables = listed(session.config.stream_variables)
    read = read_spec(text, rules=Rules(variables=variables, is_open=is_masked))
    spec = read.spec
    if not isinstance(spec, SupervisorSpec):
        raise UsageError(
            "spec", f"this ends a supervisor; do that so: orcaflow stream terminate {spec.id}"
        )
    document: dict[str, Any] = json.loads(text)
    if "\\u0000" in json.dumps(document):
        raise UsageError("spec", "holds a NUL character, which no table takes")
    with change(session, "stream.submit", "stream", object_name=spec.id) as made:
        found = store.supervisor_named(made.db, spec.id, lock=True)
        if found is None:
            made.project_id = authored_project(made.db, session.principal, project)
        else:
            made.project_id = found.project_id
            _check_author(made.db, session, found, project)
            if project is not None and found.project_id != project_given(
                made.db, session.principal, Action.VIEW, project
            ):
                raise UsageError(
                    "project",
                    f"supervisor {spec.id!r} is in the project {found.project_id}, and stays there",
                )
        check_submitter(made.db, session.principal, made.project_id)
        unmasked = _unmasked(document, None if found is None else found.document)
        if unmasked != document:
            # The values behind the masks must be allowed too.
            document, spec = unmasked, _supervisor(unmasked, variables)
        _check_dataset(made, session, spec)
        check_stream(made.db, spec, found)
        _check_connection(made.db, spec, made.project_id)
        is_same = found is not None and found.active and _is_same(found, document, spec)
        if not is_same:
            check_limits(made.db, session.config.streams, made.project_id, spec=spec, former=found)
        wanted = wanted_definition(
            made.db, spec.id, place, project_id=made.project_id, is_new=found is None
        )
        if found is not None and is_same and wanted.is_there:
            made.detail = "unchanged"
            return _submitted(spec, found.version, "unchanged", read.ignored)
        definition_id = put_definition(
            made.db,
            wanted,
            spec.id,
            project_id=made.project_id,
            user_id=session.principal.user_id,
        )
        if found is not None and is_same:
            made.detail = "changed, the place of tasks"
            return _submitted(spec, found.version, "changed", read.ignored)
        if found is None and not store.make_supervisor(
            made.db, spec.id, project_id=made.project_id, process_definition_id=definition_id
        ):
            raise NotAllowedError(f"somebody else has just submitted {spec.id!r}; look, and repeat")
        version = 1 if found is None else found.version + 1
        store.add_version(
            made.db,
            spec.id,
            version=version,
            document=document,
            suspended=spec.suspended,
            user_id=session.principal.user_id,
            process_definition_id=definition_id,
        )
        outcome = "created"
        if found is not None:
            outcome = "changed" if found.active else "restarted"
        made.detail = f"{outcome}, version {version}"
    return _submitted(spec, version, outcome, read.ignored)


@operation
def list_streams(
    session: Session, *, after: str = "", limit: int | None = None
) -> list[SupervisorView]:
    """The supervisors that the principal sees, by id, behind one; terminated ones too."""
    with session.engine.connect() as db:
        return store.supervisors(db, session.principal, after=after, limit=limit)


@operation
def stream_given(session: Session, stream: str) -> StreamDetail:
    """One supervisor with its open tasks.

    The errors include failures after the end of the supervisor: no master watches its last tasks.
    """
    with session.engine.connect() as db:
        view = _found(db, session, stream, Action.VIEW)
        tasks = tuple(store.open_tasks(db, view.id))
    if not view.active:
        view = replace(view, recent_errors=(*view.recent_errors, *_late_errors(tasks)))
    return StreamDetail(view=view, tasks=tasks)


def _late_errors(tasks: Collection[StreamTaskView]) -> Iterator[dict[str, Any]]:
    """Return an error for each failed task, unless a replica has published the same records."""
    published = [_range_of(task) for task in tasks if task.state in _GOOD]
    for task in tasks:
        has_failed = task.state in FINISHED_TASK_CODES and task.state not in _GOOD
        if has_failed and task.ending_reason is None and _range_of(task) not in published:
            reason = "" if task.failure is None else f": {task.failure}"
            yield {
                "timestamp": None if task.end_time is None else task.end_time.isoformat(),
                "message": f"the task {task.name} has failed since the supervisor ended{reason}."
                " Its records are not published. Submit the supervisor again to read them",
                "streamException": False,
            }


def _range_of(task: StreamTaskView) -> tuple[int, Any]:
    return task.group_id, task.assignment.get("starts")


@operation
def stream_history(session: Session, stream: str) -> list[VersionView]:
    """The versions of a supervisor's specification, the newest first."""
    with session.engine.connect() as db:
        return store.versions(db, _found(db, session, stream, Action.VIEW).id)


def stream_histories(session: Session) -> list[VersionView]:
    """The versions of all supervisors that the principal sees, by id, the newest first."""
    with session.engine.connect() as db:
        return store.all_versions(db, session.principal)


def check_operator(session: Session, stream: str) -> None:
    """Refuse whoever may not steer a supervisor."""
    with session.engine.connect() as db:
        _found(db, session, stream, Action.OPERATE)


def suspend_streams(session: Session, *, suspended: bool) -> None:
    """Suspend all supervisors that the principal sees, or resume; or none, without the right."""
    for each in _all_active(session, Action.OPERATE):
        if each.suspended is not suspended:
            suspend_stream(session, each.id, suspended=suspended)


def terminate_streams(session: Session) -> None:
    """Have all supervisors end that the principal sees; or none, without the right."""
    for each in _all_active(session, Action.AUTHOR):
        terminate_stream(session, each.id)


def _all_active(session: Session, action: Action) -> list[SupervisorView]:
    with session.engine.connect() as db:
        found = store.supervisors(db, session.principal)
        active = [each for each in found if each.active and each.document is not None]
        for project in sorted({each.project_id for each in active}):
            seen(db, session.principal, action, Thing.PROJECT, project)
    return active


@operation
def suspend_stream(session: Session, stream: str, *, suspended: bool) -> int:
    """Suspend a supervisor, or resume it; returns the version. Refused if it is so already."""
    word = "suspended" if suspended else "running"
    with _ordered(session, "suspend" if suspended else "resume", stream) as (made, found):
        if found.document is None or not found.active:
            raise NotAllowedError(
                f"supervisor {found.id!r} has ended; submit it anew: orcaflow stream submit FILE"
            )
        if found.suspended is suspended:
            raise NotAllowedError(f"supervisor {found.id!r} is {word} already")
        if not suspended:
            _check_resumption(made.db, session, found)
        store.add_version(
            made.db,
            found.id,
            version=found.version + 1,
            document=found.document,
            suspended=suspended,
            user_id=session.principal.user_id,
        )
        return found.version + 1


@operation
def terminate_stream(session: Session, stream: str) -> int:
    """Have a supervisor end once its tasks have published; returns the version, a tombstone."""
    with _ordered(session, "terminate", stream, action=Action.AUTHOR) as (made, found):
        if found.document is None:
            raise NotAllowedError(f"supervisor {found.id!r} is terminated already")
        store.add_version(
            made.db,
            found.id,
            version=found.version + 1,
            document=None,
            suspended=False,
            user_id=session.principal.user_id,
        )
        return found.version + 1


@operation
def reset_stream(
    session: Session,
    stream: str,
    *,
    partitions: Collection[Partition] | None,
    topics: Collection[str] = (),
    once: Once | None = None,
) -> int:
    """Forget the offsets of these partitions, or of all: they are read as those of a new one.

    `topics` of a supervisor with a pattern stand for all their partitions. Records between the
    former and the new start are read twice or never. Of partitions that are
    named, what is published between the order and its execution stays. Returns the id of the
    request; 0 if the supervisor has ended, and it was done at once.
    """
    _check_numbers(partitions or (), ())
    with _ordered(session, "reset", stream) as (made, found):
        stored = {each.key: each.offset for each in offsets_of_dataset(made.db, found.id)}
        partitions = chosen_partitions(found, partitions, topics, stored=stored)
        if not found.active:
            drop_offsets(made.db, found.id, partitions)
            return 0
        body: dict[str, Any] = {}
        if partitions is not None:
            body["offsets"] = offsets_document(dict.fromkeys(partitions, 0))
            seen = {each: stored[each] for each in partitions if each in stored}
            body |= {"seen": offsets_document(seen)} if seen else {}
        return _request(session, made, found, RequestKind.RESET, body, once=once)


@operation
def reset_stream_to(
    session: Session, stream: str, *, offsets: Offsets, once: Once | None = None
) -> int:
    """Have partitions read from these offsets on; returns the id of the request."""
    if not offsets:
        raise UsageError("offsets", "name partitions and offsets, as 0=1500")
    _check_numbers(offsets, offsets.values())
    with _ordered(session, "resetOffsets", stream) as (made, found):
        check_active(found)
        check_kind(found, offsets)
        body = {"offsets": offsets_document(offsets)}
        return _request(session, made, found, RequestKind.RESET_OFFSETS, body, once=once)


@operation
def hand_over_stream(
    session: Session, stream: str, *, groups: Collection[int], once: Once | None = None
) -> int:
    """Have task groups publish what they have read; returns the id of the request."""
    if not groups:
        raise UsageError("groups", "name the task groups, as `orcaflow stream status` shows them")
    if not all(0 <= each <= _MOST_PARTITION for each in groups):
        raise UsageError("groups", f"task groups are numbers from 0 to {_MOST_PARTITION}")
    with _ordered(session, "handoff", stream) as (made, found):
        check_active(found)
        body = {"groups": sorted(groups)}
        return _request(session, made, found, RequestKind.HAND_OVER, body, once=once)


def shown_document(document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a specification without the values that may be secrets."""
    return None if document is None else mask_value(dict(document))


def is_masked(text: str) -> bool:
    """Return True for the mask, which stands for the stored value."""
    return text == MASK


def _supervisor(document: Mapping[str, Any], variables: Collection[str]) -> SupervisorSpec:
    spec = read_spec(document, rules=Rules(variables=variables)).spec
    assert isinstance(spec, SupervisorSpec), "it was one with masks"
    return spec


def _unmasked(given: dict[str, Any], former: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the specification with the former secrets in the place of masks.

    They go to no other brokers, and by no other way, than whoever wrote them has named.
    """
    document, known = copy.deepcopy(given), dict[str, Any]()
    for properties in _consumer_properties({} if former is None else former):
        known |= properties
    for properties in _consumer_properties(document):
        shown = {*properties, *known} & ROUTE
        for name in [each for each, value in properties.items() if holds_mask(value)]:
            same_brokers = all(properties.get(at) == known.get(at) for at in shown)
            if not same_brokers or properties[name] != _shown_property(known, name):
                raise UsageError(
                    "spec",
                    f"consumerProperties.{name} is masked, and the former value is kept for the"
                    " former brokers alone: give the value, or name an environment variable",
                )
            properties[name] = known[name]
    return document if former is None else restored(document, former)


def _shown_property(properties: Mapping[str, Any], name: str) -> Any:
    if name not in properties:
        return None
    return mask_value({CONSUMER_PROPERTIES: {name: properties[name]}})[CONSUMER_PROPERTIES][name]


def _consumer_properties(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The properties of consumers in a specification of either shape."""
    for part in (document, document.get("spec")):
        io = part.get("ioConfig") if isinstance(part, Mapping) else None
        properties = io.get(CONSUMER_PROPERTIES) if isinstance(io, dict) else None
        if isinstance(properties, dict):
            yield properties


def _submitted(
    spec: SupervisorSpec, version: int, outcome: str, ignored: tuple[str, ...]
) -> Submitted:
    return Submitted(id=spec.id, version=version, outcome=outcome, ignored=ignored)


def _is_same(found: SupervisorView, document: Mapping[str, Any], spec: SupervisorSpec) -> bool:
    return found.document == document and found.suspended is spec.suspended


def _check_author(
    db: Connection, session: Session, found: SupervisorView, project: str | int | None
) -> None:
    try:
        seen(db, session.principal, Action.AUTHOR, Thing.PROJECT, found.project_id)
    except NotFoundError:
        # The name of a foreign object is shown only to users who could create one of that name.
        asked = authored_project(db, session.principal, project)
        check_submitter(db, session.principal, asked)
        raise NameTakenError(
            f"the name {found.id!r} is taken in a project that is not yours; name another"
            " dataSource"
        ) from None


def _check_dataset(made: Change, session: Session, spec: SupervisorSpec) -> None:
    """Have the dataset be of the supervisor's project; refuse one of another."""
    assert made.project_id is not None
    anyway = is_administrator(made.db, session.principal)
    owner = own_dataset(made.db, spec.id, made.project_id, anyway=anyway)
    if owner is None:
        raise NotAllowedError(
            f"dataset {spec.id!r} holds rows of no project; have an administrator submit this, or"
            " name another dataSource"
        )
    if owner != made.project_id:
        raise NotAllowedError(
            f"dataset {spec.id!r} is another project's; submit this for that one (--project), or"
            " name another dataSource"
        )


def _check_resumption(db: Connection, session: Session, found: SupervisorView) -> None:
    """Raise `NotAllowedError` if the tasks of a suspended supervisor would exceed a limit."""
    try:
        spec = read_spec(found.document or {}).spec
    except InvalidSpecError:
        # A master names the mistakes, and starts no tasks.
        return
    if isinstance(spec, SupervisorSpec):
        limits = session.config.streams
        running = replace(spec, suspended=False)
        check_limits(db, limits, found.project_id, spec=running, former=found)


def _check_connection(db: Connection, spec: SupervisorSpec, project_id: int) -> None:
    """Raise `NotFoundError` for a connection that is missing or not granted to the project."""
    name = spec.io.connection
    if name and kafka_connection(db, name, project_id=project_id) is None:
        kind = GrantKind.DATASOURCE
        raise NotFoundError(f"connection: {missing(kind, name)}: {cure(kind, name)}")


def chosen_partitions(
    view: SupervisorView,
    partitions: Collection[Partition] | None,
    topics: Collection[str],
    *,
    stored: Collection[Partition],
) -> Collection[Partition] | None:
    """Return the partitions of a reset, with all known ones of these topics; None for all."""
    if partitions is None and not topics:
        return None
    found = set(partitions or ())
    check_kind(view, found)
    known = {*stored, *offsets_of(view.status.get("latestOffsets") or {})}
    for topic in topics:
        own = {each for each in known if isinstance(each, TopicPartition) and each.topic == topic}
        if not own:
            raise UsageError(
                "partitions",
                f"the supervisor does not read a topic {topic!r:.260}; see"
                f" `orcaflow stream lag {view.id}`",
            )
        found |= own
    return sorted(found)


def check_kind(view: SupervisorView, partitions: Iterable[Partition]) -> None:
    """Refuse plain numbers for a supervisor with a pattern, and topics for any other."""
    try:
        spec = read_spec(view.document or {}).spec
    except InvalidSpecError:
        # A master names the mistakes of such a version.
        return
    if not isinstance(spec, SupervisorSpec):
        return
    for each in partitions:
        if isinstance(each, TopicPartition) is not spec.io.has_pattern:
            raise UsageError(
                "offsets",
                f"{each}: supervisor {view.id!r} reads the topics of a pattern; name partitions"
                " with their topic, as clicks:0"
                if spec.io.has_pattern
                else f"{each}: supervisor {view.id!r} reads one topic; name partitions by number",
            )


def _check_numbers(partitions: Iterable[Partition], offsets: Iterable[int]) -> None:
    if not all(0 <= number_of(each) <= _MOST_PARTITION for each in partitions):
        raise UsageError("offsets", f"partitions are numbers from 0 to {_MOST_PARTITION}")
    if not all(0 <= each <= _MOST_OFFSET for each in offsets):
        raise UsageError("offsets", f"offsets are numbers from 0 to {_MOST_OFFSET}")


@contextmanager
def _ordered(
    session: Session, order: str, stream: str, *, action: Action = Action.OPERATE
) -> Iterator[tuple[Change, SupervisorView]]:
    with change(session, f"stream.{order}", "stream", object_name=stream) as made:
        found = _found(made.db, session, stream, action, lock=True)
        made.project_id = found.project_id
        yield made, found


def _request(
    session: Session,
    made: Change,
    found: SupervisorView,
    kind: RequestKind,
    body: Mapping[str, Any],
    *,
    once: Once | None,
) -> int:
    made.detail = json.dumps(body)
    if once is not None:
        answered = first_answer(made.db, session.principal, once)
        if answered is not None:
            return answered
    # The row of the supervisor is locked, so requests that come at the same time are counted too.
    if store.waiting_requests(made.db, found.id) >= MOST_REQUESTS:
        raise NotAllowedError(
            f"{MOST_REQUESTS} requests to supervisor {found.id!r} already wait for a master: try"
            " again when they are carried out, or see `orcaflow stream status`"
        )
    put = store.put_request(made.db, found.id, kind, body, user_id=session.principal.user_id)
    if once is not None:
        keep_answer(made.db, session.principal, once, put)
    return put


def _found(
    db: Connection, session: Session, stream: str, action: Action, *, lock: bool = False
) -> SupervisorView:
    found = None if "\0" in stream else store.supervisor_named(db, stream, lock=lock)
    if found is not None:
        try:
            seen(db, session.principal, action, Thing.PROJECT, found.project_id)
        except NotFoundError:
            # A foreign supervisor and a missing one are the same.
            found = None
    if found is None:
        known = [each.id for each in store.supervisors(db, session.principal)]
        near = difflib.get_close_matches(stream, known, n=1)
        perhaps = f"did you mean {near[0]!r}?" if near else "see `orcaflow stream list`"
        raise NotFoundError(f"there is no supervisor {stream!r:.200}; {perhaps}")
    return found


def check_active(found: SupervisorView) -> None:
    """Refuse an order that nobody would carry out."""
    if not found.active:
        raise NotAllowedError(
            f"supervisor {found.id!r} has ended; submit it anew: orcaflow stream submit FILE"
        )
