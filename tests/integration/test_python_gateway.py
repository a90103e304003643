"""The Python gateway on a real database, driven by py4j's own client as pydolphinscheduler does."""

from __future__ import annotations

import json
import re
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError
from sqlalchemy import Engine, select, true

from api.gateway import responder
from api.server import listen
from api.turns import Turns
from common.clock import SystemClock
from common.config import Config, DatabaseConfig, ZookeeperConfig
from common.model.grants import GrantKind
from common.model.states import ReleaseState
from common.py4j.responder import EntryPoint, Responder
from common.store import tables as t
from operations.datasources import create_datasource
from operations.session import Session
from operations.tokens import MadeToken, create_token, revoke_token
from operations.users import create_user, grant
from tests.integration.granting import grant_to, objects_of_others
from tests.integration.reviewing import with_review
from tests.integration.rights_mistakes import BY_GATEWAY, Plants, lists_of_everybody

USER = "userPythonGateway"
PROJECT = "default"
NO_PROJECT = "no project 'foreign'"
SCHEDULE = {
    "startTime": "2021-01-01 00:00:00",
    "endTime": "9999-12-31 23:59:59",
    "crontab": "0 0 3 * * ? *",
    "timezoneId": "Asia/Shanghai",
}


class Stage:
    """A gateway with its database, and clients of it."""

    def __init__(self, db: Engine, config: Config, port: int) -> None:
        self.db = db
        self.config = config
        self.port = port
        self.gateways: list[JavaGateway] = []
        self.owner = Session()
        self.owner.__dict__.update(config=config, engine=db)

    def a_token(self, user: str, *, role: str = "author", is_admin: bool = False) -> MadeToken:
        create_user(self.owner, user, is_admin=is_admin, password=None, tenant=None)
        if not is_admin:
            grant(self.owner, user, project=PROJECT, role=role)
        life = timedelta(days=1)
        now = datetime.now(UTC)
        return create_token(
            self.owner, user, name="t", role="admin", projects=(), life=life, now=now
        )

    def entry(self, token: str | None) -> Any:
        """The entry point, as `pydolphinscheduler.java_gateway` has it."""
        parameters = GatewayParameters(
            port=self.port, auto_convert=True, auth_token=token, read_timeout=20
        )
        self.gateways.append(JavaGateway(gateway_parameters=parameters))
        return self.gateways[-1].entry_point

    def leave(self) -> None:
        """Shut the clients down, or what they collect later would be logged in another test."""
        for gateway in self.gateways:
            gateway.shutdown()

    def an_author(self) -> Any:
        return self.entry(self.a_token("ada").text)

    def said(self, *lines: str, token: str) -> str:
        """Log in and send lines as they are; return what comes until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall("".join(f"{each}\n" for each in ("A", token, *lines)).encode())
            answered = b""
            while chunk := connection.recv(65_536):
                answered += chunk
        return answered.decode().removeprefix("!yv\n")

    def definition(self, name: str) -> Any:
        with self.db.connect() as connection:
            return connection.execute(
                select(t.process_definition).where(t.process_definition.c.name == name)
            ).one_or_none()

    def audited(self) -> list[tuple[str, str, str]]:
        line = t.audit_log.c
        with self.db.connect() as connection:
            rows = connection.execute(select(line.user_name, line.action, line.outcome))
            return [tuple(row) for row in rows]

    def schedules(self) -> list[tuple[str, int]]:
        with self.db.connect() as connection:
            rows = connection.execute(select(t.schedule).order_by(t.schedule.c.id))
            return [(row.crontab, row.release_state) for row in rows]


@contextmanager
def opened(made: Responder) -> Iterator[None]:
    made.start()
    try:
        yield
    finally:
        made.stop()


@pytest.fixture
def stage(db: Engine, tmp_path: Path) -> Iterator[Stage]:
    url = db.url.set(drivername="postgresql").render_as_string(hide_password=False)
    config = Config(
        home=tmp_path,
        time_zone="UTC",
        database=DatabaseConfig(url=url),
        zookeeper=ZookeeperConfig(hosts="127.0.0.1:1"),
    )
    taken = listen("127.0.0.1", 0)
    with opened(responder(config, db, taken, Turns(clock=SystemClock()))):
        stage = Stage(db, config, taken.getsockname()[1])
        yield stage
        stage.leave()


def a_task(code: int, name: str, kind: str = "SHELL", **params: Any) -> dict[str, Any]:
    """A task as `Task.get_define` of the 4.1 has it."""
    return {
        "code": code,
        "name": name,
        "version": 1,
        "taskType": kind,
        "taskParams": {
            "rawScript": f"echo {name}",
            "localParams": [],
            "resourceList": [],
            "dependence": {},
            "waitStartTimeout": {},
            "conditionResult": {"successNode": [""], "failedNode": [""]},
            **params,
        },
        "description": None,
        "flag": "YES",
        "taskPriority": "MEDIUM",
        "workerGroup": "default",
        "environmentCode": None,
        "delayTime": 0,
        "failRetryTimes": 0,
        "failRetryInterval": 1,
        "taskGroupId": 0,
        "taskGroupPriority": 0,
        "timeoutFlag": "CLOSE",
        "timeoutNotifyStrategy": None,
        "timeout": 0,
        "isCache": "NO",
    }


def submit(
    entry: Any,
    name: str,
    tasks: list[dict[str, Any]],
    *edges: tuple[int, int],
    online: int = 1,
    schedule: dict[str, str] | None = None,
    project: str = PROJECT,
) -> int:
    """Submit as `Workflow.submit` of the 4.1 does."""
    relations = [
        {"name": "", "preTaskCode": before, "postTaskCode": after, "conditionType": 0}
        for before, after in edges
    ]
    code: int = entry.createOrUpdateWorkflow(
        *(USER, project, name, "", "[]", None if schedule is None else json.dumps(schedule)),
        *(schedule is not None, "NONE", 0, 0, "default", online),
        *(json.dumps(relations), json.dumps(tasks), None, "PARALLEL"),
    )
    return code


def run(entry: Any, name: str, *, project: str = PROJECT) -> None:
    entry.execWorkflowInstance(USER, project, name, "", "default", "NONE", 0, 86_400)


def test_a_workflow_of_4_1_is_submitted_twice_scheduled_and_run(stage: Stage) -> None:
    entry = stage.an_author()
    assert entry.getGatewayVersion() == "3.2.2"
    assert entry.createTenant("tenant_pydolphin", None, "queue").getTenantCode()
    user = entry.createUser(USER, "secret", "a@b", "1", "tenant_pydolphin", "queue", 1)
    # Whoever the arguments name: the token says who it is.
    assert user.getUserName() == "ada"
    assert entry.createOrGrantProject(USER, PROJECT, None) is None

    def submitted(edges: list[tuple[int, int]]) -> int:
        codes = [
            entry.getCodeAndVersion(PROJECT, "nightly", name).get("code") for name in ("a", "b")
        ]
        third = entry.getCodeAndVersion(PROJECT, "nightly", "c").get("code")
        tasks = [a_task(code, name) for code, name in zip([*codes, third], "abc", strict=True)]
        those = [(tasks[one]["code"], tasks[other]["code"]) for one, other in edges]
        roots = [(0, tasks[0]["code"]), (0, tasks[1]["code"])]
        return submit(entry, "nightly", tasks, *those, *roots, schedule=SCHEDULE)

    code = submitted([(0, 2), (1, 2)])
    found = stage.definition("nightly")
    assert (found.code, found.release_state, found.version) == (code, ReleaseState.ONLINE, 1)
    assert stage.schedules() == [(SCHEDULE["crontab"], ReleaseState.ONLINE)]
    # The client's relations are a set, whose order differs from process to process.
    assert submitted([(1, 2), (0, 2)]) == code
    assert stage.definition("nightly").version == 1
    at_four = {**SCHEDULE, "crontab": "0 0 4 * * ? *"}
    tasks = [a_task(7, "a")]
    assert submit(entry, "nightly", tasks, (0, 7), schedule=at_four) == code
    assert stage.schedules() == [("0 0 4 * * ? *", ReleaseState.ONLINE)]

    entry.execWorkflowInstance(USER, PROJECT, "nightly", "", "default", "NONE", 0, 86_400)
    with stage.db.connect() as connection:
        command = connection.execute(select(t.command)).one()
        audit = connection.execute(select(t.audit_log.c.user_name, t.audit_log.c.action)).all()
    assert command.process_definition_id == found.id
    assert ("ada", "definition.import") in [tuple(each) for each in audit]
    assert ("ada", "definition.run") in [tuple(each) for each in audit]


def test_the_gateway_finds_no_object_of_other_projects(stage: Stage) -> None:
    numbers = objects_of_others(stage.owner)
    entry = stage.an_author()
    environment = numbers[GrantKind.ENVIRONMENT]
    asked = (
        (entry.getEnvironmentInfo, ("theirs",), environment),
        (
            lambda name: entry.getDatasource(name, None).getId(),
            ("theirs",),
            numbers[GrantKind.DATASOURCE],
        ),
    )
    for ask, given, _ in asked:
        with pytest.raises(Py4JError) as foreign:
            ask(*given)
        with pytest.raises(Py4JError) as missing:
            ask("nobodys")
        assert str(foreign.value).replace("theirs", "nobodys") == str(missing.value)
    # A workflow that names a foreign object goes ONLINE only with the grant.
    for keys in ({"workerGroup": "theirs"}, {"environmentCode": environment}):
        with pytest.raises(Py4JError, match="has no"):
            submit(entry, "spy", [a_task(7, "a") | keys], (0, 7))
    with stage.db.begin() as connection:
        for kind, number in numbers.items():
            grant_to(connection, kind, number, 1)
    for ask, given, number in asked:
        assert ask(*given) == number
    assert submit(entry, "spy", [a_task(7, "a") | {"workerGroup": "theirs"}], (0, 7))


def test_a_workflow_of_3_1_is_submitted_under_the_names_of_then(stage: Stage) -> None:
    entry = stage.an_author()
    relations = json.dumps([{"preTaskCode": 0, "postTaskCode": 5}])
    code = entry.createOrUpdateProcessDefinition(
        *(USER, PROJECT, "old", "of then", '[{"prop": "p", "value": "1"}]', json.dumps(SCHEDULE)),
        *("FAILURE", 0, 60, "default", "tenant_pydolphin", 1),
        *(relations, json.dumps([a_task(5, "only")]), None, None),
    )
    found = stage.definition("old")
    assert (found.code, found.timeout, found.description) == (code, 60, "of then")
    assert stage.schedules() == [(SCHEDULE["crontab"], ReleaseState.ONLINE)]
    entry.execProcessInstance(USER, PROJECT, "old", "", "default", "NONE", 0, 86_400)
    assert entry.getProcessDefinitionInfo(USER, PROJECT, "old").get("code") == code


def test_sub_workflows_and_awaited_tasks_are_found_by_the_codes_that_the_gateway_gave(
    stage: Stage,
) -> None:
    entry = stage.an_author()
    submit(entry, "child", [a_task(5, "only")], (0, 5))
    child = stage.definition("child")
    code = entry.getWorkflowInfo(USER, PROJECT, "child").get("code")
    awaited = entry.getDependentInfo(PROJECT, "child", "only")
    # The client asks if the map has anything in it.
    assert len(awaited) == 3
    item = {
        "projectCode": awaited.get("projectCode"),
        "definitionCode": awaited.get("processDefinitionCode"),
        "depTaskCode": awaited.get("taskDefinitionCode"),
        "cycle": "day",
        "dateValue": "today",
    }
    group = {"relation": "AND", "dependItemList": [item]}
    tasks = [
        a_task(6, "sub", "SUB_WORKFLOW", processDefinitionCode=code),
        a_task(8, "wait", "DEPENDENT", dependence={"relation": "AND", "dependTaskList": [group]}),
    ]
    submit(entry, "parent", tasks, (0, 6), (0, 8))
    nodes = json.loads(stage.definition("parent").process_definition_json)["tasks"]
    assert nodes[0]["params"]["processDefinitionId"] == child.id
    (made,) = nodes[1]["dependence"]["dependTaskList"][0]["dependItemList"]
    assert (made["definitionId"], made["depTasks"]) == (child.id, "only")
    with pytest.raises(Py4JError, match="no definition 'later' in project 'default'"):
        entry.getWorkflowInfo(USER, PROJECT, "later")


def test_what_has_no_place_here_refuses_the_submission_unless_it_is_to_be_offline(
    stage: Stage,
) -> None:
    entry = stage.an_author()
    tasks = [a_task(5, "lake", "DATAX")]
    with pytest.raises(Py4JError, match=r"'DATAX' is no task type .*release_state='offline'"):
        submit(entry, "datax", tasks, (0, 5))
    assert stage.definition("datax") is None
    submit(entry, "datax", tasks, (0, 5), online=0)
    assert stage.definition("datax").release_state == ReleaseState.OFFLINE
    with pytest.raises(Py4JError, match="no environment 'conda'"):
        entry.getEnvironmentInfo("conda")
    with pytest.raises(Py4JError, match="no data source 'metadata'"):
        entry.getDatasource("metadata", None)


def test_under_review_nothing_is_submitted_and_the_cure_is_told(stage: Stage) -> None:
    entry = stage.an_author()
    with_review(stage.owner)
    with pytest.raises(Py4JError, match="orcaflow definition propose"):
        submit(entry, "nightly", [a_task(5, "a")], (0, 5))
    assert stage.definition("nightly") is None


def test_rights_are_those_of_the_token_at_each_call(stage: Stage) -> None:
    viewer = stage.a_token("vera", role="viewer")
    entry = stage.entry(viewer.text)
    with pytest.raises(Py4JError, match="you are viewer; this takes the right to author"):
        submit(entry, "nightly", [a_task(5, "a")], (0, 5))
    with pytest.raises(Py4JError, match="for authors of a project"):
        entry.createOrUpdateResource(USER, "main.py", "print(1)")
    with pytest.raises(Py4JError, match="for administrators"):
        entry.createOrGrantProject(USER, "project-pydolphin", None)
    boss = stage.entry(stage.a_token("root", is_admin=True).text)
    boss.createOrGrantProject(USER, "project-pydolphin", None)
    submit(boss, "secret", [a_task(5, "a")], (0, 5), project="project-pydolphin")
    # Foreign is missing.
    for ask in (
        lambda: entry.getWorkflowInfo(USER, "project-pydolphin", "secret"),
        lambda: submit(entry, "x", [a_task(5, "a")], (0, 5), project="project-pydolphin"),
    ):
        with pytest.raises(Py4JError, match="no project 'project-pydolphin'"):
            ask()
    with pytest.raises(Py4JError, match="for administrators"):
        entry.createOrGrantProject(USER, "project-pydolphin", None)
    revoke_token(stage.owner, viewer.view.id)
    with pytest.raises(Py4JError, match="unknown, expired or revoked"):
        entry.getGatewayVersion()


def test_every_method_asks_for_the_right_that_it_takes(stage: Stage, plants: Plants) -> None:
    boss = stage.entry(stage.a_token("root", is_admin=True).text)
    boss.createOrGrantProject(USER, "foreign", None)
    submit(boss, "own", [a_task(5, "a")], (0, 5))
    submit(boss, "hidden", [a_task(6, "h")], (0, 6), project="foreign")
    create_datasource(
        stage.owner, "metadata", "sqlite:///some.db", password=None, type_=None, note=None,
        replace=False,
    )  # fmt: skip
    viewer = stage.entry(stage.a_token("vera", role="viewer").text)
    author = stage.entry(stage.a_token("ada").text)
    # One who may look at what is hidden to the author, and do no more.
    beside = stage.entry(stage.a_token("bea").text)
    grant(stage.owner, "bea", project="foreign", role="viewer")
    hidden = stage.definition("hidden").code
    child = a_task(7, "sub", "SUB_WORKFLOW", processDefinitionCode=hidden)
    item = {"definitionCode": hidden, "depTaskCode": 6, "cycle": "day", "dateValue": "today"}
    group = {"relation": "AND", "dependItemList": [item]}
    dependence = {"relation": "AND", "dependTaskList": [group]}
    waits = a_task(8, "wait", "DEPENDENT", dependence=dependence)
    sql = a_task(9, "sql", "SQL", datasource=1, type="SQLITE", sql="select 1", sqlType=0)
    plain = [a_task(5, "a")]
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("to author", lambda: submit(viewer, "own", plain, (0, 5))),
        ("to operate", lambda: run(viewer, "own")),
        ("for authors", lambda: viewer.createOrUpdateResource(USER, "main.py", "1")),
        ("for authors", lambda: viewer.getDatasource("metadata", None)),
        ("for authors", lambda: viewer.getDatasourceInfo("metadata")),
        ("for authors", lambda: submit(viewer, "sql", [sql], (0, 9))),
        ("for administrators", lambda: author.createOrGrantProject(USER, "more", None)),
        (NO_PROJECT, lambda: submit(author, "x", plain, (0, 5), project="foreign")),
        (NO_PROJECT, lambda: run(author, "hidden", project="foreign")),
        (NO_PROJECT, lambda: author.getWorkflowInfo(USER, "foreign", "hidden")),
        (NO_PROJECT, lambda: author.getDependentInfo("foreign", "hidden", "h")),
    ]

    def refusal(call: Callable[[], Any]) -> str:
        try:
            return f"done: {call()}"
        except Py4JError as error:
            return str(error)

    wrong = []
    for number, (words, call) in enumerate(calls):
        plants.refused = None
        said = refusal(call)
        if words not in said:
            wrong.append((number, words, said))
        elif words != NO_PROJECT:
            plants.plant(f"{number} {words}", lambda call=call, words=words: words in refusal(call))
    # The filter of definitions alone hides nothing of a project that is missing already.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("common.store.people.definitions.seen_projects", lambda *_: true())
        kept = [words for words, call in calls if words == NO_PROJECT and words in refusal(call)]
    assert len(kept) == 4
    # Without a share a definition is missing, even for an author with a role in its project.
    for entry, task in ((author, child), (author, waits), (beside, child), (beside, waits)):
        code = task["code"]
        assert "nor here" in refusal(lambda e=entry, t=task, c=code: submit(e, "spy", [t], (0, c)))
    with lists_of_everybody():
        missing = [words for words, call in calls if words == NO_PROJECT and words in refusal(call)]
    assert wrong == []
    assert plants.unexplained == []
    assert plants.undecided().isdisjoint(BY_GATEWAY)
    assert ("vera", "resource.save", "refused") in stage.audited()
    # A foreign project is missing since the list of projects leaves it out.
    assert missing == []


def test_x25_an_author_schedules_no_more_often_by_the_gateway_than_elsewhere(stage: Stage) -> None:
    boss = stage.entry(stage.a_token("root", is_admin=True).text)
    author = stage.an_author()
    tasks, edge = [a_task(5, "a")], (0, 5)
    quick = {**SCHEDULE, "crontab": "0/10 * * * * ?"}
    submit(boss, "slow", tasks, edge, schedule=SCHEDULE)
    submit(boss, "quick", tasks, edge, schedule=quick)
    with stage.db.begin() as connection:
        connection.execute(t.schedule.update().where(t.schedule.c.id == 2).values(release_state=0))
    # One that is new, one that is changed, and one that is there and brought ONLINE.
    for name in ("new", "slow", "quick"):
        with pytest.raises(Py4JError, match=r"at least 60 s apart \(api.schedule_seconds_author\)"):
            submit(author, name, tasks, edge, schedule=quick)
    assert (quick["crontab"], ReleaseState.ONLINE) not in stage.schedules()
    # A change that was refused has left the schedule as it fired before.
    assert (SCHEDULE["crontab"], ReleaseState.ONLINE) in stage.schedules()
    assert [each for each, _ in stage.schedules()] == [SCHEDULE["crontab"], quick["crontab"]]
    submit(boss, "quick", tasks, edge, schedule=quick)
    assert (quick["crontab"], ReleaseState.ONLINE) in stage.schedules()


def test_resources_of_a_user_are_files_of_that_user_alone(stage: Stage) -> None:
    entry = stage.an_author()
    entry.createOrUpdateResource(USER, "lib/main.py", "print('ü')")
    path = entry.queryResourcesFileInfo(USER, "lib/main.py").getFullName()
    file = stage.config.home / "resources" / path
    assert ("ada", "resource.save", "done") in stage.audited()
    assert file.read_text(encoding="utf-8") == "print('ü')"
    # Only the daemons may enter the folder, and its name can't be guessed.
    folder, users = file.parents[1:3]
    assert (users.name, stat.S_IMODE(users.stat().st_mode)) == ("users", 0o700)
    assert re.fullmatch(r"[0-9]+-[0-9a-f]{32}", folder.name)
    assert stat.S_IMODE((stage.config.home / "resources.key").stat().st_mode) == 0o600
    entry.createOrUpdateResource(USER, "lib/main.py", None, "print(2)")
    assert file.read_text(encoding="utf-8") == "print(2)"
    other = stage.entry(stage.a_token("bob").text)
    # A file of nobody, or of all.
    assert other.queryResourcesFileInfo(USER, "lib/main.py").getFullName() == "lib/main.py"
    assert entry.getResourcesFileInfo("PYTHON", "lib/main.py").get("id") == path
    outside = stage.config.home / "outside"
    outside.mkdir()
    (file.parent / "link").symlink_to(outside)
    for name in (
        *("../../x", "lib/../../x", "", "/", "a\x00b", "a\nb", "lib/link/x", "x" * 300),
        # A folder.
        "lib",
    ):
        with pytest.raises(Py4JError):
            entry.createOrUpdateResource(USER, name, "x")
    assert [each.name for each in folder.iterdir()] == ["lib"]
    assert list(outside.iterdir()) == []
    assert sorted(each.name for each in stage.config.home.rglob("*.py")) == ["main.py"]


def test_x116_a_resource_beyond_the_limits_is_refused_with_the_limit(stage: Stage) -> None:
    api = replace(stage.config.api, user_resource_files=2)
    object.__setattr__(stage.config, "api", api)
    entry = stage.an_author()
    for name in ("one", "two", "one"):
        entry.createOrUpdateResource(USER, name, "print(1)")
    with pytest.raises(Py4JError, match=r"api\.user_resource_files allows 2"):
        entry.createOrUpdateResource(USER, "three", "print(1)")
    assert ("ada", "resource.save", "refused") in stage.audited()


@pytest.mark.parametrize("token", [None, "", "jwUDzpLsNKEFER4*a8gruBH_GsAurNxU7A@Xc", "of_x"])
def test_nobody_gets_in_without_a_token_of_a_user(stage: Stage, token: str | None) -> None:
    with pytest.raises(Py4JError):
        stage.entry(token).getGatewayVersion()


def test_only_the_methods_of_submission_are_served(stage: Stage) -> None:
    token = stage.a_token("ada").text
    refused = [
        *(("r", "u", "java", "rj", "e"), ("i", "java.util.HashMap", "e"), ("j", "i", "e")),
        *(("a", "g", "o1", "i0", "e"), ("h", "o", "t", "e"), ("x",), ("", "e"), ("c", "t", "e")),
        ("f", "g", "t", "x", "e"),
    ]
    for lines in refused:
        assert stage.said(*lines, token=token).startswith("!xs"), lines
    entry = stage.entry(token)
    for call in (
        lambda: entry.deleteUser("ada", 1),
        entry.getClass,
        lambda: entry.getGatewayVersion(1),
        lambda: entry.createOrGrantProject(1, 2, 3),
        lambda: entry.execWorkflowInstance(*[None] * 8),
        lambda: entry.createOrUpdateWorkflow(*["x"] * 16),
        lambda: entry.createOrUpdateWorkflow(*[1] * 16),
    ):
        with pytest.raises(Py4JError, match="while calling t"):
            call()
    assert stage.said("c", "xforeign", "getId", "e", "r", "e", token=token).startswith("!xs")


def test_what_is_too_long_is_answered_and_others_go_on(stage: Stage) -> None:
    token = stage.a_token("ada").text
    assert "more than 1 MB" in stage.said("c", "t", "x" * 2_000_000, "e", token=token)
    assert "too long" in stage.said("c", "t", "x", *["n"] * 50, "e", token=token)
    entry = stage.entry(token)
    for deep in ("[" * 100_000, '{"a":1,"a":2}', "NaN", '"\\ud800"', "1"):
        with pytest.raises(Py4JError, match=r"taskDefinition(Json|List)"):
            entry.createOrUpdateWorkflow(
                *(USER, PROJECT, "deep", "", "[]", None, False, "NONE", 0, 0, "default", 1),
                *("[]", deep, None, "PARALLEL"),
            )
    assert entry.getGatewayVersion() == "3.2.2"


class Hurried(SystemClock):
    """A clock on which half a minute passes at every look."""

    def __init__(self) -> None:
        self._at = 0.0

    def monotonic(self) -> float:
        self._at += 31
        return self._at


@pytest.mark.parametrize("begun", [b"", b"A\nof_", b"c\nt\ngetGat"])
def test_half_a_command_ends_with_the_connection(begun: bytes) -> None:
    taken = listen("127.0.0.1", 0)

    def never(_token: str, _address: str) -> None:
        return None

    with (
        opened(Responder(taken, never, clock=Hurried())),
        socket.create_connection(taken.getsockname(), timeout=20) as connection,
    ):
        connection.sendall(begun)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_x60_connections_without_a_token_shut_nobody_out_of_the_gateway() -> None:
    taken = listen("127.0.0.1", 0)

    def enter(token: str, _address: str) -> EntryPoint | None:
        assert token == "t"
        return None

    with opened(Responder(taken, enter, clock=SystemClock())), ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(taken.getsockname(), timeout=10))
        client = stack.enter_context(socket.create_connection(taken.getsockname(), timeout=10))
        client.sendall(b"A\nt\n")
        assert b"unknown" in client.recv(1000)
