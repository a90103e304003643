"""Shares of definitions and datasets: the consent of a project that another project uses an object.

With a share of a definition, definitions of the other project run it as a sub process and wait for
its runs, and members of that project read its name, its project and its version. With a share of a
dataset, tasks of the other project read, lock and change it. Members need a role in the object's
project for everything else. Admins of the object's project create and end shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from common.clock import SystemClock
from common.errors import NotAllowedError
from common.model.reach import ShareKind
from common.model.rights import Action, Principal
from common.store.people import shares as store
from common.store.people.rights import Thing
from common.store.people.shares import Share
from operations.errors import UnownedDatasetError
from operations.lookup import dataset_given, definition_given
from operations.projects import project_given
from operations.rights import Change, change, missing
from operations.session import operation

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.datasets import DatasetRow
    from common.store.people.definitions import DefinitionRow
    from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The outcome of `share` or `unshare`; `changed` is False if nothing had to change.

    `id` is the number of a definition; datasets are addressed by name. `project` is the other
    project as the caller gave it.
    """

    kind: ShareKind
    id: int | None
    name: str
    project: str | int
    changed: bool


@operation
def share(
    session: Session,
    name: str | int,
    project: str | int,
    *,
    kind: ShareKind = ShareKind.DEFINITION,
) -> Shared:
    """Share an object with another project that the caller may see."""
    with _changed(session, "share", kind, name) as (made, row):
        number = _other_project(made.db, session, project)
        if number == row.project_id:
            raise NotAllowedError(f"{row.name!r} is in that project; it needs no share there")
        other = store.name_of_project(made.db, number)
        if other is None:
            raise missing(Thing.PROJECT, number)
        made.detail = f"with project {other!r} ({number})"
        changed = store.add_share(
            made.db, session.principal, kind, row.id, number, at=SystemClock().now()
        )
        if changed is None:
            raise missing(Thing(kind), name)
        return _shared(kind, row, project, changed=changed)


@operation
def unshare(
    session: Session,
    name: str | int,
    project: str | int,
    *,
    kind: ShareKind = ShareKind.DEFINITION,
) -> Shared:
    """End a share: the next use of the object by a task of the other project fails.

    Started runs of a shared definition continue. The caller may also give the id of a project that
    it does not see, as the list of shares shows it.
    """
    with _changed(session, "unshare", kind, name) as (made, row):
        number = project if isinstance(project, int) else _other_project(made.db, session, project)
        made.detail = f"with project {number}"
        changed = store.delete_share(made.db, kind, row.id, number)
        return _shared(kind, row, project, changed=changed)


@operation
def shares(
    session: Session, name: str | int, *, kind: ShareKind = ShareKind.DEFINITION
) -> list[Share]:
    """List the projects with which an object is shared."""
    with session.engine.connect() as db:
        try:
            row = _given(db, session.principal, Action.VIEW, kind, name)
        except UnownedDatasetError:
            return []
        # The session may be limited to the project of the object.
        return store.shares_of(db, session.principal.without_choice, kind, row.id)


@contextmanager
def _changed(
    session: Session, verb: str, kind: ShareKind, name: str | int
) -> Iterator[tuple[Change, DefinitionRow | DatasetRow]]:
    """Open the transaction of a change of an object's shares, by an admin of its project."""
    with change(
        session,
        f"{kind.value}.{verb}",
        kind.value,
        object_id=name if isinstance(name, int) else None,
        object_name=str(name),
    ) as made:
        row = _given(made.db, session.principal, Action.ADMIN, kind, name)
        made.object_id, made.object_name, made.project_id = row.id, row.name, row.project_id
        yield made, row


def _given(
    db: Connection, principal: Principal, action: Action, kind: ShareKind, name: str | int
) -> DefinitionRow | DatasetRow:
    match kind:
        case ShareKind.DEFINITION:
            return definition_given(db, principal, action, name)
        case ShareKind.DATASET:
            return dataset_given(db, principal, action, str(name))
        case _:
            assert_never(kind)


def _other_project(db: Connection, session: Session, project: str | int) -> int:
    # The session may be limited to the object's project.
    return project_given(db, session.principal.without_choice, Action.VIEW, project)


def _shared(
    kind: ShareKind, row: DefinitionRow | DatasetRow, project: str | int, *, changed: bool
) -> Shared:
    number = row.id if kind is ShareKind.DEFINITION else None
    return Shared(kind=kind, id=number, name=row.name, project=project, changed=changed)
