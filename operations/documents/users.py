"""Users and tokens as documents: the fields of `orcaflow user|token … -o json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.model.rights import role_of
from operations.tokens import scope_word

if TYPE_CHECKING:
    from common.store.people.users import TokenView
    from operations.users import UserDetail


def user_row(user: UserDetail) -> dict[str, object]:
    """A user with the roles in projects; an administrator needs none."""
    return {
        "id": user.view.id,
        "name": user.view.name,
        "admin": user.view.is_admin,
        "enabled": user.view.is_enabled,
        "password": user.view.has_password,
        "tenant": user.view.tenant,
        "projects": [
            {
                "project_id": each.project_id,
                "project": each.project_name,
                "role": role_of(each.actions),
                "perm": each.actions,
            }
            for each in user.grants
        ],
        "identities": [
            {"issuer": each.issuer, "subject": each.subject} for each in user.identities
        ],
        "create_time": user.view.create_time,
    }


def user_cells(user: UserDetail) -> dict[str, object]:
    """A user for people: the roles in one line."""
    roles = [
        f"{each.project_name}: {role_of(each.actions) or each.actions}" for each in user.grants
    ]
    return user_row(user) | {"projects": roles}


def token_row(view: TokenView) -> dict[str, object]:
    """A token without its text; `projects` null is all of its user's."""
    return {
        "id": view.id,
        "user": view.user_name,
        "name": view.name,
        "role": scope_word(view),
        "projects": None if view.projects is None else list(view.projects),
        "expire_time": view.expire_time,
        "last_used": view.last_used,
        "create_time": view.create_time,
    }
