"""Runs and histories far larger than usual, as the API and its pages show them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, text

from api.policy import BASE
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.session import Session
from tests.integration.api_worlds import headers_of
from tests.integration.cli_rows import NOW, a_definition, an_instance
from tests.integration.console_visits import get

LAYERS, WIDTH = 51, 98
EDGES = (LAYERS - 1) * WIDTH * WIDTH
RUNS = 100_000


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    """The headers of an administrator."""
    return headers_of(owner, "admin", "admin")


def layered() -> dict[str, Any]:
    """A definition in whose layers each task waits for all of the layer before."""
    layers = [[f"t{layer}.{place}" for place in range(WIDTH)] for layer in range(LAYERS)]
    return {
        "globalParams": [],
        "tenantId": -1,
        "timeout": 0,
        "tasks": [
            {"name": name, "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": before}
            for before, layer in zip([[], *layers], layers, strict=False)
            for name in layer
        ],
    }


def test_a_run_of_5000_tasks_and_480000_edges_is_shown(
    client: TestClient, admin: dict[str, str], ada: str, db: Engine
) -> None:
    document = layered()
    assert sum(len(each["preTasks"]) for each in document["tasks"]) == EDGES > 480_000
    stored = json.dumps(document)
    definition = a_definition(db, name="large", process_definition_json=stored)
    run = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=definition,
        process_instance_json=stored,
    )
    rows = [
        {
            "name": each["name"],
            "task_type": "SHELL",
            "process_definition_id": definition,
            "process_instance_id": run,
            "task_json": "{}",
            "state": int(TaskState.SUCCESS),
            "flag": 1,
            "submit_time": NOW,
            "start_time": NOW,
            "end_time": NOW,
        }
        for each in document["tasks"]
    ]
    with db.begin() as connection:
        connection.execute(insert(t.task_instance), rows)
    assert client.get(f"{BASE}/definitions/{definition}", headers=admin).status_code == 200
    shown = client.get(f"{BASE}/instances/{run}/tasks", headers=admin).json()
    assert len(shown["items"]) == len(rows)
    # Layer by layer: nobody could tell tasks and edges apart.
    for path in (f"/definitions/{definition}?view=graph", f"/runs/{run}?view=graph"):
        page = get(client, path, ada)
        assert page.status_code == 200, page.text[:500]
        assert "too large to be drawn task by task" in page.text


def test_100000_runs_of_a_definition_are_listed_page_by_page(
    client: TestClient, admin: dict[str, str], ada: str, db: Engine
) -> None:
    definition = a_definition(db, name="often")
    with db.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                " command_type, executor_id, process_instance_json, start_time, end_time)"
                " SELECT n, 'often-' || n, :definition, 7, 0, 1, '{\"tasks\": []}', now(), now()"
                " FROM generate_series(1, :runs) n"
            ),
            {"definition": definition, "runs": RUNS},
        )
        connection.execute(text("ANALYZE t_ds_process_instance"))
    seen: list[int] = []
    after = ""
    for _ in range(3):
        answer = client.get(
            f"{BASE}/instances?definition_id={definition}&limit=500{after}", headers=admin
        )
        page = answer.json()
        seen += [each["id"] for each in page["items"]]
        after = f"&after={page['next']}"
    assert seen == list(range(RUNS, RUNS - 1_500, -1))
    for path in ("/", "/runs", "/runs?definition=often", f"/definitions/{definition}"):
        shown = get(client, path, ada)
        assert shown.status_code == 200, shown.text[:500]
        assert "often" in shown.text
