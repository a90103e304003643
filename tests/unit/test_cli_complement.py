"""`orcaflow complement`: its options, the estimates of a plan, and the live display."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from rich.console import Console, RenderableType

from common.model.complement_states import ComplementState, DateState, Reprocess
from common.model.states import ProcessState
from common.store.people.complement_views import ComplementDateView, ComplementView
from operations.complement_plans import estimated, skip_reason
from operations.complement_progress import Sight, blocker, is_over, time_left
from operations.complementing import read_dates
from operations.documents.complements import complement_row
from operations.errors import UsageError
from operations.times import read_moment
from orcaflow.cli.app import main
from orcaflow.cli.commands import complement_run
from orcaflow.cli.screens.complement_display import Bars, Lines, closing

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NEW_YORK = ZoneInfo("America/New_York")
SECOND = timedelta(seconds=1)

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs a command in a home of its own: exit code, standard output, standard error."""
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def a_view(**changes: object) -> ComplementView:
    view = ComplementView(
        id=3,
        process_definition_id=1,
        definition_name="flights",
        state=ComplementState.RUNNING,
        state_reason=None,
        parallelism=2,
        run_order="ascending",
        on_failure="stop",
        reprocess="all",
        date_rule="schedule_time",
        timezone_id="America/New_York",
        after_id=0,
        command_id=0,
        task_depend_type=2,
        failure_strategy=1,
        priority=2,
        worker_group_id=-1,
        environment_code=-1,
        environment=None,
        start_node_names=None,
        start_params=None,
        create_time=NOON,
        end_time=None,
        dates={"pending": 5, "running": 1, "success": 3, "failure": 1},
    )
    return replace(view, **changes)  # type: ignore[arg-type]  # Fields of a test's choice.


def a_date(day: int, state: DateState, **changes: object) -> ComplementDateView:
    date = ComplementDateView(
        id=day,
        complement_id=3,
        position=day,
        schedule_time=datetime(2013, 1, day, 5, tzinfo=UTC),
        state=state,
        reason=None,
        process_instance_id=10 + day,
        instance_state=None,
        start_time=NOON,
        end_time=None if state is DateState.RUNNING else NOON + 4 * SECOND,
        update_time=NOON,
    )
    return replace(date, **changes)  # type: ignore[arg-type]  # As above.


def test_a_parameter_whose_name_sounds_secret_is_not_shown() -> None:
    given = '{"region": "eu", "db_password": "hunter2", "nested": {"token": "hunter2"}}'
    row = complement_row(a_view(start_params=given), now=NOON)
    assert row["start_params"] == {
        "region": "eu",
        "db_password": "******",
        "nested": {"token": "******"},
    }


def test_the_first_word_is_a_command_or_the_name_of_a_definition(cli: Cli) -> None:
    # All three get as far as the database, which is not there.
    for words in (["flights"], ["run", "list"], ["--from", "2013-01-01", "flights"]):
        code, _, err = cli("complement", *words, "--to", "2013-01-02")
        assert code == 5, err
    assert cli("complement", "show", "first")[0] == 2


def test_a_misspelt_command_is_no_definition(cli: Cli) -> None:
    code, _, err = cli("complement", "pauze", "3")
    assert code == 2
    assert "did you mean 'pause'?" in err
    assert "complement run pauze" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--parallel 0", "'--parallel': from 1 to 1000 dates may run at the same time, not 0"),
        ("--parallel 5000", "not 5000"),
        ("--order up", "--order"),
        ("--reprocess some", "--reprocess"),
        ("--on-failure retry", "--on-failure"),
        ("--plan --wait", "--plan begins nothing"),
        ("--timeout 5s", "--timeout needs --wait"),
        ("--wait --timeout soon", "--timeout"),
    ],
)
def test_options_are_refused_before_anything_is_asked_of_the_database(
    cli: Cli, options: str, message: str
) -> None:
    code, out, err = cli("complement", "flights", "--date", "2013-01-01", *options.split())
    assert (code, out) == (2, "")
    assert message in err


