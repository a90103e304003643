"""The loop that deletes old history, a short transaction a pass, on one master."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from common.model.cluster import NodeKind
from common.purging import Purge
from common.retention import Pace, Step
from common.store.retention import History, Marked, Page, RetentionStore
from master.loops.retention_loop import RetentionConfig, RetentionLoop
from tests.unit.master_loops.place import SECOND, Place

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
_PACE = Pace()


class Store(RetentionStore):
    """One old run with two attempts, each transaction of which takes a second."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.calls: list[str] = []
        self.before: datetime | None = None
        self._attempts, self._instances = 2, [(7, 1)]

    def waits(self, *, now: datetime) -> tuple[Any, ...]:
        return ()

    def mark(self, *, before: datetime, **_: Any) -> Marked:
        self._call("mark")
        self.before = before
        return Marked(ids=(1,) if self._instances else (), place=None)

    def delete_attempts(self, ids: Any, *, limit: int) -> int:
        self._call("attempts")
        deleted, self._attempts = self._attempts, 0
        return deleted

    def delete_instances(self, ids: Any, *, limit: int) -> list[tuple[int, int]]:
        self._call("instances")
        deleted, self._instances = self._instances, []
        return deleted

    def delete_history(self, history: History, **_: Any) -> Page:
        self._call(history.name)
        return Page(deleted=0, after=None)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self._place.pass_by(SECOND)


def a_loop(place: Place, store: Store) -> RetentionLoop:
    return RetentionLoop(
        store,
        membership=place.registry.membership,
        identity=place.identity,
        clock=place.clock,
        config=RetentionConfig(kept=30 * DAY, interval=HOUR),
    )


def test_a_purge_is_a_transaction_a_pass_with_longer_rests_between(place: Place) -> None:
    store = Store(place)
    loop = a_loop(place, store)
    began = place.clock.now()
    rests = [loop.run_once() for _ in range(8)]
    assert (
        store.calls
        == [
            *("mark", "attempts", "attempts", "instances", "instances"),
            *("FIRES", "COMPLEMENTS", "ALERTS", "AUDIT"),
        ][: len(store.calls)]
    )
    assert store.before == began - 30 * DAY
    assert rests[:5] == [4 * SECOND] * 5
    while rests[-1] != HOUR:
        rests.append(loop.run_once())
    assert store.calls[-4:] == ["FIRES", "COMPLEMENTS", "ALERTS", "AUDIT"]


def test_one_master_of_several_deletes(place: Place) -> None:
    store = Store(place)
    loop = a_loop(place, store)
    other = place.zookeeper.registry()
    # Nodes are in the order of their addresses.
    other.membership.join(NodeKind.MASTER, "m0:5678", "")
    assert loop.run_once() == 10 * SECOND
    other.membership.leave()
    assert loop.run_once() == 4 * SECOND
    place.identity.become(None)
    assert loop.run_once() == 10 * SECOND
    assert store.calls == ["mark"]


def test_a_slow_choice_of_runs_makes_no_deletion_smaller(place: Place) -> None:
    class SlowToChoose(Store):
        """A store whose deletions take no time."""

        def _call(self, name: str) -> None:
            if name == "mark":
                super()._call(name)

    purge = Purge(SlowToChoose(place), clock=place.clock, before=place.clock.now())
    while purge.step():
        pass
    assert purge.paces[Step.MARK].rows < Pace().rows < purge.paces[Step.ATTEMPTS].rows


def batches(cost: Callable[[int], float], pace: Pace = _PACE, *, count: int = 400) -> list[Pace]:
    """The paces of so many transactions, of which each takes the milliseconds of its rows."""
    paces = [pace]
    while len(paces) < count:
        last = paces[-1]
        paces.append(last.after(timedelta(milliseconds=cost(last.rows))))
    return paces


def test_a_pace_follows_the_time_that_a_transaction_took() -> None:
    milliseconds = [timedelta(milliseconds=each) for each in (10, 30, 50)]
    faster, same, slower = (Pace(rows=50, most=60).after(took) for took in milliseconds)
    assert (faster.rows, same.rows, slower.rows) == (60, 50, 25)
    assert [Pace(rows=rows).after(SECOND).rows for rows in (1, 3, 250)] == [1, 1, 125]


@pytest.mark.parametrize(
    ("cost", "rows"),
    [
        (lambda rows: 5 + 0.3 * rows, range(50, 117)),
        (lambda rows: 1 + 0.02 * rows, range(250, 251)),
        # Of a row with megabytes of parameters.
        (lambda rows: 9 * rows, range(3, 5)),
        # The first row beyond some number takes it all.
        (lambda rows: 1 if rows < 70 else 90, range(35, 71)),
    ],
)
def test_a_pace_settles_where_transactions_are_short(
    cost: Callable[[int], float], rows: range
) -> None:
    paces = batches(cost)
    assert {each.rows for each in paces[50:]} <= set(rows)
    too_long = [each for each in paces if cost(each.rows) > 50]
    assert len(too_long) <= len(paces) / 15


def test_a_pace_does_not_starve_where_a_commit_alone_takes_long() -> None:
    assert {each.rows for each in batches(lambda rows: 60 + 0.1 * rows)[10:]} == {Pace().least}
    # And goes on as before when that is over.
    after = batches(lambda _: 60, count=20)[-1]
    assert batches(lambda rows: 1 + 0.02 * rows, after)[-1].rows == Pace().most


def test_one_long_transaction_of_many_takes_few_rows_off_the_next() -> None:
    paces = batches(lambda rows: 5 + 0.2 * rows)
    paces = batches(lambda rows: 5 + 0.2 * rows, paces[-1].after(SECOND), count=60)
    assert paces[0].rows >= 35
    assert paces[-1].rows >= 70
