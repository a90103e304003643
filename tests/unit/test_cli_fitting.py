"""Tables fit any terminal: nothing wraps, and no state, id or number is cut or pushed out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.documents.complements import COMPLEMENT_COLUMNS, DATE_COLUMNS, PLAN_COLUMNS
from operations.documents.schedules import FIRE_COLUMNS, SCHEDULE_COLUMNS
from orcaflow.cli.commands import alert, command, instance, server, worker
from orcaflow.cli.fitting import cell_width, cut, fit
from orcaflow.cli.output import moment, table, terminal_width
from orcaflow.cli.screens import simulation
from orcaflow.cli.screens.task_table import TASK_COLUMNS

LONG = "the nightly report of everything that has to be counted before noon" * 3
VALUES: dict[str, Any] = {
    "id": 123456,
    "state": "NEED_FAULT_TOLERANCE",
    "outcome": "coalesced",
    "instance_state": "RUNNING",
    "release_state": "OFFLINE",
    "status": "WAIT_EXECUTION",
    "health": "not answering",
    "becomes": "to run",
    "kind": "master",
    "attempt": 12,
    "process_instance_id": 123457,
    "start_time": "2026-11-20 14:27:57",
    "handled_at": "2026-11-20 14:27:57",
    "create_time": "2026-11-20 14:27:57",
    "fire_time": "2026-11-20 14:27:57",
    "date": "2026-11-20 00:00:00",
    "since": "2026-11-20 14:27:57",
    "next_fire": "2026-11-20 14:27:57",
    "duration": "12h00m05s",
    "host": "10.100.100.100:12345",
}
WHOLE = (
    *("id", "state", "outcome", "instance_state", "release_state", "status", "health"),
    *("kind", "attempt", "becomes"),
)
SCREENS: dict[str, Sequence[str]] = {
    "instance list": instance.INSTANCE_COLUMNS,
    "task list": (*TASK_COLUMNS, "progress", "failure_reason", "lost_at", "reason"),
    "command list": command.COLUMNS,
    "schedule list": SCHEDULE_COLUMNS,
    "schedule fires": FIRE_COLUMNS,
    "schedule simulate": simulation.COLUMNS,
    "complement list": COMPLEMENT_COLUMNS,
    "complement show": DATE_COLUMNS,
    "complement --plan": PLAN_COLUMNS,
    "server list": server.MEMBER_COLUMNS,
    "worker list": worker.WORKER_COLUMNS,
    "server status": server.STATUS_COLUMNS,
    "alert list": alert.COLUMNS,
}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_fits_and_its_ids_and_states_stay_whole(screen: str, width: int) -> None:
    columns = SCREENS[screen]
    rows = [
        {column: VALUES.get(column, LONG) for column in columns},
        {column: VALUES.get(column, "x") for column in columns},
    ]
    lines = table(rows, columns, width=width).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    for column in columns:
        if column in WHOLE:
            assert str(VALUES[column]) in lines[1]


def test_what_fits_is_left_alone() -> None:
    rows = [{"id": 1, "name": "short", "start_time": "2026-11-20 14:27:57"}]
    columns = ("id", "name", "start_time")
    assert table(rows, columns, width=60) == table(rows, columns)


def test_the_first_column_of_times_names_their_zone_if_there_is_room() -> None:
    at = datetime(2026, 11, 20, 13, 27, 57, tzinfo=UTC)
    rows = [{"id": 1, "start_time": at, "end_time": at}, {"id": 2, "start_time": None}]
    columns, zone = ("id", "start_time", "end_time"), ZoneInfo("Europe/Berlin")
    for width in (None, 100):
        assert table(rows, columns, zone=zone, width=width).splitlines() == [
            "ID  START TIME (Europe/Berlin)  END TIME",
            "1   2026-11-20 14:27:57         2026-11-20 14:27:57",
            "2   -                           -",
        ]
    assert table(rows, columns, zone=zone, width=45).splitlines()[0].split() == [
        *("ID", "START", "TIME", "END", "TIME")
    ]
    assert moment(at, zone) == "2026-11-20 14:27:57 Europe/Berlin"
    assert moment(at, UTC) == "2026-11-20 13:27:57 UTC"


def test_a_long_name_is_cut_before_anything_else() -> None:
    rows = [{"id": 1, "name": LONG, "state": "SUCCESS", "start_time": "2026-11-20 14:27:57"}]
    lines = table(rows, ("id", "name", "state", "start_time"), width=60).splitlines()
    assert lines[1] == "1   the nightly report of eve…  SUCCESS  2026-11-20 14:27:57"


def test_times_lose_year_and_seconds_before_columns_go() -> None:
    cells = [
        ["ID", "STATE", "START TIME", "END TIME"],
        ["1", "SUCCESS", *["2026-11-20 14:27:57"] * 2],
    ]
    fitted = fit(("id", "state", "start_time", "end_time"), cells, 40)
    assert fitted.cells[1] == ["1", "SUCCESS", "11-20 14:27", "11-20 14:27"]
    assert fitted.left_out == ()
    assert fit(("id", "state", "start_time", "end_time"), cells, 30).left_out == ("end_time",)


def test_a_wide_sign_takes_two_and_a_combining_one_none() -> None:
    assert cell_width("日报") == 4
    assert cell_width("e\u0301") == 1
    assert cut("日报日报", 5) == "日报…"
    assert cut("short", 5) == "short"


@given(
    cells=st.lists(st.lists(st.text(max_size=30), min_size=4, max_size=4), min_size=1, max_size=5),
    width=st.integers(min_value=1, max_value=120),
)
def test_no_line_is_wider_than_the_terminal(cells: list[list[str]], width: int) -> None:
    fitted = fit(("id", "name", "state", "reason"), cells, width)
    widths = [
        max(cell_width(line[i]) for line in fitted.cells) for i in range(len(fitted.cells[0]))
    ]
    assert sum(widths) + 2 * (len(widths) - 1) <= width
    assert len(fitted.cells) == len(cells)


def test_a_pipe_has_no_width_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del capsys  # Standard output is no terminal then.
    monkeypatch.setenv("COLUMNS", "60")
    assert terminal_width() is None
