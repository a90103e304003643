"""Supervisors in PostgreSQL: leases, their loss, and steps that begin, order and end tasks."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, update

from common.model.commands import CommandOutcome
from common.model.states import ProcessState, TaskState
from common.model.streams.requests import Request, RequestKind
from common.model.streams.tasks import (
    Assignment,
    OrderKind,
    Orders,
    Sequence,
    TaskReport,
    TaskStatus,
)
from common.store import tables as t
from common.store.master.supervisor_ports import (
    AddOffsets,
    BadRequest,
    Change,
    DropOffsets,
    EndTask,
    GiveOrders,
    Lease,
    LeaseLostError,
    OutdatedStepError,
    PutOffsets,
    PutSpec,
    Standing,
    StartAssignment,
    StreamTaskRow,
    SupervisorRows,
    SupervisorStep,
    TellPeople,
)
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.supervisors import (
    add_version,
    make_supervisor,
    open_tasks,
    put_request,
    supervisor_named,
    versions,
)
from common.store.transaction import StoreConflictError
from common.store.worker.ports import AttemptEnd
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    OTHER_MASTER,
    OTHER_WORKER,
    WORKER,
    claim,
    instance,
    submit,
    take,
)

LEASE = timedelta(hours=1)
DOCUMENT = {"type": "kafka", "spec": {"ioConfig": {"topic": "events"}}}


def a_supervisor(made: Engine) -> str:
    name = f"ds-{uuid.uuid4().hex[:8]}"
    with made.begin() as db:
        assert make_supervisor(db, name, project_id=1, process_definition_id=1)
        add_version(db, name, version=1, document=DOCUMENT, suspended=False, user_id=1)
    return name


def owned(made: Engine, name: str) -> Lease:
    """The lease of this supervisor by `MASTER`; whatever else is free is claimed beside it."""
    (found,) = [each for each in claimed(made) if each.supervisor == name]
    return found


def claimed(made: Engine, node: Any = MASTER, lease: timedelta = LEASE) -> tuple[Lease, ...]:
    return PostgresSupervisorStore(made).claim(node, lease=lease, limit=1000)


def a_task(lease: Lease, number: int = 1, **more: Any) -> Assignment:
    values: dict[str, Any] = {
        "name": f"index_kafka_{lease.supervisor}_abc_{lease.epoch}_{number}",
        "supervisor": lease.supervisor,
        "version": 1,
        "group_id": 0,
        "base_sequence": f"index_kafka_{lease.supervisor}_abc",
        "starts": {0: 5, 2: 7},
        "checkpoints": {0: {0: 5, 2: 7}},
        "min_time": NOON,
    }
    return Assignment(**values | more)


def step(*changes: Change, **more: Any) -> SupervisorStep:
    values: dict[str, Any] = {"version": 1, "stream": "events"} | more
    return SupervisorStep(changes=changes, **values)


def apply(made: Engine, lease: Lease, *changes: Change, **more: Any) -> None:
    PostgresSupervisorStore(made).apply(MASTER, lease, step(*changes, **more), now=NOON)


def loaded(made: Engine, lease: Lease) -> SupervisorRows:
    rows = PostgresSupervisorStore(made).load(lease)
    assert rows is not None
    return rows


def the_task(made: Engine, lease: Lease) -> StreamTaskRow:
    (task,) = loaded(made, lease).tasks
    return task


def started(made: Engine, lease: Lease) -> int:
    """Start a task and have a worker run it; returns the id of its attempt."""
    assignment = a_task(lease)
    apply(made, lease, StartAssignment(assignment=assignment))
    ids = submit(made, begun(made, lease), "read")
    assert claim(made, WORKER, ids) == ids
    return ids[0]


def begun(made: Engine, lease: Lease) -> Any:
    """Have a master take the command of the only task."""
    with made.connect() as db:
        command_id = db.scalar(
            select(t.stream_task.c.command_id).where(t.stream_task.c.supervisor == lease.supervisor)
        )
    return take(made, MASTER)[command_id]


def test_of_two_masters_one_gets_a_supervisor(here: Engine, there: Engine) -> None:
    names = {a_supervisor(here) for _ in range(6)}
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(claimed, here, MASTER)
        theirs = pool.submit(claimed, there, OTHER_MASTER)
    got = [each.supervisor for each in (*ours.result(), *theirs.result())]
    assert len(got) == len(set(got))
    assert names <= set(got)
    assert claimed(here) == ()


def test_a_lease_that_is_over_goes_to_another_master_with_the_next_epoch(here: Engine) -> None:
    name = a_supervisor(here)
    store = PostgresSupervisorStore(here)
    (first,) = [one for one in claimed(here, lease=timedelta()) if one.supervisor == name]
    assert store.renew(MASTER, [first], lease=LEASE) == {}
    (second,) = [one for one in claimed(here, OTHER_MASTER) if one.supervisor == name]
    assert second == replace(first, epoch=first.epoch + 1)
    with pytest.raises(LeaseLostError):
        apply(here, first, StartAssignment(assignment=a_task(first)))
    with pytest.raises(LeaseLostError):
        # The other's epoch, without being the other.
        apply(here, second, StartAssignment(assignment=a_task(second)))
    assert loaded(here, second).tasks == ()
    store.release(MASTER, [second])
    assert list(store.renew(OTHER_MASTER, [second], lease=LEASE)) == [second]
    store.release(OTHER_MASTER, [second])
    assert owned(here, name).epoch == second.epoch + 1


def test_a_step_is_written_whole_or_not_at_all(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    with pytest.raises(StoreConflictError, match="requests"):
        apply(
            here,
            lease,
            StartAssignment(assignment=a_task(lease)),
            AddOffsets(offsets={0: 5}),
            requests=(2**31 - 1,),
        )
    rows = loaded(here, lease)
    assert (rows.tasks, rows.stored) == ((), {})


def test_a_task_is_a_run_from_its_command_to_its_success(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    store, tasks = PostgresSupervisorStore(here), PostgresStreamTasks(here)
    pulses = [store.renew(MASTER, [lease], lease=LEASE)[lease]]
    assignment = a_task(lease)
    apply(here, lease, StartAssignment(assignment=assignment))
    task = the_task(here, lease)
    assert (task.assignment, task.assigned, task.succeeded) == (assignment, False, None)
    pulses.append(store.renew(MASTER, [lease], lease=LEASE)[lease])
    (task_id,) = submit(here, begun(here, lease), "read")
    assert (the_task(here, lease).assigned, the_task(here, lease).attempt) == (False, task_id)
    assert claim(here, WORKER, [task_id]) == [task_id]
    pulses.append(store.renew(MASTER, [lease], lease=LEASE)[lease])
    assert the_task(here, lease).assigned_at == NOON
    assert tasks.work(OTHER_WORKER, task_id) is None
    work = tasks.work(WORKER, task_id)
    assert work is not None
    assert (work.assignment, work.document, work.orders) == (assignment, DOCUMENT, Orders())
    report = TaskReport(
        state=TaskStatus.READING,
        obeyed=0,
        current={0: 6, 2: 9},
        sequences=(Sequence(id=0, start={0: 5, 2: 7}),),
        lag={0: 3},
    )
    assert tasks.report(WORKER, task_id, report)
    assert the_task(here, lease).report == report
    pulses.append(store.renew(MASTER, [lease], lease=LEASE)[lease])
    assert tasks.report(WORKER, task_id, replace(report, current={0: 7, 2: 9}))
    assert store.renew(MASTER, [lease], lease=LEASE)[lease] == pulses[-1]
    ended = AttemptEnd(
        task_instance_id=task_id,
        state=TaskState.SUCCESS,
        end_time=NOON,
        exit_code=0,
        reason=None,
    )
    assert PostgresTaskStore(here).report(WORKER, [ended]) == {task_id}
    pulses.append(store.renew(MASTER, [lease], lease=LEASE)[lease])
    assert len(set(pulses)) == len(pulses)
    assert the_task(here, lease).succeeded is True
    apply(here, lease, closed=(assignment.name,))
    assert loaded(here, lease).tasks == ()


def test_a_report_of_another_worker_or_after_the_end_is_refused(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    task_id = started(here, lease)
    tasks = PostgresStreamTasks(here)
    report = TaskReport(state=TaskStatus.READING, current={0: 6})
    assert not tasks.report(OTHER_WORKER, task_id, report)
    assert not tasks.report(replace(WORKER, incarnation=99), task_id, report)
    with here.begin() as db:
        db.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=int(TaskState.NEED_FAULT_TOLERANCE), end_time=NOON)
        )
    assert not tasks.report(WORKER, task_id, report)
    task = the_task(here, lease)
    assert (task.succeeded, task.report) == (False, TaskReport())


def test_orders_reach_the_worker_and_never_go_back(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    task_id = started(here, lease)
    name = a_task(lease).name
    tasks = PostgresStreamTasks(here)
    end = Orders(version=2, command=OrderKind.END, end={0: 9, 2: 9}, sequence=0, finish=True)
    apply(here, lease, GiveOrders(task=name, orders=end))
    assert tasks.orders(WORKER, [task_id, 2**31 - 1]) == {task_id: end}
    assert tasks.orders(OTHER_WORKER, [task_id]) == {}
    assert the_task(here, lease).orders == end
    with pytest.raises(StoreConflictError):
        apply(here, lease, GiveOrders(task=name, orders=replace(end, version=1)))
    assert tasks.orders(WORKER, [task_id]) == {task_id: end}


def test_a_kill_withdraws_a_command_that_nobody_has_taken(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    name = a_task(lease).name
    apply(here, lease, StartAssignment(assignment=a_task(lease)))
    apply(here, lease, EndTask(task=name, reason="no use", kill=True))
    task = the_task(here, lease)
    assert (task.succeeded, task.killed, task.ending_since) == (False, True, NOON)
    with here.connect() as db:
        command_id = db.scalar(
            select(t.stream_task.c.command_id).where(t.stream_task.c.name == name)
        )
        outcome = db.scalar(
            select(t.command_ledger.c.outcome).where(t.command_ledger.c.command_id == command_id)
        )
    assert outcome == CommandOutcome.DROPPED
    apply(here, lease, closed=(name,))
    assert loaded(here, lease).tasks == ()


def test_a_kill_stops_the_run_of_a_task(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    name = a_task(lease).name
    started(here, lease)
    apply(here, lease, EndTask(task=name, reason="it is slow", kill=False))
    with here.connect() as db:
        (shown,) = open_tasks(db, lease.supervisor)
    assert shown.process_instance_id is not None
    assert instance(here, shown.process_instance_id).wanted_state is None
    apply(here, lease, EndTask(task=name, reason="it does not stop", kill=True))
    assert instance(here, shown.process_instance_id).wanted_state == ProcessState.STOP
    task = the_task(here, lease)
    assert (task.killed, task.succeeded) == (True, None)
    assert (shown.ending_reason, shown.host) == ("it is slow", WORKER.address)


def test_offsets_are_recorded_set_and_forgotten(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    apply(here, lease, AddOffsets(offsets={0: 5, 1: 6}))
    apply(here, lease, AddOffsets(offsets={0: 50, 2: 7}), PutOffsets(offsets={1: 60}))
    assert loaded(here, lease).stored == {0: ("events", 5), 1: ("events", 60), 2: ("events", 7)}
    apply(here, lease, DropOffsets(partitions=(1,)))
    assert sorted(loaded(here, lease).stored) == [0, 2]
    with pytest.raises(OutdatedStepError):
        apply(here, lease, TellPeople(text="reset"), DropOffsets(partitions=(0,), expected={0: 4}))
    assert sorted(loaded(here, lease).stored) == [0, 2]
    apply(here, lease, DropOffsets(partitions=(0,), expected={0: 5}))
    assert sorted(loaded(here, lease).stored) == [2]
    apply(here, lease, DropOffsets(partitions=None))
    assert loaded(here, lease).stored == {}


def test_a_partition_that_is_read_again_has_published_no_times(here: Engine) -> None:
    lease = owned(here, a_supervisor(here))
    apply(here, lease, AddOffsets(offsets=dict.fromkeys(range(3), 5)))
    offsets = t.dataset_offsets
    mine = offsets.c.dataset == lease.supervisor
    long_ago = NOON - timedelta(days=1000)
    with here.begin() as db:
        db.execute(update(offsets).where(mine).values(max_event_time=NOON, update_time=long_ago))
    apply(here, lease, PutOffsets(offsets={0: 4, 1: 5, 2: 6}))
    with here.connect() as db:
        rows = db.execute(select(offsets).where(mine).order_by(offsets.c.partition)).all()
    assert [row.max_event_time for row in rows] == [None, NOON, NOON]
    assert all(row.update_time > long_ago for row in rows)


def test_requests_are_consumed_with_their_effect_and_bad_ones_named(here: Engine) -> None:
    name = a_supervisor(here)
    lease = owned(here, name)
    store = PostgresSupervisorStore(here)
    before = store.renew(MASTER, [lease], lease=LEASE)[lease]
    with here.begin() as db:
        first = put_request(db, name, RequestKind.RESET, {"offsets": {"0": 3}}, user_id=1)
        second = put_request(db, name, RequestKind.HAND_OVER, {"groups": ["x"]}, user_id=1)
    assert store.renew(MASTER, [lease], lease=LEASE)[lease] != before
    good, bad = loaded(here, lease).requests
    assert good == Request(id=first, kind=RequestKind.RESET, offsets={0: 3})
    assert isinstance(bad, BadRequest)
    apply(here, lease, TellPeople(text="it was reset"), requests=(first, second))
    assert loaded(here, lease).requests == ()
    with here.connect() as db:
        alerts = db.scalar(select(func.count()).where(t.alert.c.title == f"supervisor {name}"))
    assert alerts == 1


def test_a_keeper_s_version_gives_way_to_a_person_s(here: Engine) -> None:
    name = a_supervisor(here)
    lease = owned(here, name)
    wider = {**DOCUMENT, "more": 2}
    apply(here, lease, PutSpec(document=wider))
    rows = loaded(here, lease)
    assert (rows.version, rows.document) == (2, wider)
    with here.begin() as db:
        add_version(db, name, version=3, document=None, suspended=False, user_id=1)
    apply(here, lease, PutSpec(document=DOCUMENT), version=2)
    rows = loaded(here, lease)
    assert (rows.version, rows.is_tombstone, rows.spec_version) == (3, True, 2)
    assert rows.document == wider
    with here.connect() as db:
        assert [each.document for each in versions(db, name)] == [None, wider, DOCUMENT]


def test_a_supervisor_that_ends_is_nobody_s_unless_it_was_submitted_anew(here: Engine) -> None:
    name = a_supervisor(here)
    lease = owned(here, name)
    standing = Standing(
        state="STOPPING",
        detailed_state="STOPPING",
        healthy=True,
        recent_errors=({"text": "x"},),
        status={"lag": 3},
    )
    with here.begin() as db:
        add_version(db, name, version=2, document=DOCUMENT, suspended=True, user_id=1)
    apply(here, lease, ends=True, standing=standing)
    assert loaded(here, lease).suspended
    apply(here, lease, ends=True, version=2)
    with pytest.raises(LeaseLostError):
        apply(here, lease)
    assert name not in {each.supervisor for each in claimed(here)}
    with here.connect() as db:
        view = supervisor_named(db, name)
    assert view is not None
    assert (view.active, view.owner, view.state, view.status) == (
        False,
        None,
        "STOPPING",
        {"lag": 3},
    )
