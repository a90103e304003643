"""Members of a project cannot read the content of definitions that are shared with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response
from sqlalchemy import Engine, insert, update

from api.console.serving import PAGES
from api.policy import BASE, POLICIES
from common.errors import NotAllowedError, NotFoundError
from common.model.complement_states import Downstream
from common.model.states import ProcessState, TaskState
from common.retention import needs_of
from common.store import tables as t
from common.store.master.endings import ChildEnd, ProcessEnd, end_parent_attempts
from common.store.retention import waits as stored_waits
from operations.complementing import ComplementOptions, plan
from operations.schedule_checks import check_released
from operations.session import Session
from operations.shares import share, unshare
from tests.integration.api_worlds import a_request, headers_of_known
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.console_visits import PASSWORD, asked
from tests.integration.shared_definitions import (
    SHELL,
    a_member,
    child,
    document,
    made,
    three_projects,
    waits,
)

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
ALL = ComplementOptions(dates=("2026-01-01",), downstream=Downstream.ALL)


@pytest.fixture
def projects(owner: Session) -> dict[str, int]:
    return three_projects(owner)


def online(db: Engine, *numbers: int, is_online: bool = True) -> None:
    row = t.process_definition
    with db.begin() as connection:
        connection.execute(
            update(row).where(row.c.id.in_(numbers)).values(release_state=int(is_online))
        )


def typed(db: Engine, name: str, project: int, *tasks: dict[str, Any]) -> int:
    """Insert a definition as a user does with SQL, with names instead of ids; return its id."""
    return a_definition(
        db,
        name=name,
        project_id=project,
        process_definition_json=json.dumps({"tasks": list(tasks)}),
    )


def test_x44_downstream_are_only_definitions_of_projects_where_runs_may_be_started(
    owner: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    oda = a_member(owner, "oda", prod="operator", lab="viewer")
    night = made(owner, prod, document("night"))
    mine = made(owner, prod, document("mine", waits(definitionName="night")))
    share(owner, night, dev)
    share(owner, night, projects["lab"])
    theirs = made(owner, dev, document("theirs", waits(definitionName="night")))
    seen = made(owner, projects["lab"], document("seen", waits(definitionId=night)))
    # In the default project the name means that project's definition.
    typed(db, "night", 1, SHELL)
    typed(db, "other", 1, waits(definitionName="night"))
    online(db, night, mine, theirs, seen)

    def planned(session: Session) -> set[int]:
        return {each.new.process_definition_id for each in plan(session, night, ALL)}

    assert planned(oda) == {night, mine}
    assert planned(owner) == {night, mine, theirs, seen}
    unshare(owner, night, dev)
    assert planned(owner) == {night, mine, seen}


def test_x44_a_check_of_sub_processes_resolves_names_as_imports_do_and_names_nothing_foreign(
    owner: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    inner = made(owner, dev, document("inner"))
    load = made(owner, dev, document("load", {**child(processDefinitionName="inner")}))
    foreign = typed(db, "own", dev, SHELL)
    own = typed(db, "own", prod, SHELL)
    night = typed(db, "night", prod, child(processDefinitionName="own"))
    online(db, own, night)
    online(db, foreign, inner, load, is_online=False)
    with db.begin() as connection:
        # The older definition `own` is OFFLINE, but the name means prod's definition.
        check_released(connection, [night])
    late = typed(db, "late", prod, child(processDefinitionId=load))
    missing = typed(db, "gone", prod, child(processDefinitionId=load + 1000))
    online(db, late, missing)

    def refusal(number: int) -> str:
        with db.begin() as connection, pytest.raises((NotAllowedError, NotFoundError)) as refused:
            check_released(connection, [number])
        return str(refused.value)

    told = refusal(late)
    assert told.replace("late", "gone").replace(str(load), "N") == refusal(missing).replace(
        str(load + 1000), "N"
    )
    share(owner, load, prod)
    assert "'load'" in refusal(late)
    online(db, load)
    told = refusal(late)
    assert "OFFLINE" in told
    assert "inner" not in told
    assert "child" not in told
    online(db, inner)
    with db.begin() as connection:
        check_released(connection, [late])


def test_x44_a_purge_keeps_the_runs_that_a_name_means_to_a_master(
    owner: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    foreign = typed(db, "load", dev, SHELL)
    other = typed(db, "load", projects["lab"], SHELL)
    asks = {"tasks": [waits(definitionName="load")]}
    night = typed(db, "night", prod, *asks["tasks"])
    an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=night,
        process_instance_json=json.dumps(asks),
        schedule_time=NOW,
        start_time=NOW,
    )

    def needed() -> set[int | None]:
        with db.begin() as connection:
            return {each.definition_id for each in needs_of(stored_waits(connection, now=NOW))}

    assert needed() == set()
    share(owner, foreign, prod)
    assert needed() == {foreign}
    share(owner, other, prod)
    assert needed() == set()
    own = typed(db, "load", prod, SHELL)
    assert needed() == {own}


# Requests to all entry points

HIDDEN = "hidden"
"""A part of every text of the foreign project that a share must not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The ids of the project's objects and of `foreign` objects, by the kinds of the policies."""

    own: dict[str, list[int]]
    foreign: dict[str, list[int]]
    load: int


