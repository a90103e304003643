"""People's requests about a complement: pause, resume and cancel."""

from __future__ import annotations

from common.model.commands import CommandOutcome
from common.model.complement_states import ComplementState
from common.model.states import ProcessState
from common.store import tables as t
from common.store.master.ports import Progressed
from tests.builders import NOON
from tests.conformance.complements import (
    READY_PAUSE,
    READY_STOP,
    RUNNING,
    a_complement,
    advance,
    begin_waiting,
    dates_of,
    request,
    run_of,
    states,
    the_complement,
    under_way,
)
from tests.conformance.store_tables import LATER, MINUTE, Tables, end_run, has, the_process

# Pause and resume


def test_a_pause_takes_back_what_nobody_has_taken_and_lets_the_rest_end(db: Tables) -> None:
    complement_id = under_way(db, 5, begun=2)
    end_run(db, run_of(db, complement_id, 0))
    advance(db)
    assert states(db, complement_id) == ["success", "running", "submitted", "pending", "pending"]
    request(db, complement_id, READY_PAUSE)
    assert advance(db) == Progressed(begun=0, moving=True)
    assert states(db, complement_id) == ["success", "running", "pending", "pending", "pending"]
    assert db.rows(t.command) == []
    line = db.rows(t.command_ledger)[-1]
    assert has(line, outcome=CommandOutcome.DROPPED, command_type=5, process_instance_id=None)
    assert line["reason"] == (
        f"date {dates_of(db, complement_id)[2]['id']} was withdrawn: its complement begins no more"
    )
    assert the_complement(db, complement_id)["state"] == READY_PAUSE
    running = run_of(db, complement_id, 1)
    assert the_process(db, running)["wanted_state"] is None
    end_run(db, running)
    assert advance(db, now=LATER) == Progressed(begun=0, moving=False)
    assert has(the_complement(db, complement_id), state=ComplementState.PAUSE, end_time=LATER)


def test_t32b_a_complement_that_is_to_pause_while_its_last_date_runs_is_done_with_that(
    db: Tables,
) -> None:
    complement_id = under_way(db, 1)
    request(db, complement_id, READY_PAUSE)
    advance(db)
    end_run(db, run_of(db, complement_id))
    advance(db)
    assert the_complement(db, complement_id)["state"] == ComplementState.SUCCESS


def test_t32_a_failed_complement_goes_on_at_the_date_that_failed(db: Tables) -> None:
    complement_id = under_way(db)
    end_run(db, run_of(db, complement_id))
    advance(db)
    begin_waiting(db)
    end_run(db, run_of(db, complement_id, 1), ProcessState.FAILURE)
    advance(db)
    assert states(db, complement_id) == ["success", "failure", "pending"]
    run_id = dates_of(db, complement_id)[1]["process_instance_id"]
    db.update(t.process_instance, run_id, state=int(ProcessState.SUCCESS))
    assert advance(db, thorough=True).begun == 1
    assert states(db, complement_id) == ["success", "success", "submitted"]


def test_a_paused_complement_goes_on_where_it_was(db: Tables) -> None:
    complement_id = a_complement(db)
    advance(db)
    request(db, complement_id, READY_PAUSE)
    advance(db)
    request(db, complement_id, RUNNING)
    assert advance(db).begun == 1
    assert states(db, complement_id) == ["submitted", "pending", "pending"]
    (handled,) = begin_waiting(db)
    assert handled.ownership is not None


# Cancel


def test_a_cancel_takes_back_what_nobody_has_taken_and_stops_the_rest(db: Tables) -> None:
    complement_id = under_way(db, 6, begun=3)
    end_run(db, run_of(db, complement_id, 0))
    advance(db)
    request(db, complement_id, READY_STOP)
    assert advance(db, now=LATER) == Progressed(begun=0, moving=True)
    assert db.rows(t.command) == []
    for place in (1, 2):
        assert has(
            the_process(db, run_of(db, complement_id, place)),
            state=ProcessState.RUNNING,
            wanted_state=ProcessState.STOP,
            wanted_at=LATER,
        )
        end_run(db, run_of(db, complement_id, place), ProcessState.STOP)
    assert advance(db, now=LATER + MINUTE) == Progressed(begun=0, moving=False)
    assert states(db, complement_id) == [
        "success",
        "cancelled",
        "cancelled",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    assert has(
        the_complement(db, complement_id),
        state=ComplementState.STOP,
        end_time=LATER + MINUTE,
        state_reason="cancelled",
    )


def test_a_cancel_of_what_has_not_begun_ends_it_at_once(db: Tables) -> None:
    for asked in (RUNNING, ComplementState.SUBMITTED, ComplementState.PAUSE):
        complement_id = a_complement(db)
        request(db, complement_id, asked)
        request(db, complement_id, READY_STOP)
        advance(db)
        assert states(db, complement_id) == ["cancelled"] * 3
        assert the_complement(db, complement_id)["state"] == ComplementState.STOP


def test_a_paused_run_does_not_keep_a_cancelled_complement_from_its_end(db: Tables) -> None:
    complement_id = under_way(db, 2)
    paused = run_of(db, complement_id)
    end_run(db, paused, ProcessState.PAUSE)
    request(db, complement_id, READY_STOP)
    advance(db)
    assert states(db, complement_id) == ["cancelled", "cancelled"]
    reason = dates_of(db, complement_id)[0]["reason"]
    assert "was paused when the complement was cancelled" in reason
    assert the_complement(db, complement_id)["state"] == ComplementState.STOP


def test_a_cancel_whose_stopped_run_was_the_last_date_ends_as_stopped(db: Tables) -> None:
    complement_id = under_way(db, 2, begun=2)
    failed, stopped = (run_of(db, complement_id, place) for place in range(2))
    request(db, complement_id, READY_STOP)
    advance(db)
    end_run(db, stopped, ProcessState.STOP)
    end_run(db, failed, ProcessState.SUCCESS)
    advance(db)
    assert states(db, complement_id) == ["success", "cancelled"]
    assert the_complement(db, complement_id)["state"] == ComplementState.STOP


def test_a_run_that_fails_while_its_complement_is_cancelled_has_failed(db: Tables) -> None:
    complement_id = under_way(db, 2)
    request(db, complement_id, READY_STOP)
    end_run(db, run_of(db, complement_id), ProcessState.FAILURE)
    advance(db)
    assert states(db, complement_id) == ["failure", "cancelled"]


def test_a_run_that_a_person_stops_fails_its_date(db: Tables) -> None:
    complement_id = under_way(db, 2)
    end_run(db, run_of(db, complement_id), ProcessState.STOP)
    advance(db)
    assert states(db, complement_id)[0] == "failure"


def test_a_cancel_does_not_weaken_what_is_wanted_of_a_run_already(db: Tables) -> None:
    complement_id = under_way(db, 2, begun=2)
    failing, pausing = (run_of(db, complement_id, place) for place in range(2))
    for owned, wanted in ((failing, ProcessState.FAILURE), (pausing, ProcessState.PAUSE)):
        db.update(
            t.process_instance,
            owned.process_instance_id,
            wanted_state=int(wanted),
            wanted_at=NOON,
        )
    request(db, complement_id, READY_STOP)
    advance(db, now=LATER)
    assert has(the_process(db, failing), wanted_state=ProcessState.FAILURE, wanted_at=NOON)
    assert has(the_process(db, pausing), wanted_state=ProcessState.STOP, wanted_at=LATER)
