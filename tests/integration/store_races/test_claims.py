"""Claims that meet each other or a withdrawal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine, event, update

from common.model.states import TaskState
from common.store import tables as t
from tests.builders import NOON
from tests.integration.store_races.racing import (
    OTHER_WORKER,
    WORKER,
    a_run,
    attempt,
    claim,
    submit,
    until_blocked,
)


def test_a_claim_does_not_wait_for_a_withdrawal(here: Engine, there: Engine) -> None:
    withdrawn, free = submit(here, a_run(here), "a", "b")
    with there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == withdrawn)
            .values(state=9, end_time=NOON)
        )
        assert claim(here, WORKER, [withdrawn, free]) == [free]
        other.commit()
    assert claim(here, WORKER, [withdrawn]) == []


def test_the_update_of_a_claim_is_a_fence_without_the_lock_of_its_look(
    here: Engine, there: Engine, heard: None
) -> None:
    (task_id,) = submit(here, a_run(here), "a")

    @event.listens_for(here, "before_cursor_execute", retval=True)
    def look_without_a_lock(
        _db: Any, _cursor: Any, statement: str, values: Any, *_: Any
    ) -> tuple[str, Any]:
        return statement.replace("FOR NO KEY UPDATE OF t_ds_task_instance SKIP LOCKED", ""), values

    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, end_time=NOON)
        )
        claiming = pool.submit(claim, here, WORKER, [task_id])
        # The query has found the row unchanged; the UPDATE waits for the withdrawal.
        until_blocked(there, "here")
        other.commit()
        assert claiming.result() == []
    assert attempt(here, task_id).state == TaskState.KILL


def test_workers_that_claim_at_once_get_each_attempt_once(here: Engine, there: Engine) -> None:
    ids = submit(here, a_run(here), *(f"t{n}" for n in range(60)))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(claim, here, WORKER, ids)
        two = pool.submit(claim, there, OTHER_WORKER, ids[::-1])
        got = one.result() + two.result()
    # The commands that one skipped because the other had locked them, the other has taken.
    assert sorted(got) == ids
