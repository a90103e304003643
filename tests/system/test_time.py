"""Schedules and complements on real daemons that are killed amid them.

What has happened is read from the lines that the tasks themselves wrote, and from the tables.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import psycopg2
import pytest

from operations.daemons import Kind
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until
from tests.system.frame import refusal

pytestmark = pytest.mark.alone

SESSION_SECONDS: Final = 4
ZONE: Final = "America/New_York"
SUCCESS: Final = 7
FIRES: Final = 30
SCHEDULES: Final = 500
_NUMBERS: Final = count(1)
"""Each definition needs a name of its own."""
STARTED_WITHIN: Final = timedelta(seconds=15)
"""A promise of the schedule loop, whatever dies meanwhile."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """Two masters and two workers, whose sessions end soon after them."""
    home = tmp_path_factory.mktemp("time")
    with private_cluster(
        home,
        ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS),
        TIME_ZONE=ZONE,
    ) as made:
        made.start(masters=2, workers=2, slots=6)
        yield made


@pytest.fixture(autouse=True)
def whole(cluster: PrivateCluster) -> Iterator[None]:
    """Each test leaves every master running and no command behind."""
    yield
    for port in cluster.ports(Kind.MASTER):
        if cluster.pid(Kind.MASTER, port) is None:
            cluster.start_again(Kind.MASTER, port)
    assert cluster.rows("SELECT id FROM t_ds_command") == []


def a_range(first: str, last: str, parallelism: int = 1, **others: str) -> str:
    """What a row of type COMPLEMENT_DATA says of its dates, which are midnights."""
    return json.dumps(
        {
            "complementStartDate": f"{first} 00:00:00",
            "complementEndDate": f"{last} 00:00:00",
            "expectedParallelismNumber": parallelism,
            **others,
        }
    )


def _written(lines: Path) -> list[str]:
    return lines.read_text().splitlines() if lines.exists() else []


def _kill_masters(
    cluster: PrivateCluster, choose: random.Random, *, until_so: Callable[[], bool], within: float
) -> int:
    """One of the masters every second or two, now and then for as long as its session lasts."""
    deadline = time.monotonic() + within
    kills = 0
    while not until_so():
        assert time.monotonic() < deadline, "it has not come to its end"
        # The pace of the kills, and how long a master stays away.
        time.sleep(choose.uniform(0.5, 2))
        port = choose.choice(cluster.ports(Kind.MASTER))
        cluster.kill(Kind.MASTER, port)
        kills += 1
        if kills % 3 == 0:
            time.sleep(SESSION_SECONDS + 1)  # Others take its runs over meanwhile.
        cluster.start_again(Kind.MASTER, port)
    return kills


def _schedule(cluster: PrivateCluster, definition: int, crontab: str, **columns: object) -> int:
    columns = {
        "process_definition_id": definition,
        "crontab": crontab,
        "release_state": 1,
        **columns,
    }
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    ((schedule_id,),) = cluster.rows(
        f"INSERT INTO t_ds_schedules ({names}) VALUES ({marks}) RETURNING id", *columns.values()
    )
    return int(schedule_id)


def _ledger(cluster: PrivateCluster, schedule_id: int) -> list[tuple[datetime, str, int]]:
    return cluster.rows(
        "SELECT fire_time, outcome, process_instance_id FROM t_ds_schedule_fire"
        " WHERE schedule_id = %s ORDER BY fire_time",
        schedule_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What was under way together while masters were killed, and is over now."""

    kills: int
    often: int
    schedule: int
    fires: list[datetime]
    year: int


