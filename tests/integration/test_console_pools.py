"""The page of a pool: its holders and waiters, and the orders that are given by it."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select

from api.cookies import COOKIE
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.log_ins import csrf_token
from operations.pools import resize_pool
from operations.session import Session
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.console_visits import get, session_of

pytestmark = pytest.mark.usefixtures("at_console")


def post(client: TestClient, session: str, place: str, **fields: str) -> Any:
    return client.post(
        place,
        headers={"Cookie": f"{COOKIE}={session}"},
        data={"csrf_token": csrf_token(session), **fields},
    )


def made(client: TestClient, session: str) -> str:
    """Create a pool that the default project may use; return the path of its page."""
    done = post(client, session, "/pools/new", name="database", size="2", project="default")
    assert done.status_code == 303
    return str(done.headers["location"])


def hidden(page: str, name: str) -> str:
    (found,) = set(re.findall(f'name="{name}" value="([^"]*)"', page))
    return html.unescape(found)


def orders(db: Engine) -> list[tuple[Any, ...]]:
    line = t.audit_log.c
    wanted = select(line.action, line.outcome, line.user_name).order_by(line.id)
    with db.connect() as connection:
        rows = connection.execute(wanted.where(line.action.like("pool.%"))).all()
    return [tuple(row) for row in rows]


def test_a_pool_is_made_once_and_mistakes_stand_beside_their_fields(
    client: TestClient, ada: str, db: Engine
) -> None:
    assert 'href="/pools/new"' in get(client, "/pools", ada).text
    once = hidden(get(client, "/pools/new", ada).text, "once")
    for field, text, said in (
        ("size", "many", "is no number"),
        ("size", "0", "from 1 to 1000000 slots"),
        ("name", " ", "name"),
        ("project", "nowhere", "there is no project"),
    ):
        fields = {"name": "database", "size": "2", "description": "d", "once": once, field: text}
        wrong = post(client, ada, "/pools/new", **fields)
        about = wrong.text.partition(f'id="about-{field}"')[2].partition("</label>")[0]
        assert (wrong.status_code, said in html.unescape(about)) == (422, True), text
        assert 'name="description" value="d"' in wrong.text
    places = [
        post(client, ada, "/pools/new", name="database", size="2", once=once).headers["location"]
        for _ in range(2)
    ]
    assert places[0] == places[1]
    taken = post(client, ada, "/pools/new", name="database", size="3")
    assert (taken.status_code, "there is a pool" in taken.text) == (409, True)
    assert f'href="{places[0]}"' in get(client, "/pools", ada).text
    assert [each for each in orders(db) if each[1] == "done"] == [
        ("pool.create", "done", "ada"),
        ("pool.create", "done", "ada"),
    ]


def test_holders_and_waiters_are_shown_as_far_as_one_may_see_them(
    client: TestClient, ada: str, db: Engine
) -> None:
    place = made(client, ada)
    pool = int(place.rpartition("/")[2])
    with db.begin() as connection:
        project = connection.scalar(insert(t.project).values(name="p2").returning(t.project.c.id))
    for name, status, weight, of in (
        ("holds", 1, 2, 1),
        ("waits", -1, 1, 1),
        ("not-for-you", -1, 1, project),
    ):
        definition = a_definition(
            db, name=name, project_id=of, process_definition_json=a_definition_json(name)
        )
        run = an_instance(db, ProcessState.RUNNING, process_definition_id=definition)
        state = TaskState.RUNNING if status == 1 else TaskState.WAITING_DEPEND
        where = {} if status == 1 else {"host": None}
        task = an_attempt(
            db, run, state, name=name, process_definition_id=definition, flag=1, **where
        )
        with db.begin() as connection:
            connection.execute(
                insert(t.task_group_queue).values(
                    task_id=task, group_id=pool, status=status, weight=weight, process_id=run
                )
            )
    page = get(client, place, ada).text
    tables = page.partition("<h2>Waiting")
    assert re.findall(r"task=([\w-]+)", tables[0]) == ["holds"]
    assert re.findall(r"task=([\w-]+)", tables[2]) == ["waits"]
    assert "not-for-you" not in page
    assert "1 more of other projects" in page
    refused = post(client, ada, f"{place}/remove", tag=hidden(page, "tag"))
    assert (refused.status_code, "is in use" in refused.text) == (409, True)


def test_a_pool_is_resized_and_removed_by_its_maker_alone_and_as_it_was_shown(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    place = made(client, ada)
    bea = session_of(client, owner, "bea", "author")
    eve = session_of(client, owner, "eve", "viewer")
    for session in (bea, eve):
        page = get(client, place, session)
        assert (page.status_code, "/resize" in page.text) == (200, False)
        for verb in ("resize", "remove"):
            answer = post(client, session, f"{place}/{verb}", size="3", tag="*")
            assert answer.status_code == 403
    assert get(client, "/pools/new", eve).status_code == 403
    assert post(client, eve, "/pools/new", name="x", size="1").status_code == 403
    assert "/pools/new" not in get(client, "/pools", eve).text
    tag = hidden(get(client, place, ada).text, "tag")
    forged = client.post(
        f"{place}/resize",
        headers={"Cookie": f"{COOKIE}={ada}"},
        data={"csrf_token": "x", "size": "3", "tag": tag},
    )
    assert forged.status_code == 403
    wrong = post(client, ada, f"{place}/resize", size="x", tag=tag)
    assert (wrong.status_code, 'value="x"' in wrong.text) == (422, True)
    assert post(client, ada, f"{place}/resize", size="3").status_code == 422
    done = post(client, ada, f"{place}/resize", size="4", tag=tag)
    assert (done.status_code, done.headers["location"]) == (303, place)
    fresh = hidden(get(client, place, ada).text, "tag")
    resize_pool(owner, "database", size=7)
    for verb in ("resize", "remove"):
        late = post(client, ada, f"{place}/{verb}", size="5", tag=fresh)
        assert (late.status_code, "Somebody has changed this pool" in late.text) == (409, True)
    with db.connect() as connection:
        assert connection.scalar(select(t.task_group.c.group_size)) == 7
    now = hidden(late.text, "tag")
    gone = post(client, ada, f"{place}/remove", tag=now)
    assert (gone.status_code, gone.headers["location"]) == (303, "/pools")
    assert get(client, place, ada).status_code == 404
    assert ("pool.remove", "done", "ada") in orders(db)
    assert ("pool.resize", "refused", "eve") in orders(db)
