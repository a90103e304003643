"""The console's pages: who sees which, forms and their proofs, hostile names, and what browsers are told."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select, text, update

from api.browsers import PROGRAMS
from api.console.parts import HEADER
from api.console.rendering import POLICY, STYLE
from api.console.serving import PAGES
from api.console.table import Page
from api.cookies import COOKIE
from api.matrix import CALLERS, Outcome, outcome
from api.policy import LIST, Who
from common.model.commands import CommandType
from common.model.complement_states import ComplementState
from common.model.rights import ROLES
from common.model.states import ProcessState, ReleaseState
from common.store import tables as t
from common.store.connect import engine
from operations.log_ins import csrf_token
from operations.session import Session
from operations.users import create_user
from tests.builders import a_definition_json
from tests.integration.api_worlds import World, a_schedule, worlds
from tests.integration.cli_rows import a_definition, an_instance
from tests.integration.console_visits import PASSWORD, a_run, asked, get, session_of
from tests.integration.granting import a_shared_object

pytestmark = pytest.mark.usefixtures("at_console")
HOSTILE = "\"><img src=x onerror=alert(1)>'</title></svg>\u202e\x1b[31m\n{{ 7 * 7 }}"


def test_every_page_answers_every_role_as_its_policy_says(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ours, theirs = worlds(db)
    sessions: dict[str, str | None] = {
        role: session_of(client, owner, f"the-{role}", role) for role in ROLES
    }
    sessions["nobody"] = session_of(client, owner, "the-nobody", "none")
    sessions |= {"anyone": None, "administrator": session_of(client, owner, "root", None)}
    wrong = []
    for page in PAGES:
        if page.path == "/logout":
            continue
        for caller, own in (("admin", False), *((caller, True) for caller in CALLERS)):
            world: World = ours if own else theirs
            with db.begin() as connection:
                connection.execute(
                    update(t.process_instance).values(state=int(ProcessState.FAILURE))
                )
            number = world.objects.get(page.policy.thing or "", 0)
            if page.path == "/schedules/{id}/delete":
                number = a_schedule(db, world.objects["definition"])
            if page.path == "/pools/{id}/remove":
                number = a_shared_object(db, "pool", world.objects["project"])
            answer = asked(client, page, number, sessions[caller])
            wanted = outcome(page.policy, caller, own=own)
            is_shared = page.policy.takes is Who.USER
            # Nor is a name told by the answer that was in the question.
            is_told = (
                not own and not is_shared and "{name}" not in page.path and "theirs" in answer.text
            )
            if is_told or not as_told(page, wanted, answer):
                wrong.append((page.method, page.path, caller, own, wanted, answer.status_code))
            if page.policy == LIST and page.method == "GET":
                shown = {
                    name: re.search(f">(pool-)?{name}<", answer.text) is not None
                    for name in ("ours", "theirs")
                }
                sees = caller in (*ROLES, "administrator")
                if shown != {"ours": sees, "theirs": caller == "administrator"}:
                    wrong.append((page.path, caller, shown))
    assert wrong == []


def as_told(page: Page, wanted: Outcome, answer: Any) -> bool:
    status, place = answer.status_code, answer.headers.get("location", "")
    if wanted is Outcome.UNAUTHENTICATED:
        return status == 303 and place.startswith("/login?next=")
    if wanted is not Outcome.DONE:
        return str(status) == wanted.value
    if page.path == "/cluster":
        return status == 503  # ZooKeeper is away.
    if page.path == "/tasks/{id}/spark-ui":
        return status == 409  # The task has ended.
    # A verb that does not fit the state of the run is refused by its reason.
    shows = ("/check", "/test", "/tokens", "/simulate")
    is_shown = page.method == "GET" or page.path.endswith(shows)
    return status == 200 if is_shown else status in (303, 409)


def test_a_run_is_shown_by_all_its_sides(client: TestClient, ada: str, db: Engine) -> None:
    run = a_run(db, "flights")
    graph = get(client, f"/runs/{run}", ada)
    assert graph.status_code == 200
    boxes = re.findall(r'class="node (\w+)[^"]*" data-name="(\w+)"', graph.text)
    assert boxes == [("success", "a"), ("failure", "b")]
    assert len(re.findall(r'class="edge taken"', graph.text)) == 1
    assert "Rerun failed" in graph.text
    assert "Stop" not in graph.text
    for view, told in (
        ("timeline", 'class="bars"'),
        ("list", "<td>1</td>"),
        ("parameters", "<h2>"),
    ):
        side = get(client, f"/runs/{run}?view={view}&task=b", ada)
        assert (side.status_code, told in side.text) == (200, True), view
    assert get(client, f"/runs/{run}?view=none", ada).status_code == 422
    assert get(client, f"/runs/{run}?view=list&view=graph", ada).status_code == 422


def test_an_open_page_is_sent_the_parts_that_look_otherwise_and_no_other(
    client: TestClient, ada: str, db: Engine
) -> None:
    run = a_run(db, "flights", ProcessState.RUNNING)

    def renewed(known: str) -> Any:
        headers = {"Cookie": f"{COOKIE}={ada}", HEADER: known}
        return client.get(f"/runs/{run}", headers=headers)

    whole = get(client, f"/runs/{run}", ada).text
    digests = dict(re.findall(r'data-part="(\w+)" data-digest="(\w+)"', whole))
    assert set(digests) == {"state", "verbs", "facts", "graph", "timeline", "panel"}
    known = ",".join(f"{name}={digests[name]}" for name in ("state", "verbs", "graph"))
    still = renewed(known)
    assert still.headers["content-security-policy"] == POLICY
    assert still.json() == {"title": f"Run {run} running · Orcaflow", "parts": {}}
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance).where(t.task_instance.c.name == "b").values(state=7)
        )
    # What is not asked for is not sent, and no part that the page does not have is made up.
    changed = renewed(f"{known},none=0").json()["parts"]
    assert set(changed) == {"graph"}
    again = get(client, f"/runs/{run}", ada).text
    assert changed["graph"]["html"] in again
    assert f'data-digest="{changed["graph"]["digest"]}"' in again
    foreign = client.get(f"/runs/{run}", headers={HEADER: known})
    assert (foreign.status_code, foreign.headers["location"][:6]) == (303, "/login")
    assert renewed("").json()["parts"] == {}


def test_a_form_of_the_page_puts_a_command_and_a_forged_one_none(
    client: TestClient, ada: str, db: Engine
) -> None:
    run = a_run(db, "flights")
    page = get(client, f"/runs/{run}", ada).text
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', page))
    cookie = {"Cookie": f"{COOKIE}={ada}"}
    place = f"/runs/{run}/recover"
    forged: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
        ({}, cookie),
        ({"csrf_token": "0" * len(token)}, cookie),
        ({"csrf_token": token}, {**cookie, "Origin": "https://evil.example"}),
        ({"csrf_token": token}, {**cookie, "Sec-Fetch-Site": "cross-site"}),
    )
    for form, headers in forged:
        assert client.post(place, data=form, headers=headers).status_code == 403
    twice = client.post(
        place,
        content=f"csrf_token={token}&csrf_token={token}",
        headers={**cookie, "Content-Type": "application/x-www-form-urlencoded"},
    )
    assert twice.status_code == 422
    with db.connect() as connection:
        assert connection.scalars(select(t.command.c.id)).all() == []
    done = client.post(place, data={"csrf_token": token}, headers=cookie)
    assert (done.status_code, done.headers["location"]) == (303, f"/runs/{run}")
    with db.connect() as connection:
        (kind,) = connection.scalars(select(t.command.c.command_type))
    assert kind == CommandType.START_FAILURE_TASK_PROCESS


def test_whoever_is_not_logged_in_comes_back_to_the_page_asked_for(
    client: TestClient, owner: Session
) -> None:
    answer = client.get("/runs?state=FAILURE")
    place = f"/login?next={quote('/runs?state=FAILURE')}"
    assert (answer.status_code, answer.headers["location"]) == (303, place)
    assert 'value="/runs?state=FAILURE"' in client.get(place).text
    create_user(owner, "ada", is_admin=False, password=PASSWORD, tenant=None)
    for target in ("https://evil.example", "//evil.example", "/\\evil.example", "/a\nb", ""):
        form = {"name": "ada", "password": PASSWORD, "next": target}
        assert client.post("/login", data=form).headers["location"] == "/"
    wrong = client.post("/login", data={"name": "ada", "password": "wrong", "next": "/runs"})
    assert (wrong.status_code, "No user has this name" in wrong.text) == (401, True)
    assert "set-cookie" not in wrong.headers
    elsewhere = {"Origin": "https://evil.example"}
    form = {"name": "ada", "password": PASSWORD}
    assert client.post("/login", data=form, headers=elsewhere).status_code == 403


def test_logging_out_ends_the_session(client: TestClient, ada: str) -> None:
    form = {"csrf_token": csrf_token(ada)}
    answer = client.post("/logout", data=form, headers={"Cookie": f"{COOKIE}={ada}"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert get(client, "/", ada).status_code == 303


def test_hostile_names_are_texts_on_every_page(client: TestClient, ada: str, db: Engine) -> None:
    run = a_run(db, "flights")
    with db.begin() as connection:
        definition = connection.scalar(select(t.process_definition.c.id))
        document = a_definition_json("a >> b").replace('"b"', '"<b onclick=x>"')
        connection.execute(update(t.process_definition).values(name=HOSTILE, description=HOSTILE))
        connection.execute(
            update(t.process_instance).values(
                name=HOSTILE, state_reason=HOSTILE, process_instance_json=document
            )
        )
        connection.execute(update(t.task_instance).values(reason=HOSTILE, host=HOSTILE[:60]))
        connection.execute(insert(t.alert).values(title=HOSTILE, content="", alertgroup_id=1))
        connection.execute(insert(t.task_group).values(name=HOSTILE, group_size=2))
        connection.execute(update(t.process_definition).values(version=2))
        connection.execute(
            insert(t.process_definition_log).values(
                process_definition_id=definition,
                version=1,
                document=json.dumps(hostile_document()),
                user_name=HOSTILE[:60],
                note=HOSTILE,
            )
        )
    schedules = [a_schedule(db, definition or 0)]
    a_complement(db, definition or 0, state_reason=HOSTILE)
    with db.begin() as connection:
        connection.execute(update(t.complement_date).values(reason=HOSTILE))
        connection.execute(update(t.schedule).values(timezone_id=HOSTILE[:40], crontab=HOSTILE))
    query = quote(HOSTILE.replace("\n", " "))
    for place in (
        "/",
        f"/runs?definition={query}",
        *(
            f"/runs/{run}?view={each}&task=a"
            for each in ("graph", "timeline", "list", "parameters", "history")
        ),
        f"/runs/{run}?task={query}",
        f"/definitions?name={query}",
        "/schedules",
        *(f"/schedules/{each}" for each in (*schedules, "calendar")),
        "/complements/1",
        "/pools",
        "/alerts",
        "/audit",
        "/users",
        "/projects/1",
        "/datasources",
        *(
            f"/definitions/{definition}?view={each}"
            for each in ("grid", "graph", "runs", "schedules", query)
        ),
        *(
            f"/definitions/{definition}/{each}"
            for each in ("run", "versions", "compare", "restore")
        ),
        f"/find?q={query[:30]}",
        f"/login?next=/{query}",
        f"/runs/{run}?view={query}",
    ):
        text = get(client, place, ada).text
        read = Tags()
        read.feed(text)
        assert "img" not in read.tags, place
        assert not [each for each in read.attributes if each.startswith("on")], place
    shown = get(client, f"/runs/{run}", ada).text
    assert html.escape("<img src=x") in shown
    assert "{{ 7 * 7 }}" in shown


def hostile_document() -> dict[str, Any]:
    """A former version whose every text is hostile."""
    task = {"type": HOSTILE, "params": {"rawScript": f"{HOSTILE}\n" * 3, HOSTILE: HOSTILE}}
    names = ("a", HOSTILE, f"{HOSTILE} too")
    tasks = [{**task, "name": name, "preTasks": list(names[:1])} for name in names]
    return {"name": "x", "description": HOSTILE, "processDefinitionJson": {"tasks": tasks}}


def a_complement(db: Engine, definition: int, **values: Any) -> int:
    """Three dates, of which the second has failed; nobody carries it on."""
    states = ("success", "failure", "pending")
    with db.begin() as connection:
        made = connection.scalar(
            insert(t.complement)
            .values(
                {"process_definition_id": definition, "timezone_id": "UTC", "state": 1} | values
            )
            .returning(t.complement.c.id)
        )
        for place, state in enumerate(states):
            connection.execute(
                insert(t.complement_date).values(
                    complement_id=made,
                    position=place,
                    schedule_time=datetime(2013, 1, 1 + place, tzinfo=UTC),
                    state=state,
                )
            )
    return made or 0


def test_a_complement_is_shown_date_by_date_and_steered(
    client: TestClient, ada: str, db: Engine
) -> None:
    number = a_complement(db, a_definition(db))
    page = get(client, f"/complements/{number}", ada).text
    assert re.findall(r"<title>(2013-01-0\d)[^:<]*(?::\d\d)*: ([\w ]+)</title>", page) == [
        ("2013-01-01", "success"),
        ("2013-01-02", "failed"),
        ("2013-01-03", "pending"),
    ]
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', page))
    assert re.findall(r'action="/complements/\d+/(\w+)"', page) == ["pause", "cancel"]
    for verb, state, others in (
        ("pause", ComplementState.READY_PAUSE, ["resume", "cancel"]),
        ("resume", ComplementState.RUNNING, ["pause", "cancel"]),
        ("cancel", ComplementState.READY_STOP, []),
    ):
        done = client.post(
            f"/complements/{number}/{verb}",
            data={"csrf_token": token},
            headers={"Cookie": f"{COOKIE}={ada}"},
        )
        assert (done.status_code, done.headers["location"]) == (303, f"/complements/{number}")
        with db.connect() as connection:
            assert connection.scalar(select(t.complement.c.state)) == state
        page = get(client, f"/complements/{number}", ada).text
        assert re.findall(r'action="/complements/\d+/(\w+)"', page) == others
    refused = client.post(
        f"/complements/{number}/retry",
        data={"csrf_token": token},
        headers={"Cookie": f"{COOKIE}={ada}"},
    )
    assert (refused.status_code, "it is being cancelled" in refused.text) == (409, True)


def test_a_schedule_is_shown_with_its_fires_and_released(
    client: TestClient, ada: str, db: Engine
) -> None:
    document = a_definition_json("a")
    number = a_schedule(db, a_definition(db, process_definition_json=document))
    with db.begin() as connection:
        for day, outcome in ((1, "fired"), (2, "missed")):
            connection.execute(
                insert(t.schedule_fire).values(
                    schedule_id=number,
                    process_definition_id=1,
                    fire_time=datetime(2013, 1, day, 3, tzinfo=UTC),
                    outcome=outcome,
                )
            )
    page = get(client, f"/schedules/{number}", ada).text
    assert re.findall(r'<span class="word">(\w+)</span>', page) == ["missed", "fired"]
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', page))
    for verb, state in (("online", ReleaseState.ONLINE), ("offline", ReleaseState.OFFLINE)):
        assert (
            f'action="/schedules/{number}/{verb}"' in get(client, f"/schedules/{number}", ada).text
        )
        done = client.post(
            f"/schedules/{number}/{verb}",
            data={"csrf_token": token},
            headers={"Cookie": f"{COOKIE}={ada}"},
        )
        assert done.status_code == 303, done.text
        with db.connect() as connection:
            assert connection.scalar(select(t.schedule.c.release_state)) == state
    assert "schedule preview" in get(client, f"/schedules/{number}", ada).text


class Tags(HTMLParser):
    """The tags of a page, and the names of all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_browsers_are_told_to_load_nothing_from_elsewhere(
    client: TestClient, ada: str, db: Engine
) -> None:
    run = a_run(db, "flights")
    for place in ("/", "/runs", f"/runs/{run}", "/definitions", "/login", "/runs/999999"):
        answer = get(client, place, ada)
        assert answer.headers.get_list("content-security-policy") == [POLICY]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        loaded = re.findall(r'(?:src|href|action)="([^"]+)"', answer.text)
        assert all(each.startswith(("/", "?", "#")) for each in loaded), loaded
        # The policy allows no other style, and no script.
        (own, rest) = answer.text.split("</style>")
        assert own.endswith(f"<style>{STYLE}")
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", rest)
        for file in set(re.findall(r'"(/static/[^"]+)"', answer.text)):
            found = client.get(file)
            assert found.status_code == 200, file
            twice = re.sub(r"/(\w+)(\.js|\+)", r"/\1+\1\2", file)
            assert twice == file or client.get(twice).status_code == 404
            assert "immutable" in found.headers["cache-control"]
            assert client.get(re.sub(r"/static/\w+/", "/static/0/", file)).status_code == 404


