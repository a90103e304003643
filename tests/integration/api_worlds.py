"""A project with one object of each kind, and the requests about them, for tests of rights."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import Range
from sqlalchemy.dialects.postgresql import insert as insert_or_not

from api.policy import BASE
from common.model.complement_states import ComplementState
from common.model.states import ProcessState, TaskState
from common.model.topologies import Code, Wanted
from common.model.topology_graphs import GraphPart, TopologyGraph
from common.store import tables as t
from common.store.people.definitions import definition_by_id
from operations.definition_tags import definition_tag
from operations.session import Session
from operations.tokens import create_token
from operations.users import create_user, grant
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.granting import a_shared_object, grant_objects
from tests.topology_files import REPORT
from tests.unit.stream_specs import SMALL

if TYPE_CHECKING:
    from httpx import Response

_CODE: Final = Code(main="words.yaml", files={"words.yaml": ""})
_NOW: Final = datetime(2013, 1, 1, tzinfo=UTC)
A_REPORT: Final = replace(
    REPORT,
    components=(replace(REPORT.components[0], by_task=(3, 4), hot_key="<b>"),),
    errors=(replace(REPORT.errors[0], component="lines", error="<script>a</script>"),),
)
"""That of a task of a topology with the graph of `a_graph`; its texts are hostile."""


A_PROPOSAL: Final = 901


@dataclass(frozen=True)
class World:
    """A project with one object of each kind, by the kind's name."""

    objects: dict[str, Any]
    places: ClassVar[dict[str, Any]] = {
        "kind": "invalid",
        "version": 1,
        "component": "lines",
        "wait_time": 0,
        "proposal": A_PROPOSAL,
        "project": 1,
    }
    """The other parameters of paths."""


def a_world(db: Engine, project_id: int, name: str) -> World:
    number = a_definition(
        db, name=name, project_id=project_id, process_definition_json=a_definition_json("a >> b")
    )
    run = an_instance(db, ProcessState.FAILURE, process_definition_id=number, name=name)
    task = an_attempt(db, run, TaskState.FAILURE, process_definition_id=number, name="a", flag=1)
    live = an_attempt(db, run, TaskState.RUNNING, process_definition_id=number, name="b", flag=1)
    schedule = a_schedule(db, number)
    with db.begin() as connection:
        complement = connection.scalar(
            insert(t.complement)
            .values(
                process_definition_id=number, timezone_id="UTC", state=int(ComplementState.RUNNING)
            )
            .returning(t.complement.c.id)
        )
        command = connection.scalar(
            insert(t.command)
            .values(command_type=0, process_definition_id=number)
            .returning(t.command.c.id)
        )
        # Its log is out of reach, and its worker has kept the end of it.
        connection.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task)
            .values(host="127.0.0.1:1", log_path=f"/logs/1/{run}/{task}.log")
        )
        connection.execute(
            insert(t.task_log_tail).values(
                task_instance_id=task, size=9, tail=f"of {name}".encode()
            )
        )
        connection.execute(
            update(t.project).where(t.project.c.id == project_id).values(description=name)
        )
        # It was saved before, so that there are two versions.
        connection.execute(
            update(t.process_definition)
            .where(t.process_definition.c.id == number)
            .values(version=2)
        )
        former = {"name": name, "processDefinitionJson": json.loads(a_definition_json("a"))}
        connection.execute(
            insert(t.process_definition_log).values(
                process_definition_id=number, version=1, document=json.dumps(former)
            )
        )
        lock = connection.scalar(
            insert(t.task_lock)
            .values(
                dataset=name,
                group_id="g",
                version="v",
                type="EXCLUSIVE",
                granularity="TIME_CHUNK",
                interval=Range(_NOW, _NOW + timedelta(days=1)),
            )
            .returning(t.task_lock.c.id)
        )
        connection.execute(insert(t.task_lock_holder).values(lock_id=lock, task_id=live))
        _add_stream(connection, name, project_id, number, task)
        add_topology(connection, name, project_id, number)
        for place, of_definition in enumerate((number, None), 1):
            connection.execute(
                insert_or_not(t.definition_proposal)
                .values(
                    id=1000 * project_id + place,
                    project_id=project_id,
                    process_definition_id=of_definition,
                    name=name if of_definition else f"fresh {name}",
                    user_id=1,
                    user_name="another",
                    base_tag="v1-0" if of_definition else None,
                    document=json.dumps(former),
                )
                .on_conflict_do_nothing()
            )
        datasource = connection.scalar(_a_datasource(name).returning(t.datasource.c.id))
    assert None not in (schedule, complement, command)
    return World(
        objects={
            "project": project_id,
            "definition": number,
            "instance": run,
            "task": task,
            "schedule": schedule or 0,
            "complement": complement or 0,
            "command": command or 0,
            "datasource": datasource or 0,
            "dataset": name,
            "stream": name,
            "stream-task": f"read_{name}",
            "topology": name,
        }
    )


