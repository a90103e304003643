"""`CommandStore` in memory: takes commands off their table and carries out their plans."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, assert_never

from common.errors import BadCommandError
from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.commands import RESTARTING_COMMANDS, Command, CommandType
from common.model.complement_states import DateState
from common.model.instances import Ownership, TaskRow
from common.model.plans import (
    Begin,
    ChildOf,
    Complement,
    DependentDefinition,
    Drop,
    Handled,
    InstanceSnapshot,
    LedgerLine,
    ParentSnapshot,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
    Snapshot,
    line_of,
)
from common.model.reach import Target
from common.model.slot_share import RoomShare
from common.model.states import ExecutionType, ProcessState, TaskDependType, TaskState
from common.store.master.commands import (
    PARAM_LIMIT_BYTES,
    known_state,
    planned,
    refused,
    understand,
)
from common.store.master.lanes import Served
from common.store.master.plain_save import HintTarget, no_hint
from common.store.master.ports import CommandStore, FirstStep, LiveMasters, Planner, Taken
from common.store.master.recoveries import BEING_DELETED
from common.store.master.serial import DISPLACED
from common.store.transaction import storable, unstorable
from tests.memory import serial
from tests.memory.command_rows import (
    columns_of_version,
    command_row,
    definition_snapshot,
    history,
    new_process_instance,
)
from tests.memory.complements import create_complements, may_begin_date
from tests.memory.database import MemoryDatabase, RowRefusedError, Transaction
from tests.memory.first_steps import write_first_steps
from tests.memory.ledger import enter
from tests.memory.project_slots import projects_of_runs, several_projects
from tests.memory.reading import names_in, origin_of, task_row
from tests.memory.rows import (
    DEPENDENT,
    SUB_PROCESS,
    CommandRecord,
    ErrorCommandRecord,
    ProcessRecord,
)
from tests.memory.schedules import note_beginnings, online_schedules
from tests.memory.sub_processes import fail_childless
from tests.memory.waiting import waiting

_ABOUT_THE_NAMED_ONE = (
    CommandType.RECOVER_TOLERANCE_FAULT_PROCESS,
    CommandType.RECOVER_WAITTING_THREAD,
    CommandType.RECOVER_SERIAL_WAIT,
    CommandType.EXECUTE_TASK,
)
"""Commands about a sub process itself; all others go to the root of its tree."""


class _DroppedError(Exception):
    """The rows no longer match the plan; what was written for it is rolled back."""


class _RejectedError(Exception):
    """As `_DroppedError`, but an attempt waits for the result of the command."""


class MemoryCommandStore(CommandStore):
    """`CommandStore` in memory."""

    def __init__(
        self,
        database: MemoryDatabase,
        *,
        param_limit_bytes: int = PARAM_LIMIT_BYTES,
        hint_to: HintTarget = no_hint,
    ) -> None:
        self._db = database
        self.hint_to = hint_to
        self._param_limit_bytes = param_limit_bytes
        self._begun: dict[int, int] = {}
        self._served = Served()

    def waiting(self) -> bool:
        return len(self._db.commands) > 0

    def projects(self, process_instance_ids: Collection[int]) -> dict[int, int]:
        return projects_of_runs(self._db, process_instance_ids)

    def several_projects(self) -> bool:
        return several_projects(self._db)

    def take(
        self,
        *,
        node: Node,
        limit: int,
        room: int,
        spare: int,
        live_masters: LiveMasters,
        planner: Planner,
        now: datetime,
        first_step: FirstStep | None = None,
        share: RoomShare | None = None,
    ) -> Taken:
        self._begun.clear()
        with self._db.transaction("take", by=node) as tx:
            rows = waiting(self._db, self._served, limit=limit, room=room, spare=spare, share=share)
            failover = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS
            is_asked = any(row.command_type == failover for row in rows)
            alive = live_masters() if is_asked else frozenset[Node]()
            batch = [(row, self._plan(row, alive, planner)) for row in rows]
            handled = tuple(self._carry_out(tx, row, plan, node, now) for row, plan in batch)
            scheduled = [row.id for row, _ in batch if row.command_type == CommandType.SCHEDULER]
            note_beginnings(tx, {i: self._begun[i] for i in scheduled if i in self._begun})
            taken = Taken(handled=handled)
            if first_step is not None:
                taken = write_first_steps(tx, taken, first_step)
                hinted = tx.hint(self.hint_to, taken.saved.offers)
                taken = replace(taken, saved=replace(taken.saved, hinted=hinted))
            return taken

    # The planner's view

    def _plan(self, row: CommandRecord, live_masters: frozenset[Node], planner: Planner) -> Plan:
        command = understand(
            command_row(row, self._param_limit_bytes), param_limit_bytes=self._param_limit_bytes
        )
        if isinstance(command, Reject):
            return command
        return planned(command, lambda: self._snapshot(command, live_masters), planner)

    def _snapshot(self, command: Command, live_masters: frozenset[Node]) -> Snapshot:
        process = self._db.processes.get(command.process_instance_id)
        if (
            process is not None
            and process.root_id
            and not command.parent_task_instance_id
            and command.command_type not in _ABOUT_THE_NAMED_ONE
        ):
            process = self._db.processes.get(process.root_id)
        definition = self._db.definitions.get(
            command.process_definition_id
            or (0 if process is None else process.process_definition_id)
        )
        return Snapshot(
            definition=None if definition is None else definition_snapshot(self._db, definition),
            instance=None if process is None else self._instance(process, command.command_type),
            asked_instance_id=command.process_instance_id,
            parent=self._parent(command.parent_task_instance_id),
            live_masters=live_masters,
            **self._complement_facts(command),
        )

    def _complement_facts(self, command: Command) -> dict[str, Any]:
        if (
            command.command_type is not CommandType.COMPLEMENT_DATA
            or command.complement_date_id
            or command.parent_task_instance_id
        ):
            return {}
        found: dict[str, Any] = {
            "schedules": online_schedules(self._db, command.process_definition_id)
        }
        if command.param.get("complementDependentMode") == "ALL_DEPENDENT":
            found["dependents"] = tuple(
                DependentDefinition(
                    id=row.id,
                    name=row.name,
                    process_definition_json=row.process_definition_json or "",
                    schedules=online_schedules(self._db, row.id),
                    project_id=row.project_id,
                    named=tuple(
                        Target(id=each.id, project_id=each.project_id, name=each.name)
                        for each in self._db.definitions
                        if each.project_id == row.project_id
                    ),
                )
                for row in self._db.definitions
                if row.flag == 1
                and row.release_state == 1
                and f'"{DEPENDENT}"' in (row.process_definition_json or "")
            )
        return found

    def _instance(self, process: ProcessRecord, command_type: CommandType) -> InstanceSnapshot:
        state = known_state(process.id, process.state)
        recovery: dict[str, Any] = {}
        if command_type in RESTARTING_COMMANDS:
            recovery = {
                "command_param": process.command_param or "",
                "process_instance_json": process.process_instance_json,
                "global_params": process.global_params,
                "task_depend_type": TaskDependType(process.task_depend_type),
                "history": process.history,
                "schedule_time": process.schedule_time,
                "business_time": process.business_time,
                "timezone_id": process.timezone_id,
                "execution_type": (
                    None
                    if process.execution_type is None
                    else ExecutionType(process.execution_type)
                ),
                "run_scope": names_in(process.run_scope, "run_scope"),
                "start_time": process.start_time,
                "worker_group_id": process.worker_group_id,
                "project_id": self._project_of(process.process_definition_id),
                "tasks": self._tasks(process.id),
            }
        return InstanceSnapshot(
            id=process.id,
            state=state,
            owner=process.owner,
            owner_epoch=process.owner_epoch,
            process_definition_id=process.process_definition_id,
            root_id=process.root_id,
            **recovery,
        )

    def _tasks(self, process_instance_id: int) -> tuple[TaskRow, ...]:
        try:
            return tuple(task_row(task) for task in self._db.attempts(process_instance_id))
        except ValueError as error:
            raise BadCommandError(
                f"a task of process instance {process_instance_id} can't be read: {error}"
            ) from error

    def _parent(self, task_instance_id: int) -> ParentSnapshot | None:
        task = self._db.tasks.get(task_instance_id)
        if task is None or task.task_type != SUB_PROCESS:
            return None
        process = self._db.processes.the(task.process_instance_id)
        param = CommandParam.as_stored(process.command_param)
        return ParentSnapshot(
            process_instance_id=process.id,
            task_instance_id=task.id,
            task_name=task.name,
            task_json=task.task_json,
            input_pool=task.input_pool,
            waits=task.state == TaskState.SUBMITTED and process.is_live,
            root_id=process.root_id or process.id,
            history=process.history,
            global_params=process.global_params,
            schedule_time=process.schedule_time,
            business_time=process.business_time,
            ancestors=self._ancestors(process),
            timezone_id=process.timezone_id,
            environment_code=param.stored_environment_code,
            project_id=self._project_of(process.process_definition_id),
            took_latest=param.took_latest,
            wants_fresh_child=task.name in param.fresh_children,
            origin=origin_of(self._db, process.process_definition_id),
        )

    def _project_of(self, definition_id: int) -> int | None:
        found = self._db.definitions.get(definition_id)
        return None if found is None else found.project_id

    def _ancestors(self, process: ProcessRecord) -> tuple[int, ...]:
        found = [process.process_definition_id]
        while (task := self._db.tasks.get(process.parent_task_instance_id)) is not None:
            process = self._db.processes.the(task.process_instance_id)
            found.append(process.process_definition_id)
        return tuple(reversed(found))

    # Carrying out plans

    def _carry_out(
        self, tx: Transaction, row: CommandRecord, plan: Plan, node: Node, now: datetime
    ) -> Handled:
        result: Plan = plan
        ownership = None
        try:
            with tx.savepoint():
                ownership = self._attempt(tx, row.id, plan, node, now)
        except RowRefusedError as error:
            result = refused(str(error))
        except _DroppedError as error:
            result = Drop(reason=str(error))
        except _RejectedError as error:
            result = Reject(reason=str(error))
        if isinstance(result, Reject):
            self._move_to_errors(tx, row, storable(result.reason), now)
        handled = Handled(command_id=row.id, plan=result, ownership=ownership)
        enter(tx, row, self._line(row, handled), host=node.address, now=now)
        return handled

    def _line(self, row: CommandRecord, handled: Handled) -> LedgerLine:
        command = understand(
            command_row(row, self._param_limit_bytes), param_limit_bytes=self._param_limit_bytes
        )
        made = None if isinstance(handled.plan, Reject) else self._begun.get(row.id)
        process = None if made is None else self._db.processes.the(made)
        return line_of(
            handled,
            named=None if isinstance(command, Reject) else command.process_instance_id,
            made=made,
            discarded=(
                process.state_reason if process is not None and not process.is_live else None
            ),
        )

    def forget(self, *, before: datetime) -> bool:
        with self._db.transaction("forget") as tx:
            for line in list(self._db.ledger):
                if line.handled_at < before:
                    tx.delete(self._db.ledger, line.id)
        return False

    def _move_to_errors(
        self, tx: Transaction, row: CommandRecord, message: str, now: datetime
    ) -> None:
        columns = {f.name: getattr(row, f.name) for f in fields(row)}
        command_id, parent_id = columns.pop("id"), columns.pop("parent_task_instance_id")
        del columns["complement_date_id"], columns["project_id"]
        tx.insert(
            self._db.error_commands,
            ErrorCommandRecord(command_id=command_id, message=message, **columns),
        )
        parent = self._db.tasks.get(parent_id)
        if parent is not None:
            fail_childless(tx, parent, message, now)

    def _attempt(
        self, tx: Transaction, command_id: int, plan: Plan, node: Node, now: datetime
    ) -> Ownership | None:
        match plan:
            case Begin():
                return self._begin(tx, command_id, plan, node, now)
            case Complement():
                create_complements(tx, plan.complements, command_id=command_id, now=now)
            case Restart():
                return self._restart(tx, plan, node, now)
            case Resume():
                return self._resume(tx, plan, node, now)
            case SetIntent():
                self._set_intent(tx, plan, now)
            case Drop() | Reject():
                pass
            case _:
                assert_never(plan)
        return None

    def _begin(
        self, tx: Transaction, command_id: int, plan: Begin, node: Node, now: datetime
    ) -> Ownership | None:
        columns = new_process_instance(plan, node=node, now=now) | {"command_id": command_id}
        if plan.complement_date_id and not self._may_begin(plan.complement_date_id, command_id):
            raise _DroppedError(
                f"date {plan.complement_date_id} of a complement does not wait for this command"
                " any more"
            )
        if plan.child_of is not None:
            self._begin_for_parent(tx, plan.child_of, now)
            columns |= {
                "is_sub_process": 1,
                "root_id": plan.child_of.root_id,
                "parent_task_instance_id": plan.child_of.task_instance_id,
            }
        others = self._blockers(plan.execution_type, plan.child_of, plan.process_definition_id)
        if others:
            columns |= self._held_up(tx, plan.execution_type, others, now)
        process_id = tx.insert(self._db.processes, ProcessRecord(**columns))
        self._begun[command_id] = process_id
        if plan.complement_date_id:
            tx.update(
                self._db.complement_dates,
                plan.complement_date_id,
                state=DateState.RUNNING,
                process_instance_id=process_id,
                update_time=now,
            )
        if plan.child_of is not None:
            self._relate(tx, plan.child_of, process_id)
            param = CommandParam.as_stored(plan.command_param).of_child(process_id).text()
            tx.update(self._db.processes, process_id, command_param=param)
        return None if others else self._db.processes.the(process_id).ownership

    def _may_begin(self, complement_date_id: int, command_id: int) -> bool:
        return may_begin_date(self._db, complement_date_id, command_id)

    def _blockers(
        self, execution_type: ExecutionType, child_of: ChildOf | None, definition_id: int
    ) -> list[ProcessRecord]:
        """The runs that keep a top-level run from beginning now."""
        if execution_type is ExecutionType.PARALLEL or child_of is not None:
            return []
        return serial.others_live(self._db, definition_id)

    def _held_up(
        self,
        tx: Transaction,
        execution_type: ExecutionType,
        others: list[ProcessRecord],
        now: datetime,
    ) -> dict[str, Any]:
        """The columns of a new run that may not begin now."""
        nobody = {"host": None, "owner_incarnation": None, "owner_epoch": 0}
        if execution_type is ExecutionType.SERIAL_DISCARD:
            reason = f"discarded: process instance {others[0].id} of this definition is still live"
            return nobody | {
                "state": int(ProcessState.STOP),
                "end_time": now,
                "state_reason": reason,
            }
        if execution_type is ExecutionType.SERIAL_PRIORITY:
            serial.ask_to_stop(tx, others, now, reason=DISPLACED)
        return nobody | {"state": int(ProcessState.SERIAL_WAIT)}

    def _begin_for_parent(self, tx: Transaction, child_of: ChildOf, now: datetime) -> None:
        """Move the attempt that waits for this sub process on, or drop the command (T36c)."""
        task = self._db.tasks.get(child_of.task_instance_id)
        process = None if task is None else self._db.processes.get(task.process_instance_id)
        if (
            task is None
            or task.state != TaskState.SUBMITTED
            or process is None
            or not process.is_live
        ):
            raise _DroppedError(
                f"task instance {child_of.task_instance_id} does not wait for it any more"
            )
        tx.update(self._db.tasks, task.id, state=int(TaskState.RUNNING), start_time=now)

    def _relate(self, tx: Transaction, child_of: ChildOf, child_id: int) -> None:
        for relation in self._db.relations:
            if (
                relation.parent_process_instance_id == child_of.process_instance_id
                and relation.parent_task_instance_id == child_of.task_instance_id
            ):
                tx.update(self._db.relations, relation.id, process_instance_id=child_id)

    def _restart(
        self, tx: Transaction, plan: Restart, node: Node, now: datetime
    ) -> Ownership | None:
        if plan.child_of is not None:
            self._begin_for_parent(tx, plan.child_of, now)
        process = self._db.processes.get(plan.process_instance_id)
        if (
            process is None
            or not ProcessState(process.state).is_terminal
            or process.owner_epoch != plan.epoch
        ):
            reason = f"process instance {plan.process_instance_id} has been restarted since"
            raise _DroppedError(reason) if plan.child_of is None else _RejectedError(reason)
        if process.flag == 0:
            reason = f"process instance {process.id} {BEING_DELETED}"
            raise _DroppedError(reason) if plan.child_of is None else _RejectedError(reason)
        given = {"global_params": plan.global_params, "command_param": plan.command_param}
        cause = unstorable(given)
        if cause is not None:
            raise RowRefusedError(cause)
        columns: dict[str, Any] = {
            "state": int(ProcessState.RUNNING),
            "host": node.address,
            "owner_incarnation": node.incarnation,
        }
        if plan.child_of is not None:
            self._relate(tx, plan.child_of, process.id)
            columns |= {
                "root_id": plan.child_of.root_id,
                "parent_task_instance_id": plan.child_of.task_instance_id,
            }
        others = self._blockers(plan.execution_type, plan.child_of, process.process_definition_id)
        if others and plan.execution_type is ExecutionType.SERIAL_DISCARD:
            raise _DroppedError(
                f"discarded: process instance {others[0].id} of this definition is still live"
            )
        if others:
            columns |= self._held_up(tx, plan.execution_type, others, now)
        scope = plan.run_scope
        columns |= {name: value for name, value in given.items() if value is not None}
        start = serial.without_idle_time(process, process.end_time, now)
        columns |= {"restart_time": now, "duration_from": None if plan.afresh else start}
        columns |= {"start_time": now} if plan.afresh else {}
        if plan.version is not None:
            columns |= columns_of_version(plan.version)
        columns |= {
            "owner_epoch": process.owner_epoch + 1,
            "run_times": process.run_times + 1,
            "end_time": None,
            "state_reason": None,
            "wanted_state": None,
            "wanted_at": None,
            "wanted_deadline": None,
            "timeout_flag": 0,
            "run_scope": None if scope is None else json.dumps(list(scope), ensure_ascii=False),
            "command_type": int(plan.command_type),
            "history_cmd": history(process, plan.command_type),
            "update_time": now,
        }
        tx.update(self._db.processes, process.id, **columns)
        left = set(plan.reset)
        for task in self._db.attempts(process.id):
            if task.name in plan.reset and task.flag == 1 and task.is_finished:
                tx.update(self._db.tasks, task.id, flag=0, retry_at=None)
                left.remove(task.name)
            elif task.flag == 1 and scope is not None and task.name not in scope:
                tx.update(self._db.tasks, task.id, retry_at=None)
        if left and plan.version is not None:
            reason = f"process instance {process.id} has been restarted since"
            raise _DroppedError(reason) if plan.child_of is None else _RejectedError(reason)
        return None if others else self._db.processes.the(process.id).ownership

    def _resume(self, tx: Transaction, plan: Resume, node: Node, now: datetime) -> Ownership:
        process = self._db.processes.get(plan.process_instance_id)
        if process is None or not process.is_live or process.owner_epoch != plan.epoch:
            raise _DroppedError(
                f"process instance {plan.process_instance_id} has been taken over or has ended"
            )
        columns: dict[str, Any]
        match plan.command_type:
            case CommandType.RECOVER_SERIAL_WAIT:
                if not process.is_waiting or (
                    not serial.is_serial_no_more(self._db, process)
                    and any(
                        not other.is_waiting
                        for other in serial.others_live(
                            self._db, process.process_definition_id, apart_from=process.id
                        )
                    )
                ):
                    raise _DroppedError(f"it is not the turn of process instance {process.id}")
                columns = {
                    "state": int(ProcessState.RUNNING),
                    "start_time": now if process.restart_time is None else process.start_time,
                    "restart_time": now,
                    "duration_from": serial.after_waiting(process, now),
                }
            case CommandType.RECOVER_WAITTING_THREAD:
                if process.state != ProcessState.WAITING_THREAD:
                    raise _DroppedError(f"process instance {process.id} does not wait for room")
                columns = {"state": int(ProcessState.RUNNING)}
            case _:
                if process.is_waiting:
                    raise _DroppedError(f"process instance {process.id} waits for its turn")
                columns = {"recovery": 1}
        tx.update(
            self._db.processes,
            process.id,
            host=node.address,
            owner_incarnation=node.incarnation,
            owner_epoch=plan.epoch + 1,
            command_type=int(plan.command_type),
            history_cmd=history(process, plan.command_type),
            update_time=now,
            **columns,
        )
        return self._db.processes.the(process.id).ownership

    def _set_intent(self, tx: Transaction, plan: SetIntent, now: datetime) -> None:
        process = self._db.processes.get(plan.process_instance_id)
        # A pause does not replace an intent to stop or to fail.
        replaced = (None, ProcessState.PAUSE) if plan.wanted_state is ProcessState.STOP else (None,)
        is_asked = process is not None and process.wanted_state not in replaced
        if process is None or not process.is_live or (is_asked and not process.is_waiting):
            raise _DroppedError(
                f"process instance {plan.process_instance_id} has ended or is asked for "
                f"{plan.wanted_state.name} already"
            )
        columns: dict[str, Any] = {"command_type": int(plan.command_type)}
        columns["history_cmd"] = history(process, plan.command_type)
        if not process.is_waiting:
            columns |= {"wanted_state": int(plan.wanted_state), "wanted_at": now}
            tx.update(self._db.processes, process.id, **columns, update_time=now)
        elif plan.wanted_state is ProcessState.STOP:
            serial.end_waiting(tx, process, now, **columns)
        else:
            raise _DroppedError(f"process instance {process.id} has not begun")
