"""Notifications when rows change."""

from __future__ import annotations

from common.model.commands import CommandType
from common.model.decisions import (
    FinishProcess,
)
from common.model.states import (
    ProcessState,
    TaskState,
)
from common.store.listen import Channel, hint_channel, read_hint, read_task_report
from common.store.master.ports import Step
from common.store.worker.ports import AttemptFolders
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    NOON,
    WORKER,
    Tables,
    a_begin,
    a_command,
    a_run,
    a_stop,
    a_submit,
    always,
    an_end,
    claim,
    end,
    finish,
    kill,
    save,
    submit,
    take,
)


def ended_attempts(notifications: list[tuple[str, str]]) -> list[tuple[object, ...]]:
    """The notifications of ended attempts; asserts that there are no others."""
    assert {channel for channel, _ in notifications} == {Channel.TASK}
    reports = [read_task_report(payload) for _, payload in notifications]
    return [
        (
            one.process_instance_id,
            one.task_instance_id,
            one.name,
            one.attempt,
            one.state,
            one.end_time,
        )
        for one in reports
    ]


def test_each_change_that_somebody_waits_for_is_called_out(db: Tables) -> None:
    owned = a_run(db)
    run_id = owned.process_instance_id
    assert db.notifications() == [(Channel.COMMAND, "")]
    a, b = submit(db, owned, "a", "b")
    claim(db, [a])
    assert db.notifications() == []
    end(db, an_end(a))
    assert ended_attempts(db.notifications()) == [(run_id, a, "a", 1, TaskState.SUCCESS, LATER)]
    save(db, owned, finish("a"))
    assert db.notifications() == []
    save(db, owned, kill("b"))
    assert [attempt[:5] for attempt in ended_attempts(db.notifications())] == [
        (run_id, b, "b", 1, TaskState.KILL)
    ]
    a_command(db, command_type=9)
    take(db, always(a_stop(owned)))
    assert db.notifications() == [(Channel.COMMAND, ""), (Channel.WANTED, str(run_id))]
    save(db, owned, FinishProcess(state=ProcessState.STOP))
    assert db.notifications() == [(Channel.PROCESS, str(run_id))]


def hints(db: Tables) -> list[tuple[int, ...]]:
    """The attempts of each hint since the last look; asserts that no other worker had one."""
    told = [
        (channel, payload)
        for channel, payload in db.notifications()
        if channel not in tuple(Channel)
    ]
    assert {channel for channel, _ in told} <= {hint_channel(WORKER.address)}
    return [tuple(each.task_instance_id for each in read_hint(payload)) for _, payload in told]


def test_a_worker_is_told_of_the_attempts_of_a_plain_save(db: Tables) -> None:
    owned = a_run(db)
    db.hinted = WORKER.address
    saved = save(db, owned, a_submit("a"), a_submit("b"))
    assert hints(db) == [tuple(offer.task_instance_id for offer in saved.offers)]
    claim(db, [saved.offers[0].task_instance_id])
    end(db, an_end(saved.offers[0].task_instance_id))
    # Nothing new: nothing to tell.
    save(db, owned, finish("a"))
    assert hints(db) == []
    db.hinted = None
    save(db, owned, a_submit("c"))
    assert hints(db) == []


def test_no_worker_is_told_of_attempts_that_are_not_for_all_or_that_yield(db: Tables) -> None:
    bound, complement = (
        a_run(db, worker_group_id=4),
        a_run(db, command_type=CommandType.COMPLEMENT_DATA),
    )
    owned = a_run(db)
    db.hinted = WORKER.address
    save(db, bound, a_submit("a"))
    save(db, complement, a_submit("a"))
    save(db, owned, a_submit("a", worker_group_id=3))
    assert hints(db) == []
    saved = save(db, owned, a_submit("b", worker_group_id=3), a_submit("c"))
    assert hints(db) == [(saved.offers[1].task_instance_id,)]


def test_a_worker_is_told_of_the_first_attempts_of_a_run_as_of_any(db: Tables) -> None:
    db.hinted = WORKER.address
    a_command(db)
    taken = db.commands.take(
        node=MASTER,
        limit=1,
        room=1,
        spare=1,
        live_masters=lambda: frozenset([MASTER]),
        planner=always(a_begin()),
        now=NOON,
        first_step=lambda run: Step(ownership=run.ownership, decisions=(a_submit("a"),), at=NOON),
    )
    (offer,) = taken.saved.offers
    assert hints(db) == [(offer.task_instance_id,)]


def test_a_hint_gives_nobody_what_is_bound_to_a_group(db: Tables) -> None:
    owned = a_run(db)
    bound, free = submit(db, owned, "a", worker_group_id=3) + submit(db, owned, "b")
    folders = AttemptFolders(work="/t", logs="/t/logs")
    claimed = db.tasks.claim(WORKER, [bound, free], folders=folders, now=LATER, hinted=True)
    assert [task.id for task in claimed] == [free]
    assert claim(db, [bound]) == [bound]
