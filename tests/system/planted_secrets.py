"""Secrets planted through every entry point of a cluster, and the search for them in its tables."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import psycopg2

SECRETS = {
    name: f"planted-{name}-{number}$ \"q'ü"
    for number, name in enumerate(("global", "local", "start", "schedule", "complement", "row"))
}
PUT_OUT = "planted-put-out-77"


class Operator(Protocol):
    """The operator of `tests.system.test_daemons`."""

    home: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]: ...

    def does(self, *arguments: str) -> str: ...

    def told(self, *arguments: str) -> Any: ...


def plant_and_search(operator: Operator) -> None:
    """Plant secrets, run everything that uses them, and search the tables after each step."""
    secrets = SECRETS
    for document in (child(), parent(secrets["start"])):
        file = operator.home / f"{document['name']}.json"
        file.write_text(json.dumps(document))
        operator.does("definition", "import", str(file))
        assert "unchanged" in operator.does("definition", "import", str(file))
    done = operator.run("run", "planted", "-p", f"start_secret={secrets['start']}", "--wait")
    assert done.returncode == 0, done.stdout
    (ran,) = operator.told("instance", "list", "--definition", "planted", "--limit", "1")
    assert operator.run("instance", "rerun", str(ran["id"]), "--wait").returncode == 0
    operator.does("schedule", "create", "planted", "--cron", "0 0 0 * * ? 2099",
                  "-p", f"schedule_password={secrets['schedule']}")  # fmt: skip
    days = ("--from", "2013-01-01", "--to", "2013-01-01", "--wait")
    given = ("-p", f"complement_password={secrets['complement']}")
    assert operator.run("complement", "planted", *days, *given).returncode == 0
    dsn = operator.does("config", "get", "database.dsn").strip()
    assert found_in_clear(dsn) == []
    operator.does("definition", "offline", "planted")
    by_hand = json.dumps({"StartParams": {"row_password": secrets["row"]}})
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO t_ds_error_command (command_id, command_param) VALUES (0, %s)", [by_hand]
        )
    assert found_in_clear(dsn) == ["t_ds_error_command: row"]
    (changed,) = operator.told("secrets", "encrypt")
    assert changed == {"column": "t_ds_error_command.command_param", "changed": 1, "unreadable": 0}
    assert found_in_clear(dsn) == []
    assert operator.told("secrets", "encrypt") == []
    operator.does("datasource", "encrypt", "--new-key")
    assert found_in_clear(dsn) == []
    operator.does("definition", "online", "planted")
    assert operator.run("run", "planted", "--wait").returncode == 0


def passes_if(variable: str, secret: str) -> str:
    """Return a script that fails unless a variable has this value. The script has its hash only."""
    digest = sha256(secret.encode()).hexdigest()
    return f'test "$(printf %s "${variable}" | sha256sum | cut -c1-64)" = {digest}'


def parent(start: str) -> dict[str, Any]:
    """Return a definition with tasks that check their inputs; `start` is its start-up secret."""
    joined = f"user:{SECRETS['global']}@host"
    puts_out = 'echo "{\\"made_token\\": \\"$first-$second\\"}" >> "$ORCAFLOW_OUTPUT"'
    return {
        "name": "planted",
        "processDefinitionJson": {
            "globalParams": [
                _property("db_password", SECRETS["global"]),
                _property("address", "user:${db_password}@host"),
                _property("start_secret", start),
            ],
            "tasks": [
                {
                    "name": "get_token",
                    "type": "SHELL",
                    "maxRetryTimes": 1,
                    "retryInterval": 0,
                    "params": {
                        "rawScript": "\n".join(
                            (
                                "set -e",
                                passes_if("db_password", SECRETS["global"]),
                                passes_if("address", joined),
                                passes_if("api_key", SECRETS["local"]),
                                'test "$ORCAFLOW_ATTEMPT" -ge 2',
                                "first=planted-put second=out-77",
                                puts_out,
                            )
                        ),
                        "localParams": [
                            _property("api_key", SECRETS["local"]),
                            {**_property("made_token", ""), "direct": "OUT"},
                        ],
                    },
                },
                {
                    "name": "python",
                    "type": "PYTHON",
                    "preTasks": ["get_token"],
                    "params": {
                        "rawScript": "from hashlib import sha256\n"
                        "from orcaflow.task import params\n"
                        "found = [params['made_token'], params['db_password']]\n"
                        "digest = sha256('|'.join(found).encode()).hexdigest()\n"
                        f"assert digest == '{_digest(PUT_OUT, SECRETS['global'])}'\n"
                    },
                },
                {
                    "name": "below",
                    "type": "SUB_PROCESS",
                    "preTasks": ["python"],
                    "params": {
                        "processDefinitionName": "planted_child",
                        "localParams": [_property("handed", "${db_password}")],
                    },
                },
            ],
        },
    }


def child() -> dict[str, Any]:
    """Return the definition of the sub process, which checks the value from its parent."""
    task = {
        "name": "checks",
        "type": "SHELL",
        "params": {"rawScript": passes_if("handed", SECRETS["global"])},
    }
    return {"name": "planted_child", "processDefinitionJson": {"tasks": [task]}}


def found_in_clear(dsn: str) -> list[str]:
    """Return the tables of a database that hold a secret in plain text, with the secret's name."""
    found = []
    connection = psycopg2.connect(dsn)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            for (table,) in cursor.fetchall():
                cursor.execute(f"SELECT each::text FROM {table} each")  # Orcaflow's tables.
                rows = "\n".join(text for (text,) in cursor.fetchall())
                names = (*SECRETS, "put-out")
                found += [f"{table}: {each}" for each in names if f"planted-{each}" in rows]
    finally:
        connection.close()
    return found


def _property(name: str, value: str) -> dict[str, Any]:
    return {"prop": name, "direct": "IN", "type": "VARCHAR", "value": value}


def _digest(*values: str) -> str:
    return sha256("|".join(values).encode()).hexdigest()