def _add_stream(db: Connection, name: str, project_id: int, definition: int, task: int) -> None:
    """A supervisor and its dataset, with a segment."""
    db.execute(
        insert(t.supervisor_runtime).values(
            id=name, version=1, project_id=project_id, process_definition_id=definition
        )
    )
    document = copy.deepcopy(SMALL)
    document["spec"]["dataSchema"]["dataSource"] = name
    document["spec"]["ioConfig"]["consumerProperties"]["sasl.password"] = "hunter2"
    db.execute(insert(t.supervisor).values(id=name, version=1, spec=document))
    db.execute(
        insert(t.stream_task).values(
            name=f"read_{name}",
            supervisor=name,
            version=1,
            epoch=1,
            group_id=0,
            base_sequence="read",
            assignment={"starts": {"0": 0}},
            command_id=90_000 + task,
        )
    )
    db.execute(insert(t.dataset).values(name=name, project_id=project_id))
    add_segment(db, name, task)


def a_graph(name: str) -> dict[str, Any]:
    """The graph of a topology with one spout."""
    spout = GraphPart(id="lines", kind="spout", class_name="Lines", executors=1, tasks=2)
    return TopologyGraph(name=name, hash="spark", config=(), parts=(spout,)).document()


def add_topology(db: Connection, name: str, project_id: int, definition: int) -> None:
    """An active topology that has not reported."""
    db.execute(
        insert(t.topology).values(
            name=name,
            version=1,
            project_id=project_id,
            process_definition_id=definition,
            wanted=Wanted(number=1).document(),
        )
    )
    db.execute(
        insert(t.topology_version).values(
            topology=name, version=1, code=_CODE.document(), graph=a_graph(name)
        )
    )


def add_segment(db: Connection, name: str, task: int | None = None) -> None:
    """A segment without files, whoever the dataset is of."""
    db.execute(
        insert(t.segment).values(
            dataset=name,
            interval=Range(_NOW, _NOW + timedelta(days=1)),
            version="v",
            origin_version="v",
            partition_num=0,
            origin_num=0,
            files=[],
            rows=0,
            bytes=0,
            task_id=task,
        )
    )


def _of_no_project(db: Engine, name: str) -> dict[str, int]:
    rows = {
        "user": insert(t.user).values(user_name=f"user-{name}", tenant_id=1, user_type=1),
        "token": insert(t.access_token).values(user_id=1, name=name, token=name),
        "tenant": insert(t.tenant).values(tenant_code=f"tenant-{name}"),
        "worker-group": insert(t.worker_group).values(name=f"group-{name}"),
        "environment": insert(t.environment).values(name=f"environment-{name}"),
        "pool": insert(t.task_group).values(id=100 + len(name), name=f"pool-{name}", group_size=2),
    }
    with db.begin() as connection:
        return {
            kind: connection.execute(each.returning(each.table.c.id)).scalar_one()
            for kind, each in rows.items()
        }


def a_schedule(db: Engine, definition: int) -> int:
    with db.begin() as connection:
        made: int = connection.scalar(
            insert(t.schedule)
            .values(
                process_definition_id=definition,
                crontab="0 0 3 * * ? *",
                start_time=datetime(2013, 1, 1, tzinfo=UTC),
            )
            .returning(t.schedule.c.id)
        )
    return made


def _a_datasource(name: str) -> Any:
    params = json.dumps({"url": "sqlite:///none.db"})
    return insert(t.datasource).values(
        name=name, type=1, connection_params=params, create_time=_NOW, update_time=_NOW
    )


def headers_of(owner: Session, user: str, role: str) -> dict[str, str]:
    """The headers of a user who has this role in the default project; of `admin` as it is."""
    if user != "admin":
        create_user(owner, user, is_admin=False, password=None, tenant=None)
        grant(owner, user, project="default", role=role)
    return headers_of_known(owner, user)


