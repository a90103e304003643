"""The form of a schedule: made, changed and deleted in the console, without a browser."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, func, insert, select, update

from api.cookies import COOKIE
from common.masking import MASK
from common.model.states import ReleaseState
from common.store import tables as t
from operations.log_ins import csrf_token
from operations.session import Session
from tests.builders import a_definition_json
from tests.integration.api_worlds import a_schedule
from tests.integration.cli_rows import a_definition
from tests.integration.console_visits import get, session_of

pytestmark = pytest.mark.usefixtures("at_console")
NEW = "/schedules/new"


@pytest.fixture
def definition(db: Engine) -> int:
    return a_definition(db, name="flights", process_definition_json=a_definition_json("a"))


def a_foreign_definition(db: Engine) -> int:
    """A definition of a project in which nobody has a role."""
    with db.begin() as connection:
        project = connection.scalar(insert(t.project).values(name="p2").returning(t.project.c.id))
    return a_definition(
        db, name="not-for-you", project_id=project, process_definition_json=a_definition_json("a")
    )


def post(client: TestClient, session: str, place: str, **fields: str) -> Any:
    return client.post(
        place,
        headers={"Cookie": f"{COOKIE}={session}"},
        data={"csrf_token": csrf_token(session), **fields},
    )


def fields_of(page: str) -> dict[str, str]:
    """The fields of the form as a browser sends them when nothing is typed."""
    form = page[page.index('<form class="columns draft"') :]
    found = dict(re.findall(r'<input(?: type="hidden")? name="([^"]+)" value="([^"]*)"', form))
    for name, options in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        (chosen,) = re.findall(r'<option value="([^"]*)" selected', options) or ["none"]
        found[name] = chosen
    (params,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    found["params"] = params
    return {name: html.unescape(text) for name, text in found.items()}


def audit(db: Engine, *actions: str) -> list[tuple[Any, ...]]:
    line = t.audit_log.c
    wanted = select(line.action, line.outcome, line.user_name).order_by(line.id)
    with db.connect() as connection:
        rows = connection.execute(wanted.where(line.action.in_(actions))).all()
    return [tuple(row) for row in rows]


def test_a_schedule_is_made_as_the_form_says_and_once_however_often_it_is_sent(
    client: TestClient, ada: str, db: Engine, definition: int
) -> None:
    listed = get(client, f"/definitions/{definition}?view=schedules", ada).text
    assert f'href="{NEW}?definition={definition}"' in listed
    assert f'href="{NEW}"' in get(client, "/schedules", ada).text
    assert f'href="{NEW}?definition={definition}"' in get(client, NEW, ada).text
    page = get(client, f"{NEW}?definition={definition}", ada)
    assert page.status_code == 200
    sent = fields_of(page.text) | {
        "cron": "0 30 2 * * ?",
        "zone": "America/New_York",
        "from": "2040-03-10",
        "to": "2040-03-13",
        "deadline": "2h",
        "priority": "HIGH",
        "execution_type": "SERIAL_WAIT",
        "params": "region=eu\r\nmore=a=b\r\n",
    }
    shown = post(client, ada, f"{NEW}/check", **sent)
    assert shown.status_code == 200
    # The night of the 11th has no half past two.
    assert re.findall(r"<li><span>([^<]+)", shown.text) == [
        "2040-03-10 02:30:00-05:00",
        "2040-03-11 03:30:00-04:00",
        "2040-03-12 02:30:00-04:00",
        "2040-03-13 02:30:00-04:00",
    ]
    assert "at 02:30:00 every day" in shown.text
    assert "shifted: the clock skips 2040-03-11 02:30:00" in shown.text
    assert fields_of(shown.text) == sent
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.schedule)) == 0
    for _ in range(2):
        done = post(client, ada, NEW, **sent)
        assert (done.status_code, done.headers["location"]) == (303, "/schedules/1")
    with db.connect() as connection:
        (row,) = connection.execute(select(t.schedule)).all()
    assert (row.process_definition_id, row.crontab) == (definition, "0 30 2 * * ?")
    assert (row.timezone_id, row.process_instance_priority) == ("America/New_York", 1)
    assert row.start_time == datetime(2040, 3, 10, 5, tzinfo=UTC)
    assert row.end_time == datetime(2040, 3, 14, 3, 59, 59, tzinfo=UTC)
    assert json.loads(row.start_params) == {"region": "eu", "more": "a=b"}
    assert (row.execution_type, row.release_state) == (1, int(ReleaseState.OFFLINE))
    assert audit(db, "schedule.create") == [("schedule.create", "done", "ada")] * 2
    # The back button and another line: told first, and made by one more press.
    other = post(client, ada, NEW, **sent | {"cron": "0 0 4 * * ?"})
    assert (other.status_code, "made a schedule already" in other.text) == (422, True)
    assert fields_of(other.text)["cron"] == "0 0 4 * * ?"
    again = post(client, ada, NEW, **fields_of(other.text))
    assert again.headers["location"] == "/schedules/2"


def test_mistakes_stand_beside_their_fields_and_what_was_typed_stays(
    client: TestClient, ada: str, db: Engine, definition: int
) -> None:
    fresh = fields_of(get(client, f"{NEW}?definition={definition}", ada).text)
    wrong = {
        "cron": "0 0 25 * * ?",
        "zone": "America/New_Yrk",
        "misfire_limit": "0",
        "deadline": "soon",
        "params": "nothing",
        "priority": "URGENT",
    }
    told = {
        "cron": "position 5, hours",
        "zone": "did you mean America/New_York?",
        "misfire_limit": "is a whole number from 1 to 10,000",
        "deadline": "is no span of time",
        "params": "is not NAME=VALUE",
        "priority": "known are HIGHEST",
    }
    for place in (NEW, f"{NEW}/check"):
        page = post(client, ada, place, **fresh | wrong)
        assert page.status_code == 422
        for field, text in told.items():
            about = page.text.partition(f'id="about-{field}"')[2].partition("</label>")[0]
            assert text in html.unescape(about), field
        assert page.text.partition("</style>")[2].count('aria-invalid="true"') == len(told)
        kept = fields_of(page.text)
        assert {key: kept[key] for key in ("cron", "zone", "deadline", "params")} == {
            key: wrong[key] for key in ("cron", "zone", "deadline", "params")
        }
    for field, text, said in (
        ("cron", "", "is missing"),
        ("from", "someday", "is no time"),
        ("to", "2001-01-01", "ends before it starts"),
        ("zone", "", "is missing"),
    ):
        page = post(client, ada, NEW, **fresh | {"cron": "0 0 3 * * ?"} | {field: text})
        about = page.text.partition(f'id="about-{field}"')[2].partition("</label>")[0]
        assert (page.status_code, said in html.unescape(about)) == (422, True), field
    # A line that never comes true within its window is told beforehand.
    never = post(
        client, ada, f"{NEW}/check", **fresh | {"cron": "0 0 3 29 2 ?", "to": "2027-01-01"}
    )
    assert (never.status_code, "Never" in never.text) == (200, True)
    for number in ("x", "0", "99999999999"):
        assert get(client, f"{NEW}?definition={number}", ada).status_code in (404, 422)
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.schedule)) == 0


def test_a_look_is_sent_as_a_part_of_the_page(
    client: TestClient, ada: str, definition: int
) -> None:
    answer = client.post(
        f"{NEW}/check",
        headers={"Cookie": f"{COOKIE}={ada}", "Orcaflow-Parts": "look=x"},
        data={"csrf_token": csrf_token(ada), "definition": str(definition), "cron": "0 0 3 * * ?"},
    )
    assert list(answer.json()["parts"]) == ["look"]
    assert answer.json()["parts"]["look"]["html"].count("<li>") == 5


def test_a_schedule_is_changed_and_what_the_form_cannot_show_stays(
    client: TestClient, ada: str, db: Engine, definition: int
) -> None:
    number = a_schedule(db, definition)
    begins = datetime(2013, 1, 1, 2, 3, 4, 567890, tzinfo=UTC)
    stored = {"password": "s3cret", "region": "eu"}
    with db.begin() as connection:
        connection.execute(
            update(t.schedule).values(start_time=begins, start_params=json.dumps(stored))
        )
    place = f"/schedules/{number}/edit"
    assert f'href="{place}"' in get(client, f"/schedules/{number}", ada).text
    page = get(client, place, ada).text
    assert "s3cret" not in page
    shown = fields_of(page)
    assert shown["params"] == f"password={MASK}\nregion=eu"
    assert page.count("<li><span>") == 5
    # Nothing was changed, so nothing is saved.
    assert post(client, ada, place, **shown).status_code == 303
    assert audit(db, "schedule.edit") == []
    changed = shown | {"cron": "0 0 4 * * ?", "params": f"password={MASK}\r\nregion=us\r\n"}
    done = post(client, ada, place, **changed)
    assert (done.status_code, done.headers["location"]) == (303, f"/schedules/{number}")
    with db.connect() as connection:
        (row,) = connection.execute(select(t.schedule)).all()
    assert (row.crontab, row.start_time) == ("0 0 4 * * ?", begins)
    assert json.loads(row.start_params) == {"password": "s3cret", "region": "us"}
    assert audit(db, "schedule.edit") == [("schedule.edit", "done", "ada")]
    with db.begin() as connection:
        connection.execute(update(t.schedule).values(release_state=int(ReleaseState.ONLINE)))
    online = get(client, place, ada).text
    assert "It is ONLINE and stays so" in online
    wrong = post(client, ada, place, **fields_of(online) | {"cron": "0 0 25 * * ?"})
    assert (wrong.status_code, fields_of(wrong.text)["cron"]) == (422, "0 0 25 * * ?")
    typed = fields_of(online) | {"cron": "0 0 5 * * ?"}
    assert post(client, ada, place, **typed).status_code == 303
    with db.begin() as connection:
        (row,) = connection.execute(select(t.schedule)).all()
        connection.execute(update(t.process_definition).values(release_state=0))
    assert (row.crontab, row.release_state) == ("0 0 5 * * ?", int(ReleaseState.ONLINE))
    # What can't be saved is still in the form, and the schedule fires as before.
    late = fields_of(get(client, place, ada).text) | {"cron": "0 0 6 * * ?"}
    refused = post(client, ada, place, **late)
    assert (refused.status_code, fields_of(refused.text)["cron"]) == (409, "0 0 6 * * ?")
    with db.connect() as connection:
        (row,) = connection.execute(select(t.schedule)).all()
    assert (row.crontab, row.release_state) == ("0 0 5 * * ?", int(ReleaseState.ONLINE))


def test_who_saves_second_is_refused_and_shown_what_the_first_has_changed(
    client: TestClient, ada: str, owner: Session, db: Engine, definition: int
) -> None:
    number = a_schedule(db, definition)
    place = f"/schedules/{number}/edit"
    bea = session_of(client, owner, "bea", "author")
    first, second = (fields_of(get(client, place, each).text) for each in (ada, bea))
    assert post(client, ada, place, **first | {"cron": "0 0 4 * * ?"}).status_code == 303
    late = post(client, bea, place, **second | {"priority": "LOW", "deadline": "1h"})
    assert (late.status_code, "Somebody has changed this schedule" in late.text) == (409, True)
    assert audit(db, "schedule.edit") == [
        ("schedule.edit", "done", "ada"),
        ("schedule.edit", "refused", "bea"),
    ]
    merged = fields_of(late.text)
    # What she did not touch is as the first has saved it, so that her next press undoes nothing.
    assert {key: merged[key] for key in ("cron", "priority", "deadline")} == {
        "cron": "0 0 4 * * ?",
        "priority": "LOW",
        "deadline": "1h",
    }
    assert post(client, bea, place, **merged).status_code == 303
    with db.connect() as connection:
        (row,) = connection.execute(select(t.schedule)).all()
    assert (row.crontab, row.process_instance_priority) == ("0 0 4 * * ?", 3)
    # The same form for a second time is late, and so is a deletion.
    assert post(client, bea, place, **merged | {"cron": "0 0 6 * * ?"}).status_code == 409
    assert post(client, bea, f"/schedules/{number}/delete", tag=merged["tag"]).status_code == 412
    assert post(client, bea, place, **merged | {"tag": ""}).status_code == 422


def test_a_schedule_is_deleted_by_a_second_press(
    client: TestClient, ada: str, db: Engine, definition: int
) -> None:
    number = a_schedule(db, definition)
    page = get(client, f"/schedules/{number}", ada).text
    assert f'data-verb="/schedules/{number}/delete"' in page
    (tag,) = re.findall(r'name="tag" value="([^"]+)"', page)
    assert post(client, ada, f"/schedules/{number}/delete").status_code == 422
    done = post(client, ada, f"/schedules/{number}/delete", tag=html.unescape(tag))
    goes = (done.status_code, done.headers["location"])
    assert goes == (303, f"/definitions/{definition}?view=schedules")
    assert audit(db, "schedule.delete") == [("schedule.delete", "done", "ada")]
    assert post(client, ada, f"/schedules/{number}/delete", tag="x").status_code == 404


def test_schedules_are_for_authors_and_those_of_foreign_projects_are_missing(
    client: TestClient, ada: str, owner: Session, db: Engine, definition: int
) -> None:
    foreign = a_foreign_definition(db)
    number, hidden = a_schedule(db, definition), a_schedule(db, foreign)
    eve = session_of(client, owner, "eve", "viewer")
    fields = {"cron": "0 0 3 * * ?", "tag": "*", "once": "k"}
    bea = session_of(client, owner, "bea", "author")
    for session, mine, schedule, status in (
        (eve, definition, number, 403),
        (bea, foreign, hidden, 404),
    ):
        asked = {**fields, "definition": str(mine)}
        answers = [
            get(client, f"{NEW}?definition={mine}", session),
            get(client, f"/schedules/{schedule}/edit", session),
            post(client, session, f"{NEW}/check", **asked),
            post(client, session, NEW, **asked),
            post(client, session, f"/schedules/{schedule}/edit/check", **fields),
            post(client, session, f"/schedules/{schedule}/edit", **fields),
            post(client, session, f"/schedules/{schedule}/delete", **fields),
        ]
        assert [each.status_code for each in answers] == [status] * 7
        assert not any("not-for-you" in each.text for each in answers)
    assert "/schedules/new" not in get(client, "/schedules", eve).text
    assert "not-for-you" not in get(client, NEW, bea).text
    assert f"/schedules/{number}/edit" not in get(client, f"/schedules/{number}", eve).text
    for place in (NEW, f"/schedules/{number}/edit", f"/schedules/{number}/delete"):
        answer = client.post(
            place,
            headers={"Cookie": f"{COOKIE}={ada}"},
            data={"csrf_token": "x", "definition": str(definition), **fields},
        )
        assert answer.status_code == 403
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.schedule)) == 2