def a_scene(owner: Session, projects: dict[str, int], db: Engine) -> Scene:
    """Create a run of `night` in `prod`, with its child, its upstream and its parent in `dev`."""
    dev, prod = projects["dev"], projects["prod"]
    hidden = {
        **SHELL,
        "name": "hidden-step",
        "params": {"rawScript": "echo hidden-script", "localParams": []},
    }
    made(owner, dev, document("hidden-inner"))
    load = made(
        owner,
        dev,
        document(
            "load",
            hidden,
            {**child(processDefinitionName="hidden-inner"), "name": "hidden-sub"},
            description="hidden-words",
            globalParams=[{"prop": "hidden-prop", "value": "hidden-value", "direct": "IN"}],
        ),
    )
    share(owner, load, prod)
    tasks = (child(processDefinitionName="load"), waits(definitionName="load"))
    night = made(owner, prod, document("night", *tasks))
    share(owner, night, dev)
    above = made(
        owner,
        dev,
        document("hidden-above", {**child(processDefinitionName="night"), "name": "hidden-task"}),
        document("hidden-reader", {**waits(definitionName="night"), "name": "hidden-wait"}),
    )
    online(db, load, night, above)
    inner = json.dumps({"tasks": [child(processDefinitionId=load), waits(definitionId=load)]})
    top = an_instance(
        db, ProcessState.RUNNING, process_definition_id=above, name="hidden-run-above"
    )
    calls = an_attempt(
        db,
        top,
        TaskState.RUNNING,
        process_definition_id=above,
        task_type="SUB_PROCESS",
        name="hidden-task",
    )
    run = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=night,
        name="night-1",
        process_instance_json=inner,
        is_sub_process=1,
        parent_task_instance_id=calls,
        root_id=top,
    )
    sub = an_attempt(
        db,
        run,
        TaskState.RUNNING,
        process_definition_id=night,
        task_type="SUB_PROCESS",
        name="child",
        task_json=json.dumps({**child(processDefinitionId=load)}),
    )
    below, upstream = (
        an_instance(
            db,
            ProcessState.FAILURE,
            process_definition_id=load,
            name=f"hidden-load-{number}",
            state_reason="task 'hidden-step' failed: hidden-reason",
            is_sub_process=1 - number,
            parent_task_instance_id=0 if number else sub,
            root_id=0 if number else top,
        )
        for number in (0, 1)
    )
    failed = an_attempt(
        db,
        below,
        TaskState.FAILURE,
        process_definition_id=load,
        name="hidden-step",
        reason="hidden-reason",
    )
    waiting = an_attempt(
        db,
        run,
        TaskState.RUNNING,
        process_definition_id=night,
        task_type="DEPENDENT",
        name="waits",
        task_json=json.dumps(waits(definitionId=load)),
        evidence=json.dumps(
            [
                {
                    "group": 1,
                    "key": f"{load}-ALL-day-last1Days",
                    "from": "2026-01-01 00:00:00",
                    "to": "2026-01-02 00:00:00",
                    "run": {"id": upstream, "state": "FAILURE"},
                    "task": {"id": failed, "state": "FAILURE"},
                    "result": "WAITING",
                    "why": "hidden-why",
                }
            ]
        ),
    )
    with db.begin() as connection:
        for parent, task, number in ((top, calls, run), (run, sub, below)):
            connection.execute(
                insert(t.relation_process_instance).values(
                    parent_process_instance_id=parent,
                    parent_task_instance_id=task,
                    process_instance_id=number,
                )
            )
        end = ProcessEnd(
            state=ProcessState.FAILURE, at=NOW, reason="task 'hidden-step' failed: hidden-reason"
        )
        end_parent_attempts(
            connection,
            [ChildEnd(process_instance_id=below, parent_task_instance_id=sub, end=end)],
        )
    return Scene(
        own={"definition": [night], "instance": [run], "task": [sub, waiting], "project": [prod]},
        foreign={
            "definition": [load, above],
            "instance": [top, below, upstream],
            "task": [calls, failed],
            "project": [dev],
        },
        load=load,
    )


