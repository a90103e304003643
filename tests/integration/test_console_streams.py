"""The page of a supervisor: what it shows, and the orders that are given by it."""

from __future__ import annotations

import copy
import html
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select, update

from api.cookies import COOKIE
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.log_ins import csrf_token
from operations.session import Session
from tests.builders import NOON
from tests.integration.api_worlds import a_world, worlds
from tests.integration.cli_rows import an_attempt, an_instance
from tests.integration.console_visits import get, session_of
from tests.unit.stream_specs import SMALL

pytestmark = pytest.mark.usefixtures("at_console")
PLACE = "/streams/ours"
HOSTILE = "<script>a</script>"


@pytest.fixture
def read(db: Engine) -> int:
    """The run of a task that reads partition 0, with all that its page can tell."""
    world = a_world(db, 1, "ours")
    run = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=world.objects["definition"],
        command_id=90_000 + world.objects["task"],
    )
    attempt = an_attempt(db, run, TaskState.RUNNING, name="read", host="10.0.0.7:1234", flag=1)
    report = {
        "state": "READING",
        "current": {"0": 1500},
        "counts": {"processed": 831, "unparseable": 2, "processedWithError": 1},
        "errors": {
            "trouble": "the broker is away",
            "parse": [{"partition": 0, "offset": 1499, "value": HOSTILE}],
        },
    }
    with db.begin() as connection:
        connection.execute(
            update(t.stream_task).values(
                process_instance_id=run, task_instance_id=attempt, status=report, status_time=NOON
            )
        )
        connection.execute(
            update(t.supervisor_runtime).values(
                detailed_state="RUNNING",
                owner="10.0.0.1:5678",
                status={
                    "stream": "events",
                    "latestOffsets": {"0": 2000, "1": 70},
                    "minimumLag": {"0": 500},
                    "aggregateLag": 500,
                },
                recent_errors=[{"timestamp": "2013-01-01T00:00:00+00:00", "message": HOSTILE}],
            )
        )
        connection.execute(
            insert(t.stream_task).values(
                name="read_before",
                supervisor="ours",
                version=1,
                epoch=1,
                group_id=0,
                base_sequence="before",
                assignment={"starts": {"0": 0}},
                command_id=80_000,
                closed=True,
                ending_reason="its time was over",
            )
        )
        connection.execute(
            insert(t.dataset_offsets).values(
                dataset="ours", stream="events", partition=0, offset=1200
            )
        )
    return run


def post(client: TestClient, session: str, verb: str, **fields: str) -> Any:
    return client.post(
        f"{PLACE}/{verb}",
        headers={"Cookie": f"{COOKIE}={session}"},
        data={"csrf_token": csrf_token(session), **fields},
    )


def requests(db: Engine) -> list[tuple[Any, ...]]:
    row = t.supervisor_command.c
    with db.connect() as connection:
        found = connection.execute(select(row.kind, row.body).order_by(row.id)).all()
    return [tuple(each) for each in found]


def orders(db: Engine) -> list[tuple[Any, ...]]:
    line = t.audit_log.c
    wanted = select(line.action, line.outcome, line.user_name).order_by(line.id)
    with db.connect() as connection:
        rows = connection.execute(wanted.where(line.action.like("stream.%"))).all()
    return [tuple(row) for row in rows]


def test_a_supervisor_is_shown_with_its_tasks_lag_and_errors(
    client: TestClient, ada: str, db: Engine, read: int
) -> None:
    assert f'href="{PLACE}"' in get(client, "/streams", ada).text
    page = get(client, PLACE, ada)
    assert page.status_code == 200
    for told in (
        *("RUNNING", "<b>500</b>", ">1499<", "0=1500", ">831<", ">3<", "the broker is away"),
        *("read_before", "its time was over", f'href="/runs/{read}"', "10.0.0.7:1234"),
        "&lt;script&gt;a&lt;/script&gt;",
    ):
        assert told in page.text, told
    assert HOSTILE not in page.text
    assert "hunter2" not in page.text
    # A report is written by a process of a tenant, and may hold anything.
    for report in ({"errors": 1, "counts": [], "current": "x"}, {"errors": {"parse": [7, {}]}}):
        with db.begin() as connection:
            connection.execute(update(t.stream_task).values(status=report))
        assert get(client, PLACE, ada).status_code == 200, report
    for name in ("none", "..%2Fx", "%00", "x" * 300):
        assert get(client, f"/streams/{name}", ada).status_code == 404, name


