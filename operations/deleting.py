"""Deletes process instances and definitions, all of those that are named or none.

Each refusal names its cause and the command that removes it. What is deleted is decided under locks
(`common.store.people.deletions`), so that a run which begins at the same time is seen, or finds the
row gone. Logs and directories of this computer go last: nothing refers to them then.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import NotAllowedError
from common.model.reach import FOREIGN
from common.model.rights import Action, Principal
from common.model.states import ProcessState, ReleaseState
from common.store.connect import Connection
from common.store.people import deletions as store
from common.store.people.definitions import DefinitionRow, definitions, lock_imports
from common.store.people.deletions import DeletedInstances, LockedInstance, WaitingCommand
from common.store.people.rights import Thing
from common.store.people.schedule_requests import delete_schedules
from common.store.people.shares import seen_among, shared_with
from common.store.transaction import transaction
from operations.definition_document import (
    DefinitionReference,
    definition_references,
    object_of,
)
from operations.definition_tags import check_tag
from operations.documents.instances import name_of
from operations.lookup import definition_given, no_instance
from operations.rights import change, seen
from operations.session import Session, operation

_BEING_ENDED = frozenset({ProcessState.READY_STOP, ProcessState.READY_PAUSE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Instances that are gone, with their sub processes.

    `folders`: the directories and logs that went with them; `left`: those of this computer that
    could not be removed, and why; `hosts`: the other workers' addresses, where logs stay.
    """

    ids: tuple[int, ...]
    attempts: int
    folders: int
    left: tuple[str, ...]
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedDefinitions:
    """Definitions that are gone, their schedules, and their runs: deleted too, or how many stay."""

    rows: tuple[DefinitionRow, ...]
    schedules: tuple[int, ...]
    instances: Deleted | None
    kept_instances: int


@operation
def delete_instances(session: Session, ids: Sequence[int], *, force: bool) -> Deleted:
    """Delete instances that have ended, with their sub processes; `NotAllowedError` names the cure.

    `force` deletes attempts of which processes may still run, too.
    """
    listed = ", ".join(map(str, ids))
    with change(
        session, "instance.delete", "instance", object_name=listed, opened=transaction
    ) as asked:
        db = asked.db
        for number in ids:
            asked.project_id = seen(
                db, session.principal, Action.ADMIN, Thing.INSTANCE, number
            ).project_id
        gone = _delete_instances(db, sorted(set(ids)), force=force)
    return _deleted(session, gone)


@operation
def delete_definitions(
    session: Session,
    definitions: Sequence[str | int],
    *,
    with_instances: bool,
    force: bool,
    expected: str | None = None,
) -> DeletedDefinitions:
    """Delete definitions that are OFFLINE and that nothing needs, with their schedules.

    Runs that have ended stay as history unless `with_instances` deletes them too. `expected` is the
    tag that a single one has to have (`ChangedMeanwhileError`).
    """
    listed = ", ".join(map(str, definitions))
    with change(
        session, "definition.delete", "definition", object_name=listed, opened=transaction
    ) as asked:
        db = asked.db
        # Imports make references; none is made while these are looked for.
        lock_imports(db)
        found = [
            definition_given(db, session.principal, Action.ADMIN, each) for each in definitions
        ]
        if len(found) == 1:
            asked.project_id = found[0].project_id
            asked.object_id, asked.object_name = found[0].id, found[0].name
        for each in found if expected is not None else ():
            check_tag(db, each, expected or "")
        rows = {row.id: row for row in found}
        runs = store.instances_of(db, rows)
        gone = None
        if with_instances:
            gone = _delete_instances(db, runs, force=force)
        states = store.lock_definitions_to_delete(db, rows)
        schedules = store.schedules_to_delete(db, rows)
        store.hold_commands(db)
        refuse(
            [
                *_release_faults(rows, states, schedules),
                *_reference_faults(db, session.principal, rows),
                *_live_faults(db, rows),
            ]
        )
        delete_schedules(db, schedules)
        done = store.delete_definitions(db, rows)
        if done != frozenset(rows):
            # Somebody else has deleted one between the first look and the lock.
            missing = ", ".join(repr(rows[each].name) for each in sorted(frozenset(rows) - done))
            raise NotAllowedError(f"{missing} changed meanwhile; look again, and repeat it")
    return DeletedDefinitions(
        rows=tuple(rows.values()),
        schedules=tuple(schedules),
        instances=None if gone is None else _deleted(session, gone),
        kept_instances=0 if with_instances else len(runs),
    )


