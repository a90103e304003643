"""The facts of a database, and the faults that keep Orcaflow from using it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.model.database_needs import DatabaseFacts, asked_settings, faults_of

GIVEN = {"timezone": "UTC", "jit": "off"}
IN_FORCE = {
    **GIVEN,
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "statement_timeout": "30s",
    "lock_timeout": "10s",
}
GOOD = DatabaseFacts(
    version="15.0",
    version_number=150000,
    encoding="UTF8",
    database="orcaflow",
    role="orcaflow",
    schema="public",
    changes_backends=False,
    is_standby=False,
    may_create=True,
    is_owner=True,
    settings=IN_FORCE,
    given=GIVEN,
    lacking={},
)


def test_a_good_database_has_no_fault() -> None:
    assert faults_of(GOOD) == faults_of(GOOD, upgrading=True) == ()
    assert set(asked_settings(GIVEN)) == set(IN_FORCE)


@pytest.mark.parametrize(
    ("facts", "problem", "cure"),
    [
        (replace(GOOD, version="14.9", version_number=140009), "PostgreSQL 14.9", "15 or newer"),
        (replace(GOOD, encoding="SQL_ASCII"), "SQL_ASCII", "createdb -E UTF8 -T template0"),
        (replace(GOOD, encoding="LATIN1"), "LATIN1", "createdb -E UTF8 -T template0"),
        (replace(GOOD, changes_backends=True), "pooler", "pool_mode = session"),
        (replace(GOOD, schema=None), "may use no schema", "ALTER DATABASE orcaflow OWNER"),
        (
            replace(GOOD, lacking={"DELETE": ("t_ds_command",), "USAGE": ("t_ds_user_id_seq",)}),
            "DELETE on t_ds_command; USAGE on t_ds_user_id_seq",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO orcaflow",
        ),
        (
            replace(GOOD, settings={**IN_FORCE, "timezone": "Europe/Berlin", "lock_timeout": "0"}),
            "timezone is Europe/Berlin, lock_timeout is 0",
            "ALTER ROLE orcaflow SET timezone = 'UTC'",
        ),
        (
            replace(GOOD, settings={**IN_FORCE, "client_encoding": "LATIN1"}),
            "client_encoding is LATIN1",
            "remove client_encoding from database.url",
        ),
        (
            replace(GOOD, settings={**IN_FORCE, "transaction_isolation": "serializable"}),
            "transaction_isolation is serializable",
            "SET default_transaction_isolation = 'read committed'",
        ),
    ],
)
def test_a_fault_is_named_with_its_cure(facts: DatabaseFacts, problem: str, cure: str) -> None:
    (fault,) = faults_of(facts)
    assert problem in fault.problem
    assert cure in fault.cure
    assert not fault.passes


def test_a_standby_may_become_the_primary() -> None:
    standby = replace(GOOD, is_standby=True, settings={**IN_FORCE, "transaction_read_only": "on"})
    (fault,) = faults_of(standby)
    assert fault.passes


def test_only_an_upgrade_needs_the_right_to_create_and_the_tables() -> None:
    user = replace(GOOD, may_create=False, is_owner=False)
    assert faults_of(user) == ()
    may_not, is_not_owner = faults_of(user, upgrading=True)
    assert "GRANT CREATE ON SCHEMA public TO orcaflow" in may_not.cure
    assert "as their owner" in is_not_owner.cure


def test_a_setting_of_the_url_is_the_administrators_choice() -> None:
    chosen = replace(GOOD, settings={**IN_FORCE, "jit": "on"}, overridden=frozenset({"jit"}))
    assert faults_of(chosen) == ()
