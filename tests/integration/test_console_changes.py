"""The changes since the last good run on the page of a run: told once, and at little cost."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, insert, select

from api.console.parts import HEADER
from api.cookies import COOKIE
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.session import Session
from tests.builders import a_definition_json
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance
from tests.integration.console_visits import get, session_of

pytestmark = pytest.mark.usefixtures("at_console")
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def number(db: Engine) -> int:
    return a_definition(db, name="flights", process_definition_json=a_definition_json("a >> b"))


def a_run(
    db: Engine,
    number: int,
    state: ProcessState,
    *,
    version: int = 6,
    graph: str = "a >> b",
    seconds: float = 10,
    params: dict[str, str] | None = None,
    progress: str | None = None,
    **values: Any,
) -> int:
    given = [{"prop": key, "value": value} for key, value in (params or {"day": "1"}).items()]
    run = an_instance(
        db,
        state,
        process_definition_id=number,
        name=f"flights-{version}-1357027200000",
        process_instance_json=a_definition_json(graph),
        global_params=json.dumps(given),
        **values,
    )
    for name, how in (("a", TaskState.SUCCESS), ("b", TaskState(int(state)))):
        an_attempt(
            db,
            run,
            how,
            process_definition_id=number,
            name=name,
            start_time=NOW - timedelta(seconds=seconds),
            host=f"w{version}:1234",
            progress=progress if name == "a" else None,
        )
    return run


def changes_on(page: Any) -> str:
    """Return the text of the changes on a page, without its elements."""
    found = re.search(r'<details class="card since".*?</details>', page.text, re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", found[0]) if found is not None else ""
    return " ".join(html.unescape(text).split())


def test_a_failed_run_tells_what_it_has_otherwise_than_the_last_good_one(
    client: TestClient, ada: str, db: Engine, number: int
) -> None:
    with db.begin() as connection:
        group = connection.scalar(
            insert(t.worker_group).values(name="large").returning(t.worker_group.c.id)
        )
        connection.execute(insert(t.environment).values(name="spark4", code=2**31))
    a_run(db, number, ProcessState.SUCCESS, version=5)
    good = a_run(db, number, ProcessState.SUCCESS, params={"day": "1", "db_password": "hunter2"})
    # No good one: it ran a part of the definition.
    only = json.dumps({"StartNodeNameList": "a"})
    a_run(db, number, ProcessState.SUCCESS, version=7, command_param=only)
    a_run(db, number, ProcessState.FAILURE)
    run = a_run(
        db,
        number,
        ProcessState.FAILURE,
        version=7,
        graph="a >> b c",
        seconds=24,
        params={"day": HOSTILE, "db_password": "hunter3"},
        worker_group_id=group,
        command_param=json.dumps({"environmentCode": str(2**31)}),
    )
    page = get(client, f"/runs/{run}", ada)
    told = changes_on(page)
    assert told.startswith(
        f"What changed since the last good run, #{good} · version 6 → 7 · tasks added: 1 · edges: 1"
        " · worker group · environment · parameters: 1 · tasks that went otherwise: 2"
    )
    for each in ("+ c", "+ a → c", "large", "spark4", "took 2.4 × as long: 24.0 s, there 10.0 s"):
        assert each in told, each
    assert f"day 1 {HOSTILE}" in told
    assert HOSTILE not in page.text
    assert "hunter" not in page.text
    assert "on w7:1234, there on w6:1234" in told
    # It is open for whoever asks why it has failed.
    assert '<details class="card since" open>' in page.text
    assert f'href="/definitions/{number}/compare?from=6&amp;to=7"' in page.text


def test_a_slow_task_is_set_beside_what_is_usual_and_its_data_beside_that_of_the_good_run(
    client: TestClient, ada: str, db: Engine, number: int
) -> None:
    # Of ten durations the 90th percentile is the ninth.
    for seconds in (90.0, 60.0, *[50.0] * 7):
        a_run(db, number, ProcessState.SUCCESS, seconds=seconds)
    moved = '{"rows_in": %d, "bytes_out": %d}'
    a_run(db, number, ProcessState.SUCCESS, seconds=10, progress=moved % (1200, 5_000_000))
    usual = a_run(db, number, ProcessState.FAILURE, seconds=60)
    assert "What changed" not in get(client, f"/runs/{usual}", ada).text
    slow = a_run(
        db, number, ProcessState.FAILURE, seconds=61, progress=moved % (4_000_000, 1_000_000)
    )
    told = changes_on(get(client, f"/runs/{slow}", ada))
    p90 = "took 6.1 × as long: 1 m 01 s, there 10.0 s · p90 of the last 10 good runs: 1 m 00 s"
    assert f"a · {p90}" in told
    assert f"b · {p90}" in told
    assert "rows read: 4,000,000, there 1,200 · data written: 1 MB, there 5 MB" in told


def test_a_run_that_is_as_the_last_good_one_says_so_and_the_first_says_nothing(
    client: TestClient, ada: str, db: Engine, number: int
) -> None:
    first = a_run(db, number, ProcessState.SUCCESS)
    second = a_run(db, number, ProcessState.SUCCESS)
    for run, told in ((first, False), (second, True)):
        page = get(client, f"/runs/{run}", ada).text
        assert (f'As the last good run, <a href="/runs/{first}">' in page) == told
        assert "What changed" not in page
    broken = a_run(db, number, ProcessState.FAILURE)
    with db.begin() as connection:
        connection.execute(
            t.process_instance.update()
            .where(t.process_instance.c.id == broken)
            .values(process_instance_json="{", global_params="[", command_param="{")
        )
    assert get(client, f"/runs/{broken}", ada).status_code == 200


def test_changes_cost_three_statements_and_an_open_page_none(
    client: TestClient,
    app: FastAPI,
    ada: str,
    db: Engine,
    number: int,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_run(db, number, ProcessState.SUCCESS)
    run = a_run(db, number, ProcessState.FAILURE, version=7, graph="a >> b c")
    statements: list[str] = []
    event.listen(
        app.state.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    # The driver tells nobody of what it executes for itself.
    monkeypatch.setattr(
        "common.store.fixed_statement.rows_alone",
        lambda db, statement, values, **_: list(db.exec_driver_sql(statement, dict(values))),
    )

    def cost(ask: Callable[[], Any]) -> int:
        ask()
        statements.clear()
        assert ask().status_code == 200
        return len(statements)

    whole, other = (
        cost(lambda view=view: get(client, f"/runs/{run}?view={view}", ada))  # type: ignore[misc]
        for view in ("graph", "list")
    )
    headers = {"Cookie": f"{COOKIE}={ada}"}
    parts, others = (
        cost(
            lambda view=view: client.get(  # type: ignore[misc]
                f"/runs/{run}?view={view}", headers={**headers, HEADER: "facts=0,state=0"}
            )
        )
        for view in ("graph", "list")
    )
    assert whole == other + 3
    assert parts == others < other


def test_a_foreign_run_tells_nothing(
    client: TestClient, owner: Session, db: Engine, number: int
) -> None:
    a_run(db, number, ProcessState.SUCCESS)
    run = a_run(db, number, ProcessState.FAILURE)
    nobody = session_of(client, owner, "bob", "none")
    assert get(client, f"/runs/{run}", nobody).status_code == 404
    with db.connect() as connection:
        assert connection.scalar(
            select(t.process_instance.c.id).where(t.process_instance.c.id == run)
        )
