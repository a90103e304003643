"""A run that is watched: what a terminal shows, and what a pipe gets."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console, RenderableType

from common.model.states import ProcessState, TaskState
from common.store.views import ProcessInstanceView, TaskInstanceView
from orcaflow.watch import Lines, Sight, Tree, failures
from tests.builders import a_dag

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=90)

INSTANCE = ProcessInstanceView(
    id=12,
    name="nightly-1-1",
    process_definition_id=1,
    definition_name="nightly",
    state=ProcessState.RUNNING,
    wanted_state=None,
    state_reason=None,
    command_type=0,
    run_times=1,
    failure_strategy=1,
    priority=2,
    schedule_time=None,
    start_time=NOON,
    end_time=None,
    host="127.0.0.1:5678",
    owner_epoch=1,
)


def an_attempt(name: str, state: TaskState, **changes: object) -> TaskInstanceView:
    attempt = TaskInstanceView(
        id=34,
        process_instance_id=12,
        name=name,
        task_type="SHELL",
        attempt=1,
        state=state,
        valid=True,
        wanted_state=None,
        submit_time=NOON,
        start_time=NOON,
        end_time=NOON + timedelta(seconds=3) if state.is_finished else None,
        host=None,
        pid=None,
        exit_code=None,
        reason=None,
        retry_at=None,
        retry_times=0,
        max_retry_times=0,
        execute_path=None,
        log_path=None,
        app_link=None,
    )
    return replace(attempt, **changes)  # type: ignore[arg-type]  # Fields of a test's choice.


def a_sight(*attempts: TaskInstanceView, **changes: object) -> Sight:
    instance = replace(INSTANCE, **changes)  # type: ignore[arg-type]  # As above.
    return Sight(instance=instance, tasks={attempt.name: attempt for attempt in attempts})


def drawn(sight: Sight, dag: str, *, height: int = 24) -> list[str]:
    """The lines on a terminal of this height."""
    out = io.StringIO()
    console = Console(file=out, width=80, height=height, color_system=None)
    last: list[RenderableType] = []
    Tree(console, last.append, a_dag(dag)).show(sight, now=LATER)
    console.print(last[-1])
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_terminal_shows_the_dag_with_states_and_durations() -> None:
    sight = a_sight(
        an_attempt("extract", TaskState.SUCCESS),
        an_attempt("load", TaskState.RUNNING, attempt=2),
    )
    head, *lines = drawn(sight, "extract >> load >> report")
    assert head == "nightly-1-1 RUNNING  1m30s"
    assert lines[0].split() == ["extract", "✔", "SUCCESS", "3.0s"]
    assert lines[1].split() == ["load", "▶", "RUNNING", "1m30s", "attempt", "2"]
    assert lines[2].split() == ["report", "·", "WAITING"]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    assert indents == [2, 4, 6]


def test_a_big_dag_shows_first_what_failed_or_runs() -> None:
    names = [f"t{index}" for index in range(50)]
    attempts = [an_attempt(name, TaskState.SUCCESS) for name in names[:40]]
    attempts[7] = an_attempt("t7", TaskState.FAILURE)
    sight = a_sight(*attempts, an_attempt("t45", TaskState.RUNNING))
    lines = drawn(sight, "; ".join(names), height=10)
    assert len(lines) == 8
    shown = [line.split()[0] for line in lines[1:-1]]
    assert {"t7", "t45"} <= set(shown)
    assert "44 more" in lines[-1]
    assert "1 FAILURE" in lines[-1]


def test_a_hostile_name_steers_no_terminal() -> None:
    name = "evil\x1b]0;x\x07"
    sight = Sight(instance=INSTANCE, tasks={name: an_attempt(name, TaskState.RUNNING)})
    assert any("evil\\x1b]0;x\\x07" in line for line in drawn(sight, "a"))


def test_a_pipe_gets_a_line_for_each_change_and_none_for_a_look() -> None:
    told: list[str] = []
    lines = Lines(told.append, UTC)
    running = a_sight(an_attempt("a", TaskState.RUNNING))
    lines.show(running, now=NOON)
    lines.show(running, now=LATER)
    lines.show(a_sight(an_attempt("a", TaskState.SUCCESS)), now=LATER)
    assert told == [
        "process instance 12 (nightly-1-1):",
        "2026-01-02 12:00:00  a  RUNNING",
        "2026-01-02 12:01:30  a  SUCCESS  3.0s",
    ]


def test_a_failure_without_its_log_still_tells_its_reason(tmp_path: Path) -> None:
    failed = an_attempt("a", TaskState.FAILURE, reason="there is no file x.py on this worker")
    sight = a_sight(failed, state=ProcessState.FAILURE, end_time=LATER)
    told = "\n".join(failures(tmp_path, sight))
    assert "there is no file x.py" in told
    assert "no worker has started it" in told


def test_a_success_has_no_failures_to_tell(tmp_path: Path) -> None:
    sight = a_sight(an_attempt("a", TaskState.SUCCESS), state=ProcessState.SUCCESS)
    assert list(failures(tmp_path, sight)) == []