def test_the_limit_of_parallelism_is_that_of_typed_rows() -> None:
    from common.complementing import PARALLELISM_LIMIT

    assert complement_run.PARALLELISM_LIMIT == PARALLELISM_LIMIT


def test_a_date_alone_is_its_midnight_and_at_the_end_all_of_its_day() -> None:
    assert read_moment("2013-01-31", NEW_YORK, field="first") == datetime(
        2013, 1, 31, 5, tzinfo=UTC
    )
    last = read_moment("2013-01-31", NEW_YORK, field="last", ends_day=True)
    assert last == datetime(2013, 2, 1, 4, 59, 59, tzinfo=UTC)


def test_a_list_names_the_places_of_what_it_has_twice_or_can_not_read() -> None:
    with pytest.raises(UsageError, match=r"date 3 \(2013-01-01\) is date 1 again"):
        read_dates(["2013-01-01", "2013-01-02", "2013-01-01"], NEW_YORK)
    # The same instant, though written differently.
    with pytest.raises(UsageError, match=r"date 2 .* is date 1 again"):
        read_dates(["2013-01-01", "2013-01-01T05:00:00Z"], NEW_YORK)
    with pytest.raises(UsageError, match=r"date 2: '2013-02-30'"):
        read_dates(["2013-01-01", "2013-02-30"], NEW_YORK)


@pytest.mark.parametrize(
    ("reprocess", "left_alone"),
    [
        (Reprocess.ALL, set()),
        (Reprocess.FAILED, {"SUBMITTED", "RUNNING", "SUCCESS"}),
        (Reprocess.MISSING, {"SUBMITTED", "RUNNING", "SUCCESS", "FAILURE", "STOP", "PAUSE"}),
    ],
)
def test_reprocess_says_which_dates_with_a_run_are_left_alone(
    reprocess: Reprocess, left_alone: set[str]
) -> None:
    states = ("SUBMITTED", "RUNNING", "SUCCESS", "FAILURE", "STOP", "PAUSE")
    skipped = {name for name in states if skip_reason(reprocess, 12, ProcessState[name])}
    assert skipped == left_alone


def test_a_reason_distinguishes_a_live_run_from_an_ended_one() -> None:
    assert skip_reason(Reprocess.MISSING, 12, 7) == "process instance 12 ended as SUCCESS"
    assert skip_reason(Reprocess.MISSING, 12, 1) == "process instance 12 is RUNNING"


def test_an_estimate_is_rounds_of_what_is_typical() -> None:
    found = estimated(31, 2, [10 * SECOND, 12 * SECOND, timedelta(days=1)])
    assert found is not None
    assert (found.rounds, found.typical, found.total) == (16, 12 * SECOND, 192 * SECOND)
    assert estimated(31, 2, []) is None


def test_the_time_that_is_left_counts_what_has_begun() -> None:
    live = (a_date(5, DateState.RUNNING),)
    sight = Sight(view=a_view(on_failure="continue"), live=live, typical=10 * SECOND)
    # Five dates in two chains are three rounds; the one that runs has 6 s to go.
    assert time_left(sight, now=NOON + 4 * SECOND) == 36 * SECOND
    # A failed date has ended one of the two chains.
    stopped = replace(sight, view=a_view())
    assert time_left(stopped, now=NOON + 4 * SECOND) == 56 * SECOND
    assert time_left(replace(sight, typical=None), now=NOON) is None


def test_watching_ends_when_nothing_moves_by_itself_any_more() -> None:
    paused = Sight(view=a_view(state=ComplementState.PAUSE))
    waits = Sight(view=a_view(id=4, after_id=3, state=ComplementState.SUBMITTED))
    assert is_over([paused, waits])
    # It will fail in a moment, and that is worth waiting for.
    failed = Sight(view=a_view(state=ComplementState.FAILURE))
    assert not is_over([failed, waits])
    assert not is_over([Sight(view=a_view()), waits])
    # The one that it waits for is not watched.
    assert not is_over([waits])