def test_what_is_missing_is_a_page_that_says_so(client: TestClient, ada: str) -> None:
    answer = get(client, "/runs/2147483647", ada)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "there is no process instance 2147483647" in answer.text
    assert get(client, "/runs/99999999999", ada).status_code == 422
    assert get(client, "/runs/x", ada).status_code == 422


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_a_browser_reads_every_error_as_a_page_outside_of_the_apis(
    client: TestClient, ada: str, owner: Session, app: FastAPI, db: Engine
) -> None:
    def seen(place: str, session: str = ada, method: str = "GET", **more: str) -> Any:
        headers = {"Cookie": f"{COOKIE}={session}", **BROWSER, **more}
        return client.request(method, place, headers=headers)

    vera = session_of(client, owner, "vera", "viewer")
    a_definition(db)
    app.state.oidc = object()  # Any unforeseen error.
    found = {
        404: seen("/nowhere/at/all"),
        405: seen("/logout"),
        403: seen("/definitions/1/edit", vera),
        500: seen("/oidc/login?here=1"),
    }
    app.state.oidc = None
    for status, answer in found.items():
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html"), status
        assert ('class="side"' in answer.text, 'class="reason"' in answer.text) == (True, True)
        assert answer.headers["x-request-id"] in answer.text
    assert found[405].headers["allow"] == "POST"
    there = seen("/nowhere", **{"Accept-Language": "zh-CN"}).text
    assert ('lang="zh-CN"' in there, "there is nothing" in there) == (True, False)
    # A form that is refused repeats what was typed into it.
    note = {"csrf_token": csrf_token(ada), "number": "9", "reason": "not before <b>Monday</b>"}
    headers = {"Cookie": f"{COOKIE}={ada}", **BROWSER}
    refused = client.post("/projects/1/reject", data=note, headers=headers)
    assert refused.status_code == 404
    assert "not before &lt;b&gt;Monday&lt;/b&gt;" in refused.text
    # Without a log-in the page has no navigation. A name of another host gets the same page.
    assert 'class="side"' not in seen("/nowhere", "").text
    assert seen("/nowhere", "").status_code == 404
    other = seen("/", Host="elsewhere.example")
    assert (other.status_code, "<h1>" in other.text, "vera" in other.text) == (421, True, False)
    # A program reads JSON: of the APIs whatever it accepts, elsewhere unless it names HTML.
    for place in ("/api/v1/nowhere", "/dolphinscheduler/nowhere", "/druid/indexer/v1/nowhere"):
        assert "html" not in seen(place).headers.get("content-type", ""), place
    assert seen("/nowhere", Accept="*/*").json()["type"] == "/problems/not-found"
    assert seen("/nowhere", Accept="text/html;q=0, */*").json()["status"] == 404