def test_x44_no_answer_about_a_run_with_a_foreign_child_and_upstream_shows_what_is_within_them(
    at_console: None,
    client: TestClient,
    owner: Session,
    projects: dict[str, int],
    db: Engine,
) -> None:
    scene = a_scene(owner, projects, db)
    ada = a_member(owner, "ada", prod="admin")
    headers = {**headers_of_known(owner, "ada"), "If-Match": "*"}
    found: dict[str, str] = {}
    answered: set[str] = set()

    def check(name: str, number: int, answer: Response) -> None:
        body = answer.text
        at = body.find(HIDDEN)
        # HTML also has fields and classes with this name. Texts continue with a hyphen.
        while at >= 0 and body[at + len(HIDDEN)] != "-":
            at = body.find(HIDDEN, at + 1)
        if at >= 0:
            found[f"{name} of {number}"] = body[max(0, at - 150) : at + 60]
        if answer.is_success:
            answered.add(name)

    for name, number, answer in api_answers(client, scene, headers, db):
        check(name, number, answer)
    session = console_session(client, owner, ada)
    for page in PAGES:
        if page.method != "GET":
            continue
        thing = page.policy.thing or ""
        for number in [*scene.own.get(thing, [1]), *scene.foreign.get(thing, [])]:
            check(page.path, number, asked(client, page, number, session))
    assert found == {}
    assert answered >= {
        f"GET {BASE}/instances/{{id}}/relatives",
        f"GET {BASE}/instances/{{id}}/why",
        f"GET {BASE}/tasks/{{id}}/decision",
        f"GET {BASE}/tasks/{{id}}/why",
        f"POST {BASE}/definitions/lint",
        f"POST {BASE}/complements/plan",
        "/runs/{id}",
        "/definitions/{id}",
    }
    relatives = client.get(
        f"{BASE}/instances/{scene.own['instance'][0]}/relatives", headers=headers
    )
    assert relatives.status_code == 200
    task = client.get(f"{BASE}/tasks/{scene.own['task'][0]}", headers=headers).json()
    # A share shows the name, the project and the run of a definition.
    assert "'load' of the project 'dev' ended as FAILURE" in json.dumps(task)


_ORDERS = (
    "definitions/lint",
    "definitions",
    "complements/plan",
    "schedules/simulate",
    "definitions/{id}/restore",
    "definitions/{id}/online",
    "definitions/{id}/proposals",
    "definitions/{id}/proposals/{proposal}/approve",
    "definitions/delete",
    "instances",
    "instances/{id}/stop",
    "instances/{id}/rerun",
    "instances/{id}/execute",
    "instances/delete",
    "tasks/{id}/force-success",
    "definitions/{id}/shares",
)


def api_answers(
    client: TestClient, scene: Scene, headers: dict[str, str], db: Engine
) -> Iterator[tuple[str, int, Response]]:
    """Yield the answers to all reads and to `_ORDERS`, for objects of both projects."""
    names = [name for name in POLICIES if name.startswith("GET ")]
    names += [f"POST {BASE}/{each}" for each in _ORDERS]
    for name in names:
        thing = POLICIES[name].thing or ""
        for number in [*scene.own.get(thing, [1]), *scene.foreign.get(thing, [])]:
            body, params = a_request(name, number, f"new {number}")
            if name.endswith(("definitions", "lint", "proposals")) and body:
                inner = document(
                    "night", child(processDefinitionId=scene.load), waits(definitionId=scene.load)
                )
                body = inner if "document" not in body else {"document": inner}
            if name.endswith("plan"):
                body["downstream"] = "all"
            if name.startswith("GET ") and name.endswith(("/definitions", "/instances")):
                params = {}
            path = name.partition(" ")[2]
            for key in ("version", "proposal", "project", "kind", "component"):
                path = path.replace(f"{{{key}}}", "1")
            answer = client.request(
                name.partition(" ")[0],
                path.format(id=number),
                json=body,
                params=params,
                headers=headers,
            )
            yield name, number, answer


def console_session(client: TestClient, owner: Session, member: Session) -> str:
    """Log an existing user in; return the session."""
    from operations.users import set_password

    set_password(owner, member.principal.user_name, password=PASSWORD, at=NOW)
    answer = client.post(
        "/login",
        data={"name": member.principal.user_name, "password": PASSWORD, "next": "/runs"},
    )
    text = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    client.cookies.clear()
    return text
