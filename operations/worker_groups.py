"""Lists, makes and deletes worker groups, and finds the workers that serve one.

A worker serves a group by its host, which stands in the group's addresses, or by its start, of
which it tells in the tables.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from common.errors import NotAllowedError, NotFoundError
from common.model.cluster import Node
from common.model.grants import GrantKind
from common.model.offers import Offer
from common.model.rights import Principal
from common.store.connect import Connection
from common.store.people import users_of, worker_groups
from common.store.people.definitions import definitions, lock_imports
from common.store.people.deletions import hold_commands
from common.store.people.offers import offers
from common.store.people.worker_groups import WorkerGroupView
from common.store.tables import process_instance
from common.store.transaction import transaction
from operations.definition_document import id_in, name_of, nodes_of, object_of
from operations.deleting import refuse
from operations.errors import UsageError
from operations.explaining import living
from operations.grants import grant_new
from operations.limits import check_name
from operations.references import DEFAULT_WORKER_GROUP
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import administered
from operations.row_tags import check_row_tag, row_tag
from operations.session import Session, operation

_MAX_NAME_LENGTH = 200
_MAX_ADDRESSES_LENGTH = 256


class KnownBy(StrEnum):
    """The reason to say that a worker serves a group."""

    ADDRESS = "address"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A living worker that serves a group."""

    address: str
    known_by: KnownBy


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """A group with its members; None if ZooKeeper does not tell who is alive."""

    view: WorkerGroupView
    members: tuple[GroupMember, ...] | None


def group_names(session: Session) -> list[str]:
    """Return the names of the worker groups that the principal sees, after `default`."""
    with session.engine.connect() as db:
        names = worker_groups.worker_group_names(db, seen_by=session.principal)
        return [DEFAULT_WORKER_GROUP, *names]


def group_tag(view: WorkerGroupView) -> str:
    """The tag to delete a group by."""
    return row_tag(view.id, view.name, view.addresses)


@operation
def list_groups(
    session: Session, *, name: str | None = None, after: int = 0, limit: int | None = None
) -> list[WorkerGroup]:
    """List the worker groups that the principal sees, by id above `after`, or the named one.

    Each has the living workers that serve it.
    """
    members = living(session)
    with session.engine.connect() as db:
        views = (
            worker_groups.list_worker_groups(
                db, seen_by=session.principal, after=after, limit=limit
            )
            if name is None
            else [_found(db, name, seen_by=session.principal)]
        )
        return _with_members(db, views, members)


@operation
def group_given(session: Session, group: str | int) -> WorkerGroup:
    """The group of this name or id; `NotFoundError` proposes another one that is spelt like it."""
    members = living(session)
    with session.engine.connect() as db:
        (found,) = _with_members(db, [_found(db, group, seen_by=session.principal)], members)
    return found


@operation
def create_group(
    session: Session,
    name: str,
    *,
    addresses: Sequence[str],
    projects: Sequence[str | int] = (),
    once: Once | None = None,
) -> WorkerGroupView:
    """Create a group, and grant it to `projects`; `NotAllowedError` if the name is taken.

    A worker of one of the hosts in `addresses` serves it, whatever groups it was started with.
    """
    check_name(name, longest=_MAX_NAME_LENGTH)
    if name == DEFAULT_WORKER_GROUP or name.isdecimal() or "," in name:
        raise UsageError(
            "name",
            f"{name!r} is no name for a group: {DEFAULT_WORKER_GROUP!r} is that of all workers,"
            " a number is an id, and a comma joins names",
        )
    hosts = [each.strip() for each in addresses]
    if any(not each or "," in each or not each.isprintable() for each in hosts):
        raise UsageError("address", "an address is that of a host, as 10.0.0.7")
    if len(",".join(hosts)) > _MAX_ADDRESSES_LENGTH:
        raise UsageError("address", f"at most {_MAX_ADDRESSES_LENGTH} characters fit into the row")
    with administered(session, "worker-group.create", name, opened=transaction) as made:
        db = made.db
        if once is not None:
            answered = first_answer(db, session.principal, once)
            if answered is not None:
                made.object_id, made.detail = answered, "as before"
                return _found(db, answered)
        worker_groups.lock_worker_groups(db)
        if worker_groups.list_worker_groups(db, name=name):
            raise NotAllowedError(
                f"there is a worker group {name!r} already:"
                f" orcaflow worker-group show {shlex.quote(name)}"
            )
        made.object_id = worker_groups.create_worker_group(db, name, addresses=hosts)
        grant_new(db, session.principal, GrantKind.WORKER_GROUP, made.object_id, projects)
        if once is not None:
            keep_answer(db, session.principal, once, made.object_id)
        return _found(db, made.object_id)


