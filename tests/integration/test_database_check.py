"""Databases that Orcaflow can't use, as daemons, `db check`, `db upgrade` and the doctor see them.

The pooler is a real PgBouncer, and the databases and roles are those of a real server.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from sqlalchemy import Engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError

from common.config import load
from common.embedded.addresses import OWNER, SUPERUSER, PostgresAddress
from common.errors import ConfigurationError
from common.store import schema
from common.store.connect import connect, engine
from common.store.database_check import DatabaseUnfitError, facts_of, refuse_unfit
from operations.checks import Result, database_findings
from tests.conftest import MIGRATED, administer
from tests.integration.conftest import Cli
from tests.pgbouncer import pgbouncer

Command: TypeAlias = Callable[..., tuple[int, str, str]]
Pooled: TypeAlias = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def role(postgres: PostgresAddress) -> Iterator[str]:
    """A role without any rights, whose password is its name."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    administer(postgres, f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
    yield name
    administer(postgres, f"DROP ROLE {name}")


@pytest.fixture
def ascii_url(postgres: PostgresAddress) -> Iterator[str]:
    """An empty database in SQL_ASCII."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    administer(
        postgres,
        f"CREATE DATABASE {name} OWNER {OWNER} ENCODING 'SQL_ASCII' TEMPLATE template0"
        " LOCALE_PROVIDER libc LOCALE 'C'",
    )
    yield _at(postgres.url, database=name)
    administer(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def made() -> Iterator[Callable[[str], Engine]]:
    """Makes engines, which are disposed of before their databases are dropped."""
    engines: list[Engine] = []

    def make(url: str) -> Engine:
        engines.append(engine(url, pool_size=2))
        return engines[-1]

    yield make
    for each in engines:
        each.dispose()


@pytest.fixture
def command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command on a database."""

    def run(url: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("ORCAFLOW_DATABASE__URL", url)
        return cli(*arguments)

    return run


@pytest.fixture
def pooled(postgres: PostgresAddress, migrated_url: str, tmp_path: Path) -> Pooled:
    """Runs PgBouncer in front of the migrated database."""
    return partial(pgbouncer, postgres, migrated_url, tmp_path)


def _at(url: str, *, database: str) -> str:
    return make_url(url).set(database=database).render_as_string(hide_password=False)


def _as(url: str, role: str) -> str:
    address = make_url(url).set(username=role, password=role).difference_update_query(["passfile"])
    return address.render_as_string(hide_password=False)


def _administer(postgres: PostgresAddress, url: str, *statements: str) -> None:
    superuser = postgres.seen_by(SUPERUSER).url
    with (
        closing(connect(_at(superuser, database=make_url(url).database or ""))) as connection,
        connection.cursor() as cursor,
    ):
        for each in statements:
            cursor.execute(each)


def test_a_server_without_a_pooler_is_fit(migrated_url: str, made: Callable[[str], Engine]) -> None:
    schema.check_as_daemon(made(migrated_url))
    facts = facts_of(made(migrated_url))
    assert (facts.encoding, facts.changes_backends, facts.is_owner) == ("UTF8", False, True)


def test_a_pooler_in_transaction_mode_is_refused_everywhere(
    pooled: Pooled, made: Callable[[str], Engine], command: Command
) -> None:
    with pooled(mode="transaction") as url:
        with pytest.raises(DatabaseUnfitError, match=r"pooler.*pool_mode = session"):
            schema.check_as_daemon(made(url))
        code, _, err = command(url, "db", "check")
        assert code == 78
        assert "pool_mode = session" in err
        found = [each for each in database_findings(load()) if each.check == "database"]
    assert {each.result for each in found} == {Result.FAILED}
    assert any("pool_mode = session" in (each.cure or "") for each in found)


def test_a_pooler_that_refuses_the_settings_is_not_waited_for(
    pooled: Pooled, made: Callable[[str], Engine]
) -> None:
    with (
        pooled(mode="session", ignored="") as url,
        pytest.raises(ConfigurationError, match=r"unsupported startup.*: connect to PostgreSQL"),
    ):
        schema.check_as_daemon(made(url))


def test_a_pooler_that_drops_the_settings_needs_them_at_the_role(
    pooled: Pooled, postgres: PostgresAddress, migrated_url: str, made: Callable[[str], Engine]
) -> None:
    with pooled(mode="session") as url:
        with pytest.raises(DatabaseUnfitError) as refused:
            refuse_unfit(made(url))
        (fault,) = refused.value.mistakes
        assert "plan_cache_mode is auto" in fault
        database = make_url(migrated_url).database
        cures = [
            each.replace(" SET ", f" IN DATABASE {database} SET ", 1)
            for each in fault.partition("for the role: ")[2].split("; ")
        ]
        _administer(postgres, migrated_url, *cures)
    with pooled(mode="session") as url:
        schema.check_as_daemon(made(url))


def test_a_database_that_cannot_store_every_letter_is_refused(
    ascii_url: str, made: Callable[[str], Engine], command: Command
) -> None:
    for verb in ("upgrade", "check"):
        code, _, err = command(ascii_url, "db", verb)
        assert code == 78
        assert "SQL_ASCII" in err
        assert "createdb -E UTF8 -T template0" in err
    assert inspect(made(ascii_url)).get_table_names() == []
    with pytest.raises(DatabaseUnfitError, match="SQL_ASCII"):
        schema.check_as_daemon(made(ascii_url))


def test_the_encoding_of_the_environment_changes_nothing(
    migrated_url: str, made: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with made(migrated_url).connect() as db:
        assert db.scalar(text("SELECT '€'")) == "€"


def test_missing_rights_are_listed_with_the_grants_that_give_them(
    role: str,
    postgres: PostgresAddress,
    new_database: Callable[..., str],
    made: Callable[[str], Engine],
    command: Command,
) -> None:
    whole = new_database(template=MIGRATED)
    url = _as(whole, role)
    code, _, err = command(url, "db", "check")
    assert code == 78
    assert "SELECT on t_ds_access_token" in err
    with pytest.raises(DatabaseUnfitError) as refused:
        refuse_unfit(made(url))
    locks, fault = refused.value.mistakes
    _administer(postgres, whole, locks.partition("administrator run ")[2])
    code, _, err = command(url, "instance", "list")
    assert code == 78
    assert "permission denied" in err
    assert "orcaflow db check" in err
    grants = fault.partition("of the tables run ")[2].split(" and ")
    assert len(grants) == 2
    _administer(postgres, whole, *grants)
    schema.check_as_daemon(made(url))
    assert command(url, "instance", "list")[0] == 0


def test_an_upgrade_needs_the_right_to_create_tables(
    role: str, postgres: PostgresAddress, new_database: Callable[..., str], command: Command
) -> None:
    whole = new_database()
    url = _as(whole, role)
    code, _, err = command(url, "db", "upgrade")
    assert code == 78
    grant = re.search(r"GRANT EXECUTE ON FUNCTION .* TO \w+", err)
    assert grant
    _administer(postgres, whole, grant[0])
    assert f"GRANT CREATE ON SCHEMA public TO {role}" in err
    _administer(postgres, whole, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    code, _, err = command(url, "db", "upgrade")
    assert code == 78
    assert f"GRANT USAGE, CREATE ON SCHEMA public TO {role}" in err
    _administer(postgres, whole, f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    code, _, err = command(url, "db", "upgrade")
    assert err == ""
    assert code == 0
    assert command(url, "db", "check")[0] == 0


def test_a_refusal_of_a_trigger_is_not_a_missing_right(
    migrated_url: str, made: Callable[[str], Engine]
) -> None:
    with (
        pytest.raises(DBAPIError, match="only added to"),
        made(migrated_url).begin() as db,
    ):
        db.execute(text("TRUNCATE t_ds_audit_log"))
