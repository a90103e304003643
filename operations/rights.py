"""The door to every object of a project: nobody gets one by its id alone.

`seen` asks the grants; a foreign object and a missing one are the same `NotFoundError`. `change` is
the one transaction of an order, with its line of the audit; a refused order leaves a line too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import EVERYTHING, Action, Principal, role_of
from common.store.people import audit
from common.store.people.rights import Held, Thing, held, is_administrator, may_anywhere
from operations.errors import ForbiddenError, UsageError

if TYPE_CHECKING:
    from common.store.connect import Connection, Engine
    from operations.session import Session

_REFUSALS: Final = (NotAllowedError, NotFoundError, UsageError)
_LISTED = {
    Thing.PROJECT: "there is no project {}; see `orcaflow project list`",
    Thing.DEFINITION: "there is no process definition {}; see `orcaflow definition list`",
    Thing.INSTANCE: "there is no process instance {}; see `orcaflow instance list`",
    Thing.TASK: "there is no task instance {}; see `orcaflow task list`",
    Thing.SCHEDULE: "there is no schedule {}; see `orcaflow schedule list`",
    Thing.COMPLEMENT: "there is no complement {}; see `orcaflow complement list`",
    Thing.COMMAND: "there is no command {}; see `orcaflow command list`",
    Thing.DATASET: (
        "there is no dataset {!r:.80}; the submission of its supervisor or its first publication"
        " creates it; see `orcaflow dataset list`"
    ),
}


def seen(
    db: Connection,
    principal: Principal,
    action: Action,
    thing: Thing,
    object_id: int,
    *,
    given: str | None = None,
) -> Held:
    """Return the rights in an object, which the principal may see and do this to.

    `given` is the name in the request; None if the request has the number.
    `NotFoundError` if it is missing or foreign, `ForbiddenError` if it is only seen. The owner of
    the database has all rights, and finds out by the next statement if it is missing.
    """
    if principal.sees_all:
        return Held(actions=action, project_id=None)
    found = held(db, principal, thing, object_id)
    if found is None or not found.actions & Action.VIEW:
        raise missing(thing, given or object_id)
    if not found.actions & action:
        raise ForbiddenError(
            f"{thing.value} {given or object_id} is in a project where you are"
            f" {role_of(found.actions) or 'nothing'}; this takes the right to"
            f" {(action.name or '?').lower()} there: ask one of its admins"
        )
    return found


def missing(thing: Thing, given: int | str | None) -> NotFoundError:
    """Return the error for an object that is missing or foreign; both get the same text.

    `given` is the number or name from the request. Never pass one that only the tables hold.
    """
    return NotFoundError(_LISTED[thing].format(given))


def may(session: Session, action: Action, thing: Thing, object_id: int) -> bool:
    """Return True if the session's principal may do this to an object, which it sees."""
    try:
        with session.engine.connect() as db:
            seen(db, session.principal, action, thing, object_id)
    except (NotFoundError, ForbiddenError):
        return False
    return True


def check_administrator(db: Connection, principal: Principal) -> None:
    """Refuse whoever is no administrator, or asks by a token with limits."""
    if not is_administrator(db, principal):
        raise ForbiddenError("this is for administrators, by a token without limits")


def limits_nothing(principal: Principal) -> bool:
    """Return True for whoever asks at the database, by a session, or by a token without limits."""
    return principal.scope == EVERYTHING and principal.projects is None


def may_administer(session: Session) -> bool:
    """Return True for administrators who ask without limits."""
    with session.engine.connect() as db:
        return is_administrator(db, session.principal)


def check_author(db: Connection, principal: Principal) -> None:
    """Refuse whoever is author of no project."""
    if not may_anywhere(db, principal, Action.AUTHOR):
        raise ForbiddenError("this is for authors of a project: ask one of its admins")


def may_author(session: Session) -> bool:
    """Return True for authors of any project."""
    with session.engine.connect() as db:
        return may_anywhere(db, session.principal, Action.AUTHOR)


@dataclass(slots=True, kw_only=True)
class Change:
    """An order that is being carried out, as its line of the audit will tell it.

    The order fills in what it learns on the way: the project, the object's id, a detail. Without
    `is_told` it leaves no line.
    """

    db: Connection
    object_id: int | None = None
    object_name: str | None = None
    project_id: int | None = None
    detail: str | None = None
    is_told: bool = True


@contextmanager
def change(
    session: Session,
    action: str,
    thing: str,
    *,
    object_id: int | None = None,
    object_name: str | None = None,
    opened: Callable[[Engine], AbstractContextManager[Connection]] | None = None,
) -> Iterator[Change]:
    """Open the transaction of an order; its audit line is committed with it.

    What refuses the order rolls it back, and a line says so in a transaction of its own. `opened`
    opens the transaction in another way than the engine does.
    """
    principal = session.principal
    made: Change | None = None
    try:
        with session.engine.begin() if opened is None else opened(session.engine) as db:
            made = Change(db=db, object_id=object_id, object_name=object_name)
            yield made
            if made.is_told:
                audit.add_line(
                    db,
                    principal,
                    action=action,
                    object_type=thing,
                    object_id=made.object_id,
                    object_name=made.object_name,
                    project_id=made.project_id,
                    refused=False,
                    detail=made.detail,
                )
    except _REFUSALS as error:
        _note_refusal(
            session,
            error,
            action=action,
            thing=thing,
            object_id=object_id,
            object_name=object_name,
            project_id=None if made is None else made.project_id,
        )
        raise


@contextmanager
def refusing(session: Session, action: str, thing: str, object_id: int) -> Iterator[Connection]:
    """Look at what an order needs to know before its transaction; a refusal leaves its line."""
    try:
        with session.engine.connect() as db:
            yield db
    except _REFUSALS as error:
        _note_refusal(
            session,
            error,
            action=action,
            thing=thing,
            object_id=object_id,
            object_name=None,
            project_id=None,
        )
        raise


def _note_refusal(
    session: Session,
    error: Exception,
    *,
    action: str,
    thing: str,
    object_id: int | None,
    object_name: str | None,
    project_id: int | None,
) -> None:
    with session.engine.begin() as db:
        audit.add_line(
            db,
            session.principal,
            action=action,
            object_type=thing,
            object_id=object_id,
            object_name=object_name,
            project_id=project_id,
            refused=True,
            detail=str(error),
        )


@contextmanager
def administered(
    session: Session,
    action: str,
    name: str | int | None,
    *,
    opened: Callable[[Engine], AbstractContextManager[Connection]] | None = None,
) -> Iterator[Change]:
    """Open the transaction of an order of administrators about what belongs to no project.

    The kind of the object is the word before the dot of the action; it is given by its name or id.
    """
    with change(
        session,
        action,
        action.partition(".")[0],
        object_id=name if isinstance(name, int) else None,
        object_name=name if isinstance(name, str) else None,
        opened=opened,
    ) as made:
        check_administrator(made.db, session.principal)
        yield made


@contextmanager
def noted(
    session: Session,
    action: str,
    name: str | None,
    *,
    object_id: int | None = None,
    opened: Callable[[Engine], AbstractContextManager[Connection]] | None = None,
) -> Iterator[Connection]:
    """Open the transaction of an order of the database's owner, which its audit line is a part of.

    The kind of the object is the word before the dot of the action.
    """
    kind = action.partition(".")[0]
    with change(
        session, action, kind, object_id=object_id, object_name=name, opened=opened
    ) as made:
        # No grant is asked here: a front end for others calls what asks for one.
        if not session.principal.owns_database:
            raise ForbiddenError("only the command line does this, at the database itself")
        yield made.db
