"""The overview: everything that needs a person is in it, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, Table, insert, text, update

from common.model.concerns import ConcernKind
from common.model.rights import Principal
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.overview import overview
from operations.session import Session
from tests.integration.cli_rows import a_definition, an_attempt, an_instance

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
SUCCESS, FAILURE = ProcessState.SUCCESS, ProcessState.FAILURE
EVE = Principal(user_id=2, user_name="eve")


@pytest.fixture
def owner(db: Engine) -> Session:
    made = Session()
    made.__dict__["engine"] = db
    return made


def a_row(db: Engine, table: Table, **values: Any) -> int:
    with db.begin() as connection:
        made: int = connection.execute(
            insert(table).values(values).returning(table.c.id)
        ).scalar_one()
    return made


def kinds(session: Session) -> list[tuple[str, int | None]]:
    return [(each.kind.value, each.id) for each in overview(session, limit=50)]


def a_fire(db: Engine, schedule: int, at: datetime, outcome: str = "missed") -> None:
    a_row(
        db,
        t.schedule_fire,
        schedule_id=schedule,
        fire_time=at,
        outcome=outcome,
        process_definition_id=1,
    )


def a_complement(db: Engine, state: int, dates: dict[int, str], **values: Any) -> int:
    number = a_row(
        db, t.complement, process_definition_id=1, timezone_id="UTC", state=state, **values
    )
    for day, date_state in dates.items():
        a_row(
            db,
            t.complement_date,
            complement_id=number,
            position=day,
            schedule_time=NOW.replace(microsecond=0) - 100 * DAY + day * DAY,
            state=date_state,
        )
    return number


def test_a_failed_last_run_is_shown_however_many_runs_of_others_came_since(
    db: Engine, owner: Session
) -> None:
    a_definition(db)
    other = a_definition(db, name="busy")
    assert kinds(owner) == []
    failed = an_instance(db, FAILURE, end_time=NOW - 400 * DAY, state_reason="task 'a' failed")
    for _ in range(120):
        an_instance(db, SUCCESS, process_definition_id=other)
    (found,) = overview(owner, limit=50)
    assert (found.kind, found.id) == (ConcernKind.FAILED_RUN, failed)
    assert (found.definition, found.project) == ("nightly", "default")
    assert found.reason == "task 'a' failed"
    an_instance(db, SUCCESS)
    assert kinds(owner) == []


@pytest.mark.parametrize(
    "later",
    [
        {"state": ProcessState.RUNNING},
        {"state": ProcessState.STOP},
        {"state": SUCCESS, "history_cmd": "COMPLEMENT_DATA"},
        {"state": SUCCESS, "parent_task_instance_id": 9},
        {"state": SUCCESS, "process_definition_id": 2},
    ],
)
def test_only_a_later_success_of_the_definition_itself_ends_a_failure(
    db: Engine, owner: Session, later: dict[str, Any]
) -> None:
    a_definition(db)
    a_definition(db, name="other")
    failed = an_instance(db, FAILURE)
    an_instance(db, **later)
    assert kinds(owner) == [("failed-run", failed)]
    an_instance(db, SUCCESS)
    assert kinds(owner) == []


def test_failed_sub_processes_and_deleted_definitions_are_left_to_others(
    db: Engine, owner: Session
) -> None:
    a_definition(db)
    an_instance(db, FAILURE, parent_task_instance_id=9)
    an_instance(db, FAILURE, process_definition_id=99)
    assert kinds(owner) == []


def test_dates_of_a_complement_are_shown_until_a_later_complement_has_done_them(
    db: Engine, owner: Session
) -> None:
    a_definition(db)
    a_complement(db, 7, {1: "success"})
    a_complement(db, 5, {1: "failure", 2: "cancelled"})
    running = a_complement(db, 1, {1: "success", 2: "failure", 3: "pending"})
    failed = a_complement(db, 6, {4: "failure", 5: "pending"})
    found = {each.id: each.count for each in overview(owner, limit=50)}
    assert found == {running: 1, failed: 2}
    a_complement(db, 7, {2: "success", 4: "skipped", 5: "success"})
    assert kinds(owner) == []


def test_paused_runs_are_shown(db: Engine, owner: Session) -> None:
    a_definition(db)
    paused = an_instance(db, ProcessState.PAUSE)
    an_instance(db, ProcessState.PAUSE, parent_task_instance_id=9)
    assert kinds(owner) == [("paused-run", paused)]


def test_an_unhealthy_supervisor_is_shown_while_it_is_active(db: Engine, owner: Session) -> None:
    with db.begin() as connection:
        for name, active, healthy in (("a", True, False), ("b", True, True), ("c", False, False)):
            connection.execute(
                insert(t.supervisor_runtime).values(
                    id=name,
                    process_definition_id=1,
                    active=active,
                    healthy=healthy,
                    detailed_state="LOST_CONTACT",
                )
            )
    (found,) = overview(owner, limit=50)
    assert (found.kind, found.name) == (ConcernKind.UNHEALTHY_SUPERVISOR, "a")
    assert (found.reason, found.project) == ("LOST_CONTACT", "default")


def test_a_worker_is_missing_while_attempts_wait_for_it(db: Engine, owner: Session) -> None:
    a_definition(db)
    run = an_instance(db, ProcessState.RUNNING)
    task = an_attempt(db, run, TaskState.RUNNING, lost_at=NOW)
    an_attempt(db, run, TaskState.FAILURE, name="b", lost_at=NOW)
    (found,) = overview(owner, limit=50)
    assert (found.kind, found.name) == (ConcernKind.MISSING_WORKER, "127.0.0.1:1234")
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance).where(t.task_instance.c.id == task).values(lost_at=None)
        )
    assert kinds(owner) == []


def test_a_refused_command_is_shown_until_its_definition_has_run(
    db: Engine, owner: Session
) -> None:
    a_definition(db)
    for number, outcome, at in ((5, 3, NOW), (6, 3, NOW), (7, 2, NOW), (4, 3, NOW - 9 * DAY)):
        a_row(
            db,
            t.command_ledger,
            command_id=number,
            process_definition_id=1,
            outcome=outcome,
            handled_at=at,
            reason="the definition is OFFLINE",
        )
    (found,) = overview(owner, limit=50)
    assert (found.kind, found.id) == (ConcernKind.REFUSED_COMMAND, 6)
    assert found.reason == "the definition is OFFLINE"
    an_instance(db, SUCCESS, start_time=NOW + DAY)
    assert kinds(owner) == []


def test_missed_fires_are_shown_until_a_run_has_done_their_dates(
    db: Engine, owner: Session
) -> None:
    a_definition(db)
    schedule = a_row(db, t.schedule, process_definition_id=1, crontab="0 0 0 * * ?")
    at = NOW.replace(microsecond=0)
    a_fire(db, schedule, at - DAY)
    a_fire(db, schedule, at - 2 * DAY)
    a_fire(db, schedule, at - 3 * DAY, "fired")
    a_fire(db, schedule, at - 30 * DAY)
    (found,) = overview(owner, limit=50)
    assert (found.kind, found.id, found.count) == (ConcernKind.MISSED_FIRES, schedule, 2)
    an_instance(db, SUCCESS, schedule_time=at - 2 * DAY, history_cmd="COMPLEMENT_DATA")
    an_instance(db, SUCCESS, business_time=at - DAY, history_cmd="COMPLEMENT_DATA")
    assert kinds(owner) == []


def test_an_online_schedule_with_a_fault_is_shown(db: Engine, owner: Session) -> None:
    a_definition(db)
    for state in (0, 1):
        number = a_row(
            db,
            t.schedule,
            process_definition_id=1,
            crontab="0 0 0 * * ?",
            release_state=state,
        )
        with db.begin() as connection:
            connection.execute(
                update(t.schedule).where(t.schedule.c.id == number).values(fault="no such zone")
            )
    assert kinds(owner) == [("faulty-schedule", number)]


def test_commands_that_no_master_takes_are_shown(db: Engine, owner: Session) -> None:
    a_definition(db)
    for age in (-DAY, timedelta(minutes=5), timedelta(minutes=9)):
        a_row(db, t.command, command_type=0, process_definition_id=1, update_time=NOW - age)
    (found,) = overview(owner, limit=50)
    assert (found.kind, found.count) == (ConcernKind.NO_MASTER, 2)


def test_users_see_the_concerns_of_their_projects_alone(db: Engine, owner: Session) -> None:
    with db.begin() as connection:
        connection.execute(text("INSERT INTO t_ds_project (id, name) VALUES (2, 'other')"))
        connection.execute(
            text("INSERT INTO t_ds_user (id, user_name, user_type, state) VALUES (2, 'eve', 1, 1)")
        )
    eve = Session(principal=EVE)
    eve.__dict__["engine"] = db
    a_definition(db)
    own = a_definition(db, name="own", project_id=2)
    an_instance(db, FAILURE)
    a_row(db, t.command, command_type=0, process_definition_id=1, update_time=NOW - DAY)
    seen = an_instance(db, FAILURE, process_definition_id=own)
    assert kinds(eve) == []
    with db.begin() as connection:
        connection.execute(insert(t.relation_project_user).values(user_id=2, project_id=2, perm=1))
    assert kinds(eve) == [("failed-run", seen)]
    assert len(kinds(owner)) == 3
