"""The invariants of a run, checked after it is loaded and, in tests, after every step. Pure."""

from __future__ import annotations

from common.model.states import ProcessState
from master.engine.run import ProcessRun
from master.engine.task_run import Edge, TaskPhase, TaskRun


def check(run: ProcessRun) -> None:
    """Raise `ImpossibleError` unless every invariant holds."""
    unfinished = 0
    for name, task in run.tasks.items():
        _check_task(run, name, task)
        unfinished += not task.phase.is_done
    _require(run, run.unfinished == unfinished, "unfinished tasks are miscounted")
    if run.is_over:
        _require(run, not run.live, "it is over, yet tasks are live")
        _require(
            run,
            not run.retries or run.state is ProcessState.PAUSE,
            "it is over, yet a retry is promised",
        )
        _require(
            run,
            (run.state is ProcessState.SUCCESS) == (run.unfinished == 0 and not run.left_over()),
            "its state does not agree with its tasks",
        )
    elif run.is_halting:
        _require(run, not run.retries, "it is halting, yet a retry is promised")
        _require(
            run,
            all(run.tasks[name].kill_requested for name in run.live),
            "it is halting, yet nobody asked to kill a live task",
        )
    elif run.is_pausing:
        _require(
            run,
            all(_is_asked(run.tasks[name]) for name in run.live),
            "it is pausing, yet nobody asked a live task to pause",
        )


def _check_task(run: ProcessRun, name: str, task: TaskRun) -> None:
    edges = run.edges(name)
    phase = task.phase
    _require(
        run,
        (task.missing, task.taken, task.left, task.refused, task.blocked)
        == (
            edges.count(Edge.OPEN),
            edges.count(Edge.TAKEN) + run.outside(name),
            edges.count(Edge.LEFT),
            edges.count(Edge.REFUSED),
            edges.count(Edge.BLOCKED),
        ),
        f"{name!r} miscounts its upstream",
    )
    if phase in (TaskPhase.LIVE, TaskPhase.RETRYING, TaskPhase.PASSED):
        _require(
            run,
            Edge.OPEN not in edges
            and Edge.BLOCKED not in edges
            and Edge.REFUSED not in edges
            and (task.taken > 0 or not edges),
            f"{name!r} is {phase.value} though its upstream is not done",
        )
    if phase is TaskPhase.SKIPPED:
        _require(
            run,
            Edge.OPEN not in edges
            and (Edge.REFUSED in edges or (bool(edges) and edges.count(Edge.LEFT) == len(edges))),
            f"{name!r} is skipped though a path leads to it",
        )
    _require(
        run,
        task.attempt > 0 or phase in (TaskPhase.IDLE, TaskPhase.PASSED, TaskPhase.SKIPPED),
        f"{name!r} is {phase.value} without an attempt",
    )
    _require(run, (phase is TaskPhase.LIVE) == (name in run.live), f"{name!r}: live or not?")
    _require(
        run, (phase is TaskPhase.RETRYING) == (name in run.retries), f"{name!r}: retrying or not?"
    )
    _require(
        run,
        (phase in (TaskPhase.LIVE, TaskPhase.RETRYING) and run.is_limited(name))
        == (name in run.occupants),
        f"{name!r}: does it count against the limit?",
    )
    _require(run, (phase is TaskPhase.FAILED) == (name in run.failed), f"{name!r}: failed?")
    _require(run, (phase is TaskPhase.PAUSED) == (name in run.paused), f"{name!r}: paused?")
    _require(
        run,
        phase is not TaskPhase.PASSED or task.node.forbidden,
        f"{name!r} was passed but is not forbidden",
    )
    _require(
        run,
        phase not in (TaskPhase.FAILED, TaskPhase.TOLERATED)
        or (phase is TaskPhase.TOLERATED) == run.tolerates(name),
        f"the failure of {name!r} is misjudged",
    )
    _require(run, task.retry_times <= task.node.max_retry_times, f"{name!r} retried too often")
    _require(
        run,
        task.failure is None or (phase is TaskPhase.RETRYING and task.retry_counts),
        f"{name!r} is {phase.value} and remembers a failure",
    )


def _require(run: ProcessRun, truth: bool, what: str) -> None:
    if not truth:
        raise run.impossible(what)


def _is_asked(task: TaskRun) -> bool:
    return task.kill_requested or task.pause_requested
