"""The command line on a real database, with a master's own planning behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, insert, select, text, update

from common.clock import SystemClock
from common.model.cluster import Node
from common.model.states import ProcessState, TaskState
from common.store import schema
from common.store.connect import engine
from common.store.listen import Channel, Notifications
from common.store.master.commands import PostgresCommandStore
from common.store.tables import (
    command,
    process_instance,
    task_instance,
    worker_group,
)
from master.commands import plan
from master.commands.origin import Origin
from orcaflow.cli.app import main
from tests.builders import read_graph
from tests.granting import grant_all

MASTER = Node(address="127.0.0.1:5678", incarnation=1)
ORIGIN = Origin(zone=ZoneInfo("UTC"), graph=read_graph)

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(emptied_url: str) -> Iterator[Engine]:
    """The database that the command line talks to."""
    made = engine(emptied_url, pool_size=3)
    yield made
    made.dispose()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def cli(
    emptied_url: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    """Runs a command: exit code, standard output, standard error."""
    monkeypatch.setenv("ORCAFLOW_HOME", str(home))
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", emptied_url)
    monkeypatch.setenv("ORCAFLOW_TIME_ZONE", "UTC")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def cli_on_empty(cli: Cli, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs commands on a database without a schema."""
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", database_url)
    return cli


@contextmanager
def a_master(url: str, db: Engine, work: Callable[[int], None] = lambda _: None) -> Iterator[None]:
    """Plans commands as a master does, and leaves the resulting instance to `work`."""
    store = PostgresCommandStore(db)
    clock = SystemClock()
    over = threading.Event()
    with Notifications(url, (Channel.COMMAND,)) as notifications:

        def take() -> None:
            while not over.is_set():
                notifications.wait(timedelta(seconds=5))
                taken = store.take(
                    node=MASTER,
                    limit=10,
                    room=10,
                    spare=10,
                    live_masters=lambda: frozenset({MASTER}),
                    planner=lambda one, snapshot: plan(
                        one, snapshot, now=clock.now(), origin=ORIGIN
                    ),
                    now=clock.now(),
                )
                for each in taken.handled:
                    if each.ownership is not None:
                        work(each.ownership.process_instance_id)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield
        finally:
            over.set()
            notifications.wake()
            thread.join()


def a_definition(*scripts: str, name: str = "nightly") -> dict[str, Any]:
    tasks = [
        {
            "name": f"t{index}",
            "type": "SHELL",
            "params": {"rawScript": script},
            "preTasks": [f"t{index - 1}"] if index else [],
        }
        for index, script in enumerate(scripts)
    ]
    return {"name": name, "processDefinitionJson": {"tasks": tasks}}


@pytest.fixture
def imported(cli: Cli, db: Engine, tmp_path: Path) -> str:
    """Insert an ONLINE definition; return its name."""
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps(a_definition("echo ${who}", "false")))
    assert cli("definition", "import", str(path))[0] == 0
    return "nightly"


