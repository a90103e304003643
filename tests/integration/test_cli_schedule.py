"""`orcaflow schedule` on a real database: its writes, its refusals, its output."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, text, update

from common.config import load
from common.store.people.schedule_requests import lock_definitions
from common.store.tables import (
    environment,
    error_command,
    process_definition,
    process_instance,
    schedule,
    schedule_fire,
)
from operations.checks import Result, schedules_finding
from tests.granting import grant_all
from tests.integration.conftest import Cli

DAILY = "0 0 3 * * ? *"


@pytest.fixture
def zone_name() -> str:
    return "Europe/Berlin"


def parsed(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


def a_definition(db: Engine, name: str = "nightly", *children: str, **values: Any) -> int:
    """An ONLINE definition by default; `children` are run as sub processes, by name."""
    tasks = [
        {
            "name": f"run {child}",
            "type": "SUB_PROCESS",
            "params": {"processDefinitionName": child},
            "preTasks": [],
        }
        for child in children
    ]
    document = json.dumps({"tasks": tasks})
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_definition)
            .values(
                {"name": name, "release_state": 1, "process_definition_json": document} | values
            )
            .returning(process_definition.c.id)
        ).scalar_one()
    return made


def rows(db: Engine) -> list[Any]:
    with db.connect() as connection:
        return list(connection.execute(select(schedule).order_by(schedule.c.id)))


def states(db: Engine) -> list[int]:
    return [row.release_state for row in rows(db)]


def test_a_schedule_is_made_offline_with_what_is_known_of_it(cli: Cli, db: Engine) -> None:
    number = a_definition(db)
    row = parsed(cli("schedule", "create", "nightly", "--cron", " 0 0   3 * * ? *", "-o", "json"))
    (stored,) = rows(db)
    assert (stored.process_definition_id, stored.crontab) == (number, DAILY)
    # The zone is stored by its name: another zone of the cluster does not move the schedule.
    assert (stored.timezone_id, stored.release_state) == ("Europe/Berlin", 0)
    assert (stored.misfire_policy, stored.missing_time, stored.repeated_time) == (
        *("fire_once", "shift"),
        "first",
    )
    assert stored.end_time == datetime(9999, 1, 1, tzinfo=UTC)
    assert row["description"] == "at 03:00:00 every day"
    assert (row["release_state"], row["next_fire_time"], row["end_time"]) == ("OFFLINE", None, None)


def test_every_option_reaches_its_column(cli: Cli, db: Engine) -> None:
    a_definition(db)
    with db.begin() as connection:
        connection.execute(insert(environment).values(name="java", code=2**40))
        grant_all(connection)
    row = parsed(
        cli(
            *("schedule", "create", "nightly", "--cron", "0 30 2 * * ?", "-o", "json", "--online"),
            *("--zone", "America/New_York", "--from", "2026-01-01", "--to", "2046-12-31"),
            *("--misfire", "fire_all", "--misfire-limit", "3", "--deadline", "2h"),
            *("--missing", "skip", "--repeated", "both", "--execution-type", "serial-wait"),
            *("--failure-strategy", "end", "--priority", "high", "--worker-group", "default"),
            *("--param", "region=eu", "-p", "n=ä=b", "-p", "db_password=hunter2"),
            *("--environment", "java"),
        )
    )
    (stored,) = rows(db)
    # Times are read in the schedule's zone, and the last day is included.
    assert stored.start_time == datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert stored.end_time == datetime(2047, 1, 1, 4, 59, 59, tzinfo=UTC)
    assert (stored.misfire_policy, stored.misfire_limit, stored.deadline) == ("fire_all", 3, 7200)
    assert (stored.missing_time, stored.repeated_time, stored.execution_type) == ("skip", "both", 1)
    assert (stored.failure_strategy, stored.process_instance_priority) == (0, 1)
    assert (stored.worker_group_id, stored.release_state) == (-1, 1)
    assert (stored.environment_code, row["environment"]) == (2**40, "java")
    given = {"region": "eu", "n": "ä=b", "db_password": "hunter2"}
    assert json.loads(stored.start_params) == given
    assert row["params"] == given | {"db_password": "******"}
    code, shown, _ = cli("schedule", "show", str(stored.id))
    assert (code, "region=eu" in shown, "hunter2" in shown) == (0, True, False)
    assert (row["release_state"], row["deadline"]) == ("ONLINE", 7200)
    assert row["next_fire_time"] is not None
    assert cli("schedule", "offline", "1")[0] == 0
    kept = parsed(cli("schedule", "edit", "1", "--deadline", "1h", "-o", "json"))
    gone = parsed(cli("schedule", "edit", "1", "--environment", "none", "-o", "json"))
    assert (kept["environment"], gone["environment"]) == ("java", None)


BAD = (
    (("--cron", "0 0 25 * * ?"), 2, "position 5, hours"),
    (("--cron", "0 0 3 * * *"), 2, "?"),
    (("--cron", "30 2 * * *"), 2, "0 30 2 * * ?"),
    (("--cron", "0 " * 5000), 2, "256"),
    (("--zone", "America/New_Yrok"), 2, "did you mean America/New_York?"),
    (("--zone", "../../etc/passwd"), 2, "is no zone"),
    (("--zone", ""), 2, "is no zone"),
    (("--zone", "Z" * 1000), 2, "is no zone"),
    (("--zone", "localtime"), 2, "is no zone"),
    (("--from", "2026-02-30"), 2, "'2026-02-30' is no time"),
    (("--from", "2013-13-01"), 2, "'2013-13-01' is no time"),
    (("--from", "0000-01-01"), 2, "'0000-01-01' is no time"),
    (("--to", "99999-01-01"), 2, "'99999-01-01' is no time"),
    (("--to", "tomorrow"), 2, "'tomorrow' is no time"),
    (("--from", "2026-01-02", "--to", "2026-01-01"), 2, "ends before it starts"),
    (("--from", "2026-01-01 03:00:00", "--to", "2026-01-01 03:00:00"), 2, "ends as it starts"),
    (("--deadline", "soon"), 2, "'soon' is no span of time"),
    (("--deadline", "99999999999d"), 2, "is no span of time"),
    (("--misfire-limit", "1001"), 2, "1001 is not in the range 1<=x<=1000"),
    (("--misfire", "sometimes"), 2, "sometimes"),
    (("--param", "region"), 2, "is not NAME=VALUE"),
    (
        ("--worker-group", "ghost"),
        3,
        "project 'default' has no worker group 'ghost': an administrator can grant it",
    ),
    (("--environment", "ghost"), 3, "project 'default' has no environment 'ghost'"),
    (("--param", "x=" + "y" * 3_000_000), 4, "command.param_limit_bytes"),
)


def test_a_mistake_is_reported_and_nothing_is_written(cli: Cli, db: Engine) -> None:
    a_definition(db)
    for options, code, words in BAD:
        cron = () if "--cron" in options else ("--cron", DAILY)
        answer = cli("schedule", "create", "nightly", *cron, *options)
        assert (answer[0], answer[1]) == (code, ""), options[0]
        assert words in " ".join(answer[2].replace("│", " ").split()), (options[0], answer[2][:500])
    code, _, err = cli("schedule", "create", "nigthly", "--cron", DAILY)
    assert code == 3
    assert "did you mean 'nightly'?" in err
    assert rows(db) == []


def test_a_definition_may_have_several_schedules_and_that_is_said(cli: Cli, db: Engine) -> None:
    a_definition(db)
    assert "has 2 schedules" not in cli("schedule", "create", "nightly", "--cron", DAILY)[2]
    code, _, err = cli("schedule", "create", "nightly", "--cron", DAILY)
    assert code == 0
    assert "'nightly' has 2 schedules now (also 1)" in err
    assert [row["id"] for row in parsed(cli("schedule", "list", "nightly", "-o", "json"))] == [1, 2]


def test_online_needs_the_definition_and_all_that_it_runs(cli: Cli, db: Engine) -> None:
    leaf = a_definition(db, "leaf", release_state=0)
    a_definition(db, "middle", "leaf")
    a_definition(db, "top", "middle")
    code, out, err = cli("schedule", "create", "top", "--cron", DAILY, "--online")
    assert (code, out) == (4, "")
    assert "'leaf', which task 'run leaf' of 'middle' runs as a sub process, is OFFLINE" in err
    assert rows(db) == []
    assert cli("schedule", "create", "top", "--cron", DAILY)[0] == 0
    assert cli("schedule", "online", "1")[0] == 4
    with db.begin() as connection:
        connection.execute(
            update(process_definition)
            .where(process_definition.c.id == leaf)
            .values(release_state=1, flag=0)
        )
    assert "is not usable (flag 0)" in cli("schedule", "online", "1")[2]
    with db.begin() as connection:
        connection.execute(update(process_definition).values(flag=1))
    code, out, err = cli("schedule", "online", "1")
    assert (code, out) == (0, "schedule 1 (top) is now ONLINE\n")
    assert "ZooKeeper does not answer" in err
    with db.begin() as connection:
        connection.execute(text("DELETE FROM t_ds_process_definition WHERE name = 'leaf'"))
    code, _, err = cli("schedule", "online", "--all")
    assert code == 3
    assert "there is no process definition 'leaf', which task 'run leaf'" in err


def test_many_come_online_together_or_none_does(cli: Cli, db: Engine) -> None:
    a_definition(db, "good")
    a_definition(db, "bad", release_state=0)
    for name in ("good", "good", "bad"):
        assert cli("schedule", "create", name, "--cron", DAILY)[0] == 0
    for choice in (("--all",), ("1", "3"), ("1", "2", "4")):
        assert cli("schedule", "online", *choice)[0] in (3, 4), choice
        assert states(db) == [0, 0, 0]
    found = parsed(cli("schedule", "online", "--definition", "good", "-o", "json"))
    assert [(row["id"], row["changed"]) for row in found] == [(1, True), (2, True)]
    found = parsed(cli("schedule", "online", "2", "-o", "json"))
    assert [(row["id"], row["changed"]) for row in found] == [(2, False)]
    assert cli("schedule", "offline", "--all")[0] == 0
    assert states(db) == [0, 0, 0]
    assert cli("schedule", "online")[0] == 2
    assert cli("schedule", "online", "1", "--all")[0] == 2
    assert cli("schedule", "offline", "99")[0] == 3


def test_a_row_that_can_not_fire_does_not_come_online(cli: Cli, db: Engine) -> None:
    number = a_definition(db)
    with db.begin() as connection:
        connection.execute(
            insert(schedule).values(process_definition_id=number, crontab="0 0 3 * *")
        )
    code, _, err = cli("schedule", "online", "1")
    assert code == 4
    assert "schedule 1 can't fire: crontab: " in err
    assert cli("schedule", "preview", "1")[0] == 0
    assert parsed(cli("schedule", "show", "1", "-o", "json"))["description"] is None


def test_only_what_is_offline_is_changed_or_deleted(cli: Cli, db: Engine) -> None:
    a_definition(db)
    cli("schedule", "create", "nightly", "--cron", DAILY, "--deadline", "1h", "-p", "a=b")
    cli("schedule", "create", "nightly", "--cron", DAILY, "--online")
    for verb in (("edit", "2", "--deadline", "2h"), ("delete", "2"), ("delete", "1", "2")):
        code, _, err = cli("schedule", *verb)
        assert code == 4
        assert "orcaflow schedule offline 2" in err
    assert len(rows(db)) == 2
    row = parsed(
        cli(
            *("schedule", "edit", "1", "--cron", "0 0 4 * * ?", "--deadline", "none"),
            *("--zone", "UTC", "--to", "2030-01-01", "--no-params", "-o", "json"),
        )
    )
    assert (row["crontab"], row["deadline"], row["params"]) == ("0 0 4 * * ?", None, {})
    assert (row["timezone_id"], row["end_time"]) == ("UTC", "2030-01-01T23:59:59Z")
    assert (row["misfire_policy"], row["priority"]) == ("fire_once", "MEDIUM")
    assert cli("schedule", "edit", "1", "--from", "2031-01-01")[0] == 2
    assert cli("schedule", "edit", "1")[0] == 2
    assert cli("schedule", "edit", "99", "--deadline", "2h")[0] == 3
    assert cli("schedule", "delete", "1", "99")[0] == 3
    assert cli("schedule", "offline", "2")[0] == 0
    assert [each["id"] for each in parsed(cli("schedule", "delete", "2", "1", "-o", "json"))] == [
        1,
        2,
    ]
    assert rows(db) == []


def test_a_definition_that_goes_offline_takes_its_schedules_along(cli: Cli, db: Engine) -> None:
    a_definition(db)
    a_definition(db, "other")
    for name in ("nightly", "nightly", "other"):
        cli("schedule", "create", name, "--cron", DAILY, "--online")
    cli("schedule", "offline", "2")
    (row,) = parsed(cli("definition", "offline", "nightly", "-o", "json"))
    assert (row["release_state"], row["schedules"]) == ("OFFLINE", [1])
    assert states(db) == [0, 0, 1]
    # Coming back, they stay OFFLINE, and the output says so.
    code, _, err = cli("definition", "online", "nightly")
    assert code == 0
    assert "orcaflow schedule online --definition 'nightly'" in err
    assert states(db) == [0, 0, 1]
    shown = parsed(cli("definition", "show", "nightly", "-o", "json"))
    assert [each["id"] for each in shown["schedules"]] == [1, 2]
    assert "0 0 3 * * ? *" in cli("definition", "show", "nightly")[1]


LOCK_WAITS = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def meanwhile(cli: Cli, db: Engine, *arguments: str) -> Callable[[], int]:
    """Begin a command that comes to wait for a lock of the caller; its exit code follows later."""
    codes: list[int] = []
    other = threading.Thread(target=lambda: codes.append(cli(*arguments)[0]))
    other.start()
    waits = 0
    while other.is_alive() and not waits:
        # A transaction sees the activity as it first saw it.
        with db.connect() as connection:
            waits = connection.scalar(LOCK_WAITS) or 0

    def ended() -> int:
        other.join(timeout=60)
        return codes[0]

    return ended


def test_a_definition_can_not_go_offline_unseen_while_its_schedule_comes_online(
    cli: Cli, db: Engine
) -> None:
    number = a_definition(db)
    cli("schedule", "create", "nightly", "--cron", DAILY)
    with db.begin() as connection:
        # As `schedule online` does before it writes.
        assert lock_definitions(connection, [number])[number].is_released
        code = meanwhile(cli, db, "definition", "offline", "nightly")
        connection.execute(update(schedule).values(release_state=1))
    assert code() == 0
    assert states(db) == [0]


def test_a_schedule_can_not_come_online_unseen_while_its_definition_goes_offline(
    cli: Cli, db: Engine
) -> None:
    a_definition(db)
    cli("schedule", "create", "nightly", "--cron", DAILY)
    with db.begin() as connection:
        connection.execute(update(process_definition).values(release_state=0))
        code = meanwhile(cli, db, "schedule", "online", "1")
    assert code() == 4
    assert states(db) == [0]


def test_the_ledger_is_shown_with_what_became_of_each_fire(cli: Cli, db: Engine) -> None:
    number = a_definition(db)
    cli("schedule", "create", "nightly", "--cron", DAILY, "--zone", "America/New_York")
    day = datetime(2026, 3, 7, 8, tzinfo=UTC)
    with db.begin() as connection:
        run = connection.execute(
            insert(process_instance)
            .values(
                name="nightly-1",
                process_definition_id=number,
                state=7,
                command_type=6,
                executor_id=1,
                process_instance_json="{}",
                end_time=day,
            )
            .returning(process_instance.c.id)
        ).scalar_one()
        connection.execute(insert(error_command).values(command_id=12, message="it was OFFLINE"))
        for shift, values in enumerate(
            (
                {"outcome": "fired", "command_id": 11, "process_instance_id": run},
                {"outcome": "fired", "command_id": 12},
                {"outcome": "missed", "reason": "1:00:00 late; the deadline is 0:30:00"},
            )
        ):
            connection.execute(
                insert(schedule_fire).values(
                    {
                        "schedule_id": 1,
                        "process_definition_id": number,
                        "fire_time": day + timedelta(days=shift),
                    }
                    | values
                )
            )
    found = parsed(cli("schedule", "fires", "nightly", "-o", "json"))
    assert [row["outcome"] for row in found] == ["missed", "fired", "fired"]
    assert found[1]["reason"] == "its command was refused: it was OFFLINE"
    assert (found[2]["process_instance_id"], found[2]["instance_state"]) == (run, "SUCCESS")
    assert parsed(cli("schedule", "show", "1", "-o", "json"))["fires"] == {"fired": 2, "missed": 1}
    out = cli("schedule", "fires", "1", "--outcome", "fired")[1]
    assert "2026-03-07 03:00:00-05:00" in out
    assert "missed" not in out
    # The fires outlive the schedule.
    assert cli("schedule", "delete", "1")[0] == 0
    assert len(parsed(cli("schedule", "fires", "1", "--limit", "2", "-o", "json"))) == 2
    assert len(parsed(cli("schedule", "fires", "nightly", "-o", "json"))) == 3
    assert cli("schedule", "fires", "2")[0] == 3


def test_the_preview_of_a_definition_merges_its_schedules(cli: Cli, db: Engine) -> None:
    a_definition(db)
    code, _, err = cli("schedule", "preview", "nightly")
    assert code == 3
    assert "'nightly' has no schedule; make one" in err
    for cron, zone in (("0 0 3 * * ?", "UTC"), ("0 0 3 * * ?", "Asia/Kolkata")):
        cli("schedule", "create", "nightly", "--cron", cron, "--zone", zone)
    asked = ("schedule", "preview", "nightly", "--after", "2030-01-01", "--count", "4")
    found = parsed(cli(*asked, "-o", "json"))
    assert [(row["schedule_id"], row["fire_time"]) for row in found["fires"]] == [
        (2, "2029-12-31T21:30:00Z"),
        (1, "2030-01-01T03:00:00Z"),
        (2, "2030-01-01T21:30:00Z"),
        (1, "2030-01-02T03:00:00Z"),
    ]
    assert [head["release_state"] for head in found["schedules"]] == ["OFFLINE", "OFFLINE"]
    out = cli(*asked)[1]
    assert "2030-01-01 03:00:00+05:30" in out


def test_overdue_fires_are_reported_as_a_master_would_decide_them(cli: Cli, db: Engine) -> None:
    a_definition(db)
    cli("schedule", "create", "nightly", "--cron", "0 0 * * * ?", "--zone", "UTC", "--online")
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with db.begin() as connection:
        connection.execute(update(schedule).values(start_time=now - timedelta(days=1)))
        connection.execute(
            update(schedule).values(counted_from=None, next_fire_time=now - timedelta(hours=5))
        )
    (row,) = parsed(cli("schedule", "preview", "1", "-o", "json"))["overdue"]
    assert row["since"] == f"{now - timedelta(hours=5):%Y-%m-%dT%H:%M:%SZ}"
    # Six are due; if the newest is not late yet, it happens beside the one that stands for others.
    assert row["number"] >= 6
    assert row["outcomes"]["coalesced"] + row["outcomes"]["fired"] == row["number"]
    assert row["outcomes"]["coalesced"] >= 4
    assert "that no master has carried out" in cli("schedule", "preview", "1")[1]
    (row,) = parsed(cli("schedule", "list", "-o", "json"))
    assert row["next_fire_time"] == f"{now - timedelta(hours=5):%Y-%m-%dT%H:%M:%SZ}"


def test_doctor_warns_of_schedules_that_can_not_fire(cli: Cli, db: Engine) -> None:
    a_definition(db)
    cli("schedule", "create", "nightly", "--cron", DAILY, "--online")

    assert schedules_finding(db, load()).result is Result.OK
    with db.begin() as connection:
        connection.execute(update(schedule).values(fault="crontab: position 1, seconds: no"))
    found = schedules_finding(db, load())
    assert found.result is Result.WARNING
    assert "schedule 1: it can't fire: crontab: position 1" in found.detail
    with db.begin() as connection:
        connection.execute(update(schedule).values(fault=None))
        connection.execute(update(process_definition).values(release_state=0))
    assert "'nightly' is OFFLINE" in schedules_finding(db, load()).detail
