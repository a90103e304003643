"""Time, in named scenarios on the simulated cluster: outages, a clock that is set, a whole year."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.model.complement_states import ComplementState
from common.model.states import ProcessState
from tests.builders import a_definition_json
from tests.memory.store import ProcessRecord
from tests.simulation import intents
from tests.simulation.checkers import broken
from tests.simulation.definitions import Drawn
from tests.simulation.faults import Options
from tests.simulation.people import People
from tests.simulation.virtual_clock import START
from tests.simulation.world import World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
DAY = START.replace(hour=0, minute=0, second=0)
HOURLY, FIVE_MINUTELY, DAILY = "0 0 * * * ?", "0 0/5 * * * ?", "0 30 4 * * ?"


class Cluster(World):
    """Two masters and two workers, one definition, and no people acting."""

    def __init__(self, shape: str = "a") -> None:
        self._shape = shape
        super().__init__(7, options=Options(starts=(0, 0)))

    def _plan(self) -> None:
        definition_id = self.database.insert(
            self.database.definitions,
            name="d1",
            release_state=1,
            process_definition_json=a_definition_json(self._shape),
        )
        self.definitions = (Drawn(id=definition_id, name="d1", nodes=("a",)),)
        self.people = People(
            self.random,
            self.options,
            self.database,
            self.clock,
            definitions=self.definitions,
            log=self.log.append,
            last=timedelta(),
        )
        self.start()

    def schedule(self, crontab: str, **columns: Any) -> int:
        """A schedule that is ONLINE from now on."""
        return self.database.insert(
            self.database.schedules,
            **{
                "process_definition_id": self.definitions[0].id,
                "crontab": crontab,
                "release_state": 1,
                "counted_from": self.clock.now(),
                **columns,
            },
        )

    def complement(self, **param: object) -> None:
        """Request a complement by a row typed by hand."""
        self.database.insert(
            self.database.commands,
            command_type=5,
            process_definition_id=self.definitions[0].id,
            command_param=json.dumps(param),
            start_time=self.clock.now(),
            update_time=self.clock.now(),
        )

    def live_until(self, wall: datetime) -> None:
        self.live_for(wall - self.clock.now())

    def outcomes(self, schedule_id: int) -> dict[datetime, str]:
        """The ledger of a schedule, in which each fire stands once."""
        rows = [fire for fire in self.database.fires if fire.schedule_id == schedule_id]
        found = {row.fire_time: row.outcome for row in rows}
        assert len(found) == len(rows)
        return found

    def runs(self, schedule_id: int) -> list[datetime]:
        """The schedule times of all runs, oldest first, one for each run."""
        by_command = {
            fire.process_instance_id
            for fire in self.database.fires
            if fire.schedule_id == schedule_id and fire.process_instance_id
        }
        times = [run.schedule_time for run in self.database.processes if run.id in by_command]
        return sorted(time for time in times if time is not None)

    def is_right(self) -> bool:
        """Bring everything to its end; true if no check finds a violation."""
        for row in self.database.schedules:
            self.database.update(self.database.schedules, row.id, release_state=0)
        self.heal()
        # By the wall clock, which the ledger uses.
        self.healed_at = max(self.healed_at, self.clock.now() - START)
        while not self._at_rest():
            self._turn()
        assert broken(self) + self.violations == []
        return True


def at(*times: str) -> list[datetime]:
    """Moments of the first day."""
    return [datetime.fromisoformat(f"{DAY:%Y-%m-%d}T{time}+00:00") for time in times]


def every(period: timedelta, first: str, last: str) -> list[datetime]:
    """All from `first` to `last`, both included."""
    moment, end = at(first, last)
    found = []
    while moment <= end:
        found.append(moment)
        moment += period
    return found


# Without a master


@pytest.mark.parametrize(
    ("policy", "limit", "late_hours", "late_minutes"),
    [
        ("skip", 10, [], []),
        ("fire_once", 10, ["06:00"], ["06:05"]),
        ("fire_all", 1, ["06:00"], ["06:05"]),
        ("fire_all", 2, ["05:00", "06:00"], ["06:00", "06:05"]),
        ("fire_all", 4, ["04:00", "05:00", "06:00"], ["05:50", "05:55", "06:00", "06:05"]),
    ],
)
def test_t91_after_three_hours_without_masters_there_are_the_runs_that_the_policy_wants(
    policy: str, limit: int, late_hours: list[str], late_minutes: list[str]
) -> None:
    cluster = Cluster()
    columns = {"misfire_policy": policy, "misfire_limit": limit}
    hourly, five_minutely = (cluster.schedule(line, **columns) for line in (HOURLY, FIVE_MINUTELY))
    daily = cluster.schedule(DAILY, **columns)
    # Half a minute beyond the minute within which a fire is not late.
    cluster.live_until(*at("03:06:30"))
    cluster.power_cut(3 * HOUR)
    cluster.live_until(*at("06:11:30"))
    assert cluster.runs(hourly) == at(*late_hours)
    assert cluster.runs(five_minutely) == at("03:05", *late_minutes, "06:10")
    assert cluster.runs(daily) == ([] if policy == "skip" else at("04:30"))
    # Nothing is lost silently: the ledger has every fire.
    assert sorted(cluster.outcomes(hourly)) == every(HOUR, "04:00", "06:00")
    assert sorted(cluster.outcomes(five_minutely)) == every(5 * MINUTE, "03:05", "06:10")
    assert sorted(cluster.outcomes(daily)) == at("04:30")
    left_out = {"skip": "skipped", "fire_once": "coalesced", "fire_all": "missed"}[policy]
    happened = cluster.runs(five_minutely)
    for fire, outcome in cluster.outcomes(five_minutely).items():
        assert outcome == ("fired" if fire in happened else left_out)
    assert cluster.is_right()


def test_fires_past_their_deadline_do_not_happen_whatever_the_policy_is() -> None:
    cluster = Cluster()
    schedule_id = cluster.schedule(HOURLY, misfire_policy="fire_all", deadline=2 * 3600)
    cluster.live_until(*at("03:06"))
    cluster.power_cut(3 * HOUR)
    cluster.live_until(*at("06:08"))
    missed, *kept = every(HOUR, "04:00", "06:00")
    assert cluster.runs(schedule_id) == kept
    assert cluster.outcomes(schedule_id)[missed] == "missed"
    assert cluster.is_right()


def test_a_schedule_that_was_offline_meanwhile_begins_anew_when_it_comes_online() -> None:
    cluster = Cluster()
    schedule_id = cluster.schedule(FIVE_MINUTELY, misfire_policy="fire_all")
    cluster.live_until(*at("03:06"))
    cluster.database.update(cluster.database.schedules, schedule_id, release_state=0)
    cluster.live_until(*at("03:16"))
    cluster.database.update(cluster.database.schedules, schedule_id, release_state=1)
    cluster.live_until(*at("03:21"))
    assert sorted(cluster.outcomes(schedule_id)) == at("03:05", "03:20")
    assert cluster.runs(schedule_id) == at("03:05", "03:20")
    assert cluster.is_right()


def test_a_master_that_dies_as_a_fire_is_due_loses_and_doubles_none() -> None:
    cluster = Cluster()
    schedule_id = cluster.schedule("0/10 * * * * ?")
    for second in range(10, 100, 10):
        cluster.live_until(START + timedelta(seconds=second - 5.05))
        cluster.kill(f"m{1 + second // 10 % 2}:1", restarts_after=timedelta(seconds=7))
    cluster.live_until(*at("03:06:04"))
    expected = every(timedelta(seconds=10), "03:04:10", "03:06:00")
    assert sorted(cluster.outcomes(schedule_id)) == expected
    assert cluster.runs(schedule_id) == expected
    assert cluster.is_right()


# A clock that is set


def test_a_clock_that_jumps_an_hour_ahead_loses_no_fire() -> None:
    cluster = Cluster()
    kept = cluster.schedule(FIVE_MINUTELY, misfire_policy="fire_all", misfire_limit=100)
    once = cluster.schedule(FIVE_MINUTELY)
    cluster.live_until(*at("03:07"))
    cluster.clock.wrong_by = HOUR
    cluster.live_until(*at("04:11"))
    assert cluster.runs(kept) == every(5 * MINUTE, "03:05", "04:10")
    assert cluster.runs(once) == at("03:05", "04:05", "04:10")
    assert sorted(cluster.outcomes(once)) == every(5 * MINUTE, "03:05", "04:10")
    assert cluster.is_right()


def test_a_clock_that_jumps_an_hour_back_fires_nothing_twice_and_loses_nothing() -> None:
    cluster = Cluster()
    schedule_id = cluster.schedule(FIVE_MINUTELY)
    cluster.live_until(*at("03:12"))
    cluster.clock.wrong_by = -HOUR
    # The hour comes again. The cluster sleeps through most of it, to keep the test short.
    cluster.live_until(*at("02:17"))
    cluster.skip(47 * MINUTE)
    cluster.live_until(*at("03:21"))
    assert cluster.runs(schedule_id) == at("03:05", "03:10", "03:15", "03:20")
    assert cluster.is_right()


def test_fires_that_are_counted_anew_after_a_jump_back_do_not_happen_twice() -> None:
    cluster = Cluster()
    schedule_id = cluster.schedule(FIVE_MINUTELY)
    cluster.live_until(*at("03:12"))
    cluster.clock.wrong_by = -10 * MINUTE
    # It comes online at a time before its earlier fires.
    for state in (0, 1):
        cluster.database.update(cluster.database.schedules, schedule_id, release_state=state)
    cluster.live_until(*at("03:16"))
    assert cluster.runs(schedule_id) == at("03:05", "03:10", "03:15")
    assert cluster.is_right()


# A year


def most_at_once(cluster: Cluster) -> int:
    """The most runs with a process at the same time, by the records of the workers' computers."""
    spans: dict[int, tuple[datetime, datetime]] = {}
    for computer in cluster.computers.values():
        for process in computer.started:
            run = process.process_instance_id
            first, last = spans.get(run, (process.started, process.ends))
            spans[run] = min(first, process.started), max(last, process.ends)
    ends = [(last, -1) for _, last in spans.values()]
    changes = sorted([*((first, 1) for first, _ in spans.values()), *ends])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def days(first: datetime, count: int) -> list[datetime]:
    return [first + timedelta(days=number) for number in range(count)]


