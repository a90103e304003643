"""Builders for tests: what a test does not speak of gets a value here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from common.dag import Dag, build_dag
from common.model.decisions import Decision
from common.model.definitions import TaskNode
from common.model.instances import Ownership
from common.model.states import FailureStrategy, Priority, ProcessState
from master.engine.advance import advance
from master.engine.events import (
    Event,
    RunOpened,
    TaskFailed,
    TaskKilled,
    TaskSucceeded,
    WorkerLost,
)
from master.engine.run import ProcessRun

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def a_node(name: str, upstream: Iterable[str] = (), **changes: Any) -> TaskNode:
    """A SHELL node."""
    node = TaskNode(
        name=name,
        task_type="SHELL",
        upstream=tuple(upstream),
        forbidden=False,
        max_retry_times=0,
        retry_interval=timedelta(),
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        task_json="{}",
    )
    return replace(node, **changes)


def edges(text: str) -> dict[str, list[str]]:
    """Read "a >> b c; c >> d" as name → upstream; a name alone is a node alone."""
    upstream: dict[str, list[str]] = {}
    for chain in text.split(";"):
        stages = [stage.split() for stage in chain.split(">>")]
        for stage in stages:
            for name in stage:
                upstream.setdefault(name, [])
        for above, below in pairwise(stages):
            for name in below:
                upstream[name] += [other for other in above if other not in upstream[name]]
    return upstream


def a_dag(text: str) -> Dag:
    """A DAG from "a >> b c; c >> d"."""
    return build_dag(edges(text))


def a_run(
    text: str,
    *,
    strategy: FailureStrategy = FailureStrategy.CONTINUE,
    retries: Mapping[str, int] | None = None,
    interval: timedelta = timedelta(minutes=1),
    forbidden: Iterable[str] = (),
    priorities: Mapping[str, Priority] | None = None,
    opened: bool = True,
) -> ProcessRun:
    """A run of this DAG; opened, unless told otherwise, so its heads are live."""
    dag = a_dag(text)
    off = tuple(forbidden)
    nodes = {
        name: a_node(
            name,
            dag.upstream[name],
            max_retry_times=(retries or {}).get(name, 0),
            retry_interval=interval,
            forbidden=name in off,
            priority=(priorities or {}).get(name, Priority.MEDIUM),
        )
        for name in dag.names
    }
    run = ProcessRun(
        ownership=Ownership(process_instance_id=1, host="m:1", epoch=1),
        dag=dag,
        nodes=nodes,
        state=ProcessState.RUNNING,
        failure_strategy=strategy,
    )
    if opened:
        tell(run, RunOpened())
    return run


def tell(run: ProcessRun, *events: Event, now: datetime = NOON) -> list[Decision]:
    """Advance the run by these events, checking it after each; everything decided."""
    decided: list[Decision] = []
    for event in events:
        decided += advance(run, event, now=now)
        run.check()
    return decided


def succeeded(name: str, attempt: int = 1, at: datetime = NOON) -> TaskSucceeded:
    """The report that an attempt ended well."""
    return TaskSucceeded(name=name, attempt=attempt, at=at)


def failed(name: str, attempt: int = 1, at: datetime = NOON) -> TaskFailed:
    """The report that an attempt ended badly."""
    return TaskFailed(name=name, attempt=attempt, at=at)


def killed(name: str, attempt: int = 1, at: datetime = NOON) -> TaskKilled:
    """The report that an attempt was killed."""
    return TaskKilled(name=name, attempt=attempt, at=at)


def lost(name: str, attempt: int = 1, at: datetime = NOON) -> WorkerLost:
    """The report that an attempt's worker is gone."""
    return WorkerLost(name=name, attempt=attempt, at=at)


def a_definition_json(text: str, **of_task: Mapping[str, Any]) -> str:
    """1.2 JSON of this DAG with SHELL tasks that run `true`; `of_task` adds keys to a task."""
    tasks = []
    for name, upstream in edges(text).items():
        task: dict[str, Any] = {
            "id": f"tasks-{name}",
            "name": name,
            "type": "SHELL",
            "params": {"rawScript": "true", "localParams": [], "resourceList": []},
            "runFlag": "NORMAL",
            "preTasks": upstream,
        }
        tasks.append(task | dict(of_task.get(name, {})))
    return json.dumps({"globalParams": [], "tasks": tasks, "tenantId": -1, "timeout": 0})
