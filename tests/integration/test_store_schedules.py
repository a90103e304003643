"""Firing when masters act at the same moment, die in the midst of it, or meet broken rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, delete, event, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from common.firing import plan_fires
from common.model.schedules import FirePlan, Schedule
from common.store import tables as t
from common.store.connect import engine
from common.store.master.ports import Fired
from common.store.master.schedules import PostgresScheduleStore
from common.store.schedules import read_schedule, read_schedules
from tests.builders import NOON
from tests.integration.failing_statements import failing

UTC_ZONE = ZoneInfo("UTC")
MINUTE = timedelta(minutes=1)
EVERY_MINUTE = "0 * * * * ? *"


@pytest.fixture
def here(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="here")
    with made.begin() as db:
        for table in (t.schedule, t.schedule_fire, t.command, t.process_definition):
            db.execute(delete(table))
        db.execute(
            insert(t.process_definition).values(
                id=1, name="flights", release_state=1, process_definition_json="{}"
            )
        )
    yield made
    made.dispose()


@pytest.fixture
def there(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="there")
    yield made
    made.dispose()


def schedules(made: Engine, count: int = 1, **columns: Any) -> list[int]:
    """Schedules that fire every minute; their next fire is noon by default."""
    row = {
        "process_definition_id": 1,
        "crontab": EVERY_MINUTE,
        "release_state": 1,
        "start_time": NOON - timedelta(days=1),
        "counted_from": None,
        "next_fire_time": NOON,
        **columns,
    }
    with made.begin() as db:
        statement = insert(t.schedule).returning(t.schedule.c.id, sort_by_parameter_order=True)
        return list(db.scalars(statement, [row] * count))


def a_plan(schedule: Schedule) -> FirePlan:
    return plan_fires(schedule, now=NOON, zone=UTC_ZONE)


def fire(made: Engine, planner: Callable[[Schedule], FirePlan] = a_plan, limit: int = 500) -> Fired:
    return PostgresScheduleStore(made).fire(planner=planner, now=NOON, limit=limit)


def rows(made: Engine, table: Any) -> list[Any]:
    with made.connect() as db:
        return list(db.execute(select(table).order_by(table.c.id)))


def test_masters_that_fire_at_once_fire_everything_once(here: Engine, there: Engine) -> None:
    made = schedules(here, 120)

    def fire_all(engine_of_one: Engine) -> int:
        commands = 0
        while fired := fire(engine_of_one, limit=7).commands:
            commands += fired
        return commands

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(fire_all, each) for each in (here, there)]
        # A loop ends when all that is left is locked by the other, who then fires it.
        assert sum(each.result() for each in both) == len(made)
    ledger = rows(here, t.schedule_fire)
    assert sorted(row.schedule_id for row in ledger) == made
    assert {row.fire_time for row in ledger} == {NOON}
    assert sorted(row.command_id for row in ledger) == [row.id for row in rows(here, t.command)]
    assert {row.next_fire_time for row in rows(here, t.schedule)} == {NOON + MINUTE}


def test_a_schedule_that_another_master_works_on_is_passed_over(
    here: Engine, there: Engine
) -> None:
    held, free = schedules(here, 2)
    with there.begin() as db:
        db.execute(select(t.schedule.c.id).where(t.schedule.c.id == held).with_for_update())
        fired = fire(here)
        assert (fired.commands, fired.next_due) == (1, NOON)
    assert [row.schedule_id for row in rows(here, t.schedule_fire)] == [free]
    assert fire(here).commands == 1


@pytest.mark.parametrize(
    ("operation", "table"),
    [
        ("INSERT", "t_ds_schedule_fire"),
        ("INSERT", "t_ds_command"),
        ("UPDATE", "t_ds_schedule_fire"),
        ("UPDATE", "t_ds_schedules"),
    ],
)
def test_a_master_that_dies_while_it_fires_leaves_all_to_the_next(
    here: Engine, there: Engine, operation: str, table: str
) -> None:
    schedules(here)
    with failing(here, operation, table), pytest.raises(DBAPIError):
        fire(here)
    assert rows(here, t.schedule_fire) == rows(here, t.command) == []
    assert fire(there).commands == 1
    assert len(rows(here, t.schedule_fire)) == len(rows(here, t.command)) == 1


def test_what_a_person_changes_while_it_is_fired_is_counted_from_then(
    here: Engine, there: Engine
) -> None:
    (schedule_id,) = schedules(here)
    changing = None
    with ThreadPoolExecutor(1) as pool:

        def change() -> None:
            with there.begin() as db:
                db.execute(update(t.schedule).values(crontab="0 0 3 * * ? *"))

        def planner(schedule: Schedule) -> FirePlan:
            nonlocal changing
            changing = pool.submit(change)
            return a_plan(schedule)

        assert fire(here, planner).commands == 1
        assert changing is not None
        changing.result()
    (row,) = rows(here, t.schedule)
    assert (row.id, row.crontab, row.next_fire_time) == (schedule_id, "0 0 3 * * ? *", None)
    assert row.counted_from is not None


def test_a_fire_that_the_ledger_has_puts_no_second_command(here: Engine) -> None:
    (schedule_id,) = schedules(here)
    assert fire(here).commands == 1
    with here.begin() as db:
        db.execute(update(t.schedule).values(next_fire_time=NOON))
    assert fire(here) == Fired(commands=0, fires=0, next_due=NOON + MINUTE)
    assert [row.schedule_id for row in rows(here, t.schedule_fire)] == [schedule_id]


def test_times_that_nobody_can_read_keep_no_other_schedule_from_firing(here: Engine) -> None:
    schedules(here, next_fire_time="-infinity")
    schedules(here, start_time="4000-01-01 BC", end_time="infinity")
    schedules(here, next_fire_time="infinity")
    schedules(here, next_fire_time=None, counted_from="-infinity")
    (good,) = schedules(here)
    fire(here)
    noon = {row.schedule_id for row in rows(here, t.schedule_fire) if row.fire_time == NOON}
    assert good in noon
    assert all(row.fault is None for row in rows(here, t.schedule))


def test_a_row_that_no_constraint_keeps_sound_gets_a_fault_and_the_others_fire(
    here: Engine,
) -> None:
    name = "t_ds_schedules_misfire_policy_check"
    with here.begin() as db:
        db.execute(text(f"ALTER TABLE t_ds_schedules DROP CONSTRAINT {name}"))
    try:
        (bad,) = schedules(here, misfire_policy="whenever")
        (good,) = schedules(here)
        assert fire(here).commands == 1
        faults = {row.id: row.fault for row in rows(here, t.schedule)}
        assert faults[good] is None
        assert "whenever" in faults[bad]
        with here.connect() as db, pytest.raises(ValueError, match="whenever"):
            read_schedules(db, [1])
    finally:
        with here.begin() as db:
            db.execute(delete(t.schedule))
            db.execute(
                text(
                    f"ALTER TABLE t_ds_schedules ADD CONSTRAINT {name}"
                    " CHECK (misfire_policy IN ('skip', 'fire_once', 'fire_all'))"
                )
            )


def test_parameters_that_no_command_can_hold_are_the_fault_of_their_schedule_alone(
    here: Engine,
) -> None:
    half = json.dumps({"day": "\ud800"})
    bad, good = (
        *schedules(here, start_params=half),
        *schedules(here, start_params='{"day": "\\u0000"}'),
    )
    assert fire(here).commands == 1
    faults = {row.id: row.fault for row in rows(here, t.schedule)}
    assert faults[good] is None
    assert "start_params" in faults[bad]
    (kept,) = rows(here, t.schedule)[:1]
    assert kept.next_fire_time == NOON


def test_five_hundred_schedules_are_fired_by_a_handful_of_statements(here: Engine) -> None:
    schedules(here, 500)
    statements: list[str] = []

    @event.listens_for(here, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        statements.append(statement)

    assert fire(here) == Fired(commands=500, fires=500, next_due=NOON + MINUTE)
    assert len(statements) <= 6


def test_schedules_are_read_by_definition_and_by_id(here: Engine) -> None:
    first, second = schedules(here, 2)
    (elsewhere,) = schedules(here, process_definition_id=2)
    (offline,) = schedules(here, release_state=0)
    with here.connect() as db:
        found = read_schedules(db, [1])
        assert [each.id for each in found[1]] == [first, second]
        everything = {key: [each.id for each in them] for key, them in read_schedules(db).items()}
        assert everything == {1: [first, second], 2: [elsewhere]}
        read = read_schedule(db, offline)
        assert read is not None
        assert (read.definition_name, read.definition_is_online) == ("flights", True)
        assert read_schedule(db, offline + 1) is None
