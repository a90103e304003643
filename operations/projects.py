"""Projects: found by name, code or id, listed, and made by administrators.

DolphinScheduler's clients name definitions by code and look for them in a project: `definition_in`
and its siblings refuse an object of another project as one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from common.errors import NotFoundError
from common.model.rights import Action
from common.store.people import projects as store
from common.store.people.definitions import DefinitionRow, definition_by_id, id_of_code
from common.store.people.projects import ProjectView
from common.store.people.rights import Thing
from operations.errors import NameTakenError, UsageError
from operations.rights import change, check_administrator, seen

if TYPE_CHECKING:
    from operations.session import Session

_LONGEST_NAME: Final = 100
_LONGEST_DESCRIPTION: Final = 200


def list_projects(
    session: Session, *, search: str | None = None, offset: int = 0, limit: int
) -> tuple[list[ProjectView], int]:
    """List the projects that the principal sees, and count them all."""
    if search is not None and "\0" in search:
        return [], 0
    with session.engine.connect() as db:
        return store.projects(db, session.principal, search=search, offset=offset, limit=limit)


def find_project(
    session: Session,
    *,
    name: str | None = None,
    code: int | None = None,
    project_id: int | None = None,
) -> ProjectView:
    """Return the project of this name, code or id; `NotFoundError` if it is missing or foreign."""
    found: list[ProjectView] = []
    if name is None or "\0" not in name:
        with session.engine.connect() as db:
            found, _ = store.projects(
                db, session.principal, name=name, code=code, project_id=project_id, limit=1
            )
    if not found:
        given = next(each for each in (name, code, project_id) if each is not None)
        raise NotFoundError(f"there is no project {given!r:.200}")
    return found[0]


def create_project(session: Session, name: str, *, description: str | None) -> ProjectView:
    """Make a project; `NameTakenError` if there is one of that name."""
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UsageError("projectName", f"is 1 to {_LONGEST_NAME} printable characters")
    if description is not None and (len(description) > _LONGEST_DESCRIPTION or "\0" in description):
        raise UsageError("description", f"has more than {_LONGEST_DESCRIPTION} characters")
    with change(session, "project.create", "project", object_name=name) as made:
        check_administrator(made.db, session.principal)
        made.object_id = store.create_project(
            made.db, name, description=description, user_id=session.principal.user_id
        )
        if made.object_id is None:
            raise NameTakenError(f"there is a project {name!r} already")
        made.project_id = made.object_id
    return find_project(session, project_id=made.object_id)


def definition_in(
    session: Session,
    project: ProjectView,
    *,
    code: int | None = None,
    definition_id: int | None = None,
    action: Action = Action.VIEW,
) -> DefinitionRow:
    """Return a definition of the project by its code or id; `NotFoundError` for any other."""
    given = code if definition_id is None else definition_id
    with session.engine.connect() as db:
        number = definition_id
        if number is None:
            number = None if code is None else id_of_code(db, code)
        if number is not None:
            held = seen(db, session.principal, action, Thing.DEFINITION, number)
            row = definition_by_id(db, number)
            if row is not None and held.project_id == project.id:
                return row
    raise NotFoundError(f"there is no process definition {given} in project {project.name!r}")


def check_in(
    session: Session,
    project: ProjectView,
    thing: Thing,
    ids: Iterable[int],
    *,
    action: Action = Action.VIEW,
) -> None:
    """Refuse objects of other projects as missing ones."""
    with session.engine.connect() as db:
        for number in ids:
            held = seen(db, session.principal, action, thing, number)
            if held.project_id != project.id:
                raise NotFoundError(
                    f"there is no {thing.value} {number} in project {project.name!r}"
                )
