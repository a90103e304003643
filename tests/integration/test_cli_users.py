"""Users, roles, tokens and the audit, by the command line and by principals, on a real database."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from common.errors import NotFoundError
from common.model.commands import CommandType
from common.model.rights import ROLES, Action, Principal
from common.model.states import ProcessState, ReleaseState
from common.store import tables as t
from common.store.people.rights import Thing
from operations import passwords
from operations.definitions import release
from operations.errors import ForbiddenError, UsageError
from operations.instance_commands import put_command
from operations.rights import check_administrator, seen
from operations.runs import begin_run
from operations.session import Session
from operations.tokens import principal_of
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_instance, parsed
from tests.integration.conftest import Cli

PASSWORD = "correct horse battery"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a line on standard input."""
    return lambda line: monkeypatch.setattr("sys.stdin", io.StringIO(line + "\n"))


def a_project(db: Engine, name: str) -> int:
    with db.begin() as connection:
        made: int = connection.execute(
            insert(t.project).values(name=name).returning(t.project.c.id)
        ).scalar_one()
    return made


def audit(db: Engine) -> list[tuple[Any, ...]]:
    line = t.audit_log.c
    with db.connect() as connection:
        found = connection.execute(
            select(line.user_name, line.action, line.object_id, line.outcome).order_by(line.id)
        )
        return [tuple(row) for row in found]


def as_user(cli: Cli, db: Engine, name: str, role: str | None = None) -> Principal:
    made = parsed(cli("user", "create", name, "-o", "json"))
    if role is not None:
        assert cli("user", "grant", name, "--project", "default", "--role", role)[0] == 0
    return Principal(user_id=made["id"], user_name=name)


def asking(principal: Principal) -> Session:
    return Session(principal=principal)


def test_a_user_is_made_granted_disabled_and_found(
    cli: Cli, db: Engine, typed: Callable[[str], None]
) -> None:
    typed(PASSWORD)
    made = parsed(cli("user", "create", "ada", "--password-stdin", "-o", "json"))
    assert (made["name"], made["admin"], made["password"], made["projects"]) == (
        "ada",
        False,
        True,
        [],
    )
    code, _, err = cli("user", "create", "ADA")
    assert (code, "there is a user" in err) == (4, True)
    granted = parsed(
        cli("user", "grant", "ada", "--project", "default", "--role", "author", "-o", "json")
    )
    assert [(each["role"], each["perm"]) for each in granted["projects"]] == [("author", 7)]
    granted = parsed(
        cli("user", "grant", "ada", "--project", "default", "--role", "none", "-o", "json")
    )
    assert granted["projects"] == []
    assert parsed(cli("user", "disable", "ada", "-o", "json"))["changed"]
    assert not parsed(cli("user", "disable", "ada", "-o", "json"))["changed"]
    assert "did you mean 'ada'" in cli("user", "disable", "adda")[2]
    assert (
        "did you mean 'default'"
        in cli("user", "grant", "ada", "--project", "defalt", "--role", "viewer")[2]
    )
    rows = {row["name"]: row for row in parsed(cli("user", "list", "-o", "json"))}
    assert (rows["admin"]["admin"], rows["admin"]["password"], rows["ada"]["enabled"]) == (
        True,
        False,
        False,
    )
    assert [line[1:] for line in audit(db)][-2:] == [
        ("user.disable", None, "refused"),
        ("user.grant", None, "refused"),
    ]
    assert {line[0] for line in audit(db)} == {"database"}
    for name in ("", "a b", "-x", "ä", "x" * 65, "database"):
        assert cli("user", "create", "--", name)[0] == 2, name


