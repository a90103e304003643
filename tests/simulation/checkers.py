"""The invariants of every history. Reads the tables, their audit, and the computers' own record.

Each check answers with sentences about what is broken. The numbers are those of the invariants of
ARCHITECTURE.md. Those of single runs are here; trees, pools, serial runs, promises and waits
for other runs have modules of their own (`check_*`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from common.model.cluster import Node
from common.model.commands import BEGINNING_COMMANDS, CommandOutcome, CommandType
from common.model.instances import Ownership
from common.model.states import FailureStrategy, ProcessState, TaskState
from tests.memory.store import (
    Change,
    CommandRecord,
    ComplementRecord,
    ErrorCommandRecord,
    LedgerRecord,
    MemoryDatabase,
    MemoryTaskStore,
    ProcessRecord,
    TaskRecord,
)
from tests.simulation import model
from tests.simulation.check_complements import ComplementsKeepTheirWord
from tests.simulation.check_fires import FiresOnce
from tests.simulation.check_holds import LocksNeverConflict, PoolsNeverOverfull, SerialRunsOneByOne
from tests.simulation.check_promises import AlertsOnce, StopsInTime, TimeoutsInTime
from tests.simulation.check_trees import ChildrenAndParents
from tests.simulation.check_upstream import EvidenceWasTrue
from tests.simulation.computer import Computer
from tests.simulation.history import (
    Tables,
    described,
    has_ended,
    has_restarted,
    process_name,
    task_name,
    watch,
)
from tests.simulation.virtual_clock import START
from tests.simulation.world import World

_KEEPING_RESULTS = (CommandType.RECOVER_SUSPENDED_PROCESS, CommandType.START_FAILURE_TASK_PROCESS)
_GOOD = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


def broken(world: World) -> list[str]:
    """Every violation, after the faults have ended and all is at rest."""
    database, computers = world.database, tuple(world.computers.values())
    healed = START + world.healed_at
    alerts = AlertsOnce(database)
    fires = FiresOnce(threshold=world.misfire_threshold, healed=healed)
    complements = ComplementsKeepTheirWord(healed)
    tables = Tables()
    return [
        *_commands_lost_or_doubled(database),
        *_ledger(database),
        *_unfinished(database),
        *_started_without_right(database, computers),
        *watch(
            database.changes,
            (
                StaleWrites(),
                FinalStates(),
                Beginnings(clock_is_set=world.options.clock_jumps > 0),
                Retries(),
                Ends(),
                Recoveries(),
                ChildrenAndParents(),
                PoolsNeverOverfull(),
                LocksNeverConflict(),
                SerialRunsOneByOne(),
                StopsInTime(healed),
                TimeoutsInTime(healed),
                EvidenceWasTrue(),
                alerts,
                fires,
                complements,
            ),
            tables=tables,
        ),
        *alerts.missing(),
        *fires.at_the_end(tables, world.clock.now()),
        *complements.at_the_end(tables, database),
        *_attempts(database),
        *_leftovers(computers),
        *(_needlessly_lost(database) if spares_attempts(world) else ()),
    ]


def spares_attempts(world: World) -> bool:
    """True if nothing in this history is a reason to lose an attempt."""
    return world.options.spares_workers and not world.options.clock_jumps


def _needlessly_lost(database: MemoryDatabase) -> Iterator[str]:
    """No attempt is lost while its worker lives, acts in time and reaches the tables."""
    for task in database.tasks:
        if task.state == TaskState.NEED_FAULT_TOLERANCE:
            yield f"attempt {task.id} was lost though its worker was well: {task.reason}"


def _commands_lost_or_doubled(database: MemoryDatabase) -> Iterator[str]:
    """I1: every command to begin became one process instance, or stands in the error table.

    COMPLEMENT_DATA became complements, and those of its dates are `check_complements`'s.
    """
    begun, refused, asked = 0, set(), []
    for change in database.changes:
        match change.new:
            case CommandRecord(parent_task_instance_id=0, complement_date_id=0) if (
                change.old is None and change.new.command_type in BEGINNING_COMMANDS
            ):
                asked.append(change.id)
            case ErrorCommandRecord():
                if change.new.command_id in refused:
                    yield f"I1: command {change.new.command_id} was refused twice"
                refused.add(change.new.command_id)
            case ProcessRecord(is_sub_process=0) if change.old is None:
                begun += not change.new.is_of_complement
            case ComplementRecord() if change.old is None:
                begun += change.new.command_id != 0
    expected = [command_id for command_id in asked if command_id not in refused]
    if begun != len(expected):
        yield f"I1: {len(expected)} runs were to begin, {begun} have"


def _ledger(database: MemoryDatabase) -> Iterator[str]:
    """Every command that is gone has one line in the ledger, in the same transaction."""
    gone: Counter[tuple[str, int]] = Counter()
    entered: Counter[tuple[str, int]] = Counter()
    refused: Counter[int] = Counter()
    for change in database.changes:
        match change.old, change.new:
            case CommandRecord(), None:
                gone[change.transaction, change.id] += 1
            case None, LedgerRecord(command_id=command_id, outcome=outcome):
                entered[change.transaction, command_id] += 1
                refused[command_id] += outcome == CommandOutcome.REFUSED
            case None, ErrorCommandRecord(command_id=command_id):
                refused[command_id] -= 1
    if gone != entered:
        yield f"the ledger has {dict(entered - gone)} too many and lacks {dict(gone - entered)}"
    for command_id, difference in sorted(refused.items()):
        if difference:
            yield f"command {command_id}: the ledger and the error table disagree"


def _unfinished(database: MemoryDatabase) -> Iterator[str]:
    """Every run ends, and every attempt with it."""
    for process in database.processes:
        if process.is_live:
            yield f"process instance {process.id} is still {process_name(process.state)}"
    for task in database.tasks:
        if not task.is_finished:
            yield f"attempt {task.id} ({task.task_type}) is still {task_name(task.state)}"
    over = MemoryTaskStore(database).over([task.id for task in database.tasks])
    for task in database.tasks:
        # A paused run keeps its promised retries.
        is_promised = task.flag == 1 and task.retry_at is not None
        if task.is_finished and not is_promised and over[task.id] is not True:
            yield f"attempt {task.id} is not over for good, and nothing follows it"
    for command in database.commands:
        yield f"command {command.id} ({command.command_type}) is still there"


def _started_without_right(
    database: MemoryDatabase, computers: Sequence[Computer]
) -> Iterator[str]:
    """I2: an attempt is started at most once, and only by the worker whose claim its row shows."""
    started = Counter(
        process.task_instance_id for computer in computers for process in computer.started
    )
    claims = {
        change.id: change.new.host
        for change in database.changes
        if isinstance(change.new, TaskRecord) and change.new.state == TaskState.RUNNING
    }
    for computer in computers:
        for process in computer.started:
            if started[process.task_instance_id] > 1:
                yield f"I2: attempt {process.task_instance_id} was started more than once"
            if claims.get(process.task_instance_id) != computer.address:
                yield f"I2: attempt {process.task_instance_id} was started without a claim"
    for task in database.tasks:
        of_worker = task.task_type in ("SHELL", "PYSPARK")
        if task.state == TaskState.SUCCESS and of_worker and started[task.id] != 1:
            yield f"I2: attempt {task.id} is SUCCESS and was started {started[task.id]} times"


class StaleWrites:
    """I3: no change by an owner whose epoch, or a worker whose incarnation, is not the row's."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        if isinstance(change.by, Ownership):
            process = before.processes.get(change.by.process_instance_id)
            epoch = None if process is None else process.owner_epoch
            if epoch != change.by.epoch:
                yield f"I3: {described(change)} by epoch {change.by.epoch}, the row has {epoch}"
        if (
            isinstance(change.by, Node)
            and isinstance(change.old, TaskRecord)
            and isinstance(change.new, TaskRecord)
            and change.old.state == TaskState.RUNNING
            and change.transaction in ("report", "started")
            and (change.old.host, change.old.worker_incarnation)
            != (change.by.address, change.by.incarnation)
        ):
            yield f"I3: {described(change)} by {change.by}, which does not hold it"