def an_attempt(instance_id: int, name: str, state: TaskState, **values: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    ended = state not in (TaskState.SUBMITTED, TaskState.RUNNING)
    return {
        "name": name,
        "task_type": "SHELL",
        "process_definition_id": 1,
        "process_instance_id": instance_id,
        "task_json": json.dumps({"params": json.dumps({"rawScript": "echo ${who}"})}),
        "state": int(state),
        "submit_time": now,
        "start_time": now,
        "end_time": now if ended else None,
        "host": "127.0.0.1:1234",
        "worker_incarnation": 7,
        **values,
    }


def ended(db: Engine, state: ProcessState, *attempts: dict[str, Any]) -> Callable[[int], None]:
    """Runs an instance to its end with these attempts."""

    def work(instance_id: int) -> None:
        with db.begin() as connection:
            for attempt in attempts:
                connection.execute(
                    insert(task_instance).values(attempt | {"process_instance_id": instance_id})
                )
            connection.execute(
                update(process_instance)
                .where(process_instance.c.id == instance_id)
                .values(state=int(state), end_time=datetime.now(UTC), state_reason="as told")
            )

    return work


def test_an_empty_database_is_reported_with_the_cure(cli_on_empty: Cli) -> None:
    code, _, err = cli_on_empty("definition", "list")
    assert code == 78
    assert "orcaflow db upgrade" in err


def test_the_schema_is_made_once_and_then_left_alone(cli_on_empty: Cli) -> None:
    code, out, _ = cli_on_empty("db", "upgrade", "-o", "json")
    assert (code, json.loads(out)["applied"]) == (0, list(schema.REVISIONS))
    code, out, _ = cli_on_empty("db", "upgrade", "-o", "json")
    assert (code, json.loads(out)["applied"]) == (0, [])
    assert cli_on_empty("db", "check")[0] == 0


def test_a_new_definition_is_online_and_importing_it_again_changes_nothing(
    cli: Cli, imported: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "nightly.json")
    code, out, _ = cli("definition", "import", path, "-o", "json")
    (row,) = json.loads(out)
    assert (code, row["changed"], row["version"], row["release_state"]) == (0, False, 1, "ONLINE")


def test_importing_keeps_what_a_person_took_offline(
    cli: Cli, imported: str, tmp_path: Path
) -> None:
    assert cli("definition", "offline", imported)[0] == 0
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps(a_definition("true")))
    code, out, _ = cli("definition", "import", str(path), "-o", "json")
    (row,) = json.loads(out)
    assert (code, row["version"], row["release_state"]) == (0, 2, "OFFLINE")
    assert json.loads(cli("definition", "import", str(path), "--online", "-o", "json")[1])[0][
        "release_state"
    ] == ("ONLINE")


def test_one_wrong_file_keeps_all_files_out(cli: Cli, db: Engine, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(a_definition("true", name="good")))
    bad.write_text('{"name": "bad", "tasks": [{"name": "a", "type": "COBOL"}]}')
    code, out, err = cli("definition", "import", str(good), str(bad))
    assert (code, out) == (1, "")
    assert f"{bad}: 'bad': task 'a', type: 'COBOL' is unknown" in err
    assert json.loads(cli("definition", "list", "-o", "json")[1]) == []


def test_names_with_quotes_and_their_kin_are_only_names(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    name = """Robert'); DROP TABLE t_ds_command;--"<b>%_../"""
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(a_definition("true", name=name)))
    assert cli("definition", "import", str(path))[0] == 0
    code, out, _ = cli("definition", "show", name, "-o", "json")
    assert (code, json.loads(out)["name"]) == (0, name)
    for hostile in ("a\0b", "a\nb", "../../etc/passwd"):
        assert cli("definition", "show", hostile)[0] == 3


def test_an_export_can_be_imported(cli: Cli, imported: str, tmp_path: Path) -> None:
    code, out, _ = cli("definition", "export", imported)
    assert code == 0
    path = tmp_path / "exported.json"
    path.write_text(out)
    (row,) = json.loads(cli("definition", "import", str(path), "-o", "json")[1])
    assert (row["name"], row["changed"]) == (imported, False)


def test_an_unknown_definition_is_not_found_and_a_near_one_named(cli: Cli, imported: str) -> None:
    code, _, err = cli("run", "nightyl")
    assert code == 3
    assert "did you mean 'nightly'?" in err


def test_an_offline_definition_can_not_be_run(cli: Cli, db: Engine, imported: str) -> None:
    cli("definition", "offline", imported)
    code, _, err = cli("run", imported)
    assert code == 4
    assert "orcaflow definition online" in err
    with db.connect() as connection:
        assert connection.scalars(select(command.c.id)).all() == []


