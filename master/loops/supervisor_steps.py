"""Turns the rows of a supervisor into the view that it decides by, and decisions into changes.

Pure: values in, values out. `master.loops.supervisor_loop` reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, assert_never

from common.model.streams.partitions import TopicPartition
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import Assignment, OrderKind, Orders
from common.store.master.supervisor_ports import (
    AddOffsets,
    Change,
    DropOffsets,
    EndTask,
    GiveAssignment,
    GiveOrders,
    PutOffsets,
    PutSpec,
    StartAssignment,
    StreamTaskRow,
    SupervisorRows,
    TellPeople,
)
from master.supervisors.decisions import (
    AskPause,
    AssignTask,
    Decision,
    EndSupervisor,
    EventKind,
    KillTask,
    RecordEvent,
    RecordStarts,
    Remember,
    RemoveOffsets,
    ResumeTasks,
    SaveTaskCount,
    ScheduleRun,
    SetEnds,
    SetOffsets,
    StartStandby,
    StartTask,
    StopTask,
)
from master.supervisors.view import (
    Checkpoints,
    Memory,
    StreamFailure,
    StreamSnapshot,
    StreamTask,
    SupervisorView,
    TaskEnd,
)


def view_of(
    rows: SupervisorRows,
    *,
    spec: SupervisorSpec,
    work: str,
    epoch: int,
    memory: Memory,
    stream: StreamSnapshot | StreamFailure,
) -> SupervisorView:
    """Return the view of a supervisor, without offsets of other streams.

    Offsets of topics that a pattern does not match stay in the view and have no effect.
    """
    return SupervisorView(
        spec=spec,
        work=work,
        epoch=epoch,
        memory=memory,
        stream=stream,
        stored={
            partition: offset
            for partition, (topic, offset) in rows.stored.items()
            if (
                spec.io.has_pattern
                if isinstance(partition, TopicPartition)
                else topic == spec.io.topic
            )
        },
        tasks=_seen(rows.tasks, memory),
    )


def closed_tasks(rows: SupervisorRows, memory: Memory) -> tuple[str, ...]:
    """Return the tasks that have ended and that no group of this memory has."""
    kept = _in_groups(memory)
    return tuple(
        row.assignment.name
        for row in rows.tasks
        if row.succeeded is not None and row.assignment.name not in kept
    )


def changes_of(
    decisions: Iterable[Decision], view: SupervisorView, rows: SupervisorRows
) -> tuple[tuple[Change, ...], ...]:
    """Return the changes of tables that each decision needs, in the order of the decisions."""
    return tuple(_Changes(view, rows).all_of(decisions))


class _Changes:
    """The changes of one step. It knows the orders given so far, so that numbers only grow."""

    def __init__(self, view: SupervisorView, rows: SupervisorRows) -> None:
        self._view = view
        self._rows = rows
        self._given = {name: task.request for name, task in view.tasks.items()}

    def all_of(self, decisions: Iterable[Decision]) -> Iterable[tuple[Change, ...]]:
        for decision in decisions:
            if changes := tuple(self._of(decision)):
                yield changes

    def _of(self, decision: Decision) -> Iterable[Change]:
        match decision:
            case StartTask():
                yield StartAssignment(assignment=self._assignment(decision))
            case AssignTask():
                yield GiveAssignment(assignment=self._assignment(decision))
            case StartStandby():
                yield StartAssignment(
                    assignment=Assignment(
                        name=decision.name,
                        supervisor=self._view.spec.id,
                        version=self._rows.spec_version,
                        group_id=decision.group_id,
                        base_sequence=decision.base_sequence,
                        starts={},
                        checkpoints={},
                    )
                )
            case AskPause():
                yield from self._orders(decision.tasks, decision.request, OrderKind.PAUSE)
            case ResumeTasks():
                yield from self._orders(decision.tasks, decision.request, OrderKind.RESUME)
            case SetEnds():
                for name in decision.tasks:
                    yield self._order(
                        name,
                        Orders(
                            version=decision.request,
                            command=OrderKind.END,
                            end=decision.ends,
                            sequence=decision.sequence,
                            finish=decision.finish,
                        ),
                    )
            case StopTask():
                version = self._given[decision.task] + 1
                yield from self._orders((decision.task,), version, OrderKind.STOP)
                # One that no worker runs yet would hear of it at some time or never.
                is_unheard = not self._view.tasks[decision.task].assigned
                yield EndTask(task=decision.task, reason=decision.reason, kill=is_unheard)
            case KillTask():
                yield EndTask(task=decision.task, reason=decision.reason, kill=True)
            case RecordStarts():
                yield AddOffsets(offsets=decision.offsets)
            case SetOffsets():
                yield PutOffsets(offsets=decision.offsets)
            case RemoveOffsets():
                yield DropOffsets(partitions=decision.partitions, expected=decision.expected)
            case SaveTaskCount():
                yield PutSpec(document=with_task_count(self._rows.document, decision.task_count))
            case RecordEvent():
                loss = (
                    "possible loss of records: " if decision.kind is EventKind.POSSIBLE_LOSS else ""
                )
                yield TellPeople(text=f"{loss}{decision.text}")
            case ScheduleRun() | EndSupervisor() | Remember():
                pass
            case _:
                assert_never(decision)

    def _assignment(self, start: StartTask | AssignTask) -> Assignment:
        return Assignment(
            name=start.name,
            supervisor=self._view.spec.id,
            version=self._rows.spec_version,
            group_id=start.group_id,
            base_sequence=start.base_sequence,
            starts=start.starts,
            checkpoints=start.checkpoints,
            min_time=start.min_time,
            max_time=start.max_time,
            ends=start.ends,
        )

    def _orders(self, names: Iterable[str], version: int, command: OrderKind) -> Iterable[Change]:
        for name in names:
            yield self._order(name, Orders(version=version, command=command))

    def _order(self, name: str, orders: Orders) -> GiveOrders:
        self._given[name] = orders.version
        return GiveOrders(task=name, orders=orders)


def with_task_count(document: Mapping[str, Any], task_count: int) -> dict[str, Any]:
    """Return a specification as JSON with another number of task groups."""
    changed = deepcopy(dict(document))
    below = changed.get("spec")
    parts = below if isinstance(below, dict) else changed
    parts["ioConfig"]["taskCount"] = task_count
    return changed


def _seen(rows: Iterable[StreamTaskRow], memory: Memory) -> dict[str, StreamTask]:
    kept = _in_groups(memory)
    return {
        row.assignment.name: _task(row)
        for row in rows
        if row.succeeded is None or row.assignment.name in kept
    }


def _in_groups(memory: Memory) -> frozenset[str]:
    groups = (*memory.reading.values(), *memory.publishing)
    return frozenset(name for group in groups for name in group.tasks)


def _task(row: StreamTaskRow) -> StreamTask:
    work, orders, report = row.assignment, row.orders, row.report
    finishing = orders.command is OrderKind.END and orders.finish
    end = None
    if row.succeeded is not None:
        end = TaskEnd.SUCCESS if row.succeeded else TaskEnd.FAILURE
    return StreamTask(
        name=work.name,
        base_sequence=work.base_sequence,
        starts=work.starts,
        checkpoints=_checkpoints(row),
        standby_of=work.group_id if work.is_standby else None,
        min_time=work.min_time,
        max_time=work.max_time,
        request=orders.version,
        paused=orders.command is OrderKind.PAUSE,
        ends=orders.end if finishing else work.ends,
        finishing=finishing,
        ending_since=row.ending_since,
        killed=row.killed,
        assigned=row.assigned,
        assigned_at=row.assigned_at,
        status=report.state,
        request_seen=report.obeyed,
        offsets=report.current,
        started=report.began if row.assigned else None,
        end=end,
    )


def _checkpoints(row: StreamTaskRow) -> Checkpoints:
    """Return the starts of its sequences: those it reports, and the one it was last told of."""
    told: dict[int, Offsets] = dict(row.assignment.checkpoints)
    if row.report.sequences:
        told = {each.id: each.start for each in row.report.sequences}
    orders = row.orders
    if orders.command is OrderKind.END and not orders.finish and orders.end is not None:
        told.setdefault((orders.sequence or 0) + 1, orders.end)
    return told
