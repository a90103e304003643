"""Supervisors in both stores: leases, their loss, and steps that begin, order and end tasks."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.commands import CommandOutcome
from common.model.states import ProcessState, TaskState
from common.model.streams.partitions import TopicPartition
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
from common.store.listen import ORDERS, Channel, hint_channel
from common.store.master.supervisor_ports import (
    AddOffsets,
    BadRequest,
    Change,
    DropOffsets,
    EndTask,
    GiveAssignment,
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
from common.store.transaction import StoreConflictError
from tests.builders import NOON
from tests.conformance.store_tables import (
    MASTER,
    OTHER_MASTER,
    OTHER_WORKER,
    RESTARTED,
    WORKER,
    Tables,
    a_begin,
    always,
    an_end,
    claim,
    end,
    fail_over,
    submit,
    take,
    the_process,
    the_row,
)
from tests.conformance.streams import Streams, streams_of

LEASE = timedelta(hours=1)
DOCUMENT = {"type": "kafka", "spec": {"ioConfig": {"topic": "events"}}}


@pytest.fixture
def streams(db: Tables) -> Streams:
    return streams_of(db)


def a_supervisor(streams: Streams) -> str:
    name = f"ds-{uuid.uuid4().hex[:8]}"
    streams.make(name, DOCUMENT)
    return name


def owned(streams: Streams, name: str = "") -> Lease:
    """The lease of a supervisor by `MASTER`; of a new one, unless it is named."""
    name = name or a_supervisor(streams)
    (found,) = claimed(streams)
    assert found.supervisor == name
    return found


def claimed(streams: Streams, node: Any = MASTER, lease: timedelta = LEASE) -> tuple[Lease, ...]:
    return streams.supervisors.claim(node, lease=lease, limit=1000)


def renewed(streams: Streams, lease: Lease) -> Any:
    return streams.supervisors.renew(MASTER, [lease], lease=LEASE)[lease]


def a_task(lease: Lease, number: int = 1) -> Assignment:
    return Assignment(
        name=f"index_kafka_{lease.supervisor}_abc_{lease.epoch}_{number}",
        supervisor=lease.supervisor,
        version=1,
        group_id=0,
        base_sequence=f"index_kafka_{lease.supervisor}_abc",
        starts={0: 5, 2: 7},
        checkpoints={0: {0: 5, 2: 7}},
        min_time=NOON,
    )


def apply(streams: Streams, lease: Lease, *changes: Change, **more: Any) -> None:
    values: dict[str, Any] = {"version": 1, "stream": "events"} | more
    step = SupervisorStep(changes=changes, **values)
    streams.supervisors.apply(MASTER, lease, step, now=NOON)


def loaded(streams: Streams, lease: Lease) -> SupervisorRows:
    rows = streams.supervisors.load(lease)
    assert rows is not None
    return rows


def the_task(streams: Streams, lease: Lease) -> StreamTaskRow:
    (task,) = loaded(streams, lease).tasks
    return task


def begun(db: Tables) -> Any:
    """Have a master take the commands of tasks; return the newest run."""
    *_, handled = take(db, always(a_begin()))
    assert handled.ownership is not None
    return handled.ownership


def started(db: Tables, streams: Streams, lease: Lease) -> tuple[int, Any]:
    """Start a task and have a worker run it; return the id of its attempt, and its run."""
    apply(streams, lease, StartAssignment(assignment=a_task(lease)))
    run = begun(db)
    (task_id,) = submit(db, run, "read")
    assert claim(db, [task_id]) == [task_id]
    return task_id, run


def test_a_supervisor_is_claimed_once_and_renewed_by_its_owner(streams: Streams) -> None:
    name = a_supervisor(streams)
    lease = owned(streams, name)
    assert claimed(streams, OTHER_MASTER) == ()
    assert list(streams.supervisors.renew(OTHER_MASTER, [lease], lease=LEASE)) == []
    former = replace(MASTER, incarnation=MASTER.incarnation - 1)
    assert list(streams.supervisors.renew(former, [lease], lease=LEASE)) == []
    assert list(streams.supervisors.renew(MASTER, [lease], lease=LEASE)) == [lease]


def test_a_lease_that_is_over_goes_to_another_master_with_the_next_epoch(streams: Streams) -> None:
    name = a_supervisor(streams)
    store = streams.supervisors
    (first,) = claimed(streams, lease=timedelta())
    assert store.renew(MASTER, [first], lease=LEASE) == {}
    (second,) = claimed(streams, OTHER_MASTER)
    assert second == replace(first, epoch=first.epoch + 1)
    with pytest.raises(LeaseLostError):
        apply(streams, first, StartAssignment(assignment=a_task(first)))
    with pytest.raises(LeaseLostError):
        # The other's epoch, without being the other.
        apply(streams, second, StartAssignment(assignment=a_task(second)))
    assert loaded(streams, second).tasks == ()
    store.release(MASTER, [second])
    assert list(store.renew(OTHER_MASTER, [second], lease=LEASE)) == [second]
    store.release(OTHER_MASTER, [second])
    assert owned(streams, name).epoch == second.epoch + 1


def test_a_former_lease_of_the_same_master_writes_nothing(streams: Streams) -> None:
    former = owned(streams)
    store = streams.supervisors
    store.release(MASTER, [former])
    present = owned(streams, former.supervisor)
    assert present.epoch == former.epoch + 1
    # The owner and the lease are valid. Only the epoch shows that the step is stale.
    with pytest.raises(LeaseLostError):
        apply(streams, former, StartAssignment(assignment=a_task(former)))
    assert loaded(streams, present).tasks == ()
    assert list(store.renew(MASTER, [former, present], lease=LEASE)) == [present]
    store.release(MASTER, [former])
    apply(streams, present, StartAssignment(assignment=a_task(present)))
    assert [each.assignment for each in loaded(streams, present).tasks] == [a_task(present)]


def test_a_step_is_written_whole_or_not_at_all(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    with pytest.raises(StoreConflictError, match="requests"):
        apply(
            streams,
            lease,
            StartAssignment(assignment=a_task(lease)),
            AddOffsets(offsets={0: 5}),
            requests=(2**31 - 1,),
        )
    rows = loaded(streams, lease)
    assert (rows.tasks, rows.stored, db.rows(t.command)) == ((), {}, [])


def test_a_task_is_a_run_from_its_command_to_its_success(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    tasks = streams.tasks
    pulses = [renewed(streams, lease)]
    assignment = a_task(lease)
    apply(streams, lease, StartAssignment(assignment=assignment))
    task = the_task(streams, lease)
    assert (task.assignment, task.assigned, task.succeeded) == (assignment, False, None)
    pulses.append(renewed(streams, lease))
    (task_id,) = submit(db, begun(db), "read")
    assert (the_task(streams, lease).assigned, the_task(streams, lease).attempt) == (False, task_id)
    assert claim(db, [task_id]) == [task_id]
    pulses.append(renewed(streams, lease))
    assert the_task(streams, lease).assigned_at == NOON
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
    assert the_task(streams, lease).report == report
    pulses.append(renewed(streams, lease))
    assert tasks.report(WORKER, task_id, replace(report, current={0: 7, 2: 9}))
    assert renewed(streams, lease) == pulses[-1]
    assert end(db, an_end(task_id)) == {task_id}
    pulses.append(renewed(streams, lease))
    assert len(set(pulses)) == len(pulses)
    assert the_task(streams, lease).succeeded is True
    apply(streams, lease, closed=(assignment.name,))
    assert loaded(streams, lease).tasks == ()


def test_tasks_that_one_step_starts_have_a_command_each(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    tasks = [a_task(lease, number) for number in range(1, 4)]
    starts = [StartAssignment(assignment=each) for each in tasks]
    end = EndTask(task=tasks[0].name, reason="late", kill=True)
    apply(streams, lease, *starts[:2], end, starts[2], goes_on=True)
    rows = loaded(streams, lease).tasks
    assert [row.assignment for row in rows] == tasks
    # Only the command of the first task is withdrawn.
    assert [row.succeeded for row in rows] == [False, None, None]
    apply(streams, lease, closed=(tasks[0].name,), goes_on=True)
    assert [row.assignment for row in loaded(streams, lease).tasks] == tasks[1:]


def test_a_standby_is_given_its_work_once_while_it_runs(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    work = a_task(lease)
    standby = replace(work, base_sequence="none", starts={}, checkpoints={}, min_time=None)
    assert standby.is_standby
    apply(streams, lease, StartAssignment(assignment=standby))
    (task_id,) = submit(db, begun(db), "read")
    assert claim(db, [task_id]) == [task_id]
    report = TaskReport(state=TaskStatus.STANDBY)
    assert streams.tasks.report(WORKER, task_id, report)
    found = streams.tasks.work(WORKER, task_id)
    assert found is not None
    assert (found.assignment, the_task(streams, lease).report) == (standby, report)
    streams.add_version(lease.supervisor, 2, {**DOCUMENT, "context": {}})
    given = replace(work, version=2)
    apply(streams, lease, GiveAssignment(assignment=given), version=2)
    found = streams.tasks.work(WORKER, task_id)
    assert found is not None
    assert (found.assignment, found.document) == (given, {**DOCUMENT, "context": {}})
    with pytest.raises(StoreConflictError, match="standby"):
        apply(streams, lease, GiveAssignment(assignment=replace(work, starts={0: 9})), version=2)
    assert the_task(streams, lease).assignment == given


@pytest.mark.parametrize("why", ["foreign", "ending", "closed"])
def test_work_is_given_to_no_other_tasks_standby_and_to_none_that_ends(
    streams: Streams, why: str
) -> None:
    first, second = owned(streams), owned(streams)
    standby = replace(a_task(first), starts={}, checkpoints={})
    apply(streams, first, StartAssignment(assignment=standby))
    if why == "ending":
        apply(streams, first, EndTask(task=standby.name, reason="no need", kill=False))
    elif why == "closed":
        apply(streams, first, closed=(standby.name,))
    lease = second if why == "foreign" else first
    with pytest.raises(StoreConflictError, match="standby"):
        apply(streams, lease, GiveAssignment(assignment=a_task(first)))


def test_a_task_is_its_own_supervisors_alone(db: Tables, streams: Streams) -> None:
    first = owned(streams)
    second = owned(streams)
    apply(streams, first, StartAssignment(assignment=a_task(first)), AddOffsets(offsets={0: 5}))
    pulse = renewed(streams, second)
    task_id, _ = started(db, streams, second)
    name = a_task(first).name
    for change in (GiveOrders(task=name, orders=Orders(version=1)), a_kill(name)):
        with pytest.raises(StoreConflictError):
            apply(streams, second, change)
    apply(streams, second, closed=(name,))
    assert [each.assignment for each in loaded(streams, first).tasks] == [a_task(first)]
    assert the_task(streams, second).attempt == task_id
    assert (loaded(streams, second).stored, renewed(streams, second) != pulse) == ({}, True)


def a_kill(name: str) -> EndTask:
    return EndTask(task=name, reason="no use", kill=True)


def test_a_report_of_another_worker_or_after_the_end_is_refused(
    db: Tables, streams: Streams
) -> None:
    lease = owned(streams)
    task_id, _ = started(db, streams, lease)
    report = TaskReport(state=TaskStatus.READING, current={0: 6})
    assert not streams.tasks.report(OTHER_WORKER, task_id, report)
    assert not streams.tasks.report(RESTARTED, task_id, report)
    assert fail_over(db, WORKER, now=NOON) == 1
    assert not streams.tasks.report(WORKER, task_id, report)
    task = the_task(streams, lease)
    assert (task.succeeded, task.report) == (False, TaskReport())


def test_orders_reach_the_worker_and_never_go_back(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    task_id, _ = started(db, streams, lease)
    name = a_task(lease).name
    last = Orders(version=2, command=OrderKind.END, end={0: 9, 2: 9}, sequence=0, finish=True)
    db.notifications()
    apply(streams, lease, GiveOrders(task=name, orders=last))
    assert db.notifications() == [(hint_channel(WORKER.address), ORDERS)]
    assert streams.tasks.orders(WORKER, [task_id, 2**31 - 1]) == {task_id: last}
    assert streams.tasks.orders(OTHER_WORKER, [task_id]) == {}
    assert the_task(streams, lease).orders == last
    with pytest.raises(StoreConflictError):
        apply(streams, lease, GiveOrders(task=name, orders=replace(last, version=1)))
    assert streams.tasks.orders(WORKER, [task_id]) == {task_id: last}


def test_a_kill_withdraws_a_command_that_nobody_has_taken(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    name = a_task(lease).name
    apply(streams, lease, StartAssignment(assignment=a_task(lease)))
    apply(streams, lease, a_kill(name))
    task = the_task(streams, lease)
    assert (task.succeeded, task.killed, task.ending_since) == (False, True, NOON)
    (line,) = db.rows(t.command_ledger)
    assert (line["outcome"], db.rows(t.command)) == (CommandOutcome.DROPPED, [])
    apply(streams, lease, closed=(name,))
    assert loaded(streams, lease).tasks == ()


def test_a_kill_stops_the_run_of_a_task(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    _, run = started(db, streams, lease)
    name = a_task(lease).name
    apply(streams, lease, EndTask(task=name, reason="it is slow", kill=False))
    assert the_process(db, run)["wanted_state"] is None
    apply(streams, lease, a_kill(name))
    assert the_process(db, run)["wanted_state"] == ProcessState.STOP
    task = the_task(streams, lease)
    assert (task.killed, task.succeeded) == (True, None)


def test_a_task_that_fails_has_not_succeeded(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    task_id, _ = started(db, streams, lease)
    end(db, an_end(task_id, TaskState.FAILURE))
    assert the_row(db, t.task_instance, task_id)["state"] == TaskState.FAILURE
    assert the_task(streams, lease).succeeded is False


def test_offsets_are_recorded_set_and_forgotten(db: Tables, streams: Streams) -> None:
    lease = owned(streams)
    name = lease.supervisor
    apply(streams, lease, AddOffsets(offsets={0: 5, 1: 6}))
    db.notifications()
    apply(streams, lease, AddOffsets(offsets={0: 50, 2: 7}), PutOffsets(offsets={1: 60}))
    assert db.notifications() == [(Channel.DATASET, name)]
    stored = {0: ("events", 5), 1: ("events", 60), 2: ("events", 7)}
    assert loaded(streams, lease).stored == stored
    apply(streams, lease, DropOffsets(partitions=(1,)))
    assert sorted(loaded(streams, lease).stored) == [0, 2]
    for expected in ({0: 4}, {0: 5, 1: 60}):
        stale = DropOffsets(partitions=tuple(expected), expected=expected)
        with pytest.raises(OutdatedStepError):
            apply(streams, lease, TellPeople(text="reset"), stale)
    assert (sorted(loaded(streams, lease).stored), db.rows(t.alert)) == ([0, 2], [])
    apply(streams, lease, DropOffsets(partitions=(0,), expected={0: 5}))
    assert sorted(loaded(streams, lease).stored) == [2]
    apply(streams, lease, DropOffsets(partitions=None))
    assert loaded(streams, lease).stored == {}


def test_offsets_of_several_topics_are_apart_by_topic_and_number(
    db: Tables, streams: Streams
) -> None:
    lease = owned(streams)
    eu, eu_1, us = (
        TopicPartition("eu", 0),
        TopicPartition("eu", 1),
        TopicPartition("us", 0),
    )
    apply(streams, lease, AddOffsets(offsets={eu: 5, us: 6}), stream=".*")
    db.notifications()
    add = AddOffsets(offsets={eu: 50, eu_1: 7})
    apply(streams, lease, add, PutOffsets(offsets={us: 60}), stream=".*")
    assert db.notifications() == [(Channel.DATASET, lease.supervisor)]
    assert loaded(streams, lease).stored == {eu: ("eu", 5), eu_1: ("eu", 7), us: ("us", 60)}
    stale = DropOffsets(partitions=(eu,), expected={eu: 4})
    with pytest.raises(OutdatedStepError):
        apply(streams, lease, stale, stream=".*")
    apply(streams, lease, DropOffsets(partitions=(eu,), expected={eu: 5}), stream=".*")
    apply(streams, lease, DropOffsets(partitions=(us,)), stream=".*")
    assert loaded(streams, lease).stored == {eu_1: ("eu", 7)}
    assignment = replace(a_task(lease), starts={us: 1}, checkpoints={0: {us: 1}}, ends={us: 4})
    apply(streams, lease, StartAssignment(assignment=assignment), stream=".*")
    assert loaded(streams, lease).tasks[0].assignment == assignment
    apply(streams, lease, DropOffsets(partitions=None))
    assert loaded(streams, lease).stored == {}


def test_a_partition_that_is_read_again_has_published_no_times(streams: Streams) -> None:
    lease = owned(streams)
    for partition in range(3):
        streams.set_offset(lease.supervisor, partition, 5, NOON)
    apply(streams, lease, PutOffsets(offsets={0: 4, 1: 5, 2: 6}))
    assert streams.event_times(lease.supervisor) == {0: None, 1: NOON, 2: NOON}
    apply(streams, lease, PutOffsets(offsets={2: 7}), stream="others")
    assert streams.event_times(lease.supervisor)[2] is None


def test_requests_are_consumed_with_their_effect_and_bad_ones_named(
    db: Tables, streams: Streams
) -> None:
    name = a_supervisor(streams)
    lease = owned(streams, name)
    before = renewed(streams, lease)
    first = streams.request(name, RequestKind.RESET, {"offsets": {"0": 3}})
    second = streams.request(name, RequestKind.HAND_OVER, {"groups": ["x"]})
    assert renewed(streams, lease) != before
    good, bad = loaded(streams, lease).requests
    assert good == Request(id=first, kind=RequestKind.RESET, offsets={0: 3})
    assert isinstance(bad, BadRequest)
    apply(streams, lease, TellPeople(text="it was reset"), requests=(first, second))
    assert loaded(streams, lease).requests == ()
    (alert,) = db.rows(t.alert)
    assert (alert["title"], alert["content"]) == (f"supervisor {name}", "it was reset")


def test_a_keeper_s_version_gives_way_to_a_person_s(streams: Streams) -> None:
    name = a_supervisor(streams)
    lease = owned(streams, name)
    wider = {**DOCUMENT, "more": 2}
    apply(streams, lease, PutSpec(document=wider))
    rows = loaded(streams, lease)
    assert (rows.version, rows.document) == (2, wider)
    streams.add_version(name, 3, None)
    apply(streams, lease, PutSpec(document=DOCUMENT), version=2)
    rows = loaded(streams, lease)
    assert (rows.version, rows.is_tombstone, rows.spec_version) == (3, True, 2)
    assert rows.document == wider
    assert streams.documents(name) == [None, wider, DOCUMENT]


def test_a_supervisor_that_ends_is_nobody_s_unless_it_was_submitted_anew(streams: Streams) -> None:
    name = a_supervisor(streams)
    lease = owned(streams, name)
    standing = Standing(
        state="STOPPING",
        detailed_state="STOPPING",
        healthy=True,
        recent_errors=({"text": "x"},),
        status={"lag": 3},
    )
    streams.add_version(name, 2, DOCUMENT, suspended=True)
    apply(streams, lease, ends=True, standing=standing)
    assert loaded(streams, lease).suspended
    apply(streams, lease, ends=True, version=2)
    with pytest.raises(LeaseLostError):
        apply(streams, lease)
    assert claimed(streams) == ()
    assert streams.standing(name) == (False, None, standing)
    streams.add_version(name, 3, DOCUMENT)
    assert owned(streams, name).epoch == lease.epoch + 1