class FinalStates:
    """I4: final states stay final, except for a restart, and a success that a person declares."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        match change.old, change.new:
            case ProcessRecord(), ProcessRecord():
                if has_restarted(change):
                    if change.transaction != "take":
                        yield f"I4: {described(change)} made an ended process instance live"
                    if change.new.owner_epoch != change.old.owner_epoch + 1:
                        yield f"I4: {described(change)} restarted it under the same epoch"
                elif not change.old.is_live and change.new.state != change.old.state:
                    yield f"I4: {described(change)} left {process_name(change.old.state)}"
            case TaskRecord(), TaskRecord():
                forced = (
                    change.by is None and change.new.state == TaskState.FORCED_SUCCESS
                ) and change.transaction == "update"
                if change.old.is_finished and change.new.state != change.old.state and not forced:
                    yield f"I4: {described(change)} left the final state {change.old.state}"
            case _:
                pass


class Beginnings:
    """An attempt begins when its upstream allows it, and nothing else forbids it.

    `clock_is_set`: somebody sets the clock, so that times don't show the order.
    """

    def __init__(self, *, clock_is_set: bool = False) -> None:
        self._clock_is_set = clock_is_set

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        new = change.new
        if not isinstance(new, TaskRecord):
            return
        if change.old is None:
            yield from self._begins(new, before)
        elif (
            isinstance(change.old, TaskRecord)
            and new.state == TaskState.RUNNING
            and change.old.state != TaskState.RUNNING
            and new.due_at is not None
            and new.start_time is not None
            and new.start_time < new.due_at
            and not self._clock_is_set
        ):
            yield f"attempt {new.id} was started before its delay was over"

    def _begins(self, new: TaskRecord, before: Tables) -> Iterator[str]:
        process = before.processes[new.process_instance_id]
        place = f"attempt {new.id} ({new.name!r} of process instance {process.id})"
        graph = model.read(process.process_instance_json)
        names = chosen_nodes(process)
        if new.name not in names:
            yield f"{place} was not chosen"
            return
        rows = before.rows(process.id)
        if new.name in rows:
            yield f"{place} begins beside another that is valid"
        phases = model.phases(graph, names, rows, whole=model.selected(process))
        if phases[new.name] != "ready":
            yield f"{place} begins though the node is {phases[new.name]}"
        if process.state != ProcessState.RUNNING:
            yield f"{place} begins in a run that is {process_name(process.state)}"
        if process.failure_strategy == FailureStrategy.END and "bad" in phases.values():
            yield f"{place} begins after another has failed for good"
        earlier = [
            task
            for task in before.tasks.values()
            if task.process_instance_id == process.id and task.name == new.name
        ]
        last = max(earlier, key=lambda task: task.attempt, default=None)
        if (
            last is not None
            and last.retry_at is not None
            and new.submit_time is not None
            and new.submit_time < last.retry_at
            and not self._clock_is_set
        ):
            yield f"{place} begins before the promised time"
        expected_factor = model.memory_factor(graph, new, last)
        if new.memory_factor != expected_factor:
            yield f"{place} has memory factor {new.memory_factor}, it should have {expected_factor}"
        if new.task_type in ("CONDITIONS", "SWITCH"):
            expected = model.chosen_branch(graph, new.name, process, rows)
            if expected is not None and model.branch_of(new) != expected:
                yield f"{place} took {new.branch}, it should have taken {expected}"


def chosen_nodes(process: ProcessRecord) -> frozenset[str]:
    """The nodes that may run."""
    whole = model.selected(process)
    scope = model.scope(process.run_scope)
    return whole if scope is None else whole & scope


class Retries:
    """A failure is retried for the reasons that the author wants, and for no other."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        old, new = change.old, change.new
        if (
            not isinstance(old, TaskRecord)
            or not isinstance(new, TaskRecord)
            or old.settled
            or not new.settled
            or new.state not in (TaskState.FAILURE, TaskState.KILL)
        ):
            return
        process = before.processes[new.process_instance_id]
        graph = model.read(process.process_instance_json)
        if new.retry_at is not None and not model.is_worth_a_retry(graph, new):
            yield f"{described(change)} promised a retry after {new.failure_reason}"