def roots(cluster: Cluster) -> list[ProcessRecord]:
    return [run for run in cluster.database.processes if not run.is_sub_process]


def test_t33_a_year_of_dates_has_a_run_for_each_while_masters_are_killed_again_and_again() -> None:
    cluster = Cluster()
    cluster.complement(
        complementStartDate="2025-01-01 00:00:00",
        complementEndDate="2025-12-31 00:00:00",
        expectedParallelismNumber=8,
    )
    killed = 0
    while cluster.clock.elapsed < 30 * MINUTE:
        cluster.live_for(timedelta(seconds=cluster.random.uniform(2, 9)))
        if any(row.is_ended for row in cluster.database.complements):
            break
        cluster.kill(
            cluster.random.choice(("m1:1", "m2:1")),
            restarts_after=timedelta(seconds=cluster.random.choice((0.5, 3, 8))),
        )
        killed += 1
    (complement,) = cluster.database.complements
    assert complement.state == ComplementState.SUCCESS
    assert killed >= 10
    runs = roots(cluster)
    expected = days(datetime(2025, 1, 1, tzinfo=UTC), 365)
    assert Counter(run.schedule_time for run in runs) == Counter(expected)
    assert all(run.state == ProcessState.SUCCESS for run in runs)
    # In order: a date begins only after all before it have begun.
    assert [run.schedule_time for run in sorted(runs, key=lambda run: run.id)] == expected
    assert 6 <= most_at_once(cluster) <= 8
    assert cluster.is_right()


def test_no_date_begins_once_a_complement_is_cancelled_though_a_master_dies_just_then() -> None:
    cluster = Cluster()
    cluster.complement(
        complementStartDate="2025-01-01 00:00:00",
        complementEndDate="2025-12-31 00:00:00",
        expectedParallelismNumber=4,
    )
    cluster.live_for(20 * timedelta(seconds=1))
    (complement,) = cluster.database.complements
    asked = cluster.clock.now()
    intents.change_complement(
        cluster.database, complement, ComplementState.READY_STOP, cluster.clock.now()
    )
    begun = len(roots(cluster))
    cluster.kill("m1:1", restarts_after=timedelta(seconds=20))
    cluster.live_for(timedelta(seconds=45))
    (complement,) = cluster.database.complements
    assert complement.state == ComplementState.STOP
    assert complement.end_time is not None
    assert complement.end_time - asked < timedelta(seconds=30)
    assert len(roots(cluster)) == begun
    assert not any(run.is_live for run in roots(cluster))
    assert {date.state for date in cluster.database.dates(complement.id)} <= {
        "success",
        "failure",
        "cancelled",
    }
    assert cluster.is_right()