def test_a_password_is_stored_as_a_hash_and_ends_sessions(
    cli: Cli, db: Engine, typed: Callable[[str], None]
) -> None:
    as_user(cli, db, "ada")
    with db.begin() as connection:
        connection.execute(insert(t.session).values(id="s", user_id=2))
        connection.execute(update(t.user).where(t.user.c.id == 1).values(user_password="21232f29"))
    for bad in ("short", "a" * 12, "qwertyuiopas", "ada-ada-ada-", "abcdefghijkl"):
        typed(bad)
        code, out, err = cli("user", "password", "ada", "--password-stdin")
        assert (code, bad in out + err) == (2, False), bad
    typed(PASSWORD)
    assert cli("user", "password", "ada", "--password-stdin")[0] == 0
    with db.connect() as connection:
        stored = connection.scalar(
            select(t.user.c.user_password).where(t.user.c.user_name == "ada")
        )
        assert connection.scalar(select(t.session.c.id)) is None
    assert stored is not None
    assert passwords.matches(stored, PASSWORD)
    assert not passwords.matches(stored, PASSWORD + "x")
    assert not passwords.matches("21232f29", "admin")
    by_name = {row["name"]: row for row in parsed(cli("user", "list", "-o", "json"))}
    assert (by_name["admin"]["password"], by_name["ada"]["password"]) == (False, True)


def test_a_token_is_shown_once_and_good_until_it_is_not(cli: Cli, db: Engine) -> None:
    as_user(cli, db, "ada", "viewer")
    made = parsed(
        cli("token", "create", "--user", "ada", "--name", "laptop", "--project", "default",
            "--role", "operator", "--expires", "12h", "-o", "json")
    )  # fmt: skip
    token = made["token"]
    assert token.startswith("of_")
    with db.connect() as connection:
        stored = connection.scalar(select(t.access_token.c.token))
    assert stored == hashlib.sha256(token.encode()).hexdigest()
    (row,) = parsed(cli("token", "list", "--user", "ada", "-o", "json"))
    assert (row["role"], row["projects"], row["last_used"]) == ("operator", [1], None)
    assert token not in json.dumps(row)
    found = principal_of(db, token, address="127.0.0.1", request="r1")
    assert found is not None
    assert (found.user_name, found.scope, found.projects) == ("ada", ROLES["operator"], (1,))
    (row,) = parsed(cli("token", "list", "-o", "json"))
    assert row["last_used"] is not None
    refused = ("of_" + "x" * 43, token + "x", token[:-1], "", stored, "of_" + "ä" * 43)
    assert [principal_of(db, each, address=None, request=None) for each in refused] == [None] * 6
    cli("user", "disable", "ada")
    assert principal_of(db, token, address=None, request=None) is None
    cli("user", "enable", "ada")
    assert principal_of(db, token, address=None, request=None) is not None
    past = datetime.now(UTC) - timedelta(seconds=1)
    with db.begin() as connection:
        connection.execute(update(t.access_token).values(expire_time=past))
    assert principal_of(db, token, address=None, request=None) is None
    assert cli("token", "revoke", str(made["id"]))[0] == 0
    assert cli("token", "revoke", str(made["id"]))[0] == 3
    for span in ("366d", "0d", "30", "1w"):
        assert cli("token", "create", "--user", "ada", "--name", "x", "--expires", span)[0] == 2, (
            span
        )
    assert cli("token", "create", "--user", "eve", "--name", "x")[0] == 3


def test_an_object_is_seen_by_the_grants_of_its_project(cli: Cli, db: Engine) -> None:
    other = a_project(db, "other")
    own = a_definition(db)
    foreign = a_definition(db, name="theirs", project_id=other)
    run = an_instance(db, ProcessState.SUCCESS, process_definition_id=own)
    theirs = an_instance(db, ProcessState.SUCCESS, process_definition_id=foreign)
    orphan = an_instance(db, ProcessState.SUCCESS, process_definition_id=99)
    ada = as_user(cli, db, "ada", "operator")
    root = Principal(user_id=1, user_name="admin")
    with db.connect() as connection:

        def may(who: Principal, action: Action, thing: Thing, number: int) -> bool:
            try:
                held = seen(connection, who, action, thing, number)
            except ForbiddenError:
                return False
            assert held.actions & action == action
            return True

        assert may(ada, Action.VIEW, Thing.INSTANCE, run)
        assert may(ada, Action.OPERATE, Thing.DEFINITION, own)
        assert not may(ada, Action.AUTHOR, Thing.DEFINITION, own)
        assert may(root, Action.ADMIN, Thing.INSTANCE, theirs)
        assert may(root, Action.ADMIN, Thing.INSTANCE, orphan)
        for thing, number in (
            (Thing.INSTANCE, theirs),
            (Thing.DEFINITION, foreign),
            (Thing.PROJECT, other),
            (Thing.INSTANCE, orphan),
            (Thing.INSTANCE, 12345),
            (Thing.INSTANCE, 2**40),
            (Thing.INSTANCE, -1),
        ):
            with pytest.raises(NotFoundError):
                may(ada, Action.VIEW, thing, number)
        viewing = replace(ada, scope=Action.VIEW)
        assert may(viewing, Action.VIEW, Thing.INSTANCE, run)
        assert not may(viewing, Action.OPERATE, Thing.INSTANCE, run)
        for limited in (replace(ada, projects=(other,)), replace(root, projects=())):
            with pytest.raises(NotFoundError):
                may(limited, Action.VIEW, Thing.INSTANCE, run)
        with pytest.raises(ForbiddenError):
            check_administrator(connection, ada)
        with pytest.raises(ForbiddenError):
            check_administrator(connection, replace(root, scope=Action.VIEW))
        check_administrator(connection, root)
    cli("user", "disable", "ada")
    with db.connect() as connection, pytest.raises(NotFoundError):
        seen(connection, ada, Action.VIEW, Thing.INSTANCE, run)