def headers_of_known(owner: Session, user: str) -> dict[str, str]:
    """Return the headers of an existing user."""
    life, now = timedelta(days=1), datetime.now(UTC)
    made = create_token(owner, user, name="t", role="admin", projects=(), life=life, now=now)
    return {"Authorization": f"Bearer {made.text}"}


def to_delete(db: Engine, name: str, world: World) -> int | None:
    """A new object for a request that deletes it; None for any other request."""
    if name.endswith("/instances/delete"):
        definition = world.objects["definition"]
        return an_instance(db, ProcessState.FAILURE, process_definition_id=definition)
    for word in ("tenant", "worker-group", "environment", "pool"):
        if name == f"DELETE {BASE}/{word}s/{{id}}":
            return a_shared_object(db, word, world.objects["project"])
    if name == f"DELETE {BASE}/datasources/{{id}}":
        with db.begin() as connection:
            made: int = connection.scalar(_a_datasource("gone").returning(t.datasource.c.id))
        return made
    if name == f"DELETE {BASE}/definitions/{{id}}/versions/{{version}}":
        kept = insert_or_not(t.process_definition_log).values(
            process_definition_id=world.objects["definition"], version=1, document="{}"
        )
        with db.begin() as connection:
            connection.execute(kept.on_conflict_do_nothing())
        return None
    if "{proposal}" in name:
        _propose(db, world, is_new="/projects/" in name)
        return None
    if name.endswith("/schedules/delete") or name == f"DELETE {BASE}/schedules/{{id}}":
        return a_schedule(db, world.objects["definition"])
    return None


def _propose(db: Engine, world: World, *, is_new: bool) -> None:
    """Let somebody else's proposal wait, on top of what is in force, in the place of the former."""
    number = world.objects["definition"]
    with db.begin() as connection:
        row = definition_by_id(connection, number)
        assert row is not None
        tag, name = definition_tag(connection, row), row.name
        connection.execute(delete(t.definition_proposal))
        if is_new:
            count = connection.scalar(select(func.count()).select_from(t.process_definition))
            name = f"new {count}"
        document = {"name": name, "processDefinitionJson": json.loads(a_definition_json("a >> c"))}
        connection.execute(
            insert(t.definition_proposal).values(
                id=A_PROPOSAL,
                project_id=world.objects["project"],
                process_definition_id=None if is_new else number,
                name=name,
                user_id=1,
                user_name="another",
                base_version=0 if is_new else row.version,
                base_tag=None if is_new else tag,
                document=json.dumps(document),
            )
        )


def worlds(db: Engine) -> tuple[World, World]:
    """One in the project of the roles, and one in a foreign project."""
    with db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
        connection.execute(insert(t.worker_server).values(host="10.0.0.7", port=1234))
    ours, theirs = (
        World(objects=a_world(db, project, name).objects | _of_no_project(db, name))
        for project, name in ((1, "ours"), (foreign or 0, "theirs"))
    )
    grant_objects(db, ours.objects, 1)
    grant_objects(db, theirs.objects, foreign or 0)
    return ours, theirs


_ORDERS: Final[dict[str, dict[str, Any]]] = {
    # Too weak, since a good one costs a fifth of a second.
    "POST /me/password": {"old": "x", "new": "x"},
    "POST /users": {"name": "made"},
    "PATCH /users/{id}": {"admin": False},
    "POST /users/{id}/link": {"subject": "{new}", "issuer": "https://login.example.org"},
    "POST /users/{id}/password": {"password": "x"},
    "POST /tokens": {"name": "{new}", "expires": 60},
    "POST /projects": {"name": "{new}"},
    "PATCH /projects/{id}": {"name": "{new}"},
    "POST /projects/{id}/members": {"user": "the-nobody", "role": "none"},
    "POST /tenants": {"code": "made"},
    "POST /worker-groups": {"name": "{new}"},
    "POST /workers/strategy": {"document": {"selectStrategy": {"type": "fillCapacity"}}},
    "POST /workers/disable": {"worker": "10.0.0.7:1234"},
    "POST /workers/lazy": {"worker": "10.0.0.7"},
    "POST /workers/enable": {"worker": "10.0.0.7:1234", "reason": "a new disk"},
    "POST /environments": {"name": "{new}", "config": "export A=1"},
    "PATCH /environments/{id}": {"description": "d"},
    "POST /pools": {"name": "{new}", "size": 1},
    "PATCH /pools/{id}": {"size": 3},
    "POST /grants": {"kind": "tenant", "object": 1, "project": 1},
    "POST /grants/revoke": {"kind": "tenant", "object": 1, "project": 1},
}


