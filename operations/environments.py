"""Lists environments for members of projects that may use them; administrators change them.

The values of variables whose names sound secret are stored encrypted, as passwords of data sources
are, and are never given out; a config that is sent with their mask keeps them.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.clock import SystemClock
from common.datasource_keys import DatasourceKeyError
from common.environment_config import (
    EnvironmentConfigError,
    assignments,
    changed_secrets,
    masked,
    unmasked,
)
from common.errors import NotAllowedError, NotFoundError
from common.masking import is_secret
from common.model.codes import code_in
from common.model.grants import GrantKind
from common.model.rights import Principal
from common.store.connect import Connection
from common.store.people import environments as store
from common.store.people.definitions import definitions, lock_imports
from common.store.people.deletions import hold_commands
from common.store.people.environments import EnvironmentView
from common.store.people.rights import is_administrator
from common.store.people.worker_groups import worker_group_names
from operations.definition_document import name_of, nodes_of, object_of
from operations.deleting import refuse
from operations.environment_references import ENVIRONMENT_CODE
from operations.errors import NameTakenError, UsageError
from operations.grants import grant_new
from operations.limits import check_description, check_name
from operations.references import DEFAULT_WORKER_GROUP
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import administered
from operations.row_tags import check_row_tag, row_tag
from operations.secret_keys import secret_keys
from operations.session import Session, operation

_LONGEST_NAME = 100
_LONGEST_DESCRIPTION = 255
_SMALLEST_CODE = 2**31
_LARGEST_CODE = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An environment as it may be shown; `config` is None for whoever is no administrator."""

    view: EnvironmentView
    config: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentChange:
    """The settings that are given; None leaves a setting as it is."""

    name: str | None = None
    config: str | None = field(default=None, repr=False)
    description: str | None = None
    worker_groups: tuple[str, ...] | None = None


def environment_tag(view: EnvironmentView) -> str:
    """The tag to change an environment by; it tells nothing of the config."""
    return row_tag(view.id, view.name, view.description, view.worker_groups, view.update_time)


@operation
def list_environments(
    session: Session, *, name: str | None = None, after: int = 0, limit: int | None = None
) -> list[Environment]:
    """List the environments that the principal sees, by id above `after`, or the named one."""
    with session.engine.connect() as db:
        views = (
            store.environments(db, seen_by=session.principal, after=after, limit=limit)
            if name is None
            else [_found(db, name, seen_by=session.principal)]
        )
        return _shown(db, session, views)


def environment_slice(
    session: Session, *, search: str | None = None, offset: int = 0, limit: int
) -> tuple[list[Environment], int]:
    """Return some of the environments whose names contain a text, and the number of all of them."""
    if search is not None and "\0" in search:
        return [], 0
    with session.engine.connect() as db:
        who = session.principal
        views = store.environments(db, seen_by=who, search=search, offset=offset, limit=limit)
        count = store.environment_count(db, seen_by=who, search=search)
        return _shown(db, session, views), count


@operation
def environment_given(session: Session, environment: str | int) -> Environment:
    """The environment of this name or id; `NotFoundError` proposes one that is spelt like it."""
    with session.engine.connect() as db:
        (found,) = _shown(db, session, [_found(db, environment, seen_by=session.principal)])
    return found


def environment_with_code(session: Session, code: int) -> Environment:
    """The environment with this code, by which DolphinScheduler's clients name it."""
    with session.engine.connect() as db:
        views = store.environments(db, seen_by=session.principal, code=code)
        if not views:
            raise NotFoundError(f"there is no environment with the code {code}")
        (found,) = _shown(db, session, views)
    return found


