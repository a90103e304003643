"""Projects as documents: the fields of `orcaflow project … -o json`."""

from __future__ import annotations

from common.model.rights import role_of
from common.store.people.projects import MemberView, ProjectView


def project_row(view: ProjectView) -> dict[str, object]:
    """A project; `role` is that of whoever asks, `owner` whoever made it."""
    return {
        "id": view.id,
        "code": view.code,
        "name": view.name,
        "description": view.description,
        "owner": view.user_name,
        "role": role_of(view.actions),
        "definitions": view.definitions,
        "live_instances": view.live_instances,
        "review_since": view.review_since,
        "create_time": view.create_time,
        "update_time": view.update_time,
    }


def project_member_row(view: MemberView) -> dict[str, object]:
    """A user with a role in a project; administrators need none."""
    return {
        "user_id": view.user_id,
        "user": view.user_name,
        "enabled": view.is_enabled,
        "role": role_of(view.actions),
        "perm": view.actions,
    }
