"""Commands about data sources, on a real database."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, make_url, select

from common.config import load
from common.datasource_keys import DatasourceKeys
from common.parameter_keys import parameter_keys
from common.sealed_tokens import MARK
from common.store.tables import command, datasource, error_command, supervisor
from tests.granting import grant_all
from tests.integration.cli_rows import a_definition, parsed
from tests.integration.conftest import Cli
from tests.integration.task_kinds import own_url

ENCRYPT = ("datasource", "encrypt", "-o", "json")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_password_comes_from_standard_input_and_is_never_shown(
    cli: Cli, db: Engine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush hush\n"))
    where = ("--address", "db.local", "--database", "dw", "--user", "etl")
    more = ("--password-stdin", "--other", "sslmode=require")
    code, out, err = cli("datasource", "create", "dw", *where, *more)
    assert code == 0
    with db.connect() as connection:
        stored = connection.scalar(select(datasource.c.connection_params)) or ""
    assert "hush" not in stored
    keys = DatasourceKeys(home / "datasource.key")
    params = json.loads(keys.opened(stored))
    assert params == {
        "address": "jdbc:postgresql://db.local:5432",
        "database": "dw",
        "jdbcUrl": "jdbc:postgresql://db.local:5432/dw",
        "user": "etl",
        "password": "hush hush",
        "other": "sslmode=require",
    }
    (row,) = parsed(cli("datasource", "list", "-o", "json"))
    assert (row["kind"], row["address"], row["has_password"]) == (
        "postgresql",
        "db.local:5432",
        True,
    )
    assert "hush" not in out + err + json.dumps(row)


def test_a_password_on_the_command_line_is_refused(cli: Cli) -> None:
    code, _, err = cli("datasource", "create", "dw", "--url", "mysql+pymysql://u:hush@h/d")
    assert code == 2
    assert "hush" not in err
    assert "--password-env" in err


def test_a_data_source_is_tried_from_here(
    cli: Cli, emptied_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_url(own_url(emptied_url)["url"])
    monkeypatch.setenv("PW", whole.password or "")
    plain = f"postgresql://{whole.username}@{whole.host}:{whole.port}/{whole.database}"
    password = ("--password-env", "PW") if whole.password else ()
    code, _, err = cli("datasource", "create", "own", "--url", plain, *password)
    assert code == 0, err
    assert parsed(cli("datasource", "test", "own", "-o", "json"))["server"].startswith("postgresql")
    cli("datasource", "create", "gone", "--url", f"sqlite:///{tmp_path}/home/data/gone.db")
    code, _, err = cli("datasource", "test", "gone")
    assert code == 5
    assert "there is no file" in err
    # The place where a worker looks for it: the resources that tasks share.
    (tmp_path / "home" / "data").mkdir(parents=True)
    (tmp_path / "home" / "data" / "near.db").touch()
    cli("datasource", "create", "near", "--url", "sqlite:///near.db")
    assert cli("datasource", "test", "near")[0] == 0
    monkeypatch.setenv("PW", "hush")
    cli(
        "datasource",
        "create",
        "off",
        "--url",
        "postgresql://u@127.0.0.1:1/x",
        "--password-env",
        "PW",
    )
    code, out, err = cli("datasource", "test", "off")
    assert code == 5
    assert "hush" not in out + err
    assert "refused" in err


def test_a_data_source_that_a_definition_names_stays(cli: Cli, db: Engine) -> None:
    cli("datasource", "create", "own", "--url", "sqlite:///x.db")
    task = {"name": "q", "type": "SQL", "params": {"datasource": 1, "sql": "select 1"}}
    a_definition(db, process_definition_json=json.dumps({"tasks": [task]}))
    code, _, err = cli("datasource", "remove", "own")
    assert code == 4
    assert "'nightly'" in err
    assert cli("datasource", "create", "own", "--url", "sqlite:///y.db")[0] == 4
    assert cli("datasource", "create", "own", "--url", "sqlite:///y.db", "--replace")[0] == 0
    assert parsed(cli("datasource", "list", "-o", "json"))[0]["database"] == "y.db"


def test_rows_in_clear_are_encrypted_on_demand_and_by_a_new_key(
    cli: Cli, db: Engine, home: Path
) -> None:
    params = {
        "dw": {"address": "jdbc:postgresql://h:5432", "user": "u", "password": "hush"},
        "shop": {"url": "mysql+pymysql://u:hush@h/d"},
        "lite": {"url": "sqlite:///x.db"},
    }
    with db.begin() as connection:
        for name, each in params.items():
            row = {"name": name, "type": 1, "connection_params": json.dumps(each)}
            connection.execute(insert(datasource).values(row))

    def stored() -> dict[str, str]:
        with db.connect() as connection:
            rows = connection.execute(select(datasource)).all()
        return {row.name: row.connection_params for row in rows}

    done = {each["name"]: each["changed"] for each in parsed(cli(*ENCRYPT))}
    assert done == {"dw": True, "shop": True, "lite": False}
    first = stored()
    assert "hush" not in json.dumps(first)
    assert not any(each["changed"] for each in parsed(cli(*ENCRYPT)))
    assert [each["changed"] for each in parsed(cli(*ENCRYPT, "--new-key"))].count(True) == 2
    assert stored()["dw"] != first["dw"]
    keys = DatasourceKeys(home / "datasource.key")
    opened = {name: json.loads(keys.opened(each)) for name, each in stored().items()}
    assert opened == params
    rows = {row["name"]: row for row in parsed(cli("datasource", "list", "-o", "json"))}
    assert [rows[name]["has_password"] for name in params] == [True, True, False]


def test_secret_parameters_of_older_rows_are_encrypted_and_nothing_else_is_changed(
    cli: Cli, db: Engine, home: Path
) -> None:
    secret, plain = json.dumps({"password": "hush"}), json.dumps({"passenger": "Ada", "n": 1.10})
    with db.begin() as connection:
        for text in (secret, plain):
            connection.execute(insert(command).values(command_type=0, command_param=text))
        spec = {"consumerProperties": {"sasl.password": {"type": "default", "password": "hush"}}}
        connection.execute(insert(supervisor).values(id="s", version=1, spec=spec))
        # More rows than one batch.
        rows = [{"command_id": each, "command_param": secret} for each in range(450)]
        connection.execute(insert(error_command), rows)
    code, out, _ = cli("secrets", "encrypt", "-o", "json")
    assert code == 0
    assert {each["column"]: each["changed"] for each in parsed((code, out, ""))} == {
        "t_ds_command.command_param": 1,
        "t_ds_error_command.command_param": 450,
        "t_ds_supervisor.spec": 1,
    }
    keys = parameter_keys(load())
    with db.connect() as connection:
        texts = connection.scalars(select(command.c.command_param).order_by(command.c.id)).all()
        assert MARK in (texts[0] or "")
        assert [keys.opened(each or "") for each in texts] == [secret, plain]
        stored = json.dumps(connection.scalar(select(supervisor.c.spec)))
        assert MARK in stored
        assert json.loads(keys.opened(stored)) == spec
    assert parsed(cli("secrets", "encrypt", "-o", "json")) == []
    before = (home / "datasource.key").read_text()
    assert cli(*ENCRYPT, "--new-key")[0] == 0
    assert len((home / "datasource.key").read_text()) > len(before)
    with db.connect() as connection:
        again = connection.scalar(select(command.c.command_param).order_by(command.c.id).limit(1))
        assert again != texts[0]
        assert parameter_keys(load()).opened(again or "") == secret
    (home / "datasource.key").unlink()
    code, _, err = cli("secrets", "encrypt")
    assert code != 0
    assert "there is no key file" in err


def test_without_the_key_of_encrypted_rows_no_other_is_made(
    cli: Cli, db: Engine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "hush")
    make = ("datasource", "create", "dw", "--url", "postgresql://me@db/x", "--password-env", "PW")
    assert cli(*make)[0] == 0
    (home / "datasource.key").unlink()
    for refused in (("datasource", "test", "dw"), ENCRYPT, (*make, "--replace")):
        code, _, err = cli(*refused)
        assert code != 0, refused
        assert "there is no key file" in err, refused
    assert not (home / "datasource.key").exists()


def test_a_url_that_names_more_than_a_database_is_refused_and_an_old_row_is_told(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    code, _, err = cli("datasource", "create", "x", "--url", "sqlite:////etc/passwd")
    assert code == 2
    assert "must name a file of the folder of shared data" in err
    url = "postgresql://me:hush@db/x?passfile=/etc/passwd"
    with db.begin() as connection:
        row = {"name": "old", "type": 1, "connection_params": json.dumps({"url": url})}
        connection.execute(insert(datasource).values(row))
        grant_all(connection)
    (row,) = parsed(cli("datasource", "list", "-o", "json"))
    assert row["problem"].startswith("its url has the parameter 'passfile', which is not allowed")
    assert "its url has the parameter" in cli("datasource", "list")[1]
    code, _, err = cli("datasource", "test", "old")
    assert code != 0
    assert "'passfile', which is not allowed" in err
    task = {"name": "q", "type": "SQL", "params": {"datasourceName": "old", "sql": "select 1"}}
    path = tmp_path / "q.json"
    path.write_text(json.dumps({"name": "q", "processDefinitionJson": {"tasks": [task]}}))
    code, out, err = cli("definition", "import", str(path))
    assert code == 0
    assert "the data source 'old' can't be used: its url has the parameter 'passfile'" in err
    assert "hush" not in out + err
