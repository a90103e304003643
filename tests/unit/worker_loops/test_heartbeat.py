"""The loop that joins the cluster, beats, and begins anew after a lost session."""

from __future__ import annotations

import pytest

from common.errors import ServiceUnreachableError
from common.model.offers import Offer
from common.model.workers import WorkerMode
from tests.unit.worker_loops.place import ADDRESS, Place


def test_the_first_join_adopts_what_a_former_incarnation_left(place: Place) -> None:
    ours = place.row(state=1, host=ADDRESS, worker_incarnation=999)
    lost = place.row(state=8, host=ADDRESS, worker_incarnation=999, end_time=place.clock.now())
    place.attempts.left = (ours, lost)
    node = place.join()
    assert place.attempts.adopted == [ours]
    assert place.store.running(node) == {ours: False}
    assert not place.registry.membership.is_adopting(ADDRESS)


def test_a_worker_beats_while_it_is_trusted(place: Place) -> None:
    place.join()
    place.zookeeper.children("workers")[ADDRESS].text = "stale"
    place.pass_time(5)
    place.pass_time(5)
    place.worker.heartbeat.run_once()
    assert place.zookeeper.children("workers")[ADDRESS].text != "stale"


def test_a_worker_records_its_offer_once_it_has_joined_and_now_and_then_again(place: Place) -> None:
    def written() -> list[tuple[int | None, str | None]]:
        return [(row.incarnation, row.res_info) for row in place.database.worker_servers]

    def beats(seconds: float) -> int:
        place.pass_time(seconds)
        place.worker.heartbeat.run_once()
        return len([name for name in begun if name == "record_offer"])

    begun: list[str] = []
    place.database.begin_hook = begun.append
    node = place.join()
    assert beats(0) == 1
    ((incarnation, text),) = written()
    assert incarnation == node.incarnation
    offer = Offer.read(text)
    assert offer is not None
    assert offer.slots == 4
    # None of the beats that follow has a statement, but one in ten minutes.
    assert [beats(5) for _ in range(20)] == [1] * 20
    for row in place.database.worker_servers:
        with place.database.transaction("delete") as tx:
            tx.delete(place.database.worker_servers, row.id)
    assert [beats(100) for _ in range(5)][-1] == 2
    assert [each for each, _ in written()] == [place.worker.identity.node.incarnation]


def test_tables_that_are_away_delay_an_offer_and_nothing_else(place: Place) -> None:
    def refuse(name: str) -> None:
        if name == "record_offer":
            raise ServiceUnreachableError("PostgreSQL is away")

    place.database.begin_hook = refuse
    node = place.join()
    place.worker.heartbeat.run_once()
    assert place.worker.identity.node == node
    assert list(place.database.worker_servers) == []
    place.database.begin_hook = lambda _name: None
    place.worker.heartbeat.run_once()
    assert [row.incarnation for row in place.database.worker_servers] == [node.incarnation]


def told(place: Place, mode: WorkerMode) -> None:
    """Give the worker a mode, and have it told of the change."""
    place.database.worker_modes["w"] = mode
    place.worker.modes_changed()
    place.worker.heartbeat.run_once()


@pytest.mark.parametrize("mode", [WorkerMode.DISABLED, WorkerMode.LAZY])
def test_a_worker_that_is_out_of_service_claims_nothing_and_goes_on_with_what_runs(
    place: Place, mode: WorkerMode
) -> None:
    place.join()
    first = place.submit()
    assert place.claim() == [first]
    told(place, mode)
    assert place.worker.status().mode is mode
    second, hinted = place.submit(), place.row()
    place.worker.claims.hinted([place.entry(hinted)])
    assert place.claim() == [first]
    assert place.attempts.running() == {first}
    told(place, WorkerMode.ENABLED)
    assert second in place.claim()
    assert place.worker.status().used == 2


def test_a_disabled_worker_claims_nothing_when_it_begins(place: Place) -> None:
    place.database.worker_modes["w:1"] = WorkerMode.DISABLED
    place.join()
    place.submit()
    assert place.claim() == []


def test_a_mode_of_which_nobody_told_is_found_within_a_minute(place: Place) -> None:
    place.join()
    place.database.worker_modes["w:1"] = WorkerMode.DISABLED
    place.pass_time(5)
    place.worker.heartbeat.run_once()
    assert place.worker.heartbeat.mode is WorkerMode.ENABLED
    for _ in range(12):
        place.pass_time(5)
        place.worker.heartbeat.run_once()
    assert place.worker.heartbeat.mode is WorkerMode.DISABLED