@pytest.fixture(scope="module")
def storm(cluster: PrivateCluster) -> Storm:
    """A minute of a schedule every two seconds, and a complement of a year, as masters are killed.

    Each run writes lines of its own into the files `often` and `year`.
    """
    often = cluster.define("often", [a_task("a", f"echo '${{day}}' >> '{cluster.home}/often'")])
    cluster.rows(
        "UPDATE t_ds_process_definition SET global_params = %s WHERE id = %s",
        '[{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "${system.datetime}"}]',
        often,
    )
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    first += timedelta(seconds=first.second % 2)
    fires = [first + timedelta(seconds=2 * number) for number in range(FIRES)]
    schedule = _schedule(cluster, often, "0/2 * * * * ?", start_time=fires[0], end_time=fires[-1])
    day, lines = "$[yyyy-MM-dd]", f"'{cluster.home}/year'"
    script = f"echo 'begin {day}' >> {lines}; sleep 0.05; echo 'end {day}' >> {lines}"
    year = cluster.define("year", [a_task("a", script)])
    cluster.put(year, a_range("2013-01-01", "2013-12-31", parallelism=8), command_type=5)

    def are_over() -> bool:
        ended = cluster.rows(
            "SELECT count(*) FROM t_ds_process_instance"
            " WHERE process_definition_id = %s AND end_time IS NOT NULL",
            often,
        )
        return (
            len(_ledger(cluster, schedule)) >= FIRES
            and ended[0][0] >= FIRES
            and _complement_of(cluster, year)[:1] in [(state,) for state in (3, 5, 6, 7)]
        )

    kills = _kill_masters(cluster, random.Random(20), until_so=are_over, within=240)
    return Storm(kills=kills, often=often, schedule=schedule, fires=fires, year=year)


