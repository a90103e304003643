"""Sub processes and the decisions of control tasks, as the command line shows them."""

from __future__ import annotations

import json

from sqlalchemy import Engine, insert

from common.model.states import ProcessState, TaskState
from common.store.tables import relation_process_instance
from tests.integration.cli_rows import a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli


def a_family(db: Engine) -> tuple[int, int, int]:
    """A run, its attempt at a sub process, and the child."""
    a_definition(db)
    parent = an_instance(db, ProcessState.RUNNING)
    attempt = an_attempt(db, parent, TaskState.RUNNING, name="sub", task_type="SUB_PROCESS")
    child = an_instance(
        db,
        ProcessState.FAILURE,
        is_sub_process=1,
        root_id=parent,
        parent_task_instance_id=attempt,
    )
    with db.begin() as connection:
        connection.execute(
            insert(relation_process_instance).values(
                parent_process_instance_id=parent,
                parent_task_instance_id=attempt,
                process_instance_id=child,
            )
        )
    return parent, attempt, child


def test_a_run_names_its_sub_processes_and_a_sub_process_its_parent(cli: Cli, db: Engine) -> None:
    parent, attempt, child = a_family(db)
    relative = {"definition": "nightly", "task": "sub", "task_instance_id": attempt, "attempt": 1}
    above = parsed(cli("instance", "show", str(parent), "-o", "json"))
    assert above["parent"] is None
    assert above["children"] == [
        relative | {"process_instance_id": child, "state": "FAILURE", "state_code": 6}
    ]
    below = parsed(cli("instance", "show", str(child), "-o", "json"))
    assert below["children"] == []
    assert below["parent"] == relative | {
        "process_instance_id": parent,
        "state": "RUNNING",
        "state_code": 1,
    }
    shown = cli("instance", "show", str(parent))[1]
    assert "sub processes:" in shown
    shown = cli("instance", "show", str(child))[1]
    assert f"sub process of {parent} (nightly), task sub: orcaflow instance show {parent}" in shown


def test_the_log_of_a_sub_process_task_names_the_run_that_it_waits_for(
    cli: Cli, db: Engine
) -> None:
    _, attempt, child = a_family(db)
    code, out, _ = cli("task", "log", str(attempt))
    assert code == 0
    assert out.splitlines() == [
        "SUB_PROCESS sub (attempt 1) is RUNNING: not decided yet",
        (
            f"  sub process: process instance {child} (nightly) is FAILURE:"
            f" orcaflow instance show {child}"
        ),
        f"  the reason that it waits: orcaflow task why {attempt}",
    ]


def test_the_log_of_a_branching_task_tells_what_it_took_and_what_it_looked_at(
    cli: Cli, db: Engine
) -> None:
    run = an_instance(db, ProcessState.SUCCESS)
    an_attempt(db, run, TaskState.FAILURE, name="check")
    items = [{"depTasks": "check", "status": "SUCCESS"}, {"depTasks": "never", "status": "FAILURE"}]
    node = {
        "name": "is_good",
        "type": "CONDITIONS",
        "dependence": {
            "relation": "AND",
            "dependTaskList": [{"relation": "AND", "dependItemList": items}],
        },
        "conditionResult": {"successNode": ["publish"], "failedNode": ["repair"]},
    }
    attempt = an_attempt(
        db,
        run,
        TaskState.FAILURE,
        name="is_good",
        task_type="CONDITIONS",
        task_json=json.dumps(node),
        branch='["repair"]',
    )
    out = cli("task", "log", str(attempt), "-f")[1]
    assert out.splitlines() == [
        "CONDITIONS is_good (attempt 1) is FAILURE",
        "  check: FAILURE (asked for: SUCCESS)",
        "  never: has no attempt (asked for: FAILURE)",
        "  took: repair",
    ]


def test_the_log_of_a_dependent_task_tells_which_runs_it_looked_at(cli: Cli, db: Engine) -> None:
    run = an_instance(db, ProcessState.FAILURE)
    evidence = [
        {
            "group": 1,
            "key": "4-ALL-day-today",
            "from": "2026-01-01",
            "to": "2026-01-02",
            "run": {"id": 7, "state": "FAILURE"},
            "task": None,
            "result": "FAILED",
            "why": "process instance 7 failed \x1b[2J",
        },
        {"group": 1, "key": "5-ALL-day-today", "run": None, "result": "WAITING"},
        "no entry",
    ]
    attempt = an_attempt(
        db,
        run,
        TaskState.FAILURE,
        name="dep",
        task_type="DEPENDENT",
        evidence=json.dumps(evidence),
        reason="4-ALL-day-today: process instance 7 failed",
    )
    out = cli("task", "log", str(attempt))[1]
    assert out.splitlines() == [
        "DEPENDENT dep (attempt 1) is FAILURE",
        (
            "  4-ALL-day-today from 2026-01-01 to 2026-01-02: process instance 7 FAILURE: FAILED"
            " (process instance 7 failed \\x1b[2J)"
        ),
        "  5-ALL-day-today: no process instance: WAITING",
        "  4-ALL-day-today: process instance 7 failed",
    ]
    assert cli("task", "log", str(attempt), "--lines", "1")[1].count("\n") == 1
