"""Two teams on one cluster: neither reaches the other's objects, secrets, files or runs.

`dev` and `prod` each have a tenant, a data source, an environment, a pool and a worker group, and
definitions of the same names. Prod requires reviews. Dana, an author of dev, tries to reach prod's
objects through every front end that an author can use. An object of prod gives the same answer as
a missing object.
"""

from __future__ import annotations

import copy
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from common.embedded.addresses import postgres_address, zookeeper_address
from common.errors import ConfigurationError, ServiceUnreachableError
from operations.daemons import Kind
from tests.firewalls import a_task_at, flood, is_limited, is_reached, need_firewall
from tests.system.asking import Asking
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until
from tests.unit.stream_specs import SMALL

ACCOUNTS = {"dev": "games", "prod": "news"}
"""Accounts that every Debian system has. The cluster's minimum uid of tenants is below theirs."""
PASSWORD = "prod-database-password"
SECRET = "prod-environment-secret"
PARAMETER = "prod-parameter-secret"
FILE = "prod-file-content"
SECRETS = (PASSWORD, SECRET, PARAMETER, FILE)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs tenants' accounts: runs as root")


class Teams:
    """The cluster with both teams and their users."""

    def __init__(self, cluster: PrivateCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        (port,) = cluster.ports(Kind.API)
        self.url = f"http://127.0.0.1:{port}"
        self._tokens: dict[str, Path] = {}

    def admin(self, *words: str) -> Any:
        return self.cluster.told(*words)

    def furnish(self) -> None:
        for team, account in ACCOUNTS.items():
            self.admin("project", "create", team)
            self.admin("tenant", "create", account, "--project", team)
            self.admin("worker-group", "create", f"{team}_group", "--project", team)
            self.admin("pool", "create", f"{team}_pool", "--size", "1", "--project", team)
            config = self.folder / f"{team}.env"
            config.write_text(f"export DB_PASSWORD={SECRET if team == 'prod' else 'dev'}\n")
            name = f"{team}_env"
            self.admin("environment", "create", name, "--config", str(config), "--project", team)
        os.environ["ORCAFLOW_TEST_PASSWORD"] = PASSWORD
        for team in ACCOUNTS:
            self.admin(
                *("datasource", "create", f"{team}_db", "--address", "127.0.0.1:9"),
                *("--database", "db", "--user", "u", "--project", team),
                *("--password-env", "ORCAFLOW_TEST_PASSWORD"),
            )
        del os.environ["ORCAFLOW_TEST_PASSWORD"]
        for user, team, role in (
            ("dana", "dev", "author"),
            ("dora", "dev", "admin"),
            ("paul", "prod", "author"),
            ("petra", "prod", "admin"),
        ):
            self.admin("user", "create", user)
            self.admin("user", "grant", user, "--project", team, "--role", role)
            made = self.admin("token", "create", "--user", user, "--name", "test")
            self._tokens[user] = self.folder / f"{user}.token"
            self._tokens[user].write_text(made["token"])
            self._tokens[user].chmod(0o600)

    def asks(self, user: str) -> Asking:
        return Asking(self.url, self._tokens[user].read_text())

    def run(self, user: str, *words: str) -> tuple[int, str]:
        """Run a command over HTTP as a user; return its exit code and its output."""
        done = self._done(user, *words)
        return done.returncode, done.stdout + done.stderr

    def _done(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        at = ("--server", self.url, "--token-file", str(self._tokens[user]))
        return self.cluster.orcaflow(*at, *words)

    def told(self, user: str, *words: str) -> Any:
        done = self._done(user, *words, "-o", "json")
        assert done.returncode == 0, (user, words, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def file(self, document: dict[str, Any]) -> str:
        path = self.folder / f"{document['name']}.json"
        path.write_text(json.dumps(document))
        return str(path)

    def imported(self, user: str, team: str, document: dict[str, Any]) -> tuple[int, str]:
        return self.run(
            user, "definition", "import", self.file(document), "--project", team, "-o", "json"
        )


def a_definition(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "processDefinitionJson": {"tasks": list(tasks), **more}}


def a_load(team: str, script: str) -> dict[str, Any]:
    return a_definition("load", a_task("load", script), tenantCode=ACCOUNTS[team])


def a_parent(name: str, child: str, team: str) -> dict[str, Any]:
    task = {"name": "child", "type": "SUB_PROCESS", "params": {"processDefinitionName": child}}
    return a_definition(name, task, tenantCode=ACCOUNTS[team])


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    # Other accounts cannot enter the folders of pytest.
    home = Path(tempfile.mkdtemp(prefix="orcaflow-"))
    home.chmod(0o711)
    settings = {
        "WORKER__TENANT_MODE": "tenant",
        "WORKER__TENANT_MIN_UID": "2",
        # So few that one team could fill them with little work.
        "MASTER__EXEC_THREADS": "10",
        "WORKER__EXEC_THREADS": "5",
    }
    try:
        with private_cluster(home / "home", **settings) as cluster:
            cluster.start(apis=1)
            folder = home / "files"
            folder.mkdir(mode=0o700)
            made = Teams(cluster, folder)
            made.furnish()
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def runs(teams: Teams) -> dict[str, int]:
    """Define and run `daily` for each team; return the ids of the ended runs."""
    scripts = {
        "dev": "echo 'ran by dev'; id -un",
        "prod": f"umask 077; echo {FILE} > $ORCAFLOW_DATA_DIR/kept; echo 'ran by prod'; id -un",
    }
    for team, author in (("prod", "paul"), ("dev", "dana")):
        for document in (a_load(team, scripts[team]), a_parent("daily", "load", team)):
            code, text = teams.imported(author, team, document)
            assert code == 0, text
    hidden = a_definition(
        "hidden",
        a_task("only", "echo hidden"),
        tenantCode=ACCOUNTS["prod"],
        globalParams=[{"prop": "api_token", "direct": "IN", "type": "VARCHAR", "value": PARAMETER}],
    )
    code, text = teams.imported("paul", "prod", hidden)
    assert code == 0, text
    teams.admin("project", "edit", "prod", "--review")
    begun = {}
    for team, author in (("prod", "paul"), ("dev", "dana")):
        done = teams.told(author, "run", "daily", "--project", team, "--wait")
        begun[team] = int(done["instance"]["id"])
    return begun


def last_log(teams: Teams, definition: str, project: str) -> str:
    ((path,),) = teams.cluster.rows(
        "SELECT a.log_path FROM t_ds_task_instance a"
        " JOIN t_ds_process_instance i ON i.id = a.process_instance_id"
        " JOIN t_ds_process_definition d ON d.id = i.process_definition_id"
        " JOIN t_ds_project p ON p.id = d.project_id"
        " WHERE d.name = %s AND p.name = %s ORDER BY a.id DESC LIMIT 1",
        definition,
        project,
    )
    return Path(path).read_text()


def test_each_team_runs_its_own_child_as_its_own_account(
    teams: Teams, runs: dict[str, int]
) -> None:
    for team, account in ACCOUNTS.items():
        assert teams.cluster.state_of(runs[team]) == 7
        assert f"ran by {team}\n{account}\n" in last_log(teams, "load", team)


def test_an_edit_of_a_namesake_changes_nothing_for_the_other_team(
    teams: Teams, runs: dict[str, int]
) -> None:
    code, text = teams.imported("dana", "dev", a_load("dev", "echo 'edited by dev'; id -un"))
    assert code == 0, text
    teams.told("paul", "run", "daily", "--project", "prod", "--wait")
    assert "ran by prod" in last_log(teams, "load", "prod")


NAMED = {
    "tenant": (lambda name: a_definition("t", a_task("a", "true"), tenantCode=name), "news"),
    "data source": (
        lambda name: a_definition(
            "t",
            {"name": "a", "type": "SQL", "params": {"datasourceName": name, "sql": "select 1"}},
        ),
        "prod_db",
    ),
    "environment": (
        lambda name: a_definition("t", a_task("a", "true", environmentName=name)),
        "prod_env",
    ),
    "pool": (lambda name: a_definition("t", a_task("a", "true", taskGroupName=name)), "prod_pool"),
    "worker group": (
        lambda name: a_definition("t", a_task("a", "true", workerGroup=name)),
        "prod_group",
    ),
    "sub process": (lambda name: a_parent("t", name, "dev"), "hidden"),
    "dependent": (
        lambda name: a_definition(
            "t",
            {
                "name": "a",
                "type": "DEPENDENT",
                "dependence": {
                    "relation": "AND",
                    "dependTaskList": [
                        {
                            "relation": "AND",
                            "dependItemList": [
                                {
                                    "definitionName": name,
                                    "projectName": "prod",
                                    "depTasks": "ALL",
                                    "cycle": "day",
                                    "dateValue": "today",
                                }
                            ],
                        }
                    ],
                },
            },
        ),
        "hidden",
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_a_name_of_the_other_team_is_like_one_that_does_not_exist(
    teams: Teams, runs: dict[str, int], kind: str
) -> None:
    build, name = NAMED[kind]
    answers = set()
    # Both names are equally similar to dev's names, so both get the same suggestions.
    for each in (name, f"q{name[1:]}"):
        document = build(each) | {"name": f"{kind} of {each}"}
        code, text = teams.imported("dana", "dev", document)
        online, why = teams.run(
            "dana", "definition", "online", document["name"], "--project", "dev"
        )
        assert code != 0 or online != 0, (kind, each, text, why)
        answers.add((code, online, _without_names(text, each), _without_names(why, each)))
    assert len(answers) == 1, answers


def _without_names(text: str, name: str) -> str:
    """Return an answer without the name that was sent, ids and the width of a table."""
    return re.sub(r'"id": \d+|\s+|─+', " ", text.replace(name, "NAME"))


def test_a_task_of_one_team_reads_no_file_of_the_other(teams: Teams, runs: dict[str, int]) -> None:
    cluster = teams.cluster
    ((work, log),) = cluster.rows(
        "SELECT execute_path, log_path FROM t_ds_task_instance WHERE name = 'load'"
        " AND process_instance_id IN (SELECT id FROM t_ds_process_instance WHERE tenant_id ="
        " (SELECT id FROM t_ds_tenant WHERE tenant_code = 'news')) ORDER BY id LIMIT 1"
    )
    kept = next(path for path in (cluster.home / "data").rglob("kept"))
    worker = cluster.pid(Kind.WORKER, cluster.ports(Kind.WORKER)[0])
    places = (work, log, kept, cluster.home / "datasource.key", f"/proc/{worker}/environ")
    read = "; ".join(f"cat {each} || ls {each}/" for each in places)
    steal = f"({read}) 2> /dev/null && echo reached; id -un"
    code, text = teams.imported(
        "dana", "dev", a_definition("steal", a_task("a", steal), tenantCode="games")
    )
    assert code == 0, text
    teams.told("dana", "run", "steal", "--project", "dev", "--wait")
    stolen = last_log(teams, "steal", "dev")
    assert "\ngames\n" in stolen, stolen
    assert "\nreached\n" not in stolen
    assert not [each for each in SECRETS if each in stolen]


def _numbers(teams: Teams, table: str, project: str) -> list[int]:
    """List the ids of a project's rows."""
    of_run = (
        "process_definition_id IN (SELECT id FROM t_ds_process_definition WHERE project_id = p.id)"
    )
    condition = {
        "t_ds_process_definition": "project_id = p.id",
        "t_ds_process_instance": of_run,
        "t_ds_task_instance": of_run,
    }[table]
    return [
        int(number)
        for (number,) in teams.cluster.rows(
            f"SELECT t.id FROM {table} t, t_ds_project p WHERE p.name = %s AND t.{condition}",
            project,
        )
    ]


ORDERS = {
    "t_ds_process_definition": (
        ("definition", "show"),
        ("definition", "export"),
        ("definition", "versions"),
        ("definition", "proposals"),
        ("definition", "offline"),
        ("definition", "shares"),
        ("run",),
    ),
    "t_ds_process_instance": (
        ("instance", "show"),
        ("instance", "why"),
        ("instance", "stop"),
        ("instance", "rerun"),
        ("instance", "recover"),
    ),
    "t_ds_task_instance": (
        ("task", "show"),
        ("task", "log"),
        ("task", "render"),
        ("task", "force-success"),
    ),
}


@pytest.mark.parametrize("table", ORDERS)
def test_an_object_of_the_other_team_is_missing(
    teams: Teams, runs: dict[str, int], table: str
) -> None:
    numbers = _numbers(teams, table, "prod")
    assert numbers
    for order in ORDERS[table]:
        code, text = teams.run("dana", *order, str(numbers[0]))
        assert code in (2, 3), (order, code, text)
        missing, other = teams.run("dana", *order, "999999")
        assert (missing, other.replace("999999", str(numbers[0]))) == (code, text), order
    for words in (("definition", "list"), ("instance", "list")):
        listed = teams.told("dana", *words)
        assert {each["project"] for each in listed} == {"dev"}


def test_nothing_that_a_user_can_list_or_read_holds_a_secret(
    teams: Teams, runs: dict[str, int]
) -> None:
    seen: list[tuple[str, str]] = []
    for user in ("dana", "dora", "paul", "petra"):
        for words in (
            *(("datasource", "list"), ("environment", "list"), ("tenant", "list")),
            *(("pool", "list"), ("worker-group", "list"), ("alert", "list"), ("command", "list")),
            *(("project", "list"), ("definition", "list"), ("instance", "list")),
        ):
            code, text = teams.run(user, *words, "-o", "json")
            seen.append((user, text))
            assert code in (0, 4), (user, words, text)
            # Some definitions of dev have names that contain these words.
            if user in ("dana", "dora") and words[0] != "definition":
                hidden = [each for each in ("prod_", "hidden", '"news"') if each in text]
                assert not hidden, (user, words, hidden)
        team = "dev" if user in ("dana", "dora") else "prod"
        for number in _numbers(teams, "t_ds_process_definition", team):
            seen += [
                (user, teams.run(user, "definition", order, str(number))[1])
                for order in ("show", "export")
            ]
        for number in _numbers(teams, "t_ds_task_instance", team):
            seen += [
                (user, teams.run(user, "task", order, str(number))[1])
                for order in ("render", "log")
            ]
    # Prod's users may read the script, which contains the text of the file.
    of_dev = [text for user, text in seen if user in ("dana", "dora")]
    assert not [each for each in SECRETS for text in of_dev if each in text]
    kept = [each for each in SECRETS if each != FILE]
    assert not [each for each in kept for _, text in seen if each in text]


def test_a_stream_and_its_dataset_are_of_their_team(teams: Teams, runs: dict[str, int]) -> None:
    spec = copy.deepcopy(SMALL)
    spec["spec"]["dataSchema"]["dataSource"] = "prod_events"
    spec["spec"]["ioConfig"]["consumerProperties"] = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": {"type": "default", "password": PASSWORD},
    }
    path = teams.folder / "stream.json"
    path.write_text(json.dumps({**spec, "suspended": True}))
    submit = ("stream", "submit", str(path), "--project", "prod")
    code, text = teams.run("paul", *submit)
    assert (code, "review" in text) == (4, True), text
    code, text = teams.run("petra", *submit)
    assert code == 0, text
    for order in ("status", "lag", "suspend", "resume", "history", "terminate"):
        code, text = teams.run("dana", "stream", order, "prod_events")
        assert code == 3, (order, code, text)
        missing = teams.run("dana", "stream", order, "no_events__")
        assert missing == (code, text.replace("prod_events", "no_events__")), order
    assert teams.told("dana", "stream", "list") == []
    assert teams.run("dana", "dataset", "show", "prod_events")[0] == 3
    # A submission of the same name fails, and does not show the stream's project.
    code, text = teams.run("dana", "stream", "submit", str(path), "--project", "dev")
    assert code != 0
    assert "prod " not in text
    for words in (("list",), ("status", "prod_events"), ("history", "prod_events")):
        assert PASSWORD not in teams.run("paul", "stream", *words, "-o", "json")[1]
    assert teams.run("paul", "stream", "terminate", "prod_events")[0] == 0


def test_in_prod_a_change_takes_a_second_person(teams: Teams, runs: dict[str, int]) -> None:
    changed = a_load("prod", "echo 'ran by prod, reviewed'; id -un")
    code, text = teams.imported("paul", "prod", changed)
    assert code == 4, text
    path = teams.file(changed)
    proposal = teams.told("paul", "definition", "propose", path, "--project", "prod")
    assert teams.run("paul", "definition", "approve", "load", str(proposal["id"]))[0] != 0
    where = ("load", str(proposal["id"]), "--project", "prod")
    assert teams.run("dora", "definition", "approve", *where)[0] == 3
    teams.told("petra", "definition", "approve", *where)
    teams.told("paul", "run", "daily", "--project", "prod", "--wait")
    assert "ran by prod, reviewed" in last_log(teams, "load", "prod")


def test_a_share_opens_one_definition_until_it_ends(teams: Teams, runs: dict[str, int]) -> None:
    document = a_parent("borrow", "hidden", "dev")
    assert teams.imported("dana", "dev", document)[0] != 0
    # An author of dev cannot share it. An admin of prod can, if the admin sees dev.
    assert teams.run("dana", "definition", "share", "hidden", "--with", "dev")[0] == 3
    teams.admin("user", "grant", "petra", "--project", "dev", "--role", "viewer")
    teams.told("petra", "definition", "share", "hidden", "--with", "dev", "--project", "prod")
    code, text = teams.imported("dana", "dev", document)
    assert code == 0, text
    teams.told("dana", "run", "borrow", "--project", "dev", "--wait")
    assert "hidden\n" in last_log(teams, "hidden", "prod")
    # A share does not show the content of the definition.
    hidden = teams.admin("definition", "show", "hidden", "--project", "prod")["id"]
    assert teams.run("dana", "definition", "show", str(hidden))[0] == 3
    assert PARAMETER not in teams.run("dana", "definition", "export", "borrow")[1]
    teams.told("petra", "definition", "unshare", "hidden", "--with", "dev", "--project", "prod")
    code, text = teams.run("dana", "run", "borrow", "--project", "dev", "--wait")
    assert code != 0, text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tenant", "games"),
        ("environment", "dev_env"),
        ("pool", "dev_pool"),
        ("worker-group", "dev_group"),
    ],
)
def test_a_grant_that_is_revoked_holds_for_the_next_run(
    teams: Teams, runs: dict[str, int], kind: str, name: str
) -> None:
    more: dict[str, Any] = {
        "tenant": {},
        "environment": {"environmentName": name},
        "pool": {"taskGroups": [{"name": name}]},
        "worker-group": {},
    }[kind]
    document = a_definition("granted", a_task("a", "true", **more), tenantCode="games")
    code, text = teams.imported("dana", "dev", document)
    assert code == 0, text
    teams.admin(kind, "revoke", name, "--project", "dev")
    try:
        group = ("--worker-group", name) if kind == "worker-group" else ()
        code, text = teams.run("dana", "run", "granted", "--project", "dev", "--wait", *group)
        assert code in (1, 3), text
    finally:
        teams.admin(kind, "grant", name, "--project", "dev")


def test_a_team_with_long_tasks_leaves_room_for_the_other(
    teams: Teams, runs: dict[str, int]
) -> None:
    cluster = teams.cluster
    document = a_definition("greedy", a_task("sleep", "sleep 600"), tenantCode="games")
    code, text = teams.imported("dana", "dev", document)
    assert code == 0, text
    greedy = (
        "process_definition_id = (SELECT id FROM t_ds_process_definition WHERE name = 'greedy')"
    )
    cluster.rows(
        "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
        " SELECT 0, id, '{}' FROM t_ds_process_definition, generate_series(1, 12)"
        " WHERE name = 'greedy' RETURNING id"
    )

    def held() -> tuple[int, int]:
        """Count the runs of the greedy team that are live, and their tasks that run."""
        (found,) = cluster.rows(
            f"SELECT (SELECT count(*) FROM t_ds_process_instance WHERE state = 1 AND {greedy}),"
            f" (SELECT count(*) FROM t_ds_task_instance WHERE state = 1 AND {greedy})"
        )
        return int(found[0]), int(found[1])

    until(lambda: held() == (8, 4))
    teams.told("paul", "run", "daily", "--project", "prod", "--wait")
    assert held() == (8, 4)
    cluster.rows(f"DELETE FROM t_ds_command WHERE {greedy} RETURNING id")
    cluster.rows(
        "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
        " SELECT 9, process_definition_id, json_build_object('ProcessInstanceId', id)"
        f" FROM t_ds_process_instance WHERE state = 1 AND {greedy} RETURNING id"
    )
    until(lambda: held() == (0, 0))


def test_x76_an_account_that_floods_both_servers_keeps_no_other_client_out(teams: Teams) -> None:
    need_firewall()
    cluster = teams.cluster
    ports = [postgres_address(cluster.home).port, zookeeper_address(cluster.home).port]
    account = pwd.getpwnam(ACCOUNTS["dev"])
    with flood(account.pw_uid, ports) as accepted:
        psycopg2.connect(cluster.dsn).close()
        found = {each["check"]: each["result"] for each in teams.admin("doctor")}
        assert (found["postgresql"], found["zookeeper"], found["firewall"]) == ("ok", "ok", "ok")
    to_postgres, to_zookeeper = accepted
    assert is_limited(to_postgres, 20)
    assert to_zookeeper == 0


def test_x77_a_task_that_takes_the_port_of_the_api_server_gets_no_client(teams: Teams) -> None:
    need_firewall()
    cluster = teams.cluster
    (port,) = cluster.ports(Kind.API)
    account = pwd.getpwnam(ACCOUNTS["dev"])
    cluster.stop(Kind.API, port)
    with a_task_at(port, uid=account.pw_uid) as pid:
        assert not is_reached(port)
        named = rf"process {pid} of account {account.pw_name}, .*`kill {pid}`"
        with pytest.raises(ConfigurationError, match=named):
            cluster.daemons.start_daemon(Kind.API, port)
        assert not is_reached(port)
    cluster.daemons.start_daemon(Kind.API, port)
    assert teams.run("dana", "definition", "list", "--project", "dev")[0] == 0


def test_embedded_servers_that_were_killed_come_back_and_work_continues(
    teams: Teams, runs: dict[str, int]
) -> None:
    cluster = teams.cluster
    killed = [postgres_address(cluster.home), zookeeper_address(cluster.home)]
    for each in killed:
        os.kill(each.pid, signal.SIGKILL)
    until(lambda: all(_is_back(cluster, each.pid) for each in killed))
    cluster.disconnect()
    # The api-server notices by a request that its connections are gone.
    until(lambda: teams.run("dana", "definition", "list", "--project", "dev")[0] == 0)
    teams.told("dana", "run", "daily", "--project", "dev", "--wait")
    found = [postgres_address(cluster.home), zookeeper_address(cluster.home)]
    assert [each.port for each in found] == [each.port for each in killed]


def _is_back(cluster: PrivateCluster, former: int) -> bool:
    """Return True if both servers run and neither is the former process."""
    try:
        found = (postgres_address(cluster.home), zookeeper_address(cluster.home))
    except ServiceUnreachableError:
        return False
    return former not in {each.pid for each in found}
