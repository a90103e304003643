"""The editor of drafts and the pages of proposals, without a browser."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from api.cookies import COOKIE
from common.store import tables as t
from operations.log_ins import csrf_token
from operations.projects import create_project
from operations.proposals import propose
from operations.session import Session
from tests.integration.console_visits import get, session_of
from tests.integration.reviewing import a_document, a_person, imported, scripts_of, with_review

pytestmark = pytest.mark.usefixtures("at_console")
SHELL = {"type": "SHELL", "params": "{}", "others": "{}"}


@pytest.fixture
def nightly(owner: Session) -> int:
    return imported(owner, a_document(a="1", b="1"))


def post(client: TestClient, place: str, session: str, **form: str) -> Any:
    return client.post(
        place,
        headers={"Cookie": f"{COOKIE}={session}"},
        data={"csrf_token": csrf_token(session), **form},
    )


def tag_of(page: str) -> str:
    (found,) = set(re.findall(r'name="tag" value="([^"]*)"', page))
    return html.unescape(found)


def draft_of(db: Engine) -> Any:
    with db.connect() as connection:
        text = connection.scalar(
            select(t.definition_draft_save.c.content).order_by(
                t.definition_draft_save.c.revision.desc()
            )
        )
    return None if text is None else json.loads(text)


def test_a_task_is_changed_renamed_added_and_removed_by_forms_alone(
    client: TestClient, ada: str, db: Engine, nightly: int
) -> None:
    place = f"/definitions/{nightly}/edit"
    page = get(client, f"{place}?task=a", ada).text
    assert re.findall(r'data-name="(\w+)"', page) == ["a", "b"]
    assert draft_of(db) is None
    task = {**SHELL, "tag": tag_of(page), "task": "a", "script": "echo 1\r\necho 2", "before": ""}
    saved = post(client, place, ada, **task, name="first", maxRetryTimes="2")
    assert (saved.status_code, saved.headers["location"]) == (303, f"{place}?task=first")
    (first, other) = draft_of(db)["processDefinitionJson"]["tasks"]
    assert (first["name"], first["params"]["rawScript"]) == ("first", "echo 1\necho 2")
    assert (first["id"], first["maxRetryTimes"], other["preTasks"]) == ("tasks-a", 2, ["first"])

    page = get(client, f"{place}?task=first", ada).text
    assert "echo 1\necho 2</textarea>" in page
    more = {**SHELL, "tag": tag_of(page), "task": "first", "name": "first", "script": "true"}
    added = post(client, place, ada, **more, act="add")
    assert added.headers["location"] == f"{place}?task=task-1"
    page = get(client, f"{place}?task=first", ada).text
    gone = post(client, place, ada, **{**more, "tag": tag_of(page)}, act="remove")
    assert gone.headers["location"] == place
    assert [
        (each["name"], each["preTasks"]) for each in draft_of(db)["processDefinitionJson"]["tasks"]
    ] == [
        ("b", []),
        ("task-1", []),
    ]
    page = get(client, place, ada).text
    done = post(client, place, ada, tag=tag_of(page), act="discard")
    assert (done.status_code, draft_of(db)) == (303, None)


def test_wrong_fields_are_shown_as_they_were_typed_and_save_nothing(
    client: TestClient, ada: str, db: Engine, nightly: int
) -> None:
    place = f"/definitions/{nightly}/edit"
    task = {"tag": tag_of(get(client, place, ada).text), "task": "a", "name": "a", "type": "SHELL"}
    refused = post(client, place, ada, **task, script="typed", params='{"x": ', others="{}")
    assert refused.status_code == 422
    assert "typed</textarea>" in refused.text
    assert "{&#34;x&#34;: </textarea>" in refused.text
    assert "not JSON" in refused.text
    assert draft_of(db) is None


def test_a_whole_text_with_mistakes_is_kept_and_told_beside_its_place(
    client: TestClient, ada: str, nightly: int
) -> None:
    place = f"/definitions/{nightly}/edit"
    tag = tag_of(get(client, f"{place}?view=document", ada).text)
    kept = post(client, place, ada, tag=tag, view="document", content='{"name": ')
    assert (kept.status_code, kept.headers["location"]) == (303, f"{place}?view=document")
    page = get(client, place, ada).text
    assert "{&#34;name&#34;: </textarea>" in page
    assert "not JSON" in page
    lost = a_document(a="1", b="1")
    lost["processDefinitionJson"]["tasks"][1]["preTasks"] = ["nobody"]
    text = json.dumps(lost)
    post(client, place, ada, tag=tag_of(page), view="document", content=text, act="yaml")
    page = get(client, f"{place}?task=b", ada).text
    assert "nobody" in page.partition('id="e-findings"')[2].partition("</div>")[0]
    assert page.count('class="sr">has mistakes') == 1
    assert "name: nightly" in get(client, f"{place}?view=document", ada).text


def test_two_windows_are_merged_or_the_second_is_told_what_was_changed(
    client: TestClient, ada: str, db: Engine, nightly: int
) -> None:
    place = f"/definitions/{nightly}/edit"
    tag = tag_of(get(client, place, ada).text)
    for task in ("a", "b"):
        form = {**SHELL, "tag": tag, "task": task, "name": task, "script": f"new {task}"}
        before = {"before": "a" if task == "b" else ""}
        assert post(client, place, ada, **form, **before).status_code == 303
    assert scripts_of(draft_of(db)) == {"a": "new a", "b": "new b"}
    form = {**SHELL, "tag": tag, "task": "a", "name": "a", "script": "late"}
    late = post(client, place, ada, **form)
    assert (late.status_code, "late</textarea>" in late.text) == (409, True)
    assert "task &#39;a&#39; changed" in late.text


def test_a_definition_is_made_from_nothing_in_the_editor(
    client: TestClient, ada: str, db: Engine, owner: Session
) -> None:
    assert 'href="/definitions/new"' in get(client, "/definitions", ada).text
    place = "/projects/1/edit"
    assert f'href="{place}"' in get(client, "/definitions/new", ada).text
    page = get(client, place, ada).text
    assert "There are no tasks yet." in page
    added = post(client, place, ada, tag=tag_of(page), definition=" hourly ", act="add")
    assert added.headers["location"] == f"{place}?task=task-1"
    page = get(client, f"{place}?task=task-1", ada).text
    assert 'name="definition" value="hourly"' in page
    task = {**SHELL, "tag": tag_of(page), "task": "task-1", "name": "load", "script": "echo 1"}
    # Nothing that a new one is on top of can have changed.
    wrong = post(client, place, ada, **task, definition="hourly", act="rebase")
    assert wrong.status_code == 422
    post(client, place, ada, **task, definition="hourly")
    assert (draft_of(db)["name"], scripts_of(draft_of(db))) == ("hourly", {"load": "echo 1"})

    page = get(client, "/projects/1/propose", ada).text
    assert "<li>+ load</li>" in page
    made = post(client, "/projects/1/publish", ada, tag=tag_of(page), note="first")
    where = re.fullmatch(r"/definitions/(\d+)/versions", made.headers["location"])
    assert where is not None
    assert get(client, made.headers["location"], ada).status_code == 200
    # The next one begins from nothing again.
    assert "There are no tasks yet." in get(client, place, ada).text
    with_review(owner)
    page = get(client, place, ada).text
    post(client, place, ada, tag=tag_of(page), definition="weekly", act="add")
    tag = tag_of(get(client, "/projects/1/propose", ada).text)
    proposed = post(client, "/projects/1/propose", ada, tag=tag)
    assert proposed.headers["location"].startswith("/projects/1/proposal?number=")
    assert "weekly" in get(client, proposed.headers["location"], ada).text


def test_a_new_definition_belongs_to_a_project_in_which_its_author_may_make_one(
    client: TestClient, owner: Session
) -> None:
    create_project(owner, "other<b>", description=None)
    page = get(client, "/definitions/new", session_of(client, owner, "root", None))
    assert re.findall(r'href="(/projects/\d+/edit)"', page.text) == [
        "/projects/1/edit",
        "/projects/2/edit",
    ]
    assert "other<b>" not in page.text
    viewer = session_of(client, owner, "vera", "viewer")
    assert get(client, "/definitions/new", viewer).status_code == 403


def test_a_draft_is_proposed_with_its_risks_and_approved_by_somebody_else(
    client: TestClient, ada: str, owner: Session, db: Engine, nightly: int
) -> None:
    with_review(owner)
    bob = session_of(client, owner, "bob", "admin")
    vic = session_of(client, owner, "vic", "viewer")
    place = f"/definitions/{nightly}"
    assert "You have no draft" in get(client, f"{place}/propose", ada).text
    tag = tag_of(get(client, f"{place}/edit", ada).text)
    post(client, f"{place}/edit", ada, tag=tag, task="a", act="remove")
    page = get(client, f"{place}/propose", ada).text
    assert page.index("Look at this twice") < page.index("Tasks removed")
    assert f'formaction="{place}/publish"' not in page
    order = {"tag": tag_of(page), "note": "<b>fewer</b>"}
    assert post(client, f"{place}/publish", ada, **order).status_code == 409
    late = post(client, f"{place}/propose", ada, tag='"d99-1"')
    assert (late.status_code, "saved meanwhile" in late.text) == (409, True)
    made, again = (post(client, f"{place}/propose", ada, **order) for _ in range(2))
    assert made.status_code == 303
    shown = made.headers["location"]
    assert again.headers["location"] == shown
    number = shown.partition("number=")[2]
    own = get(client, shown, ada).text
    assert "needs somebody else than ada" in own
    assert f'action="{place}/approve"' not in own
    assert f'action="{place}/withdraw"' in own
    assert "role admin" in get(client, shown, vic).text
    assert post(client, f"{place}/approve", ada, number=number).status_code == 403
    assert post(client, f"{place}/approve", vic, number=number).status_code == 403
    assert shown in html.unescape(get(client, "/", bob).text)
    assert shown not in html.unescape(get(client, "/", ada).text)
    page = get(client, shown, bob).text
    assert "&lt;b&gt;fewer&lt;/b&gt;" in page
    assert f'action="{place}/approve"' in page
    assert post(client, f"{place}/reject", bob, number=number, reason=" ").status_code == 422
    done = post(client, f"{place}/approve", bob, number=number)
    assert (done.status_code, done.headers["location"]) == (303, shown)
    assert post(client, f"{place}/approve", bob, number=number).status_code == 409
    assert "approved by bob" in html.unescape(get(client, f"{place}/versions", bob).text)
    assert "<td>approved</td>" in get(client, f"{place}/proposals", vic).text
    with db.connect() as connection:
        version = connection.scalar(select(t.process_definition.c.version))
    assert version == 2


def test_an_outdated_draft_is_merged_and_published_where_no_review_is_asked_for(
    client: TestClient, ada: str, owner: Session, db: Engine, nightly: int
) -> None:
    place = f"/definitions/{nightly}"
    tag = tag_of(get(client, f"{place}/edit", ada).text)
    form = {**SHELL, "tag": tag, "task": "a", "name": "a", "script": "2"}
    post(client, f"{place}/edit", ada, **form)
    imported(owner, a_document(a="1", b="9"))
    assert "Merge it into your draft first" in get(client, f"{place}/propose", ada).text
    page = get(client, f"{place}/edit", ada).text
    assert "Version 2 has been put in force" in page
    post(client, f"{place}/edit", ada, tag=tag_of(page), act="rebase")
    page = get(client, f"{place}/propose", ada).text
    done = post(client, f"{place}/publish", ada, tag=tag_of(page), note="both")
    assert (done.status_code, done.headers["location"]) == (303, f"{place}/versions")
    with db.connect() as connection:
        row = connection.scalar(select(t.process_definition.c.process_definition_json))
    assert scripts_of({"processDefinitionJson": json.loads(row or "")}) == {"a": "2", "b": "9"}


def test_a_new_definition_s_proposal_has_its_page_below_the_project(
    client: TestClient, ada: str, owner: Session
) -> None:
    eve = a_person(owner, "eve", "author")
    made = propose(eve, project=1, document=a_document("fresh", a="make the table\nlist it"))
    shown = f"/projects/1/proposal?number={made.id}"
    assert shown in html.unescape(get(client, "/", ada).text)
    page = get(client, shown, ada).text
    assert "+ a" in page
    # The page shows the script, not only the name of the task.
    assert "+make the table\n+list it" in page
    assert "SHELL" in page
    assert "fresh" in get(client, "/projects/1/proposals", ada).text
    rejected = post(client, "/projects/1/reject", ada, number=str(made.id), reason="not now")
    assert rejected.headers["location"] == shown
    assert "not now" in get(client, shown, ada).text


def test_a_project_s_admin_switches_the_review(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    vic = session_of(client, owner, "vic", "author")
    assert post(client, "/projects/1/review", vic, review="on").status_code == 403
    assert post(client, "/projects/1/review", ada, review="on").status_code == 303
    assert "review since" in get(client, "/projects/1", ada).text
    assert post(client, "/projects/1/review", ada, review="maybe").status_code == 422
    assert post(client, "/projects/1/review", ada, review="off").status_code == 303
    with db.connect() as connection:
        assert connection.scalar(select(t.project.c.review_since)) is None
