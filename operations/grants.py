"""Grants tenants, data sources, environments, pools and worker groups to projects.

Administrators grant, revoke and list. Every operation that takes such an object for a project uses
`Granted` to check it: an object without a grant is reported as missing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from common.errors import NotAllowedError, NotFoundError
from common.model.grants import GrantKind, cure, missing
from common.model.rights import Action, Principal
from common.store.people import audit
from common.store.people import grants as store
from common.store.people.grants import ObjectGrants, ProjectOfGrant, SharedObject
from common.store.people.rights import Thing, is_administrator
from operations.errors import NoGrantError, UsageError
from operations.rights import change, check_administrator, seen
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.store.connect import Connection


def kind_named(word: str) -> GrantKind:
    """Return the kind by its word; `UsageError` lists the kinds."""
    from common.model.grants import KINDS

    found = KINDS.get(word)
    if found is None:
        raise UsageError("kind", f"{word!r:.60} is not a kind; known are {', '.join(KINDS)}")
    return found


@operation
def grant(session: Session, kind: GrantKind, given: str | int, project: str | int) -> ObjectGrants:
    """Grant an object to a project; an existing grant is kept."""
    return _changed(session, kind, given, project, gives=True)


@operation
def revoke(session: Session, kind: GrantKind, given: str | int, project: str | int) -> ObjectGrants:
    """Revoke a grant; `NotAllowedError` if it does not exist.

    Attempts that have not started then fail; running attempts continue.
    """
    return _changed(session, kind, given, project, gives=False)


@operation
def list_grants(
    session: Session,
    kind: GrantKind | None = None,
    given: str | int | None = None,
    *,
    after: int | None = None,
    limit: int | None = None,
) -> list[ObjectGrants]:
    """List the objects of one kind or of all kinds, with the projects that may use them.

    With `after`, the objects of a kind with larger ids are listed by id.
    """
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        if kind is None and given is not None:
            raise UsageError(
                "kind", "is needed with a name: objects of two kinds may have the same"
            )
        if kind is None:
            return store.object_grants(db, tuple(GrantKind))
        if given is None:
            return store.object_grants(db, (kind,), after=after, limit=limit)
        return store.object_grants(db, (kind,), number=_found(db, kind, given).number)


def grant_new(
    db: Connection,
    principal: Principal,
    kind: GrantKind,
    row_id: int,
    projects: Sequence[str | int],
) -> None:
    """Grant an object that this transaction created to projects, with a line of the audit for each.

    The caller checks the right to create the object. This function checks that the principal is an
    author in each project.
    """
    for given in dict.fromkeys(projects):
        project = _project(db, principal, given)
        seen(db, principal, Action.AUTHOR, Thing.PROJECT, project.id)
        shared = _found(db, kind, row_id)
        store.add_grant(db, kind, shared.number, project_id=project.id, user_id=principal.user_id)
        audit.add_line(
            db,
            principal,
            action=f"{kind.word}.grant",
            object_type=kind.word,
            object_id=shared.id,
            object_name=shared.name,
            project_id=project.id,
            refused=False,
            detail=f"to project {project.name}",
        )


class Granted:
    """The objects that a project may use, and the error texts about other objects."""

    def __init__(self, db: Connection, project_id: int) -> None:
        self._db = db
        self._project_id = project_id
        self.reload()
        self.project = store.project_name(db, project_id)

    def reload(self) -> None:
        """Read the grants again after this transaction has added one."""
        self._numbers = store.granted_numbers(self._db, self._project_id)
        self._names: dict[GrantKind, Mapping[str, tuple[int, ...]]] = {}

    def has(self, kind: GrantKind, number: int) -> bool:
        """Return True if the project may use the object with this number."""
        return number in self._numbers[kind]

    def numbers(self, kind: GrantKind) -> frozenset[int]:
        """Return the numbers of all objects of the kind that the project may use."""
        return self._numbers[kind]

    def by_name(self, kind: GrantKind) -> Mapping[str, tuple[int, ...]]:
        """Return the numbers of the objects of the kind, by their names."""
        if kind not in self._names:
            self._names[kind] = store.granted_names(self._db, kind, self._project_id)
        return self._names[kind]

    def numbers_of(self, kind: GrantKind, name: str) -> tuple[int, ...]:
        """Return the numbers of the objects of this name that the project may use."""
        return self.by_name(kind).get(name, ()) if self._numbers[kind] else ()

    def number_of(self, kind: GrantKind, given: str | int) -> int:
        """Return the number of an object, given its name or number.

        `NotFoundError` if the project may not use it, or if it is missing. If several objects have
        the name, the smallest number is returned.
        """
        if isinstance(given, int):
            return self.check(kind, given, given)
        return self.check(kind, next(iter(self.numbers_of(kind, given)), 0), given)

    def lends(self, owner: int) -> bool:
        """Return True if the project may use the resources of a user."""
        return store.lends(self._db, owner, self._project_id)

    def problem(self, kind: GrantKind, given: str | int) -> str:
        """Return the error text for an object that is missing or that the project may not use."""
        return missing(kind, given, project=self.project)

    def cure(self, kind: GrantKind, given: str | int) -> str:
        """Return the remedy: the command that grants the object, and a similar name."""
        near = difflib.get_close_matches(str(given), self.by_name(kind), n=1)
        perhaps = f"did you mean {near[0]!r}? Or " if near else ""
        return perhaps + cure(kind, given, project=self.project)

    def check(self, kind: GrantKind, number: int, given: str | int) -> int:
        """Return the number; `NoGrantError` if the project may not use the object.

        `given` is the caller's name or number for the object; the error repeats only that.
        """
        if not self.has(kind, number):
            raise NoGrantError(kind, f"{self.problem(kind, given)}: {self.cure(kind, given)}")
        return number


def sees_all(db: Connection, principal: Principal) -> bool:
    """Return True if the principal sees all shared objects, regardless of grants."""
    return principal.owns_database or is_administrator(db, principal)


def _changed(
    session: Session, kind: GrantKind, given: str | int, project: str | int, *, gives: bool
) -> ObjectGrants:
    action = f"{kind.word}.{'grant' if gives else 'revoke'}"
    with change(
        session,
        action,
        kind.word,
        object_id=given if isinstance(given, int) else None,
        object_name=given if isinstance(given, str) else None,
    ) as made:
        db, principal = made.db, session.principal
        check_administrator(db, principal)
        shared = _found(db, kind, given)
        made.object_id, made.object_name = shared.id, shared.name
        to = _project(db, principal, project)
        made.project_id = to.id
        made.detail = f"{'to' if gives else 'from'} project {to.name}"
        if gives:
            is_new = store.add_grant(
                db, kind, shared.number, project_id=to.id, user_id=principal.user_id
            )
            if not is_new:
                made.detail += ", as before"
        elif not store.remove_grant(db, kind, shared.number, project_id=to.id):
            raise NotAllowedError(
                f"{kind.title} {shared.name!r:.200} is not granted to project {to.name!r}"
            )
        (found,) = store.object_grants(db, (kind,), number=shared.number)
        return found


def _found(db: Connection, kind: GrantKind, given: str | int) -> SharedObject:
    found = store.objects_given(db, kind, given)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(each.id) for each in found)
        raise NotAllowedError(
            f"{kind.title} {given!r:.200} is ambiguous: give one of the ids {ids}"
        )
    near = difflib.get_close_matches(str(given), store.object_names(db, kind), n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else f"; see `orcaflow {kind.word} list`"
    raise NotFoundError(f"there is no {kind.title} {given!r:.200}{perhaps}")


def _project(db: Connection, principal: Principal, given: str | int) -> ProjectOfGrant:
    found = store.projects_given(db, principal, given)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(each.id) for each in found)
        raise NotAllowedError(f"project {given!r:.200} is ambiguous: give one of the ids {ids}")
    raise NotFoundError(f"there is no project {given!r:.200}; see `orcaflow project list`")
