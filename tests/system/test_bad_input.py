"""Bad input to a real cluster: each case gets its answer, and has no other effect.

Recoveries, control tasks, pools and spoilt rows have a file of their own beside this one; what holds
after each test of both stands in `tests.system.frame`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from common.model.states import TaskState
from common.ports import free_port
from operations.daemons import Kind, Options
from tests.system.bad_definitions import BAD_DEFINITIONS, FORGED
from tests.system.bad_outputs import bad_outputs, put_out
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until
from tests.system.command_line import ROOT
from tests.system.frame import (
    FAILURE,
    STOP,
    SUCCESS,
    answers,
    ask_to_stop,
    nothing_else_is_touched,
    refusal,
    unsaid,
)
from tests.system.other_servers import (
    SECRET,
    Redirects,
    a_data_source,
    an_address,
    an_sql_task,
    forbidden_requests,
    places_that_show,
    sources_that_lead_nowhere,
)

ODD_NAMES = (
    'it\'s "quoted" `whoami` $(touch {trap}) ; touch {trap}',
    "../../../../{trap}",
    "..",
    "%s %d {} ${x} $[yyyy]",
    "--help",
    "naïve 数据 🐋",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad_input")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[PrivateCluster]:
    """One master and one worker."""
    with private_cluster(home, WORKER__HTTP_ALLOWED="127.0.0.1") as made:
        made.start()
        yield made


@pytest.fixture(autouse=True)
def _frame(cluster: PrivateCluster, good: int, bystander: int) -> Iterator[None]:
    with nothing_else_is_touched(cluster, good, bystander):
        yield


def _failure(cluster: PrivateCluster, definition_id: int) -> tuple[str, str]:
    """The reason in the row of the only attempt, which fails, and its log."""
    instance = cluster.begin(definition_id)
    assert cluster.await_end(instance) == FAILURE
    ((state, reason, log_path),) = cluster.tasks_of(instance, "state", "reason", "log_path")
    assert state == FAILURE
    return reason, Path(log_path).read_text(encoding="utf-8")


# Commands


@pytest.mark.parametrize(
    ("param", "says"),
    [
        ("{not JSON", ("command_param is not JSON", "line 1 column 2")),
        ("[1, 2]", ("command_param must be a JSON object",)),
        ("[" * 50_000, ("command_param is nested too deeply",)),
        ('{"n": ' + "9" * 5_000 + "}", ("command_param can't be read",)),
        ('{"StartParams": "{"}', ("StartParams is not JSON",)),
        ('{"StartParams": [1]}', ("StartParams must be an object",)),
        ('{"StartNodeNameList": "none such"}', ("'none such'", "'good'")),
    ],
)
def test_a_command_with_malformed_parameters_is_refused(
    cluster: PrivateCluster, good: int, param: str, says: tuple[str, ...]
) -> None:
    message = refusal(cluster, cluster.put(good, param))
    assert all(each in message for each in says), message


def test_a_command_with_ten_megabytes_of_parameters_is_refused_and_kept(
    cluster: PrivateCluster, good: int
) -> None:
    param = json.dumps({"StartParams": {"x": "y" * 10_000_000}})
    command = cluster.put(good, param)
    assert f"command_param has {len(param)} bytes; at most 1000000" in refusal(cluster, command)
    kept = "SELECT octet_length(command_param) FROM t_ds_error_command WHERE command_id = %s"
    assert cluster.rows(kept, command) == [(len(param),)]


def test_a_command_for_a_definition_that_is_not_there_is_refused(cluster: PrivateCluster) -> None:
    for definition in (2_000_000_000, -1, None):
        message = refusal(cluster, cluster.put(definition))
        says = "is NULL" if definition is None else f"with the id {definition}"
        assert says in message


def test_a_command_for_an_offline_definition_is_refused_with_the_cure(
    cluster: PrivateCluster,
) -> None:
    offline = cluster.define("off line", [a_task("a", "true")], release_state=0)
    message = refusal(cluster, cluster.put(offline))
    assert "'off line' is OFFLINE" in message
    assert "orcaflow definition online 'off line'" in message
    done = cluster.orcaflow("run", "off line")
    assert done.returncode == 4
    assert "'off line' is OFFLINE" in done.stderr


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"command_type": 77}, "command_type is 77; it must be one of 0 START_PROCESS, 1 "),
        ({"command_type": -(2**31)}, "command_type is -2147483648"),
        ({"command_type": None}, "command_type is NULL"),
        ({"task_depend_type": 70_000}, "task_depend_type is 70000"),
        ({"failure_strategy": 2}, "failure_strategy is 2; it must be one of 0 END, 1 CONTINUE"),
        ({"warning_type": -1}, "warning_type is -1"),
        ({"process_instance_priority": 5}, "process_instance_priority is 5"),
        ({"schedule_time": "infinity"}, "schedule_time"),
        ({"schedule_time": "0044-03-15 BC"}, "schedule_time"),
        ({"schedule_time": "20000-01-01"}, "schedule_time"),
        ({"start_time": "-infinity"}, "start_time"),
        ({"command_type": 9}, "ProcessInstanceId"),
        ({"command_type": 9, "command_param": '{"ProcessInstanceId": -5}'}, "not '-5'"),
        ({"command_type": 9, "command_param": '{"ProcessInstanceId": 99999}'}, "instance 99999"),
        ({"command_type": 2, "command_param": '{"ProcessInstanceId": 99999}'}, "instance 99999"),
        ({"command_type": 1}, "StartNodeNameList"),
    ],
)
def test_a_command_with_a_value_that_means_nothing_is_refused(
    cluster: PrivateCluster, good: int, columns: dict[str, Any], says: str
) -> None:
    message = refusal(cluster, cluster.put(good, **columns))
    assert says in message


def test_nulls_where_a_default_stands_are_the_default(cluster: PrivateCluster, good: int) -> None:
    optional = (
        *("task_depend_type", "failure_strategy", "warning_type", "warning_group_id"),
        *("executor_id", "process_instance_priority", "worker_group_id"),
    )
    instance = cluster.begin(good, None, **dict.fromkeys(optional))
    assert cluster.await_end(instance) == SUCCESS


def test_bad_commands_in_one_batch_do_not_hold_up_the_good_ones_among_them(
    cluster: PrivateCluster, good: int
) -> None:
    before = cluster.last_instance(good)
    definition = str(good)
    kinds = (
        f"0, {definition}, '{{}}', NULL",
        f"0, {definition}, '{{', NULL",
        "0, 2000000000, '{}', NULL",
        f"99, {definition}, '{{}}', NULL",
        f"6, {definition}, '{{}}', '20000-01-01'::timestamptz",
    )
    # One statement, so that they become visible at the same moment.
    cluster.rows(
        "INSERT INTO t_ds_command (command_type, process_definition_id, command_param,"
        " schedule_time) SELECT kinds.* FROM generate_series(1, 10),"
        f" (VALUES {', '.join(f'({kind})' for kind in kinds)}) kinds"
    )
    ended = (
        "SELECT count(*) FROM t_ds_process_instance"
        f" WHERE process_definition_id = {good} AND id > {before} AND state = {SUCCESS}"
    )
    until(lambda: cluster.rows(ended) == [(10,)])
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])


# Definitions


@pytest.mark.parametrize("kind", BAD_DEFINITIONS)
def test_a_bad_definition_typed_by_hand_is_refused_when_it_is_to_run(
    cluster: PrivateCluster, kind: str
) -> None:
    document, says = BAD_DEFINITIONS[kind]
    message = refusal(cluster, cluster.put(cluster.define(f"bad: {kind}", document)))
    assert f"'bad: {kind}'" in message
    assert all(each in message for each in says), message


def test_bad_definition_files_are_refused_all_together_with_the_places(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    files = []
    for kind, (document, _) in BAD_DEFINITIONS.items():
        file = tmp_path / f"{kind}.json"
        file.write_text(f'{{"name": "file: {kind}",\n"processDefinitionJson": {document}}}')
        files.append(file)
    fine = tmp_path / "fine.json"
    fine.write_text(json.dumps({"tasks": [a_task("a", "true")]}))
    files.append(fine)
    count = cluster.rows("SELECT count(*) FROM t_ds_process_definition")
    done = cluster.orcaflow("definition", "import", *map(str, files))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for kind in BAD_DEFINITIONS:
        assert str(tmp_path / f"{kind}.json") in done.stderr
    for says in (
        f"{tmp_path / 'broken.json'}: line 3 column ",
        "more than 100 levels deep",
        "cycle",
        "task 'a', preTasks: there is no task 'nowhere'",
        "tasks[1].name: 'a' is used twice",
        "task 'a', type: 'COBOL' is unknown",
        "has a control character",
        "has a NUL character",
        f"{fine}: name: is missing",
    ):
        assert says in done.stderr
    assert cluster.rows("SELECT count(*) FROM t_ds_process_definition") == count


def test_files_that_tasks_name_have_to_be_there_at_import(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    file = tmp_path / "missing.json"
    tasks = [
        {"name": "script", "type": "PYTHON", "params": {"file": "no_such.py"}},
        {
            "name": "jar",
            "type": "SPARK",
            "params": {"mainJar": {"res": "../no_such.jar"}, "mainClass": "a.B"},
        },
        a_task(
            "resource", "true", params={"rawScript": "true", "resourceList": [{"res": "x.csv"}]}
        ),
    ]
    file.write_text(json.dumps({"name": "missing", "processDefinitionJson": {"tasks": tasks}}))
    done = cluster.orcaflow("definition", "import", str(file))
    assert done.returncode == 1
    for says in (
        "task 'script', params.file: there is no file 'no_such.py'",
        "task 'jar', params.mainJar.res: there is no file '../no_such.jar'",
        "task 'resource', params.resourceList[0].res: there is no file 'x.csv'",
    ):
        assert says in done.stderr


def test_a_definition_name_with_a_control_character_is_refused_by_the_command_line(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    files = []
    for index, name in enumerate((f"a{FORGED}", "a\0b", "", " a ")):
        file = tmp_path / f"{index}.json"
        file.write_text(
            json.dumps({"name": name, "processDefinitionJson": {"tasks": [a_task("a", "true")]}})
        )
        files.append(file)
    done = cluster.orcaflow("definition", "import", *map(str, files))
    assert done.returncode == 1
    for file, says in zip(
        files,
        ("name: has a control character", "NUL character", "name: is empty", "white space"),
        strict=True,
    ):
        (line,) = [line for line in done.stderr.splitlines() if str(file) in line]
        assert says in line


# Names that are odd and allowed


def test_odd_names_are_only_names(cluster: PrivateCluster, home: Path) -> None:
    trap = home / "trap"
    names = [name.replace("{trap}", str(trap)) for name in ODD_NAMES]
    script = 'test "$(pwd)" = "$TMPDIR" && printf "<%s>" "$ORCAFLOW_TASK_NAME"'
    tasks = [a_task(name, script, *names[:index]) for index, name in enumerate(names)]
    # A definition's own name may hold even what a file's may not, when it is typed with SQL.
    definition = cluster.define(f"'; DROP TABLE t_ds_command; --{FORGED}/../..", tasks)
    instance = cluster.begin(definition)
    assert cluster.await_end(instance) == SUCCESS
    ran = cluster.tasks_of(instance, "name", "log_path", "execute_path")
    assert [name for name, _, _ in ran] == names
    tasks_home = home / "tasks"
    for name, log_path, execute_path in ran:
        assert tasks_home in Path(log_path).resolve().parents
        assert tasks_home in Path(execute_path).resolve().parents
        log = Path(log_path).read_text(encoding="utf-8")
        assert f"<{name}>" in log
        assert FORGED not in log
    assert not trap.exists()
    assert cluster.rows("SELECT count(*) FROM t_ds_command") == [(0,)]


# Tasks


def test_a_script_that_is_not_there_fails_its_task_with_its_path(cluster: PrivateCluster) -> None:
    node = {"name": "a", "type": "PYTHON", "params": {"file": "/no/such/script.py"}}
    reason, log = _failure(cluster, cluster.define("missing script", [node]))
    assert reason == "params.file: there is no file /no/such/script.py on this worker"
    assert reason in log


def test_a_jar_that_is_not_there_fails_its_task_with_its_path(cluster: PrivateCluster) -> None:
    params = {"mainJar": {"res": "/no/such.jar"}, "mainClass": "a.B", "deployMode": "local"}
    node = {"name": "a", "type": "SPARK", "params": params}
    reason, log = _failure(cluster, cluster.define("missing jar", [node]))
    assert reason == "params.mainJar: there is no file /no/such.jar on this worker"
    assert reason in log


def test_a_path_can_not_lead_out_of_the_resources(cluster: PrivateCluster) -> None:
    params = {"rawScript": "true", "resourceList": [{"res": "../run/postgres.json"}]}
    reason, log = _failure(cluster, cluster.define("led out", [a_task("a", "", params=params)]))
    assert "resourceList[0]" in reason
    assert "../run/postgres.json" in reason
    assert reason in log


def test_an_interpreter_that_is_not_there_fails_its_task_with_its_path(
    cluster: PrivateCluster,
) -> None:
    definition = cluster.define("missing shebang", [a_task("a", "#!/no/such/interpreter\ntrue")])
    reason, log = _failure(cluster, definition)
    assert "/no/such/interpreter" in reason
    assert reason in log


def test_parameters_that_can_not_be_read_fail_their_task_with_the_key(
    cluster: PrivateCluster,
) -> None:
    for index, (params, says) in enumerate(
        (
            ({"rawScript": "true", "localParams": [{"value": "x"}]}, "localParams"),
            ({"rawScript": "true", "localParams": {"prop": "x"}}, "localParams"),
            ({"rawScript": ["true"]}, "params.rawScript must be text"),
            ({"rawScript": "true", "resourceList": "x"}, "params.resourceList must be a list"),
            ({}, "params.rawScript is empty"),
        )
    ):
        definition = cluster.define(f"unreadable {index}", [a_task("a", "", params=params)])
        reason, log = _failure(cluster, definition)
        assert says in reason
        assert reason in log


def test_a_nul_character_can_not_get_into_a_script(cluster: PrivateCluster) -> None:
    reason, _ = _failure(cluster, cluster.define("NUL in script", [a_task("a", "echo a\0b")]))
    assert "params.rawScript has a NUL character" in reason
    definition = cluster.define("NUL in parameter", [a_task("a", "echo ${x}")])
    instance = cluster.begin(definition, json.dumps({"StartParams": {"x": "a\0b"}}))
    assert cluster.await_end(instance) == FAILURE
    ((reason,),) = cluster.tasks_of(instance, "reason")
    assert "NUL character" in reason


def test_a_worker_without_its_python_fails_python_tasks_and_runs_the_others(
    cluster: PrivateCluster,
) -> None:
    group = _a_group(cluster, "no_python")
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCAFLOW_WORKER__PYTHON", "/no/such/python")
        cluster.daemons.start_daemon(Kind.WORKER, port, Options(groups="no_python"))
    try:
        node = {
            "name": "a",
            "type": "PYTHON",
            "params": {"rawScript": "print(1)"},
            "workerGroupId": group,
        }
        reason, log = _failure(cluster, cluster.define("missing python", [node]))
        assert reason == "worker.python: there is no program /no/such/python on this worker"
        assert reason in log
        shell = cluster.define("beside", [a_task("a", "true", workerGroupId=group)])
        assert cluster.await_end(cluster.begin(shell)) == SUCCESS
    finally:
        cluster.stop(Kind.WORKER, port)


# What tasks put out


def test_outputs_that_can_not_be_taken_fail_their_task_with_the_cause(
    cluster: PrivateCluster, home: Path
) -> None:
    secret = home / "nobody reads this"
    secret.write_text('{"x": "leaked"}')
    cases = bad_outputs(secret)
    documents = {f"puts out {name}": put_out("t", script) for name, (script, _) in cases.items()}
    wanted = {f"puts out {name}": (FAILURE, (says,)) for name, (_, says) in cases.items()}
    found = answers(cluster, documents)
    assert unsaid(found, wanted) == {}
    assert cluster.rows("SELECT id FROM t_ds_task_instance WHERE var_pool LIKE '%%leaked%%'") == []
    # A million lines are in the log, yet no reason is longer than a person reads.
    assert max(len(each.text) for each in found.values()) < 1_000


_WRITE = "import os\njson.dump({'x': x}, open(os.environ['ORCAFLOW_OUTPUT'], 'w'))"


def test_what_is_put_out_is_never_a_command_or_a_place(cluster: PrivateCluster, home: Path) -> None:
    trap = home / "trap of outputs"
    value = f"@(touch '{trap}')`touch '{trap}'`'; DROP TABLE t_ds_command; --@{{x}}@[yyyy]"
    # The signs are put in at run time: in a script they would be the author's own placeholders.
    put = {
        **put_out("first", f"import json\nx = {value!r}.replace('@', chr(36))\n{_WRITE}"),
        "type": "PYTHON",
    }
    script = 'import json, os; print(json.load(open(os.environ["ORCAFLOW_PARAMS"]))["x"])'
    get = {"name": "last", "type": "PYTHON", "params": {"rawScript": script}, "preTasks": ["first"]}
    instance = cluster.begin(cluster.define("put and got", [put, get]))
    assert cluster.await_end(instance) == SUCCESS
    _, (log_path,) = cluster.tasks_of(instance, "log_path")
    assert value.replace("@", "$") in Path(log_path).read_text(encoding="utf-8")
    assert not trap.exists()


# Other servers


def test_data_sources_that_lead_nowhere_fail_their_task_and_show_no_password(
    cluster: PrivateCluster, home: Path
) -> None:
    cases = sources_that_lead_nowhere(cluster)
    found = answers(cluster, {f"source: {name}": task for name, (task, _) in cases.items()})
    wanted = {f"source: {name}": (FAILURE, (says,)) for name, (_, says) in cases.items()}
    assert unsaid(found, wanted) == {}
    assert places_that_show(cluster, home, SECRET) == []


def test_a_value_is_never_a_statement_and_a_password_on_no_command_line(
    cluster: PrivateCluster, home: Path
) -> None:
    hostile = "'; DROP TABLE t_ds_command; --"
    source = a_data_source(cluster, {"url": "sqlite:///a.db", "password": SECRET}, kind=0)
    asked = an_sql_task(source, "SELECT ${x} AS x", localParams=[{"prop": "x", "value": hostile}])
    found = answers(cluster, {"hostile value": asked})
    assert found["hostile value"].state == SUCCESS
    assert cluster.rows("SELECT count(*) FROM t_ds_command") == [(0,)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"jdbc:postgresql://127.0.0.1:{silent.getsockname()[1]}"
        instance = cluster.begin(
            cluster.define("connects", [an_sql_task(a_data_source(cluster, an_address(where)))])
        )
        silent.settimeout(30)
        connected, _ = silent.accept()
        with connected:
            # Now the program has what it connects with, and waits for an answer.
            assert places_that_show(cluster, home, SECRET) == []
            ask_to_stop(cluster, instance)
            assert cluster.await_end(instance) == STOP


def test_a_server_that_never_answers_does_not_keep_an_sql_task_for_ever(
    cluster: PrivateCluster,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"jdbc:postgresql://127.0.0.1:{silent.getsockname()[1]}"
        found = answers(cluster, {"silent": an_sql_task(a_data_source(cluster, an_address(where)))})
    assert found["silent"].state == FAILURE
    assert "can't be reached" in found["silent"].text


def test_a_request_goes_nowhere_that_it_should_not(cluster: PrivateCluster, home: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    away = f"http://127.0.0.1:{server.server_port}/?"
    cases = forbidden_requests(away)
    try:
        found = answers(cluster, {f"http: {name}": task for name, (task, _) in cases.items()})
    finally:
        server.shutdown()
        server.server_close()
    wanted = {f"http: {name}": (FAILURE, (says,)) for name, (_, says) in cases.items()}
    assert unsaid(found, wanted) == {}
    assert places_that_show(cluster, home, SECRET) == []


# Logs that can't be written


def test_a_log_folder_that_is_none_fails_tasks_until_it_is_mended(
    cluster: PrivateCluster, home: Path
) -> None:
    definition = cluster.define("no log", [a_task("a", "true")])
    folder = home / "tasks" / "logs" / str(definition)
    folder.write_text("somebody's file")
    instance = cluster.begin(definition)
    assert cluster.await_end(instance) == FAILURE
    ((reason, pid),) = cluster.tasks_of(instance, "reason", "pid")
    assert "Not a directory" in reason
    assert str(folder) in reason
    assert pid is None
    folder.unlink()
    assert cluster.await_end(cluster.begin(definition)) == SUCCESS


def test_a_full_disk_for_logs_charges_no_task_and_they_run_when_there_is_room(
    cluster: PrivateCluster, home: Path
) -> None:
    """The worker sees a volume of its own there, in a mount namespace that needs no privilege."""
    alone = ("unshare", "--user", "--map-root-user", "--mount")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this computer lets nobody have a volume of their own (user namespaces)")
    group = _a_group(cluster, "full_disk")
    port = free_port()
    logs = home / "tasks" / "logs"
    daemon = f"exec {sys.executable} -m worker.server --home '{home}' --port {port}"
    mounted = f"mount -t tmpfs -o size=64k tmpfs '{logs}' && {daemon} --groups full_disk"
    with (home / "logs" / "full_disk.out").open("wb") as output:
        worker = subprocess.Popen(
            [*alone, "sh", "-c", mounted],
            cwd=ROOT,
            # Else a volume of this size is never enough, and the worker claims nothing at all.
            env={**os.environ, "ORCAFLOW_WORKER__RESERVED_DISK_GB": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: cluster.pid(Kind.WORKER, port) == worker.pid)
        assert cluster.daemons.start_daemon(Kind.WORKER, port).already
        # As the worker sees it.
        inside = Path(f"/proc/{worker.pid}/root{logs}")
        (inside / "filler").write_bytes(b"x" * 50_000)
        flood = cluster.define(
            "flood", [a_task("a", "head -c 100000 /dev/zero", workerGroupId=group)]
        )
        assert cluster.await_end(cluster.begin(flood)) == FAILURE
        small = cluster.define("small", [a_task("a", "echo hello", workerGroupId=group)])
        instance = cluster.begin(small)
        until(lambda: len(cluster.tasks_of(instance, "id")) > 1)
        state, reason, pid = cluster.tasks_of(instance, "state", "reason", "pid")[0]
        assert (state, pid) == (TaskState.NEED_FAULT_TOLERANCE, None)
        assert "no space left on device" in reason.lower(), reason
        (inside / "filler").unlink()
        assert cluster.await_end(instance) == SUCCESS
        assert worker.poll() is None
    finally:
        worker.terminate()
        worker.wait(timeout=30)


def _a_group(cluster: PrivateCluster, name: str) -> int:
    ((group,),) = cluster.rows(
        "INSERT INTO t_ds_worker_group (name) VALUES (%s) RETURNING id", name
    )
    return int(group)


def test_parameters_are_never_commands(cluster: PrivateCluster, home: Path) -> None:
    trap = home / "trap of parameters"
    value = f"'; touch '{trap}'; $(touch '{trap}') \"\n`touch '{trap}'`"
    script = 'import json, os; print(json.load(open(os.environ["ORCAFLOW_PARAMS"]))["x"], end="")'
    node = {"name": "a", "type": "PYTHON", "params": {"rawScript": script}}
    definition = cluster.define("parameters", [node])
    instance = cluster.begin(definition, json.dumps({"StartParams": {"x": value}}))
    assert cluster.await_end(instance) == SUCCESS
    ((log_path,),) = cluster.tasks_of(instance, "log_path")
    assert value in Path(log_path).read_text(encoding="utf-8")
    assert not os.path.lexists(trap)
