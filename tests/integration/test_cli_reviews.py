"""Proposals at the terminal: what others have proposed is looked at, and approved."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import Engine

from common.config import load
from operations.proposals import propose
from operations.session import Session
from tests.integration.conftest import Cli
from tests.integration.reviewing import a_document, a_person


def test_what_a_user_has_proposed_is_seen_with_its_risks_and_approved(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.json"
    file.write_text(json.dumps(a_document(a="1", b="1")), encoding="utf-8")
    assert cli("definition", "import", str(file))[0] == 0
    owner = Session()
    owner.__dict__.update(config=load(), engine=db)
    ada = a_person(owner, "ada", "author")
    made = propose(ada, 1, document=a_document(b="1"), note="without a")
    code, out, _ = cli("definition", "proposals", "nightly", "--show", str(made.id))
    assert code == 0
    assert "without a" in out
    assert "- a" in out.splitlines()
    assert "risk: 'a' is gone" in out
    code, out, _ = cli("definition", "approve", "nightly", str(made.id))
    assert (code, out) == (0, f"proposal {made.id} of nightly is in force as version 2\n")
    code, out, _ = cli("definition", "versions", "nightly", "-o", "json")
    newest = json.loads(out)[0]
    assert (newest["user"], newest["version"]) == ("ada", 2)
    assert cli("definition", "approve", "nightly", str(made.id))[0] == 4
