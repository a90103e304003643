"""The shares that a master checks when a child starts and when a DEPENDENT task polls."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, delete, insert, select

from common.model.commands import CommandRow, read_command
from common.model.states import ProcessState, TaskState
from common.model.upstream import Absence, Question
from common.store import tables as t
from common.store.master.dependents import PostgresDependentStore
from common.store.master.endings import ChildEnd, ProcessEnd, end_parent_attempts
from common.store.master.snapshots import Snapshots
from tests.builders import NOON
from tests.integration.cli_rows import a_definition, an_attempt, an_instance


def projects(db: Engine) -> tuple[int, int, int]:
    with db.begin() as connection:
        made = [
            connection.scalar(insert(t.project).values(name=name).returning(t.project.c.id))
            for name in ("dev", "prod", "lab")
        ]
    return made[0], made[1], made[2]


def share(db: Engine, definition: int, project: int) -> None:
    with db.begin() as connection:
        connection.execute(
            insert(t.share).values(
                object_type="definition", object_id=definition, project_id=project, user_id=0
            )
        )


def unshare(db: Engine, definition: int) -> None:
    with db.begin() as connection:
        connection.execute(delete(t.share).where(t.share.c.object_id == definition))


def test_x45_a_dependent_reads_definitions_of_its_project_and_shared_ones_alone(
    db: Engine,
) -> None:
    dev, prod, lab = projects(db)
    foreign = a_definition(db, name="load", project_id=dev)
    other = a_definition(db, name="load", project_id=lab)
    store = PostgresDependentStore(db)

    def answer(number: int | None, name: str | None = None, **more: Any) -> object:
        question = Question(
            definition_id=number,
            definition_name=name,
            task=None,
            start=NOON,
            end=NOON + timedelta(days=1),
            asking_project=prod,
            **more,
        )
        (found,) = store.look_up([question])
        return found

    run = an_instance(db, ProcessState.SUCCESS, process_definition_id=foreign, schedule_time=NOON)
    # A foreign definition gives the same result as a missing one.
    for found in (answer(foreign), answer(foreign + 1000), answer(None, "load")):
        assert found is Absence.NO_DEFINITION
    share(db, foreign, prod)
    for found in (answer(foreign), answer(None, "load"), answer(None, "load", project="dev")):
        assert getattr(found, "id", found) == run
    assert getattr(answer(None, "load", project=dev), "id", None) == run
    for wrong in ("lab", "prod", "nowhere", prod):
        assert answer(None, "load", project=wrong) is Absence.NO_DEFINITION
    # Two shared definitions of one name are ambiguous. The project's definition goes first.
    share(db, other, prod)
    assert answer(None, "load") is Absence.NO_DEFINITION
    own = a_definition(db, name="load", project_id=prod)
    assert answer(None, "load") is None
    mine = an_instance(db, ProcessState.SUCCESS, process_definition_id=own, schedule_time=NOON)
    assert getattr(answer(None, "load"), "id", None) == mine
    # The next query notices that the share has ended.
    unshare(db, foreign)
    assert answer(foreign) is Absence.NO_DEFINITION


def test_x44_the_reason_of_a_foreign_child_is_not_copied_into_the_attempt_of_its_parent(
    db: Engine,
) -> None:
    dev, prod, _ = projects(db)
    parent = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=a_definition(db, name="night", project_id=prod),
    )
    reason = "task 'secret-step' failed"

    def told(project: int, state: ProcessState, why: str | None = reason) -> str | None:
        number = a_definition(db, name=f"load-{project}-{state.name}", project_id=project)
        child = an_instance(db, state, process_definition_id=number, state_reason=why)
        task = an_attempt(
            db, parent, TaskState.RUNNING, task_type="SUB_PROCESS", name=f"sub-{child}"
        )
        end = ChildEnd(
            process_instance_id=child,
            parent_task_instance_id=task,
            end=ProcessEnd(state=state, at=NOON, reason=why),
        )
        with db.begin() as connection:
            assert end_parent_attempts(connection, [end]) == 1
            found: str | None = connection.scalar(
                select(t.task_instance.c.reason).where(t.task_instance.c.id == task)
            )
        return None if found is None else found.replace(f"instance {child}", "instance N")

    assert told(prod, ProcessState.FAILURE) == f"process instance N: {reason}"
    foreign = told(dev, ProcessState.FAILURE)
    assert foreign is not None
    assert foreign.startswith("process instance N of the shared process definition 'load-")
    assert foreign.endswith("of the project 'dev' ended as FAILURE")
    assert "ended as KILL" in str(told(dev, ProcessState.STOP, "operator stopped it"))
    assert told(dev, ProcessState.SUCCESS, None) is None


def test_x45_a_snapshot_knows_what_is_shared_with_the_project_of_the_parent(db: Engine) -> None:
    dev, prod, _ = projects(db)
    child = a_definition(db, name="child", project_id=dev)
    parent = a_definition(db, name="parent", project_id=prod)
    run = an_instance(db, ProcessState.RUNNING, process_definition_id=parent)
    task = an_attempt(
        db, run, TaskState.SUBMITTED, process_definition_id=parent, task_type="SUB_PROCESS"
    )
    with db.begin() as connection:
        number = connection.scalar(
            insert(t.command)
            .values(
                command_type=0,
                process_definition_id=child,
                command_param=json.dumps({}),
                parent_task_instance_id=task,
            )
            .returning(t.command.c.id)
        )

    def reaches() -> bool:
        with db.begin() as connection:
            row = connection.execute(select(t.command).where(t.command.c.id == number)).one()
            names = CommandRow.__dataclass_fields__
            values = {name: getattr(row, name) for name in names if hasattr(row, name)}
            found = read_command(CommandRow(**values, param_bytes=2), param_limit_bytes=1000)
            snapshot = Snapshots(connection, [found], live_masters=frozenset).of(found)
        assert snapshot.parent is not None
        assert snapshot.definition is not None
        return snapshot.parent.reaches(snapshot.definition)

    assert not reaches()
    share(db, child, prod)
    assert reaches()
    unshare(db, child)
    assert not reaches()
