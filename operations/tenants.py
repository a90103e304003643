"""Lists, makes and deletes tenants: the accounts that tasks run as in mode `tenant`."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from common.errors import NotAllowedError, NotFoundError
from common.model.grants import GrantKind
from common.model.rights import Principal
from common.store.connect import Connection
from common.store.people import tenants as store
from common.store.people import users_of
from common.store.people.definitions import lock_imports
from common.store.people.deletions import hold_commands
from common.store.people.tenants import TenantView
from common.store.tables import process_instance
from common.store.transaction import transaction
from common.tenant_accounts import entry_of, is_code
from operations.deleting import refuse
from operations.errors import UsageError
from operations.grants import grant_new
from operations.limits import check_description
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import administered
from operations.row_tags import check_row_tag, row_tag
from operations.session import Session, operation
from operations.tenant_checks import check_account

_QUEUE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MAX_DESCRIPTION_LENGTH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTenant:
    """A tenant that was made; `has_account` is about this computer."""

    view: TenantView
    has_account: bool


def tenant_tag(view: TenantView) -> str:
    """The tag to delete a tenant by."""
    return row_tag(view.id, view.code, view.queue_id, view.description)


@operation
def list_tenants(
    session: Session, *, code: str | None = None, after: int = 0, limit: int | None = None
) -> list[TenantView]:
    """List the tenants that the principal sees, by id above `after`, or the one with this code."""
    with session.engine.connect() as db:
        if code is not None:
            return [_found(db, code, seen_by=session.principal)]
        return store.tenants(db, seen_by=session.principal, after=after, limit=limit)


def tenant_with_id(session: Session, tenant_id: int) -> TenantView:
    """The tenant."""
    with session.engine.connect() as db:
        return _found(db, tenant_id, seen_by=session.principal)


@operation
def create_tenant(
    session: Session,
    code: str,
    *,
    queue: str | None,
    description: str | None,
    projects: Sequence[str | int] = (),
    once: Once | None = None,
) -> MadeTenant:
    """Create a tenant, and grant it to `projects`; `NotAllowedError` if the code is taken.

    A YARN queue without a row gets one. In mode `tenant`, an account that exists on this computer
    must be fit for tasks (`UsageError`).
    """
    if not is_code(code):
        raise UsageError(
            "code",
            f"{code!r:.100} can't be an account: a small letter or _, then at most 31 small"
            " letters, digits, _ and -",
        )
    check_account(session.config, code, "code")
    if queue is not None and not _QUEUE.fullmatch(queue):
        raise UsageError("queue", "a queue has letters, digits, _ . : and -, 64 at most")
    check_description(description, longest=_MAX_DESCRIPTION_LENGTH)
    with administered(session, "tenant.create", code, opened=transaction) as made:
        db = made.db
        if once is not None:
            answered = first_answer(db, session.principal, once)
            if answered is not None:
                made.object_id, made.detail = answered, "as before"
                view = _found(db, answered)
                return MadeTenant(view=view, has_account=has_account(view.code))
        store.lock_tenants(db)
        if store.tenants(db, code=code):
            raise NotAllowedError(f"there is a tenant {code!r} already: orcaflow tenant list")
        queue_id = 1 if queue is None else store.queue_named(db, queue)
        made.object_id = store.create_tenant(db, code, queue_id=queue_id, description=description)
        grant_new(db, session.principal, GrantKind.TENANT, made.object_id, projects)
        if once is not None:
            keep_answer(db, session.principal, once, made.object_id)
        view = _found(db, made.object_id)
    return MadeTenant(view=view, has_account=has_account(code))


@operation
def delete_tenant(session: Session, tenant: str | int, *, expected: str | None = None) -> int:
    """Delete a tenant that nothing needs; return the number of ended runs that named it.

    Those have their creators' tenant from then on. `NotAllowedError` names what needs it;
    `expected` is the tag that it has to have (`ChangedMeanwhileError`).
    """
    with administered(session, "tenant.delete", tenant, opened=transaction) as made:
        db = made.db
        lock_imports(db)
        store.lock_tenants(db)
        view = _found(db, tenant)
        made.object_id, made.object_name = view.id, view.code
        check_row_tag(tenant_tag(view), expected, f"tenant {view.code!r}")
        hold_commands(db)
        refuse(list(_faults(db, view)))
        if not store.delete_tenant(db, view.id):
            raise NotAllowedError(f"tenant {view.code!r} has been deleted by somebody else")
        return users_of.detach(db, process_instance.c.tenant_id, view.id)


def _faults(db: Connection, view: TenantView) -> Iterator[str]:
    users = users_of.users_of_tenant(db, view.id)
    for number in users.instances:
        yield (
            f"process instance {number} goes on as it; see its end, or stop it first:"
            f" orcaflow instance stop {number} --wait"
        )
    for name in users_of.definitions_of_tenant(db, view.id):
        yield (
            f"definition {name!r} runs as it; import that with another tenant, or delete it:"
            f" orcaflow definition delete {shlex.quote(name)}"
        )
    for name in users.people:
        yield (
            f"user {name!r} has it; give the user another one:"
            f" orcaflow user set {shlex.quote(name)} --tenant CODE"
        )


def has_account(code: str) -> bool:
    """Return True if this computer has an account of this name."""
    return entry_of(code) is not None


def _found(db: Connection, given: str | int, *, seen_by: Principal | None = None) -> TenantView:
    near: list[str] = []
    if isinstance(given, int):
        found = store.tenants(db, seen_by=seen_by, tenant_id=given)
    else:
        found = store.tenants(db, seen_by=seen_by, code=given) if "\0" not in given else []
    if found:
        return found[0]
    if isinstance(given, str):
        codes = [each.code for each in store.tenants(db, seen_by=seen_by)]
        near = difflib.get_close_matches(given, codes, n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow tenant list`"
    raise NotFoundError(f"there is no tenant {given!r:.200}{perhaps}")
