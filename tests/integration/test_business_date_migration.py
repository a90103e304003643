"""Revision 0031: definitions, complements and runs keep the dates that they had."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select, text

from common.store import schema, tables
from common.store.connect import engine
from tests.integration.former_databases import bring_to


@pytest.mark.parametrize("revision", ["0025", "0030"])
@pytest.mark.parametrize("chosen", [True, False])
def test_definitions_complements_and_runs_of_before_keep_their_dates(
    new_database: Callable[..., str], revision: str, chosen: bool
) -> None:
    made = engine(new_database())
    night = datetime(2013, 3, 9, 7, 30, tzinfo=UTC)  # 02:30 in New York, the day before the change.
    run = (
        "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state, command_type,"
        " process_instance_json, executor_id, history_cmd, schedule_time, timezone_id, start_time,"
        " end_time) VALUES (:id, 'r', 3, 7, 5, '{}', 1, :history, :at, :zone, :at, :at)"
    )
    with made.begin() as db:
        bring_to(db, revision)
        db.execute(text("INSERT INTO t_ds_process_definition (id, name) VALUES (3, 'nightly')"))
        db.execute(
            text(
                "INSERT INTO t_ds_complement (id, process_definition_id, timezone_id)"
                " VALUES (5, 3, 'America/New_York')"
            )
        )
        for number, history, zone in (
            (1, "COMPLEMENT_DATA,REPEAT_RUNNING", "America/New_York"),
            (2, "COMPLEMENT_DATA", None),
            (3, "SCHEDULER,COMPLEMENT_DATA", "America/New_York"),
            (4, "COMPLEMENT_DATA", "Mars/Olympus"),
        ):
            db.execute(text(run), {"id": number, "history": history, "zone": zone, "at": night})
    rules = schema.FormerRules(complement_uses_chosen_date=chosen, zone=ZoneInfo("Asia/Tokyo"))
    schema.upgrade(made, os_user="tester", former=lambda: rules)
    with made.connect() as db:
        (rule,) = db.scalars(select(tables.process_definition.c.complement_date_rule))
        (of_complement,) = db.scalars(select(tables.complement.c.date_rule))
        found = tables.process_instance.c
        moments = dict(db.execute(select(found.id, found.business_time)).tuples().all())
    expected = "business_date" if chosen else "schedule_time"
    assert (rule, of_complement) == (expected, expected)
    # The clock of New York goes from 02:00 to 03:00 on 10 March.
    later = {1: night + timedelta(days=1), 2: night + timedelta(days=1), 3: None, 4: None}
    assert moments == (later if chosen else dict.fromkeys(later))
    with made.begin() as db:
        # As the daemons of the former version write them.
        db.execute(text("INSERT INTO t_ds_process_definition (id, name) VALUES (4, 'new')"))
        db.execute(
            text(
                "INSERT INTO t_ds_complement (id, process_definition_id, timezone_id)"
                " VALUES (6, 3, 'UTC')"
            )
        )
    with made.connect() as db:
        definition, complement = tables.process_definition.c, tables.complement.c
        rules = select(definition.complement_date_rule).where(definition.id == 4)
        assert db.scalars(rules).all() == [None]
        assert db.scalars(select(complement.date_rule).where(complement.id == 6)).all() == [
            "business_date"
        ]
    made.dispose()