def _complement_of(cluster: PrivateCluster, definition: int) -> tuple[Any, ...]:
    """State, reason and whether it has an end, of the only complement of a definition, if any."""
    found = cluster.rows(
        "SELECT state, state_reason, end_time IS NOT NULL FROM t_ds_complement"
        " WHERE process_definition_id = %s",
        definition,
    )
    return found[0] if found else ()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_i6_every_fire_of_a_minute_happens_once_though_masters_are_killed(
    cluster: PrivateCluster, storm: Storm
) -> None:
    assert storm.kills >= 5
    ledger = _ledger(cluster, storm.schedule)
    assert [fire_time for fire_time, _, _ in ledger] == storm.fires
    assert {outcome for _, outcome, _ in ledger} == {"fired"}
    runs = cluster.rows(
        "SELECT schedule_time, id, state, history_cmd FROM t_ds_process_instance"
        " WHERE process_definition_id = %s ORDER BY schedule_time",
        storm.often,
    )
    assert [moment for moment, *_ in runs] == storm.fires
    assert [run for _, run, _, _ in runs] == [run for _, _, run in ledger]
    assert {state for _, _, state, _ in runs} == {SUCCESS}
    assert {history.partition(",")[0] for *_, history in runs} == {"SCHEDULER"}
    # One line for each, with the moment as the clock of the cluster's zone shows it.
    local = [f"{moment.astimezone(ZoneInfo(ZONE)):%Y%m%d%H%M%S}" for moment in storm.fires]
    assert sorted(_written(cluster.home / "often")) == local
    assert cluster.rows(
        "SELECT next_fire_time, counted_from, fault FROM t_ds_schedules WHERE id = %s",
        storm.schedule,
    ) == [(None, None, None)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_t32_a_year_of_dates_runs_each_once_and_eight_at_a_time_though_masters_are_killed(
    cluster: PrivateCluster, storm: Storm
) -> None:
    assert _complement_of(cluster, storm.year) == (SUCCESS, None, True)
    runs = cluster.rows(
        "SELECT schedule_time, state, history_cmd FROM t_ds_process_instance"
        " WHERE process_definition_id = %s ORDER BY schedule_time",
        storm.year,
    )
    year = [date(2013, 1, 1) + timedelta(days=number) for number in range(365)]
    assert [moment.astimezone(ZoneInfo(ZONE)).date() for moment, *_ in runs] == year
    assert {state for _, state, _ in runs} == {SUCCESS}
    assert {history.partition(",")[0] for *_, history in runs} == {"COMPLEMENT_DATA"}
    written = _written(cluster.home / "year")
    begun = Counter(line for line in written if line.startswith("begin"))
    assert len(begun) == 365
    assert set(begun.values()) == {1}
    assert 4 <= _most_at_once(written) <= 8


def _most_at_once(lines: list[str]) -> int:
    """From the lines `begin …` and `end …` that the tasks wrote, in the order of writing."""
    live: set[str] = set()
    most = 0
    for line in lines:
        word, _, day = line.partition(" ")
        if word == "begin":
            live.add(day)
            most = max(most, len(live))
        else:
            live.remove(day)
    assert live == set()
    return most


@pytest.mark.slow
def test_t28_500_schedules_of_one_second_start_500_runs_though_a_master_dies_in_it(
    cluster: PrivateCluster,
) -> None:
    lines = cluster.home / "crowd"
    definition = cluster.define("crowd", [a_task("a", f"echo $$ >> '{lines}'")])
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    cluster.rows(
        "INSERT INTO t_ds_schedules (process_definition_id, crontab, release_state, start_time,"
        " end_time) SELECT %s, '* * * * * ?', 1, %s, %s FROM generate_series(1, %s)",
        definition,
        due,
        due + timedelta(milliseconds=500),
        SCHEDULES,
    )

    def number(statement: str) -> int:
        ((found,),) = cluster.rows(statement, definition)
        return int(found)

    fires = "SELECT count(*) FROM t_ds_schedule_fire WHERE process_definition_id = %s"
    runs = "SELECT count(*) FROM t_ds_process_instance WHERE process_definition_id = %s"
    until(lambda: number(fires) > 0)
    victim = cluster.ports(Kind.MASTER)[0]
    cluster.kill(Kind.MASTER, victim)
    until(lambda: number(runs + " AND end_time IS NOT NULL") >= SCHEDULES, within=120)
    cluster.start_again(Kind.MASTER, victim)
    ledger = cluster.rows(
        "SELECT fire_time, outcome, count(*), count(DISTINCT schedule_id),"
        " count(DISTINCT process_instance_id) FROM t_ds_schedule_fire"
        " WHERE process_definition_id = %s GROUP BY fire_time, outcome",
        definition,
    )
    assert ledger == [(due, "fired", SCHEDULES, SCHEDULES, SCHEDULES)]
    assert number(runs) == SCHEDULES
    assert number(runs + f" AND state <> {SUCCESS}") == 0
    assert len(_written(lines)) == SCHEDULES
    ((last_start,),) = cluster.rows(
        "SELECT max(start_time) FROM t_ds_process_instance WHERE process_definition_id = %s",
        definition,
    )
    assert last_start - due <= STARTED_WITHIN


def test_t32_7140_a_cancelled_complement_is_over_within_ten_seconds_and_no_further_date_begins(
    cluster: PrivateCluster,
) -> None:
    lines = cluster.home / "cancelled"
    definition = cluster.define("long", [a_task("a", f"echo begin >> '{lines}'; sleep 600")])
    cluster.put(
        definition,
        a_range("2013-01-01", "2013-12-31", parallelism=4),
        command_type=5,
    )
    until(lambda: len(_written(lines)) == 4)
    ((complement,),) = cluster.rows(
        "SELECT id FROM t_ds_complement WHERE process_definition_id = %s", definition
    )
    cancelled = cluster.orcaflow("complement", "cancel", str(complement))
    assert cancelled.returncode == 0, cancelled.stderr

    def is_over() -> bool:
        return cluster.rows("SELECT state FROM t_ds_complement WHERE id = %s", complement) == [(5,)]

    until(is_over, within=10)
    dates = cluster.rows(
        "SELECT state, count(*) FROM t_ds_complement_date WHERE complement_id = %s"
        " GROUP BY state ORDER BY state",
        complement,
    )
    assert dates == [("cancelled", 361), ("failure", 4)]
    assert cluster.rows(
        "SELECT state, count(*) FROM t_ds_process_instance WHERE process_definition_id = %s"
        " GROUP BY state",
        definition,
    ) == [(5, 4)]
    assert len(_written(lines)) == 4


def test_a_paused_complement_goes_on_where_it_was(cluster: PrivateCluster) -> None:
    gate, lines = cluster.home / "paused.gate", cluster.home / "paused"
    script = f"echo '$[MM-dd]' >> '{lines}'; until [ -e '{gate}' ]; do sleep 0.05; done"
    definition = cluster.define("gated", [a_task("a", script)])
    cluster.put(
        definition,
        a_range("2013-01-01", "2013-01-05"),
        command_type=5,
    )
    until(lambda: len(_written(lines)) == 1)
    ((complement,),) = cluster.rows(
        "SELECT id FROM t_ds_complement WHERE process_definition_id = %s", definition
    )

    def state() -> int:
        ((found,),) = cluster.rows("SELECT state FROM t_ds_complement WHERE id = %s", complement)
        return int(found)

    assert cluster.orcaflow("complement", "pause", str(complement)).returncode == 0
    gate.touch()
    until(lambda: state() == 3)
    assert _written(lines) == ["01-01"]
    assert cluster.orcaflow("complement", "resume", str(complement)).returncode == 0
    until(lambda: state() == SUCCESS)
    assert _written(lines) == [f"01-0{day}" for day in range(1, 6)]


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
    assert _written(lines) == ["01", "02", "03", "04"]
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
    assert sorted(_written(lines)) == ["below 20130101", "below 20130102"]


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
    bad = _schedule(cluster, definition, **columns)
    until(
        lambda: (
            told in str(cluster.rows("SELECT fault FROM t_ds_schedules WHERE id = %s", bad)[0][0])
        )
    )
    good = _schedule(cluster, definition, "* * * * * ?")
    until(lambda: len(_ledger(cluster, good)) >= 1)
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id IN (%s, %s)", bad, good)
    assert _ledger(cluster, bad) == []
    # Mended, it fires.
    cluster.rows(
        "UPDATE t_ds_schedules SET crontab = '* * * * * ?', timezone_id = NULL,"
        " start_params = NULL, release_state = 1 WHERE id = %s",
        bad,
    )
    until(lambda: len(_ledger(cluster, bad)) >= 1)
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id = %s", bad)
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])


