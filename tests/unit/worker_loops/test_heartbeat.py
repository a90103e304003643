"""The loop that joins the cluster, beats, and begins anew after a lost session."""

from __future__ import annotations

from common.errors import ServiceUnreachableError
from common.model.offers import Offer
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
