"""People's requests to the cluster at any moment: runs, and every other command.

They write rows as a person would with psql or the command line, and never read a daemon. Their
requests may be refused, may be in vain, and may be made twice.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from common.model.commands import CommandOutcome, CommandType
from common.model.complement_states import ComplementState
from common.model.states import ExecutionType, ProcessState, TaskDependType, TaskState
from tests.memory.store import (
    ComplementRecord,
    MemoryDatabase,
    ProcessRecord,
    RowRefusedError,
)
from tests.simulation import intents
from tests.simulation.definitions import GOOD_VALUE, PARAMETER, Drawn
from tests.simulation.faults import Options
from tests.simulation.virtual_clock import START, VirtualClock

_FORCIBLE = (TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE)
_STOPPING = (ProcessState.STOP, ProcessState.FAILURE)
_KINDS = (
    "start",
    "pause",
    "stop",
    "want_pause",
    "want_stop",
    "stop_child",
    "recover",
    "rerun",
    "repeat",
    "execute",
    "twice",
    "force",
    "resize",
    "toggle",
    "complement",
    "pause_complement",
    "resume_complement",
    "cancel_complement",
    "retry_complement",
)
_OF_SCHEDULES = ("schedule", "schedule", "schedule")
_MANY_DATES = 300


class People:
    """The people of a world. `log` records their acts for the reader of a failing seed."""

    def __init__(
        self,
        random: Random,
        options: Options,
        database: MemoryDatabase,
        clock: VirtualClock,
        *,
        definitions: tuple[Drawn, ...],
        log: Callable[[str], None],
        last: timedelta,
    ) -> None:
        self._random = random
        self._database = database
        self._clock = clock
        self._definitions = definitions
        self._log = log
        self._complements = options.complements
        self._kinds = options.kinds or (*_KINDS, *(_OF_SCHEDULES if options.schedules else ()))
        self._starts = deque(
            sorted(
                (timedelta(seconds=random.uniform(0, 12)), index)
                for index in range(random.randint(*options.starts))
            )
        )
        # The last one is above the others, and those that wait for others need some to wait for.
        *others, last_one = definitions
        self._wanted = [last_one, *random.sample(others, len(others))]
        scattered = random.randint(0, options.acts)
        self._acts = deque(
            sorted(
                timedelta(seconds=random.uniform(1, last.total_seconds())) for _ in range(scattered)
            )
        )
        self._quick_acts = options.acts - scattered
        self._tidied = False

    @property
    def are_done(self) -> bool:
        """True if they have no more requests of their own."""
        return not self._acts and not self._starts

    def act_when_due(self, now: timedelta) -> None:
        """Act as far as it is time."""
        while self._starts and self._starts[0][0] <= now:
            _, index = self._starts.popleft()
            self._start(self._wanted[index % len(self._wanted)])
        while self._acts and self._acts[0] <= now:
            self._acts.popleft()
            self.act()

    def react_to_end(self) -> None:
        """An attempt has just ended, and its end is not settled yet."""
        if self._quick_acts and self._random.random() < 0.25:
            self._quick_acts -= 1
            self.act()

    def stop_acting(self) -> None:
        """Make no more requests, and open every closed pool."""
        self._acts.clear()
        self._quick_acts = 0
        for pool in self._database.pools:
            if pool.status != 1:
                self._database.update(self._database.pools, pool.id, status=1)

    def resume_once(self) -> bool:
        """Once: resume paused runs, and many stopped or failed ones; true if there were any."""
        if self._tidied:
            return False
        self._tidied = True
        before = len(self._database.changes)
        for process in self._roots():
            match ProcessState(process.state):
                case ProcessState.PAUSE:
                    self._command(CommandType.RECOVER_SUSPENDED_PROCESS, process)
                case ProcessState.STOP if self._random.random() < 0.3:
                    self._command(CommandType.RECOVER_SUSPENDED_PROCESS, process)
                case ProcessState.FAILURE if self._random.random() < 0.6:
                    self._command(CommandType.START_FAILURE_TASK_PROCESS, process)
        for row in self._database.complements:
            if row.state in intents.RESUMABLE:
                self._change_complement(row, intents.resumed(self._database, row))
            elif row.state == ComplementState.FAILURE and self._random.random() < 0.3:
                self._try_again(row)
        return len(self._database.changes) > before

    def resume_again(self) -> None:
        """Resume runs that are still paused: another run may have blocked them the first time."""
        if not self._tidied:
            return
        for process in self._roots():
            if process.state == ProcessState.PAUSE:
                self._command(CommandType.RECOVER_SUSPENDED_PROCESS, process)

    def resume_discarded(self) -> bool:
        """Resume those again whose recovery met another run of theirs; true if there were any."""
        newest = {line.process_instance_id: line for line in self._database.ledger}
        found = [
            process
            for process in self._roots()
            if process.state == ProcessState.PAUSE
            and process.id in newest
            and newest[process.id].command_type == CommandType.RECOVER_SUSPENDED_PROCESS
            and newest[process.id].outcome == CommandOutcome.DROPPED
            and (newest[process.id].reason or "").startswith("discarded")
        ]
        for process in found:
            self._command(CommandType.RECOVER_SUSPENDED_PROCESS, process)
        return bool(found)

    def stop_everything(self) -> bool:
        """Stop all live runs; true if there were any."""
        found = [p for p in self._roots() if p.is_live and p.wanted_state not in _STOPPING]
        for process in found:
            self._command(CommandType.STOP, process)
        return bool(found)

    def cancel_long_complements(self) -> None:
        """Cancel complements of hundreds of dates: of a definition that got a schedule meanwhile."""
        for row in self._database.complements:
            dates = self._database.dates(row.id)
            if row.state == ComplementState.RUNNING and len(dates) > _MANY_DATES:
                self._change_complement(row, ComplementState.READY_STOP)

    # Single acts

    def act(self) -> None:
        """Perform one act."""
        kind = self._random.choice(self._kinds)
        getattr(self, f"_act_{kind}")()

    def _act_start(self) -> None:
        self._start(self._random.choice(self._definitions))

    def _act_pause(self) -> None:
        self._put_intent(CommandType.PAUSE)

    def _act_stop(self) -> None:
        self._put_intent(CommandType.STOP)

    def _put_intent(self, command_type: CommandType) -> None:
        process = self._any(lambda p: p.is_live)
        if process is not None:
            for _ in range(self._random.choice((1, 1, 3))):
                self._command(command_type, process)

    def _act_want_pause(self) -> None:
        process = self._any(lambda p: p.is_live and p.wanted_state is None and not p.is_sub_process)
        self._want(process, ProcessState.PAUSE)

    def _act_want_stop(self) -> None:
        self._want(
            self._any(lambda p: p.is_live and p.wanted_state not in _STOPPING), ProcessState.STOP
        )

    def _act_stop_child(self) -> None:
        child = self._any(lambda p: p.is_live and p.is_sub_process == 1)
        if child is None:
            return
        if self._random.random() < 0.5:
            self._command(CommandType.STOP, child)
        elif child.wanted_state not in _STOPPING:
            self._want(child, ProcessState.STOP)

    def _act_recover(self) -> None:
        self._recover(CommandType.RECOVER_SUSPENDED_PROCESS, ProcessState.PAUSE, ProcessState.STOP)

    def _act_rerun(self) -> None:
        self._recover(CommandType.START_FAILURE_TASK_PROCESS, ProcessState.FAILURE)

    def _act_repeat(self) -> None:
        self._recover(CommandType.REPEAT_RUNNING, *(s for s in ProcessState if s.is_terminal))

    def _recover(self, command_type: CommandType, *fitting: ProcessState) -> None:
        """A mostly sensible target, sometimes any at all."""
        process = self._any(lambda p: p.state in fitting) if self._random.random() < 0.8 else None
        process = process or self._any(lambda _: True)
        if process is not None:
            self._command(command_type, process)

    def _act_execute(self) -> None:
        process = self._any(lambda p: not p.is_live) or self._any(lambda _: True)
        if process is None:
            return
        nodes = next(d.nodes for d in self._definitions if d.id == process.process_definition_id)
        chosen = self._random.sample(nodes, self._random.randint(1, min(2, len(nodes))))
        self._command(
            CommandType.EXECUTE_TASK,
            process,
            param={"StartNodeNameList": ",".join(chosen)},
            task_depend_type=int(self._random.choice(tuple(TaskDependType))),
        )

    def _act_twice(self) -> None:
        """Two people at once: one of them hears that a recovery waits already."""
        self._act_recover()
        process = self._any(lambda p: not p.is_live)
        if process is not None:
            self._command(CommandType.REPEAT_RUNNING, process)
            self._command(CommandType.START_FAILURE_TASK_PROCESS, process)

    def _act_force(self) -> None:
        """Force a failed attempt of an ended run to success."""
        found = [
            task
            for task in self._database.tasks
            if task.flag == 1
            and task.state in _FORCIBLE
            and not self._database.processes.the(task.process_instance_id).is_live
        ]
        if found:
            task = self._random.choice(found)
            self._log(f"people force attempt {task.id} to success")
            self._database.update(
                self._database.tasks,
                task.id,
                state=int(TaskState.FORCED_SUCCESS),
                reason="forced",
            )

    def _act_resize(self) -> None:
        pools = list(self._database.pools)
        if pools:
            pool = self._random.choice(pools)
            size = self._random.choice((1, 2, 3))
            status = self._random.choice((0, 1, 1))
            self._log(f"people give pool {pool.name} {size} slots, status {status}")
            self._database.update(self._database.pools, pool.id, group_size=size, status=status)

    def _act_toggle(self) -> None:
        """Set a definition offline, or online again."""
        definition = self._random.choice(list(self._database.definitions))
        state = 1 - definition.release_state
        self._log(f"people set {definition.name} to release state {state}")
        self._database.update(self._database.definitions, definition.id, release_state=state)

    def _act_complement(self) -> None:
        self._start(self._random.choice(self._definitions), is_complement=True)

    def _act_pause_complement(self) -> None:
        row = self._complement(*intents.PAUSABLE)
        if row is not None:
            self._change_complement(row, ComplementState.READY_PAUSE)

    def _act_resume_complement(self) -> None:
        row = self._complement(*intents.RESUMABLE)
        if row is not None:
            self._change_complement(row, intents.resumed(self._database, row))

    def _act_cancel_complement(self) -> None:
        row = self._complement(*intents.CANCELLABLE)
        if row is not None:
            self._change_complement(row, ComplementState.READY_STOP)

    def _act_retry_complement(self) -> None:
        row = self._complement(*intents.RETRIABLE)
        if row is not None:
            self._try_again(row)

    def _act_schedule(self) -> None:
        """Change a schedule, or set it offline or online again."""
        row = self._random.choice(list(self._database.schedules))
        columns = intents.change_schedule(self._random, self._database, row)
        self._log(f"people change schedule {row.id}: {columns}")

    def _complement(self, *states: ComplementState) -> ComplementRecord | None:
        found = [row for row in self._database.complements if row.state in states]
        return self._random.choice(found) if found else None

    def _change_complement(self, row: ComplementRecord, state: ComplementState) -> None:
        self._log(f"people want {state.name} of complement {row.id}")
        intents.change_complement(self._database, row, state, self._clock.now())

    def _try_again(self, row: ComplementRecord) -> None:
        self._log(f"people try what failed of complement {row.id} again")
        intents.try_again(self._database, row, self._clock.now())

    # Rows

    def _start(self, definition: Drawn, *, is_complement: bool = False) -> None:
        random = self._random
        columns: dict[str, Any] = {}
        param: dict[str, object] = {}
        command_type = CommandType.START_PROCESS
        drawn = random.random()
        if is_complement or 0.35 <= drawn < 0.5:
            command_type = CommandType.COMPLEMENT_DATA
            date = f"2026-01-0{random.choice((1, 2))} 00:00:00"
            param |= {"complementStartDate": date, "complementEndDate": date}
            if is_complement or random.random() < self._complements:
                has_schedule = any(
                    row.process_definition_id == definition.id for row in self._database.schedules
                )
                param = intents.dates_of_a_complement(random, has_schedule=has_schedule)
        elif drawn < 0.2:
            command_type = CommandType.START_CURRENT_TASK_PROCESS
            chosen = random.sample(definition.nodes, random.randint(1, len(definition.nodes)))
            param["StartNodeNameList"] = ",".join(chosen)
            columns["task_depend_type"] = int(random.choice(tuple(TaskDependType)))
        elif drawn < 0.35:
            command_type = CommandType.SCHEDULER
            columns["schedule_time"] = START - timedelta(days=random.choice((0, 1)))
        if random.random() < 0.2:
            param["StartParams"] = json.dumps({PARAMETER: GOOD_VALUE})
        self._insert(
            command_type,
            param,
            process_definition_id=definition.id,
            failure_strategy=random.choice((0, 1)),
            warning_type=random.choice((0, 1, 2, 3)),
            process_instance_priority=random.choice((1, 2, 3)),
            **columns,
        )

    def _command(
        self,
        command_type: CommandType,
        process: ProcessRecord,
        *,
        param: dict[str, object] | None = None,
        **columns: Any,
    ) -> None:
        asked: dict[str, object] = {"ProcessInstanceId": process.id}
        self._insert(command_type, asked | (param or {}), **columns)

    def _insert(self, command_type: CommandType, param: dict[str, object], **columns: Any) -> None:
        text = json.dumps(param)
        try:
            self._database.insert(
                self._database.commands,
                command_type=int(command_type),
                command_param=text,
                start_time=self._clock.now(),
                update_time=self._clock.now(),
                **columns,
            )
        except RowRefusedError as error:
            self._log(f"people are refused {command_type.name} {text}: {error}")
        else:
            of = columns.get("process_definition_id", "")
            self._log(f"people ask for {command_type.name} {of} {text}")

    def _want(self, process: ProcessRecord | None, state: ProcessState) -> None:
        """Write the intent that the API writes instead of a command."""
        if process is not None:
            self._log(f"people want {state.name} of process instance {process.id}")
            self._database.update(
                self._database.processes,
                process.id,
                wanted_state=int(state),
                wanted_at=self._clock.now(),
            )

    def _any(self, fits: Callable[[ProcessRecord], bool]) -> ProcessRecord | None:
        found = [process for process in self._database.processes if fits(process)]
        return self._random.choice(found) if found else None

    def _roots(self) -> list[ProcessRecord]:
        return [process for process in self._database.processes if not process.is_sub_process]


def is_serial(execution_type: int) -> bool:
    """True if runs of such a definition take turns."""
    return execution_type != ExecutionType.PARALLEL
