"""Spark's UI in the console: who may open it, and what a page of Spark can do in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete, update

from common.clock import SystemClock
from common.config import Config
from common.log_access import key_file, read_key
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.cluster import cluster_token
from operations.errors import ForbiddenError
from operations.projects import create_project
from operations.session import Session
from operations.spark_pages import GOOD_FOR, read_pass
from tests.builders import a_definition_json
from tests.fake_drivers import Attempts, a_driver, a_page_server, seen_by
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.console_visits import get, session_of

pytestmark = pytest.mark.usefixtures("at_console")


class Later(SystemClock):
    """The time after the end of a pass."""

    def now(self) -> datetime:
        return datetime.now(UTC) + GOOD_FOR + timedelta(seconds=1)


class Tasks:
    """A running task with a driver of its own, and one with a session in a shared server."""

    def __init__(self, config: Config, db: Engine, ends: ExitStack) -> None:
        folder = config.home / "pages"
        self.attempts = Attempts()
        document = a_definition_json("a")
        number = a_definition(db, process_definition_json=document)
        run = an_instance(
            db, ProcessState.RUNNING, process_definition_id=number, process_instance_json=document
        )
        key = read_key(key_file(config), makes=True)
        servers = folder / "servers"
        self.address = ends.enter_context(
            a_page_server(self.attempts, servers, key, cluster_token(db))
        )
        self.run, self.db = run, db
        self.own = self._task(ends, number, folder / "own", is_own=True)
        self.shared = self._task(ends, number, servers / "server-1", is_own=False)

    def _task(self, ends: ExitStack, number: int, folder: Path, *, is_own: bool) -> int:
        folder.mkdir(parents=True)
        link = f"http://127.0.0.1:{ends.enter_context(a_driver(folder, is_of_attempt=is_own))}"
        about: dict[str, Any] = {"host": self.address, "app_link": "local-1", "ui_link": link}
        task = an_attempt(
            self.db,
            self.run,
            TaskState.RUNNING,
            process_definition_id=number,
            name="b" if is_own else "a",
            **about,
        )
        self.attempts.write_link(task, folder if is_own else folder.parent.parent, link)
        return task


@pytest.fixture
def tasks(config: Config, db: Engine) -> Iterator[Tasks]:
    with ExitStack() as ends:
        yield Tasks(config, db, ends)


def opened(client: TestClient, task: int, session: str) -> str:
    """Return the path of the first page that the link of a task leads to."""
    answer = get(client, f"/tasks/{task}/spark-ui", session)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def test_x105_the_ui_of_a_task_is_one_click_away_and_acts_for_nobody(
    client: TestClient, ada: str, tasks: Tasks
) -> None:
    panel = get(client, f"/runs/{tasks.run}?task=a", ada).text
    assert f'href="/tasks/{tasks.shared}/spark-ui"' in panel
    place = opened(client, tasks.own, ada)
    # A browser sends no cookie with what a page without an origin asks for.
    page = client.get(f"{place}?completedJob.page=2", headers={"Origin": "null"})
    assert page.status_code == 200
    path, headers = seen_by(page.content)
    assert path == "/jobs/?completedJob.page=2"
    assert headers["x-forwarded-context"] == place.removesuffix("/jobs/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-forms; default-src 'none';")
    assert "allow-same-origin" not in policy
    assert "*" not in policy
    assert "set-cookie" not in page.headers
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "access-control-allow-credentials" not in page.headers
    file = client.get(place.replace("/jobs/", "/static/webui.css"))
    assert file.headers["cache-control"] == "private, max-age=3600"
    base = place.removesuffix("jobs/")
    assert client.get(base).headers["location"] == place
    # Spark's scripts use a storage, and send a header with their requests.
    assert b"<head><script>for(const name of" in client.get(f"{base}stages/stage/").content
    asked = client.options(f"{base}api/v1/applications", headers={"Origin": "null"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-headers"] == "X-Requested-With"
    assert asked.headers["access-control-allow-origin"] == "null"
    # Pages with secrets, and pages that end jobs.
    for path in ("environment/", "jobs/job/kill/", "executors/threadDump/"):
        assert client.get(f"{base}{path}").status_code == 404
        assert client.post(f"{base}{path}").status_code in (404, 405)
    # A cookie of the console is not sent on.
    assert "cookie" not in seen_by(get(client, place, ada).content)[1]


def test_x105_a_shared_server_is_shown_to_users_who_see_every_project(
    client: TestClient, ada: str, owner: Session, tasks: Tasks
) -> None:
    place = opened(client, tasks.shared, ada)
    assert client.get(place).status_code == 200  # There is one project, and ada sees it.
    create_project(owner, "other", description=None)
    refused = client.get(place)
    assert refused.status_code == 403
    assert "statements of all projects" in refused.text
    assert client.get(opened(client, tasks.own, ada)).status_code == 200
    root = session_of(client, owner, "root", None)
    assert client.get(opened(client, tasks.shared, root)).status_code == 200


def test_x105_a_link_ends_with_its_session_its_right_and_its_time(
    client: TestClient, ada: str, owner: Session, db: Engine, tasks: Tasks
) -> None:
    place = opened(client, tasks.own, ada)
    text = place.split("/")[2]
    with pytest.raises(ForbiddenError, match="has ended"):
        read_pass(owner, text, clock=Later())
    task, rest = text.split(".", 1)
    assert int(task) == tasks.own
    for forged in (f"{tasks.shared}.{rest}", f"{text[:-1]}{'0' if text[-1] != '0' else '1'}", "x"):
        assert client.get(place.replace(text, forged)).status_code == 403
    # The right of the user is read at each request.
    with db.begin() as connection:
        held = connection.execute(delete(t.relation_project_user)).rowcount
    assert held == 1
    assert client.get(place).status_code == 404
    foreign, missing = (
        get(client, f"/tasks/{number}/spark-ui", ada) for number in (tasks.own, 99_999)
    )
    assert foreign.status_code == missing.status_code == 404
    with db.begin() as connection:
        connection.execute(delete(t.session))
    refused = client.get(place)
    assert refused.status_code == 403
    assert "has ended" in refused.text


def test_the_ui_of_a_task_that_has_ended_is_not_asked_for(
    client: TestClient, ada: str, db: Engine, tasks: Tasks
) -> None:
    place = opened(client, tasks.own, ada)
    with db.begin() as connection:
        connection.execute(update(t.task_instance).values(end_time=datetime.now(UTC)))
    assert client.get(place).status_code == 409
    ended = get(client, f"/tasks/{tasks.own}/spark-ui", ada)
    assert ended.status_code == 409
    assert re.search(r"Spark runs nothing for task instance \d+ now", ended.text)


def test_a_worker_that_is_gone_is_named(
    client: TestClient, ada: str, db: Engine, tasks: Tasks
) -> None:
    with db.begin() as connection:
        connection.execute(update(t.task_instance).values(host="127.0.0.1:1"))
    answer = client.get(opened(client, tasks.own, ada))
    assert answer.status_code == 503
    assert "worker 127.0.0.1:1 does not answer" in answer.text
