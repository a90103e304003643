"""The pages of an attempt's log and script, and its application on the page of its run."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, update

from common.config import Config
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.console_visits import get

pytestmark = pytest.mark.usefixtures("at_console")
HOSTILE = "<img src=x onerror=alert(1)>"


def a_task(db: Engine, **values: Any) -> tuple[int, int]:
    document = a_definition_json("a")
    number = a_definition(db, process_definition_json=document)
    run = an_instance(
        db, ProcessState.RUNNING, process_definition_id=number, process_instance_json=document
    )
    return run, an_attempt(db, run, TaskState.RUNNING, process_definition_id=number, **values)


def a_log(config: Config, db: Engine, run: int, task: int, content: bytes) -> None:
    path = config.home / "tasks" / "logs" / "1" / str(run) / f"{task}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance).where(t.task_instance.c.id == task).values(log_path=str(path))
        )


def facts_of(page: str) -> dict[str, str]:
    (found,) = re.findall(r'<div class="whole" ([^>]*)>', page)
    return dict(re.findall(r'data-(\w+)="(\w+)"', found))


def text_of(page: str) -> str:
    (found,) = re.findall(r'<pre class="code"><span>(.*?)</span></pre>', page, re.DOTALL)
    return str(found)


def test_a_log_is_shown_from_its_end_and_piece_by_piece_without_scripts(
    client: TestClient, ada: str, config: Config, db: Engine
) -> None:
    run, task = a_task(db)
    lines = [b"line %06d %s\n" % (number, b"x" * 80) for number in range(2_000)]
    lines[-1] = f"\x1b[31m{HOSTILE}\x1b[0m\x1b]0;title\x07é\n".encode()
    log = b"".join(lines)
    a_log(config, db, run, task, log)
    place = f"/tasks/{task}/log"
    page = get(client, place, ada).text
    shown = text_of(page)
    assert shown.startswith("line 001800 ")
    assert shown.endswith("&lt;img src=x onerror=alert(1)&gt;é\n")
    facts = facts_of(page)
    assert facts["whole"] == str(task)
    assert facts["ended"] == "false"
    assert int(facts["end"]) == int(facts["size"]) == len(log)
    assert log[int(facts["start"]) :].startswith(b"line 001800 ")
    # The pieces before it lead to the begin, and those after that to the end again.
    found, at = [], int(facts["start"])
    while (above := re.search(r'href="\?from=(\d+)">Earlier<', page)) is not None:
        at = int(above[1])
        page = get(client, f"{place}?from={at}", ada).text
        found.append(at)
    assert found[-1] == 0
    assert text_of(page).startswith("line 000000 ")
    (below,) = re.findall(r'href="\?from=(\d+)">Later<', page)
    assert int(below) == 65_536
    assert f'href="{place}"' in page
    assert get(client, f"{place}?from=-1", ada).status_code == 422
    panel = get(client, f"/runs/{run}?task=a", ada).text
    assert f'data-log="{task}"' in panel
    assert f'href="{place}"' in panel


def test_a_log_that_is_not_there_says_why(client: TestClient, ada: str, db: Engine) -> None:
    _, task = a_task(db)
    page = get(client, f"/tasks/{task}/log", ada)
    assert page.status_code == 200
    assert '<p class="reason">' in page.text
    assert "data-whole" not in page.text


def test_a_script_is_shown_with_its_parameters_put_in_and_no_secret(
    client: TestClient, ada: str, db: Engine
) -> None:
    params = {
        "rawScript": f"if true; then echo ${{day}} ${{db_password}} '{HOSTILE}'; fi",
        "localParams": [
            {"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "2013-01-02"},
            {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"},
        ],
    }
    _, task = a_task(db, task_json=json.dumps({"params": params}))
    page = get(client, f"/tasks/{task}/script", ada).text
    assert '<span class="keyword">if</span>' in page
    assert "2013-01-02" in page
    assert HOSTILE not in page
    assert "hunter2" not in page
    with db.begin() as connection:
        connection.execute(update(t.task_instance).values(task_json="{"))
    page = get(client, f"/tasks/{task}/script", ada)
    assert (page.status_code, '<p class="reason">' in page.text) == (200, True)


def test_the_panel_of_a_run_shows_the_progress_of_spark_and_where_to_look(
    client: TestClient, ada: str, db: Engine
) -> None:
    progress = {"tasks": 240, "tasks_done": 96, "tasks_running": 2, "rows_in": 12, "bytes_in": 3}
    run, task = a_task(
        db,
        app_link="local-1,local-2",
        ui_link="http://w1:4040",
        history_link="javascript:alert(1)",
        progress=json.dumps(progress),
        memory_factor=2.0,
    )
    page = get(client, f"/runs/{run}?task=a", ada).text
    assert '<progress max="240" value="96"' in page
    for each in ("96 of 240 tasks", "2 running", "12 rows, 3 B", "× 2 of what is configured"):
        assert each in page, each
    assert '<a href="http://w1:4040" rel="noreferrer">' in page
    assert "javascript:" not in page
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task)
            .values(state=7, end_time=datetime.now(UTC))
        )
    # The driver has gone, and its page with it.
    assert "http://w1:4040" not in get(client, f"/runs/{run}?task=a", ada).text
