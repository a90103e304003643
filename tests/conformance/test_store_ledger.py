"""The ledger: every command that is gone has one line with its outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.model.commands import CommandOutcome, CommandType
from common.model.plans import Drop, Plan, Reject, Restart, Resume
from common.model.states import ExecutionType, ProcessState
from common.store import tables as t
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    OTHER_MASTER,
    Tables,
    a_begin,
    a_child,
    a_command,
    a_run,
    a_stop,
    about,
    always,
    an_intent,
    by_id,
    end_run,
    has,
    take,
)

TAKEN, DROPPED, REFUSED = CommandOutcome


def lines(db: Tables) -> list[tuple[int, int, int | None, str | None]]:
    """Each line: the command, its outcome, the instance and the reason."""
    return [
        (row["command_id"], row["outcome"], row["process_instance_id"], row["reason"])
        for row in db.rows(t.command_ledger)
    ]


def line_of_the(db: Tables, command_id: int) -> dict[str, Any]:
    (row,) = [row for row in db.rows(t.command_ledger) if row["command_id"] == command_id]
    return row


def test_a_line_tells_what_was_asked_and_by_whom_it_was_handled(db: Tables) -> None:
    command_id = a_command(db, command_type=6, process_definition_id=7, start_time=NOON)
    take(db, always(a_begin()), node=OTHER_MASTER, now=LATER)
    (run,) = db.rows(t.process_instance)
    assert has(
        line_of_the(db, command_id),
        command_type=6,
        process_definition_id=7,
        process_instance_id=run["id"],
        outcome=TAKEN,
        reason=None,
        start_time=NOON,
        handled_at=LATER,
        host=OTHER_MASTER.address,
    )


def test_commands_of_one_batch_have_a_line_each(db: Tables) -> None:
    ids = [a_command(db) for _ in range(3)]
    plans: dict[int, Plan] = dict(
        zip(ids, (a_begin(), Drop(reason="done already"), Reject(reason="no")), strict=True)
    )
    take(db, by_id(plans))
    (run,) = db.rows(t.process_instance)
    assert lines(db) == [
        (ids[0], TAKEN, run["id"], None),
        (ids[1], DROPPED, None, "done already"),
        (ids[2], REFUSED, None, "no"),
    ]
    assert db.rows(t.command) == []


def test_a_command_without_effect_names_the_instance_that_it_was_about(db: Tables) -> None:
    owned = a_run(db)
    for plan in (Drop(reason="it has ended"), Reject(reason="it still runs")):
        command_id = a_command(db, command_type=3, command_param=about(owned.process_instance_id))
        take(db, always(plan))
        line = line_of_the(db, command_id)
        assert line["process_instance_id"] == owned.process_instance_id


def test_a_row_that_can_not_be_read_has_a_line_with_the_reason(db: Tables) -> None:
    command_id = a_command(
        db, command_type=None, process_definition_id=None, command_param="{not JSON"
    )
    take(db, always(a_begin()))
    line = line_of_the(db, command_id)
    assert has(line, outcome=REFUSED, command_type=None, process_definition_id=None)
    assert "command_type is NULL" in line["reason"]


def test_an_intent_a_recovery_and_a_take_over_are_taken_for_their_instance(db: Tables) -> None:
    owned = a_run(db)
    run_id = owned.process_instance_id
    stop = a_command(db, command_type=9)
    take(db, always(a_stop(owned)))
    over = a_command(db, command_type=2)
    take(db, always(Resume(process_instance_id=run_id, epoch=1)))
    taken = replace(owned, epoch=2)
    end_run(db, taken)
    again = a_command(db, command_type=7)
    take(db, always(a_restart(run_id, epoch=2)))
    expected = [(each, TAKEN, run_id, None) for each in (stop, over, again)]
    assert lines(db)[1:] == expected


def a_restart(process_instance_id: int, *, epoch: int, **changes: Any) -> Restart:
    restart = Restart(
        process_instance_id=process_instance_id,
        epoch=epoch,
        command_type=CommandType.REPEAT_RUNNING,
        reset=(),
    )
    return replace(restart, **changes)


def test_what_the_tables_do_not_allow_any_more_is_dropped_with_the_reason(db: Tables) -> None:
    owned = a_run(db)
    run_id = owned.process_instance_id
    end_run(db, owned)
    for command_type, plan in (
        (9, a_stop(owned)),
        (7, a_restart(run_id, epoch=7)),
        (2, Resume(process_instance_id=run_id, epoch=7)),
    ):
        command_id = a_command(db, command_type=command_type, command_param=about(run_id))
        take(db, always(plan))
        line = line_of_the(db, command_id)
        assert has(line, outcome=DROPPED, process_instance_id=run_id)
        assert str(run_id) in line["reason"]


def test_a_rerun_that_is_discarded_is_dropped_and_says_for_which_run(db: Tables) -> None:
    ended = a_run(db)
    end_run(db, ended)
    live = a_run(db)
    run_id = ended.process_instance_id
    command_id = a_command(db, command_type=7, command_param=about(run_id))
    plan = a_restart(run_id, epoch=1, execution_type=ExecutionType.SERIAL_DISCARD)
    take(db, always(plan))
    reason = f"discarded: process instance {live.process_instance_id} of this definition is still"
    line = line_of_the(db, command_id)
    assert has(line, outcome=DROPPED, process_instance_id=run_id)
    assert line["reason"].startswith(reason)


def test_a_new_run_that_is_discarded_is_dropped_and_names_the_run_that_ended_at_once(
    db: Tables,
) -> None:
    live = a_run(db)
    command_id = a_command(db)
    take(db, always(a_begin(execution_type=ExecutionType.SERIAL_DISCARD)))
    run = db.rows(t.process_instance)[-1]
    line = line_of_the(db, command_id)
    assert has(run, state=ProcessState.STOP, state_reason=line["reason"])
    assert has(line, outcome=DROPPED, process_instance_id=run["id"])
    assert str(live.process_instance_id) in line["reason"]


def test_a_run_that_has_to_wait_for_its_turn_is_taken(db: Tables) -> None:
    a_run(db)
    command_id = a_command(db)
    take(db, always(a_begin(execution_type=ExecutionType.SERIAL_WAIT)))
    run = db.rows(t.process_instance)[-1]
    assert run["state"] == ProcessState.SERIAL_WAIT
    assert has(line_of_the(db, command_id), outcome=TAKEN, process_instance_id=run["id"])


def test_a_pause_of_a_run_that_waits_for_its_turn_is_dropped_and_says_so(db: Tables) -> None:
    a_run(db)
    a_command(db)
    take(db, always(a_begin(execution_type=ExecutionType.SERIAL_WAIT)))
    waiting = db.rows(t.process_instance)[-1]["id"]
    command_id = a_command(db, command_type=8, command_param=about(waiting))
    take(db, always(an_intent(waiting, CommandType.PAUSE)))
    assert has(line_of_the(db, command_id), outcome=DROPPED, process_instance_id=waiting)
    assert line_of_the(db, command_id)["reason"]


def test_the_command_of_a_child_is_taken_for_the_child(db: Tables) -> None:
    _, child = a_child(db, a_run(db))
    assert lines(db)[-1][1:] == (TAKEN, child.process_instance_id, None)


def test_a_reason_that_can_not_be_stored_as_it_is_is_stored_readably(db: Tables) -> None:
    command_id = a_command(db)
    take(db, always(Drop(reason="no\0such \ud800run")))
    assert line_of_the(db, command_id)["reason"].startswith("no\N{REPLACEMENT CHARACTER}such")


def test_a_command_id_that_is_used_again_gets_a_line_of_its_own(db: Tables) -> None:
    for reason in ("first", "second"):
        a_command(db, id=2_000_000_002)
        take(db, always(Drop(reason=reason)))
    assert [line[3] for line in lines(db)] == ["first", "second"]


def test_a_command_that_stays_has_no_line(db: Tables) -> None:
    a_command(db)
    assert take(db, always(a_begin()), room=0) == ()
    assert lines(db) == []


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_old_lines_are_forgotten_and_no_others(db: Tables, kept: int) -> None:
    for now in (NOON, LATER):
        a_command(db)
        take(db, always(Drop(reason="only its line matters")), now=now)
    before = (LATER + (LATER - NOON), LATER, NOON)[kept]
    assert db.commands.forget(before=before) is False
    assert [row["handled_at"] for row in db.rows(t.command_ledger)] == [NOON, LATER][2 - kept :]


def test_the_master_that_took_a_command_is_named(db: Tables) -> None:
    a_run(db, node=MASTER)
    a_run(db, node=OTHER_MASTER)
    hosts = [row["host"] for row in db.rows(t.command_ledger)]
    assert hosts == [MASTER.address, OTHER_MASTER.address]