def test_t97_a_schedule_or_definition_that_goes_offline_fires_no_more(
    cluster: PrivateCluster,
) -> None:
    definition = cluster.define("off", [a_task("a", "true")])
    schedule = _schedule(cluster, definition, "* * * * * ?")
    until(lambda: len(_ledger(cluster, schedule)) >= 1)
    cluster.rows("UPDATE t_ds_process_definition SET release_state = 0 WHERE id = %s", definition)
    until(lambda: "skipped" in {outcome for _, outcome, _ in _ledger(cluster, schedule)})
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id = %s", schedule)
    ((now,),) = cluster.rows("SELECT now()")
    other = _schedule(
        cluster, cluster.define("on", [a_task("a", "true")]), "* * * * * ?", start_time=now
    )
    until(lambda: len(_ledger(cluster, other)) >= 2)
    cluster.rows("UPDATE t_ds_schedules SET release_state = 0 WHERE id = %s", other)
    assert [moment for moment, _, _ in _ledger(cluster, schedule) if moment > now] == []
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])


def test_rows_of_schedules_with_absurd_values_are_refused_or_fire(
    cluster: PrivateCluster,
) -> None:
    pids = cluster.pids()
    definition = cluster.define("absurd", [a_task("a", "true")])
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
            _schedule(cluster, definition, "* * * * * ?", **refused)
    accepted: tuple[dict[str, object], ...] = (
        {"start_time": "-infinity"},
        {"start_time": "4000-01-01 BC"},
        {"end_time": "infinity"},
        {"end_time": "99999-01-01"},
        {"deadline": 2**31 - 1},
    )
    schedules = [_schedule(cluster, definition, "* * * * * ?", **each) for each in accepted]
    until(lambda: all(_ledger(cluster, each) for each in schedules))
    # Nobody but a master is to write these; it goes on from them all the same.
    for schedule, moment in zip(schedules[2:4], ("-infinity", "2000-01-01 BC"), strict=True):
        cluster.rows(
            "UPDATE t_ds_schedules SET next_fire_time = %s WHERE id = %s", moment, schedule
        )
    counts = {each: len(_ledger(cluster, each)) for each in schedules}
    until(lambda: all(len(_ledger(cluster, each)) > counts[each] for each in schedules))
    cluster.rows(
        "UPDATE t_ds_schedules SET release_state = 0 WHERE process_definition_id = %s", definition
    )
    for each in schedules:
        fires = [moment for moment, _, _ in _ledger(cluster, each)]
        assert len(set(fires)) == len(fires)
        # Never for a time before it was there.
        assert max(fires) - min(fires) < timedelta(minutes=2)
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
    until(lambda: _complement_of(cluster, definition)[0] == ends)
    assert cluster.await_end(run) == ends
