"""Commands about proposals, for tests of both ways to them: at the database, and by a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, insert

from common.store import tables as t
from tests.builders import a_definition_json
from tests.integration.cli_rows import NOW
from tests.integration.conftest import Cli
from tests.integration.reviewing import a_document

PROPOSALS: Final = (
    *("definition proposals nightly", "definition proposals nobody", "definition proposals other"),
    *("definition proposals nightly -o json", "definition proposals nightly --show 901"),
    *("definition proposals nightly --show 901 -o json", "definition proposals x --new"),
    *("definition proposals nightly --show 99", "definition proposals x --new --project nowhere"),
    *("definition propose", "definition propose nothing.json", "definition propose --draft nobody"),
    *("definition propose --draft nightly", "definition approve nightly 99"),
    *("definition approve nobody 901", "definition reject nightly 99 --reason x"),
    "definition withdraw nightly 99",
    "definition reject nightly 901",
)
"""Commands about proposals that change nothing."""
PROPOSAL_CODES: Final = [0, 0, 0, 0, 4, 0, 1, 0, 4, 4, 2, 0, 4, 0, 0, 4, 0, 0, 0, 0]


def a_proposal(db: Engine, definition: int) -> None:
    """A proposal of somebody else that waits, on top of what is not in force any more."""
    document = {"name": "nightly", "processDefinitionJson": json.loads(a_definition_json("a"))}
    with db.begin() as connection:
        connection.execute(
            insert(t.definition_proposal).values(
                id=901,
                project_id=1,
                process_definition_id=definition,
                name="nightly",
                user_id=99,
                user_name="eve",
                base_version=1,
                base_tag="v1-0",
                document=json.dumps(document),
                note="fewer tasks",
                create_time=NOW,
            )
        )


def proposal_journey(run: Cli, place: Path) -> Iterator[tuple[int, str, str]]:
    """Propose a definition and a new one, and try all that their author may not do."""

    def write(name: str, **scripts: str) -> str:
        file = place / f"{name}.json"
        file.write_text(json.dumps(a_document(name, **scripts)), encoding="utf-8")
        return str(file)

    def ask(*words: str) -> tuple[int, str, str]:
        code, out, err = run("definition", *words)
        # The author is another one at the database.
        return (
            code,
            out.replace('"admin"', '"database"').replace("admin", "database"),
            (err.replace("admin", "database")),
        )

    yield ask("import", write("own", a="1"))
    yield ask("propose", write("own", a="2"), "--note", "faster", "-o", "json")
    yield ask("propose", write("own", a="2"), "--note", "faster")
    yield ask("propose", write("own", a="3"))
    yield ask("propose", write("own", a="1"))
    yield ask("proposals", "own", "-o", "json")
    (place / "wrong.json").write_text(json.dumps(a_document("own")), encoding="utf-8")
    yield ask("propose", str(place / "wrong.json"))
    number = _newest(run("definition", "proposals", "own", "-o", "json"))
    yield ask("proposals", "own", "--show", number)
    yield ask("approve", "own", number)
    yield ask("reject", "own", number, "--reason", "slow")
    yield ask("reject", "own", number)
    yield ask("withdraw", "own", number, "-o", "json")
    yield ask("withdraw", "own", number)
    fresh = write("fresh", a="1")
    yield ask("propose", fresh, "--new")
    number = _newest(run("definition", "proposals", "fresh", "--new", "-o", "json"))
    yield ask("proposals", "fresh", "--new", "--project", "default", "-o", "json")
    yield ask("approve", "fresh", number, "--new")
    yield ask("proposals", "fresh", "--new", "--show", number, "-o", "json")
    yield ask("proposals", "fresh", "--new", "--show", number)
    yield ask("withdraw", "fresh", number, "--new")
    yield ask("list")


def _newest(done: tuple[int, str, str]) -> str:
    return str(json.loads(done[1])[0]["id"])
