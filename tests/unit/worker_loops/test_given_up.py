"""Claims that come between two incarnations of a worker: each is started once, or handed back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import NodeKind
from common.model.states import TaskState
from common.registry.protocol import Standing
from common.store.worker.ports import AttemptFolders
from tests.unit.worker_loops.place import ADDRESS, Place


def lose_session(place: Place) -> None:
    place.zookeeper.expire(place.registry)
    place.pass_time(1)


def rejoin(place: Place) -> None:
    place.worker.heartbeat.run_once()
    place.zookeeper.deliver()


def after_the_claim(place: Place, work: Callable[[], None]) -> None:
    """Do something once, after the next claim was committed and before it is answered."""

    def hook(name: str, moment: Literal["before", "after"]) -> None:
        if (name, moment) == ("claim", "after"):
            place.database.commit_hook = lambda *_: None
            work()

    place.database.commit_hook = hook


def host_of(place: Place, task: int) -> str | None:
    row = place.database.tasks.get(task)
    assert row is not None
    return row.host


def test_nothing_is_claimed_between_the_registration_and_the_take_over(place: Place) -> None:
    place.join()
    place.claim()
    former = place.node
    lose_session(place)
    task = place.row()
    standings: list[Standing] = []

    def between(name: str) -> None:
        # The heartbeat loop reads the rows of the new node before the worker becomes that node.
        membership = place.registry.membership
        if name != "running" or membership.standing() is not Standing.TRUSTED or standings:
            return
        standings.extend((membership.standing(), membership.standing_of(former)))
        place.hint(task)
        place.worker.claims.run_once()

    place.database.read_hook = between
    rejoin(place)
    assert standings == [Standing.TRUSTED, Standing.LOST]
    assert place.state(task) is TaskState.SUBMITTED
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.store.running(place.node) == {task: False}


@pytest.mark.parametrize("hinted", [False, True])
def test_a_claim_that_outlived_its_session_is_handed_back_and_made_again(
    place: Place, *, hinted: bool
) -> None:
    place.join()
    place.claim()
    if hinted:
        task = place.row()
        place.hint(task)
    else:
        task = place.submit()
    after_the_claim(place, lambda: lose_session(place))
    place.worker.claims.run_once()
    assert (place.state(task), place.attempts.started) == (TaskState.RUNNING, [])
    assert task in place.worker.claims.claiming()
    # The next pass queries the tables, even without a session.
    place.worker.claims.run_once()
    assert (place.state(task), host_of(place, task)) == (TaskState.SUBMITTED, None)
    assert place.worker.claims.claiming() == frozenset()
    rejoin(place)
    place.pass_time(1)
    assert place.claim() == [task]
    assert place.store.running(place.node) == {task: False}


def test_a_claim_behind_a_take_over_is_handed_back(place: Place) -> None:
    place.join()
    place.claim()
    former = place.node
    task = place.row()
    place.hint(task)
    # The whole return comes between the commit of the claim and its answer.
    begin = place.store.claim

    def late(*arguments: object, **options: object) -> object:
        lose_session(place)
        rejoin(place)
        return begin(*arguments, **options)  # type: ignore[arg-type]

    place.store.claim = late  # type: ignore[assignment, method-assign]
    place.worker.claims.run_once()
    place.store.claim = begin  # type: ignore[method-assign]
    assert place.store.running(former) == {task: False}
    place.pass_time(1)
    assert place.claim() == [task]
    assert place.store.running(place.node) == {task: False}
    assert place.store.running(former) == {}


def test_a_claim_that_was_taken_over_meanwhile_is_handed_back_after_the_take_over(
    place: Place,
) -> None:
    place.join()
    task = place.submit()

    def return_halfway() -> None:
        lose_session(place)
        place.no_answer("take_over", "after")
        place.worker.heartbeat.run_once()

    after_the_claim(place, return_halfway)
    place.worker.claims.run_once()
    # The row names an incarnation that this worker has not become yet.
    place.worker.claims.run_once()
    assert place.state(task) is TaskState.RUNNING
    assert place.worker.claims.claiming() == {task}
    rejoin(place)
    assert place.claim() == [task]
    assert place.store.running(place.node) == {task: False}


def test_a_lost_answer_of_a_former_incarnation_leaves_no_row_behind(place: Place) -> None:
    place.join()
    task = place.submit()
    place.no_answer("claim", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    lose_session(place)
    rejoin(place)
    assert place.store.running(place.node) == {task: False}
    assert place.claim() == [task]
    assert place.store.running(place.node) == {task: False}
    # The kill loop does not report it as unstarted.
    place.worker.kills.run_once()
    place.pass_time(6)
    place.worker.kills.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.RUNNING


def test_an_entry_that_was_taken_out_for_a_claim_that_never_came_is_put_back(place: Place) -> None:
    place.join()
    task = place.submit()
    queue = place.registry.task_queue
    other = place.zookeeper.registry()
    taken = other.task_queue.claim(
        [place.entry(task)], other.membership.join(NodeKind.WORKER, "w:2", "")
    )
    # After another worker took an entry, this one claims in the registry first.
    assert place.claim() == []
    other.task_queue.release(taken)
    queue.offer(taken)
    place.zookeeper.deliver()
    place.no_answer("claim", "before")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert queue.entries() == ()
    lose_session(place)
    rejoin(place)
    assert place.claim() == [task]
    assert queue.claimed() == frozenset()


def test_a_worker_that_alone_misses_the_tables_keeps_no_entry_from_others(place: Place) -> None:
    place.join()
    task = place.submit()
    queue = place.registry.task_queue
    other = place.zookeeper.registry()
    node = other.membership.join(NodeKind.WORKER, "w:2", "")
    claimed = other.task_queue.claim([place.entry(task)], node)
    # A competitor: from now on this worker makes claims in the registry.
    assert place.claim() == []
    other.task_queue.release(claimed)
    queue.offer(claimed)
    place.zookeeper.deliver()
    for _ in range(4):
        place.no_answer("claim", "before")
        with pytest.raises(ServiceUnreachableError):
            place.worker.claims.run_once()
        place.pass_time(2)
        # Keep the other session alive.
        other.pulse()
    assert queue.claimed() == frozenset()
    assert other.task_queue.claim(claimed, node) == claimed
    assert place.store.claim(
        node, [task], folders=AttemptFolders(work="/t", logs="/t/l"), now=place.clock.now()
    )
    # This worker queries the row when the tables are back.
    place.database.commit_hook = lambda *_: None
    assert place.claim() == []
    assert place.worker.claims.claiming() == frozenset()
    assert host_of(place, task) == "w:2"


def test_a_given_up_claim_that_is_to_be_killed_is_reported_and_not_offered(place: Place) -> None:
    place.join()
    task = place.submit()

    def lose_session_and_want_a_kill() -> None:
        lose_session(place)
        place.database.update(place.database.tasks, task, wanted_state=int(TaskState.KILL))

    after_the_claim(place, lose_session_and_want_a_kill)
    place.worker.claims.run_once()
    rejoin(place)
    place.claim()
    for _ in range(3):
        place.worker.kills.run_once()
        place.pass_time(6)
    place.worker.reporter.run_once()
    assert (place.state(task), place.attempts.started) == (TaskState.KILL, [])


def test_while_the_tables_are_away_given_up_claims_are_kept(place: Place) -> None:
    place.join()
    task = place.submit()
    after_the_claim(place, lambda: lose_session(place))
    place.worker.claims.run_once()
    place.no_answer("hand_back", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.worker.claims.claiming() == {task}
    rejoin(place)
    assert place.claim() == [task]
    assert host_of(place, task) == ADDRESS
