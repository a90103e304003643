"""Tests get a database and a ZooKeeper node of their own from servers that they share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from sqlalchemy import create_engine, text

from tests.conftest import ZookeeperRoot


@pytest.mark.parametrize("turn", [1, 2])
def test_a_database_is_fresh_whatever_another_test_made(database_url: str, turn: int) -> None:
    del turn  # Two tests of the same kind are the point.
    engine = create_engine(database_url)
    with engine.begin() as db:
        db.execute(text("CREATE TABLE only_mine AS SELECT 1"))
        assert db.execute(text("SELECT count(*) FROM only_mine")).scalar_one() == 1
    # The engine keeps its connection: dropping the database must not wait for it.


def test_a_database_can_be_copied_from_a_template(new_database: Callable[..., str]) -> None:
    template = new_database()
    engine = create_engine(template)
    with engine.begin() as db:
        db.execute(text("CREATE TABLE migrated AS SELECT 42 AS answer"))
    engine.dispose()
    copy = create_engine(new_database(template=engine.url.database))
    with copy.begin() as db:
        assert db.execute(text("SELECT answer FROM migrated")).scalar_one() == 42
    copy.dispose()


@pytest.mark.parametrize("turn", [1, 2])
def test_a_node_is_fresh_whatever_another_test_made(zk_root: ZookeeperRoot, turn: int) -> None:
    client = KazooClient(hosts=zk_root.hosts)
    client.start()
    try:
        assert client.exists(zk_root.root) is None
        client.ensure_path(f"{zk_root.root}/turn-{turn}")
        assert client.get_children(zk_root.root) == [f"turn-{turn}"]
    finally:
        client.stop()
        client.close()
