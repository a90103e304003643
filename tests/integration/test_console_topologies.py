"""The page of a topology: what it shows, and the orders that are given by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select, update

from api.cookies import COOKIE
from common.model.topologies import Wanted
from common.store import tables as t
from operations.log_ins import csrf_token
from operations.session import Session
from tests.builders import NOON
from tests.integration.api_worlds import A_REPORT, add_topology
from tests.integration.cli_rows import a_definition
from tests.integration.console_visits import get, session_of

pytestmark = pytest.mark.usefixtures("at_console")
PLACE = "/topologies/words"


@pytest.fixture
def words(db: Engine) -> int:
    """The definition of a topology of one spout."""
    definition = a_definition(db, name="topology words")
    with db.begin() as connection:
        add_topology(connection, "words", 1, definition)
    return definition


def wanted(db: Engine) -> Wanted:
    with db.connect() as connection:
        return Wanted.of(connection.scalar(select(t.topology.c.wanted)))


def post(client: TestClient, session: str, verb: str, **fields: str) -> Any:
    return client.post(
        f"{PLACE}/{verb}",
        headers={"Cookie": f"{COOKIE}={session}"},
        data={"csrf_token": csrf_token(session), **fields},
    )


@pytest.mark.usefixtures("words")
def test_a_topology_is_shown_with_its_figures_and_errors(
    client: TestClient, ada: str, db: Engine
) -> None:
    assert 'href="/topologies/words"' in get(client, "/topologies", ada).text
    fresh = get(client, PLACE, ada)
    assert fresh.status_code == 200
    assert "no run has begun" in fresh.text
    assert 'data-name="lines"' in fresh.text
    with db.begin() as connection:
        connection.execute(update(t.topology).values(report=A_REPORT.document(), report_time=NOON))
    shown = get(client, PLACE, ada).text
    for told in ("<b>7</b>", "<b>40</b>", ">10<", "&lt;script&gt;a&lt;/script&gt;", "1.14"):
        assert told in shown, told
    assert "<script>a" not in shown
    assert ">10<" not in get(client, f"{PLACE}?window=%3Aall-time", ada).text
    for place in (f"{PLACE}?window=7", "/topologies?after=x"):
        assert get(client, place, ada).status_code == 422
    for name in ("none", "..%2Fx", "%00", "x" * 300):
        assert get(client, f"/topologies/{name}", ada).status_code == 404, name


def test_orders_are_given_by_forms_as_far_as_the_role_goes(
    client: TestClient, ada: str, owner: Session, db: Engine, words: int
) -> None:
    bob = session_of(client, owner, "bob", "operator")
    eve = session_of(client, owner, "eve", "viewer")

    def verbs(session: str) -> list[str]:
        page = get(client, PLACE, session).text
        known = ("activate", "deactivate", "rebalance", "kill")
        return [each for each in known if f'action="{PLACE}/{each}"' in page]

    assert verbs(ada) == ["activate", "rebalance", "kill"]
    assert verbs(bob) == ["activate", "rebalance"]
    assert verbs(eve) == []
    assert post(client, eve, "activate").status_code == 403
    assert post(client, bob, "kill").status_code == 403
    assert (
        client.post(
            f"{PLACE}/activate", headers={"Cookie": f"{COOKIE}={ada}"}, data={"csrf_token": "x"}
        ).status_code
        == 403
    )
    before = wanted(db)
    answer = post(client, bob, "activate")
    assert (answer.status_code, answer.headers["location"]) == (303, PLACE)
    with db.connect() as connection:
        assert connection.scalar(select(t.command.c.process_definition_id)) == words
    assert wanted(db) == replace(before, number=before.number + 1, active=True)
    assert verbs(bob) == ["deactivate", "rebalance"]
    assert post(client, bob, "activate").status_code == 409
    assert post(client, bob, "deactivate").status_code == 303
    assert not wanted(db).active
    # What is sent as it is is not wanted otherwise.
    same = {"executors.lines": "1", "tasks.lines": "2"}
    assert post(client, bob, "rebalance", **same).status_code == 422
    for wrong in (
        {"tasks.lines": "x"},
        {"cores": "-1"},
        {"cores": "9" * 9},
        {"executors.lines": "3"},
    ):
        assert post(client, bob, "rebalance", **{**same, **wrong}).status_code == 422, wrong
    done = post(client, bob, "rebalance", **{**same, "tasks.lines": "4", "cores": "3", "wait": "5"})
    assert done.status_code == 303
    found = wanted(db)
    assert (found.tasks, found.executors, found.cores) == ({"lines": 4}, {}, 3)
    assert found.wait_seconds == 5
    assert post(client, ada, "kill", wait="0").status_code == 303
    assert (wanted(db).killed, wanted(db).wait_seconds) == (True, 0)
    assert verbs(ada) == []
