"""`orcaflow complement` on a real database, with a master's own planning behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, func, insert, select, update

from common.business_dates import slots_of
from common.clock import SystemClock
from common.model.cluster import Node
from common.model.complement_states import ComplementState, OnFailure, Reprocess, RunOrder
from common.model.complements import NewComplement, RunSettings
from common.model.states import ProcessState
from common.store.complements import create_complements
from common.store.master.commands import PostgresCommandStore
from common.store.master.complement_progress import PostgresComplementStore
from common.store.people.complement_views import (
    complements_with_ids,
    dates_of_complement,
    newest_runs,
)
from common.store.tables import (
    command,
    complement,
    complement_date,
    environment,
    process_definition,
    process_instance,
    schedule,
)
from master.commands import plan
from master.commands.origin import Origin
from master.logic.complement import step
from operations.complement_plans import skip_reason
from tests.builders import read_graph
from tests.granting import grant_all
from tests.integration.conftest import Cli

MASTER = Node(address="127.0.0.1:5678", incarnation=1)
ORIGIN = Origin(zone=ZoneInfo("UTC"), graph=read_graph)
NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)

# The end of a date's run.
Ending = Callable[[datetime], ProcessState | None]


def document(cli: Cli, line: str, *, code: int = 0) -> Any:
    """The document of `orcaflow complement <line> -o json`."""
    found, out, err = cli("complement", *line.split(), "-o", "json")
    assert found == code, err
    return json.loads(out)


def refused(cli: Cli, db: Engine, line: str, *, code: int) -> str:
    """Run `orcaflow complement <line>`, which must be refused and write nothing; its message."""
    with db.connect() as connection:
        before = connection.scalar(select(func.count()).select_from(complement_date))
    found, out, err = cli("complement", *line.split())
    assert (found, out) == (code, ""), err
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(complement_date)) == before
    return err


def a_definition(
    db: Engine,
    name: str = "nightly",
    *,
    waits_for: str | None = None,
    date_value: str = "today",
    child: int | None = None,
) -> int:
    tasks: list[dict[str, Any]] = [
        {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": []},
        {"name": "b", "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": ["a"]},
    ]
    if waits_for is not None:
        item = {
            "definitionName": waits_for,
            "depTasks": "ALL",
            "cycle": "day",
            "dateValue": date_value,
        }
        groups = [{"relation": "AND", "dependItemList": [item]}]
        dependence = {"relation": "AND", "dependTaskList": groups}
        tasks.append(
            {
                "name": "w",
                "type": "DEPENDENT",
                "dependence": dependence,
                "preTasks": [],
                "params": {},
            }
        )
    if child is not None:
        below = {"processDefinitionId": child}
        tasks.append({"name": "s", "type": "SUB_PROCESS", "preTasks": [], "params": below})
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_definition)
            .values(
                name=name,
                release_state=1,
                project_id=1,
                process_definition_json=json.dumps({"tasks": tasks}),
            )
            .returning(process_definition.c.id)
        ).scalar_one()
    return made


def an_instance(db: Engine, definition_id: int, date: datetime, state: int) -> int:
    is_live = not ProcessState(state).is_terminal
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_instance)
            .values(
                name="nightly-1",
                process_definition_id=definition_id,
                state=state,
                command_type=0,
                executor_id=1,
                process_instance_json="{}",
                schedule_time=date,
                start_time=NOW,
                end_time=None if is_live else NOW + timedelta(seconds=10),
                host="127.0.0.1:5678" if is_live else None,
                owner_incarnation=1 if is_live else None,
            )
            .returning(process_instance.c.id)
        ).scalar_one()
    return made


def well(_: datetime) -> ProcessState:
    return ProcessState.SUCCESS


class World:
    """A master without its threads: takes commands, ends runs as requested, settles dates."""

    def __init__(self, db: Engine, ending: Ending = well) -> None:
        self.db = db
        self.ending = ending
        self._commands = PostgresCommandStore(db)
        self._complements = PostgresComplementStore(db)
        self._clock = SystemClock()

    def turn(self) -> None:
        now = self._clock.now()
        self._complements.advance(decide=step, now=now, thorough=True)
        self._commands.take(
            node=MASTER,
            limit=10,
            room=10,
            spare=10,
            live_masters=lambda: frozenset({MASTER}),
            planner=lambda one, snapshot: plan(one, snapshot, now=now, origin=ORIGIN),
            now=now,
        )
        with self.db.begin() as connection:
            live = connection.execute(
                select(
                    process_instance.c.id,
                    process_instance.c.schedule_time,
                    process_instance.c.wanted_state,
                ).where(process_instance.c.state == int(ProcessState.RUNNING))
            ).all()
            for run in live:
                stopped = run.wanted_state == ProcessState.STOP
                state = ProcessState.STOP if stopped else self.ending(run.schedule_time)
                if state is not None:
                    connection.execute(
                        update(process_instance)
                        .where(process_instance.c.id == run.id)
                        .values(state=int(state), end_time=now, host=None, owner_incarnation=None)
                    )

    def rest(self) -> None:
        """Take turns until nothing changes."""
        for _ in range(50):
            self.turn()
            with self.db.connect() as connection:
                moving = complement.c.state.in_((0, 1, 2, 4))
                if connection.scalar(select(complement.c.id).where(moving).limit(1)) is None:
                    return
        raise AssertionError("a complement does not come to its end")

    @contextmanager
    def turning(self) -> Iterator[None]:
        """Take turns continuously, beside a waiting command."""
        over = threading.Event()

        def work() -> None:
            while not over.wait(0.01):
                self.turn()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def states(db: Engine, complement_id: int) -> list[str]:
    with db.connect() as connection:
        return [date.state for date in dates_of_complement(connection, complement_id)]


def test_a_range_becomes_a_complement_that_runs_each_of_its_dates_once(
    cli: Cli, db: Engine
) -> None:
    a_definition(db)
    made = document(cli, "nightly --from 2013-01-01 --to 2013-01-31 --parallel 2 --param who=me")
    [row] = made["complements"]
    assert (row["state"], row["dates"], row["pending"]) == ("RUNNING", 31, 31)
    assert (row["timezone"], row["parallelism"], row["start_params"]) == ("UTC", 2, {"who": "me"})
    World(db).rest()
    shown = document(cli, f"show {row['id']}")
    assert (shown["state"], shown["success"], shown["done"]) == ("SUCCESS", 31, 31)
    assert [date["date"][:10] for date in shown["date_list"]] == [
        f"2013-01-{day:02d}" for day in range(1, 32)
    ]
    assert len({date["process_instance_id"] for date in shown["date_list"]}) == 31
    assert [each["id"] for each in document(cli, "list nightly --state success")] == [row["id"]]
    assert document(cli, "list --state running") == []
    assert cli("complement", "show", str(row["id"]))[0] == 0


def test_a_plan_writes_nothing_and_says_what_would_come_of_each_date(cli: Cli, db: Engine) -> None:
    definition_id = a_definition(db)
    done = an_instance(db, definition_id, datetime(2013, 1, 2, tzinfo=UTC), 7)
    failed = an_instance(db, definition_id, datetime(2013, 1, 3, tzinfo=UTC), 6)
    line = "nightly --from 2013-01-01 --to 2013-01-03 --parallel 2 --reprocess failed"
    [found] = document(cli, f"{line} --plan")["complements"]
    assert [
        (date["becomes"], date["process_instance_id"], date["reason"]) for date in found["dates"]
    ] == [
        ("runs", None, None),
        ("skipped", done, f"process instance {done} ended as SUCCESS"),
        ("runs", failed, None),
    ]
    assert (found["to_run"], found["to_skip"], found["runs_known"]) == (2, 1, 1)
    assert (found["typical_duration"], found["estimated_duration"]) == (10.0, 10.0)
    code, out, err = cli("complement", *line.split(), "--plan")
    assert code == 0
    assert "1 round of 10.0s (the median of its last 1 successful run) = 10.0s" in out
    assert "Nothing was written" in err
    assert document(cli, "list") == []


def test_a_long_plan_shows_both_ends_and_how_many_are_between(cli: Cli, db: Engine) -> None:
    a_definition(db)
    code, out, _ = cli(
        "complement", "nightly", "--from", "2013-01-01", "--to", "2013-12-31", "--plan"
    )
    assert code == 0
    lines = out.splitlines()
    dates = [line.split()[0] for line in lines if line.startswith("2013-")]
    assert dates == [
        *(f"2013-01-{day:02d}" for day in range(1, 6)),
        *(f"2013-12-{day}" for day in range(27, 32)),
    ]
    assert "… 355 more (-o json lists all)" in lines
    assert "no history yet" in out


@pytest.mark.parametrize("reprocess", list(Reprocess))
def test_a_plan_skips_what_the_complement_skips(db: Engine, reprocess: Reprocess) -> None:
    definition_id = a_definition(db)
    dates = []
    for day, state in enumerate(ProcessState, start=1):
        dates.append(datetime(2013, 1, day, tzinfo=UTC))
        an_instance(db, definition_id, dates[-1], 7)
        an_instance(db, definition_id, dates[-1], int(state))
    dates.append(datetime(2013, 1, 31, tzinfo=UTC))
    new = NewComplement(
        process_definition_id=definition_id,
        dates=tuple(dates),
        timezone_id="UTC",
        parallelism=1,
        order=RunOrder.ASCENDING,
        on_failure=OnFailure.STOP,
        reprocess=reprocess,
        settings=RunSettings(),
    )
    with db.begin() as connection:
        [made] = create_complements(connection, [new], command_id=0, now=NOW)
        written = dates_of_complement(connection, made)
        runs = newest_runs(connection, definition_id, slots_of(new))
    foretold = [
        skip_reason(reprocess, *runs[place]) if place in runs else None
        for place in range(len(dates))
    ]
    assert foretold == [date.reason for date in written]
    assert [reason is not None for reason in foretold] == [
        date.state == "skipped" for date in written
    ]


def test_dates_are_the_fires_of_online_schedules_in_their_zone(cli: Cli, db: Engine) -> None:
    definition_id = a_definition(db)
    with db.begin() as connection:
        for crontab, release_state in (("0 30 2 * * ? *", 1), ("0 0 5 * * ? *", 0)):
            connection.execute(
                insert(schedule).values(
                    process_definition_id=definition_id,
                    crontab=crontab,
                    timezone_id="America/New_York",
                    release_state=release_state,
                )
            )
    line = "nightly --from 2026-03-07 --to 2026-03-09 --order descending --plan"
    [found] = document(cli, line)["complements"]
    assert found["timezone"] == "America/New_York"
    # The clock skips 02:30 on the 8th.
    assert [date["date"] for date in found["dates"]] == [
        "2026-03-09 02:30:00",
        "2026-03-08 03:30:00",
        "2026-03-07 02:30:00",
    ]
    assert found["dates"][1]["schedule_time"] == "2026-03-08T07:30:00Z"
    err = refused(
        cli, db, "nightly --from 2026-03-07T03:00:00 --to 2026-03-07T04:00:00 --plan", code=4
    )
    assert "don't fire in it" in err


@pytest.mark.parametrize("is_below", [False, True])
def test_an_order_in_which_every_date_waits_for_a_later_one_is_refused(
    cli: Cli, db: Engine, is_below: bool
) -> None:
    waiting = a_definition(
        db, "waiting" if is_below else "nightly", waits_for="nightly", date_value="last1Days"
    )
    nightly = a_definition(db, child=waiting) if is_below else waiting
    days = "nightly --from 2026-03-07 --to 2026-03-09 --date-rule schedule_time"
    for line in (f"{days} --order descending --plan", f"{days} --order descending --parallel 2"):
        err = refused(cli, db, line, code=4)
        assert "task 'w' waits for the run of 2026-03-0" in err
        assert "Run the dates in ascending order" in err
    for line in (f"{days} --plan", f"{days} --order descending --parallel 3 --plan"):
        [found] = document(cli, line)["complements"]
        assert found["to_run"] == 3
    for day in (7, 8):
        an_instance(db, nightly, datetime(2026, 3, day, tzinfo=UTC), ProcessState.SUCCESS)
    [found] = document(cli, f"{days} --order descending")["complements"]
    assert found["order"] == "descending"


def test_a_mistake_is_named_and_nothing_is_written(cli: Cli, db: Engine) -> None:
    a_definition(db)
    for options, code, message in (
        ("--from 2013-01-31 --to 2013-01-01", 2, "--to: 2013-01-01 is before --from 2013-01-31"),
        ("--from 2013-01-01", 2, "--to"),
        ("--to 2013-01-01", 2, "--from"),
        ("--from soon --to 2013-01-01", 2, "--from: 'soon'"),
        ("--from 2013-01-01 --to 2013-02-30", 2, "--to: '2013-02-30'"),
        ("--dates 2013-01-01,2013-01-02,2013-01-01", 2, "date 3 (2013-01-01) is date 1 again"),
        ("--date 2013-01-01 --date 2013-01-01", 2, "date 2 (2013-01-01) is date 1 again"),
        ("--dates 2013-01-01,,", 2, "date 2: ''"),
        ("--date 0000-01-01", 2, "--date/--dates: date 1: '0000-01-01'"),
        ("--date 99999-01-01", 2, "date 1: '99999-01-01'"),
        ("--date 2013-13-01", 2, "date 1: '2013-13-01'"),
        ("--date 2013-01-01 --parallel 0", 2, "1 to 1000 dates may run"),
        ("--date 2013-01-01 --parallel -1", 2, "1 to 1000 dates may run"),
        ("--date 2013-01-01 --parallel 1000000000", 2, "1 to 1000 dates may run"),
        ("--date 2013-01-01 --parallel two", 2, "'two' is not a valid int"),
        ("--dates 2013-01-01 --from 2013-01-01", 2, "either --from and --to, or a list"),
        ("--date 2013-01-01 --zone America/NewYork", 2, "did you mean America/New_York?"),
        ("--date 2013-01-01 --start-node c", 3, "has no task 'c'"),
        ("--date 2013-01-01 --only", 2, "--only needs --start-node"),
        ("--date 2013-01-01 --start-node a --only --pre", 2, "exclude each other"),
        ("--date 2013-01-01 --param novalue", 2, "--param"),
        ("--date 2013-01-01 --worker-group none", 3, "no worker group 'none'"),
        ("--date 2013-01-01 --environment ghost", 3, "no environment 'ghost'"),
        ("--from 1900-01-01 --to 2013-01-01", 4, "more than 10,000 dates"),
        (f"--date 2013-01-01 --param long={'x' * 1_000_000}", 4, "larger than"),
    ):
        assert message in refused(cli, db, f"nightly {options}", code=code), options


def test_more_dates_than_usual_need_a_word_of_confirmation(cli: Cli, db: Engine) -> None:
    a_definition(db)
    line = "nightly --from 1980-01-01 --to 2013-01-01"
    assert "--yes" in refused(cli, db, line, code=4)
    [row] = document(cli, f"{line} --yes")["complements"]
    assert row["dates"] == 12_055


def test_a_definition_has_to_be_there_and_online(cli: Cli, db: Engine) -> None:
    definition_id = a_definition(db)
    assert "did you mean 'nightly'?" in refused(cli, db, "nightli --date 2013-01-01", code=3)
    with db.begin() as connection:
        connection.execute(
            update(process_definition)
            .where(process_definition.c.id == definition_id)
            .values(release_state=0)
        )
    assert "definition online" in refused(cli, db, "nightly --date 2013-01-01", code=4)


def test_settings_of_the_runs_reach_their_commands(cli: Cli, db: Engine) -> None:
    a_definition(db)
    with db.begin() as connection:
        connection.execute(insert(environment).values(name="java", code=2**40))
        grant_all(connection)
    document(
        cli,
        "nightly --date 2013-01-05 --start-node b --pre --priority low --failure-strategy end"
        " --param who=me --environment java",
    )
    [shown] = json.loads(cli("complement", "list", "-o", "json")[1])
    assert shown["environment"] == "java"
    PostgresComplementStore(db).advance(decide=step, now=NOW, thorough=False)
    with db.connect() as connection:
        [row] = connection.execute(select(command)).all()
    param = json.loads(row.command_param)
    assert param["StartNodeNameList"] == "b"
    assert json.loads(param["StartParams"]) == {"who": "me"}
    assert param["environmentCode"] == str(2**40)
    assert (row.task_depend_type, row.process_instance_priority, row.failure_strategy) == (1, 3, 0)
    assert row.schedule_time == datetime(2013, 1, 5, tzinfo=UTC)


def test_waiting_shows_each_date_and_ends_as_the_complement_does(cli: Cli, db: Engine) -> None:
    a_definition(db)
    line = ["complement", "nightly", "--from", "2013-01-01", "--to", "2013-01-03", "--wait"]
    with World(db).turning():
        code, out, err = cli(*line)
    assert code == 0, err
    assert out.count("  success  process instance ") == 3
    assert "SUCCESS: complement 1 of nightly" in out

    def third_fails(date: datetime) -> ProcessState:
        return ProcessState.FAILURE if date.day == 3 else ProcessState.SUCCESS

    with World(db, third_fails).turning():
        code, out, err = cli(*line, "-o", "json")
    assert code == 1, err
    [row] = json.loads(out)["complements"]
    assert (row["state"], row["success"], row["failure"]) == ("FAILURE", 2, 1)
    assert "orcaflow complement retry" in err
    assert cli("complement", "wait", str(row["id"]))[0] == 1
    assert cli("complement", "wait", "99")[0] == 3


def test_a_watcher_may_leave_and_the_complement_goes_on(
    cli: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_definition(db)
    line = ["complement", "nightly", "--date", "2013-01-01", "--wait"]
    code, _, err = cli(*line, "--timeout", "0.1s")
    assert code == 124
    assert "it goes on: orcaflow complement wait 1" in err

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orcaflow.cli.screens.complement_watch.watch", interrupted)
    code, _, err = cli(*line)
    assert code == 130
    for way in ("wait 2", "pause 2", "cancel 2"):
        assert f"orcaflow complement {way}" in err
    assert states(db, 2) == ["pending"]


def test_a_paused_complement_begins_no_further_date_until_it_is_resumed(
    cli: Cli, db: Engine
) -> None:
    a_definition(db)
    document(cli, "nightly --from 2013-01-01 --to 2013-01-04 --parallel 2")
    running = World(db, lambda _: None)
    running.turn()
    assert states(db, 1) == ["running", "running", "pending", "pending"]
    assert document(cli, "pause 1")["state"] == "READY_PAUSE"
    assert document(cli, "pause 1")["state"] == "READY_PAUSE"
    World(db).rest()
    assert document(cli, "show 1")["state"] == "PAUSE"
    assert states(db, 1) == ["success", "success", "pending", "pending"]
    assert document(cli, "resume 1")["state"] == "RUNNING"
    World(db).rest()
    assert document(cli, "show 1")["state"] == "SUCCESS"
    assert "it is SUCCESS" in refused(cli, db, "pause 1", code=4)
    assert "it is SUCCESS" in refused(cli, db, "resume 1", code=4)


def test_pausing_with_wait_ends_once_what_has_begun_has_ended(cli: Cli, db: Engine) -> None:
    a_definition(db)
    document(cli, "nightly --from 2013-01-01 --to 2013-01-04")
    World(db, lambda _: None).turn()
    with World(db).turning():
        assert document(cli, "pause 1 --wait")["state"] == "PAUSE"


def test_a_cancelled_complement_stops_its_runs_and_begins_no_further_date(
    cli: Cli, db: Engine
) -> None:
    a_definition(db)
    a_definition(db, "report", waits_for="nightly")
    made = document(cli, "nightly --from 2013-01-01 --to 2013-01-04 --parallel 2 --downstream")
    assert [row["after_id"] for row in made["complements"]] == [None, 1]
    world = World(db, lambda _: None)
    world.turn()
    with world.turning():
        cancelled = document(cli, "cancel 1")
    assert (cancelled["state"], cancelled["failure"], cancelled["cancelled"]) == ("STOP", 0, 4)
    world.rest()
    follower = document(cli, "show 2")
    assert (follower["state"], follower["pending"]) == ("FAILURE", 4)
    assert "complement 1" in follower["reason"]
    assert document(cli, "cancel 1")["state"] == "STOP"
    assert "begin another" in refused(cli, db, "retry 1", code=4)
    assert "begin another" in refused(cli, db, "resume 1", code=4)
    assert refused(cli, db, "cancel 99", code=3)


def test_cancelling_says_so_when_nobody_carries_it_out(cli: Cli, db: Engine) -> None:
    a_definition(db)
    document(cli, "nightly --date 2013-01-01")
    assert cli("complement", "cancel", "1", "--timeout", "0.1s")[0] == 124
    assert document(cli, "cancel 1 --no-wait")["state"] == "READY_STOP"


def test_a_retry_runs_what_failed_again_and_what_waits_for_it(cli: Cli, db: Engine) -> None:
    a_definition(db)
    a_definition(db, "report", waits_for="nightly")
    document(cli, "nightly --from 2013-01-01 --to 2013-01-03 --on-failure continue --downstream")

    def first_fails(date: datetime) -> ProcessState:
        return ProcessState.FAILURE if date.day == 1 else ProcessState.SUCCESS

    World(db, first_fails).rest()
    assert states(db, 1) == ["failure", "success", "success"]
    assert [row["state"] for row in document(cli, "list")] == ["FAILURE", "FAILURE"]
    shown = document(cli, "show 1 --state failure")
    assert shown["followers"] == [2]
    [failed] = shown["date_list"]
    assert f"process instance {failed['process_instance_id']} failed" == failed["reason"]
    retried = document(cli, "retry 1")
    assert (retried["state"], retried["retried"], retried["followers"]) == ("RUNNING", 1, [2])
    World(db).rest()
    assert [row["state"] for row in document(cli, "list")] == ["SUCCESS", "SUCCESS"]
    with db.connect() as connection:
        again = dates_of_complement(connection, 1)[0]
    assert again.process_instance_id > failed["process_instance_id"]
    assert "can't be retried: it is SUCCESS" in refused(cli, db, "retry 1", code=4)


def test_a_retry_leaves_alone_what_somebody_has_asked_to_recover(cli: Cli, db: Engine) -> None:
    a_definition(db)
    document(cli, "nightly --date 2013-01-01")
    World(db, lambda _: ProcessState.FAILURE).rest()
    with db.connect() as connection:
        [date] = dates_of_complement(connection, 1)
    assert cli("instance", "rerun", str(date.process_instance_id))[0] == 0
    assert "no failed date to run again" in refused(cli, db, "retry 1", code=4)
    World(db).turn()
    World(db).rest()
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(process_instance)) == 1
    assert states(db, 1) == ["success"]


def test_a_retry_leaves_alone_what_was_recovered_meanwhile(cli: Cli, db: Engine) -> None:
    a_definition(db)
    document(cli, "nightly --date 2013-01-01")
    World(db, lambda _: ProcessState.FAILURE).rest()
    with db.begin() as connection:
        connection.execute(update(process_instance).values(state=int(ProcessState.SUCCESS)))
    assert "no failed date to run again" in refused(cli, db, "retry 1", code=4)
    with db.connect() as connection:
        [view] = complements_with_ids(connection, [1])
    assert view.state == ComplementState.FAILURE
