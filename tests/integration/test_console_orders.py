"""Orders in the console without a browser: forms that begin runs, find things and administer."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select, update

from api.cookies import COOKIE
from common.model.commands import CommandType
from common.model.states import ProcessState, ReleaseState
from common.store import tables as t
from operations.datasources import create_datasource
from operations.instance_commands import put_commands
from operations.log_ins import csrf_token
from operations.scheduling import set_release_state
from operations.session import Session
from operations.tasks import force_success
from tests.builders import a_definition_json
from tests.integration.api_worlds import a_schedule
from tests.integration.cli_rows import a_definition
from tests.integration.console_visits import a_run, get, session_of

pytestmark = pytest.mark.usefixtures("at_console")


def test_a_run_begins_as_the_form_says_once_what_it_will_do_is_confirmed(
    client: TestClient, ada: str, db: Engine
) -> None:
    document = a_definition_json("a >> b >> c").removesuffix("}") + (
        ', "globalParams": [{"prop": "day", "direct": "IN", "type": "DATE", "value":'
        ' "$[yyyy-MM-dd]"}, {"prop": "limit", "direct": "IN", "type": "INTEGER", "value": "10"}]}'
    )
    number = a_definition(db, name="flights", process_definition_json=document)
    place = f"/definitions/{number}/run"
    assert f'href="{place}"' in get(client, f"/definitions/{number}", ada).text
    page = get(client, place, ada).text
    kinds = re.findall(r'<input type="(\w+)" name="param:(\w+)"', page)
    assert kinds == [("date", "day"), ("number", "limit")]
    assert "<code>$[yyyy-MM-dd]</code>" in page
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', page))

    def sent(to: str, **fields: str) -> Any:
        headers = {"Cookie": f"{COOKIE}={ada}"}
        return client.post(to, data={"csrf_token": token, **fields}, headers=headers)

    wrong = sent(f"{place}/check", **{"param:limit": "many", "start_nodes": "b"})
    assert wrong.status_code == 422
    assert "limit: is a whole number" in html.unescape(wrong.text)
    assert 'name="start_nodes" value="b"' in wrong.text
    assert "no task &#39;x&#39;" in sent(f"{place}/check", start_nodes="x").text
    asked = {
        "param:limit": "7",
        "params": "more=than=declared\r\n",
        "date": "2013-01-02",
        "start_nodes": "b",
        "priority": "HIGH",
        "worker_group": "default",
    }
    shown = sent(f"{place}/check", **asked)
    assert shown.status_code == 200
    assert re.findall(r"<td>(\w+)</td><td><code>([^<]+)", shown.text) == [
        ("day", "2013-01-02"),
        ("limit", "7"),
        ("more", "than=declared"),
    ]
    assert "<b>2</b> tasks: b, c" in shown.text
    assert (
        "orcaflow run flights --date 2013-01-02 --start-nodes b --priority high"
        " --worker-group default --param limit=7 --param more=than=declared" in shown.text
    )
    confirmed = dict(
        re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', shown.text)
    )
    for _ in range(2):
        done = sent(place, **confirmed)
        goes = (done.status_code, done.headers["location"])
        assert goes == (303, f"/definitions/{number}?view=runs")
    with db.connect() as connection:
        (row,) = connection.execute(select(t.command)).all()
    assert (row.process_definition_id, row.process_instance_priority) == (number, 1)
    assert '"limit":"7"' in row.command_param.replace("\\", "").replace(": ", ":")


def test_what_is_looked_for_is_found_by_name_number_and_word(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    run = a_run(db, "Flights_of")
    a_definition(db, name="flightsxof", process_definition_json=a_definition_json("a"))
    foreign = session_of(client, owner, "bea", "none")

    def found(text: str, session: str) -> list[tuple[str, str, str]]:
        headers = {"Cookie": f"{COOKIE}={session}", "Accept": "application/json"}
        answer = client.get(f"/find?q={quote(text)}", headers=headers)
        return [(each["kind"], each["name"], each["href"]) for each in answer.json()["items"]]

    assert found("flights_", ada) == [
        ("definition", "Flights_of", "/definitions/1"),
        ("verb", "Run Flights_of…", "/definitions/1/run"),
    ]
    assert found(f"run {run}", ada) == [("run", f"Run {run}", f"/runs/{run}")]
    assert ("project", "default", "/definitions?project=1") in found("defau", ada)
    assert found("instan", ada) == [("page", "Runs", "/runs")]
    assert found("alerts", ada) == found("99999999999", ada) == []
    assert [found(text, foreign) for text in ("flights", str(run), "default")] == [[], [], []]
    assert "Flights_of" in get(client, "/find?q=flights", ada).text
    listed = get(client, "/definitions?name=_OF&project=1", ada).text
    assert re.findall(r'<td><a href="/definitions/(\d+)"', listed) == ["1"]
    assert get(client, "/definitions?project=x", ada).status_code == 422


def test_the_form_of_a_run_makes_a_complement_of_past_dates(
    client: TestClient, ada: str, db: Engine
) -> None:
    number = a_definition(db, name="flights", process_definition_json=a_definition_json("a"))
    place = f"/definitions/{number}/run"
    headers = {"Cookie": f"{COOKIE}={ada}"}
    form = {"csrf_token": csrf_token(ada), "first": "2013-01-01", "last": "2013-01-05"}
    shown = client.post(f"{place}/check", data={**form, "parallelism": "2"}, headers=headers)
    assert "<b>5</b> of <b>5</b> dates run" in shown.text
    confirmed = dict(
        re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', shown.text)
    )
    places = [client.post(place, data=confirmed, headers=headers).headers for _ in range(2)]
    assert [each["location"] for each in places] == ["/complements/1", "/complements/1"]
    with db.connect() as connection:
        assert connection.scalars(select(t.complement.c.parallelism)).all() == [2]
    # The meaning of a date is chosen, and the look ahead names it with the line of a terminal.
    ruled = {**form, "date_rule": "business_date", "parallelism": "3"}
    shown = client.post(f"{place}/check", data=ruled, headers=headers)
    assert "dates are business dates" in shown.text
    assert "--date-rule business_date" in shown.text
    assert client.post(place, data=ruled, headers=headers).status_code == 303
    with db.connect() as connection:
        rules = connection.scalars(select(t.complement.c.date_rule).order_by(t.complement.c.id))
        assert rules.all() == ["schedule_time", "business_date"]
    wrong = client.post(f"{place}/check", data={**form, "date_rule": "x"}, headers=headers)
    assert wrong.status_code == 422
    # An order that is refused shows the form with what was typed.
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(release_state=0))
    refused = client.post(place, data=ruled, headers=headers)
    assert refused.status_code == 409
    for typed in ('value="2013-01-05"', 'value="business_date" selected', 'value="3"'):
        assert typed in refused.text
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(release_state=1))
    late = client.post(f"{place}/check", data={**form, "parallelism": "0"}, headers=headers)
    assert (late.status_code, "must be from 1 to 1000" in late.text) == (422, True)


def test_a_data_source_tells_who_uses_it_and_no_password(
    client: TestClient, owner: Session, db: Engine
) -> None:
    root = session_of(client, owner, "root", None)
    eve = session_of(client, owner, "eve", "author")
    bea = session_of(client, owner, "bea", "operator")
    password = "pa55-of-the-source"
    url = "postgresql+psycopg2://eve@127.0.0.1:1/dw"
    saved = create_datasource(
        owner,
        "dw",
        url,
        password=password,
        type_=None,
        note=None,
        replace=False,
        projects=["default"],
    )
    number = saved.view.id
    with db.begin() as connection:
        foreign = connection.scalar(insert(t.project).values(name="p2").returning(t.project.c.id))
    task = {"name": "a", "type": "SQL", "params": {"datasource": number, "sql": "SELECT 1"}}
    document = json.dumps({"tasks": [task]})
    a_definition(db, name="uses", process_definition_json=document)
    a_definition(db, name="hidden", process_definition_json=document, project_id=foreign)
    place = f"/datasources/{number}"
    seen, all_of_it = get(client, place, eve).text, get(client, place, root).text
    assert re.findall(r'href="/definitions/\d+">(\w+)<', seen) == ["uses"]
    assert ("1 definitions of other projects" in seen, "/test" in seen) == (True, False)
    assert re.findall(r'href="/definitions/\d+">(\w+)<', all_of_it) == ["uses", "hidden"]
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', all_of_it))
    headers = {"Cookie": f"{COOKIE}={root}"}
    tried = client.post(f"{place}/test", data={"csrf_token": token}, headers=headers)
    assert (tried.status_code, 'role="alert"' in tried.text) == (200, True)
    shown = (seen, all_of_it, tried.text, get(client, "/datasources", root).text)
    assert not [each for each in shown if password in each]
    assert get(client, place, bea).status_code == 403
    assert "Data sources" not in get(client, "/", bea).text


def test_people_get_roles_and_tokens_and_lose_them(
    client: TestClient, owner: Session, db: Engine
) -> None:
    root = session_of(client, owner, "root", None)

    def sent(place: str, session: str, **fields: str) -> Any:
        form = {"csrf_token": csrf_token(session), **fields}
        return client.post(place, data=form, headers={"Cookie": f"{COOKIE}={session}"})

    assert sent("/users", root, name="ada").headers["location"] == "/users/3"
    assert sent("/users", root, name="ada").status_code == 409
    assert sent("/users", root, name="a b").status_code == 422
    given = sent("/projects/1/members", root, user="ada", role="operator")
    assert given.headers["location"] == "/projects/1"
    assert re.findall(r"<option selected>(\w+)", get(client, "/projects/1", root).text)[0] == (
        "operator"
    )
    assert "default: operator" in get(client, "/users", root).text
    made = sent("/tokens", root, name="ci", role="viewer", days="30")
    assert made.headers["cache-control"] == "no-store"
    (text,) = re.findall(r'<pre class="code">(\S+)</pre>', made.text)
    bearer = {"Authorization": f"Bearer {text}"}
    assert client.get("/api/v1/me", headers=bearer).status_code == 200
    listed = get(client, "/tokens", root).text
    assert text not in listed
    (number,) = re.findall(r'action="/tokens/(\d+)/revoke"', listed)
    assert sent(f"/tokens/{number}/revoke", root).status_code == 303
    assert client.get("/api/v1/me", headers=bearer).status_code == 401
    assert sent("/tokens", root, name="ci", role="viewer", days="366").status_code == 422
    assert sent("/users/3/disable", root).headers["location"] == "/users/3"
    assert 'action="/users/3/enable"' in get(client, "/users/3", root).text


def test_the_audit_is_chosen_from_for_administrators(client: TestClient, owner: Session) -> None:
    root = session_of(client, owner, "root", None)
    text = get(client, "/audit?action=user.create&user=database", root).text
    assert re.findall(r"<td>user.create</td>", text) == ["<td>user.create</td>"]
    assert 'name="action" value="user.create"' in text
    assert "No such line" in get(client, "/audit?object_id=7", root).text
    assert get(client, "/audit?object_id=x", root).status_code == 422
    assert 'href="/audit"' in text


def test_the_calendar_has_the_ledgers_fires_those_to_come_and_the_reason_of_none(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    document = a_definition_json("a")
    runs = a_run(db, "nightly", ProcessState.SUCCESS)
    numbers = [
        a_schedule(db, a_definition(db, name=name, process_definition_json=document))
        for name in ("goes", "rests")
    ]
    set_release_state(owner, ReleaseState.ONLINE, ids=numbers[:1], now=datetime.now(UTC))
    with db.begin() as connection:
        connection.execute(
            insert(t.schedule_fire).values(
                schedule_id=numbers[0],
                process_definition_id=2,
                fire_time=datetime(2013, 1, 2, 3, tzinfo=UTC),
                outcome="fired",
                process_instance_id=runs,
            )
        )
    past = get(client, "/schedules/calendar?week=2013-01-06", ada).text
    assert re.findall(r'class="mark" href="(/runs/\d+)" title="03:00 (\w+)"', past) == [
        (f"/runs/{runs}", "success")
    ]
    assert re.findall(r'rests</a><br><span class="dim">(\w+)', past) == ["OFFLINE"]
    ahead = datetime.now(UTC) + timedelta(days=14)
    coming = get(client, f"/schedules/calendar?week={ahead:%Y-%m-%d}", ada).text
    assert len(re.findall(r'class="mark" title="03:00 to come"', coming)) == 7
    (token,) = set(re.findall(r'name="csrf_token" value="(\w+)"', coming))
    headers = {"Cookie": f"{COOKIE}={ada}"}
    form = {"csrf_token": token, "days": "10", "slots": "1", "assume": "90s"}
    played = client.post("/schedules/simulate", data=form, headers=headers)
    assert re.findall(r'<td class="number">(\d+)</td>', played.text)[:2] == ["10", "10"]
    assert "1 m 30 s" in played.text
    for wrong in ({"days": "0"}, {"days": "367"}, {"assume": "soon"}, {"slots": "many"}):
        answer = client.post("/schedules/simulate", data={**form, **wrong}, headers=headers)
        assert answer.status_code == 422, wrong
    for week in ("soon", "0001-01-01"):
        assert get(client, f"/schedules/calendar?week={week}", ada).status_code == 422


def test_the_history_of_a_run_tells_who_has_ordered_what(
    client: TestClient, owner: Session, ada: str, db: Engine
) -> None:
    runs = [a_run(db, "flights"), a_run(db, "hotels")]
    with db.connect() as connection:
        attempts = select(t.task_instance.c.id).where(t.task_instance.c.name == "b")
        attempt = connection.scalars(attempts.order_by(t.task_instance.c.id)).first() or 0
    force_success(owner, attempt)
    put_commands(owner, runs, CommandType.REPEAT_RUNNING)
    with db.begin() as connection:
        # A rerun starts a run anew, behind the order for it.
        now = datetime.now(UTC)
        connection.execute(
            update(t.process_instance).values(start_time=now, command_start_time=now - timedelta(1))
        )
    texts = [get(client, f"/runs/{run}?view=history", ada).text for run in runs]
    found = [re.findall(r"<code>(\S+)</code> was ordered", text) for text in texts]
    assert found == [["rerun", "force-success"], ["rerun"]]
    assert all("commands " in text for text in texts)
    other = a_run(db, "trains")
    assert "was ordered" not in get(client, f"/runs/{other}?view=history", ada).text
    viewer = session_of(client, owner, "sees", "viewer")
    assert "force-success" in get(client, f"/runs/{runs[0]}?view=history", viewer).text
