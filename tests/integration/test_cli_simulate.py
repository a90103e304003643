"""`orcaflow schedule simulate` on a real database: its inputs and its output."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from common.clock import SystemClock
from common.config import load
from common.model.cluster import NodeKind
from common.runtime import metrics
from common.runtime.health import HealthServer
from common.runtime.service import Service
from common.store.tables import (
    process_definition,
    process_instance,
    schedule,
    task_group,
    task_instance,
)
from operations.members import registry
from operations.worker_slots import reported_slots
from tests.builders import a_definition_json
from tests.conftest import ZookeeperRoot
from tests.integration.conftest import Cli

HOURLY = "0 0 * * * ? *"
FROM = ("--from", "2026-03-29", "--days", "1")


@pytest.fixture
def zone_name() -> str:
    return "Europe/Berlin"


@pytest.fixture
def simulate(cli: Cli) -> Cli:
    """Runs `schedule simulate`."""
    return lambda *arguments: cli("schedule", "simulate", *arguments)


def parsed(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


def a_definition(db: Engine, name: str = "nightly", **values: Any) -> int:
    row = {
        "name": name,
        "release_state": 1,
        "process_definition_json": a_definition_json("a >> b c"),
    }
    with db.begin() as connection:
        statement = insert(process_definition).values(row | values)
        made = connection.execute(statement.returning(process_definition.c.id)).scalar_one()
    return int(made)


def a_schedule(db: Engine, definition_id: int, **values: Any) -> int:
    row = {
        "process_definition_id": definition_id,
        "crontab": HOURLY,
        "release_state": 1,
        "start_time": datetime(2020, 1, 1, tzinfo=UTC),
    }
    with db.begin() as connection:
        statement = insert(schedule).values(row | values).returning(schedule.c.id)
        made = connection.execute(statement).scalar_one()
    return int(made)


def a_past_run(db: Engine, definition_id: int, *, took: timedelta, tasks: int = 1) -> None:
    """A past run whose tasks all ran from its beginning to its end."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with db.begin() as connection:
        run = connection.execute(
            insert(process_instance)
            .values(
                name="past",
                process_definition_id=definition_id,
                state=7,
                start_time=start,
                end_time=start + took,
                command_type=6,
                process_instance_json="{}",
                executor_id=1,
            )
            .returning(process_instance.c.id)
        ).scalar_one()
        for number in range(tasks):
            connection.execute(
                insert(task_instance).values(
                    name=f"task{number}",
                    task_type="SHELL",
                    process_definition_id=definition_id,
                    process_instance_id=run,
                    task_json="{}",
                    state=7,
                    start_time=start,
                    end_time=start + took,
                )
            )


def test_runs_take_as_long_and_as_many_slots_as_they_did(simulate: Cli, db: Engine) -> None:
    number = a_definition(db)
    for took in (80, 90, 100):
        a_past_run(db, number, took=timedelta(minutes=took), tasks=3)
    a_schedule(db, number)
    document = parsed(simulate(*FROM, "-o", "json"))
    (row,) = document["schedules"]
    assert (row["takes"], row["takes_slots"], row["history"]) == (5400, 3, 3)
    # From the midnight of the day on which Berlin's clock jumps, 24 hours.
    assert (document["from"], document["to"]) == ("2026-03-28T23:00:00Z", "2026-03-29T23:00:00Z")
    assert (row["fires"], row["runs"], row["overlaps"], row["at_once"]) == (24, 24, 23, 2)
    assert document["cluster"]["peak"] == 6
    assert document["assumed"] == []
    longest = parsed(simulate(*FROM, "--pessimistic", "-o", "json"))
    assert longest["schedules"][0]["takes"] == 6000


def test_a_definition_without_history_is_assumed_and_reported(simulate: Cli, db: Engine) -> None:
    a_schedule(db, a_definition(db))
    document = parsed(simulate(*FROM, "--assume", "2h", "-o", "json"))
    (row,) = document["schedules"]
    # Of a >> b c, two run at the same time.
    assert (row["takes"], row["takes_slots"], row["history"]) == (7200, 2, 0)
    assert document["assumed"] == ["nightly"]
    code, out, _ = simulate(*FROM)
    assert code == 0
    assert "assumed to take 1m00s, for want of history: nightly" in out


def test_pools_are_known_by_name(simulate: Cli, db: Engine) -> None:
    with db.begin() as connection:
        connection.execute(insert(task_group).values(name="db", group_size=3))
    share = {"taskGroups": [{"name": "db", "slots": 2}]}
    text = a_definition_json("a b", a=share, b=share)
    a_schedule(db, a_definition(db, process_definition_json=text))
    document = parsed(simulate(*FROM, "-o", "json"))
    assert document["cluster"]["pools"] == [{"name": "db", "size": 3, "peak": 3}]
    assert [problem["kind"] for problem in document["problems"]] == ["too_big"]


def test_a_cluster_that_never_catches_up_is_reported_loudly(simulate: Cli, db: Engine) -> None:
    number = a_definition(db, execution_type=1)
    a_schedule(db, number)
    code, out, _ = simulate(*FROM, "--assume", "90m", "--slots", "2")
    assert code == 0
    loud = out[out.index("NEVER CATCHES UP:") :]
    assert "the cluster never catches up: ever more runs wait, 8 of them at the end" in loud
    assert simulate(*FROM, "--assume", "90m", "--strict")[0] == 1
    assert simulate(*FROM, "--assume", "30m", "--strict")[0] == 0