@operation
def create_environment(
    session: Session,
    name: str,
    *,
    config: str,
    description: str | None = None,
    worker_groups: Sequence[str] = (),
    code: int | None = None,
    projects: Sequence[str | int] = (),
    once: Once | None = None,
) -> Environment:
    """Create an environment, and grant it to `projects`; `NameTakenError` if the name is taken.

    `code` is the one that it has in another system, so that definitions from there find it.
    """
    _check_texts(name, description)
    if code is not None and not _SMALLEST_CODE <= code <= _LARGEST_CODE:
        raise UsageError(
            "code", f"is from {_SMALLEST_CODE} to {_LARGEST_CODE}; without one it gets its id"
        )
    with administered(session, "environment.create", name) as made:
        db = made.db
        if once is not None:
            answered = first_answer(db, session.principal, once)
            if answered is not None:
                made.object_id, made.detail = answered, "as before"
                (found,) = _shown(db, session, [_found(db, answered)])
                return found
        store.lock_environments(db)
        _check_free(db, name, code)
        made.object_id = store.create_environment(
            db,
            name=name,
            code=code,
            config=_stored(session, db, config, former=""),
            description=description or None,
            worker_groups=_groups(db, worker_groups),
            user_id=session.principal.user_id,
            at=SystemClock().now(),
        )
        made.detail = _variable_names(config)
        grant_new(db, session.principal, GrantKind.ENVIRONMENT, made.object_id, projects)
        if once is not None:
            keep_answer(db, session.principal, once, made.object_id)
        (found,) = _shown(db, session, [_found(db, made.object_id)])
        return found


@operation
def change_environment(
    session: Session,
    environment: str | int,
    change: EnvironmentChange,
    *,
    expected: str | None = None,
) -> Environment:
    """Change an environment; attempts that begin from now on have its new variables.

    A secret that is sent as its mask stays. `expected` is the tag that it has to have
    (`ChangedMeanwhileError`).
    """
    if change == EnvironmentChange():
        raise UsageError(None, "say what is to be changed: name, config, description or groups")
    with administered(session, "environment.edit", environment) as made:
        db = made.db
        store.lock_environments(db)
        view = _found(db, environment)
        made.object_id, made.object_name = view.id, view.name
        check_row_tag(environment_tag(view), expected, f"environment {view.name!r}")
        name = view.name if change.name is None else change.name
        description = view.description if change.description is None else change.description
        _check_texts(name, description)
        if name != view.name:
            _check_free(db, name, None)
        config = view.config
        if change.config is not None:
            config = _stored(session, db, change.config, former=view.config)
            made.detail = _variable_names(change.config)
        is_there = store.update_environment(
            db,
            view,
            name=name,
            config=config,
            description=description or None,
            worker_groups=view.worker_groups
            if change.worker_groups is None
            else _groups(db, change.worker_groups),
            user_id=session.principal.user_id,
            at=SystemClock().now(),
        )
        if not is_there:
            raise NotAllowedError(f"environment {view.name!r} has been deleted by somebody else")
        (found,) = _shown(db, session, [_found(db, view.id)])
        return found


@operation
def delete_environment(
    session: Session, environment: str | int, *, expected: str | None = None
) -> EnvironmentView:
    """Delete an environment that nothing needs; `NotAllowedError` names what does, and the cure."""
    with administered(session, "environment.delete", environment) as made:
        db = made.db
        lock_imports(db)
        store.lock_environments(db)
        view = _found(db, environment)
        made.object_id, made.object_name = view.id, view.name
        check_row_tag(environment_tag(view), expected, f"environment {view.name!r}")
        hold_commands(db)
        refuse(list(_faults(db, view)))
        if not store.delete_environment(db, view.id):
            raise NotAllowedError(f"environment {view.name!r} has been deleted by somebody else")
        return view


def encrypt_environments(session: Session, db: Connection) -> int:
    """Encrypt the secrets of all rows by the first key; return how many rows had to be changed."""
    store.lock_environments(db)
    changed = 0
    for each in store.environments(db):
        try:
            config = changed_secrets(each.config, secret_keys(session, db).sealed)
        except EnvironmentConfigError:
            continue  # Typed by hand, and no task can use it.
        except DatasourceKeyError as error:
            raise DatasourceKeyError(f"environment {each.name!r:.100}: {error}") from None
        if config == each.config:
            continue
        at = SystemClock().now()
        if not store.replace_config(db, each.id, before=each.config, after=config, at=at):
            raise NotAllowedError(
                f"environment {each.name!r:.100} was changed by somebody else just now; try again"
            )
        changed += 1
    return changed


def code_of_environment(db: Connection, name: str) -> int:
    """The code of the environment of this name; `NotFoundError` proposes another one."""
    return _found(db, name).code


