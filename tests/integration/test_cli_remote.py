"""Commands by way of an api-server: the same output and exit code as at the database."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, func, insert, select, update
from typer.main import get_command

from common.config import load
from common.errors import NotAllowedError
from common.model.cluster import Heartbeat, NodeKind
from common.model.complement_states import ComplementState
from common.model.offers import Offer
from common.model.states import ProcessState, TaskState
from common.model.workers import WorkerStatus
from common.store import tables as t
from common.store.connect import engine
from common.store.worker.tasks import PostgresTaskStore
from operations.documents.commands import command_row
from operations.members import registry
from operations.session import Session
from operations.users import create_user, grant
from orcaflow.cli.app import app as command_line
from orcaflow.cli.remote import ANYWHERE, LOCAL_ONLY, OVER_HTTP, Chosen, carried_out
from orcaflow.remote.contexts import Server
from tests.builders import a_definition_json
from tests.conftest import ZookeeperRoot
from tests.integration.administering import ADMINISTERED, REFUSED
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli
from tests.integration.remote_commands import (
    JOURNEYS,
    LOGS,
    ORDERS,
    SAME,
    a_cluster,
    a_definition_that_waits_for,
    commands_of,
    datasource_journey,
    files_to_import,
    import_journey,
    numbered,
    schedule_journey,
    some_streams,
)


def test_commands_print_the_same_by_way_of_a_server_and_end_with_the_same_code(
    cli: Cli, remote: Cli, db: Engine
) -> None:
    a_cluster(db)
    some_streams(db)
    a_definition(db, process_definition_json=a_definition_json("a"), name="other")
    different = []
    for line in SAME:
        words = [each.replace("_", " ") if "*" in each else each for each in line.split()]
        # Again, if they differ: times are told to the minute, and one may have begun meanwhile.
        pairs = ((cli(*words), remote(*words)) for _ in range(2))
        if not any(here == there for here, there in pairs):
            different.append((line, cli(*words), remote(*words)))
    assert different == []


@pytest.mark.parametrize("line", ORDERS)
def test_orders_are_carried_out_by_a_server_as_they_are_at_the_database(
    cli: Cli, remote: Cli, db: Engine, line: str
) -> None:
    a_cluster(db)

    def put() -> list[dict[str, Any]]:
        with db.begin() as connection:
            rows = connection.execute(t.command.select().order_by(t.command.c.id)).mappings().all()
            connection.execute(t.command.delete())
        left = ("id", "start_time", "update_time", "scheduled_time")
        return [{key: each for key, each in row.items() if key not in left} for row in rows]

    put()
    here, made_here = cli(*line.split()), put()
    there, made_there = remote(*line.split()), put()
    assert numbered(here) == numbered(there)
    assert made_here == made_there
    assert len(made_there) == 1


def test_logs_and_the_ends_of_those_that_failed_are_told_by_a_server(
    cli: Cli, remote: Cli, db: Engine, tmp_path: Path
) -> None:
    a_cluster(db)
    log = tmp_path / "home" / "tasks" / "logs" / "1" / "1" / "2.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"one\n\x1b[31mtwo\x1b[0m\x07\n" + "fünf".encode() * 50_000 + b"\nlast")
    decided = an_attempt(
        db, 1, TaskState.SUCCESS, name="way", task_type="SWITCH", branch='["b"]', flag=1
    )
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance).where(t.task_instance.c.id == 2).values(log_path=str(log))
        )
    different = []
    for line in (*LOGS, f"task log {decided}", f"task log {decided} --follow"):
        here, there = cli(*line.split()), remote(*line.split())
        if here != there:
            different.append((line, here, there))
    assert different == []
    # A line tells the moment at which something was seen.
    here, there = (numbered(each("instance", "watch", "1")) for each in (cli, remote))
    assert here == there
    assert "| last" in there[1]
    # Of a log that is out of reach there are the last words, in the place of the whole.
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == 2)
            .values(host="127.0.0.1:1", log_path="/tasks/logs/1/1/2.log")
        )
        connection.execute(
            insert(t.task_log_tail).values(task_instance_id=2, size=40, tail=b"last\nwords\n")
        )
    for line in ("task log 2", "task log 2 -n 1", "task log 2 -n 2", "task log 2 -n 3"):
        assert cli(*line.split()) == remote(*line.split()), line
    assert "29 bytes before this are out of reach" in remote("task", "log", "2")[1]
    late = numbered(cli("instance", "watch", "2", "--timeout", "0.000001"))
    assert numbered(remote("instance", "watch", "2", "--timeout", "0.000001")) == late
    assert late[0] == 124


def test_definitions_are_released_and_deleted_by_a_server(remote: Cli, db: Engine) -> None:
    a_cluster(db)
    number = a_definition(db, process_definition_json=a_definition_json("a"), name="other")
    run = an_instance(db, ProcessState.SUCCESS, process_definition_id=number)
    assert remote("definition", "offline", "nightly", "other")[1] == (
        "nightly is now OFFLINE\nschedule 1 is now OFFLINE\nschedule 3 is now OFFLINE\n"
        "other is now OFFLINE\n"
    )
    kind = parsed(
        remote("definition", "set", "other", "--execution-type", "serial-wait", "-o", "json")
    )
    assert kind == [
        {"name": "other", "id": number, "execution_type": "SERIAL_WAIT", "changed": True}
    ]
    assert remote("definition", "export", "other", "--with-secrets")[0] == 4
    gone = parsed(remote("definition", "delete", "other", "--instances", "-o", "json"))
    assert (gone["deleted"], gone["instances"]["deleted"]) == (
        [{"id": number, "name": "other"}],
        [run],
    )
    # Runs that are gone with what began them.
    assert parsed(remote("instance", "delete", "4", "-o", "json"))["deleted"] == [4]


def test_people_and_groups_are_administered_by_a_server_as_they_are_at_the_database(
    cli: Cli, remote: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with db.begin() as connection:
        connection.execute(update(t.tenant).where(t.tenant.c.id == 1).values(tenant_code="default"))
        for number in range(3):
            connection.execute(
                insert(t.alert).values(
                    title=f"a{number}", alert_status=number, alertgroup_id=1, content="[{}]"
                )
            )

    def done(command: Cli, line: str, it: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
        code, out, err = numbered(command(*line.format(it=it).split()))
        alike = [re.sub(f"{it}|of_[\\w-]+", "IT", text) for text in (out, err)]
        return code, *alike

    remote("project", "list")  # From now on its token was used.
    different = []
    for line in (*REFUSED, *ADMINISTERED):
        here, there = done(cli, line, "aaaa"), done(remote, line, "bbbb")
        if here != there:
            different.append((line, here, there))
    assert different == []
    with db.connect() as connection:
        lines = connection.execute(
            select(t.audit_log.c.user_name, t.audit_log.c.action, t.audit_log.c.outcome)
        ).all()
    made = {
        name: sorted(f"{each.action} {each.outcome}" for each in lines if each.user_name == name)
        for name in ("database", "admin")
    }
    made["database"].remove("token.create done")  # That of the test itself.
    assert [each for each in made["database"] if each.endswith("done")] == [
        each for each in made["admin"] if each.endswith("done")
    ]


def test_a_pool_over_http_names_its_users_as_at_the_database(
    cli: Cli, remote: Cli, db: Engine
) -> None:
    a_cluster(db)
    cli("pool", "create", "b", "--size", "2")
    cli("pool", "create", "a", "--size", "1")
    with db.begin() as connection:
        for task, status in ((3, 1), (1, -1)):
            connection.execute(
                insert(t.task_group_queue).values(
                    task_id=task, group_id=1, status=status, weight=1, process_id=1
                )
            )
    for line in (
        "pool list",
        "pool list -o json",
        "pool show b",
        "pool show b -o json",
        "pool remove b",
    ):
        assert cli(*line.split()) == remote(*line.split()), line
    assert "holds its slots" in remote("pool", "remove", "b")[2]


def test_schedules_are_made_changed_released_and_deleted_by_a_server(
    cli: Cli, remote: Cli, db: Engine
) -> None:
    a_definition(db, process_definition_json=a_definition_json("a"), name="nightly")
    a_definition(db, process_definition_json=a_definition_json("a"), name="other")

    here, there = ([numbered(each) for each in schedule_journey(run, db)] for run in (cli, remote))
    assert here == there
    assert [code for code, _, _ in here] == [0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 3]


def test_complements_are_planned_made_steered_and_watched_by_a_server(
    cli: Cli, remote: Cli, db: Engine
) -> None:
    number = a_definition(db, process_definition_json=a_definition_json("a"), name="nightly")
    a_definition_that_waits_for(db, number)
    for day in (1, 2):
        an_instance(
            db,
            ProcessState.SUCCESS,
            process_definition_id=number,
            schedule_time=datetime(2013, 1, day, tzinfo=UTC),
            start_time=NOW - timedelta(seconds=90),
        )

    def journey(run: Cli) -> Iterator[tuple[int, str, str]]:
        asked = ("complement", "nightly", "--from", "2013-01-01", "--to", "2013-01-03")
        more = ("--zone", "UTC", "--param", "day=1", "--reprocess", "missing", "--parallel", "2")
        yield run(*asked, *more, "--downstream", "--plan")
        yield run(*asked, *more, "--priority", "low", "--start-node", "a", "--only")
        with db.begin() as connection:
            first = connection.scalar(select(func.max(t.complement.c.id)))
        yield run("complement", "pause", str(first))
        yield run("complement", "resume", str(first))
        yield run("complement", "cancel", str(first), "--no-wait")
        yield run("complement", "wait", str(first), "--timeout", "0.000001")
        with db.begin() as connection:
            connection.execute(
                update(t.complement).values(state=int(ComplementState.FAILURE), end_time=NOW)
            )
            connection.execute(update(t.complement_date).values(state="failure"))
        yield run("complement", "retry", str(first))
        yield run(*asked, *more, "--downstream")

    here, there = ([numbered(each) for each in journey(run)] for run in (cli, remote))
    assert here == there
    assert [code for code, _, _ in here] == [0, 0, 0, 0, 0, 124, 0, 0]
    planned = [
        run("complement", "nightly", "--dates", "2013-01-01", "--plan", "-o", "json")
        for run in (cli, remote)
    ]
    for each in planned:
        plan = json.loads(re.sub(r'"estimated_end": "[^"]*"', '"estimated_end": ""', each[1]))
        assert plan["complements"][0]["dates"][0]["becomes"] == "runs"


def test_data_sources_are_made_tried_and_removed_by_a_server(
    cli: Cli, remote: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "hunter2")
    shared = tmp_path / "home" / "data"
    shared.mkdir(parents=True)
    (shared / "some.db").touch()

    here, there = ([numbered(each) for each in datasource_journey(run)] for run in (cli, remote))
    assert here == there
    assert [code for code, _, _ in here] == [0, 4, 0, 5, 0, 0, 0, 0]
    assert "hunter" not in str(there)


def test_files_are_imported_by_a_server_as_they_are_at_the_database(
    *,
    cli: Cli,
    remote: Cli,
    db: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORCAFLOW_SECRET_DB_PASSWORD", "hunter2")
    (tmp_path / "job.py").write_text("1", encoding="utf-8")
    files = files_to_import()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")

    def stored() -> dict[str, object]:
        row = t.process_definition.c
        with db.begin() as connection:
            found = {
                each.name: (
                    re.sub(r'"processDefinitionId": \d+', "", each.process_definition_json),
                    each.global_params,
                    each.release_state,
                    each.version,
                )
                for each in connection.execute(select(t.process_definition).order_by(row.id))
            }
            connection.execute(t.process_definition.delete())
            connection.execute(t.schedule.delete())
        return found

    here, made_here = [numbered(each) for each in import_journey(cli, tmp_path)], stored()
    there, made_there = [numbered(each) for each in import_journey(remote, tmp_path)], stored()
    assert here == there
    # An import at the database stores a file's digest. An import over HTTP stores its text.
    named, sent = str(made_here.pop("script")), str(made_there.pop("script"))
    assert ('"digests"' in named, '"fileText"' in named) == (True, False)
    assert ('"digests"' in sent, '"fileText"' in sent) == (False, True)
    assert made_here == made_there
    assert sorted(made_here) == ["bare", "later", "old", "own", "plain"]
    assert "hunter2" in str(made_there["own"])
    assert [code for code, _, _ in here] == [int(each) for each in "000000011000000000100"]


@pytest.mark.parametrize(("journey", "tables", "codes"), JOURNEYS)
def test_supervisors_and_topologies_are_submitted_and_steered_by_a_server(
    *, cli: Cli, remote: Cli, db: Engine, tmp_path: Path, journey: Any, tables: Any, codes: Any
) -> None:
    here = list(journey(cli, tmp_path))
    with db.begin() as connection:
        for table in tables:
            connection.execute(table.delete())
    there = list(journey(remote, tmp_path))
    assert [numbered(each) for each in here] == [numbered(each) for each in there]
    assert [each[0] for each in here] == codes


def test_every_command_is_done_by_a_server_or_says_why_not() -> None:
    known = set(commands_of(get_command(command_line)))
    assert known == OVER_HTTP | ANYWHERE | LOCAL_ONLY.keys()
    assert len(known) == len(OVER_HTTP) + len(ANYWHERE) + len(LOCAL_ONLY)
    tested = [line.split() for line in (*SAME, *LOGS, *ORDERS, *ADMINISTERED, *REFUSED)]
    done = {" ".join(words[:2]) for words in tested if words[0] != "run"}
    done = {"complement run" if each == "complement nightly" else each for each in done}
    assert done - {"complement nobody"} == OVER_HTTP - {"run", "server list", "worker list"}
    chosen = Chosen(url="http://127.0.0.1:1", token_file="x")  # A path.
    for command, reason in LOCAL_ONLY.items():
        with pytest.raises(NotAllowedError) as refused, carried_out(chosen, command):
            raise AssertionError(command)
        assert reason in str(refused.value)
        assert "without --server" in str(refused.value)


def test_a_command_that_no_server_does_touches_nothing_here(remote: Cli, db: Engine) -> None:
    a_cluster(db)
    code, out, err = remote("purge", "--older-than", "0d")
    assert (code, out) == (4, "")
    assert "without --server" in err
    with db.connect() as connection:
        assert len(connection.execute(t.command.select()).all()) == 1
        assert len(connection.execute(t.process_instance.select()).all()) == 5


def test_the_servers_are_those_of_the_cluster_with_what_they_told(
    *,
    cli: Cli,
    remote: Cli,
    served: tuple[FastAPI, str],
    db: Engine,
    zk_root: ZookeeperRoot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", zk_root.hosts)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__ROOT", zk_root.root)
    monkeypatch.setattr("api.routes.cluster.PATIENCE", timedelta(seconds=10))
    monkeypatch.setattr("api.routes.workers.PATIENCE", timedelta(seconds=10))
    served[0].state.config = load()
    nobody = cli("server", "list")
    assert remote("server", "list") == nobody
    with registry(load()) as opened:
        now = datetime.now(UTC).replace(microsecond=0)
        beat = Heartbeat(
            host="127.0.0.1",
            pid=7,
            cpu=0.25,
            memory=0.5,
            load=1.07,
            created=now,
            beaten=now,
            status=WorkerStatus(capacity=3, used=1, version="1", category="big"),
        )
        node = opened.membership.join(NodeKind.WORKER, "127.0.0.1:1", beat.text())
        for offer in (None, Offer(slots=3, version="1", groups=("etl",), group_ids=frozenset({1}))):
            if offer is not None:
                PostgresTaskStore(db).record_offer(node, offer)
            modes = ([], ["worker", "lazy", "127.0.0.1:1", "--reason", "old"])[offer is not None]
            assert not modes or remote(*modes)[0] == 0
            for line in (["server", "list"], ["server", "list", "-o", "json"], ["worker", "list"]):
                here = cli(*line)
                assert (here[0], remote(*line)) == (0, here)
    assert here != nobody
    assert "127.0.0.1:1" in here[1]
    assert all(each in here[1] for each in ("lazy", "big", "old", "etl"))


@pytest.fixture
def eve(
    cli: Cli,
    remote: Cli,
    served: tuple[FastAPI, str],
    cli_owner: Session,
    token_of: Callable[[str], str],
) -> Cli:
    """Runs a command by way of the server, as a viewer of the default project."""
    create_user(cli_owner, "eve", is_admin=False, password=None, tenant=None)
    grant(cli_owner, "eve", project="default", role="viewer")
    token = token_of("eve")
    return lambda *arguments: cli("--server", served[1], "--token-file", token, *arguments)


def test_a_token_gives_no_more_than_its_user_may(remote: Cli, eve: Cli, db: Engine) -> None:
    a_cluster(db)
    with db.begin() as connection:
        project = connection.scalar(insert(t.project).values(name="x").returning(t.project.c.id))
    foreign = a_definition(db, name="theirs", project_id=project)
    hidden = an_instance(db, ProcessState.RUNNING, process_definition_id=foreign, name="hidden")
    assert "theirs" in remote("instance", "list")[1]
    assert "theirs" not in eve("instance", "list")[1]
    for line in (
        "instance list", "instance list --definition theirs", f"instance why {hidden}",
        "run theirs", "command list --definition theirs", f"instance stop {hidden}",
    ):  # fmt: skip
        code, out, err = eve(*line.split())
        assert "hidden" not in out + err, line
        assert code == (0 if line == "instance list" else 3), (line, code)
    code, _, err = eve("run", "nightly")
    assert (code, "you are viewer" in err) == (4, True)
    assert (eve("command", "list", "--definition", "theirs")[2]) == (
        eve("command", "list", "--definition", "thei")[2].replace("'thei'", "'theirs'")
    )


def test_a_server_that_is_away_or_none_is_told_with_the_cure(
    cli: Cli,
    remote: Cli,
    served: tuple[FastAPI, str],
    token_of: Callable[[str], str],
    tmp_path: Path,
) -> None:
    good, (app, url) = token_of("admin"), served
    other = tmp_path / "other.token"
    other.touch(mode=0o600)
    other.write_text("of_" + "a" * 43, encoding="utf-8")
    shared = tmp_path / "shared.token"
    shared.write_text("of_x", encoding="utf-8")
    shared.chmod(0o644)
    wrong: tuple[tuple[str, str, int, str], ...] = (
        ("http://127.0.0.1:1", good, 5, "no api-server answers at http://127.0.0.1:1"),
        (url, str(other), 4, "refuses the token"),
        (url, str(shared), 78, "chmod 600"),
        (url, str(tmp_path / "none"), 78, "orcaflow token create"),
        ("http://10.0.0.7:12345", good, 2, "encrypted alone"),
        ("ftp://127.0.0.1", good, 2, "is no address"),
        (f"{url}/elsewhere", good, 3, "nothing at this path"),
    )
    for server, token, code, words in wrong:
        found = cli("--server", server, "--token-file", token, "instance", "list")
        assert (found[0], words in found[2], found[1]) == (code, True, ""), found
        assert "of_" not in found[2].replace("begins with of_", "")
    assert cli("--server", url, "instance", "list")[0] == 2
    app.state.engine = engine(
        "postgresql+psycopg2://nobody@127.0.0.1:1/none", connect_timeout=timedelta(seconds=2)
    )
    assert remote("instance", "list")[0] == 5


def test_an_answer_of_another_version_is_told_as_one(
    remote: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(db)
    later = lambda view: command_row(view) | {"outcome": "LATER"}  # noqa: E731
    monkeypatch.setattr("api.routes.commands.command_row", later)
    code, out, err = remote("command", "show", "1")
    assert (code, out) == (78, "")
    assert "is of version 0.0.7, and this command of" in err


def test_contexts_are_named_used_and_removed(
    cli: Cli, remote: Cli, served: tuple[FastAPI, str], token_of: Callable[[str], str], db: Engine
) -> None:
    a_cluster(db)
    token, url = token_of("admin"), served[1]
    assert cli("context", "list")[0] == 0
    assert cli("context", "use", "team")[0] == 3
    assert cli("context", "add", "team", "--server", url, "--token-file", token)[0] == 0
    for name in ("local", "", "a\nb"):
        assert cli("context", "add", name, "--server", url, "--token-file", token)[0] == 2, name
    assert cli("context", "use", "team")[0] == 0
    assert parsed(cli("context", "list", "-o", "json")) == [
        {"name": "team", "current": True, "url": url, "project": None, "token_file": token}
    ]
    file = Path(load().home) / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert Path(token).read_text(encoding="utf-8").strip() not in file.read_text(encoding="utf-8")
    # By the server, which alone refuses what it does not do.
    assert cli("command", "show", "70")[0] == 0
    assert cli("db", "check")[0] == 4
    # A context leaves this computer's own daemons alone.
    assert cli("server", "status")[0] == 3
    assert remote("server", "status")[0] == 4
    assert cli("context", "use", "local")[0] == 0
    assert cli("db", "check")[0] == 0
    assert cli("context", "remove", "team")[0] == 0
    assert cli("context", "remove", "team")[0] == 3
    for text in ("", "[]", "{", '{"current": "x", "contexts": {}}', json.dumps({"contexts": 1})):
        file.write_text(text, encoding="utf-8")
        assert cli("pool", "list")[0] == 78, text


def test_a_server_s_token_is_read_from_its_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("of_abc\n", encoding="utf-8")
    assert Server(url="http://localhost", token_file=str(path)).token() == "of_abc"
