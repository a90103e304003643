"""The registry in memory and on ZooKeeper: the simulator relies on their equivalence."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from common.model.cluster import NodeKind
from common.registry.protocol import AddressInUseError, RegistryUnavailableError, Standing
from tests.conformance.registries import (
    AT_ONCE,
    HERE,
    THERE,
    Server,
    Watcher,
    a_worker,
    can_hold,
    entry,
    text,
)


# Membership.
def test_a_daemon_that_joined_is_seen_with_its_heartbeat(server: Server) -> None:
    daemon, node = a_worker(server)
    onlooker = server.daemon().membership
    assert onlooker.nodes(NodeKind.WORKER) == {node}
    assert onlooker.heartbeats(NodeKind.WORKER) == {node: text()}
    assert onlooker.nodes(NodeKind.MASTER) == frozenset()
    assert daemon.membership.standing() is Standing.TRUSTED


def test_a_beat_replaces_the_heartbeat_and_keeps_the_incarnation(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.membership.beat(text(cpu=0.5))
    assert daemon.membership.heartbeats(NodeKind.WORKER) == {node: text(cpu=0.5)}


def test_nobody_is_trusted_before_having_joined(server: Server) -> None:
    membership = server.daemon().membership
    assert membership.standing() is Standing.LOST
    with pytest.raises(RegistryUnavailableError):
        membership.beat(text())


def test_a_daemon_that_left_is_gone_at_once(server: Server) -> None:
    daemon, _ = a_worker(server)
    daemon.membership.leave()
    assert daemon.membership.standing() is Standing.LOST
    assert server.daemon().membership.nodes(NodeKind.WORKER) == frozenset()


def test_addresses_are_compared_whole(server: Server) -> None:
    short, _ = a_worker(server, "127.0.0.1:1")
    _, long_node = a_worker(server, "127.0.0.1:12")
    short.membership.leave()
    assert short.membership.nodes(NodeKind.WORKER) == {long_node}


def test_masters_and_workers_may_have_the_same_address(server: Server) -> None:
    _, worker = a_worker(server)
    daemon = server.daemon()
    master = daemon.membership.join(NodeKind.MASTER, HERE, text())
    assert daemon.membership.nodes(NodeKind.MASTER) == {master}
    assert daemon.membership.nodes(NodeKind.WORKER) == {worker}


def test_a_restarted_daemon_replaces_its_dead_predecessor_at_once(server: Server) -> None:
    daemon = server.daemon()
    nobody = 2**22 + 1
    former = daemon.membership.join(NodeKind.WORKER, HERE, text(pid=nobody))
    successor, node = a_worker(server)
    assert node.incarnation != former.incarnation
    assert successor.membership.nodes(NodeKind.WORKER) == {node}
    server.until(lambda: daemon.membership.standing() is Standing.LOST)


def test_an_address_of_a_live_process_is_refused(server: Server) -> None:
    server.daemon().membership.join(NodeKind.WORKER, HERE, text(pid=os.getppid()))
    with pytest.raises(AddressInUseError, match=str(os.getppid())):
        server.daemon().membership.join(NodeKind.WORKER, HERE, text())


def test_a_standing_belongs_to_one_node(server: Server) -> None:
    daemon, former = a_worker(server)
    assert daemon.membership.standing_of(former) is Standing.TRUSTED
    assert daemon.membership.standing_of(None) is Standing.LOST
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert daemon.membership.standing_of(former) is Standing.LOST
    assert daemon.membership.standing_of(node) is Standing.TRUSTED
    daemon.membership.leave()
    assert daemon.membership.standing_of(node) is Standing.LOST


def test_joining_again_makes_a_new_incarnation(server: Server) -> None:
    daemon, former = a_worker(server)
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert node.incarnation > former.incarnation
    assert daemon.membership.standing() is Standing.TRUSTED
    assert daemon.membership.nodes(NodeKind.WORKER) == {node}


def test_a_daemon_whose_session_was_ended_is_lost_until_it_joins_again(server: Server) -> None:
    daemon, former = a_worker(server)
    server.expire(daemon)
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    with pytest.raises(RegistryUnavailableError):
        daemon.membership.beat(text())
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert node.incarnation > former.incarnation
    assert daemon.membership.standing() is Standing.TRUSTED


def test_a_daemon_whose_znode_was_wiped_is_lost_and_can_join_again(server: Server) -> None:
    daemon, _ = a_worker(server)
    server.wipe()
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    node = daemon.membership.join(NodeKind.WORKER, HERE, text())
    assert daemon.membership.nodes(NodeKind.WORKER) == {node}


def test_a_beat_notices_that_the_znode_was_wiped(server: Server) -> None:
    daemon, _ = a_worker(server)
    server.wipe()
    with suppress(RegistryUnavailableError):  # The session's own check may have come first.
        daemon.membership.beat(text())
    assert daemon.membership.standing() is Standing.LOST


def test_watchers_hear_of_daemons_that_come_and_go(server: Server) -> None:
    watcher = Watcher()
    server.daemon().membership.watch(NodeKind.WORKER, watcher.notify)
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    daemon, _ = a_worker(server)
    server.until(watcher.is_notified_since(before))
    before = watcher.notified
    daemon.close()
    server.until(watcher.is_notified_since(before))


def test_a_watcher_hears_that_its_own_standing_changed(server: Server) -> None:
    daemon, _ = a_worker(server)
    heard: list[Standing] = []
    daemon.membership.watch(NodeKind.MASTER, lambda: heard.append(daemon.membership.standing()))
    server.expire(daemon)
    server.until(lambda: Standing.LOST in heard)


def test_adopting_is_seen_by_everybody_while_it_lasts(server: Server) -> None:
    daemon = server.daemon()
    onlooker = server.daemon().membership
    with daemon.membership.adopting(HERE):
        node = daemon.membership.join(NodeKind.WORKER, HERE, text())
        assert onlooker.is_adopting(HERE)
        assert not onlooker.is_adopting(HERE[:-1])
        assert onlooker.nodes(NodeKind.WORKER) == {node}
    server.until(lambda: not onlooker.is_adopting(HERE))


def test_adopting_ends_with_the_session(server: Server) -> None:
    daemon = server.daemon()
    onlooker = server.daemon().membership
    with daemon.membership.adopting(HERE):
        daemon.close()
        server.until(lambda: not onlooker.is_adopting(HERE))


def test_a_daemon_that_starts_again_adopts_in_place_of_its_predecessor(server: Server) -> None:
    former = server.daemon()
    successor = server.daemon()
    with former.membership.adopting(HERE), successor.membership.adopting(HERE):
        former.close()
        assert successor.membership.is_adopting(HERE)


def test_adopting_after_the_session_was_lost_goes_with_the_next_incarnation(
    server: Server,
) -> None:
    daemon, _ = a_worker(server)
    server.expire(daemon)
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    with daemon.membership.adopting(HERE):
        daemon.membership.join(NodeKind.WORKER, HERE, text())
        assert server.daemon().membership.is_adopting(HERE)


# Heartbeats of topologies' workers.
def test_a_beat_of_a_topology_is_seen_until_it_is_taken_back(server: Server) -> None:
    daemon, other = server.daemon(), server.daemon()
    onlooker = server.daemon().worker_beats
    assert onlooker.beats("words") == {}
    daemon.worker_beats.put_soon("words", HERE, "one")
    other.worker_beats.put_soon("words", THERE, "other")
    other.worker_beats.put_soon("lines", THERE, "lines")
    server.until(lambda: onlooker.beats("words") == {HERE: "one", THERE: "other"})
    daemon.worker_beats.put_soon("words", HERE, "two")
    server.until(lambda: onlooker.beats("words") == {HERE: "two", THERE: "other"})
    daemon.worker_beats.remove_soon("words", HERE)
    server.until(lambda: onlooker.beats("words") == {THERE: "other"})
    other.worker_beats.remove_soon("words", THERE)
    server.until(lambda: onlooker.beats("words") == {})
    daemon.worker_beats.remove_soon("words", HERE)
    assert onlooker.beats("lines") == {THERE: "lines"}
    # The next run of a topology is seen as its first one was.
    daemon.worker_beats.put_soon("words", HERE, "anew")
    server.until(lambda: onlooker.beats("words") == {HERE: "anew"})


def test_a_beat_goes_with_the_session_and_comes_again_after_the_tree_was_wiped(
    server: Server,
) -> None:
    daemon = server.daemon()
    onlooker = server.daemon().worker_beats
    daemon.worker_beats.put_soon("words", HERE, "one")
    server.until(lambda: onlooker.beats("words") == {HERE: "one"})
    server.wipe()
    assert onlooker.beats("words") == {}
    daemon.worker_beats.put_soon("words", HERE, "two")
    server.until(lambda: onlooker.beats("words") == {HERE: "two"})
    daemon.close()
    server.until(lambda: onlooker.beats("words") == {})
    # Nobody waits for one that is not written, and nothing is raised.
    daemon.worker_beats.put_soon("words", HERE, "three")
    daemon.worker_beats.remove_soon("words", HERE)
    assert onlooker.beats("words") == {}


# The mutex.
def test_the_mutex_excludes_and_is_given_up(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with one.hold("masters", timeout=AT_ONCE) as held:
        assert held
        with other.hold("masters", timeout=AT_ONCE) as also_held:
            assert not also_held
    server.until(lambda: can_hold(other))


def test_the_mutex_is_given_up_when_its_holder_fails(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with pytest.raises(ZeroDivisionError), one.hold("masters", timeout=AT_ONCE):
        raise ZeroDivisionError
    server.until(lambda: can_hold(other))


def test_locks_of_other_names_do_not_block(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with (
        one.hold("failover/masters", timeout=AT_ONCE) as held,
        other.hold("failover/workers", timeout=AT_ONCE) as also_held,
    ):
        assert held
        assert also_held


def test_a_lock_goes_with_its_holders_session(server: Server) -> None:
    holder, other = server.daemon(), server.daemon().mutex
    with holder.mutex.hold("masters", timeout=AT_ONCE):
        holder.close()
        server.until(lambda: can_hold(other))


def test_who_gave_up_waiting_does_not_stand_in_the_way(server: Server) -> None:
    one, other = server.daemon().mutex, server.daemon().mutex
    with one.hold("masters", timeout=AT_ONCE), other.hold("masters", timeout=AT_ONCE) as held:
        assert not held
    server.until(lambda: can_hold(one))


def test_a_closed_registry_answers_nothing(server: Server) -> None:
    daemon, _ = a_worker(server)
    daemon.close()
    assert daemon.membership.standing() is Standing.LOST
    with pytest.raises(RegistryUnavailableError):
        daemon.membership.nodes(NodeKind.WORKER)
    with pytest.raises(RegistryUnavailableError):
        daemon.task_queue.offer([entry(1)])
