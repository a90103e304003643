"""Process definitions: the 1.2 JSON read into values, with every mistake found in one pass.

Pure. Reads leniently what the original's front end wrote (numbers as text, objects as text that
holds JSON; contract §1.20) and refuses clearly what can't run. The master takes a task's
`params` as opaque text: only the worker's task type understands them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from typing import Any, TypeVar

from common.dag import Dag, DagError, build_dag
from common.errors import InvalidDefinitionError
from common.model.control import Control, check_targets, read_control
from common.model.control_types import CONTROL_TYPES
from common.model.lock_needs import MAX_LOCKS, LockNeed, read_lock
from common.model.retry_policy import RETRIES_ALL, RetryPolicy, read_retry_policy
from common.model.states import Priority, TimeoutStrategy
from common.model.task_type import TaskTypeSpec
from common.model.worker_needs import WorkerNeed, read_worker_need

MAX_NODES = 10_000
MAX_NAME_LENGTH = 200
MAX_RETRIES = 1_000
MAX_MINUTES = 10_000_000
MAX_POOLS = 16
MAX_SLOTS = 1_000_000

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PoolShare:
    """The slots of a pool that an attempt needs; the pool is named by its id or by its name."""

    slots: int = 1
    pool_id: int | None = None
    pool_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimeout:
    """The time that an attempt may take from its start, and the action if it takes longer."""

    after: timedelta
    strategy: TimeoutStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The growth of the interval between retries, and its jitter.

    The n-th retry waits interval × `factor`ⁿ⁻¹, no longer than `longest`, give or take the share
    `jitter` of it, so that tasks which failed together do not come back together.
    """

    factor: float = 2.0
    longest: timedelta | None = None
    jitter: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode:
    """One node of a definition; `name` is the vertex key.

    `task_json` is the node serialised again as contract §1.20.3 shows; a task instance
    carries it to its worker.
    """

    name: str
    task_type: str
    upstream: tuple[str, ...]
    forbidden: bool
    max_retry_times: int
    retry_interval: timedelta
    priority: Priority
    worker_group_id: int
    task_json: str
    backoff: Backoff | None = None
    delay: timedelta = timedelta()
    timeout: TaskTimeout | None = None
    pools: tuple[PoolShare, ...] = ()
    pool_priority: int = 0
    locks: tuple[LockNeed, ...] = ()
    worker_need: WorkerNeed | None = None
    control: Control | None = None
    retry_policy: RetryPolicy = RETRIES_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGraph:
    """A definition as it was read: its nodes in the order written, and their DAG."""

    nodes: Mapping[str, TaskNode]
    dag: Dag
    global_params: str
    timeout_minutes: int
    tenant_id: int
    timeout_strategy: TimeoutStrategy = TimeoutStrategy.WARN


def read_process_json(text: str, *, task_types: Mapping[str, TaskTypeSpec]) -> ProcessGraph:
    """Read `process_definition_json`; `task_types` are those that its tasks may have.

    Raises `InvalidDefinitionError`, whose `mistakes` name every mistake with its place (node and
    key), so that an author mends them in one go.
    """
    return _Reader(task_types).read(text)


_Value = TypeVar("_Value")