def test_a_pipe_gets_a_line_for_each_ended_date() -> None:
    lines: list[str] = []
    display = Lines(lines.append, UTC)
    view = a_view(on_failure="continue")
    display.show([Sight(view=view)], now=NOON)
    ended = (
        a_date(1, DateState.SUCCESS),
        a_date(2, DateState.FAILURE, reason="task 'load'\x1b[2J failed"),
    )
    later = Sight(view=view, ended=ended, typical=4 * SECOND)
    display.show([later], now=NOON + 5 * SECOND)
    assert lines[0] == (
        "complement 3 of flights: RUNNING: 10 dates, 5 pending, 1 running, 3 success, 1 failure;"
        " dates in America/New_York, times in UTC"
    )
    assert lines[1] == (
        "2026-01-02 12:00:05  flights 3/10  2013-01-01 00:00:00  success  process instance 11"
        "  4.0s  (12.0s left)"
    )
    assert "failure  process instance 12  4.0s  task 'load'\\x1b[2J failed" in lines[2]
    assert len(lines) == 3


def test_the_zone_of_the_lines_is_named_once_for_each_complement() -> None:
    lines: list[str] = []
    display = Lines(lines.append, NEW_YORK)
    for state in (ComplementState.SUBMITTED, ComplementState.RUNNING):
        display.show([Sight(view=a_view(state=state))], now=NOON)
    assert [each.rpartition("; ")[2] for each in lines[:1]] == ["times in America/New_York"]
    assert "times in" not in lines[1]


def drawn(*sights: Sight, height: int = 24) -> list[str]:
    """The lines on a terminal of this height."""
    out = io.StringIO()
    console = Console(file=out, width=90, height=height, color_system=None)
    last: list[RenderableType] = []
    Bars(console, last.append, UTC).show(sights, now=NOON + 4 * SECOND)
    console.print(last[-1])
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_terminal_shows_a_bar_with_what_runs_and_what_failed() -> None:
    sight = Sight(
        view=a_view(),
        live=(a_date(5, DateState.RUNNING),),
        failed=(a_date(4, DateState.FAILURE, reason="exit code 1"),),
        typical=10 * SECOND,
    )
    head, bar, running, failed = drawn(sight)
    assert head == "flights  complement 3  RUNNING  4.0s"
    assert bar.split("  ")[1:] == [
        "━" * 15 + "─" * 15,
        "4/10, 1 running, 1 failed, 56.0s left, until 12:01:00",
    ]
    assert running == "  ▶ 2013-01-05 00:00:00  process instance 15  4.0s"
    assert failed == "  ✘ 2013-01-04 00:00:00  process instance 14  exit code 1"


def test_many_running_dates_do_not_flood_a_terminal() -> None:
    live = tuple(a_date(day, DateState.RUNNING) for day in range(1, 32))
    assert len(drawn(Sight(view=a_view(parallelism=31), live=live), height=12)) <= 12


def test_the_end_names_the_commands_that_show_more_and_try_again() -> None:
    failed = a_date(4, DateState.FAILURE, reason="exit code 1")
    view = a_view(
        state=ComplementState.FAILURE,
        state_reason="1 of its dates failed",
        end_time=NOON + 90 * SECOND,
        dates={"success": 9, "failure": 1},
    )
    text = closing(Sight(view=view, failed=(failed,)))
    assert text.splitlines()[0] == (
        "FAILURE: complement 3 of flights after 1m30s: 10 dates, 9 success, 1 failure"
    )
    assert "orcaflow complement show 3" in text
    assert "orcaflow complement retry 3" in text
    assert "process instance 14  exit code 1" in text


def test_a_complement_that_does_not_move_names_its_blocker() -> None:
    nobody = Sight(view=a_view(dates={"pending": 9}))
    assert "is there a master?" in (blocker(nobody) or "")
    stopping = Sight(
        view=a_view(state=ComplementState.READY_STOP), live=(a_date(5, DateState.RUNNING),)
    )
    assert "orcaflow instance why 15" in (blocker(stopping) or "")
    for well in (Sight(view=a_view()), Sight(view=a_view(state=ComplementState.PAUSE))):
        assert blocker(well) is None