def test_misfires_of_an_outage_are_reported(simulate: Cli, db: Engine) -> None:
    a_schedule(db, a_definition(db), misfire_policy="skip")
    # On the wall of the cluster: from 10:30 to 13:30 the fires of 11:00, 12:00 and 13:00 are due.
    arguments = (*FROM, "--outage", "2026-03-29 10:30/3h")
    (row,) = parsed(simulate(*arguments, "-o", "json"))["schedules"]
    assert row["outcomes"] == {"fired": 21, "skipped": 3, "coalesced": 0, "missed": 0}
    assert "3 of 24 fires don't happen: 3 skipped" in simulate(*arguments)[1]


def test_dates_on_which_clocks_change_are_reported(simulate: Cli, db: Engine) -> None:
    number = a_schedule(db, a_definition(db), crontab="0 30 2 * * ? *")
    out = simulate(*FROM)[1]
    assert f"schedule {number} (nightly): 2026-03-29 1 fire shifted" in out


def test_schedules_that_are_offline_are_played_if_asked_for(simulate: Cli, db: Engine) -> None:
    a_schedule(db, a_definition(db, release_state=0), release_state=0)
    code, _, err = simulate(*FROM)
    assert (code, "--all" in err) == (3, True)
    (row,) = parsed(simulate(*FROM, "--all", "-o", "json"))["schedules"]
    # Simulated as if it were ONLINE, for which its definition has to be so too.
    assert row["runs"] == 24


def test_one_definition_alone_can_be_played(simulate: Cli, db: Engine) -> None:
    for name in ("nightly", "other"):
        a_schedule(db, a_definition(db, name))
    rows = parsed(simulate(*FROM, "--definition", "other", "-o", "json"))["schedules"]
    assert [row["definition"] for row in rows] == ["other"]
    assert simulate(*FROM, "--definition", "othr")[0] == 3


def test_without_a_date_it_begins_now_with_what_is_overdue(simulate: Cli, db: Engine) -> None:
    now = SystemClock().now()
    number = a_schedule(db, a_definition(db), crontab="0 0 0 1 1 ? *")
    with db.begin() as connection:
        connection.execute(
            schedule.update()
            .where(schedule.c.id == number)
            .values(counted_from=None, next_fire_time=datetime(now.year - 2, 6, 1, tzinfo=UTC))
        )
    (row,) = parsed(simulate("--days", "0.01", "-o", "json"))["schedules"]
    # Of the two New Years since then the newest happens.
    assert row["outcomes"]["coalesced"] == 1
    assert row["late"] == 1


def test_a_row_that_cannot_fire_is_reported(simulate: Cli, db: Engine) -> None:
    number = a_definition(db)
    a_schedule(db, number, crontab="0 0 25 * * ?")
    a_schedule(db, number)
    document = parsed(simulate(*FROM, "-o", "json"))
    assert [problem["kind"] for problem in document["problems"]] == ["fault"]


def test_options_that_make_no_sense_are_named(simulate: Cli, db: Engine) -> None:
    a_schedule(db, a_definition(db))
    for arguments in (
        ("--from", "yesterday"),
        ("--from", "0001-01-01"),
        ("--days", "0"),
        ("--days", "3000", "--from", "9999-12-01"),
        ("--assume", "soon"),
        ("--slots", "0"),
        ("--outage", "2026-03-29 01:00"),
        ("--outage", "2026-03-29/never"),
        ("--outage", "29.3.2026/3h"),
        ("--max-fires", "0"),
    ):
        code, out, err = simulate(*arguments)
        assert (code, out) == (2, "")
        assert arguments[0] in err


def test_too_many_fires_are_refused_with_the_cure(simulate: Cli, db: Engine) -> None:
    number = a_schedule(db, a_definition(db), crontab="* * * * * ? *")
    code, out, err = simulate(*FROM, "--max-fires", "1000")
    assert (code, out) == (1, "")
    assert f"of schedule {number}" in err
    assert "--max-fires" in err


def test_slots_are_those_of_the_workers_that_live(
    simulate: Cli, db: Engine, zk_root: ZookeeperRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_schedule(db, a_definition(db))
    cluster = parsed(simulate(*FROM, "-o", "json"))["cluster"]
    assert (cluster["slots"], cluster["slots_known_by"]) == (
        None,
        "ZooKeeper does not answer, so no worker is known",
    )
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", zk_root.hosts)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__ROOT", zk_root.root)
    monkeypatch.setenv("ORCAFLOW_WORKER__EXEC_THREADS", "5")
    monkeypatch.setattr("operations.worker_slots._PATIENCE", timedelta(seconds=5))
    assert (
        parsed(simulate(*FROM, "-o", "json"))["cluster"]["slots_known_by"] == "no worker is alive"
    )
    server = HealthServer(Service(), host="127.0.0.1", port=0)
    server.start()
    try:
        metrics.slots.labels(state="used").set(1)
        metrics.slots.labels(state="free").set(2)
        with registry(load()) as opened:
            opened.membership.join(NodeKind.WORKER, f"127.0.0.1:{server.port}", "")
            cluster = parsed(simulate(*FROM, "-o", "json"))["cluster"]
        assert (cluster["slots"], cluster["slots_known_by"]) == (3, "1 living worker")
    finally:
        server.stop()
    # A master that does not answer is taken to be as configured here.
    assert reported_slots(f"127.0.0.1:{server.port}") is None
    with registry(load()) as opened:
        opened.membership.join(NodeKind.WORKER, f"127.0.0.1:{server.port}", "")
        cluster = parsed(simulate(*FROM, "-o", "json"))["cluster"]
    assert (cluster["slots"], cluster["slots_known_by"]) == (
        5,
        "1 living worker, 1 of which did not say: 5 slots each",
    )
