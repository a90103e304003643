"""`TaskStore` in memory: a worker's reads and writes of the attempts that it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import takewhile

from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.failures import FailureReason
from common.model.grants import GrantedObject, GrantKind
from common.model.offers import Offer
from common.model.quality import COMPARED, MAX_FORMER, QualityResult, QualityState
from common.model.spark import SparkFacts
from common.model.states import ProcessState, TaskState, TimeoutStrategy
from common.model.workers import WorkerMode, mode_of
from common.store.queue_entries import effective_group
from common.store.transaction import storable
from common.store.worker.ports import (
    AttemptEnd,
    AttemptFolders,
    AttemptPaths,
    ClaimedTask,
    DataSource,
    Environment,
    Kept,
    LogTail,
    ReportRefusedError,
    TaskStore,
    Wanted,
)
from common.store.worker.task_facts import facts_of
from tests.memory.alerts import alert_of_long_task
from tests.memory.database import MemoryDatabase, RowRefusedError, Transaction
from tests.memory.project_slots import projects_of_attempts, several_projects
from tests.memory.reading import entry_of, origin_of
from tests.memory.rows import (
    LogTailRecord,
    ProcessRecord,
    QualityRecord,
    TaskRecord,
    TenantRecord,
    WorkerServerRecord,
)


class MemoryTaskStore(TaskStore):
    """`TaskStore` in memory. The simulator plants mistakes by overriding `_may_start`, `_holds`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
        hinted: bool = False,
        is_reserved: bool = False,
    ) -> tuple[ClaimedTask, ...]:
        claimed = []
        with self._db.transaction("claim", by=node) as tx:
            for task_id in dict.fromkeys(task_instance_ids):
                task = self._db.tasks.get(task_id)
                if task is None or not self._may_start(task):
                    continue
                if task.host not in (None, node.address):
                    continue
                is_bound = entry_of(self._db, task_id).worker_group_id > 0
                if (hinted and is_bound) or (is_reserved and not is_bound):
                    continue
                places = folders.paths(
                    task.process_definition_id, task.process_instance_id, task.id
                )
                tx.update(
                    self._db.tasks,
                    task.id,
                    state=int(TaskState.RUNNING),
                    host=node.address,
                    worker_incarnation=node.incarnation,
                    start_time=now,
                    execute_path=places.execute_path,
                    log_path=places.log_path,
                )
                claimed.append(self._claimed(task, places, now))
        return tuple(claimed)

    def started(self, node: Node, pids: dict[int, tuple[int, float]]) -> None:
        with self._db.transaction("started", by=node) as tx:
            for task_id, (pid, start_time) in pids.items():
                task = self._db.tasks.get(task_id)
                if task is not None and self._holds(task, node):
                    tx.update(self._db.tasks, task_id, pid=pid, pid_start_time=start_time)

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        try:
            return self._report(node, ends)
        except RowRefusedError as error:
            raise ReportRefusedError(f"the tables refused the report: {error}") from error

    def _report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        reported = []
        with self._db.transaction("report", by=node) as tx:
            for end in ends:
                task = self._db.tasks.get(end.task_instance_id)
                if task is None or not self._holds(task, node):
                    continue
                tx.update(
                    self._db.tasks,
                    task.id,
                    state=int(end.state),
                    end_time=end.end_time,
                    exit_code=end.exit_code,
                    pid=task.pid if end.pid is None else end.pid,
                    reason=None if end.reason is None else storable(end.reason),
                    var_pool=end.var_pool,
                    lost_at=None,
                    failure_reason=end.reported_failure,
                    **facts_of(end.facts),
                )
                self._alert_of_time_out(tx, task, end)
                reported.append(task.id)
                for each in end.quality:
                    self._keep(tx, task, each)
        return frozenset(reported)

    def _alert_of_time_out(self, tx: Transaction, task: TaskRecord, end: AttemptEnd) -> None:
        """Alert of an attempt that ended before the time-out loop has seen it."""
        if end.reported_failure is not FailureReason.TIMED_OUT or task.alert_flag:
            return
        if task.timeout_strategy is None or not TimeoutStrategy(task.timeout_strategy).warns:
            return
        tx.update(self._db.tasks, task.id, alert_flag=1)
        process = self._db.processes.the(task.process_instance_id)
        alert_of_long_task(tx, process, task, end.end_time)

    def _keep(self, tx: Transaction, task: TaskRecord, result: QualityResult) -> None:
        process = self._db.processes.the(task.process_instance_id)
        record = QualityRecord(
            task_instance_id=task.id,
            process_instance_id=process.id,
            process_definition_id=task.process_definition_id,
            task_name=task.name,
            moment=process.moment,
            **asdict(result),
        )
        tx.insert(self._db.quality, record)

    def former_quality(
        self, task_instance_ids: Collection[int]
    ) -> dict[int, dict[str, tuple[float, ...]]]:
        found: dict[int, dict[str, tuple[float, ...]]] = {}
        for task_id in dict.fromkeys(task_instance_ids):
            task = self._db.tasks.get(task_id)
            if task is None:
                continue
            process = self._db.processes.the(task.process_instance_id)
            moment = process.moment
            by_rule: dict[str, dict[datetime, float]] = {}
            for row in self._db.quality:
                if (
                    (row.process_definition_id, row.task_name, row.type)
                    == (task.process_definition_id, task.name, COMPARED)
                    and row.moment < moment
                    and row.value is not None
                    and row.state != QualityState.BROKEN
                ):
                    by_rule.setdefault(row.rule, {})[row.moment] = row.value
            rules = {
                rule: tuple(values[each] for each in sorted(values, reverse=True)[:MAX_FORMER])
                for rule, values in by_rule.items()
            }
            if rules:
                found[task_id] = rules
        return found

    def datasources(self, wanted: Collection[Wanted]) -> dict[Wanted, DataSource]:
        found = {}
        for project, number in dict.fromkeys(wanted):
            row = self._db.datasources.get(number)
            if row is not None and self._db.is_granted(GrantKind.DATASOURCE, row.id, project):
                found[project, row.id] = DataSource(
                    id=row.id,
                    name=row.name,
                    type=row.type,
                    connection_params=row.connection_params,
                )
        return found

    def environments(self, wanted: Collection[Wanted]) -> dict[Wanted, Environment]:
        return {
            (project, row.code): Environment(code=row.code, name=row.name, config=row.config)
            for row in self._db.environments
            for project, code in wanted
            if row.code == code and self._db.is_granted(GrantKind.ENVIRONMENT, row.code, project)
        }

    def lenders(self, wanted: Collection[Wanted]) -> frozenset[Wanted]:
        # No user has a role here.
        return frozenset()

    def projects(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        self._db.read_hook("projects")
        return projects_of_attempts(self._db, task_instance_ids)

    def several_projects(self, group_ids: Collection[int] | None = None) -> bool:
        self._db.read_hook("several_projects")
        return several_projects(self._db, group_ids)

    def running(self, node: Node) -> dict[int, bool]:
        self._db.read_hook("running")
        return {
            task.id: task.wanted_state == TaskState.KILL
            for task in self._db.tasks
            if self._holds(task, node)
        }

    def adopt(self, node: Node, task_instance_ids: Collection[int]) -> frozenset[int]:
        adopted = []
        with self._db.transaction("adopt", by=node) as tx:
            for task_id in dict.fromkeys(task_instance_ids):
                task = self._db.tasks.get(task_id)
                if (
                    task is not None
                    and task.state == TaskState.RUNNING
                    and task.host == node.address
                    and task.worker_incarnation != node.incarnation
                ):
                    self._adopt(tx, node, task_id)
                    adopted.append(task_id)
        return frozenset(adopted)

    def take_over(self, node: Node) -> frozenset[int]:
        with self._db.transaction("take_over", by=node) as tx:
            former = [
                task.id
                for task in self._db.tasks
                if task.state == TaskState.RUNNING
                and task.host == node.address
                and task.worker_incarnation != node.incarnation
            ]
            for task_id in former:
                self._adopt(tx, node, task_id)
        return frozenset(former)

    def _adopt(self, tx: Transaction, node: Node, task_id: int) -> None:
        tx.update(self._db.tasks, task_id, worker_incarnation=node.incarnation, lost_at=None)

    def hand_back(self, nodes: Collection[Node], claims: Mapping[int, datetime]) -> frozenset[int]:
        handed_back = []
        with self._db.transaction("hand_back") as tx:
            for task_id in sorted(claims):
                task = self._db.tasks.get(task_id)
                if (
                    task is not None
                    and any(self._holds(task, node) for node in nodes)
                    and task.start_time == claims[task_id]
                    and task.wanted_state is None
                    and task.pid is None
                ):
                    tx.update(
                        self._db.tasks,
                        task_id,
                        state=int(TaskState.SUBMITTED),
                        host=None,
                        worker_incarnation=None,
                        start_time=task.submit_time,
                        execute_path=None,
                        log_path=None,
                        lost_at=None,
                    )
                    handed_back.append(task_id)
        return frozenset(handed_back)

    def kept(self, address: str, task_instance_ids: Collection[int]) -> dict[int, Kept]:
        self._db.read_hook("kept")
        found = {}
        for task_id in dict.fromkeys(task_instance_ids):
            task = self._db.tasks.get(task_id)
            if task is not None and task.state == TaskState.RUNNING and task.host == address:
                found[task_id] = Kept(
                    kill_wanted=task.wanted_state == TaskState.KILL,
                    lost=task.lost_at is not None,
                )
        return found

    def lost(self, host: str) -> dict[int, str]:
        return {
            task.id: task.execute_path
            for task in self._db.tasks
            if self._may_run_on(task, host) and task.execute_path is not None
        }

    def found_gone(self, host: str, task_instance_ids: Collection[int]) -> None:
        with self._db.transaction("found_gone") as tx:
            for task_id in dict.fromkeys(task_instance_ids):
                task = self._db.tasks.get(task_id)
                if task is not None and self._may_run_on(task, host):
                    tx.update(self._db.tasks, task_id, lost_at=None)

    @staticmethod
    def _may_run_on(task: TaskRecord, host: str) -> bool:
        return (
            task.is_finished
            and task.lost_at is not None
            and (task.host or "").rpartition(":")[0] == host
        )

    def record_facts(self, node: Node, facts: Mapping[int, SparkFacts]) -> None:
        with self._db.transaction("record_facts", by=node) as tx:
            for task_id, told in facts.items():
                task = self._db.tasks.get(task_id)
                columns = facts_of(told)
                if task is not None and columns and self._holds(task, node):
                    tx.update(self._db.tasks, task_id, **columns)

    def over(self, task_instance_ids: Collection[int]) -> dict[int, bool | None]:
        return {
            task_id: self._is_over(self._db.tasks.get(task_id)) for task_id in task_instance_ids
        }

    def existing(self, process_instance_ids: Collection[int]) -> frozenset[int]:
        return frozenset(
            each for each in process_instance_ids if self._db.processes.get(each) is not None
        )

    def log_places(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        found = (self._db.tasks.get(each) for each in task_instance_ids)
        return {task.id: task.process_instance_id for task in found if task is not None}

    def keep_tails(self, tails: Sequence[LogTail]) -> int:
        with self._db.transaction("keep_tails") as tx:
            new = [
                each
                for each in tails
                if self._db.tasks.get(each.task_instance_id) is not None
                and self._db.log_tails.get(each.task_instance_id) is None
            ]
            for each in new:
                number = each.task_instance_id
                record = LogTailRecord(
                    id=number, task_instance_id=number, size=each.size, tail=each.tail
                )
                tx.insert(self._db.log_tails, record)
            return len(new)

    def mode(self, address: str) -> WorkerMode:
        return mode_of(address, self._db.worker_modes)

    def record_offer(self, node: Node, offer: Offer) -> None:
        host, _, port = node.address.rpartition(":")
        with self._db.transaction("record_offer", by=node) as tx:
            for row in self._db.worker_servers:
                former = row.incarnation is None or row.incarnation <= node.incarnation
                if (row.host, row.port) == (host, int(port)) and former:
                    tx.delete(self._db.worker_servers, row.id)
            row = WorkerServerRecord(
                host=host,
                port=int(port),
                res_info=offer.text(),
                incarnation=node.incarnation,
            )
            tx.insert(self._db.worker_servers, row)

    def succeeded(self, task_instance_ids: Collection[int]) -> frozenset[int]:
        found = (self._db.tasks.get(each) for each in task_instance_ids)
        return frozenset(
            task.id for task in found if task is not None and TaskState(task.state).is_success
        )

    def _is_over(self, task: TaskRecord | None) -> bool | None:
        if task is None or not task.is_finished:
            return None if task is None else False
        if task.state != TaskState.NEED_FAULT_TOLERANCE:
            return True
        process = self._db.processes.the(task.process_instance_id)
        if not process.is_live and process.state != ProcessState.PAUSE:
            return True
        if task.retry_at is None:
            return task.settled
        return any(
            later.attempt > task.attempt
            and later.is_finished
            and (
                later.state != TaskState.NEED_FAULT_TOLERANCE
                or (later.settled and later.retry_at is None)
            )
            for later in self._others(task)
        )

    def _earlier(self, task: TaskRecord) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The attempts that it replaces, and the others before it, newest first."""
        earlier = [other for other in self._others(task) if other.attempt < task.attempt]
        earlier.sort(key=lambda other: -other.attempt)
        lost = takewhile(
            lambda other: (
                other.state == TaskState.NEED_FAULT_TOLERANCE and other.retry_at is not None
            ),
            earlier,
        )
        made_up_for = tuple(other.id for other in lost)
        return made_up_for, tuple(other.id for other in earlier[len(made_up_for) :])

    def _others(self, task: TaskRecord) -> list[TaskRecord]:
        attempts = self._db.attempts(task.process_instance_id)
        return [each for each in attempts if each.name == task.name and each.id != task.id]

    def _may_start(self, task: TaskRecord) -> bool:
        process = self._db.processes.get(task.process_instance_id)
        return (
            task.state == TaskState.SUBMITTED
            and task.flag == 1
            and not task.is_workerless
            and task.wanted_state is None
            and process is not None
            and process.is_live
        )

    def _holds(self, task: TaskRecord, node: Node) -> bool:
        return (
            task.state == TaskState.RUNNING
            and task.host == node.address
            and task.worker_incarnation == node.incarnation
        )

    def _claimed(self, task: TaskRecord, paths: AttemptPaths, now: datetime) -> ClaimedTask:
        process = self._db.processes.the(task.process_instance_id)
        tenant = self._tenant(process)
        lost, ended = self._earlier(task) if task.attempt > 1 else ((), ())
        return ClaimedTask(
            id=task.id,
            process_instance_id=process.id,
            process_definition_id=task.process_definition_id,
            process_name=process.name,
            name=task.name,
            attempt=task.attempt,
            task_type=task.task_type,
            task_json=task.task_json,
            global_params=process.global_params,
            moment=process.moment,
            complement=process.is_of_complement,
            tenant_code=None if tenant is None else tenant.tenant_code,
            queue=self._queue(process, tenant),
            executor_id=process.executor_id,
            execute_path=paths.execute_path,
            log_path=paths.log_path,
            start_time=now,
            submit_time=task.submit_time,
            input_pool=task.input_pool,
            start_params=CommandParam.as_stored(process.command_param).start_params,
            timeout=_timeout(task),
            timezone_id=process.timezone_id,
            memory_factor=task.memory_factor,
            lost_attempts=lost,
            ended_attempts=ended,
            environment_code=CommandParam.as_stored(process.command_param).stored_environment_code,
            project_id=self._db.project_of(process),
            lacks=tuple(self._lacks(task, process, tenant)),
            names_tenant=self._db.tenants.get(process.tenant_id) is not None,
            origin=origin_of(self._db, process.process_definition_id),
        )

    def _lacks(
        self, task: TaskRecord, process: ProcessRecord, tenant: TenantRecord | None
    ) -> Iterator[GrantedObject]:
        group = effective_group(task.worker_group_id, process.worker_group_id)
        number = 0 if tenant is None else tenant.id
        for kind, each in ((GrantKind.TENANT, number), (GrantKind.WORKER_GROUP, group)):
            if each > 0 and not self._db.is_granted(kind, each, self._db.project_of(process)):
                yield GrantedObject(kind, each)

    def _tenant(self, process: ProcessRecord) -> TenantRecord | None:
        definition = self._db.definitions.get(process.process_definition_id)
        if definition is None:
            return None
        own = self._db.tenants.get(process.tenant_id)
        creator = self._db.users.get(definition.user_id)
        if own is not None or creator is None:
            return own
        return self._db.tenants.get(creator.tenant_id)

    def _queue(self, process: ProcessRecord, tenant: TenantRecord | None) -> str | None:
        executor = self._db.users.get(process.executor_id)
        if executor is not None and executor.queue:
            return executor.queue
        queue = None if tenant is None else self._db.queues.get(tenant.queue_id)
        return None if queue is None else queue.queue


def _timeout(task: TaskRecord) -> timedelta | None:
    """The time after which the worker must end the attempt; None if it need not."""
    if task.timeout_seconds is None or task.timeout_strategy is None:
        return None
    fails = TimeoutStrategy(task.timeout_strategy).fails
    return timedelta(seconds=task.timeout_seconds) if fails else None
