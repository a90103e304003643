"""Commands about data sources, on a real database."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from common.store.tables import datasource
from tests.integration.cli_rows import a_definition, parsed
from tests.integration.conftest import Cli


def test_a_password_comes_from_standard_input_and_is_never_shown(
    cli: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush hush\n"))
    where = ("--address", "db.local", "--database", "dw", "--user", "etl")
    more = ("--password-stdin", "--other", "sslmode=require")
    code, out, err = cli("datasource", "create", "dw", *where, *more)
    assert code == 0
    with db.connect() as connection:
        params = json.loads(connection.scalar(select(datasource.c.connection_params)) or "")
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
    cli: Cli, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = migrated_url.replace("postgresql+psycopg2", "postgresql")
    assert cli("datasource", "create", "own", "--url", plain)[0] == 0
    assert parsed(cli("datasource", "test", "own", "-o", "json"))["server"].startswith("postgresql")
    cli("datasource", "create", "gone", "--url", f"sqlite:///{tmp_path}/gone.db")
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
    cli("datasource", "create", "own", "--url", "sqlite:////srv/x.db")
    task = {"name": "q", "type": "SQL", "params": {"datasource": 1, "sql": "select 1"}}
    a_definition(db, process_definition_json=json.dumps({"tasks": [task]}))
    code, _, err = cli("datasource", "remove", "own")
    assert code == 4
    assert "'nightly'" in err
    assert cli("datasource", "create", "own", "--url", "sqlite:////srv/y.db")[0] == 4
    assert cli("datasource", "create", "own", "--url", "sqlite:////srv/y.db", "--replace")[0] == 0
    assert parsed(cli("datasource", "list", "-o", "json"))[0]["database"] == "/srv/y.db"
