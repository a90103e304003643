"""Live runs beside complements, and a run's own zone."""

from __future__ import annotations

from typing import Any

from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.plans import Drop
from common.store import tables as t
from common.store.master.ports import WaitingDependent
from tests.builders import NOON
from tests.conformance.pools import a_pool, share
from tests.conformance.store_tables import (
    FOLDERS,
    LATER,
    MASTER,
    WORKER,
    Tables,
    a_begin,
    a_command,
    a_run,
    a_submit,
    about,
    call_child,
    kill,
    load,
    planner_arguments,
    release,
    released,
    save,
    submit,
    take,
)

TOKYO = "Asia/Tokyo"


def a_complement_run(db: Tables, **changes: Any) -> Ownership:
    return a_run(db, command_type=CommandType.COMPLEMENT_DATA, **changes)


def test_an_attempt_of_a_complement_says_in_its_name_that_it_yields(db: Tables) -> None:
    complement, live = a_complement_run(db), a_run(db)
    (offer,) = save(db, complement, a_submit("a")).offers
    (other,) = save(db, live, a_submit("a")).offers
    assert (offer.yields, offer.name[-4:]) == (True, "_0_c")
    assert (other.yields, other.name[-3:]) == (False, "_-1")
    assert other.sort_key < offer.sort_key
    assert set(db.runs.unclaimed(MASTER, submitted_before=LATER)) == {offer, other}
    assert save(db, complement, kill("a")).withdrawn == (offer,)


def test_what_a_person_restarts_of_a_complement_yields_still(db: Tables) -> None:
    owned = a_complement_run(db)
    db.update(
        t.process_instance,
        owned.process_instance_id,
        history_cmd="COMPLEMENT_DATA,START_FAILURE_TASK_PROCESS",
    )
    (offer,) = save(db, owned, a_submit("a")).offers
    assert offer.yields


def test_what_waits_in_the_queue_is_told_in_its_order_live_runs_first(db: Tables) -> None:
    complement, urgent = a_complement_run(db), a_complement_run(db)
    live, low = a_run(db), a_run(db)
    db.update(t.process_instance, urgent.process_instance_id, process_instance_priority=0)
    db.update(t.process_instance, low.process_instance_id, process_instance_priority=4)
    ids = [submit(db, owned, "a")[0] for owned in (low, complement, live, urgent)]
    unclaimed = db.runs.unclaimed(MASTER, submitted_before=LATER)
    order = [entry.task_instance_id for entry in unclaimed]
    assert order == [ids[3], ids[2], ids[1], ids[0]]
    assert list(unclaimed) == sorted(unclaimed, key=lambda entry: entry.sort_key)


def test_a_slot_of_a_pool_goes_to_live_runs_of_the_same_priority_first(db: Tables) -> None:
    a_pool(db, size=1)
    complement, live, low = a_complement_run(db), a_run(db), a_run(db)
    db.update(t.process_instance, low.process_instance_id, process_instance_priority=4)
    order = []
    # The complement came first, and has the larger priority in the pool.
    save(db, complement, a_submit("a", pools=(share("db"),), pool_priority=9))
    for owned in (low, live):
        save(db, owned, a_submit("a", pools=(share("db"),)))
    by_run = {row["id"]: row["process_instance_id"] for row in db.rows(t.task_instance)}
    for _ in range(3):
        (task_id,) = released(db)
        order.append(by_run[task_id])
        db.update(t.task_instance, task_id, state=7, end_time=NOON)
    assert order == [each.process_instance_id for each in (live, complement, low)]


def test_what_a_complement_lets_go_of_yields_in_the_queue(db: Tables) -> None:
    a_pool(db, size=1)
    save(db, a_complement_run(db), a_submit("a", pools=(share("db"),)))
    (offer,) = release(db).offers
    assert offer.yields


# The zone of a run


def test_a_run_keeps_the_zone_in_which_it_reads_its_dates(db: Tables) -> None:
    owned, plain = a_run(db, timezone_id=TOKYO), a_run(db)
    assert load(db, owned).process.timezone_id == TOKYO
    assert load(db, plain).process.timezone_id is None


def test_a_claim_says_in_which_zone_the_run_reads_its_dates(db: Tables) -> None:
    ids = [submit(db, a_run(db, timezone_id=zone), "a")[0] for zone in (TOKYO, None)]
    claimed = db.tasks.claim(WORKER, ids, folders=FOLDERS, now=NOON)
    assert [task.timezone_id for task in claimed] == [TOKYO, None]


def test_a_dependent_waits_by_the_zone_of_its_run(db: Tables) -> None:
    for zone in (TOKYO, None):
        save(db, a_run(db, timezone_id=zone), a_submit("e", task_type="DEPENDENT"))

    def zones(found: tuple[WaitingDependent, ...]) -> list[str | None]:
        return [waiting.timezone_id for waiting in found]

    waiting = db.dependents.waiting(MASTER)
    assert zones(waiting) == [TOKYO, None]
    runs = [one.ownership.process_instance_id for one in waiting]
    assert zones(db.dependents.held_up(runs)) == [TOKYO, None]


def test_the_planner_of_a_sub_process_or_a_recovery_sees_the_zone(db: Tables) -> None:
    parent = a_run(db, timezone_id=TOKYO)
    task_id = call_child(db, parent)
    seen: list[str | None] = []

    def planner(_command: object, snapshot: Any) -> Drop:
        seen.append(snapshot.parent.timezone_id)
        return Drop(reason="seen")

    take(db, planner)
    assert seen == [TOKYO]
    assert task_id
    _, snapshot = planner_arguments(
        db, command_type=4, command_param=about(parent.process_instance_id)
    )
    assert snapshot.instance is not None
    assert snapshot.instance.timezone_id == TOKYO


def test_a_run_that_is_begun_beside_others_has_its_own_zone(db: Tables) -> None:
    ids = [a_command(db) for _ in range(3)]
    zones = dict(zip(ids, (TOKYO, None, "UTC"), strict=True))
    take(db, lambda command, _: a_begin(timezone_id=zones[command.id]))
    assert [row["timezone_id"] for row in db.rows(t.process_instance)] == [TOKYO, None, "UTC"]
