"""The Spark application of an attempt, as the panel of a run shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from api.console.application import Moved, application_of


def a_document(**values: Any) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(("progress", "app_link", "ui_link", "history_link"))
    about = {"id": 7, "host": "10.0.0.3:1234", "end_time": None, "memory_factor": 1.0}
    return {**given, **about, **values}


def test_an_attempt_that_has_told_of_no_application_has_none() -> None:
    assert application_of(a_document()) is None
    assert application_of(a_document(app_link="", progress=None)) is None


def test_progress_and_data_are_told_and_nothing_runs_of_what_is_over() -> None:
    progress = {
        "tasks": 240,
        "tasks_done": 96,
        "tasks_running": 2,
        "tasks_failed": 1,
        "rows_in": 1_234_567,
        "bytes_in": 5_000_000,
        "rows_out": 0,
        "bytes_out": 0,
        "spill_bytes": 1_500,
    }
    given = a_document(progress=progress, app_link="app-1,app-2", memory_factor=2.0)
    found = application_of(given)
    assert found is not None
    assert (found.done, found.tasks, found.running, found.failed) == (96, 240, 2, 1)
    assert found.ids == ("app-1", "app-2")
    assert found.memory_factor == "× 2"
    assert found.moved == (
        Moved(name="Read", rows="1,234,567", size="5 MB"),
        Moved(name="Spilt to disk", rows=None, size="1.5 kB"),
    )
    ended = application_of({**given, "end_time": datetime.now(UTC)})
    assert ended is not None
    assert ended.running == 0


def test_links_lead_to_the_web_alone_and_that_of_a_driver_ends_with_it() -> None:
    def links(**values: Any) -> tuple[str | None, str | None]:
        found = application_of(a_document(app_link="app-1", **values))
        assert found is not None
        return found.ui, found.history

    good = {"ui_link": "http://w1:4040", "history_link": "https://history/app-1"}
    assert links(**good) == ("http://w1:4040", "https://history/app-1")
    assert links(**good, end_time=datetime.now(UTC)) == (None, "https://history/app-1")
    for hostile in ("javascript:alert(1)", "http://a b", "https://a\nb", "", "//w1"):
        assert links(ui_link=hostile, history_link=hostile) == (None, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.3"])
def test_the_ui_of_a_driver_at_the_worker_s_computer_is_opened_through_the_api_server(
    host: str,
) -> None:
    found = application_of(a_document(app_link="app-1", ui_link=f"http://{host}:4040"))
    assert found is not None
    assert found.ui == "/tasks/7/spark-ui"
    broken = application_of(a_document(app_link="app-1", ui_link="http://[::1:4040"))
    assert broken is not None
    assert broken.ui is None