def a_request(name: str, number: int, new: str) -> tuple[Any, dict[str, Any]]:
    """The body and the parameters of a request about an object, or about a new one."""
    document = {"name": new, "processDefinitionJson": json.loads(a_definition_json("a >> b"))}
    of_no_project = _ORDERS.get(name.replace(BASE, ""))
    if of_no_project is not None:
        return {
            key: each.format(new=new) if isinstance(each, str) else each
            for key, each in of_no_project.items()
        }, {}
    match name.removeprefix(f"POST {BASE}/").removeprefix(f"PUT {BASE}/"):
        case "instances":
            return {"definition_id": number}, {}
        case "instances/actions":
            return {"ids": [number], "action": "stop"}, {}
        case "instances/{id}/execute":
            return {"tasks": ["a"]}, {}
        case "definitions" | "definitions/import":
            return document, {"project_id": number}
        case "definitions/lint" | "definitions/{id}":
            return document, {}
        case "definitions/{id}/draft" | "projects/{id}/draft":
            return document, {}
        case "definitions/{id}/draft/publish" | "projects/{id}/draft/publish":
            return {"note": "n"}, {}
        case "definitions/{id}/proposals":
            return {"document": {"processDefinitionJson": document["processDefinitionJson"]}}, {}
        case "projects/{id}/proposals":
            return {"document": document, "note": "n"}, {}
        case "definitions/{id}/proposals/{proposal}/reject":
            return {"reason": "n"}, {}
        case "projects/{id}/proposals/{proposal}/reject":
            return {"reason": "n"}, {}
        case "definitions/release":
            return {"ids": [number], "release_state": "OFFLINE"}, {}
        case "definitions/{id}/shares" | "datasets/{id}/shares":
            return {"project": 1}, {}
        case "definitions/{id}/restore":
            return {"version": 1}, {}
        case "definitions/execution-type":
            return {"ids": [number], "execution_type": "PARALLEL"}, {}
        case "schedules":
            return {"definition_id": number, "cron": "0 0 4 * * ? *"}, {}
        case "schedules/release":
            return {"ids": [number], "release_state": "OFFLINE"}, {}
        case "schedules/delete":
            return {"ids": [number]}, {}
        case "complements" | "complements/plan":
            return {"definition_id": number, "dates": ["2013-01-01"]}, {}
        case "streams":
            spec = copy.deepcopy(SMALL)
            spec["spec"]["dataSchema"]["dataSource"] = new.replace(" ", "_")
            return spec, {"project_id": number}
        case "streams/{id}/reset":
            return {"all": True}, {}
        case "streams/{id}/handoff":
            return {"groups": [0]}, {}
        case "topology/submit":
            graph = a_graph(new.replace(" ", "_"))
            return {"code": _CODE.document(), "graph": graph, "project_id": number}, {}
        case "topology/{id}/rebalance/{wait_time}":
            return {"rebalanceOptions": {"executors": {"lines": 2}}}, {}
        case "datasources":
            return {"name": new, "url": "sqlite:///some.db"}, {}
        case "datasources/{id}":
            return {"url": "sqlite:///other.db"}, {}
        case "schedules/simulate":
            return {"definition_id": number, "offline_too": True, "slots": 1}, {}
        case "definitions/delete" | "instances/delete":
            return {"ids": [number]}, {}
    if name.endswith("/schedules/preview"):
        return None, {"schedule_id": number}
    if name.startswith("PATCH"):
        return {"cron": "0 0 5 * * ? *"}, {}
    if name.endswith("/events"):
        return None, {"topics": f"instance:{number},overview"}
    return None, {}


def further_requests(
    db: Engine, ours: World, theirs: World
) -> list[tuple[str, dict[str, Any], dict[str, Any] | None]]:
    """Paths with parameters and bodies that are refused to an admin of the project."""
    # A sub process of a run that is foreign: an order goes to the root of its tree.
    inner = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=ours.objects["definition"],
        root_id=theirs.objects["instance"],
    )
    return [
        (f"instances/{inner}/stop", {}, {}),
        ("schedules/preview", {"definition_id": theirs.objects["definition"]}, None),
        ("tokens", {"user": "admin"}, None),
        ("pools", {}, {"name": "p", "size": 1, "projects": [theirs.objects["project"]]}),
        ("tokens", {}, {"name": "x", "expires": 60, "user": "admin"}),
    ]


