"""Compares a run in memory with a freshly loaded one: equality is what makes memory a cache."""

from __future__ import annotations

from common.store.master.ports import LoadedRun
from master.engine.run import ProcessRun
from master.engine.task_run import TaskPhase, TaskRun
from master.loops.run_worker import RunWorker
from tests.memory.store import MemoryRunStore


def differences(runs: RunWorker, store: MemoryRunStore) -> list[str]:
    """The differences between runs in memory and freshly loaded ones, and broken invariants."""
    found = []
    for run in list(runs._runs.values()):
        of = f"process instance {run.ownership.process_instance_id}"
        for loaded in store.load([run.ownership]):
            assert isinstance(loaded, LoadedRun)
            fresh = runs._build(loaded)
            if fresh is None:
                found.append(f"{of} is in memory, and can't be loaded")
                continue
            mine, theirs = fingerprint(run), fingerprint(fresh)
            if mine != theirs:
                parts = [
                    f"{name}: memory has {mine[name]}, the tables {theirs[name]}"
                    for name in mine
                    if mine[name] != theirs.get(name)
                ]
                found.append(f"{of}: {'; '.join(parts)}; story: {run.story()[-12:]}")
    return found


def fingerprint(run: ProcessRun) -> dict[str, object]:
    """The state that the engine's decisions depend on."""
    return {
        "state": run.state,
        "deadline": run.deadline,
        "failing": run.failing,
        "ready": tuple(run.ready),
        # None of them will ever begin in a run that is halting.
        "deferred": sorted(run.deferred) if not run.is_halting else [],
        "occupants": sorted(run.occupants),
        "live": sorted(run.live),
        "unkilled": sorted(run.unkilled),
        "unpaused": sorted(run.unpaused),
        "retries": sorted(run.retries.items()),
        "failed": sorted(run.failed),
        "paused": sorted(run.paused),
        "unfinished": run.unfinished,
        "next retry": run.next_retry(),
        **{f"task {name}": _of_task(task) for name, task in run.tasks.items()},
        **{f"other task {name}": _of_task(task) for name, task in run.rest.items()},
    }


def _of_task(task: TaskRun) -> tuple[object, ...]:
    return (
        task.phase.value,
        task.attempt,
        task.retry_times,
        task.retry_at,
        # Only a promised attempt uses it.
        task.retry_counts or task.phase is not TaskPhase.RETRYING,
        task.missing,
        task.taken,
        task.left,
        task.refused,
        task.blocked,
        task.choosers,
        task.kill_requested,
        task.pause_requested,
        task.branch,
        task.var_pool,
        task.ended_at,
        task.failure,
        task.memory_factor,
        dict(task.variables),
    )
