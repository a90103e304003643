"""A watched run, on a terminal and in a pipe."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from common.model.spark import Progress, Usage, to_text
from common.model.states import ProcessState, TaskState
from common.store.people.views import ProcessInstanceView, TaskInstanceView
from operations.documents.instances import task_row
from operations.instances import RunSnapshot
from operations.task_log import last_lines
from orcaflow.cli.screens.progress import application_lines, bar, in_words
from orcaflow.cli.screens.task_table import task_table
from orcaflow.cli.screens.watch import LOG_TAIL_LINES, Lines, Tree, failures
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


def here(home: Path) -> Callable[[TaskInstanceView], list[str]]:
    return lambda task: last_lines(home, task.log_path, lines=LOG_TAIL_LINES)


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
    return attempt._replace(**changes)


def a_sight(*attempts: TaskInstanceView, **changes: object) -> RunSnapshot:
    instance = INSTANCE._replace(**changes)
    return RunSnapshot(instance=instance, tasks={attempt.name: attempt for attempt in attempts})


def drawn(sight: RunSnapshot, dag: str, *, height: int = 24) -> list[str]:
    """The lines on a terminal of this height."""
    out = io.StringIO()
    console = Console(file=out, width=80, height=height, color_system=None)
    last: list[RenderableType] = []
    Tree(console, last.append, a_dag(dag), UTC).show(sight, now=LATER)
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
    sight = RunSnapshot(instance=INSTANCE, tasks={name: an_attempt(name, TaskState.RUNNING)})
    assert any("evil\\x1b]0;x\\x07" in line for line in drawn(sight, "a"))


def test_a_pipe_gets_a_line_for_each_change_and_none_for_a_look() -> None:
    told: list[str] = []
    lines = Lines(told.append, UTC)
    running = a_sight(an_attempt("a", TaskState.RUNNING))
    lines.show(running, now=NOON)
    lines.show(running, now=LATER)
    lines.show(a_sight(an_attempt("a", TaskState.SUCCESS)), now=LATER)
    assert told == [
        "process instance 12 (nightly-1-1), times in UTC:",
        "2026-01-02 12:00:00  a  RUNNING",
        "2026-01-02 12:01:30  a  SUCCESS  3.0s",
    ]


def test_a_failure_without_its_log_still_reports_its_reason(tmp_path: Path) -> None:
    failed = an_attempt("a", TaskState.FAILURE, reason="there is no file x.py on this worker")
    sight = a_sight(failed, state=ProcessState.FAILURE, end_time=LATER)
    told = "\n".join(failures(sight, last_lines=here(tmp_path)))
    assert "there is no file x.py" in told
    assert "no worker has started it" in told


def test_a_failed_control_task_points_to_its_decision(tmp_path: Path) -> None:
    failed = an_attempt("a", TaskState.FAILURE, reason="run 3 failed", task_type="DEPENDENT")
    sight = a_sight(failed, state=ProcessState.FAILURE, end_time=LATER)
    told = list(failures(sight, last_lines=here(tmp_path)))
    assert told[-2:] == ["  run 3 failed", f"  the decision: orcaflow task log {failed.id}"]


def test_a_success_has_no_failures_to_report(tmp_path: Path) -> None:
    sight = a_sight(an_attempt("a", TaskState.SUCCESS), state=ProcessState.SUCCESS)
    assert list(failures(sight, last_lines=here(tmp_path))) == []


# Spark applications


def an_application(name: str, state: TaskState = TaskState.RUNNING, **changes: object) -> Any:
    progress = Progress(tasks=40, tasks_done=12, tasks_running=3)
    told: dict[str, object] = {
        "app_link": "app-1,app-2",
        "ui_link": "http://driver:4040",
        "progress": to_text(progress),
    }
    return an_attempt(name, state, **told | changes)


def test_a_terminal_shows_how_far_an_application_has_come_and_where_it_is() -> None:
    _, running, place, waiting = drawn(a_sight(an_application("load")), "load >> report")
    assert running.split()[4:] == ["███░░░░░░░", "tasks", "12/40", "(3", "running)"]
    assert place.split() == ["app-2", "http://driver:4040"]
    assert waiting.split()[0] == "report"


def test_a_small_terminal_shows_the_tasks_before_the_places_of_their_applications() -> None:
    names = [f"t{index}" for index in range(6)]
    sight = a_sight(*(an_application(name) for name in names))
    lines = drawn(sight, "; ".join(names), height=12)
    assert [line.split()[0] for line in lines[1:]] == ["t0", "app-2", "t1", "app-2", *names[2:]]


def test_a_failure_is_shown_with_its_reason_in_a_word() -> None:
    failed = an_application("load", TaskState.FAILURE, failure_reason="OUT_OF_MEMORY")
    _, line = drawn(a_sight(failed), "load")
    assert line.split()[-1] == "OUT_OF_MEMORY"


def test_a_pipe_gets_the_place_once_and_the_progress_now_and_then() -> None:
    told: list[str] = []
    lines = Lines(told.append, UTC)
    for second in range(25):
        progress = Progress(tasks=40, tasks_done=second)
        sight = a_sight(an_application("a", progress=to_text(progress)))
        lines.show(sight, now=NOON + timedelta(seconds=second))
    lines.show(a_sight(an_application("a", TaskState.SUCCESS)), now=LATER)
    assert told[1:] == [
        "2026-01-02 12:00:00  a  RUNNING",
        "2026-01-02 12:00:00  a  app-2  http://driver:4040",
        "2026-01-02 12:00:00  a  tasks 0/40",
        "2026-01-02 12:00:10  a  tasks 10/40",
        "2026-01-02 12:00:20  a  tasks 20/40",
        "2026-01-02 12:01:30  a  SUCCESS  3.0s  tasks 12/40",
    ]


def test_a_failed_application_is_reported_with_its_place_and_its_reason(tmp_path: Path) -> None:
    failed = an_application("a", TaskState.FAILURE, failure_reason="FETCH_FAILED", exit_code=1)
    told = list(
        failures(
            a_sight(failed, state=ProcessState.FAILURE, end_time=LATER),
            last_lines=here(tmp_path),
        )
    )
    assert "a failed (task instance 34, attempt 1, exit code 1, FETCH_FAILED)" in told
    assert "  app-2  http://driver:4040" in told


def test_texts_of_an_application_steer_no_terminal() -> None:
    hostile = an_application(
        "a", app_link="app\x1b[2J", ui_link="javascript:alert(1)", history_link="http://a\x1b[2J"
    )
    text = "\n".join(drawn(a_sight(hostile), "a"))
    assert "\x1b" not in text
    assert "app\\x1b[2J" in text
    assert "javascript" not in text
    assert "http" not in text


def test_a_spoilt_column_of_progress_counts_as_nothing_known() -> None:
    for spoilt in ("", "{", "[]", "7", '{"tasks": "many"}', "[" * 100_000):
        line = drawn(a_sight(an_application("a", progress=spoilt, ui_link=None)), "a")[1]
        assert line.split()[:3] == ["a", "▶", "RUNNING"]
        assert "tasks" not in line


def test_an_attempt_as_json_has_progress_and_usage_as_objects() -> None:
    usage = to_text(Usage(run_seconds=2.5, core_seconds=8.0))
    row = task_row(an_application("a", usage=usage, failure_reason="KILLED"), now=LATER)
    assert isinstance(row["progress"], dict)
    assert isinstance(row["usage"], dict)
    assert (row["progress"]["tasks_done"], row["progress"]["share"]) == (12, 0.3)
    assert (row["usage"]["run_seconds"], row["usage"]["cpu_seconds"]) == (2.5, 0.0)
    assert (row["failure_reason"], row["memory_factor"]) == ("KILLED", 1.0)
    plain = task_row(an_attempt("a", TaskState.SUCCESS), now=LATER)
    assert (plain["progress"], plain["usage"], plain["failure_reason"]) == (None, None, None)


def test_a_table_has_the_columns_of_spark_only_if_there_is_something_to_show() -> None:
    columns = ("id", "progress", "failure_reason")
    plain = an_attempt("a", TaskState.SUCCESS)
    assert task_table([plain], columns, now=LATER)[1] == ("id",)
    rows, shown = task_table([plain, an_application("b")], columns, now=LATER)
    assert shown == ("id", "progress")
    assert [row["progress"] for row in rows] == [None, "tasks 12/40 (3 running)"]


def test_everything_known_of_an_application_is_put_into_words() -> None:
    progress = Progress(
        tasks=2,
        tasks_done=1,
        tasks_failed=1,
        rows_in=12_345,
        bytes_in=1_234_567_890,
        spill_bytes=999_600,
    )
    usage = Usage(run_seconds=75, cpu_seconds=1.5, peak_memory_bytes=512_000_000, core_seconds=900)
    task = an_application(
        "a",
        progress=to_text(progress),
        usage=to_text(usage),
        history_link="https://history/1",
        memory_factor=2.25,
    )
    assert dict(application_lines(task)) == {
        "application": "app-1, app-2",
        "UI": "http://driver:4040",
        "history": "https://history/1",
        "progress": "tasks 1/2 (1 failed)",
        "data": "in 12,345 rows, 1.23 GB; spilled 1 MB",
        "cost": "ran 1m15s, CPU 1.5s, peak memory 512 MB, 0.25 core-hours",
        "memory": "× 2.25 of what is configured, up to the task's ceiling",
    }
    assert dict(application_lines(an_attempt("a", TaskState.SUCCESS))) == {}


def test_an_application_without_tasks_yet_has_running_jobs_or_nothing() -> None:
    assert in_words(Progress(jobs_running=1)) == "1 job running"
    assert in_words(Progress()) == bar(Progress()) == ""
    assert in_words(Progress(waiting="the queue is full")) == "waits: the queue is full"
    assert in_words(Progress(waiting="\u202e" + "x" * 99)) == f"waits: \\u202e{'x' * 59}…"
    assert bar(Progress(tasks=1000, tasks_done=999)) == "█████████░"
    assert bar(Progress(tasks=3, tasks_done=3)) == "██████████"


def test_a_run_that_has_ended_promises_no_retry() -> None:
    failed = an_attempt("a", TaskState.FAILURE, retry_at=LATER)
    assert any("tried again at" in line for line in drawn(a_sight(failed), "a"))
    for state in (ProcessState.STOP, ProcessState.FAILURE, ProcessState.PAUSE):
        lines = drawn(a_sight(failed, state=state), "a")
        assert not any("tried again" in line for line in lines)


def test_a_pipe_is_told_that_a_promised_retry_is_given_up() -> None:
    for state, retry_at, word in (
        (ProcessState.READY_STOP, None, "not tried again"),
        (ProcessState.STOP, LATER, "not tried again"),
        (ProcessState.PAUSE, LATER, "tried again once resumed"),
    ):
        told: list[str] = []
        lines = Lines(told.append, UTC)
        lines.show(a_sight(an_attempt("a", TaskState.FAILURE, retry_at=LATER)), now=NOON)
        given_up = an_attempt("a", TaskState.FAILURE, retry_at=retry_at)
        for _ in range(2):
            lines.show(a_sight(given_up, state=state), now=LATER)
        assert told[2:] == [f"{told[2][:19]}  a  {word}"]
