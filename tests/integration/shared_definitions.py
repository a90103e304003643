"""Projects with members, and documents of definitions that refer to each other."""

from __future__ import annotations

import json
from typing import Any

from common.model.rights import Principal
from operations.definitions import import_definitions
from operations.importing import Imported
from operations.linting import read_content
from operations.projects import create_project
from operations.session import Session
from operations.users import create_user, grant
from tests.integration.reviewing import PersonsSession


def three_projects(owner: Session) -> dict[str, int]:
    """Create the projects; `dev` is the oldest, so that its definitions have the lowest ids."""
    return {
        name: create_project(owner, name, description=None).id for name in ("dev", "prod", "lab")
    }


def a_member(owner: Session, user: str, **roles: str) -> Session:
    made = create_user(owner, user, is_admin=False, password=None, tenant=None)
    for project, role in roles.items():
        grant(owner, user, project=project, role=role)
    return PersonsSession(
        owner.config, owner.engine, Principal(user_id=made.view.id, user_name=user)
    )


def child(**reference: Any) -> dict[str, Any]:
    return {"name": "child", "type": "SUB_PROCESS", "params": reference, "preTasks": []}


def waits(**reference: Any) -> dict[str, Any]:
    item = {"depTasks": "ALL", "cycle": "day", "dateValue": "last1Days", **reference}
    groups = [{"relation": "AND", "dependItemList": [item]}]
    return {
        "name": "waits",
        "type": "DEPENDENT",
        "params": {},
        "dependence": {"relation": "AND", "dependTaskList": groups},
        "preTasks": [],
    }


SHELL = {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": []}


def document(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "processDefinitionJson": {"tasks": list(tasks or (SHELL,))}, **more}


def imported(session: Session, project: int, *documents: dict[str, Any]) -> list[Imported]:
    read = read_content(
        json.dumps(list(documents)).encode(), resources=session.config.data_dir / "resources"
    )
    return import_definitions(
        session, read, online=False, environment={}, project_id=project, only_new=False
    )


def made(session: Session, project: int, *documents: dict[str, Any]) -> int:
    return imported(session, project, *documents)[0].id
