"""The queues of the registry, of tasks and of kills, in memory and on ZooKeeper."""

from __future__ import annotations

import pytest

from common.model.cluster import KillEntry, Node, NodeKind, QueueEntry
from common.registry.protocol import RegistryUnavailableError, Standing, TaskQueue
from tests.conformance.registries import (
    HERE,
    THERE,
    Server,
    Watcher,
    a_worker,
    can_hold,
    entry,
    text,
)


# The task queue.
def test_entries_come_in_the_order_in_which_they_should_be_claimed(server: Server) -> None:
    queue = server.daemon().task_queue
    late = entry(100, priority=3)
    ten, nine = entry(10), entry(9)
    next_instance = entry(1, priority=0, instance=2)
    queue.offer([next_instance, late, ten, nine])
    assert server.daemon().task_queue.entries() == (nine, ten, late, next_instance)


def test_an_entry_keeps_its_group_and_hosts(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(7, group=3)])
    assert queue.entries() == (entry(7, group=3),)


def test_offering_again_changes_nothing(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1)])
    queue.offer([entry(1), entry(2)])
    assert queue.entries() == (entry(1), entry(2))


def soon(server: Server, queue: TaskQueue, *entries: QueueEntry) -> bool:
    """Offer without waiting; return whether all are said to be in."""
    answers: list[bool] = []
    queue.offer_soon(entries, done=answers.append)
    server.until(lambda: len(answers) == 1)
    return answers[0]


def test_new_entries_offered_without_waiting_are_in_once_that_is_said(server: Server) -> None:
    queue = server.daemon().task_queue
    # The first of all finds no folder, if nobody has made it: then it has to be offered.
    if not soon(server, queue, entry(1), entry(2)):
        queue.offer([entry(1), entry(2)])
    assert soon(server, queue, entry(3), entry(4))
    assert queue.entries() == tuple(entry(each) for each in (1, 2, 3, 4))


def test_an_offer_without_waiting_notifies_workers(server: Server) -> None:
    queue, watcher = server.daemon().task_queue, Watcher()
    queue.offer([entry(1)])
    server.daemon().task_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    assert soon(server, queue, entry(2))
    server.until(watcher.is_notified_since(before))


def test_entries_that_a_failed_offer_leaves_out_can_be_offered_again(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1)])
    if not soon(server, queue, entry(1), entry(2)):
        queue.offer([entry(1), entry(2)])
    assert queue.entries() == (entry(1), entry(2))


def test_an_offer_of_a_lost_session_is_said_to_have_failed(server: Server) -> None:
    daemon, _ = a_worker(server)
    server.expire(daemon)
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    answers: list[bool] = []
    daemon.task_queue.offer_soon([entry(1)], done=answers.append)
    assert answers == [False]


def test_names_that_no_master_wrote_are_left_out(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1)])
    server.put("tasks_queue", "a_b_c_d")
    server.put("tasks_queue", "readme")
    assert queue.entries() == (entry(1),)


def test_an_entry_of_four_parts_is_claimed_under_its_own_name(server: Server) -> None:
    daemon, node = a_worker(server)
    server.put("tasks_queue", "2_1_2_7")
    (found,) = daemon.task_queue.entries()
    assert daemon.task_queue.claim([found], node) == (found,)
    assert daemon.task_queue.entries() == ()
    assert daemon.task_queue.claimed() == {7}
    daemon.task_queue.release([found])
    server.until(lambda: daemon.task_queue.claimed() == frozenset())


def test_what_was_withdrawn_is_gone(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1), entry(2)])
    queue.withdraw([entry(1), entry(3)])
    assert queue.entries() == (entry(2),)


def test_what_is_taken_out_without_waiting_is_gone_soon(server: Server) -> None:
    queue = server.daemon().task_queue
    queue.offer([entry(1), entry(2)])
    queue.take_out_soon([entry(1), entry(3)])
    server.until(lambda: queue.entries() == (entry(2),))
    daemon, _ = a_worker(server)
    server.expire(daemon)
    # Nobody waits for it, so nobody is told.
    daemon.task_queue.take_out_soon([entry(2)])


def test_of_two_claims_for_one_entry_one_wins(server: Server) -> None:
    (one, node), (other, other_node) = a_worker(server), a_worker(server, THERE)
    one.task_queue.offer([entry(1)])
    assert one.task_queue.claim([entry(1)], node) == (entry(1),)
    assert other.task_queue.claim([entry(1)], other_node) == ()
    assert other.task_queue.entries() == ()
    assert other.task_queue.claimed() == {1}