def test_a_run_reports_the_instance_it_became(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        code, out, _ = cli(
            "run", imported, "-p", "who=you = me", "--date", "2013-01-31", "-o", "json"
        )
        instance = json.loads(out)["instance"]
        assert (code, instance["state"]) == (0, "RUNNING")
        assert instance["schedule_time"] == "2013-01-31T00:00:00Z"
        other = json.loads(cli("run", imported, "-o", "json")[1])["instance"]
        assert other["id"] != instance["id"]
    _, shown, _ = cli("instance", "show", str(instance["id"]), "-o", "json")
    parameters = json.loads(json.loads(shown)["global_params"])
    assert [(each["prop"], each["value"]) for each in parameters] == [("who", "you = me")]


def test_a_run_that_waits_or_was_discarded_is_not_reported_as_begun(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        assert "process instance 1 has begun" in cli("run", imported)[1]
        cli("definition", "set", imported, "--execution-type", "serial-wait")
        waits = "process instance 2 waits for its turn: orcaflow instance why 2\n"
        assert cli("run", imported)[1] == waits
        cli("definition", "set", imported, "--execution-type", "serial-discard")
        code, out, _ = cli("run", imported)
        assert (code, out.startswith("process instance 3 has ended: STOP: discarded")) == (1, True)
        code, out, _ = cli("run", imported, "--wait", "-o", "json")
        assert (code, json.loads(out)["instance"]["state"]) == (1, "STOP")


def test_a_rerun_that_is_discarded_says_so_and_fails_with_and_without_waiting(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        cli("run", imported)
        ended(db, ProcessState.SUCCESS)(1)
        cli("run", imported)
        cli("definition", "set", imported, "--execution-type", "serial-discard")
        for number, options in ((3, ()), (4, ("--wait",)), (5, ("-o", "json"))):
            code, out, err = cli("instance", "rerun", "1", *options)
            assert (code, out) == (1, "")
            assert f"command {number} was dropped: discarded: process instance 2 of this" in err
    row = json.loads(cli("command", "show", "3", "-o", "json")[1])
    assert (row["outcome"], row["process_instance_id"]) == ("DROPPED", 1)
    assert row["command_type"] == "REPEAT_RUNNING"
    assert "process instance 2 of this definition is still live" in row["reason"]
    with db.connect() as connection:
        runs = connection.execute(select(process_instance.c.run_times)).scalars().all()
    assert list(runs) == [1, 1]


def test_a_pause_that_a_master_drops_fails_and_one_that_is_under_way_does_not(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        cli("run", imported)
        assert cli("instance", "stop", "1")[:2] == (
            0,
            "asked for process instance 1 to be stopped\n",
        )
        assert cli("instance", "stop", "1")[0] == 0
        for options in ((), ("--wait",)):
            code, out, err = cli("instance", "pause", "1", *options)
            assert (code, out) == (1, "")
            assert "was dropped: process instance 1 has ended or is asked for" in err
        # A stop that came a moment too late.
        with db.begin() as connection:
            connection.execute(
                text(
                    "CREATE FUNCTION too_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                    " UPDATE t_ds_process_instance SET state = 7, end_time = now();"
                    " RETURN NULL; END $$;"
                    " CREATE TRIGGER too_late AFTER INSERT ON t_ds_command"
                    " FOR EACH STATEMENT EXECUTE FUNCTION too_late()"
                )
            )
        code, out, err = cli("instance", "stop", "1")
        with db.begin() as connection:
            connection.execute(text("DROP FUNCTION too_late() CASCADE"))
        assert (code, out) == (1, "")
        assert "was dropped: process instance 1 has ended: SUCCESS" in err


def test_all_options_of_a_run_are_in_its_instance(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with db.begin() as connection:
        group = connection.execute(
            insert(worker_group).values(name="etl").returning(worker_group.c.id)
        ).scalar_one()
        grant_all(connection)
    options = "--start-nodes t1 --depend pre --priority highest --failure-strategy end"
    with a_master(emptied_url, db):
        assert cli("run", imported, *options.split(), "--worker-group", "etl")[0] == 0
    with db.connect() as connection:
        row = connection.execute(select(process_instance)).one()
    assert (row.task_depend_type, row.failure_strategy, row.process_instance_priority) == (1, 0, 0)
    assert row.worker_group_id == group
    assert json.loads(row.command_param)["StartNodeNameList"] == "t1"


def test_everything_that_a_run_names_must_exist(cli: Cli, imported: str) -> None:
    code, _, err = cli("run", imported, "--start-nodes", "t1,t7")
    assert code == 3
    assert "no task 't7'" in err
    assert cli("run", imported, "--worker-group", "none")[0] == 3
    assert cli("run", imported, "--date", "yesterday")[0] == 2


def test_parameters_larger_than_a_master_reads_are_refused(
    cli: Cli, imported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_COMMAND__PARAM_LIMIT_BYTES", "1000")
    code, _, err = cli("run", imported, "-p", f"x={'y' * 1000}")
    assert code == 4
    assert "command.param_limit_bytes" in err


def test_a_refused_command_fails_with_the_masters_reason(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    # `${a}` needs `${b}` and vice versa: only the master, which resolves them, can find that out.
    with a_master(emptied_url, db):
        code, out, err = cli("run", imported, "-p", "a=${b}", "-p", "b=${a}", "--wait")
    assert (code, out) == (1, "")
    assert "was refused" in err
    assert "nightly" in err


def test_waiting_for_a_run_ends_with_it_and_its_success(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    work = ended(db, ProcessState.SUCCESS, an_attempt(0, "t0", TaskState.SUCCESS))
    with a_master(emptied_url, db, work):
        code, out, _ = cli("run", imported, "--wait")
    assert code == 0
    assert "t0  SUCCESS" in out
    assert out.splitlines()[-1].startswith("SUCCESS: process instance 1")


def test_waiting_for_a_run_that_fails_shows_the_end_of_the_log(
    cli: Cli, db: Engine, imported: str, emptied_url: str, home: Path
) -> None:
    log = home / "tasks" / "logs" / "1" / "1" / "1.log"
    log.parent.mkdir(parents=True)
    log.write_text("before\nit \x1b[2J broke\n")
    failed = an_attempt(0, "t0", TaskState.FAILURE, log_path=str(log), exit_code=3)
    with a_master(emptied_url, db, ended(db, ProcessState.FAILURE, failed)):
        code, out, _ = cli("run", imported, "--wait")
    assert code == 1
    assert "t0 failed (task instance 1, attempt 1, exit code 3)" in out
    assert "| it \\x1b[2J broke" in out
    assert out.splitlines()[-1].startswith("FAILURE: process instance 1")


def test_json_of_a_watched_run_stands_alone_on_standard_output(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    work = ended(db, ProcessState.SUCCESS, an_attempt(0, "t0", TaskState.SUCCESS))
    with a_master(emptied_url, db, work):
        code, out, err = cli("run", imported, "--wait", "-o", "json")
    document = json.loads(out)
    assert (code, document["instance"]["state_code"]) == (0, 7)
    assert [task["name"] for task in document["tasks"]] == ["t0"]
    assert "SUCCESS: process instance" in err


def test_a_run_that_takes_too_long_goes_on_without_its_watcher(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        code, _, err = cli("run", imported, "--wait", "--timeout", "0.2s")
    assert code == 124
    assert "it goes on" in err or "it waits in t_ds_command" in err


def test_nobody_takes_a_command_when_there_is_no_master(cli: Cli, imported: str) -> None:
    code, _, err = cli("run", imported, "--wait", "--timeout", "0.2s")
    assert code == 124
    assert "no master has begun command 1" in err


def test_stopping_puts_a_command_but_not_for_an_instance_that_has_ended(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        cli("run", imported)
    assert cli("instance", "stop", "1")[0] == 0
    with db.connect() as connection:
        (row,) = connection.execute(select(command)).all()
    assert (row.command_type, json.loads(row.command_param)) == (9, {"ProcessInstanceId": "1"})
    ended(db, ProcessState.SUCCESS)(1)
    code, _, err = cli("instance", "stop", "1")
    assert code == 4
    assert "has ended already: SUCCESS" in err


def test_a_failed_run_is_recovered_and_watched_to_its_end(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    failed = an_attempt(0, "t0", TaskState.FAILURE)
    ends = iter(
        (
            ended(db, ProcessState.FAILURE, failed),
            ended(db, ProcessState.SUCCESS, an_attempt(0, "t0", TaskState.SUCCESS, attempt=2)),
        )
    )

    def work(instance: int) -> None:
        next(ends)(instance)

    with a_master(emptied_url, db, work):
        assert cli("run", imported, "--wait")[0] == 1
        code, out, err = cli("instance", "recover", "1", "--wait", "-o", "json")
        assert code == 0, err
        document = json.loads(out)
        assert document["instance"]["command_type"] == "START_FAILURE_TASK_PROCESS"
        assert [(task["attempt"], task["state"]) for task in document["tasks"]] == [(2, "SUCCESS")]
        code, _, err = cli("instance", "recover", "1")
    assert code == 4
    assert "run all of it again" in err


def test_an_id_or_name_that_does_not_exist_is_not_found(cli: Cli, db: Engine) -> None:
    for arguments in (
        "instance show 99",
        "instance watch 99",
        "instance stop 99",
        "instance pause 99",
        "instance recover 99",
        "instance execute 99 --tasks a",
        "task force-success 99",
        "task why 99",
        "pool show 99",
        "datasource test 99",
        "task log 99",
        "task render 99",
        "task list --instance 99",
        "definition online nobody",
    ):
        code, out, err = cli(*arguments.split())
        assert (code, out) == (3, ""), arguments
        assert err.count("\n") == 1


def test_lists_are_filtered_by_state(cli: Cli, db: Engine, imported: str, emptied_url: str) -> None:
    with a_master(emptied_url, db):
        cli("run", imported)
        cli("run", imported)
    ended(db, ProcessState.FAILURE)(1)
    rows = json.loads(cli("instance", "list", "--state", "failure", "-o", "json")[1])
    assert [row["id"] for row in rows] == [1]
    rows = json.loads(cli("instance", "list", "--definition", imported, "-o", "json")[1])
    assert [row["id"] for row in rows] == [2, 1]
    assert cli("instance", "list", "--state", "sleepy")[0] == 2


def test_a_log_of_a_path_elsewhere_is_refused(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        cli("run", imported)
    with db.begin() as connection:
        attempt = an_attempt(1, "t0", TaskState.SUCCESS, log_path="/etc/passwd")
        connection.execute(insert(task_instance).values(attempt))
    code, out, err = cli("task", "log", "1")
    assert (code, out) == (4, "")
    assert "is not below" in err


def test_following_a_log_ends_with_the_attempt_and_misses_nothing(
    cli: Cli, db: Engine, imported: str, emptied_url: str, home: Path
) -> None:
    with a_master(emptied_url, db):
        cli("run", imported)
    log = home / "tasks" / "logs" / "1" / "1" / "1.log"
    log.parent.mkdir(parents=True)
    log.write_text("first\n")
    with db.begin() as connection:
        attempt = an_attempt(1, "t0", TaskState.RUNNING, log_path=str(log))
        connection.execute(insert(task_instance).values(attempt))

    def end() -> None:
        listens = text(
            "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'orcaflow-log:%'"
        )
        with db.connect() as connection:
            while connection.scalar(listens) is None:
                connection.rollback()  # Each transaction sees the activity as of its beginning.
        with log.open("a") as file:
            file.write("second\nlast without an end")
        with db.begin() as connection:
            connection.execute(update(task_instance).values(state=7, end_time=datetime.now(UTC)))

    ending = threading.Thread(target=end)
    ending.start()
    code, out, _ = cli("task", "log", "1", "--follow")
    ending.join()
    assert (code, out) == (0, "first\nsecond\nlast without an end")


def test_rendering_shows_the_script_that_the_worker_would_run(
    cli: Cli, db: Engine, imported: str, emptied_url: str
) -> None:
    with a_master(emptied_url, db):
        cli("run", imported, "-p", "who=$[yyyyMMdd-1]", "--date", "2013-03-01")
    with db.begin() as connection:
        connection.execute(insert(task_instance).values(an_attempt(1, "t0", TaskState.RUNNING)))
    code, out, _ = cli("task", "render", "1", "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert document["params"] == {"rawScript": "echo 20130228"}
    assert document["parameters"]["system.biz.date"] == "20130228"


def test_the_doctor_finds_a_database_without_a_schema(cli_on_empty: Cli) -> None:
    code, out, _ = cli_on_empty("doctor", "-o", "json")
    found = {row["check"]: row for row in json.loads(out)}
    assert code == 1
    assert found["schema"]["result"] == "failed"
    assert "orcaflow db upgrade" in found["schema"]["cure"]
    assert found["zookeeper"]["result"] == "failed"
    assert found["postgresql"]["result"] == found["java"]["result"] == "ok"
    assert all(row["cure"] for row in found.values() if row["result"] != "ok")