@operation
def delete_group(session: Session, group: str | int, *, expected: str | None = None) -> int:
    """Delete a group that nothing needs; return the number of ended runs that named it.

    Those have the default group from then on. `NotAllowedError` names what needs it, and the cure;
    `expected` is the tag that it has to have (`ChangedMeanwhileError`).
    """
    with administered(session, "worker-group.delete", group, opened=transaction) as made:
        db = made.db
        lock_imports(db)
        worker_groups.lock_worker_groups(db)
        view = _found(db, group)
        made.object_id, made.object_name = view.id, view.name
        check_row_tag(group_tag(view), expected, f"worker group {view.name!r}")
        hold_commands(db)
        refuse(list(_faults(db, view)))
        if not worker_groups.delete_worker_group(db, view.id):
            raise NotAllowedError(f"worker group {view.name!r} has been deleted by somebody else")
        return users_of.detach(db, process_instance.c.worker_group_id, view.id)


def _faults(db: Connection, view: WorkerGroupView) -> Iterator[str]:
    users = users_of.users_of_group(db, view.id)
    for each in users.commands:
        yield (
            f"command {each} names it and waits; see it carried out first:"
            f" orcaflow instance why --command {each}"
        )
    for each in users.instances:
        yield (
            f"process instance {each} goes on with it; see its end, or stop it first:"
            f" orcaflow instance stop {each} --wait"
        )
    for each in users.schedules:
        yield (
            f"schedule {each} names it; change that while it is OFFLINE:"
            f" orcaflow schedule edit {each} --worker-group default"
        )
    for each in users.complements:
        yield f"complement {each} goes on with it; cancel it: orcaflow complement cancel {each}"
    for row in definitions(db):
        for node in nodes_of(object_of(row.process_definition_json)):
            if id_in(node.get("workerGroupId")) == view.id:
                yield (
                    f"definition {row.name!r} names it in task {name_of(node)!r}; import it"
                    " without that, or delete it: orcaflow definition delete"
                    f" {shlex.quote(row.name)}"
                )
                break


def _with_members(
    db: Connection,
    views: Sequence[WorkerGroupView],
    members: tuple[frozenset[Node], frozenset[Node]] | None,
) -> list[WorkerGroup]:
    if members is None:
        return [WorkerGroup(view=view, members=None) for view in views]
    told = offers(db, members[1])
    return [
        WorkerGroup(
            view=view,
            members=tuple(
                GroupMember(address=node.address, known_by=known)
                for node in sorted(members[1])
                if (known := _known_by(node, view, told.get(node))) is not None
            ),
        )
        for view in views
    ]


def _known_by(node: Node, view: WorkerGroupView, offer: Offer | None) -> KnownBy | None:
    if node.address.rpartition(":")[0] in view.addresses:
        return KnownBy.ADDRESS
    return KnownBy.START if offer is not None and view.id in offer.group_ids else None


def _found(
    db: Connection, given: str | int, *, seen_by: Principal | None = None
) -> WorkerGroupView:
    near: list[str] = []
    if isinstance(given, int):
        found = worker_groups.list_worker_groups(db, seen_by=seen_by, group_id=given)
    else:
        # PostgreSQL takes no NUL, and so has no row with one.
        found = (
            worker_groups.list_worker_groups(db, seen_by=seen_by, name=given)
            if "\0" not in given
            else []
        )
    if found:
        return found[0]
    if isinstance(given, str):
        names = worker_groups.worker_group_names(db, seen_by=seen_by)
        near = difflib.get_close_matches(given, names, n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow worker-group list`"
    raise NotFoundError(f"there is no worker group {given!r:.200}{perhaps}")
