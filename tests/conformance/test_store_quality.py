"""Findings of data quality rules in the tables, and the values handed to later runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from common.model.quality import MAX_FORMER, QualityLevel, QualityResult, QualityState
from common.model.states import TaskState
from common.store import tables as t
from tests.builders import NOON
from tests.conformance.store_tables import (
    RESTARTED,
    Tables,
    a_run,
    an_end,
    claim,
    end,
    submit,
    the_task,
)

DAY = timedelta(days=1)


def a_result(rule: str = "rows", **changes: Any) -> QualityResult:
    values: dict[str, Any] = {
        "rule": rule,
        "type": "Compare",
        "level": QualityLevel.BLOCK,
        "state": QualityState.PASSED,
        "value": 7.0,
        **changes,
    }
    return QualityResult(**values)


def measured(db: Tables, *results: QualityResult, at: datetime | None = NOON, **run: Any) -> int:
    """A run of a day whose attempt has these findings; returns the attempt's id."""
    owned = a_run(db, schedule_time=at, **run)
    (task,) = submit(db, owned, "check")
    claim(db, [task])
    assert end(db, an_end(task, quality=results)) == {task}
    return task


def the_next(db: Tables, at: datetime | None, name: str = "check") -> dict[str, tuple[float, ...]]:
    (task,) = submit(db, a_run(db, schedule_time=at), name)
    return db.tasks.former_quality([task]).get(task, {})


def test_a_report_keeps_what_rules_have_found(db: Tables) -> None:
    found = a_result(
        "id is unique",
        type="Unique",
        target="id",
        level=QualityLevel.WARN,
        state=QualityState.WARNED,
        value=0.25,
        expected="none fails",
        rows=8,
        failed=2,
        detail="ä",
    )
    task = measured(db, found, a_result(value=None))
    row, other = db.rows(t.quality_result)
    kept = {name: row[name] for name in ("rule", "type", "target", "level", "state", "value")}
    assert kept == {
        "rule": "id is unique",
        "type": "Unique",
        "target": "id",
        "level": "warn",
        "state": "WARNED",
        "value": 0.25,
    }
    assert (row["rows"], row["failed"], row["expected"]) == (8, 2, "none fails")
    assert (row["task_instance_id"], row["task_name"], row["detail"]) == (task, "check", "ä")
    assert row["process_instance_id"] == the_task(db, task)["process_instance_id"]
    assert row["moment"] == NOON
    assert (other["rule"], other["value"]) == ("rows", None)


def test_a_report_that_is_not_accepted_keeps_nothing(db: Tables) -> None:
    (task,) = submit(db, a_run(db), "check")
    claim(db, [task])
    late = an_end(task, quality=(a_result(),))
    assert end(db, late, node=RESTARTED) == frozenset()
    assert db.rows(t.quality_result) == []
    assert end(db, late) == {task}
    assert end(db, late) == frozenset()
    assert len(db.rows(t.quality_result)) == 1
    assert the_task(db, task)["state"] == TaskState.SUCCESS


def test_former_figures_are_those_of_earlier_times_newest_first(db: Tables) -> None:
    for days, value in ((1, 1.0), (3, 3.0), (2, 2.0)):
        measured(db, a_result(value=value), a_result("b", value=10 * value), at=NOON - days * DAY)
    measured(db, a_result(value=9.0), at=NOON + DAY)
    assert the_next(db, NOON) == {"rows": (1.0, 2.0, 3.0), "b": (10.0, 20.0, 30.0)}
    assert the_next(db, NOON - 2 * DAY) == {"rows": (3.0,), "b": (30.0,)}
    assert the_next(db, NOON - 3 * DAY) == {}
    assert the_next(db, NOON, name="other") == {}


def test_of_a_time_that_was_run_again_the_last_figure_counts(db: Tables) -> None:
    for value in (1.0, 2.0):
        measured(db, a_result(value=value), at=NOON - DAY)
    assert the_next(db, NOON) == {"rows": (2.0,)}


def test_broken_rules_missing_values_and_other_kinds_are_no_former_figures(db: Tables) -> None:
    measured(db, a_result(state=QualityState.BROKEN), at=NOON - DAY)
    measured(db, a_result(value=None), at=NOON - DAY)
    measured(db, a_result(type="RowCount"), at=NOON - DAY)
    assert the_next(db, NOON) == {}
    measured(db, a_result(state=QualityState.WARNED, value=5.0), at=NOON - 2 * DAY)
    assert the_next(db, NOON) == {"rows": (5.0,)}


def test_no_more_former_figures_are_told_than_a_rule_may_ask_for(db: Tables) -> None:
    for days in range(1, MAX_FORMER + 3):
        measured(db, a_result(value=float(days)), at=NOON - days * DAY)
    assert the_next(db, NOON) == {"rows": tuple(float(n) for n in range(1, MAX_FORMER + 1))}


@pytest.mark.parametrize("ids", [[], [2_000_000_000], [2**70, -1]])
def test_attempts_that_are_not_there_have_no_former_figures(db: Tables, ids: list[int]) -> None:
    assert db.tasks.former_quality(ids) == {}
