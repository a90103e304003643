"""`instance why` on a real database, with ZooKeeper and without."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert, update

from common.config import load
from common.model.cluster import Node, NodeKind
from common.model.complement_states import DateState, OnFailure, Reprocess, RunOrder
from common.model.complements import NewComplement, RunSettings
from common.model.date_rules import DateRule
from common.model.offers import Offer
from common.model.rights import DATABASE
from common.model.slot_share import NO_SHARES, SharePercents
from common.model.states import ProcessState, TaskState
from common.runtime.health import HealthServer, Problem
from common.runtime.pid_file import holding, pid_file
from common.store.complements import create_complements
from common.store.people.reasons import facts_of, facts_of_command, moment
from common.store.tables import (
    command,
    complement_date,
    relation_process_instance,
    task_instance,
    worker_group,
    worker_server,
)
from common.store.worker.tasks import PostgresTaskStore
from common.why import Facts, PendingCommand
from common.why.control_tasks import dependent_cause
from operations.members import registry
from tests.conftest import ZookeeperRoot
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli


class FullHost:
    """A worker whose volume is full, as its page tells."""

    def problems(self) -> list[Problem]:
        return [Problem(part="host", why="/tasks has 0.1 GiB free")]


def test_why_follows_sub_processes_and_reports_that_zookeeper_did_not_answer(
    cli: Cli, db: Engine
) -> None:
    a_definition(db)
    parent = an_instance(db, ProcessState.RUNNING)
    wants = an_attempt(db, parent, TaskState.RUNNING, task_type="SUB_PROCESS", host=None)
    child = an_instance(db, ProcessState.RUNNING, root_id=parent, parent_task_instance_id=wants)
    due = NOW + timedelta(minutes=5)
    an_attempt(db, child, TaskState.DELAY_EXECUTION, due_at=due)
    with db.begin() as connection:
        connection.execute(
            insert(relation_process_instance).values(
                parent_process_instance_id=parent,
                parent_task_instance_id=wants,
                process_instance_id=child,
            )
        )
    causes = parsed(cli("instance", "why", str(parent), "-o", "json"))
    assert [(each["cause"], each["depth"]) for each in causes] == [
        ("zookeeper_unreachable", 0),
        ("sub_process", 0),
        ("zookeeper_unreachable", 1),
        ("delay", 1),
        ("upstream", 1),
        ("upstream", 0),
    ]
    assert causes[3]["next_at"] == due.isoformat().replace("+00:00", "Z")
    code, out, _ = cli("instance", "why", str(parent), "--task", "b")
    assert code == 0
    assert "task 'b' waits for 'a'" in out
    assert "└─ " in out
    assert cli("instance", "why", str(parent), "--task", "nobody")[0] == 3


def test_why_explains_serial_runs_queued_tasks_and_commands(cli: Cli, db: Engine) -> None:
    a_definition(db, release_state=0)
    first = an_instance(db, ProcessState.RUNNING)
    an_attempt(db, first, TaskState.SUBMITTED)
    second = an_instance(db, ProcessState.SERIAL_WAIT)
    third = an_instance(db, ProcessState.SERIAL_WAIT)
    code, out, _ = cli("instance", "why", str(third))
    assert code == 0
    assert f"behind process instance {first}" in out
    assert f"process instance {second} is SERIAL_WAIT" in out
    later = an_attempt(db, first, TaskState.SUBMITTED, name="b")
    assert "before it: 1 task" in cli("task", "why", str(later))[1]
    for host, told in (("-", "a master to choose a worker for it"), ("w:1", "w:1, which a master")):
        with db.begin() as connection:
            of_it = task_instance.c.id == later
            connection.execute(update(task_instance).where(of_it).values(host=host))
        assert f"waits for {told}" in cli("task", "why", str(later))[1]
    with db.begin() as connection:
        connection.execute(insert(command).values(command_type=0, process_definition_id=1))
    causes = parsed(cli("instance", "why", "--command", "1", "-o", "json"))
    assert [each["cause"] for each in causes] == [
        "command_waits",
        "definition_offline",
        "zookeeper_unreachable",
    ]
    assert cli("instance", "why", "--command", "99")[0] == 3
    assert cli("instance", "why")[0] == 2
    assert cli("instance", "why", "99")[0] == 3


def test_why_of_a_superseded_attempt_explains_the_one_in_its_place(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.RUNNING)
    old = an_attempt(db, 1, TaskState.FAILURE, flag=0)
    an_attempt(db, 1, TaskState.RUNNING, attempt=2)
    causes = parsed(cli("task", "why", str(old), "-o", "json"))
    assert [each["cause"] for each in causes] == ["superseded", "zookeeper_unreachable", "running"]


def test_why_tells_of_the_processes_that_a_lost_worker_may_have_left(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.SUCCESS)
    old = an_attempt(
        db, 1, TaskState.NEED_FAULT_TOLERANCE, flag=0, host="10.0.0.9:1234", lost_at=NOW
    )
    an_attempt(db, 1, TaskState.SUCCESS, attempt=2)
    causes = parsed(cli("instance", "why", "1", "-o", "json"))
    assert [each["cause"] for each in causes] == ["ended", "processes_left"]
    assert f"task instance {old}" == causes[1]["subject"]


def a_worker_tells_its_group(
    cli: Cli, db: Engine, worker: Node, queued: int
) -> tuple[Any, Any, str, Any]:
    """The causes of a task of a group while the worker has told nothing, others, and the group.

    Before the last come the lines for people, of a group whose name would steer the terminal.
    """

    def causes() -> Any:
        return parsed(cli("task", "why", str(queued), "-o", "json"))

    def record(node: Node, *groups: str, ids: frozenset[int]) -> None:
        offer = Offer(slots=3, version="0.1.0", groups=groups, group_ids=ids)
        PostgresTaskStore(db).record_offer(node, offer)

    with db.begin() as connection:
        connection.execute(insert(worker_group).values(id=7, name="red"))
        connection.execute(
            update(task_instance).where(task_instance.c.id == queued).values(worker_group_id=7)
        )
    # Of the incarnation before, and a row that is no offer.
    record(replace(worker, incarnation=worker.incarnation - 1), "red", ids=frozenset({7}))
    with db.begin() as connection:
        host, _, port = worker.address.rpartition(":")
        connection.execute(
            insert(worker_server).values(
                host=host, port=int(port), incarnation=worker.incarnation, res_info='{"groups":7}'
            )
        )
    silent = causes()
    record(worker, "red", "\x1b[31m", ids=frozenset({8}))
    others, lines = causes(), cli("task", "why", str(queued))[1]
    record(worker, "red", ids=frozenset({7}))
    (listed,) = parsed(cli("server", "list", "-o", "json"))
    assert (listed["groups"], listed["slots"], listed["version"]) == (["red"], 3, "0.1.0")
    (shown,) = parsed(cli("worker-group", "show", "red", "-o", "json"))["members"]
    assert (shown["address"], shown["known_by"]) == (worker.address, "start")
    return silent, others, lines, causes()


def test_why_reads_the_living_daemons_from_zookeeper(
    cli: Cli, db: Engine, zk_root: ZookeeperRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", zk_root.hosts)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__ROOT", zk_root.root)
    monkeypatch.setattr("operations.explaining.PATIENCE", timedelta(seconds=10))
    with registry(load()) as opened:
        master = opened.membership.join(NodeKind.MASTER, "127.0.0.1:5678", "")
        a_definition(db)
        run = an_instance(db, ProcessState.RUNNING, owner_incarnation=master.incarnation)
        an_attempt(db, run, TaskState.RUNNING)
        queued = an_attempt(db, run, TaskState.SUBMITTED, name="b")
        causes = parsed(cli("instance", "why", str(run), "-o", "json"))
        assert [each["cause"] for each in causes] == ["worker_gone", "queued", "no_worker"]
        page = HealthServer(FullHost(), host="127.0.0.1", port=0)
        page.start()
        try:
            worker = opened.membership.join(NodeKind.WORKER, f"127.0.0.1:{page.port}", "")
            causes = parsed(cli("task", "why", str(queued), "-o", "json"))
            with holding(pid_file(load().home, "api-server", 40123)):
                listed = cli("server", "list")
            (silent,) = parsed(cli("server", "list", "-o", "json"))
            told = a_worker_tells_its_group(cli, db, worker, queued)
        finally:
            page.stop()
        assert [each["cause"] for each in causes][-2:] == ["queued", "worker_unfit"]
        assert "is not ready: host: /tasks has 0.1 GiB free" in causes[-1]["text"]
        assert f"127.0.0.1:{page.port}: host: /tasks has 0.1 GiB free" in listed[2]
        assert "the api-server of this home runs at port 40123;" in listed[2]
        assert (silent["groups"], silent["slots"], silent["version"]) == (None, None, None)
        assert [each["cause"] for each in told[0]][-1] == "no_worker_in_group"
        assert f"127.0.0.1:{page.port} does not tell its groups" in told[0][-1]["text"]
        assert f"127.0.0.1:{page.port} serves red, " in told[1][-1]["text"]
        assert "\\x1b[31m" in told[2]
        assert "\x1b" not in told[2]
        assert [each["cause"] for each in told[3]][-1] == "worker_unfit"
    causes = parsed(cli("task", "why", str(queued), "-o", "json"))
    assert [each["cause"] for each in causes][:2] == ["owner_gone", "no_master"]


def test_the_slots_that_projects_hold_are_read_with_the_shares_in_force(db: Engine) -> None:
    a_definition(db)
    run = an_instance(db, ProcessState.RUNNING, host="m:1")
    queued = an_attempt(db, run, TaskState.SUBMITTED, name="queued")
    for name in ("a", "b"):
        an_attempt(db, run, TaskState.RUNNING, name=name, host="w:1")
    with db.begin() as connection:
        connection.execute(insert(command).values(id=5, command_type=0, process_definition_id=1))
    shares = SharePercents(master=80, worker=70)

    def read() -> tuple[Facts, PendingCommand]:
        with moment(db) as connection:
            given: Any = {
                "members": (frozenset(), frozenset()),
                "now": NOW,
                "exec_threads": 9,
                "shares": shares,
                "principal": DATABASE,
            }
            found = facts_of(connection, run, task_types={}, **given)
            pending = facts_of_command(connection, 5, **given)
        assert found is not None
        assert pending is not None
        assert pending[0].shares == found.shares
        return found, pending[1]

    found, pending = read()
    assert found.alive is not None
    assert found.alive.running_of == {"w:1": {1: 2}}
    assert found.alive.owned_of == {"m:1": {1: 1}}
    assert (found.queue[queued].project_id, found.queue[queued].project_name) == (1, "default")
    assert (pending.project_id, pending.project_name) == (1, "default")
    assert found.shares == NO_SHARES
    a_definition(db, name="other", project_id=2)
    assert read()[0].shares == shares


def test_a_wait_for_a_date_that_the_complement_starts_later_names_the_order(db: Engine) -> None:
    a_definition(db)
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (9, 8, 7)]
    new = NewComplement(
        process_definition_id=1,
        dates=tuple(days),
        timezone_id="UTC",
        parallelism=1,
        order=RunOrder.DESCENDING,
        on_failure=OnFailure.STOP,
        reprocess=Reprocess.ALL,
        settings=RunSettings(),
        date_rule=DateRule.BUSINESS_DATE,
    )
    waits = {
        "group": 1,
        "key": "1-ALL-day-last1Days",
        "from": "2026-03-09T00:00:00+00:00",
        "to": "2026-03-10T00:00:00+00:00",
        "run": None,
        "result": "WAITING",
        "why": "no run in the interval yet",
    }
    run = an_instance(db, ProcessState.RUNNING, host="m:1", schedule_time=days[0])
    evidence = json.dumps([waits])
    an_attempt(db, run, TaskState.RUNNING, task_type="DEPENDENT", host=None, evidence=evidence)
    with db.begin() as connection:
        (number,) = create_complements(connection, [new], command_id=0, now=NOW)
        connection.execute(
            update(complement_date)
            .where(complement_date.c.position == 1)
            .values(state=DateState.RUNNING, process_instance_id=run)
        )

    def shown() -> tuple[str, str | None]:
        given: Any = {"members": None, "now": NOW, "exec_threads": 9, "principal": DATABASE}
        with moment(db) as connection:
            found = facts_of(connection, run, task_types={}, **given)
        assert found is not None
        (attempt,) = found.runs[run].attempts
        (cause,) = dependent_cause(found, attempt).because
        return cause.text, cause.next

    text, following = shown()
    assert f"its complement {number} has not started that date" in text
    assert "1 date at the same time in descending order" in text
    assert f"orcaflow complement cancel {number}" in (following or "")
    with db.begin() as connection:
        connection.execute(
            update(complement_date)
            .where(complement_date.c.position == 2)
            .values(state=DateState.RUNNING)
        )
    assert "found no process instance to look at" in shown()[0]