class _Reader:
    """Collects mistakes while it reads, so that one bad key hides no other."""

    def __init__(self, task_types: Mapping[str, TaskTypeSpec]) -> None:
        self._task_types = task_types
        self._mistakes: list[str] = []

    def read(self, text: str) -> ProcessGraph:
        document = self._document(text)
        entries = document.get("tasks")
        if not isinstance(entries, list) or not entries:
            raise InvalidDefinitionError(("tasks: at least one task is needed",))
        if len(entries) > MAX_NODES:
            raise InvalidDefinitionError(
                (f"tasks: {len(entries)} tasks; at most {MAX_NODES} are allowed",)
            )
        nodes: dict[str, TaskNode] = {}
        for index, entry in enumerate(entries):
            node = self._node(entry, f"tasks[{index}]")
            if node is None:
                continue
            if node.name in nodes:
                self._mistakes.append(f"tasks[{index}].name: {node.name!r} is used twice")
                continue
            nodes[node.name] = node
        for node in nodes.values():
            for upstream in node.upstream:
                if upstream not in nodes:
                    self._mistakes.append(
                        f"task {node.name!r}, preTasks: there is no task {upstream!r}"
                    )
        timeout = self._integer(document, "timeout", "timeout", default=0, highest=MAX_MINUTES)
        strategy = self._strategy(document.get("timeoutStrategy"), "timeoutStrategy")
        tenant = self._integer(document, "tenantId", "tenantId", default=-1, lowest=-1)
        global_params = self._global_params(document.get("globalParams"))
        dag = self._dag(nodes)
        if dag is not None:
            self._check_branches(dag, nodes)
        if dag is None or self._mistakes:
            raise InvalidDefinitionError(tuple(self._mistakes))
        return ProcessGraph(
            nodes=nodes,
            dag=dag,
            global_params=global_params,
            timeout_minutes=timeout,
            tenant_id=tenant,
            timeout_strategy=strategy or TimeoutStrategy.WARN,
        )

    def _check_branches(self, dag: Dag, nodes: Mapping[str, TaskNode]) -> None:
        for node in nodes.values():
            if node.control is not None:
                self._mistakes += check_targets(
                    node.name,
                    node.control,
                    downstream=dag.downstream[node.name],
                    node_names=nodes,
                    upstream=dag.upstream[node.name],
                )

    def _dag(self, nodes: Mapping[str, TaskNode]) -> Dag | None:
        """Return the DAG of the edges between existing tasks: a cycle hides behind nothing."""
        try:
            return build_dag(
                {
                    node.name: [name for name in node.upstream if name in nodes]
                    for node in nodes.values()
                }
            )
        except DagError as error:
            self._mistakes.append(f"tasks: {error}")
            return None

    def _document(self, text: str) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidDefinitionError(
                (f"not JSON: {error.msg} at line {error.lineno} column {error.colno}",)
            ) from error
        except RecursionError as error:
            raise InvalidDefinitionError(("the JSON is nested too deeply",)) from error
        except ValueError as error:
            # A whole number of thousands of digits is refused by Python itself.
            raise InvalidDefinitionError((f"the JSON can't be read: {error}",)) from error
        if not isinstance(document, dict):
            raise InvalidDefinitionError(("the JSON must be an object with the key 'tasks'",))
        return document

    def _node(self, entry: object, place: str) -> TaskNode | None:
        if not isinstance(entry, dict):
            self._mistakes.append(f"{place}: a task must be an object")
            return None
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            self._mistakes.append(f"{place}.name: a task needs a name")
            return None
        place = f"task {name[:80]!r}"
        if fault := _fault_of_name(name):
            self._mistakes.append(f"{place}, name: {fault}")
        task_type = entry.get("type")
        if not isinstance(task_type, str) or task_type.upper() not in self._task_types:
            known = ", ".join(sorted(self._task_types))
            self._mistakes.append(f"{place}, type: {task_type!r} is unknown (known: {known})")
            task_type = ""
        run_flag = entry.get("runFlag") or "NORMAL"
        if run_flag not in ("NORMAL", "FORBIDDEN"):
            self._mistakes.append(
                f"{place}, runFlag: must be NORMAL or FORBIDDEN, not {run_flag!r}"
            )
        params: dict[str, Any] = self._nested(entry, "params", place, dict, default={})
        upstream = self._names(entry, place)
        retries = self._integer(
            entry, "maxRetryTimes", f"{place}, maxRetryTimes", default=0, highest=MAX_RETRIES
        )
        interval = self._integer(
            entry, "retryInterval", f"{place}, retryInterval", default=0, highest=1_000_000
        )
        group = self._integer(
            entry, "workerGroupId", f"{place}, workerGroupId", default=-1, lowest=-1
        )
        priority = entry.get("taskInstancePriority") or "MEDIUM"
        if not isinstance(priority, str) or priority not in Priority.__members__:
            self._mistakes.append(
                f"{place}, taskInstancePriority: must be one of"
                f" {', '.join(Priority.__members__)}, not {priority!r}"
            )
            priority = "MEDIUM"
        task_type = task_type.upper()
        delay = self._integer(
            entry, "delayTime", f"{place}, delayTime", default=0, highest=MAX_MINUTES
        )
        # The worker reads it again, from the task's own JSON.
        self._integer(entry, "memoryMax", f"{place}, memoryMax", default=0, lowest=-1)
        self._integer(
            entry,
            "environmentCode",
            f"{place}, environmentCode",
            default=-1,
            lowest=-1,
            highest=2**63 - 1,
        )
        pools, pool_priority = self._pools(entry, place)
        locks = self._locks(entry, place)
        worker_need = read_worker_need(
            entry.get("workerSelect"), f"{place}, workerSelect", self._mistakes
        )
        # A worker's type is not asked, since that would import its module.
        is_retried = task_type not in CONTROL_TYPES or CONTROL_TYPES[task_type].is_retried
        if task_type in CONTROL_TYPES and (delay or pools or locks or worker_need):
            key = "delayTime" if delay else "taskGroups" if pools else "locks"
            key = key if delay or pools or locks else "workerSelect"
            self._mistakes.append(
                f"{place}, {key}: a {task_type} takes no slot and is never held back;"
                " give it to the tasks around it"
            )
        return TaskNode(
            name=name,
            task_type=task_type,
            upstream=upstream,
            forbidden=run_flag == "FORBIDDEN",
            max_retry_times=retries if is_retried else 0,
            backoff=self._backoff(entry, place),
            delay=timedelta(minutes=delay),
            timeout=self._timeout(entry, place),
            pools=pools,
            pool_priority=pool_priority,
            locks=locks,
            worker_need=worker_need,
            control=read_control(task_type, entry, place, self._mistakes),
            retry_interval=timedelta(minutes=interval),
            priority=Priority[priority],
            worker_group_id=group,
            task_json=_task_json(entry, params, upstream),
            retry_policy=read_retry_policy(
                task_type, entry, place, self._mistakes, task_types=self._task_types
            ),
        )

    def _timeout(self, entry: dict[str, Any], place: str) -> TaskTimeout | None:
        """`{"strategy": "WARN,FAILED", "interval": 30, "enable": true}` (contract §1.20.2)."""
        timeout: dict[str, Any] = self._nested(entry, "timeout", place, dict, default={})
        if timeout.get("enable") not in (True, "true", "TRUE", 1, "1"):
            return None
        where = f"{place}, timeout"
        minutes = self._integer(
            timeout, "interval", f"{where}.interval", default=0, highest=MAX_MINUTES
        )
        strategy = self._strategy(timeout.get("strategy"), f"{where}.strategy")
        if minutes <= 0:
            self._mistakes.append(f"{where}.interval: an enabled time-out needs minutes, 1 or more")
        if strategy is None:
            if timeout.get("strategy") in (None, ""):
                self._mistakes.append(
                    f"{where}.strategy: an enabled time-out needs WARN, FAILED or WARN,FAILED"
                )
            return None
        return TaskTimeout(after=timedelta(minutes=minutes), strategy=strategy)

    def _strategy(self, value: object, place: str) -> TimeoutStrategy | None:
        """WARN, FAILED, or the two joined in either order; None if it is absent or a mistake."""
        if value is None or value == "":
            return None
        words = sorted({word.strip() for word in str(value).upper().split(",")})
        name = "WARNFAILED" if words == ["FAILED", "WARN"] else "".join(words)
        if name not in TimeoutStrategy.__members__:
            self._mistakes.append(
                f"{place}: must be WARN, FAILED or WARN,FAILED, not {value!r:.60}"
            )
            return None
        return TimeoutStrategy[name]

    def _backoff(self, entry: dict[str, Any], place: str) -> Backoff | None:
        """`{"factor": 2, "maxInterval": 60, "jitter": 0.2}`, all of it optional."""
        backoff: dict[str, Any] = self._nested(entry, "retryBackoff", place, dict, default={})
        if not backoff:
            return None
        where = f"{place}, retryBackoff"
        for key in backoff:
            if key not in ("factor", "maxInterval", "jitter"):
                self._mistakes.append(
                    f"{where}.{key[:40]}: unknown (known: factor, maxInterval, jitter)"
                )
        longest = self._integer(
            backoff, "maxInterval", f"{where}.maxInterval", default=0, highest=MAX_MINUTES
        )
        return Backoff(
            factor=self._share(backoff, "factor", where, default=2.0, lowest=1.0, highest=100.0),
            longest=timedelta(minutes=longest) if longest else None,
            jitter=self._share(backoff, "jitter", where, default=0.0, lowest=0.0, highest=1.0),
        )

    def _share(
        self,
        entry: Mapping[str, Any],
        key: str,
        place: str,
        *,
        default: float,
        lowest: float,
        highest: float,
    ) -> float:
        value = entry.get(key)
        if value is None or value == "":
            return default
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not isfinite(number) or not lowest <= number <= highest:
            self._mistakes.append(
                f"{place}.{key}: must be a number from {lowest:g} to {highest:g}, not {value!r:.40}"
            )
            return default
        return number

    def _pools(self, entry: dict[str, Any], place: str) -> tuple[tuple[PoolShare, ...], int]:
        """Return the pools of a task and its priority: `taskGroupId`, as later, or `taskGroups`."""
        priority = self._integer(
            entry,
            "taskGroupPriority",
            f"{place}, taskGroupPriority",
            default=0,
            lowest=-1_000_000,
            highest=1_000_000,
        )
        single = self._integer(entry, "taskGroupId", f"{place}, taskGroupId", default=0)
        shares = [PoolShare(pool_id=single)] if single > 0 else []
        several: list[Any] = self._nested(entry, "taskGroups", place, list, default=[])
        for index, each in enumerate(several[: MAX_POOLS + 1]):
            share = self._pool(each, f"{place}, taskGroups[{index}]")
            if share is not None:
                shares.append(share)
        named = [(share.pool_id, share.pool_name) for share in shares]
        if len(several) > MAX_POOLS:
            self._mistakes.append(
                f"{place}, taskGroups: at most {MAX_POOLS} pools, not {len(several)}"
            )
        elif len(set(named)) < len(named):
            self._mistakes.append(f"{place}, taskGroups: a pool is named twice")
        return tuple(shares), priority

    def _locks(self, entry: dict[str, Any], place: str) -> tuple[LockNeed, ...]:
        needs: list[Any] = self._nested(entry, "locks", place, list, default=[])
        if len(needs) > MAX_LOCKS:
            self._mistakes.append(f"{place}, locks: at most {MAX_LOCKS}, not {len(needs)}")
        read = (
            read_lock(each, f"{place}, locks[{index}]", self._mistakes)
            for index, each in enumerate(needs[:MAX_LOCKS])
        )
        return tuple(need for need in read if need is not None)

    def _pool(self, entry: object, place: str) -> PoolShare | None:
        if isinstance(entry, str):
            entry = {"name": entry}
        if not isinstance(entry, dict):
            self._mistakes.append(f'{place}: must be {{"name": "db", "slots": 1}} or a name')
            return None
        slots = self._integer(
            entry, "slots", f"{place}.slots", default=1, lowest=1, highest=MAX_SLOTS
        )
        pool_id = self._integer(entry, "id", f"{place}.id", default=0)
        name = entry.get("name")
        if pool_id > 0:
            return PoolShare(pool_id=pool_id, slots=slots)
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_LENGTH:
            self._mistakes.append(f"{place}.name: a pool is named by its name, or by its id")
            return None
        return PoolShare(pool_name=name, slots=slots)

    def _names(self, entry: dict[str, Any], place: str) -> tuple[str, ...]:
        key = "preTasks" if entry.get("preTasks") is not None else "depList"
        names: list[Any] = self._nested(entry, key, place, list, default=[])
        if not all(isinstance(name, str) for name in names):
            self._mistakes.append(f"{place}, {key}: must be a list of task names")
            return ()
        return tuple(dict.fromkeys(name for name in names if name))

    def _nested(
        self,
        entry: dict[str, Any],
        key: str,
        place: str,
        kind: Callable[[], _Value],
        *,
        default: _Value,
    ) -> _Value:
        """Return an object or a list, as itself or as text that holds it as JSON."""
        value = entry.get(key)
        if value is None or value == "":
            return default
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                self._mistakes.append(f"{place}, {key}: the text is not JSON")
                return default
        if type(value) is not kind:
            what = "an object" if kind is dict else "a list"
            self._mistakes.append(f"{place}, {key}: must be {what}")
            return default
        checked: _Value = value
        return checked

    def _integer(
        self,
        entry: Mapping[str, Any],
        key: str,
        place: str,
        *,
        default: int,
        lowest: int = 0,
        highest: int = 2**31 - 1,
    ) -> int:
        value = entry.get(key)
        if value is None or value == "":
            return default
        # 1.5, true and 1_0 are mistakes here, though int() takes all three.
        text = str(value).strip()
        if not _WHOLE_NUMBER.fullmatch(text):
            self._mistakes.append(f"{place}: must be a whole number, not {value!r:.60}")
            return default
        number = int(text)
        if not lowest <= number <= highest:
            self._mistakes.append(f"{place}: must be from {lowest} to {highest}, not {number}")
            return default
        return number

    def _global_params(self, value: object) -> str:
        if isinstance(value, str) and value:
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                self._mistakes.append("globalParams: the text is not JSON")
                return "[]"
        if value is None or value == "":
            return "[]"
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self._mistakes.append("globalParams: must be a list of objects")
            return "[]"
        for index, item in enumerate(value):
            if not isinstance(item.get("prop"), str) or not item["prop"]:
                self._mistakes.append(f"globalParams[{index}].prop: a parameter needs a name")
        return json.dumps(value, ensure_ascii=False)


def _fault_of_name(name: str) -> str | None:
    """Return why a task can't have this name; None if it can.

    A name is a vertex key, stands in comma-joined start lists (contract §1.20.2), in PostgreSQL
    text (no NUL) and on terminals; it never becomes part of a path.
    """
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if name != name.strip():
        return "begins or ends with white space"
    if "," in name:
        return "has a comma, which divides names in start lists"
    if not name.isprintable():
        return "has a control character"
    return None


_AS_TEXT = ("params", "dependence", "timeout", "preTasks", "conditionResult", "extras")


def _task_json(entry: dict[str, Any], params: object, upstream: tuple[str, ...]) -> str:
    node = dict(entry)
    node["params"] = params
    node["preTasks"] = list(upstream)
    node["depList"] = list(upstream)
    for key in _AS_TEXT:
        if key in node and not isinstance(node[key], str):
            node[key] = _text(node[key])
    return _text(dict(sorted(node.items())))


def _text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8 form: no table could hold it unless it is escaped.
        return json.dumps(value)
    return text
