"""Lists and pages of shared objects name only objects that the reader's projects may use."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select, update

from api.policy import BASE
from common.model.grants import GrantKind
from common.model.rights import EVERYTHING, Principal
from common.store import tables as t
from common.store.people.grants import is_shown
from operations.session import Session
from tests.builders import a_definition_json
from tests.integration.api_worlds import headers_of
from tests.integration.cli_rows import a_definition
from tests.integration.console_visits import get, session_of
from tests.integration.dolphinscheduler_stage import BASE as DOLPHINSCHEDULER
from tests.integration.granting import grant_to, objects_of_others

PATHS: Final = {
    GrantKind.TENANT: "tenants",
    GrantKind.DATASOURCE: "datasources",
    GrantKind.ENVIRONMENT: "environments",
    GrantKind.POOL: "pools",
    GrantKind.WORKER_GROUP: "worker-groups",
}
KINDS: Final = pytest.mark.parametrize("kind", GrantKind, ids=lambda kind: kind.word)


def row_id(db: Engine, kind: GrantKind, number: int) -> int:
    """Return the id of an object in routes. Only grants of environments use another number."""
    if kind is not GrantKind.ENVIRONMENT:
        return number
    with db.connect() as connection:
        wanted = select(t.environment.c.id).where(t.environment.c.code == number)
        return connection.execute(wanted).scalar_one()


@KINDS
def test_a_shared_object_is_listed_and_shown_to_readers_of_projects_that_may_use_it(
    kind: GrantKind, client: TestClient, owner: Session
) -> None:
    numbers = objects_of_others(owner)
    path, number = f"{BASE}/{PATHS[kind]}", row_id(owner.engine, kind, numbers[kind])
    ada, root = headers_of(owner, "ada", "author"), headers_of(owner, "admin", "")

    def listed(headers: dict[str, str], **query: str) -> Any:
        return client.get(path, headers=headers, params=query)

    def detail(number: int) -> str:
        answer = client.get(f"{path}/{number}", headers=ada)
        assert answer.status_code == 404, answer.text
        return str(answer.json()["detail"]).replace(str(number), "N")

    assert "theirs" not in listed(ada).text
    assert detail(number) == detail(999_999)
    if kind is not GrantKind.DATASOURCE:
        key = "code" if kind is GrantKind.TENANT else "name"
        foreign, missing = listed(ada, **{key: "theirs"}), listed(ada, **{key: "nobodys"})
        assert (foreign.status_code, missing.status_code) == (404, 404)
        assert foreign.json()["detail"].replace("theirs", "nobodys") == missing.json()["detail"]
        near = listed(ada, **{key: "their"})
        assert "theirs" not in near.text
    assert "theirs" in listed(root).text
    assert client.get(f"{path}/{number}", headers=root).status_code == 200
    with owner.engine.begin() as connection:
        grant_to(connection, kind, numbers[kind], 1)
    assert "theirs" in listed(ada).text
    assert client.get(f"{path}/{number}", headers=ada).status_code == 200


@KINDS
def test_a_token_for_some_projects_reads_the_objects_of_these_alone(
    kind: GrantKind, owner: Session
) -> None:
    number = objects_of_others(owner)[kind]
    table = {
        GrantKind.TENANT: t.tenant,
        GrantKind.DATASOURCE: t.datasource,
        GrantKind.ENVIRONMENT: t.environment,
        GrantKind.POOL: t.task_group,
        GrantKind.WORKER_GROUP: t.worker_group,
    }[kind]
    column = table.c.code if kind is GrantKind.ENVIRONMENT else table.c.id
    with owner.engine.connect() as connection:
        other = connection.execute(
            select(t.grant.c.project_id)
            .where(t.grant.c.object_id == number)
            .where(t.grant.c.object_type == int(kind))
        ).scalar_one()
        for projects, chose, is_seen in (
            (None, False, True),
            (frozenset({other}), False, True),
            (frozenset({1}), False, False),
            # An administrator who chose a project still sees all objects.
            (frozenset({1}), True, True),
        ):
            who = Principal(
                user_id=1,
                user_name="admin",
                scope=EVERYTHING,
                projects=projects,
                chose_project=chose,
            )
            found = connection.execute(
                select(column).where(column == number).where(is_shown(kind, who))
            ).all()
            assert bool(found) is is_seen, (projects, chose)


def test_the_maker_of_a_pool_sees_it_without_a_grant_and_others_get_404(
    client: TestClient, owner: Session
) -> None:
    ada, bea = headers_of(owner, "ada", "author"), headers_of(owner, "bea", "author")
    body = {"name": "secret-plan", "size": 1, "projects": []}
    made = client.post(f"{BASE}/pools", json=body, headers=ada)
    assert made.status_code == 201, made.text
    place = f"{BASE}/pools/{made.json()['id']}"
    assert "secret-plan" in client.get(f"{BASE}/pools", headers=ada).text
    assert "secret-plan" not in client.get(f"{BASE}/pools", headers=bea).text
    assert client.get(place, headers=ada).status_code == 200
    anything = {"If-Match": "*"}
    for answer in (
        client.get(place, headers=bea),
        client.patch(place, json={"size": 2}, headers=bea | anything),
        client.delete(place, headers=bea | anything),
    ):
        assert answer.status_code == 404, answer.text
    assert client.patch(place, json={"size": 2}, headers=ada | anything).status_code == 200


def test_an_environment_names_only_groups_that_its_reader_sees(
    client: TestClient, owner: Session
) -> None:
    numbers = objects_of_others(owner)
    headers = headers_of(owner, "ada", "viewer")
    with owner.engine.begin() as connection:
        code = connection.execute(
            insert(t.environment).values(name="ours", config="").returning(t.environment.c.code)
        ).scalar_one()
        grant_to(connection, GrantKind.ENVIRONMENT, code, 1)
        for group in ("default", "theirs"):
            relation = {"environment_code": code, "worker_group": group}
            connection.execute(insert(t.environment_worker_group_relation).values(relation))

    def groups() -> Any:
        (row,) = client.get(f"{BASE}/environments", headers=headers).json()["items"]
        return row["worker_groups"]

    assert groups() == ["default"]
    with owner.engine.begin() as connection:
        grant_to(connection, GrantKind.WORKER_GROUP, numbers[GrantKind.WORKER_GROUP], 1)
    assert groups() == ["default", "theirs"]


def test_an_export_gives_no_name_for_the_number_of_a_foreign_object(
    client: TestClient, owner: Session
) -> None:
    numbers = objects_of_others(owner)
    headers = headers_of(owner, "ada", "author")
    task = {
        "name": "a",
        "type": "SQL",
        "params": {
            "type": "SQLITE",
            "datasource": numbers[GrantKind.DATASOURCE],
            "sql": "select 1",
        },
        "workerGroupId": numbers[GrantKind.WORKER_GROUP],
        "environmentCode": numbers[GrantKind.ENVIRONMENT],
    }
    spy = a_definition(
        owner.engine, name="spy", process_definition_json=json.dumps({"tasks": [task]})
    )
    place = f"{BASE}/definitions/{spy}/export"
    answer = client.get(place, headers=headers)
    assert (answer.status_code, "theirs" in answer.text) == (200, False)
    with owner.engine.begin() as connection:
        for kind in (GrantKind.DATASOURCE, GrantKind.WORKER_GROUP, GrantKind.ENVIRONMENT):
            grant_to(connection, kind, numbers[kind], 1)
    assert client.get(place, headers=headers).text.count('"theirs"') == 3


@pytest.mark.parametrize(
    "place",
    [
        "tenants/list",
        "worker-groups/all",
        "queues/list",
        "environment/list-paging?pageNo=1&pageSize=10",
        "environment/query-environment-list",
        "environment/query-by-code?environmentCode={environment}",
    ],
)
def test_lists_of_dolphinscheduler_name_no_foreign_object(
    place: str, client: TestClient, owner: Session
) -> None:
    numbers = objects_of_others(owner)
    with owner.engine.begin() as connection:
        queue = connection.execute(
            insert(t.queue).values(queue_name="theirs", queue="theirs").returning(t.queue.c.id)
        ).scalar_one()
        connection.execute(
            update(t.tenant).where(t.tenant.c.tenant_code == "theirs").values(queue_id=queue)
        )
    token = headers_of(owner, "ada", "author")["Authorization"].removeprefix("Bearer ")
    path = f"{DOLPHINSCHEDULER}/{place.format(environment=numbers[GrantKind.ENVIRONMENT])}"

    def answer() -> Any:
        return client.get(path, headers={"token": token}).json()

    before = answer()
    assert "theirs" not in json.dumps(before)
    if "list-paging" in place:
        assert before["data"]["total"] == 0
    with owner.engine.begin() as connection:
        for kind, granted in numbers.items():
            grant_to(connection, kind, granted, 1)
    assert "theirs" in json.dumps(answer())


@pytest.mark.usefixtures("at_console")
def test_pages_and_choices_of_the_console_name_no_foreign_object(
    client: TestClient, owner: Session
) -> None:
    numbers = objects_of_others(owner)
    session = session_of(client, owner, "ada", "author")
    number = a_definition(
        owner.engine, name="nightly", process_definition_json=a_definition_json("a")
    )
    lists = {GrantKind.POOL: "/pools", GrantKind.DATASOURCE: "/datasources"}
    forms = [f"/definitions/{number}/run", f"/schedules/new?definition={number}"]
    for place in (*lists.values(), *forms):
        page = get(client, place, session)
        assert (page.status_code, "theirs" in page.text) == (200, False), place
    for kind, place in lists.items():
        assert get(client, f"{place}/{numbers[kind]}", session).status_code == 404
    with owner.engine.begin() as connection:
        for kind, granted in numbers.items():
            grant_to(connection, kind, granted, 1)
    for place in (*lists.values(), *forms):
        assert "theirs" in get(client, place, session).text, place
    for kind, place in lists.items():
        assert get(client, f"{place}/{numbers[kind]}", session).status_code == 200