def test_a_claim_answers_what_was_won_in_the_order_asked(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.task_queue.offer([entry(1), entry(2), entry(3)])
    asked = [entry(3), entry(4), entry(1)]
    assert daemon.task_queue.claim(asked, node) == (entry(3), entry(1))
    assert daemon.task_queue.entries() == (entry(2),)


def test_what_is_still_claimed_is_not_claimed_again(server: Server) -> None:
    (one, node), (other, other_node) = a_worker(server), a_worker(server, THERE)
    one.task_queue.offer([entry(1)])
    one.task_queue.claim([entry(1)], node)
    one.task_queue.offer([entry(1)])
    assert other.task_queue.claim([entry(1)], other_node) == ()
    one.task_queue.release([entry(1)])
    server.until(lambda: other.task_queue.claim([entry(1)], other_node) == (entry(1),))


def test_a_released_claim_is_gone(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.task_queue.offer([entry(1), entry(2)])
    daemon.task_queue.claim([entry(1), entry(2)], node)
    daemon.task_queue.release([entry(1)])
    assert daemon.task_queue.claimed() == {2}


def test_a_release_with_a_claim_that_is_gone_drops_the_others(server: Server) -> None:
    daemon, node = a_worker(server)
    entries = (entry(1), entry(2), entry(3))
    daemon.task_queue.offer(entries)
    daemon.task_queue.claim(entries, node)
    daemon.task_queue.release([entry(2)])
    daemon.task_queue.release(entries)
    server.until(lambda: daemon.task_queue.claimed() == frozenset())


def test_claims_of_one_pass_are_won_one_by_one_where_others_claim_too(server: Server) -> None:
    (one, node), (other, other_node) = a_worker(server), a_worker(server, THERE)
    entries = (entry(1), entry(2), entry(3), entry(4))
    one.task_queue.offer(entries)
    assert other.task_queue.claim([entry(2)], other_node) == (entry(2),)
    assert one.task_queue.claim(entries, node) == (entry(1), entry(3), entry(4))
    assert other.task_queue.claim(entries, other_node) == ()
    assert one.task_queue.claimed() == {1, 2, 3, 4}
    # Having lost some, a worker claims as before.
    more = (entry(5), entry(6))
    one.task_queue.offer(more)
    assert one.task_queue.claim(more, node) == more


def taken_soon(queue: TaskQueue, node: Node, *entries: QueueEntry) -> tuple[QueueEntry, ...]:
    """Take entries without waiting, and then wait for the answer."""
    answer = queue.take_soon(entries, node)
    assert answer is not None, "others are believed to compete"
    return answer()


def test_entries_that_are_taken_without_waiting_are_gone_and_not_claimed(server: Server) -> None:
    daemon, node = a_worker(server)
    queue = daemon.task_queue
    queue.offer([entry(1), entry(2)])
    assert taken_soon(queue, node, entry(2), entry(1)) == (entry(2), entry(1))
    assert queue.entries() == ()
    assert queue.claimed() == frozenset()


def test_claims_are_waited_for_where_others_claim_too(server: Server) -> None:
    (mine, my_node), (others, their_node) = a_worker(server, HERE), a_worker(server, THERE)
    mine.task_queue.offer([entry(1), entry(2)])
    assert others.task_queue.claim([entry(1)], their_node) == (entry(1),)
    assert taken_soon(mine.task_queue, my_node, entry(1), entry(2)) == (entry(2),)
    assert mine.task_queue.entries() == ()
    mine.task_queue.offer([entry(3)])
    assert mine.task_queue.take_soon([entry(3)], my_node) is None
    assert mine.task_queue.claim([entry(3)], my_node) == (entry(3),)


def test_a_lost_session_takes_nothing(server: Server) -> None:
    daemon, node = a_worker(server)
    daemon.task_queue.offer([entry(1)])
    server.expire(daemon)
    server.until(lambda: daemon.membership.standing() is Standing.LOST)
    with pytest.raises(RegistryUnavailableError):
        taken_soon(daemon.task_queue, node, entry(1))
    assert server.daemon().task_queue.entries() == (entry(1),)


def test_a_claim_goes_with_the_session(server: Server) -> None:
    daemon, node = a_worker(server)
    onlooker = server.daemon().task_queue
    onlooker.offer([entry(1)])
    daemon.task_queue.claim([entry(1)], node)
    server.expire(daemon)
    server.until(lambda: onlooker.claimed() == frozenset())


def test_a_former_incarnation_claims_nothing(server: Server) -> None:
    daemon, former = a_worker(server)
    daemon.membership.join(NodeKind.WORKER, HERE, text())
    daemon.task_queue.offer([entry(1)])
    with pytest.raises(RegistryUnavailableError):
        daemon.task_queue.claim([entry(1)], former)
    assert daemon.task_queue.entries() == (entry(1),)
    assert daemon.task_queue.claimed() == frozenset()


def test_a_look_after_each_notification_shows_what_that_was_about(server: Server) -> None:
    watcher = Watcher()
    daemon, node = a_worker(server)
    daemon.task_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    queue = server.daemon().task_queue
    for task in range(1, 6):
        before = watcher.notified
        queue.offer([entry(task)])
        server.until(watcher.is_notified_since(before))
        assert daemon.task_queue.entries() == (entry(task),)
        assert taken_soon(daemon.task_queue, node, entry(task)) == (entry(task),)


def test_a_look_after_two_notifications_shows_what_both_were_about(server: Server) -> None:
    watcher = Watcher()
    watching = server.daemon().task_queue
    watching.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    queue = server.daemon().task_queue
    assert watching.entries() == ()
    for task in (1, 2, 3):
        before = watcher.notified
        queue.offer([entry(task)])
        server.until(watcher.is_notified_since(before))
    assert watching.entries() == (entry(1), entry(2), entry(3))


def test_what_was_claimed_since_a_notification_is_not_looked_at_again(server: Server) -> None:
    watcher = Watcher()
    daemon, node = a_worker(server)
    daemon.task_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    assert daemon.task_queue.entries() == ()
    before = watcher.notified
    server.daemon().task_queue.offer([entry(1), entry(2)])
    server.until(watcher.is_notified_since(before))
    assert taken_soon(daemon.task_queue, node, entry(1)) == (entry(1),)
    assert daemon.task_queue.entries() == (entry(2),)


def test_watchers_hear_of_offers(server: Server) -> None:
    watcher = Watcher()
    server.daemon().task_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    queue = server.daemon().task_queue
    for task in range(3):
        before = watcher.notified
        queue.offer([entry(task)])
        server.until(watcher.is_notified_since(before))


def test_the_queues_work_again_after_the_tree_was_wiped(server: Server) -> None:
    queue, kills = server.daemon().task_queue, server.daemon().kill_queue
    watcher = Watcher()
    queue.watch(watcher.notify)
    queue.offer([entry(1)])
    server.wipe()
    assert queue.entries() == ()
    assert kills.asked(HERE) == ()
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    queue.offer([entry(2)])
    kills.ask([KillEntry(address=HERE, task_instance_id=2)])
    assert queue.entries() == (entry(2),)
    server.until(watcher.is_notified_since(before))
    daemon, node = a_worker(server)
    assert daemon.task_queue.claim([entry(2)], node) == (entry(2),)
    assert can_hold(daemon.mutex)


def test_many_entries_are_offered_claimed_and_withdrawn_together(server: Server) -> None:
    daemon, node = a_worker(server)
    entries = tuple(entry(task) for task in range(1, 1201))
    daemon.task_queue.offer(entries)
    assert daemon.task_queue.entries() == entries
    assert daemon.task_queue.claim(entries[:300], node) == entries[:300]
    daemon.task_queue.withdraw(entries)
    assert daemon.task_queue.entries() == ()
    daemon.task_queue.release(entries[:300])
    server.until(lambda: daemon.task_queue.claimed() == frozenset())


# The kill queue.
def test_t63_kill_requests_reach_the_worker_at_exactly_that_address(server: Server) -> None:
    queue = server.daemon().kill_queue
    mine = KillEntry(address="spark-node-1:12", task_instance_id=45)
    others = KillEntry(address="spark-node-1:1", task_instance_id=46)
    queue.ask([mine, others])
    queue.ask([mine])
    assert server.daemon().kill_queue.asked("spark-node-1:12") == (mine,)
    assert server.daemon().kill_queue.elsewhere("spark-node-1:12") == (others,)


def test_a_kill_request_that_was_met_is_gone(server: Server) -> None:
    queue = server.daemon().kill_queue
    request = KillEntry(address=HERE, task_instance_id=45)
    queue.ask([request])
    queue.remove([request, KillEntry(address=HERE, task_instance_id=46)])
    assert queue.asked(HERE) == ()


def test_watchers_hear_of_kill_requests(server: Server) -> None:
    watcher = Watcher()
    server.daemon().kill_queue.watch(watcher.notify)
    server.until(watcher.is_notified_since(0))
    before = watcher.notified
    server.daemon().kill_queue.ask([KillEntry(address=HERE, task_instance_id=45)])
    server.until(watcher.is_notified_since(before))
