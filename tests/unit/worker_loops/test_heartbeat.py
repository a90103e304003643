"""The loop that joins the cluster, beats, and begins anew after a lost session."""

from __future__ import annotations

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
