"""Supervisors in PostgreSQL: of two masters that claim at once, one gets each."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import Engine

from common.model.cluster import Node
from common.store.master.supervisor_ports import Lease
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.supervisors import add_version, make_supervisor
from tests.integration.store_races.racing import MASTER, OTHER_MASTER


def a_supervisor(made: Engine) -> str:
    name = f"ds-{uuid.uuid4().hex[:8]}"
    with made.begin() as db:
        assert make_supervisor(db, name, project_id=1, process_definition_id=1)
        add_version(db, name, version=1, document={}, suspended=False, user_id=1)
    return name


def claimed(made: Engine, node: Node) -> tuple[Lease, ...]:
    return PostgresSupervisorStore(made).claim(node, lease=timedelta(hours=1), limit=1000)


def test_of_two_masters_one_gets_a_supervisor(here: Engine, there: Engine) -> None:
    names = {a_supervisor(here) for _ in range(6)}
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(claimed, here, MASTER)
        theirs = pool.submit(claimed, there, OTHER_MASTER)
    got = [each.supervisor for each in (*ours.result(), *theirs.result())]
    assert len(got) == len(set(got))
    assert names <= set(got)
    assert claimed(here, MASTER) == ()
