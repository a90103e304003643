"""Process definitions stored in a real database, and people's views of running instances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, delete, insert, update

from common.model.rights import DATABASE
from common.model.states import ReleaseState
from common.store.connect import engine
from common.store.people import views
from common.store.people.definitions import (
    definition_by_id,
    definition_by_name,
    definitions,
    save_definition,
    set_release_state,
)
from common.store.people.ledger import list_commands
from common.store.people.reasons import facts_of_command
from common.store.tables import (
    command,
    process_instance,
    task_instance,
)

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
ONE_O_CLOCK = NOON + timedelta(hours=1)


@pytest.fixture
def db(emptied_url: str) -> Iterator[Connection]:
    """A connection whose changes are all rolled back."""
    made = engine(emptied_url, pool_size=1)
    with made.connect() as connection:
        yield connection
        connection.rollback()
    made.dispose()


def test_a_new_definition_is_offline_and_at_its_first_version(db: Connection) -> None:
    saved = save_definition(db, name="flights", process_definition_json='{"tasks":[]}', at=NOON)
    assert (saved.version, saved.release_state, saved.usable) == (1, ReleaseState.OFFLINE, True)
    assert saved.create_time == saved.update_time == NOON
    found = replace(saved, project_name="default")
    assert definition_by_name(db, "flights") == found
    assert definition_by_id(db, saved.id) == found
    assert found in definitions(db, project_id=1)
    assert found in definitions(db)


def test_only_a_changed_json_makes_a_new_version(db: Connection) -> None:
    first = save_definition(db, name="flights", process_definition_json="{}", at=NOON)
    again = save_definition(
        db, name="flights", process_definition_json="{}", description="told", at=ONE_O_CLOCK
    )
    assert (again.id, again.version, again.description) == (first.id, 1, "told")
    changed = save_definition(
        db, name="flights", process_definition_json='{"timeout":1}', at=ONE_O_CLOCK
    )
    assert (changed.id, changed.version) == (first.id, 2)
    assert (changed.create_time, changed.update_time) == (NOON, ONE_O_CLOCK)


def test_a_new_version_stays_released_and_belongs_to_its_creator(db: Connection) -> None:
    saved = save_definition(db, name="flights", process_definition_json="{}", user_id=7, at=NOON)
    set_release_state(db, saved.id, wanted=ReleaseState.ONLINE, at=NOON)
    changed = save_definition(db, name="flights", process_definition_json="[]", user_id=8, at=NOON)
    assert (changed.release_state, changed.user_id) == (ReleaseState.ONLINE, 7)


def test_the_same_name_in_another_project_is_another_definition(db: Connection) -> None:
    here = save_definition(db, name="flights", process_definition_json="{}", at=NOON)
    there = save_definition(db, name="flights", process_definition_json="{}", project_id=2, at=NOON)
    assert here.id != there.id
    assert definition_by_name(db, "flights", project_id=2) == there


def test_a_release_state_changes_once(db: Connection) -> None:
    saved = save_definition(db, name="flights", process_definition_json="{}", at=NOON)
    online = ReleaseState.ONLINE
    assert set_release_state(db, saved.id, wanted=online, at=ONE_O_CLOCK)
    assert not set_release_state(db, saved.id, wanted=online, at=ONE_O_CLOCK)
    assert not set_release_state(db, -1, wanted=online, at=ONE_O_CLOCK)
    now = definition_by_id(db, saved.id)
    assert now is not None
    assert (now.release_state, now.update_time) == (online, ONE_O_CLOCK)


def test_what_does_not_exist_is_none(db: Connection) -> None:
    assert definition_by_name(db, "none such") is None
    assert definition_by_id(db, -1) is None
    assert views.process_instance_by_id(db, -1) is None
    assert views.process_instance_detail(db, -1) is None
    assert views.task_instance_by_id(db, -1) is None


def test_any_name_is_kept_as_it_is(db: Connection) -> None:
    for name in ("it's", 'a "quoted" name', "two\nlines", "../etc", "%s :x", "%(name)s"):
        saved = save_definition(db, name=name, process_definition_json="{}", at=NOON)
        found = definition_by_name(db, name)
        assert (saved.name, found) == (name, replace(saved, project_name="default"))


def _a_run(db: Connection, *, definition_id: int, state: int, name: str) -> int:
    made = db.execute(
        insert(process_instance)
        .values(
            name=name,
            process_definition_id=definition_id,
            state=state,
            command_type=0,
            process_instance_json="{}",
            executor_id=1,
            start_time=NOON,
            end_time=ONE_O_CLOCK if state == 7 else None,
        )
        .returning(process_instance.c.id)
    ).scalar_one()
    return int(made)


def test_runs_are_found_by_definition_and_state_newest_first(db: Connection) -> None:
    flights = save_definition(db, name="flights", process_definition_json="{}", at=NOON).id
    other = save_definition(db, name="other", process_definition_json="{}", at=NOON).id
    done = _a_run(db, definition_id=flights, state=7, name="done")
    running = _a_run(db, definition_id=flights, state=1, name="running")
    _a_run(db, definition_id=other, state=1, name="elsewhere")

    def ids(found: list[views.ProcessInstanceView]) -> list[int]:
        return [view.id for view in found]

    assert ids(views.process_instances(db, definition_name="flights")) == [running, done]
    assert ids(views.process_instances(db, definition_name="flights", states=[7])) == [done]
    assert ids(views.process_instances(db, definition_name="flights", limit=1)) == [running]
    assert len(views.process_instances(db)) >= 3
    orphan = _a_run(db, definition_id=2_000_000, state=1, name="of a deleted definition")
    view = views.process_instance_by_id(db, orphan)
    assert view is not None
    assert view.definition_name is None


def test_a_run_is_shown_with_every_attempt_in_order(db: Connection) -> None:
    run = _a_run(db, definition_id=1, state=1, name="retried")
    attempt = {
        "name": "load",
        "task_type": "SHELL",
        "process_definition_id": 1,
        "process_instance_id": run,
        "task_json": "{}",
    }
    db.execute(
        insert(task_instance).values(
            **attempt, attempt=1, state=6, flag=0, end_time=NOON, exit_code=3, reason="exit code 3"
        )
    )
    db.execute(insert(task_instance).values(**attempt, attempt=2, state=0, retry_times=1))
    detail = views.process_instance_detail(db, run)
    assert detail is not None
    assert detail.instance == views.process_instance_by_id(db, run)
    assert [(task.attempt, task.state, task.valid) for task in detail.tasks] == [
        (1, 6, False),
        (2, 0, True),
    ]
    assert detail.tasks[0].reason == "exit code 3"
    assert views.task_instances(db, process_instance_id=run, valid_only=True) == [detail.tasks[1]]
    assert views.task_instances(db, process_instance_id=run, states=[6]) == [detail.tasks[0]]
    assert views.task_instances(db, process_instance_id=run, limit=1) == [detail.tasks[1]]
    assert views.task_instance_by_id(db, detail.tasks[0].id) == detail.tasks[0]


def test_commands_are_listed_and_counted_in_the_order_in_which_masters_take_them(
    db: Connection,
) -> None:
    def put(priority: int | None, minute: int, **values: int) -> int:
        made = insert(command).values(
            command_type=0,
            process_definition_id=1,
            process_instance_priority=priority,
            update_time=NOON + timedelta(minutes=minute),
            **values,
        )
        return int(db.execute(made.returning(command.c.id)).scalar_one())

    # A minute of waiting makes up for a level of priority, and dates of complements come last.
    date = put(0, -60, complement_date_id=1)
    highest, low, medium, unset = put(0, 5), put(3, 0), put(2, 4), put(None, 4)
    taken = [low, highest, medium, unset, date]
    db.execute(delete(command).where(command.c.id.not_in(taken)))
    assert [view.id for view in list_commands(db, outcomes=(), limit=10)] == taken
    for ahead, command_id in enumerate(taken):
        found = facts_of_command(
            db, command_id, members=None, now=NOON, exec_threads=1, principal=DATABASE
        )
        assert found is not None
        assert found[1].ahead == ahead


def test_a_row_with_a_code_unknown_to_this_version_is_shown_all_the_same(db: Connection) -> None:
    run = _a_run(db, definition_id=1, state=1, name="later")
    db.execute(update(process_instance).where(process_instance.c.id == run).values(state=17))
    view = views.process_instance_by_id(db, run)
    assert view is not None
    assert view.state == 17
