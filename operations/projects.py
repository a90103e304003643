"""Projects: found by name, code or id, listed, changed, made and deleted; and their members.

DolphinScheduler's clients name definitions by code and look for them in a project: `definition_in`
and its siblings refuse an object of another project as one that is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action, Principal
from common.store.people import projects as store
from common.store.people.definitions import (
    DefinitionRow,
    definition_by_id,
    id_of_code,
    lock_imports,
)
from common.store.people.projects import MemberView, ProjectName, ProjectView
from common.store.people.rights import Thing
from operations.errors import NameTakenError, UsageError
from operations.limits import check_description
from operations.naming import Candidate, ChosenProject, check_one, id_in, missing_project
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import Change, administered, change, check_author, may, missing, seen
from operations.row_tags import check_row_tag, row_tag
from operations.session import operation
from operations.texts import counted

if TYPE_CHECKING:
    from common.store.connect import Connection
    from operations.session import Session

_LONGEST_NAME: Final = 100
_LONGEST_DESCRIPTION: Final = 200
_SHOWN: Final = 5
DEFAULT_PROJECT: Final = 1
"""The project of definitions that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDetail:
    """A project with the users who have a role in it."""

    view: ProjectView
    members: tuple[MemberView, ...]


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


def named_project(
    session: Session, *, name: str | None = None, code: int | None = None
) -> ProjectName:
    """Return the project of this name or code; `NotFoundError` if it is missing or foreign."""
    found = None
    with session.engine.connect() as db:
        if code is not None:
            found = store.project_with_code(db, session.principal, code)
        elif name is not None and "\0" not in name:
            found = store.project_with_name(db, session.principal, name)
    if found is None:
        raise NotFoundError(f"there is no project {(name if code is None else code)!r:.200}")
    return found


@operation
def project_page(
    session: Session, *, name: str | None = None, after: int = 0, limit: int | None = None
) -> list[ProjectView]:
    """List projects that the principal sees, by id: with ids above `after`, or with this name.

    If no project has the name, it is read as an id; `NotFoundError` if that is missing too.
    """
    with session.engine.connect() as db:
        found, _ = store.projects(db, session.principal, name=name, after=after, limit=limit)
        if name is not None and not found and not after:
            project = project_given(db, session.principal, Action.VIEW, name)
            found, _ = store.projects(db, session.principal, project_id=project, limit=limit)
    return found


@operation
def projects_of_author(session: Session, *, limit: int) -> list[ProjectView]:
    """The projects in which the principal may change definitions; `ForbiddenError` if in none."""
    with session.engine.connect() as db:
        check_author(db, session.principal)
        found, _ = store.projects(db, session.principal, limit=limit)
    return [each for each in found if may(session, Action.AUTHOR, Thing.PROJECT, each.id)]


@operation
def project_detail(session: Session, project: str | int) -> ProjectDetail:
    """A project with the users who have a role in it."""
    with session.engine.connect() as db:
        number = project_given(db, session.principal, Action.VIEW, project)
        return _detail(db, session, number)


@operation
def create_project(
    session: Session, name: str, *, description: str | None, once: Once | None = None
) -> ProjectView:
    """Make a project; `NameTakenError` if there is one of that name."""
    _check(name, description)
    with administered(session, "project.create", name) as made:
        answered = None if once is None else first_answer(made.db, session.principal, once)
        if answered is not None:
            made.object_id, made.detail = answered, "as before"
        else:
            store.lock_projects(made.db)
            made.object_id = store.create_project(
                made.db, name, description=description, user_id=session.principal.user_id
            )
            if made.object_id is None:
                raise NameTakenError(f"there is a project {name!r} already: orcaflow project list")
            if once is not None:
                keep_answer(made.db, session.principal, once, made.object_id)
        made.project_id = made.object_id
    return find_project(session, project_id=made.object_id)


@operation
def edit_project(
    session: Session,
    project: str | int,
    *,
    name: str | None,
    description: str | None,
    review: bool | None = None,
    at: datetime,
    expected: str | None = None,
) -> ProjectView:
    """Give a project another name or description; what is None stays. It takes the role `admin`.

    With `review` its definitions change by proposals alone, which somebody else approves.
    """
    with _of_project(session, "project.edit", project, expected) as (made, found):
        wanted = found.name if name is None else name
        text = found.description if description is None else description
        _check(wanted, text)
        store.lock_projects(made.db)
        since = found.review_since
        if review is not None:
            # No import goes on that has seen the other switch.
            lock_imports(made.db)
            since = (since or at) if review else None
        if not store.edit_project(
            made.db, found.id, name=wanted, description=text, review_since=since, at=at
        ):
            raise NameTakenError(f"there is a project {wanted!r} already: orcaflow project list")
        told = [f"named {wanted}"] if wanted != found.name else []
        if (since is None) != (found.review_since is None):
            told.append("without review" if since is None else "with review")
        made.detail = ", ".join(told) or None
    return find_project(session, project_id=found.id)