def _check_texts(name: str, description: str | None) -> None:
    check_name(name, longest=_LONGEST_NAME)
    if name.isdecimal() or name == "none":
        raise UsageError("name", f"{name!r} is no name for an environment: a number is a code")
    check_description(description, longest=_LONGEST_DESCRIPTION)


def _check_free(db: Connection, name: str, code: int | None) -> None:
    if store.environments(db, name=name):
        raise NameTakenError(
            f"there is an environment {name!r} already:"
            f" orcaflow environment show {shlex.quote(name)}"
        )
    if code is not None:
        for each in store.environments(db, code=code):
            raise NameTakenError(f"environment {each.name!r} has the code {code} already")


def _stored(session: Session, db: Connection, config: str, *, former: str) -> str:
    """Return the config with its secrets encrypted; `UsageError` if it can't be read."""
    try:
        text = unmasked(config.replace("\r\n", "\n"), former)
        if any(is_secret(each.name) and each.start < each.end for each in assignments(text)):
            text = changed_secrets(text, secret_keys(session, db).sealed)
        return text
    except EnvironmentConfigError as error:
        raise UsageError("config", str(error)) from error


def _variable_names(config: str) -> str:
    """Return what the audit tells of a config: the names of its variables."""
    names = ", ".join(each.name for each in assignments(config.replace("\r\n", "\n")))
    return f"config: {names}"[:1000]


def _groups(db: Connection, names: Sequence[str]) -> tuple[str, ...]:
    known = {DEFAULT_WORKER_GROUP, *worker_group_names(db)}
    for each in names:
        if each not in known:
            raise UsageError("worker_groups", f"there is no worker group {each!r:.200}")
    return tuple(dict.fromkeys(names))


def _shown(db: Connection, session: Session, views: Sequence[EnvironmentView]) -> list[Environment]:
    """Return environments without what a caller must not see."""
    sees = is_administrator(db, session.principal)
    if not sees and any(each.worker_groups for each in views):
        known = {DEFAULT_WORKER_GROUP, *worker_group_names(db, seen_by=session.principal)}
        views = [
            replace(each, worker_groups=tuple(one for one in each.worker_groups if one in known))
            for each in views
        ]
    return [
        Environment(
            view=replace(each, config=""),
            config=masked(each.config) if sees else None,
        )
        for each in views
    ]


def _faults(db: Connection, view: EnvironmentView) -> Iterator[str]:
    for each in store.commands_with(db, view.code):
        yield (
            f"command {each} names it and waits; see it carried out first:"
            f" orcaflow instance why --command {each}"
        )
    for each in store.live_instances_with(db, view.code):
        yield (
            f"process instance {each} goes on with it; see its end, or stop it first:"
            f" orcaflow instance stop {each} --wait"
        )
    for each in store.schedules_with(db, view.code):
        yield (
            f"schedule {each} names it; change that while it is OFFLINE:"
            f" orcaflow schedule edit {each} --environment none"
        )
    for each in store.moving_complements_with(db, view.code):
        yield f"complement {each} goes on with it; cancel it: orcaflow complement cancel {each}"
    for row in definitions(db):
        for node in nodes_of(object_of(row.process_definition_json)):
            if _code_of(node) == view.code:
                yield (
                    f"definition {row.name!r} names it in task {name_of(node)!r}; import it"
                    " without that, or delete it: orcaflow definition delete"
                    f" {shlex.quote(row.name)}"
                )
                break


def _code_of(node: Mapping[str, object]) -> int | None:
    return code_in(node.get(ENVIRONMENT_CODE))


def _found(
    db: Connection, given: str | int, *, seen_by: Principal | None = None
) -> EnvironmentView:
    if isinstance(given, int):
        found = store.environments(db, seen_by=seen_by, environment_id=given)
    else:
        # PostgreSQL takes no NUL, and so has no row with one.
        found = store.environments(db, seen_by=seen_by, name=given) if "\0" not in given else []
    if found:
        return found[0]
    near: list[str] = []
    if isinstance(given, str):
        names = store.environment_names(db, seen_by=seen_by).values()
        near = difflib.get_close_matches(given, names, n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow environment list`"
    raise NotFoundError(f"there is no environment {given!r:.200}{perhaps}")
