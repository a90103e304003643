"""Attempts that are held until they have their locks, released by one master or several."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, select

from common.model.instances import Ownership
from common.model.lock_needs import LockNeed
from common.store import tables as t
from common.store.master.holds import PostgresHoldStore
from common.store.streams.datasets import take_turn
from tests.builders import NOON
from tests.integration.store_races.racing import a_run, a_submit, save


@pytest.fixture
def ds() -> str:
    return f"ds-{uuid.uuid4().hex[:8]}"


def need(ds: str, interval: str = "2026-11-20/P1D", **more: Any) -> LockNeed:
    return LockNeed(dataset=ds, interval=interval, **more)


def held_attempt(made: Engine, owned: Ownership, *locks: LockNeed, **more: Any) -> int:
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert save(made, owned, a_submit(name, locks=locks, **more)).offers == ()
    with made.connect() as db:
        return db.execute(
            select(t.task_instance.c.id).where(t.task_instance.c.name == name)
        ).scalar_one()


def release(made: Engine) -> list[int]:
    released = PostgresHoldStore(made).release(now=NOON)
    return [offer.task_instance_id for offer in released.offers]


def test_masters_that_release_at_once_give_a_lock_once(
    here: Engine, there: Engine, ds: str
) -> None:
    ids = [held_attempt(here, a_run(here), need(ds)) for _ in range(4)]
    with ThreadPoolExecutor(2) as pool:
        released = [*pool.map(release, [here, there])]
    assert sorted(task_id for each in released for task_id in each) == [ids[0]]


def test_a_dataset_that_is_in_use_just_now_is_asked_again_soon(
    here: Engine, there: Engine, ds: str
) -> None:
    task_id = held_attempt(here, a_run(here), need(ds))
    free = held_attempt(here, a_run(here), need(f"{ds}-free"))
    with there.begin() as db:
        take_turn(db, (ds,), shared=True)
        released = PostgresHoldStore(here).release(now=NOON)
        assert [offer.task_instance_id for offer in released.offers] == [free]
        assert released.next_due == NOON
    assert release(here) == [task_id]