def refuse(reasons: Sequence[str]) -> None:
    """Raise `NotAllowedError` with all reasons, a line each; nothing if there is none."""
    if not reasons:
        return
    shown = [*reasons[:10], *([f"and {len(reasons) - 10} more"] if len(reasons) > 10 else [])]
    raise NotAllowedError(shown[0] if len(shown) == 1 else "\n  ".join(("refused:", *shown)))


def _delete_instances(db: Connection, ids: Sequence[int], *, force: bool) -> DeletedInstances:
    locked = store.lock_trees(db, ids)
    found = {each.id: each for each in locked}
    for number in ids:
        if number not in found:
            raise no_instance(number)
    refuse([*_state_faults(locked, ids), *_instance_faults(db, found, force=force)])
    gone = store.delete_instances(db, found)
    if frozenset(gone.ids) != frozenset(found):
        raise NotAllowedError("an instance changed meanwhile; look again, and repeat it")
    return gone


def _state_faults(locked: Sequence[LockedInstance], ids: Collection[int]) -> Iterator[str]:
    known = {each.id for each in locked}
    for each in locked:
        state = name_of(ProcessState, each.state)
        if each.id in ids and each.is_sub_process and each.root_id not in known & set(ids):
            yield (
                f"process instance {each.id} is a sub process; delete the run that it belongs to:"
                f" orcaflow instance delete {each.root_id}"
            )
        elif each.state in _BEING_ENDED:
            yield (
                f"process instance {each.id} is {state}; see it end first:"
                f" orcaflow instance watch {each.id}"
            )
        elif not _has_ended(each.state):
            yield (
                f"process instance {each.id} is {state}; stop it first:"
                f" orcaflow instance stop {each.id} --wait"
            )


def _has_ended(state: int) -> bool:
    return any(state == each and each.is_terminal for each in ProcessState)


def _instance_faults(db: Connection, ids: Collection[int], *, force: bool) -> Iterator[str]:
    yield from _command_faults(store.commands_for_instances(db, ids))
    for complement_id, instance_id in store.complements_of_instances(db, ids).items():
        yield (
            f"complement {complement_id} goes on, and process instance {instance_id} is one of its"
            f" dates; cancel it first: orcaflow complement cancel {complement_id}"
        )
    for attempt in () if force else store.lost_attempts(db, ids):
        yield (
            f"processes of task instance {attempt.id} ({attempt.name!r}) may still run on"
            f" {attempt.host}; see them end: orcaflow task list --instance"
            f" {attempt.process_instance_id}, or delete it all the same with --force"
        )


def _command_faults(waiting: Sequence[WaitingCommand]) -> Iterator[str]:
    for each in waiting:
        about = "" if each.process_instance_id is None else f" for {each.process_instance_id}"
        yield (
            f"command {each.id}{about} waits for a master; see it carried out first:"
            f" orcaflow instance why --command {each.id}"
        )


def _release_faults(
    rows: Mapping[int, DefinitionRow],
    states: Mapping[int, ReleaseState],
    schedules: Mapping[int, ReleaseState],
) -> Iterator[str]:
    for number, row in rows.items():
        if states.get(number) is ReleaseState.ONLINE:
            yield (
                f"{row.name!r} is ONLINE; take it off first:"
                f" orcaflow definition offline {shlex.quote(row.name)}"
            )
    for number, state in schedules.items():
        if state is ReleaseState.ONLINE:
            yield (
                f"schedule {number} is ONLINE; take it off first:"
                f" orcaflow schedule offline {number}"
            )


