"""Shares of definitions: the consent of a project that another one refers to a definition of it.

A share lets the definitions of the other project run the shared one as a sub process and wait for
its runs, and lets the members of that project read its name, its project and its version. It gives
no right to look at its tasks or runs. Admins of the definition's project make and end shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.clock import SystemClock
from common.errors import NotAllowedError
from common.model.rights import Action
from common.store.people import shares as store
from common.store.people.shares import Share
from operations.lookup import definition_given
from operations.projects import project_given
from operations.rights import change
from operations.session import operation

if TYPE_CHECKING:
    from common.store.people.definitions import DefinitionRow
    from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A definition after a change of its shares; `changed` is False if the change was made before.

    `project` is the other project as the caller gave it.
    """

    definition_id: int
    name: str
    project: str | int
    changed: bool


@operation
def share(session: Session, definition: str | int, project: str | int) -> Shared:
    """Share a definition with another project that the caller may see."""
    with change(
        session,
        "definition.share",
        "definition",
        object_id=definition if isinstance(definition, int) else None,
        object_name=str(definition),
    ) as made:
        db = made.db
        row = definition_given(db, session.principal, Action.ADMIN, definition)
        made.object_id, made.object_name, made.project_id = row.id, row.name, row.project_id
        number = project_given(db, session.principal.without_choice, Action.VIEW, project)
        if number == row.project_id:
            raise NotAllowedError(f"{row.name!r} is in that project; it needs no share there")
        made.detail = f"with project {store.name_of_project(db, number)!r} ({number})"
        changed = store.add_share(db, session.principal, row.id, number, at=SystemClock().now())
        return Shared(definition_id=row.id, name=row.name, project=project, changed=changed)


@operation
def unshare(session: Session, definition: str | int, project: str | int) -> Shared:
    """End a share: new runs of the other project's tasks that refer to the definition fail.

    Runs that have started are not touched. The id of a project that the caller may not see is taken
    too, since the list of shares has it.
    """
    with change(
        session,
        "definition.unshare",
        "definition",
        object_id=definition if isinstance(definition, int) else None,
        object_name=str(definition),
    ) as made:
        db = made.db
        row = definition_given(db, session.principal, Action.ADMIN, definition)
        made.object_id, made.object_name, made.project_id = row.id, row.name, row.project_id
        number = (
            project
            if isinstance(project, int)
            else project_given(db, session.principal.without_choice, Action.VIEW, project)
        )
        made.detail = f"with project {number}"
        changed = store.delete_share(db, row.id, number)
        return Shared(definition_id=row.id, name=row.name, project=project, changed=changed)


@operation
def shares(session: Session, definition: str | int) -> list[Share]:
    """List the projects with which a definition is shared."""
    with session.engine.connect() as db:
        row: DefinitionRow = definition_given(db, session.principal, Action.VIEW, definition)
        return store.shares_of(db, session.principal, row.id)