@pytest.mark.usefixtures("read")
def test_orders_to_a_supervisor_are_given_by_forms_as_far_as_the_role_goes(
    client: TestClient, ada: str, owner: Session, db: Engine
) -> None:
    bob = session_of(client, owner, "bob", "operator")
    eve = session_of(client, owner, "eve", "viewer")

    def verbs(session: str) -> list[str]:
        page = get(client, PLACE, session).text
        known = ("suspend", "resume", "handoff", "reset/check", "terminate")
        return [each for each in known if re.search(f'action="{PLACE}/{each}"[^>]*>', page)]

    assert verbs(ada) == ["suspend", "handoff", "reset/check", "terminate"]
    assert verbs(bob) == ["suspend", "handoff", "reset/check"]
    assert "<button>Hand over" not in get(client, PLACE, eve).text
    for verb in ("suspend", "resume", "handoff", "reset", "reset/check"):
        fields = {"partitions": "all", "group.0": "on"}
        assert post(client, eve, verb, **fields).status_code == 403, verb
        answer = client.post(
            f"{PLACE}/{verb}",
            headers={"Cookie": f"{COOKIE}={ada}"},
            data={"csrf_token": "x", **fields},
        )
        assert answer.status_code == 403, verb
    assert post(client, bob, "terminate").status_code == 403
    refused = len(orders(db))
    done = post(client, bob, "suspend")
    assert (done.status_code, done.headers["location"]) == (303, PLACE)
    assert post(client, bob, "suspend").status_code == 409
    assert verbs(bob) == ["resume", "handoff", "reset/check"]
    assert post(client, bob, "resume").status_code == 303
    assert post(client, ada, "terminate").status_code == 303
    assert orders(db)[refused:] == [
        ("stream.suspend", "done", "bob"),
        ("stream.suspend", "refused", "bob"),
        ("stream.resume", "done", "bob"),
        ("stream.terminate", "done", "ada"),
    ]
    with db.connect() as connection:
        specs = connection.execute(
            select(t.supervisor.c.suspended, t.supervisor.c.spec.is_(None)).order_by(
                t.supervisor.c.version
            )
        ).all()
    assert [tuple(each) for each in specs] == [
        (False, False),
        (True, False),
        (False, False),
        (False, True),
    ]
    assert verbs(ada) == ["reset/check"]


@pytest.mark.usefixtures("read")
def test_a_reset_says_what_it_will_do_and_is_one_order_however_often_it_is_sent(
    client: TestClient, ada: str, db: Engine
) -> None:
    for text, cell in (
        ("0=1000", "200 records are published twice"),
        ("0=1201", "1 record is never read"),
        ("0", "what was not read yet is never read"),
        ("all", "The offsets of all partitions are forgotten."),
    ):
        shown = post(client, ada, "reset/check", partitions=text)
        assert (shown.status_code, cell in shown.text) == (200, True), text
    assert requests(db) == []
    confirmed = dict(
        re.findall(
            r'<input type="hidden" name="([^"]+)" value="([^"]*)">',
            post(client, ada, "reset/check", partitions="0=1000, 1=0").text,
        )
    )
    for _ in range(2):
        assert post(client, ada, "reset", **confirmed).headers["location"] == PLACE
    assert requests(db) == [("RESET_OFFSETS", {"offsets": {"0": 1000, "1": 0}})]
    for wrong, said in (
        ("", "is missing"),
        ("x", "'x' is no number"),
        ("0=1 0=2", "has a partition twice"),
        ("0=1 1", "with an offset and without one"),
        ("0=", "'' is no number"),
    ):
        told = post(client, ada, "reset/check", partitions=wrong)
        assert (told.status_code, said in html.unescape(told.text)) == (422, True), wrong
        assert f'value="{wrong}"' in told.text
        assert post(client, ada, "reset", partitions=wrong).status_code == 422
    assert len(requests(db)) == 1


@pytest.mark.usefixtures("read")
def test_topics_of_a_pattern_are_shown_and_reset(client: TestClient, ada: str, db: Engine) -> None:
    document = copy.deepcopy(SMALL)
    del document["spec"]["ioConfig"]["topic"]
    document["spec"]["ioConfig"]["topicPattern"] = "clicks-.*"
    status = {"latestOffsets": {"clicks-eu:0": 2000}, "minimumLag": {"clicks-eu:0": 500}}
    with db.begin() as connection:
        connection.execute(update(t.supervisor).values(spec=document))
        connection.execute(update(t.supervisor_runtime).values(status=status))
        values = {"dataset": "ours", "stream": "clicks-eu", "partition": 0, "offset": 1200}
        connection.execute(insert(t.dataset_topic_offsets).values(values))
    assert ">clicks-eu:0<" in get(client, PLACE, ada).text
    for text, cell in (
        ("clicks-eu:0=1000", "200 records are published twice"),
        ("clicks-eu:*", "what was not read yet is never read"),
    ):
        shown = post(client, ada, "reset/check", partitions=text)
        assert (shown.status_code, cell in shown.text) == (200, True), text
    assert post(client, ada, "reset", partitions="clicks-eu:*").status_code == 303
    assert requests(db)[-1] == (
        "RESET",
        {"offsets": {"clicks-eu:0": 0}, "seen": {"clicks-eu:0": 1200}},
    )
    assert post(client, ada, "reset", partitions="0").status_code == 422


@pytest.mark.usefixtures("read")
def test_the_chosen_groups_are_handed_over_once(client: TestClient, ada: str, db: Engine) -> None:
    page = get(client, PLACE, ada).text
    (once,) = re.findall(r'name="once" value="(\w+)"', page)
    for _ in range(2):
        done = post(client, ada, "handoff", once=once, **{"group.0": "on"})
        assert (done.status_code, done.headers["location"]) == (303, PLACE)
    assert requests(db) == [("HAND_OVER", {"groups": [0]})]
    assert post(client, ada, "handoff", once=once).status_code == 422
    assert post(client, ada, "handoff", **{"group.x": "on"}).status_code == 422


def test_a_supervisor_of_a_foreign_project_looks_missing(
    client: TestClient, ada: str, db: Engine
) -> None:
    worlds(db)
    assert get(client, "/streams/theirs", ada).status_code == 404
    for verb in ("suspend", "resume", "reset", "reset/check", "handoff", "terminate"):
        answer = client.post(
            f"/streams/theirs/{verb}",
            headers={"Cookie": f"{COOKIE}={ada}"},
            data={"csrf_token": csrf_token(ada), "partitions": "all", "group.0": "on"},
        )
        assert answer.status_code == 404, verb
    assert requests(db) == []
