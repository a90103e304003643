"""A master whose way to PostgreSQL alone is cut: another one continues its runs."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

from sqlalchemy import make_url, text

from common.clock import SystemClock
from common.config import MasterConfig
from common.registry.config import RegistryConfig
from common.registry.connect import connect as connect_registry
from common.runtime.daemon import heartbeat_text
from common.store.connect import Engine, answers, engine
from master.assembly import Master
from master.loops.database_loop import DatabaseLoop
from tests.bench import definitions
from tests.conftest import ZookeeperRoot
from tests.integration.stepped_daemons import StandingClock, a_master
from tests.proxies import Door, running


def _joined(
    stack: ExitStack, url: str, zookeeper: ZookeeperRoot, clock: StandingClock, port: int
) -> Master:
    db, probe = engine(url), engine(url, pool_size=1, by_statement=True)
    stack.callback(db.dispose)
    stack.callback(probe.dispose)
    registry = connect_registry(
        RegistryConfig(hosts=zookeeper.hosts, root=zookeeper.root), clock=SystemClock()
    )
    stack.callback(registry.close)
    database = DatabaseLoop(partial(answers, probe), clock=clock)
    master = a_master(
        registry,
        db,
        clock,
        config=MasterConfig(port=port),
        heartbeat_text=heartbeat_text(
            "127.0.0.1",
            created=datetime.now(UTC),
            zone=ZoneInfo("UTC"),
            clock=SystemClock(),
            database_away=database.shown,
        ),
        database=database,
    )
    master.heartbeat.join()
    return master


def _begin_run(made: Engine) -> None:
    with made.begin() as db:
        definition = db.scalar(
            text(
                "INSERT INTO t_ds_process_definition"
                " (name, process_definition_json, release_state)"
                " VALUES ('patient', :document, 1) RETURNING id"
            ),
            {"document": definitions.chain(1, "exit 0")},
        )
        db.execute(
            text(
                "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
                " VALUES (0, :definition, '{}')"
            ),
            {"definition": definition},
        )


def _owner(made: Engine) -> str | None:
    with made.connect() as db:
        owner: str | None = db.scalar(text("SELECT host FROM t_ds_process_instance"))
        return owner


def test_a_master_cut_off_from_postgresql_alone_leaves_its_runs_to_another(
    migrated_url: str, zk_root: ZookeeperRoot
) -> None:
    address = make_url(migrated_url)
    assert address.host is not None
    assert address.port is not None
    door = Door(address.host, address.port)
    through = address.set(host="127.0.0.1", port=door.port)
    clock = StandingClock()

    def pass_seconds(master: Master, seconds: int) -> None:
        for _ in range(seconds):
            clock.move_to(clock.monotonic() + 1)
            assert master.database is not None
            master.database.run_once()
            master.heartbeat.run_once()

    with ExitStack() as stack:
        made = engine(migrated_url)
        stack.callback(made.dispose)
        way = ExitStack()
        stack.callback(way.close)
        way.enter_context(running(door, name=f"door-{os.getpid()}"))
        url = through.render_as_string(hide_password=False)
        one = _joined(stack, url, zk_root, clock, 5678)
        _begin_run(made)
        one.commands.run_once()
        assert _owner(made) == "127.0.0.1:5678"
        other = _joined(stack, migrated_url, zk_root, clock, 5679)
        first = one.identity.node
        way.close()
        pass_seconds(one, 10)
        other.failover.run_once()
        other.commands.run_once()
        assert (one.identity.node, _owner(made)) == (first, "127.0.0.1:5678")
        pass_seconds(one, 10)
        assert one.identity.node is None
        other.failover.run_once()
        other.commands.run_once()
        assert _owner(made) == "127.0.0.1:5679"
        # Once the way is open again it joins, as another incarnation.
        with running(door, name=f"door-{os.getpid()}"):
            pass_seconds(one, 1)
            assert one.identity.node not in (first, None)
            one.failover.run_once()
            assert _owner(made) == "127.0.0.1:5679"
