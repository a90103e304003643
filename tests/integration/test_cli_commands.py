"""`orcaflow command` and the outcomes of commands, on a real database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, insert, text

from common.model.states import ProcessState
from common.store.tables import command, command_ledger
from tests.integration.cli_rows import NOW, a_definition, an_instance, parsed
from tests.integration.conftest import Cli


def a_line(db: Engine, **values: Any) -> None:
    with db.begin() as connection:
        line = {"command_type": 7, "process_definition_id": 1, "outcome": 1, "handled_at": NOW}
        connection.execute(insert(command_ledger).values(line | values))


def test_commands_are_listed_with_their_outcomes_the_newest_first(cli: Cli, db: Engine) -> None:
    a_definition(db)
    a_line(db, command_id=1, process_instance_id=5, host="127.0.0.1:5678", start_time=NOW)
    a_line(db, command_id=2, outcome=2, reason="process instance 5 has not begun", command_type=8)
    a_line(db, command_id=3, outcome=3, reason="no such definition", process_definition_id=9)
    a_line(db, command_id=4, outcome=3, command_type=77, start_time=text("'infinity'"))
    with db.begin() as connection:
        connection.execute(insert(command).values(id=6, command_type=0, process_definition_id=1))
        connection.execute(
            insert(command).values(
                id=7, command_type=None, process_definition_id=1, process_instance_priority=0
            )
        )
    rows = parsed(cli("command", "list", "-o", "json"))
    assert [(row["id"], row["outcome"]) for row in rows] == [
        (7, "WAITING"),
        (6, "WAITING"),
        (4, "REFUSED"),
        (3, "REFUSED"),
        (2, "DROPPED"),
        (1, "TAKEN"),
    ]
    assert rows[-1] == {
        "id": 1,
        "command_type": "REPEAT_RUNNING",
        "command_type_code": 7,
        "definition": "nightly",
        "process_definition_id": 1,
        "outcome": "TAKEN",
        "process_instance_id": 5,
        "start_time": rows[-1]["handled_at"],
        "handled_at": rows[-1]["handled_at"],
        "host": "127.0.0.1:5678",
        "reason": None,
    }
    assert [row["definition"] for row in rows] == ["nightly"] * 3 + [None] + ["nightly"] * 2

    def ids(*options: str) -> list[int]:
        return [row["id"] for row in parsed(cli("command", "list", *options, "-o", "json"))]

    assert ids("--outcome", "dropped", "--outcome", "refused") == [4, 3, 2]
    assert ids("--outcome", "taken", "--outcome", "waiting", "--limit", "2") == [7, 6]
    assert ids("--outcome", "waiting") == [7, 6]
    assert ids("--definition", "nightly", "--limit", "4") == [7, 6, 4, 2]
    assert "process instance 5 has not begun" in cli("command", "list")[1]
    code, _, err = cli("command", "list", "--outcome", "lost")
    assert code == 2
    assert "known are waiting, taken, dropped, refused" in err
    assert cli("command", "list", "--definition", "nobody")[0] == 3


def test_a_command_is_shown_with_its_reason(cli: Cli, db: Engine) -> None:
    a_line(db, command_id=2, outcome=2, reason="process instance 5 has not begun", command_type=8)
    code, out, _ = cli("command", "show", "2")
    assert code == 0
    assert out.splitlines()[-1].split(maxsplit=1) == ["reason", "process instance 5 has not begun"]
    code, _, err = cli("command", "show", "3")
    assert code == 3
    assert "there is no command 3; see `orcaflow command list`" in err
    code, _, err = cli("instance", "why", "--command", "2")
    assert code == 3
    assert "command 2 does not wait; it was dropped: process instance 5 has not begun" in err


def test_a_command_that_somebody_deleted_is_not_reported_as_done(cli: Cli, db: Engine) -> None:
    a_definition(db)
    an_instance(db, ProcessState.SUCCESS)
    with db.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION vanish() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN DELETE FROM t_ds_command; RETURN NULL; END $$;"
                " CREATE TRIGGER vanish AFTER INSERT ON t_ds_command"
                " FOR EACH STATEMENT EXECUTE FUNCTION vanish()"
            )
        )
    code, _, err = cli("instance", "rerun", "1")
    with db.begin() as connection:
        connection.execute(text("DROP FUNCTION vanish() CASCADE"))
    assert code == 1
    assert "command 1 is gone, and no master has handled it" in err