ORDER_NOTHING: Final = frozenset(
    f"POST {BASE}/{path}"
    for path in (
        *("login", "logout", "definitions/lint", "schedules/simulate", "complements/plan"),
        # Good ones are tried by the tests of data sources, and of log-ins.
        *("datasources/{id}/test", "me/password"),
    )
)
"""Requests that change nothing, here at least: nobody of this test has a session."""


def check_audit(db: Engine, orders: list[tuple[str, str, int, str]]) -> None:
    """Each order has its line, with the id of its request, and so has each refusal."""
    line = t.audit_log.c
    with db.connect() as connection:
        rows = connection.execute(select(line.request, line.outcome, line.user_name)).all()
    told = {tuple(row) for row in rows}
    assert len(orders) > 500
    assert [
        (name, role, status)
        for name, role, status, request in orders
        if (request, "done" if status < 300 else "refused", f"the-{role}") not in told
    ] == []


def orders_without_a_line(db: Engine, answers: Sequence[Response]) -> list[tuple[str, str, int]]:
    """Those of the orders to which these are the answers that the audit does not know."""
    line = t.audit_log.c
    with db.connect() as connection:
        rows = connection.execute(select(line.request, line.outcome)).all()
    told = {tuple(row) for row in rows}
    nothing = [each.partition(" ")[2] for each in ORDER_NOTHING if "password" not in each]
    return [
        (asked.method, asked.url.path, each.status_code)
        for each in answers
        if (asked := each.request).method != "GET"
        and "authorization" in asked.headers
        and (each.is_success or each.status_code == 403)
        and asked.url.path not in nothing
        and not (
            asked.url.path.startswith(f"{BASE}/datasources/") and asked.url.path.endswith("test")
        )
        and (each.headers["x-request-id"], "done" if each.is_success else "refused") not in told
    ]


def a_wait(db: Engine, definition: int, foreign: int) -> tuple[int, tuple[int, ...]]:
    """A run that waits in each way in which one run can for another, and its tasks.

    The others are of the definition `foreign`, and bear the name `hidden`.
    """
    hidden = an_instance(
        db, ProcessState.RUNNING, id=7001, process_definition_id=foreign, name="hidden-run"
    )
    holder = an_attempt(
        db, hidden, TaskState.RUNNING, id=7002, process_definition_id=foreign, name="hidden-task"
    )
    tasks = [
        {"name": name, "type": "SHELL", "params": {"rawScript": "true"}}
        for name in ("pooled", "item", "child", "begun")
    ]
    run = an_instance(
        db,
        ProcessState.RUNNING,
        process_definition_id=definition,
        process_instance_json=json.dumps({"tasks": tasks}),
    )
    ours = {"process_definition_id": definition, "host": None}
    pooled = an_attempt(db, run, TaskState.WAITING_DEPEND, name="pooled", **ours)
    sub = {"task_type": "SUB_PROCESS", **ours}
    child = an_attempt(db, run, TaskState.RUNNING, name="child", **sub)
    begun = an_attempt(db, run, TaskState.RUNNING, name="begun", **sub)
    looked = {"id": hidden, "state": "RUNNING"}
    entry = {"key": f"{foreign}-ALL-day-today", "result": "WAITING", "run": looked, "why": "hidden"}
    item = an_attempt(
        db,
        run,
        TaskState.RUNNING,
        name="item",
        task_type="DEPENDENT",
        evidence=json.dumps([entry]),
        **ours,
    )
    with db.begin() as connection:
        connection.execute(insert(t.task_group).values(id=1, name="db", group_size=1))
        for task, status in ((holder, 1), (pooled, -1)):
            connection.execute(
                insert(t.task_group_queue).values(
                    task_id=task, group_id=1, status=status, weight=1, process_id=run
                )
            )
        connection.execute(
            insert(t.relation_process_instance).values(
                parent_process_instance_id=run,
                parent_task_instance_id=child,
                process_instance_id=hidden,
            )
        )
        connection.execute(
            insert(t.command).values(
                id=7003,
                command_type=0,
                process_definition_id=foreign,
                parent_task_instance_id=begun,
            )
        )
    return run, (pooled, item, child, begun)


def is_named(name: str, text: str) -> bool:
    """Return True if a text contains a name that is not a part of a number, such as of a moment."""
    return re.search(rf"(?<!\d){re.escape(name)}(?!\d)", text) is not None