def _reference_faults(
    db: Connection, principal: Principal, rows: Mapping[int, DefinitionRow]
) -> Iterator[str]:
    """Yield a fault for each definition or live run that would keep a dangling reference.

    References among the deleted definitions do not count. References from another project count
    only while the definition is shared with that project.
    """
    together = " ".join(shlex.quote(row.name) for row in rows.values())
    sharing = shared_with(db, rows)
    seen = seen_among(db, principal, {each for those in sharing.values() for each in those})
    for other in definitions(db):
        if other.id in rows:
            continue
        for row, reference in _references(other.process_definition_json, rows):
            if not _reaches(other.project_id, row, sharing):
                continue
            if _is_foreign(other.project_id, row, seen):
                yield (
                    f"{FOREIGN} refers to {row.name!r}; end the share with its project first:"
                    f" orcaflow definition shares {shlex.quote(row.name)}"
                )
            else:
                yield (
                    f"{other.name!r} refers to {row.name!r} in task {reference.node!r}; import it"
                    " without that, or delete both: orcaflow definition delete"
                    f" {shlex.quote(other.name)} {together}"
                )
            break
    for run in store.live_documents(db):
        for row, reference in _references(run.document, rows):
            if not _reaches(run.project_id, row, sharing):
                continue
            if _is_foreign(run.project_id, row, seen):
                yield (
                    f"a process instance of another project is live and refers to {row.name!r};"
                    " end the share with its project first:"
                    f" orcaflow definition shares {shlex.quote(row.name)}"
                )
            else:
                yield (
                    f"process instance {run.id} goes on, and refers to {row.name!r} in task"
                    f" {reference.node!r}; stop it first: orcaflow instance stop {run.id} --wait"
                )
            break


def _reaches(
    project_id: int | None, row: DefinitionRow, sharing: Mapping[int, frozenset[int]]
) -> bool:
    return project_id == row.project_id or project_id in sharing.get(row.id, ())


def _is_foreign(project_id: int | None, row: DefinitionRow, seen: frozenset[int] | None) -> bool:
    """Return True for another project, which the caller may not see."""
    return project_id != row.project_id and seen is not None and project_id not in seen


def _references(
    document: str | None, rows: Mapping[int, DefinitionRow]
) -> Iterator[tuple[DefinitionRow, DefinitionReference]]:
    for reference in definition_references(object_of(document)):
        for row in rows.values():
            # A name goes before an id.
            named = reference.name
            if named == row.name if named is not None else reference.number == row.id:
                yield row, reference


def _live_faults(db: Connection, ids: Collection[int]) -> Iterator[str]:
    # Commands before runs: one that has been taken since has become a run by now.
    yield from _command_faults(store.commands_for_definitions(db, ids))
    for number, state in store.live_runs_of(db, ids):
        what = name_of(ProcessState, state)
        yield (
            f"process instance {number} is {what}; stop it first:"
            f" orcaflow instance stop {number} --wait"
        )
    for number in store.moving_complements(db, ids):
        yield (f"complement {number} goes on; cancel it first: orcaflow complement cancel {number}")


def _deleted(session: Session, gone: DeletedInstances) -> Deleted:
    removed, left = remove_folders(session.config.home, gone.folders)
    own = session.config.worker.host
    return Deleted(
        ids=gone.ids,
        attempts=gone.attempts,
        folders=removed,
        left=left,
        hosts=tuple(host for host in gone.hosts if host.rpartition(":")[0] != own),
    )


def remove_folders(home: Path, instances: Sequence[tuple[int, int]]) -> tuple[int, tuple[str, ...]]:
    """Remove this computer's directories and logs of instances that are gone.

    They are named by the ids of their definitions and their own. Returns how many are removed, and
    those that could not be, with the reason.
    """
    tasks = home / "tasks"
    removed = 0
    left: list[str] = []
    for definition_id, instance_id in instances:
        for top in (tasks, tasks / "logs"):
            folder = top / f"{definition_id:d}" / f"{instance_id:d}"
            fault = _remove(folder)
            if fault is None:
                removed += 1
            elif fault:
                left.append(f"{folder}: {fault}")
    return removed, tuple(left)


def _remove(folder: Path) -> str | None:
    """Remove a folder; None if that is done, "" if there is none, else the fault."""
    try:
        # Follows no link, neither here nor below: tasks may have made some.
        shutil.rmtree(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return None
