"""Lists, makes and deletes tenants: the accounts that tasks run as in mode `tenant`."""

from __future__ import annotations

import difflib
import pwd
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from common.errors import NotAllowedError, NotFoundError
from common.store.connect import Connection
from common.store.people import tenants as store
from common.store.people import users_of
from common.store.people.definitions import lock_imports
from common.store.people.deletions import hold_commands
from common.store.people.tenants import TenantView
from common.store.tables import process_instance
from common.store.transaction import transaction
from operations.deleting import refuse
from operations.errors import UsageError
from operations.rights import noted
from operations.session import Session

# As account names are on Linux; they reach no shell, but other programs may hand them to one (T86).
_CODE: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_QUEUE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MAX_DESCRIPTION_LENGTH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTenant:
    """A tenant that was made; `has_account` is about this computer."""

    view: TenantView
    has_account: bool


def list_tenants(session: Session) -> list[TenantView]:
    """All tenants, by id."""
    with session.engine.connect() as db:
        return store.tenants(db)


def create_tenant(
    session: Session, code: str, *, queue: str | None, description: str | None
) -> MadeTenant:
    """Make a tenant; `NotAllowedError` if there is one. A YARN queue without a row gets one."""
    if not _CODE.fullmatch(code):
        raise UsageError(
            "code",
            f"{code!r:.100} can't be an account: a small letter or _, then at most 31 small"
            " letters, digits, _ and -",
        )
    if queue is not None and not _QUEUE.fullmatch(queue):
        raise UsageError("queue", "a queue has letters, digits, _ . : and -, 64 at most")
    if description is not None and len(description) > _MAX_DESCRIPTION_LENGTH:
        raise UsageError("description", f"has more than {_MAX_DESCRIPTION_LENGTH} characters")
    with noted(session, "tenant.create", code, opened=transaction) as db:
        store.lock_tenants(db)
        if store.tenants(db, code=code):
            raise NotAllowedError(f"there is a tenant {code!r} already: orcaflow tenant list")
        queue_id = 1 if queue is None else store.queue_named(db, queue)
        store.create_tenant(db, code, queue_id=queue_id, description=description)
        (made,) = store.tenants(db, code=code)
    return MadeTenant(view=made, has_account=_has_account(code))


def delete_tenant(session: Session, code: str) -> int:
    """Delete a tenant that nothing needs; return the number of ended runs that named it.

    Those have their creators' tenant from then on. `NotAllowedError` names what needs it.
    """
    with noted(session, "tenant.delete", code, opened=transaction) as db:
        lock_imports(db)
        store.lock_tenants(db)
        view = _found(db, code)
        hold_commands(db)
        refuse(list(_faults(db, view)))
        if not store.delete_tenant(db, view.id):
            raise NotAllowedError(f"tenant {code!r} has been deleted by somebody else")
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
            f"user {name!r} has it; give the user another one in t_ds_user.tenant_id (there is no"
            " command for that)"
        )


def _has_account(code: str) -> bool:
    try:
        pwd.getpwnam(code)
    except KeyError:
        return False
    return True


def _found(db: Connection, code: str) -> TenantView:
    found = store.tenants(db, code=code) if "\0" not in code else []
    if found:
        return found[0]
    near = difflib.get_close_matches(code, [each.code for each in store.tenants(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow tenant list`"
    raise NotFoundError(f"there is no tenant {code!r:.200}{perhaps}")