def test_an_order_and_its_refusals_stand_in_the_audit(cli: Cli, db: Engine) -> None:
    other = a_project(db, "other")
    own = a_definition(db)
    foreign = a_definition(db, name="theirs", project_id=other)
    run = an_instance(db, ProcessState.SUCCESS, process_definition_id=own)
    viewer = asking(as_user(cli, db, "eve", "viewer"))
    operator = asking(as_user(cli, db, "ada", "operator"))
    before = len(audit(db))
    command = begin_run(operator, own, params={})
    with db.connect() as connection:
        executor = connection.scalar(
            select(t.command.c.executor_id).where(t.command.c.id == command)
        )
    assert executor == operator.principal.user_id
    for who, definition, error in (
        (viewer, own, ForbiddenError),
        (operator, foreign, NotFoundError),
        (operator, "nightly", NotFoundError),
    ):
        with pytest.raises(error):
            begin_run(who, definition, params={})
    with pytest.raises(ForbiddenError):
        put_command(viewer, run, CommandType.REPEAT_RUNNING)
    with pytest.raises(ForbiddenError):
        release(operator, [own], ReleaseState.OFFLINE)
    put_command(operator, run, CommandType.REPEAT_RUNNING)
    assert audit(db)[before:] == [
        ("ada", "definition.run", own, "done"),
        ("eve", "definition.run", own, "refused"),
        ("ada", "definition.run", foreign, "refused"),
        ("ada", "definition.run", None, "refused"),
        ("eve", "instance.rerun", run, "refused"),
        ("ada", "definition.offline", own, "refused"),
        ("ada", "instance.rerun", run, "done"),
    ]
    with db.connect() as connection:
        assert len(connection.execute(select(t.command.c.id)).all()) == 2
    operator.close()
    viewer.close()


