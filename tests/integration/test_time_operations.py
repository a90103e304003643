"""Operations on schedules and complements without any command line: results are values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, insert, update

from common.errors import NotAllowedError
from common.model.complement_states import ComplementState
from common.model.states import ReleaseState
from common.store.tables import process_definition
from operations import (
    complement_control,
    complementing,
    previewing,
    scheduling,
    simulating,
    stored_complements,
)
from operations.complementing import ComplementOptions
from operations.errors import UsageError
from operations.schedule_settings import ScheduleSettings
from operations.session import Session, opened
from operations.simulating import SimulationRequest
from tests.builders import a_definition_json

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
DAILY = ScheduleSettings(cron="0 0 3 * * ?")
TWO_DAYS = ComplementOptions(first="2013-01-01", last="2013-01-02")


@pytest.fixture
def session(
    db: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Session]:
    """An installation with the definition `nightly`, whose operations print nothing."""
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "home"))
    url = db.url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", url)
    monkeypatch.setenv("ORCAFLOW_TIME_ZONE", "Europe/Berlin")
    with db.begin() as connection:
        connection.execute(
            insert(process_definition).values(
                name="nightly",
                release_state=1,
                process_definition_json=a_definition_json("a >> b"),
            )
        )
    with opened() as session:
        yield session


def test_a_schedule_is_made_released_changed_and_deleted(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = scheduling.create(session, "nightly", DAILY, online=False, now=NOW)
    assert saved.next_fire is not None
    assert saved.next_fire.fire_time == datetime(2026, 1, 3, 2, tzinfo=UTC)
    ids = [saved.view.id]
    released = scheduling.set_release_state(session, ReleaseState.ONLINE, ids=ids, now=NOW)
    assert released.changed == frozenset(ids)
    earlier = ScheduleSettings(cron="0 0 2 * * ?")
    with pytest.raises(NotAllowedError):
        scheduling.edit(session, saved.view.id, earlier, now=NOW)
    scheduling.set_release_state(session, ReleaseState.OFFLINE, ids=ids, now=NOW)
    saved = scheduling.edit(session, saved.view.id, earlier, now=NOW)
    assert (saved.view.crontab, saved.view.timezone_id) == ("0 0 2 * * ?", "Europe/Berlin")
    assert [view.id for view in scheduling.delete(session, ids)] == ids
    assert scheduling.find(session) == []
    assert capsys.readouterr() == ("", "")


def test_a_schedule_that_fires_is_changed_in_one_step_or_stays_as_it_was(
    session: Session, db: Engine
) -> None:
    saved = scheduling.create(session, "nightly", DAILY, online=True, now=NOW)
    number, earlier = saved.view.id, ScheduleSettings(cron="0 0 2 * * ?")
    saved = scheduling.edit(session, number, earlier, now=NOW, online=True)
    assert (saved.view.crontab, saved.view.release_state) == ("0 0 2 * * ?", ReleaseState.ONLINE)
    assert saved.next_fire is not None
    assert saved.next_fire.fire_time == datetime(2026, 1, 3, 1, tzinfo=UTC)
    wrong = ScheduleSettings(cron="0 0 1 * * ?", last="2001-01-01")
    with pytest.raises(UsageError):
        scheduling.edit(session, number, wrong, now=NOW, online=True)
    with db.begin() as connection:
        connection.execute(update(process_definition).values(release_state=0))
    with pytest.raises(NotAllowedError):
        scheduling.edit(session, number, ScheduleSettings(cron="0 0 1 * * ?"), now=NOW, online=True)
    (view,) = scheduling.find(session)
    assert (view.crontab, view.release_state) == ("0 0 2 * * ?", ReleaseState.ONLINE)
    with db.begin() as connection:
        connection.execute(update(process_definition).values(release_state=1))
    # One that does not fire comes ONLINE with its change.
    scheduling.set_release_state(session, ReleaseState.OFFLINE, ids=[number], now=NOW)
    saved = scheduling.edit(session, number, DAILY, now=NOW, online=True)
    assert saved.view.release_state == ReleaseState.ONLINE


def test_a_preview_and_a_simulation_see_the_same_fires(session: Session) -> None:
    scheduling.create(session, "nightly", DAILY, online=True, now=NOW)
    previewed = previewing.of_target(session, "nightly")
    found = previewing.preview(previewed, after=None, count=3, now=NOW)
    assert [fire.fire_time.day for _, fire in found.fires] == [3, 4, 5]
    request = SimulationRequest(days=3, first="2026-01-02 13:00", slots=1)
    simulated = simulating.simulate(session, request, now=NOW)
    (report,) = simulated.simulation.schedules
    assert (report.fires, report.runs, simulated.capacity.slots) == (3, 3, 1)


def test_overdue_fires_have_the_outcomes_of_a_master_that_looks_now(session: Session) -> None:
    daily = replace(DAILY, zone=ZoneInfo("UTC"))
    saved = scheduling.create(session, "nightly", daily, online=True, now=NOW)
    # It counts from the time, by the clock of the database, at which it came online.
    assert saved.view.counted_from is not None
    later = saved.view.counted_from + timedelta(days=3)
    previewed = previewing.of_target(session, str(saved.view.id))
    (overdue,) = previewing.preview(previewed, after=None, count=1, now=later).overdue
    assert (overdue.schedule_id, overdue.number) == (saved.view.id, 3)
    assert {str(outcome): count for outcome, count in overdue.outcomes.items()} == {
        "coalesced": 2,
        "fired": 1,
    }
    from_then = previewing.preview(previewed, after="2026-01-01", count=1, now=later)
    assert from_then.overdue == ()


def test_all_schedules_of_a_preview_share_the_number_of_overdue_fires_x66(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily = replace(DAILY, zone=ZoneInfo("UTC"))
    saved = [
        scheduling.create(session, "nightly", daily, online=True, now=NOW).view for _ in range(3)
    ]
    monkeypatch.setattr(previewing, "MAX_OVERDUE", 4)
    assert saved[-1].counted_from is not None
    later = saved[-1].counted_from + timedelta(days=3)
    found = previewing.preview(
        previewing.of_target(session, "nightly"), after=None, count=1, now=later
    )
    assert [each.number for each in found.overdue] == [3, 1, 1]


def test_a_complement_is_planned_made_and_cancelled(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan,) = complementing.plan(session, "nightly", TWO_DAYS)
    assert (plan.to_run, plan.estimate) == (2, None)
    assert stored_complements.find(session, limit=5) == []
    (view,) = complementing.create(session, "nightly", TWO_DAYS, now=NOW)
    details = stored_complements.details(session, view.id)
    assert [date.schedule_time.day for date in details.dates] == [31, 1]
    complement_control.cancel(session, view.id, now=NOW)
    assert stored_complements.with_id(session, view.id).state == ComplementState.READY_STOP
    with pytest.raises(NotAllowedError, match="can't be resumed"):
        complement_control.resume(session, view.id, now=NOW)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (ComplementOptions(), "first"),
        (ComplementOptions(first="2013-01-01"), "last"),
        (ComplementOptions(first="2013-01-02", last="2013-01-01"), "last"),
        (ComplementOptions(first="2013-01-01", dates=("2013-01-02",)), "dates"),
        (ComplementOptions(dates=("2013-01-02", "2013-01-02")), "dates"),
        (ComplementOptions(first="soon", last="2013-01-01"), "first"),
        (ComplementOptions(dates=("2013-01-02",), zone="Mars/Olympus"), "zone"),
        (ComplementOptions(dates=("2013-01-02",), start_nodes=(" ",)), "start_node"),
    ],
)
def test_a_wrong_option_of_a_complement_is_reported_with_its_field(
    session: Session, options: ComplementOptions, field: str
) -> None:
    with pytest.raises(UsageError) as raised:
        complementing.plan(session, "nightly", options)
    assert raised.value.field == field
