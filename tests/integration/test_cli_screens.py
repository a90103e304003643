"""Every list of the command line fits a narrow terminal, whatever stands in the tables."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

import pytest
from sqlalchemy import Engine, insert, text
from typer.core import TyperGroup

from common.model.intervals import read_interval
from common.model.lock_needs import group_of_run
from common.model.locks import LockRequest, LockType
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.streams.locks import request_locks
from orcaflow.cli.fitting import cell_width
from orcaflow.cli.loading import RootGroup
from orcaflow.remote.contexts import Server, add_context
from tests.integration.api_worlds import add_topology
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance
from tests.integration.conftest import Cli

LONG: Final = "日报 everything that has to be counted before noon, and then once more " * 3
# Words by which a screen is known to have kept what must not be pushed out.
SCREENS: Final = {
    "instance list": "RUNNING",
    "task list": "NEED_FAULT_TOLERANCE",
    "definition list": "ONLINE",
    "schedule list": "OFFLINE",
    "complement list": "RUNNING",
    "command list": "WAITING",
    "pool list": "1000000",
    "datasource list": "KIND",
    "worker-group list": "1",
    "environment list": "1",
    "tenant list": "1",
    "alert list": "WAIT_EXECUTION",
    "user list": "yes",
    "token list": "operator",
    "context list": "no",
    "project list": "admin",
    "locks list": "waiting",
    "stream list": "UNHEALTHY",
    "dataset list": "987654",
    "topology list": "ACTIVE",
    "audit list": "refused",
}
# Those that ask daemons, not tables: tests/unit/test_cli_fitting.py.
OF_DAEMONS: Final = frozenset({"server list", "worker list"})


def fill(db: Engine) -> None:
    name = LONG[:200]
    number = a_definition(db, name=name, description=LONG)
    run = an_instance(
        db, ProcessState.RUNNING, name=name, process_definition_id=number, host="h" * 60 + ":1234"
    )
    an_attempt(
        db, run, TaskState.NEED_FAULT_TOLERANCE, name=name, host="h" * 60 + ":1", lost_at=NOW
    )
    made: tuple[tuple[Any, dict[str, Any]], ...] = (
        (t.schedule, {"process_definition_id": number, "crontab": "0 0 3 * * ? *", "fault": LONG}),
        (t.complement, {"process_definition_id": number, "timezone_id": "UTC", "state": 1}),
        (t.command, {"command_type": 0, "process_definition_id": number}),
        (t.task_group, {"name": name, "group_size": 1_000_000, "description": LONG[:200]}),
        (t.datasource, {"name": LONG[:64], "type": 1, "connection_params": "{}", "note": LONG}),
        (t.environment, {"name": name[:100], "description": name}),
        (t.worker_group, {"name": name, "ip_list": ",".join(["10.0.0.7"] * 20)}),
        (t.tenant, {"tenant_code": "a" * 64, "description": LONG}),
        (t.user, {"user_name": LONG}),
        (t.project, {"name": LONG[:100], "description": LONG}),
        (t.access_token, {"user_id": 1, "name": LONG, "token": "0" * 64, "scopes": 3}),
        (t.supervisor, {"id": name, "version": 1, "spec": {}}),
        (
            t.supervisor_runtime,
            {
                "id": name,
                "version": 1,
                "process_definition_id": number,
                "owner": "h" * 60 + ":5678",
                "state": "UNHEALTHY_SUPERVISOR",
                "status": {"stream": LONG, "aggregateLag": 10**12, "partitions": 1000},
            },
        ),
        (
            t.audit_log,
            {
                "user_name": LONG,
                "action": "definition.delete",
                "object_type": "definition",
                "object_id": 2**31 - 1,
                "object_name": LONG,
                "outcome": "refused",
                "detail": LONG,
            },
        ),
        (t.alert, {"title": LONG[:64], "content": json.dumps([LONG])}),
    )
    holder = an_attempt(db, run, TaskState.RUNNING, name=name[1:])
    waiter = an_attempt(db, run, TaskState.WAITING_DEPEND, name=name[2:])
    interval = "2026-11-20/PT1H"
    lock = LockRequest(
        dataset=name,
        group_id=group_of_run(run),
        interval=read_interval(interval),
        type=LockType.EXCLUSIVE,
    )
    awaited = {"dataset": name, "interval": interval, "type": "EXCLUSIVE", "task_id": waiter}
    published = {
        "dataset": name,
        "interval": text("tstzrange('2026-11-20Z', '2026-11-21Z')"),
        "version": "v1",
        "partition_num": 0,
        "files": [],
        "rows": 987654,
        "bytes": 10**12,
        "origin_version": "v1",
        "origin_num": 0,
    }
    made = (*made, (t.task_lock_request, awaited), (t.segment, published))
    add_context(LONG[:100], Server(url=f"https://{'h' * 200}", token_file=f"/{'t' * 200}"))
    with db.begin() as connection:
        request_locks(connection, holder, [lock])
        add_topology(connection, "t" * 100, 1, number)
        for table, values in made:
            cut = {
                column: value[: getattr(table.c[column].type, "length", None) or len(value)]
                if isinstance(value, str)
                else value
                for column, value in values.items()
            }
            connection.execute(insert(table).values(**cut))


def test_every_list_fits_sixty_columns_and_keeps_its_states(
    cli: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(db)
    for width in (60, 80, 120):
        monkeypatch.setattr("orcaflow.cli.output.terminal_width", partial(int, width))
        for screen, kept in SCREENS.items():
            code, out, err = cli(*screen.split())
            assert code == 0, (screen, err)
            lines = out.splitlines()
            assert len(lines) > 1, screen
            assert max(map(cell_width, lines)) <= width, (screen, width, out)
            assert kept in out, (screen, width, out)
        code, out, _ = cli("config", "show", "--origin")
        assert code == 0
        assert max(map(cell_width, out.splitlines())) <= width


def test_no_list_is_forgotten() -> None:
    groups = RootGroup(name="orcaflow").commands
    lists = {
        f"{name} {inner}"
        for name, group in groups.items()
        if isinstance(group, TyperGroup)
        for inner in group.commands
        if inner == "list"
    }
    assert lists == set(SCREENS) | OF_DAEMONS


def test_a_pipe_gets_everything(cli: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    fill(db)
    assert LONG[:200].strip() in cli("pool", "list")[1]
