"""People who write, propose and approve, and the documents of their definition, for tests."""

from __future__ import annotations

import json
from typing import Any

from common.clock import SystemClock
from common.config import Config
from common.model.rights import Principal
from common.store.connect import Engine
from operations.definitions import import_definitions
from operations.drafts import draft, save_draft
from operations.linting import read_content
from operations.projects import edit_project
from operations.session import Session
from operations.users import create_user, grant


class PersonsSession(Session):
    """The session of a user, on the connections of the test."""

    def __init__(self, config: Config, engine: Engine, principal: Principal) -> None:
        super().__init__(principal=principal)
        self.__dict__["config"] = config
        self.__dict__["engine"] = engine


def a_person(owner: Session, name: str, role: str) -> Session:
    """A session of a new user with this role in the default project."""
    made = create_user(owner, name, is_admin=False, password=None, tenant=None)
    if role != "none":
        grant(owner, name, project="default", role=role)
    return PersonsSession(
        owner.config, owner.engine, Principal(user_id=made.view.id, user_name=name)
    )


def a_document(
    name: str = "nightly", *, secret: str | None = None, **scripts: str
) -> dict[str, Any]:
    """A definition whose tasks run these scripts, one after the other."""
    tasks, before = [], None
    for task, script in scripts.items():
        tasks.append(
            {
                "id": f"tasks-{task}",
                "name": task,
                "type": "SHELL",
                "params": {"rawScript": script},
                "preTasks": [] if before is None else [before],
            }
        )
        before = task
    found: dict[str, Any] = {"name": name, "processDefinitionJson": {"tasks": tasks}}
    if secret is not None:
        found["globalParams"] = [
            {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": secret}
        ]
    return found


def scripts_of(document: Any) -> dict[str, str]:
    return {
        each["name"]: each["params"]["rawScript"]
        for each in document["processDefinitionJson"]["tasks"]
    }


def imported(session: Session, document: dict[str, Any]) -> int:
    """Import a definition, which stays OFFLINE."""
    documents = read_content(
        json.dumps(document).encode(), resources=session.config.data_dir / "resources"
    )
    (made,) = import_definitions(session, documents, online=False, environment={})
    return made.id


def with_review(owner: Session, *, review: bool = True) -> None:
    """Have the default project ask for a review."""
    edit_project(
        owner, "default", name=None, description=None, review=review, at=SystemClock().now()
    )


def saved(session: Session, number: int, document: dict[str, Any] | str) -> None:
    """Save a text as the draft, whatever was there."""
    text = document if isinstance(document, str) else json.dumps(document)
    save_draft(session, text.encode(), number, expected="*")


def tag_of(session: Session, number: int) -> str:
    return f'"{draft(session, number).tag}"'