def test_every_path_without_a_page_is_of_programs_or_leads_to_a_page(app: FastAPI) -> None:
    pages = {each.path for each in PAGES} | {"/login", "/language", "/console"}
    firsts = {
        each.path.split("/")[1]  # type: ignore[attr-defined]
        for each in app.routes
        if each.path not in pages  # type: ignore[attr-defined]
    }
    assert firsts == {*PROGRAMS, "oidc", "spark-ui", "static"}


def test_lists_go_on_and_choose(client: TestClient, ada: str, db: Engine) -> None:
    run = a_run(db, "flights")
    for _ in range(50):
        an_instance(db, ProcessState.SUCCESS, process_definition_id=1, name="flights")
    first = get(client, "/runs", ada).text
    assert f'href="/runs/{run}"' not in first
    (place,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert f'href="/runs/{run}"' in get(client, html.unescape(place), ada).text
    failed = get(client, "/runs?state=FAILURE&definition=", ada).text
    assert re.findall(r'<td><a href="/runs/(\d+)"', failed) == [str(run)]
    assert "No such run" in get(client, "/runs?definition=none", ada).text


def test_pages_say_that_the_database_is_away(
    client: TestClient, ada: str, app: FastAPI, db: Engine
) -> None:
    def seen(place: str) -> Any:
        headers = {"Cookie": f"{COOKIE}={ada}", "Accept": "text/html,*/*;q=0.8"}
        return client.get(place, headers=headers)

    app.state.patience_seconds = 0.2
    with client, db.connect() as other:
        # It says nothing: nobody waits for it.
        other.execute(text("LOCK TABLE t_ds_process_definition IN ACCESS EXCLUSIVE MODE"))
        answers = [seen(place) for place in ("/", "/definitions", "/runs")]
        other.rollback()
        app.state.patience_seconds = 60
        assert seen("/definitions").status_code == 200
    app.state.engine = engine("postgresql+psycopg2://nobody@127.0.0.1:1/none")
    for answer in (*answers, seen("/runs")):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["content-type"].startswith("text/html")
        assert '<p class="reason">' in answer.text
