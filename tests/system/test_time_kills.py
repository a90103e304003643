"""Schedules and complements on real daemons that are killed while these are under way.

The outcome is read from the lines that the tasks themselves wrote, and from the tables.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from operations.daemons import Kind
from tests.system.cluster import PrivateCluster, a_task, in_time, private_cluster, until
from tests.system.time_rows import (
    SUCCESS,
    ZONE,
    a_range,
    complement_of,
    ledger_of,
    lines_of,
)

pytestmark = pytest.mark.kills_daemons

SESSION_SECONDS: Final = 4
STEADY_SESSION_SECONDS: Final = 60
"""The session of a worker, none of which is killed, however busy the machine is."""
FIRES: Final = 30
SCHEDULES: Final = 500
AT_ONCE: Final = 4
"""At least so many dates of a complement run at the same time."""
STORM_SECONDS: Final = 600
"""Far more than it takes."""
STARTED_WITHIN: Final = timedelta(seconds=15)
"""A promise of the schedule loop, whatever dies meanwhile."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """Two masters, whose sessions end soon after them, and two workers, which stay."""
    home = tmp_path_factory.mktemp("time")
    with private_cluster(
        home,
        ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS),
        TIME_ZONE=ZONE,
    ) as made:
        with pytest.MonkeyPatch.context() as patch:
            name = "ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS"
            patch.setenv(name, str(STEADY_SESSION_SECONDS))
            made.start(masters=0, workers=2, slots=6)
        made.start(masters=2, workers=2, slots=6)
        yield made


@pytest.fixture(autouse=True)
def whole(cluster: PrivateCluster) -> Iterator[None]:
    """Each test leaves every master running and no command behind."""
    yield
    for port in cluster.ports(Kind.MASTER):
        if cluster.pid(Kind.MASTER, port) is None:
            cluster.start_again(Kind.MASTER, port)
    # One may be about a run of a master that has just died.
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """The schedule and the complement that ran while masters were killed; both have ended."""

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
    # By the database's clock, which also says since when a schedule is there.
    ((schedule, first),) = cluster.rows(
        "INSERT INTO t_ds_schedules (process_definition_id, crontab, release_state, start_time,"
        " end_time) SELECT %s, '0/2 * * * * ?', 1, first, first + %s FROM"
        " to_timestamp(ceil(extract(epoch FROM now()) / 2) * 2 + 2) AS first RETURNING id, start_time",
        often,
        timedelta(seconds=2 * (FIRES - 1)),
    )
    fires = [first + timedelta(seconds=2 * number) for number in range(FIRES)]
    day, lines = "$[yyyy-MM-dd]", f"'{cluster.home}/year'"
    # The first of them end when so many are there that ran at once.
    script = (
        f"echo 'begin {day}' >> {lines}; until [ $(grep -c begin {lines}) -ge {AT_ONCE} ];"
        f" do sleep 0.05; done; sleep 0.05; echo 'end {day}' >> {lines}"
    )
    year = cluster.define("year", [a_task("a", script)])
    cluster.put(year, a_range("2013-01-01", "2013-12-31", parallelism=8), command_type=5)

    def are_over() -> bool:
        ended = cluster.rows(
            "SELECT count(*) FROM t_ds_process_instance"
            " WHERE process_definition_id = %s AND end_time IS NOT NULL",
            often,
        )
        return (
            len(ledger_of(cluster, schedule)) >= FIRES
            and ended[0][0] >= FIRES
            and complement_of(cluster, year)[:1] in [(state,) for state in (3, 5, 6, 7)]
        )

    kills = _kill_masters(cluster, random.Random(20), until_so=are_over, within=STORM_SECONDS)
    return Storm(kills=kills, often=often, schedule=schedule, fires=fires, year=year)


@pytest.mark.slow
@pytest.mark.timeout(STORM_SECONDS + 60)
def test_i6_every_fire_of_a_minute_happens_once_though_masters_are_killed(
    cluster: PrivateCluster, storm: Storm
) -> None:
    assert storm.kills >= 5
    ledger = ledger_of(cluster, storm.schedule)
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
    assert sorted(lines_of(cluster.home / "often")) == local
    assert cluster.rows(
        "SELECT next_fire_time, counted_from, fault FROM t_ds_schedules WHERE id = %s",
        storm.schedule,
    ) == [(None, None, None)]


@pytest.mark.slow
@pytest.mark.timeout(STORM_SECONDS + 60)
def test_t32_a_year_of_dates_runs_each_once_and_eight_at_a_time_though_masters_are_killed(
    cluster: PrivateCluster, storm: Storm
) -> None:
    assert complement_of(cluster, storm.year) == (SUCCESS, None, True)
    runs = cluster.rows(
        "SELECT schedule_time, state, history_cmd FROM t_ds_process_instance"
        " WHERE process_definition_id = %s ORDER BY schedule_time",
        storm.year,
    )
    year = [date(2013, 1, 1) + timedelta(days=number) for number in range(365)]
    assert [moment.astimezone(ZoneInfo(ZONE)).date() for moment, *_ in runs] == year
    assert {state for _, state, _ in runs} == {SUCCESS}
    assert {history.partition(",")[0] for *_, history in runs} == {"COMPLEMENT_DATA"}
    written = lines_of(cluster.home / "year")
    begun = Counter(line for line in written if line.startswith("begin"))
    assert len(begun) == 365
    assert set(begun.values()) == {1}
    assert AT_ONCE <= _most_at_once(written) <= 8


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
    # By the database's clock, which also says since when a schedule is there.
    (due,) = {
        due
        for (due,) in cluster.rows(
            "INSERT INTO t_ds_schedules (process_definition_id, crontab, release_state, start_time,"
            " end_time) SELECT %s, '* * * * * ?', 1, due, due + interval '0.5 s' FROM"
            " date_trunc('second', now() + interval '4 s') AS due, generate_series(1, %s)"
            " RETURNING start_time",
            definition,
            SCHEDULES,
        )
    }

    def number(statement: str) -> int:
        ((found,),) = cluster.rows(statement, definition)
        return int(found)

    fires = "SELECT count(*) FROM t_ds_schedule_fire WHERE process_definition_id = %s"
    runs = "SELECT count(*) FROM t_ds_process_instance WHERE process_definition_id = %s"
    until(lambda: number(fires) > 0)
    victim = cluster.ports(Kind.MASTER)[0]
    cluster.kill(Kind.MASTER, victim)
    until(lambda: number(runs + " AND end_time IS NOT NULL") >= SCHEDULES)
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
    assert len(lines_of(lines)) == SCHEDULES
    ((last_start,),) = cluster.rows(
        "SELECT max(start_time) FROM t_ds_process_instance WHERE process_definition_id = %s",
        definition,
    )
    assert last_start - due <= in_time(STARTED_WITHIN)


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
    until(lambda: len(lines_of(lines)) == 4)
    ((complement,),) = cluster.rows(
        "SELECT id FROM t_ds_complement WHERE process_definition_id = %s", definition
    )
    cancelled = cluster.orcaflow("complement", "cancel", str(complement))
    assert cancelled.returncode == 0, cancelled.stderr

    def is_over() -> bool:
        return cluster.rows("SELECT state FROM t_ds_complement WHERE id = %s", complement) == [(5,)]

    until(is_over, within=in_time(timedelta(seconds=10)).total_seconds())
    dates = cluster.rows(
        "SELECT state, count(*) FROM t_ds_complement_date WHERE complement_id = %s"
        " GROUP BY state ORDER BY state",
        complement,
    )
    assert dates == [("cancelled", 365)]
    assert cluster.rows(
        "SELECT state, count(*) FROM t_ds_process_instance WHERE process_definition_id = %s"
        " GROUP BY state",
        definition,
    ) == [(5, 4)]
    assert len(lines_of(lines)) == 4
