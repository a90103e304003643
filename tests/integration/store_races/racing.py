"""Masters and workers on two connections, for tests in which both act at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, insert, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from common.clock import SystemClock
from common.model.cluster import Node
from common.model.commands import Command
from common.model.decisions import Decision, SubmitTask
from common.model.instances import Ownership
from common.model.plans import Begin, ChildOf, Plan, Reject, Snapshot
from common.model.states import Priority
from common.store import tables as t
from common.store.master.commands import PostgresCommandStore
from common.store.master.ports import FirstStep, LoadedRun, Saved, Step
from common.store.master.runs import PostgresRunStore
from common.store.worker.ports import AttemptFolders
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.conformance import store_tables

MASTER = Node(address="10.0.0.1:5678", incarnation=1)
OTHER_MASTER = Node(address="10.0.0.2:5678", incarnation=2)
WORKER = Node(address="10.0.0.3:1234", incarnation=3)
OTHER_WORKER = Node(address="10.0.0.4:1234", incarnation=4)


def a_begin(command: Command, _snapshot: Snapshot) -> Begin:
    return store_tables.a_begin(name=f"run-{command.id}")


def a_submit(name: str, **changes: Any) -> SubmitTask:
    submit = SubmitTask(
        name=name,
        attempt=1,
        retry_times=0,
        task_type="SHELL",
        task_json="{}",
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        max_retry_times=0,
        retry_interval=timedelta(),
    )
    return replace(submit, **changes)


def commands(made: Engine, count: int, **columns: Any) -> list[int]:
    rows = [{"command_type": 0, "process_definition_id": 1, **columns}] * count
    with made.begin() as db:
        return list(
            db.scalars(
                insert(t.command).returning(t.command.c.id, sort_by_parameter_order=True), rows
            )
        )


def take(
    made: Engine,
    node: Node,
    planner: Callable[[Command, Snapshot], Plan] = a_begin,
    *,
    limit: int = 100,
    first_step: FirstStep | None = None,
) -> dict[int, Ownership | None]:
    taken = PostgresCommandStore(made).take(
        node=node,
        limit=limit,
        room=limit,
        spare=limit,
        live_masters=frozenset,
        planner=planner,
        now=NOON,
        first_step=first_step,
    )
    return {one.command_id: one.ownership for one in taken.handled}


def begin_with_a_task(run: LoadedRun) -> Step:
    """A first step, with which a command is taken in the plainest way."""
    return Step(ownership=run.ownership, decisions=(a_submit("first"),), at=NOON)


def a_run(made: Engine, definition_id: int = 1, project_id: int = 1) -> Ownership:
    """Start a run of a definition; create the definition if it is missing."""
    with made.begin() as db:
        definition = {"id": definition_id, "name": f"d{definition_id}", "project_id": project_id}
        made_now = upsert(t.process_definition).values(definition).on_conflict_do_nothing()
        if db.execute(made_now).rowcount:
            # Advance the sequence, so that no later definition gets this id.
            db.exec_driver_sql(
                "SELECT setval('t_ds_process_definition_id_seq', max(id))"
                " FROM t_ds_process_definition"
            )
    (command_id,) = commands(made, 1, process_definition_id=definition_id)

    def begin(command: Command, snapshot: Snapshot) -> Plan:
        return replace(a_begin(command, snapshot), process_definition_id=definition_id)

    owned = take(made, MASTER, begin)[command_id]
    assert owned is not None
    return owned


def save(made: Engine, owned: Ownership, *decisions: Decision) -> Saved:
    step = Step(ownership=owned, decisions=decisions, at=NOON)
    return PostgresRunStore(made).save([step])


def submit(made: Engine, owned: Ownership, *names: str) -> list[int]:
    saved = save(made, owned, *(a_submit(name) for name in names))
    return [offer.task_instance_id for offer in saved.offers]


def claim(made: Engine, node: Node, ids: list[int]) -> list[int]:
    claimed = PostgresTaskStore(made).claim(
        node, ids, folders=AttemptFolders(work="/attempts", logs="/logs"), now=NOON
    )
    return [task.id for task in claimed]


def until_blocked(made: Engine, application: str) -> None:
    """Return once a session of that application waits for a lock."""
    until_blocked_or(made, application, lambda: False)


def until_blocked_or(made: Engine, application: str, is_done: Callable[[], bool]) -> None:
    """Return once a session of that application waits for a lock, or once the work is done."""
    deadline = SystemClock().monotonic() + 60
    question = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name LIKE :name AND wait_event_type = 'Lock'"
    )
    with made.execution_options(isolation_level="AUTOCOMMIT").connect() as db:
        while not (is_done() or db.scalar(question, {"name": f"{application}:%"})):
            assert SystemClock().monotonic() < deadline, "nobody waits"


def a_child_begin(command: Command, snapshot: Snapshot) -> Plan:
    parent = snapshot.parent
    if parent is None:
        return Reject(reason="no parent")
    begin = a_begin(command, snapshot)
    child_of = ChildOf(
        process_instance_id=parent.process_instance_id,
        task_instance_id=parent.task_instance_id,
        root_id=parent.root_id,
    )
    return replace(begin, child_of=child_of)


def an_intent_for_a_child(made: Engine, owned: Ownership, *names: str) -> list[int]:
    """Submit SUB_PROCESS attempts whose children have not begun; return their ids."""
    save(made, owned, *(a_submit(name, task_type="SUB_PROCESS") for name in names))
    with made.connect() as db:
        return list(
            db.scalars(
                select(t.task_instance.c.id)
                .where(t.task_instance.c.process_instance_id == owned.process_instance_id)
                .where(t.task_instance.c.name.in_(names))
                .order_by(t.task_instance.c.id)
            )
        )


def child_commands(made: Engine, task_ids: list[int]) -> list[int]:
    with made.connect() as db:
        return list(
            db.scalars(
                select(t.command.c.id)
                .where(t.command.c.parent_task_instance_id.in_(task_ids))
                .order_by(t.command.c.id)
            )
        )


def children(made: Engine, owned: Ownership, *names: str) -> list[Ownership]:
    """Runs that are the children of new attempts of this run."""
    made_of = child_commands(made, an_intent_for_a_child(made, owned, *names))
    begun = take(made, OTHER_MASTER, a_child_begin)
    owners = [begun[command_id] for command_id in made_of]
    return [owner for owner in owners if owner is not None]


def attempt(made: Engine, task_id: int) -> Any:
    with made.connect() as db:
        return db.execute(select(t.task_instance).where(t.task_instance.c.id == task_id)).one()


def instance(made: Engine, instance_id: int) -> Any:
    with made.connect() as db:
        return db.execute(
            select(t.process_instance).where(t.process_instance.c.id == instance_id)
        ).one()
