"""Schedules and complements that are typed as rows, good and bad ones, on real daemons."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Final

import psycopg2
import pytest

from tests.system.cluster import PrivateCluster, a_task, until
from tests.system.frame import refusal
from tests.system.time_rows import (
    SUCCESS,
    a_range,
    add_schedule,
    complement_of,
    ledger_of,
    lines_of,
)

_NUMBERS: Final = count(1)
"""Each definition needs a name of its own."""


@pytest.fixture(autouse=True)
def _no_command_is_left(cluster: PrivateCluster) -> Iterator[None]:
    yield
    assert cluster.rows("SELECT id FROM t_ds_command") == []


def test_a_paused_complement_goes_on_where_it_was(cluster: PrivateCluster) -> None:
    gate, lines = cluster.home / "paused.gate", cluster.home / "paused"
    script = f"echo '$[MM-dd]' >> '{lines}'; until [ -e '{gate}' ]; do sleep 0.05; done"
    definition = cluster.define("gated", [a_task("a", script)])
    cluster.put(
        definition,
        a_range("2013-01-01", "2013-01-05"),
        command_type=5,
    )
    until(lambda: len(lines_of(lines)) == 1)
    ((complement,),) = cluster.rows(
        "SELECT id FROM t_ds_complement WHERE process_definition_id = %s", definition
    )

    def state() -> int:
        ((found,),) = cluster.rows("SELECT state FROM t_ds_complement WHERE id = %s", complement)
        return int(found)

    assert cluster.orcaflow("complement", "pause", str(complement)).returncode == 0
    gate.touch()
    until(lambda: state() == 3)
    assert lines_of(lines) == ["01-01"]
    assert cluster.orcaflow("complement", "resume", str(complement)).returncode == 0
    until(lambda: state() == SUCCESS)
    assert lines_of(lines) == [f"01-0{day}" for day in range(1, 6)]


def test_t33_a_failed_date_stops_its_chain_and_its_recovery_goes_on_with_the_next(
    cluster: PrivateCluster,
) -> None:
    mended, lines = cluster.home / "mended", cluster.home / "failing"
    script = f"[ '$[dd]' != 02 ] || [ -e '{mended}' ] || exit 3\necho '$[dd]' >> '{lines}'"
    definition = cluster.define("failing", [a_task("a", script)])
    cluster.put(
        definition,
        a_range("2013-01-01", "2013-01-04"),
        command_type=5,
    )

    def states() -> list[tuple[int, str]]:
        return cluster.rows(
            "SELECT c.state, string_agg(d.state, ' ' ORDER BY d.position) FROM t_ds_complement c"
            " JOIN t_ds_complement_date d ON d.complement_id = c.id"
            " WHERE c.process_definition_id = %s GROUP BY c.state",
            definition,
        )

    until(lambda: states() == [(6, "success failure pending pending")])
    ((instance,),) = cluster.rows(
        "SELECT id FROM t_ds_process_instance WHERE process_definition_id = %s AND state = 6",
        definition,
    )
    mended.touch()
    assert cluster.orcaflow("instance", "rerun", str(instance), "--failed").returncode == 0
    until(lambda: states() == [(SUCCESS, "success success success success")])
    assert lines_of(lines) == ["01", "02", "03", "04"]
    ((runs,),) = cluster.rows(
        "SELECT count(*) FROM t_ds_process_instance WHERE process_definition_id = %s", definition
    )
    assert runs == 4


def test_sub_processes_and_dependents_of_a_complement_see_its_dates(
    cluster: PrivateCluster,
) -> None:
    lines = cluster.home / "dates"
    below = cluster.define("below", [a_task("b", f"echo 'below $[yyyyMMdd]' >> '{lines}'")])
    above = cluster.define(
        "above",
        [
            {
                "name": "wait",
                "type": "DEPENDENT",
                "params": {},
                "dependence": {
                    "relation": "AND",
                    "dependTaskList": [
                        {
                            "relation": "AND",
                            "dependItemList": [
                                {
                                    "definitionId": below,
                                    "depTasks": "ALL",
                                    "cycle": "day",
                                    "dateValue": "last1Days",
                                }
                            ],
                        }
                    ],
                },
            },
            {
                "name": "sub",
                "type": "SUB_PROCESS",
                "params": {"processDefinitionId": below},
                "preTasks": ["wait"],
            },
        ],
    )
    cluster.put(below, command_type=5, schedule_time=datetime(2013, 1, 1, 12, tzinfo=UTC))
    cluster.put(above, command_type=5, schedule_time=datetime(2013, 1, 2, 12, tzinfo=UTC))
    until(
        lambda: (
            cluster.rows(
                "SELECT state FROM t_ds_complement WHERE process_definition_id = %s", above
            )
            == [(SUCCESS,)]
        )
    )
    assert sorted(lines_of(lines)) == ["below 20130101", "below 20130102"]


@pytest.mark.parametrize(
    ("param", "told"),
    [
        (a_range("2013-01-02", "2013-01-01"), "ends before it starts"),
        ('{"complementStartDate": "tomorrow"}', "complementStartDate must be written as"),
        (
            '{"complementScheduleDateList": "2013-01-01 00:00:00,2013-01-01 00:00:00"}',
            "date 2 (2013-01-01 00:00:00) is date 1 again",
        ),
        (a_range("0001-01-01", "9999-12-31"), "more than 10,000 dates"),
        ("{}", "COMPLEMENT_DATA needs its dates"),
        (a_range("2013-02-30", "2013-03-01"), "complementStartDate must be written as"),
        (a_range("2013-13-01", "2014-03-01"), "complementStartDate must be written as"),
        (a_range("0000-01-01", "2013-03-01"), "complementStartDate must be written as"),
        (a_range("2013-01-01", "99999-01-01"), "complementEndDate must be written as"),
        (a_range("2013-01-01", "2013-01-02", 0), "expectedParallelismNumber must be a whole"),
        (a_range("2013-01-01", "2013-01-02", 10**9), "expectedParallelismNumber must be a whole"),
        (a_range("2013-01-01", "2013-01-02", expectedParallelismNumber="two"), "'two'"),
        (a_range("2013-01-01", "2013-01-02", executionOrder="UP"), "executionOrder must be one of"),
        (a_range("2013-01-01", "2013-01-02", schedule_timezone="../../etc/passwd"), "is no zone"),
        (a_range("2013-01-01", "2013-01-02", StartNodeNameList="b"), "none of the start nodes 'b'"),
        (a_range("2013-01-01", "2013-01-02", padding="x" * 1_000_000), "at most 1000000 are read"),
        ("[" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_t73_a_row_that_asks_for_no_sound_dates_is_refused_and_nothing_is_written(
    cluster: PrivateCluster, param: str, told: str
) -> None:
    definition = cluster.define(f"sound {next(_NUMBERS)}", [a_task("a", "true")])
    before = cluster.rows("SELECT count(*) FROM t_ds_complement_date")
    command = cluster.put(definition, param, command_type=5)
    assert told in refusal(cluster, command)
    assert cluster.rows("SELECT count(*) FROM t_ds_complement_date") == before


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"crontab": "0 0 3 * *"}, "crontab: "),
        ({"crontab": "0 0 0 31 2 ?"}, "never fires"),
        ({"crontab": "0 0 3 1 * 2"}, "day-of-week"),
        ({"crontab": "0 0 0 L-99 * ?"}, "day-of-month"),
        ({"crontab": "* * * * * ?", "timezone_id": "Mars/Olympus"}, "timezone_id"),
        ({"crontab": "* * * * * ?", "timezone_id": "../../etc/passwd"}, "timezone_id"),
        ({"crontab": "* * * * * ?", "start_params": "{"}, "start_params"),
    ],
)
def test_a_schedule_that_can_t_be_understood_says_so_in_its_row_and_holds_up_no_other(
    cluster: PrivateCluster, columns: dict[str, str], told: str
) -> None:
    definition = cluster.define(f"good {next(_NUMBERS)}", [a_task("a", "true")])
    bad = add_schedule(cluster, definition, **columns)
    until(
        lambda: (
            told in str(cluster.rows("SELECT fault FROM t_ds_schedules WHERE id = %s", bad)[0][0])
        )
    )
    good = add_schedule(cluster, definition, "* * * * * ?")
    until(lambda: len(ledger_of(cluster, good)) >= 1)
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id IN (%s, %s)", bad, good)
    assert ledger_of(cluster, bad) == []
    # Mended, it fires.
    cluster.rows(
        "UPDATE t_ds_schedules SET crontab = '* * * * * ?', timezone_id = NULL,"
        " start_params = NULL, release_state = 1 WHERE id = %s",
        bad,
    )
    until(lambda: len(ledger_of(cluster, bad)) >= 1)
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id = %s", bad)
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])


def test_t97_a_schedule_or_definition_that_goes_offline_fires_no_more(
    cluster: PrivateCluster,
) -> None:
    definition = cluster.define("off", [a_task("a", "true")])
    schedule = add_schedule(cluster, definition, "* * * * * ?")
    until(lambda: len(ledger_of(cluster, schedule)) >= 1)
    cluster.rows("UPDATE t_ds_process_definition SET release_state = 0 WHERE id = %s", definition)
    until(lambda: "skipped" in {outcome for _, outcome, _ in ledger_of(cluster, schedule)})
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id = %s", schedule)
    ((now,),) = cluster.rows("SELECT now()")
    other = add_schedule(
        cluster, cluster.define("on", [a_task("a", "true")]), "* * * * * ?", start_time=now
    )
    until(lambda: len(ledger_of(cluster, other)) >= 2)
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id = %s", other)
    assert [moment for moment, _, _ in ledger_of(cluster, schedule) if moment > now] == []
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])


def test_rows_of_schedules_with_absurd_values_are_refused_or_fire(
    cluster: PrivateCluster,
) -> None:
    pids = cluster.pids()
    definition = cluster.define("absurd", [a_task("a", "true")])
    ((before,),) = cluster.rows("SELECT now()")
    for refused in (
        {"start_time": "infinity"},
        {"end_time": "-infinity"},
        {"end_time": "4000-01-01 BC"},
        {"deadline": -1},
        {"misfire_limit": 0},
        {"misfire_limit": 2**31 - 1},
        {"misfire_policy": None},
        {"execution_type": 9},
        {"process_instance_priority": 99},
    ):
        with pytest.raises(psycopg2.IntegrityError):
            add_schedule(cluster, definition, "* * * * * ?", **refused)
    accepted: tuple[dict[str, object], ...] = (
        {"start_time": "-infinity"},
        {"start_time": "4000-01-01 BC"},
        {"end_time": "infinity"},
        {"end_time": "99999-01-01"},
        {"deadline": 2**31 - 1},
    )
    schedules = [add_schedule(cluster, definition, "* * * * * ?", **each) for each in accepted]
    until(lambda: all(ledger_of(cluster, each) for each in schedules))
    # Nobody but a master is to write these; it goes on from them all the same.
    for schedule, moment in zip(schedules[2:4], ("-infinity", "2000-01-01 BC"), strict=True):
        cluster.rows(
            "UPDATE t_ds_schedules SET next_fire_time = %s WHERE id = %s", moment, schedule
        )
    counts = {each: len(ledger_of(cluster, each)) for each in schedules}
    until(lambda: all(len(ledger_of(cluster, each)) > counts[each] for each in schedules))
    cluster.rows(
        "UPDATE t_ds_schedules SET release_state = 0 WHERE process_definition_id = %s", definition
    )
    for each in schedules:
        fires = [moment for moment, _, _ in ledger_of(cluster, each)]
        assert len(set(fires)) == len(fires)
        # Never for a time before it was there.
        assert min(fires) >= before
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])
    assert cluster.pids() == pids


GONE = "its process instance is gone"


@pytest.mark.parametrize(
    ("change", "ends", "told"),
    [
        (
            "UPDATE t_ds_process_definition SET release_state = 0 WHERE id = {definition}",
            "success failure pending",
            "is OFFLINE; set it online first",
        ),
        (
            "DELETE FROM t_ds_process_definition WHERE id = {definition}",
            "success failure pending",
            "there is no process definition with the id {definition}",
        ),
        (
            (
                "UPDATE t_ds_process_definition SET process_definition_json = '!'"
                " WHERE id = {definition}"
            ),
            "success failure pending",
            "can't run: not JSON",
        ),
        (
            "UPDATE t_ds_complement SET timezone_id = 'Mars/Olympus' WHERE id = {complement}",
            "success failure pending",
            "'Mars/Olympus' is no zone",
        ),
        (
            "UPDATE t_ds_complement SET start_params = '!' WHERE id = {complement}",
            "success failure pending",
            "StartParams is not JSON",
        ),
        (
            (
                "UPDATE t_ds_complement_date SET schedule_time = 'infinity'"
                " WHERE complement_id = {complement} AND position = 2"
            ),
            "success failure pending",
            "schedule_time is infinity",
        ),
        (
            (
                "UPDATE t_ds_complement_date SET process_instance_id = 2147483647"
                " WHERE complement_id = {complement} AND position = 1"
            ),
            "failure pending pending",
            GONE,
        ),
        (
            (
                "UPDATE t_ds_complement_date SET state = 'running'"
                " WHERE complement_id = {complement} AND state = 'pending'"
            ),
            "success failure failure",
            GONE,
        ),
        (
            (
                "UPDATE t_ds_complement_date SET state = 'submitted', command_id = 2147483647"
                " WHERE complement_id = {complement} AND state = 'pending'"
            ),
            "success success success",
            "",
        ),
        (
            (
                "DELETE FROM t_ds_complement_date"
                " WHERE complement_id = {complement} AND state = 'pending'"
            ),
            "success",
            "",
        ),
        (
            "UPDATE t_ds_complement_date SET position = 1 WHERE complement_id = {complement}",
            "success success success",
            "",
        ),
    ],
)
def test_what_is_changed_by_hand_amid_a_complement_is_told_by_its_dates(
    cluster: PrivateCluster, change: str, ends: str, told: str
) -> None:
    pids = cluster.pids()
    gate = cluster.home / f"amid.{next(_NUMBERS)}"
    script = f"until [ -e '{gate}' ]; do sleep 0.05; done"
    definition = cluster.define(gate.name, [a_task("a", script)])
    run = cluster.begin(definition, a_range("2013-01-01", "2013-01-03"), command_type=5)
    ((complement,),) = cluster.rows(
        "SELECT id FROM t_ds_complement WHERE process_definition_id = %s", definition
    )
    cluster.await_task(run, 1)
    cluster.rows(change.format(definition=definition, complement=complement))
    gate.touch()
    until(
        lambda: (
            cluster.rows(
                "SELECT end_time IS NOT NULL FROM t_ds_complement WHERE id = %s", complement
            )
            == [(True,)]
        )
    )
    ((states, reasons),) = cluster.rows(
        "SELECT string_agg(state, ' ' ORDER BY id), coalesce(string_agg(reason, ''), '')"
        " FROM t_ds_complement_date WHERE complement_id = %s",
        complement,
    )
    assert states == ends
    assert told.format(definition=definition) in reasons
    ((state,),) = cluster.rows("SELECT state FROM t_ds_complement WHERE id = %s", complement)
    assert state == (6 if "failure" in ends else SUCCESS)
    # No date has run twice, and everybody goes on.
    ((twice,),) = cluster.rows(
        "SELECT count(*) - count(DISTINCT schedule_time) FROM t_ds_process_instance"
        " WHERE process_definition_id = %s",
        definition,
    )
    assert twice == 0
    assert cluster.await_end(run) == SUCCESS
    assert cluster.pids() == pids


@pytest.mark.parametrize(
    ("change", "cure", "ends"),
    [("state = 3", "resume", SUCCESS), ("state = 0, after_id = id", "cancel", 5)],
)
def test_a_complement_said_to_be_paused_or_to_wait_for_itself_is_resumed_or_cancelled(
    cluster: PrivateCluster, change: str, cure: str, ends: int
) -> None:
    gate = cluster.home / f"said.{cure}"
    script = f"until [ -e '{gate}' ]; do sleep 0.05; done"
    definition = cluster.define(gate.name, [a_task("a", script)])
    run = cluster.begin(definition, a_range("2013-01-01", "2013-01-02"), command_type=5)
    cluster.await_task(run, 1)
    ((complement,),) = cluster.rows(
        f"UPDATE t_ds_complement SET {change} WHERE process_definition_id = %s RETURNING id",
        definition,
    )
    if cure == "resume":
        gate.touch()
    done = cluster.orcaflow("complement", cure, str(complement))
    assert done.returncode == 0, done.stderr
    until(lambda: complement_of(cluster, definition)[0] == ends)
    assert cluster.await_end(run) == ends
