"""Restarts ended process instances, takes over live ones, and stores intents.

Part of the transaction that takes commands. Each is one conditional update: a row that changed
since the snapshot makes the command a `Drop`, or a `Reject` if an attempt waits for the child. Used
by `common.store.master.commands` alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Text,
    all_,
    any_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.plans import (
    Drop,
    Handled,
    NewVersion,
    Reject,
    Restart,
    Resume,
    SetIntent,
)
from common.model.states import (
    FINISHED_TASK_STATES,
    LIVE_PROCESS_STATES,
    ExecutionType,
    ProcessState,
)
from common.store.executed import after_waiting, without_idle_time
from common.store.master.beginnings import claim_parents, discarded, not_waiting, refused, relate
from common.store.master.endings import give_up_promises
from common.store.master.serial import (
    DISPLACED,
    ended_waiting,
    is_serial_no_more,
    other_live_runs,
    want_stopped,
)
from common.store.tables import process_instance, task_instance
from common.store.transaction import passes, refusal

BEING_DELETED: Final = "is being deleted for its age; begin a new run"

_TERMINAL: Final = tuple(state for state in ProcessState if state.is_terminal)
BEGUN: Final = tuple(
    state for state in LIVE_PROCESS_STATES if state is not ProcessState.SERIAL_WAIT
)

_RESET: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == bindparam("run_id"))
    .where(task_instance.c.name == any_(cast(bindparam("names"), ARRAY(Text))))
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.state.in_(FINISHED_TASK_STATES))
    .values(flag=0, retry_at=null())
)
_NARROW: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == bindparam("run_id"))
    .where(task_instance.c.name != all_(cast(bindparam("names"), ARRAY(Text))))
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.retry_at.is_not(None))
    .values(retry_at=null())
)
_STATE: Final = select(process_instance.c.state, process_instance.c.process_definition_id).where(
    process_instance.c.id == bindparam("run_id")
)
_OTHER: Final = process_instance.alias("other_run")


class _NotSoError(Exception):
    """The instance is not as the plan has it: nothing of the plan may be committed."""


_IS_MARKED: Final = select(process_instance.c.flag == 0).where(
    process_instance.c.id == bindparam("run_id")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoverer:
    """The new owner of the instances, and the time."""

    node: Node
    now: datetime

    def restart(self, db: Connection, command_id: int, plan: Restart) -> Handled:
        """Make an ended instance live again, or let it wait for its turn."""
        try:
            with db.begin_nested():
                return self._restart(db, command_id, plan)
        except _NotSoError:
            reason = f"process instance {plan.process_instance_id} has been restarted since"
            if db.scalar(_IS_MARKED, {"run_id": plan.process_instance_id}):
                reason = f"process instance {plan.process_instance_id} {BEING_DELETED}"
            # An attempt that waits for this child must hear that it waits in vain.
            changed = Drop(reason=reason) if plan.child_of is None else Reject(reason=reason)
            return Handled(command_id=command_id, plan=changed)
        except (DBAPIError, ValueError) as error:
            if passes(error):
                raise
            return Handled(command_id=command_id, plan=refused(refusal(error)))

    def _restart(self, db: Connection, command_id: int, plan: Restart) -> Handled:
        waits = False
        if plan.child_of is not None:
            if not claim_parents(db, [plan.child_of], now=self.now):
                return Handled(command_id=command_id, plan=not_waiting(plan.child_of))
        elif plan.execution_type is not ExecutionType.PARALLEL:
            others = self._other_live_runs(db, plan)
            if others and plan.execution_type is ExecutionType.SERIAL_DISCARD:
                return Handled(command_id=command_id, plan=Drop(reason=discarded(others)))
            if others and plan.execution_type is ExecutionType.SERIAL_PRIORITY:
                want_stopped(db, dict.fromkeys(others, DISPLACED), now=self.now)
            waits = bool(others)
        epoch = db.scalar(
            update(process_instance)
            .where(process_instance.c.id == plan.process_instance_id)
            .where(process_instance.c.owner_epoch == plan.epoch)
            .where(process_instance.c.state.in_(_TERMINAL))
            .where(process_instance.c.flag == 1)
            .values(self._restarted(plan, waits=waits))
            .returning(process_instance.c.owner_epoch)
        )
        if epoch is None:
            raise _NotSoError
        if plan.reset:
            names = {"run_id": plan.process_instance_id, "names": list(plan.reset)}
            changed = db.execute(_RESET, names).rowcount
            if plan.version is not None and changed != len(plan.reset):
                # A result of the former version would stay beside the new definition.
                raise _NotSoError
        if plan.run_scope is not None:
            # Only the chosen nodes begin, so nobody would keep what was promised to the others.
            db.execute(_NARROW, {"run_id": plan.process_instance_id, "names": list(plan.run_scope)})
        if plan.child_of is not None:
            relate(db, {plan.process_instance_id: plan.child_of})
        if waits:
            return Handled(command_id=command_id, plan=plan)
        return self._owned(command_id, plan, epoch)

    def _restarted(self, plan: Restart, *, waits: bool) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "state": int(ProcessState.SERIAL_WAIT if waits else ProcessState.RUNNING),
            "host": None if waits else self.node.address,
            "owner_incarnation": None if waits else self.node.incarnation,
            "owner_epoch": process_instance.c.owner_epoch + 1,
            "run_times": process_instance.c.run_times + 1,
            "end_time": None,
            "state_reason": None,
            "wanted_state": None,
            "wanted_at": None,
            "wanted_deadline": None,
            "timeout_flag": 0,
            # From now on a time-out counts anew; the start stays what a person knows it by.
            "restart_time": self.now,
            "duration_from": without_idle_time(process_instance.c.end_time, _moment(self.now)),
            "run_scope": (
                None
                if plan.run_scope is None
                else json.dumps(list(plan.run_scope), ensure_ascii=False)
            ),
            "command_type": int(plan.command_type),
            "history_cmd": _history(plan.command_type),
            "update_time": self.now,
        }
        if plan.global_params is not None:
            columns["global_params"] = plan.global_params
        if plan.command_param is not None:
            columns["command_param"] = plan.command_param
        if plan.afresh:
            columns |= {"start_time": self.now, "duration_from": None}
        if plan.version is not None:
            columns |= _columns_of(plan.version)
        if plan.child_of is not None:
            columns["parent_task_instance_id"] = plan.child_of.task_instance_id
            columns["root_id"] = plan.child_of.root_id
        return columns

    def _other_live_runs(self, db: Connection, plan: Restart) -> Sequence[int]:
        row = db.execute(_STATE, {"run_id": plan.process_instance_id}).first()
        if row is None:
            raise _NotSoError
        return other_live_runs(db, row.process_definition_id, apart_from=plan.process_instance_id)

    def resume(self, db: Connection, command_id: int, plan: Resume) -> Handled:
        """Take over a live instance, or let one begin whose turn has come."""
        columns: dict[str, Any] = {
            "host": self.node.address,
            "owner_incarnation": self.node.incarnation,
            "owner_epoch": process_instance.c.owner_epoch + 1,
            "command_type": int(plan.command_type),
            "history_cmd": _history(plan.command_type),
            "update_time": self.now,
        }
        expected: ColumnElement[bool]
        reason = f"process instance {plan.process_instance_id} "
        match plan.command_type:
            case CommandType.RECOVER_WAITTING_THREAD:
                expected = process_instance.c.state == ProcessState.WAITING_THREAD
                columns["state"] = int(ProcessState.RUNNING)
                reason += "does not wait for room"
            case CommandType.RECOVER_SERIAL_WAIT:
                expected = (process_instance.c.state == ProcessState.SERIAL_WAIT) & _IS_ITS_TURN
                columns |= {
                    "state": int(ProcessState.RUNNING),
                    # A run that was restarted stays known by the time of its start.
                    "start_time": case(
                        (process_instance.c.restart_time.is_(None), _moment(self.now)),
                        else_=process_instance.c.start_time,
                    ),
                    "restart_time": self.now,
                    "duration_from": after_waiting(_moment(self.now)),
                }
                reason = f"it is not the turn of process instance {plan.process_instance_id}"
            case _:
                expected = process_instance.c.state.in_(BEGUN)
                columns["recovery"] = 1
                reason += "has been taken over, has ended or waits for its turn"
        epoch = db.scalar(
            update(process_instance)
            .where(process_instance.c.id == plan.process_instance_id)
            .where(process_instance.c.owner_epoch == plan.epoch)
            .where(expected)
            .values(columns)
            .returning(process_instance.c.owner_epoch)
        )
        if epoch is None:
            return Handled(command_id=command_id, plan=Drop(reason=reason))
        return self._owned(command_id, plan, epoch)

    def set_intent(self, db: Connection, command_id: int, plan: SetIntent) -> Handled:
        """Store an intent by one narrow update, so that a run that ends now stays ended."""
        asked: ColumnElement[bool] = process_instance.c.wanted_state.is_(None)
        if plan.wanted_state is ProcessState.STOP:
            # A run that is being ended since it took too long has failed, whoever stops it now.
            asked |= process_instance.c.wanted_state == ProcessState.PAUSE
        recorded = {
            "command_type": int(plan.command_type),
            "history_cmd": _history(plan.command_type),
            "update_time": self.now,
        }
        changed = db.execute(
            update(process_instance)
            .where(process_instance.c.id == plan.process_instance_id)
            .where(process_instance.c.state.in_(BEGUN))
            .where(asked)
            .values(wanted_state=int(plan.wanted_state), wanted_at=self.now, **recorded)
        ).rowcount
        if changed == 0:
            return self._end_waiting(db, command_id, plan, recorded)
        return Handled(command_id=command_id, plan=plan)

    def _end_waiting(
        self, db: Connection, command_id: int, plan: SetIntent, recorded: dict[str, Any]
    ) -> Handled:
        state = db.scalar(_STATE, {"run_id": plan.process_instance_id})
        if state == ProcessState.SERIAL_WAIT and plan.wanted_state is ProcessState.STOP:
            changed = db.execute(
                update(process_instance)
                .where(process_instance.c.id == plan.process_instance_id)
                .where(process_instance.c.state == ProcessState.SERIAL_WAIT)
                .values(**ended_waiting(_moment(self.now)), **recorded)
            )
            if changed.rowcount == 1:
                give_up_promises(db, [plan.process_instance_id])
                return Handled(command_id=command_id, plan=plan)
        reason = (
            f"process instance {plan.process_instance_id} has not begun"
            if state == ProcessState.SERIAL_WAIT
            else f"process instance {plan.process_instance_id} has ended or is asked for "
            f"{plan.wanted_state.name} already"
        )
        return Handled(command_id=command_id, plan=Drop(reason=reason))

    def _owned(self, command_id: int, plan: Resume | Restart, epoch: int) -> Handled:
        owned = Ownership(
            process_instance_id=plan.process_instance_id, host=self.node.address, epoch=epoch
        )
        return Handled(command_id=command_id, plan=plan, ownership=owned)


_HAS_OTHER_LIVE_RUN: Final = (
    exists()
    .where(_OTHER.c.process_definition_id == process_instance.c.process_definition_id)
    .where(_OTHER.c.is_sub_process == 0)
    .where(_OTHER.c.state.in_(BEGUN))
    .where(_OTHER.c.id != process_instance.c.id)
)
_IS_ITS_TURN: Final = or_(~_HAS_OTHER_LIVE_RUN, is_serial_no_more(process_instance))


def _columns_of(version: NewVersion) -> dict[str, Any]:
    """Return the columns of a run that it has from its definition."""
    return {
        "definition_version": version.version,
        "process_instance_json": version.process_instance_json,
        "timeout": version.timeout_minutes,
        "timeout_strategy": int(version.timeout_strategy),
        "tenant_id": version.tenant_id,
        "locations": version.locations,
        "connects": version.connects,
    }


def _moment(when: datetime) -> ColumnElement[datetime]:
    return literal(when, DateTime(timezone=True))


def _history(command_type: CommandType) -> Any:
    """Append a name to `history_cmd`."""
    before = func.nullif(process_instance.c.history_cmd, "")
    return func.concat_ws(",", before, cast(command_type.name, Text))
