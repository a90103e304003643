"""The projects that runs and attempts are charged to, and takes within their shares of slots."""

from __future__ import annotations

from common.model.plans import Drop
from common.model.slot_share import RoomShare, SlotShare
from common.store import tables as t
from common.store.master.ports import FirstStep, Planner
from tests.builders import NOON
from tests.conformance.store_tables import (
    MASTER,
    Tables,
    a_begin,
    a_command,
    a_definition,
    a_run,
    always,
    submit,
)


def test_an_attempt_is_charged_to_the_project_at_the_top_of_its_tree(db: Tables) -> None:
    own, shared = a_definition(db, project_id=2), a_definition(db, project_id=3)
    root = a_run(db, process_definition_id=own)
    child = a_run(db, process_definition_id=shared)
    db.update(t.process_instance, child.process_instance_id, root_id=root.process_instance_id)
    orphan = a_run(db, process_definition_id=999)
    (a,), (b,), (c,) = (submit(db, each, "a") for each in (root, child, orphan))
    unknown = (1_999_999_999, 2**70, -1)
    assert db.tasks.projects([a, b, c, *unknown]) == {a: 2, b: 2, c: 0} | dict.fromkeys(unknown, 0)
    assert db.tasks.projects([]) == {}


def test_an_attempt_of_a_tree_without_its_top_is_charged_to_its_own_project(db: Tables) -> None:
    child = a_run(db, process_definition_id=a_definition(db, project_id=3))
    db.update(t.process_instance, child.process_instance_id, root_id=1_999_999_999)
    (attempt,) = submit(db, child, "a")
    assert db.tasks.projects([attempt]) == {attempt: 3}


def test_a_project_without_definitions_is_not_one_of_several(db: Tables) -> None:
    assert not db.tasks.several_projects()
    a_definition(db)
    a_definition(db)
    assert not db.tasks.several_projects()
    a_definition(db, project_id=2)
    assert db.tasks.several_projects()


def test_groups_of_one_project_are_not_used_by_several(db: Tables) -> None:
    a_definition(db)
    group = db.insert(t.worker_group, name="etl")
    assert not db.tasks.several_projects([group])
    assert not db.tasks.several_projects([])


# Takes with shares

DROP = always(Drop(reason="only the choice matters"))


def a_share(free: int, held: dict[int, int], *, dates: SlotShare | None = None) -> RoomShare:
    live = SlotShare(percent=80, free=free, held=held)
    return RoomShare(live=live, dates=dates or live.copy())


def chosen(
    db: Tables,
    share: RoomShare | None,
    *,
    planner: Planner = DROP,
    first_step: FirstStep | None = None,
    **more: int,
) -> list[int]:
    """Take commands; return their ids."""
    taken = db.commands.take(
        node=MASTER,
        live_masters=lambda: frozenset([MASTER]),
        planner=planner,
        now=NOON,
        first_step=first_step,
        share=share,
        **{"limit": 100, "room": 100, "spare": 100, **more},
    )
    return [one.command_id for one in taken.handled]


def test_runs_are_charged_to_the_project_at_the_top_of_their_tree(db: Tables) -> None:
    own, shared = a_definition(db, project_id=2), a_definition(db, project_id=3)
    root = a_run(db, process_definition_id=own).process_instance_id
    child = a_run(db, process_definition_id=shared).process_instance_id
    db.update(t.process_instance, child, root_id=root)
    assert db.commands.projects([root, child, 2**70]) == {root: 2, child: 2, 2**70: 0}


def test_no_more_runs_of_a_project_are_taken_than_its_share_allows(db: Tables) -> None:
    own, other = a_definition(db), a_definition(db, project_id=2)
    greedy = [a_command(db, process_definition_id=own) for _ in range(5)]
    late = [a_command(db, process_definition_id=other) for _ in range(2)]
    share = a_share(4, {1: 6})
    assert chosen(db, share) == [greedy[0], *late]
    # The share is the caller's: a take does not change it.
    assert share == a_share(4, {1: 6})
    assert chosen(db, a_share(4, {1: 6})) == greedy[1:3]


def test_commands_of_a_full_project_do_not_hold_up_those_behind_them(db: Tables) -> None:
    own, other = a_definition(db), a_definition(db, project_id=2)
    for _ in range(7):
        a_command(db, process_definition_id=own)
    urgent = a_command(db, process_definition_id=other, process_instance_priority=0)
    late = [a_command(db, process_definition_id=other) for _ in range(4)]
    without = a_command(db, process_definition_id=None)
    assert chosen(db, a_share(9, {1: 80}), room=2) == [urgent, without]
    assert chosen(db, a_share(9, {1: 80}), limit=2) == late[:2]
    assert chosen(db, a_share(9, {1: 80})) == late[2:]
    assert chosen(db, a_share(9, {1: 80})) == []


def test_what_needs_no_room_is_taken_for_a_full_project_too(db: Tables) -> None:
    own = a_definition(db)
    a_command(db, process_definition_id=own)
    stop = a_command(db, process_definition_id=own, command_type=9)
    child = a_command(db, process_definition_id=own, parent_task_instance_id=4711)
    failover = a_command(db, process_definition_id=own, command_type=2)
    assert sorted(chosen(db, a_share(9, {1: 80}))) == [stop, child, failover]
    assert len(chosen(db, None)) == 1


def test_a_recovery_is_charged_to_the_project_of_its_run(db: Tables) -> None:
    own, other = a_definition(db), a_definition(db, project_id=2)
    run = a_run(db, process_definition_id=own).process_instance_id
    # Typed by hand: the definition is not the run's.
    typed = a_command(db, process_definition_id=other, command_type=7, process_instance_id=run)
    assert chosen(db, a_share(9, {1: 80})) == []
    assert chosen(db, a_share(9, {1: 8})) == [typed]


def test_dates_of_complements_have_a_share_apart(db: Tables) -> None:
    own, other = a_definition(db), a_definition(db, project_id=2)
    live = a_command(db, process_definition_id=own)
    dates = [
        a_command(db, process_definition_id=own, command_type=5, complement_date_id=number)
        for number in (1, 2, 3)
    ]
    late = a_command(db, process_definition_id=other, command_type=5, complement_date_id=4)
    share = a_share(9, {}, dates=SlotShare(percent=80, free=3, held={1: 5}))
    assert chosen(db, share, spare=3) == [live, dates[0], late]
    assert chosen(db, a_share(9, {}, dates=SlotShare(percent=80, free=2, held={1: 9}))) == []


def test_plain_runs_are_taken_within_the_share(db: Tables) -> None:
    own, other = a_definition(db), a_definition(db, project_id=2)
    greedy = [a_command(db, process_definition_id=own) for _ in range(4)]
    late = a_command(db, process_definition_id=other)
    begin = always(a_begin(process_definition_id=own))
    for share, expected in (
        (a_share(4, {1: 6}), [greedy[0], late]),
        (a_share(9, {1: 80}), []),
    ):
        assert chosen(db, share, planner=begin, first_step=lambda _: None) == expected