class Ends:
    """I8: a process's state agrees with its tasks and its DAG, by the model's account of them."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        old, new = change.old, change.new
        if (
            not has_ended(change)
            or not isinstance(old, ProcessRecord)
            or not isinstance(new, ProcessRecord)
        ):
            return
        rows = before.rows(new.id)
        if old.is_waiting:
            if new.state != ProcessState.STOP:
                yield f"I8: {described(change)} ended it as {new.state} before its turn"
            return
        graph, whole, names = (
            model.read(old.process_instance_json),
            model.selected(old),
            chosen_nodes(old),
        )
        phases = model.phases(graph, names, rows, whole=whole)
        everything = model.phases(graph, whole, rows, whole=whole, known=phases)
        fault = _fault_of_end(old, new, phases, everything, rows)
        if fault is not None:
            yield (
                f"I8: process instance {new.id} ends as {process_name(new.state)}"
                f" ({new.state_reason}) from {process_name(old.state)}, {fault}; its nodes are"
                f" {everything}, chosen were {sorted(names)}"
            )


def _fault_of_end(
    old: ProcessRecord,
    new: ProcessRecord,
    phases: dict[str, str],
    everything: dict[str, str],
    rows: dict[str, TaskRecord],
) -> str | None:
    """The ten rules for the end of a run."""
    found = list(phases.values())
    is_good = all(phase in model.DONE for phase in everything.values())
    ends_early = old.failure_strategy == FailureStrategy.END and "bad" in found
    may_continue = "ready" in found or "retry" in found
    is_paused = any(name in phases and row.state == TaskState.PAUSE for name, row in rows.items())
    if "live" in found:
        return "an attempt is live"
    match ProcessState(new.state):
        case ProcessState.SUCCESS:
            right = is_good
        case _ if is_good:
            right = False
        case ProcessState.STOP:
            right = old.state == ProcessState.READY_STOP and old.wanted_state == ProcessState.STOP
        case ProcessState.PAUSE:
            right = not ends_early and (old.state == ProcessState.READY_PAUSE or is_paused)
            right = right and (is_paused or may_continue)
            # A stop that was taken before the pause had come about must not get lost.
            right = right and old.wanted_state not in (ProcessState.STOP, ProcessState.FAILURE)
        case ProcessState.FAILURE if old.state == ProcessState.READY_STOP:
            right = old.wanted_state == ProcessState.FAILURE
        case ProcessState.FAILURE:
            right = ends_early or not (may_continue or is_paused)
        case _:
            right = False
    return None if right else "which it should not"


class Recoveries:
    """A recovery keeps good results, and one of chosen nodes touches those alone."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        old, new = change.old, change.new
        if isinstance(old, ProcessRecord) and isinstance(new, ProcessRecord):
            first = (old.task_depend_type, model.params(old.command_param).get("StartNodeNameList"))
            later = (new.task_depend_type, model.params(new.command_param).get("StartNodeNameList"))
            if first != later or old.process_instance_json != new.process_instance_json:
                yield f"{described(change)} changed what was selected at first"
            if (
                new.run_scope is not None
                and new.run_scope != old.run_scope
                and new.command_type != CommandType.EXECUTE_TASK
            ):
                yield f"{described(change)} left out what should run again, save {new.run_scope} (T71)"
        if (
            not isinstance(old, TaskRecord)
            or not isinstance(new, TaskRecord)
            or change.transaction != "take"
            or (old.flag, new.flag) != (1, 0)
        ):
            return
        process = before.processes[new.process_instance_id]
        if process.command_type in _KEEPING_RESULTS and new.state in _GOOD:
            yield f"the good result of attempt {new.id} was put aside by {process.command_type}"
        scope = model.scope(process.run_scope)
        if scope is not None and new.name not in scope:
            yield f"attempt {new.id} was put aside though nobody chose {new.name!r}"


def _attempts(database: MemoryDatabase) -> Iterator[str]:
    """Retries stay within their limit; attempts are numbered 1, 2, 3, …; at most one is valid."""
    by_task: dict[tuple[int, str], list[TaskRecord]] = {}
    for task in database.tasks:
        by_task.setdefault((task.process_instance_id, task.name), []).append(task)
        if not task.settled:
            yield f"nobody has taken the end of attempt {task.id} into account"
    for (process, name), attempts in by_task.items():
        place = f"process instance {process}, task {name!r}"
        if [task.attempt for task in attempts] != list(range(1, len(attempts) + 1)):
            yield f"{place} has the attempts {[task.attempt for task in attempts]}"
        if any(task.retry_times > task.max_retry_times for task in attempts):
            yield f"{place} was retried too often"
        if sum(task.flag for task in attempts) > 1:
            yield f"{place} has {sum(task.flag for task in attempts)} valid attempts"


def _leftovers(computers: Sequence[Computer]) -> Iterator[str]:
    """I10: no process runs at the end."""
    for computer in computers:
        for process in computer.alive():
            yield f"I10: attempt {process.task_instance_id} still runs on {computer.address}"