def test_what_the_command_line_changes_stands_in_the_audit(cli: Cli, db: Engine) -> None:
    a_definition(db, process_definition_json=a_definition_json("a"))
    run = an_instance(db, ProcessState.SUCCESS)
    for line in (
        "run nightly",
        "definition offline nightly",
        "definition online nightly",
        "definition online nowhere",
        "schedule create nightly --cron 0_0_3_*_*_?_*",
        "schedule online 1",
        "schedule offline 1",
        "schedule edit 1 --priority high",
        "schedule delete 1",
        "complement nightly --from 2013-01-01 --to 2013-01-02",
        f"instance rerun {run}",
        f"instance delete {run}",
        "pool create p --size 1",
        "pool create p --size 1",
        "pool resize p --size 2",
        "pool remove p",
        "worker-group create etl",
        "worker-group delete etl",
        "tenant create etl",
        "tenant delete etl",
        "datasource create lite --url sqlite:///lite.db",
        "datasource remove lite",
    ):
        cli(*(word.replace("_", " ") if "?" in word else word for word in line.split()))
    found = audit(db)
    assert {line[0] for line in found} == {"database"}
    assert [(action, outcome) for _, action, _, outcome in found] == [
        ("definition.run", "done"),
        ("definition.offline", "done"),
        ("definition.online", "done"),
        ("definition.online", "refused"),
        ("schedule.create", "done"),
        ("schedule.online", "done"),
        ("schedule.offline", "done"),
        ("schedule.edit", "done"),
        ("schedule.delete", "done"),
        ("complement.create", "done"),
        ("instance.rerun", "done"),
        ("instance.delete", "refused"),
        ("pool.create", "done"),
        ("pool.create", "refused"),
        ("pool.resize", "done"),
        ("pool.remove", "done"),
        ("worker-group.create", "done"),
        ("worker-group.delete", "done"),
        ("tenant.create", "done"),
        ("tenant.delete", "done"),
        ("datasource.save", "done"),
        ("datasource.remove", "done"),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t_ds_audit_log SET user_name = 'eve'",
        "DELETE FROM t_ds_audit_log",
        "TRUNCATE t_ds_audit_log",
        "SET LOCAL orcaflow.retention = 'on'; UPDATE t_ds_audit_log SET user_name = 'eve'",
    ],
)
def test_a_line_of_the_audit_is_not_changed(cli: Cli, db: Engine, statement: str) -> None:
    cli("user", "create", "ada")
    before = audit(db)
    with pytest.raises(DBAPIError, match="only added to"), db.begin() as connection:
        connection.execute(text(statement))
    assert audit(db) == before


def test_only_retention_deletes_from_the_audit(cli: Cli, db: Engine) -> None:
    cli("user", "create", "ada")
    with db.begin() as connection:
        connection.execute(text("SET LOCAL orcaflow.retention = 'on'"))
        connection.execute(text("DELETE FROM t_ds_audit_log"))
    assert audit(db) == []


def test_a_change_that_fails_leaves_neither_itself_nor_a_line(cli: Cli, db: Engine) -> None:
    """The line is in the transaction of the change: one without the other is impossible."""
    with db.begin() as connection:
        connection.execute(text("ALTER TABLE t_ds_audit_log ADD CHECK (action <> 'user.create')"))
    try:
        assert cli("user", "create", "ada")[0] == 1
        assert [row["name"] for row in parsed(cli("user", "list", "-o", "json"))] == ["admin"]
    finally:
        with db.begin() as connection:
            connection.execute(
                text("ALTER TABLE t_ds_audit_log DROP CONSTRAINT t_ds_audit_log_action_check")
            )


@pytest.mark.parametrize(
    ("password", "complaint"),
    [
        ("x" * 5, "fewer than 12"),
        ("abcabcabcabcabc", "few characters"),
        ("2345678901234", "row of"),
        ("ada-ada-ada!", "few characters"),
        ("countess-ada", "the name"),
        ("x" * 1025, "more than 1024"),
    ],
)
def test_a_weak_password_is_refused(password: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        passwords.check_new(password, user_name="countess")


def test_the_audit_is_read_by_who_did_what_to_which_object(cli: Cli, db: Engine) -> None:
    code, _, err = cli("audit", "list")
    assert (code, err) == (0, "The audit has no such line.\n")
    cli("project", "create", "sales")
    cli("project", "create", "ads")
    cli("pool", "create", "database", "--size", "2")
    lines = parsed(cli("audit", "list", "-o", "json"))
    assert [(each["action"], each["object"], each["user"]) for each in lines] == [
        ("pool.create", "database", "database"),
        ("project.create", "ads", "database"),
        ("project.create", "sales", "database"),
    ]

    def found(*options: str) -> list[str]:
        return [each["object"] for each in parsed(cli("audit", "list", "-o", "json", *options))]

    assert found("--action", "project", "--limit", "1") == ["ads"]
    assert found("--action", "project.create", "--before", str(lines[-2]["id"])) == ["sales"]
    assert found("--object-type", "project", "--object-id", str(lines[-1]["object_id"])) == [
        "sales"
    ]
    assert found("--user", "nobody") == found("--action", "proj") == []
    assert found("--outcome", "refused") == []
    code, _, err = cli("audit", "list", "--outcome", "maybe")
    assert (code, "known are done, refused" in err) == (2, True)