@operation
def delete_project(
    session: Session, project: str | int, *, expected: str | None = None
) -> ProjectView:
    """Delete a project without definitions, with the roles in it. It takes the role `admin`.

    Tokens for it alone are good for nothing then. The first project stays: rows that name none go
    there.
    """
    with _of_project(session, "project.delete", project, expected) as (made, found):
        if found.id == DEFAULT_PROJECT:
            raise NotAllowedError(
                f"project {found.name!r} is the one of definitions that name none; it stays"
            )
        # No import makes a definition in it meanwhile.
        lock_imports(made.db)
        names = store.definitions_in(made.db, found.id, limit=_SHOWN)
        if names:
            raise NotAllowedError(
                f"project {found.name!r} has {counted(found.definitions, 'definition')}; delete"
                f" them first: orcaflow definition delete {' '.join(map(shlex.quote, names))}"
            )
        streams = store.active_supervisors_in(made.db, found.id)
        if streams:
            raise NotAllowedError(
                f"project {found.name!r} has {counted(len(streams), 'supervisor')}; terminate"
                f" them first: orcaflow stream terminate {shlex.quote(streams[0])}"
            )
        topologies = store.live_topologies_in(made.db, found.id)
        if topologies:
            raise NotAllowedError(
                f"project {found.name!r} has topologies; kill them first:"
                f" orcaflow topology kill {shlex.quote(topologies[0])}"
            )
        if not store.delete_project(made.db, found.id):
            raise NotAllowedError(f"project {found.name!r} has been deleted by somebody else")
    return found


def project_given(db: Connection, principal: Principal, action: Action, given: str | int) -> int:
    """The id of a project that the principal may do this to, given by name or id.

    `NotFoundError` proposes one that the principal sees.
    """
    number = project_named(db, principal, given).id if isinstance(given, str) else given
    seen(db, principal, action, Thing.PROJECT, number)
    return number


def authored_project(db: Connection, principal: Principal, given: str | int | None) -> int:
    """Return the id of the project for a new object, of which the principal has to be an author.

    None means the default project.
    """
    return project_given(db, principal, Action.AUTHOR, DEFAULT_PROJECT if given is None else given)


def project_named(db: Connection, principal: Principal, given: str) -> ChosenProject:
    """The only project of this name that the principal sees, else the one with this id.

    `AmbiguousNameError` lists the candidates. `NotFoundError` lists the projects that the principal
    sees.
    """
    ids = store.project_ids(db, principal, given) if "\0" not in given else []
    check_one(given, [Candidate(id=each, name=given) for each in ids])
    if ids:
        return ChosenProject(id=ids[0], name=given)
    number = id_in(given)
    found = None if number is None else store.project_with_id(db, principal, number)
    if found is None:
        raise missing_project(given, store.project_names(db, principal))
    return ChosenProject(id=found.id, name=found.name)


def _detail(db: Connection, session: Session, project_id: int) -> ProjectDetail:
    found, _ = store.projects(db, session.principal, project_id=project_id, limit=1)
    if not found:
        raise NotFoundError(f"there is no project {project_id}; see `orcaflow project list`")
    return ProjectDetail(view=found[0], members=tuple(store.members_of(db, project_id)))


@contextmanager
def _of_project(
    session: Session, action: str, project: str | int, expected: str | None
) -> Iterator[tuple[Change, ProjectView]]:
    """Open the transaction of a change of a project, which its admins make, and lock it."""
    with change(
        session,
        action,
        "project",
        object_id=project if isinstance(project, int) else None,
        object_name=project if isinstance(project, str) else None,
    ) as made:
        number = project_given(made.db, session.principal, Action.ADMIN, project)
        store.lock_project(made.db, number)
        found = _detail(made.db, session, number).view
        made.object_id, made.object_name, made.project_id = found.id, found.name, found.id
        check_row_tag(project_tag(found), expected, f"project {found.name!r}")
        yield made, found


def project_tag(view: ProjectView) -> str:
    """The tag to change a project by."""
    return row_tag(view.id, view.name, view.description, view.review_since is not None)


def _check(name: str, description: str | None) -> None:
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UsageError("name", f"is 1 to {_LONGEST_NAME} printable characters")
    check_description(description, longest=_LONGEST_DESCRIPTION)


def definition_in(
    session: Session,
    project: ProjectName | ProjectView,
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
            try:
                held = seen(db, session.principal, action, Thing.DEFINITION, number)
            except NotFoundError:
                raise missing(Thing.DEFINITION, given) from None
            row = definition_by_id(db, number)
            if row is not None and held.project_id == project.id:
                return row
    raise missing(Thing.DEFINITION, given)


def check_in(
    session: Session,
    project: ProjectName | ProjectView,
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
                raise missing(thing, number)
