"""The operations on users, tokens and projects that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from common.model.rights import NOTHING, ROLES, Action
from common.store.people.audit import AuditLine
from common.store.people.identities import IdentityView
from common.store.people.projects import MemberView, ProjectView
from common.store.people.users import GrantView, TokenView, UserView
from operations.identities import Linked
from operations.naming import Candidate, ChosenProject, check_one
from operations.projects import ProjectDetail
from operations.tokens import MadeToken
from operations.users import Switched, UserDetail
from orcaflow.remote.client import Client
from orcaflow.remote.documents import moment_of

_PAGE: Final = 500


def list_users(client: Client) -> list[UserDetail]:
    """List the users with their grants."""
    return [_user_of(row) for row in client.pages("/users")]


def create_user(
    client: Client, name: str, *, is_admin: bool, password: str | None, tenant: str | None
) -> UserDetail:
    """Make a user."""
    body = {"name": name, "admin": is_admin, "password": password, "tenant": tenant}
    return _user_of(client.post("/users", body))


def edit_user(
    client: Client, user: str, *, is_admin: bool | None, tenant: str | None, at: datetime
) -> UserDetail:
    """Make a user an administrator or none, or give another tenant."""
    del at  # The server's own clock tells.
    body = {"admin": is_admin, "tenant": tenant}
    return _user_of(client.patch(f"/users/{_user_id(client, user)}", body))


def set_enabled(client: Client, user: str, *, enabled: bool, at: datetime) -> Switched:
    """Enable or disable a user."""
    del at
    word = "enable" if enabled else "disable"
    answer = client.post(f"/users/{_user_id(client, user)}/{word}")
    return Switched(user_id=answer["id"], name=answer["name"], changed=answer["changed"])


def set_password(client: Client, user: str, *, password: str, at: datetime) -> None:
    """Set a user's password."""
    del at
    client.post(f"/users/{_user_id(client, user)}/password", {"password": password})


def grant(client: Client, user: str, *, project: str, role: str) -> UserDetail:
    """Give a user a role in a project."""
    path = f"/projects/{project_id(client, project)}/members"
    return _user_of(client.post(path, {"user": user, "role": role}))


def link(client: Client, user: str, *, issuer: str | None, subject: str) -> Linked:
    """Let somebody whom a provider knows log in as this user."""
    body = {"issuer": issuer, "subject": subject}
    answer = client.post(f"/users/{_user_id(client, user)}/link", body)
    return Linked(detail=_user_of(answer), issuer=answer["issuer"])


def unlink(client: Client, user: str) -> int:
    """Take all identities of a user away; return their number."""
    number: int = client.post(f"/users/{_user_id(client, user)}/unlink")["removed"]
    return number


def create_token(
    client: Client,
    user: str,
    *,
    name: str,
    role: str,
    projects: Sequence[str],
    life: timedelta,
    now: datetime,
) -> MadeToken:
    """Make a token, whose text is in this answer alone."""
    del now
    body = {
        "user": user,
        "name": name,
        "role": role,
        "projects": list(projects),
        "expires": round(life.total_seconds()),
    }
    made = client.post("/tokens", body)
    return MadeToken(view=_token_of(made), text=made["token"])


def list_tokens(client: Client, *, user: str | None) -> list[TokenView]:
    """List tokens."""
    return [_token_of(row) for row in client.pages("/tokens", {"user": user})]


def revoke_token(client: Client, token_id: int) -> TokenView:
    """Delete a token."""
    return _token_of(client.post(f"/tokens/{token_id}/revoke"))


def project_page(client: Client) -> list[ProjectView]:
    """List the projects."""
    return [_project_of(row) for row in client.pages("/projects")]


def project_detail(client: Client, project: str) -> ProjectDetail:
    """Return the project with its members."""
    row = _project_row(client, project)
    members = client.get(f"/projects/{row['id']}/members")["items"]
    return ProjectDetail(
        view=_project_of(row),
        members=tuple(
            MemberView(
                user_id=each["user_id"],
                user_name=each["user"],
                is_enabled=each["enabled"],
                actions=each["perm"],
            )
            for each in members
        ),
    )


def create_project(client: Client, name: str, *, description: str | None) -> ProjectView:
    """Make a project."""
    return _project_of(client.post("/projects", {"name": name, "description": description}))


def edit_project(
    client: Client,
    project: str,
    *,
    name: str | None,
    description: str | None,
    review: bool | None = None,
    at: datetime,
) -> ProjectView:
    """Give a project another name or description, or another review."""
    del at
    body = {"name": name, "description": description, "review": review}
    return _project_of(client.patch(f"/projects/{project_id(client, project)}", body))


def delete_project(client: Client, project: str) -> ProjectView:
    """Delete a project."""
    return _project_of(client.delete(f"/projects/{project_id(client, project)}"))


def _user_id(client: Client, name: str) -> int:
    (row,) = client.get("/users", {"name": name})["items"]
    number: int = row["id"]
    return number


def _project_row(client: Client, name: str) -> Mapping[str, Any]:
    """Return the only project of this name, or else the one with this id."""
    rows: Sequence[Mapping[str, Any]] = client.get("/projects", {"name": name})["items"]
    check_one(name, [Candidate(id=row["id"], name=row["name"]) for row in rows])
    return rows[0]


def project_named(client: Client, name: str) -> ChosenProject:
    """Return the project with this name or id."""
    row = _project_row(client, name)
    return ChosenProject(id=row["id"], name=row["name"])


def project_id(client: Client, given: str | int) -> int:
    """Return the id of a project, given its name or id."""
    return given if isinstance(given, int) else project_named(client, given).id


def _user_of(row: Mapping[str, Any]) -> UserDetail:
    return UserDetail(
        view=UserView(
            id=row["id"],
            name=row["name"],
            is_admin=row["admin"],
            is_enabled=row["enabled"],
            has_password=row["password"],
            tenant=row["tenant"],
            create_time=datetime.fromisoformat(row["create_time"]),
        ),
        grants=tuple(
            GrantView(
                project_id=each["project_id"], project_name=each["project"], actions=each["perm"]
            )
            for each in row["projects"]
        ),
        identities=tuple(
            IdentityView(issuer=each["issuer"], subject=each["subject"])
            for each in row["identities"]
        ),
    )


def _token_of(row: Mapping[str, Any]) -> TokenView:
    projects = row["projects"]
    return TokenView(
        id=row["id"],
        user_id=None,
        user_name=row["user"],
        name=row["name"],
        scopes=int(ROLES.get(row["role"], NOTHING)),
        projects=None if projects is None else tuple(projects),
        expire_time=moment_of(row["expire_time"]),
        last_used=moment_of(row["last_used"]),
        create_time=datetime.fromisoformat(row["create_time"]),
    )


def list_audit(
    client: Client, *, before: int | None = None, limit: int, **chosen: object
) -> list[AuditLine]:
    """List lines of the audit, a page at a time."""
    found: list[AuditLine] = []
    while len(found) < limit:
        page = min(_PAGE, limit - len(found))
        answer = client.get("/audit", {**chosen, "before": before, "limit": page})
        found += [_line_of(row) for row in answer["items"]]
        if answer["next"] is None:
            break
        before = found[-1].id
    return found


def _line_of(row: Mapping[str, Any]) -> AuditLine:
    names = {"user": "user_name", "object": "object_name"}
    values = {names.get(key, key): value for key, value in row.items()}
    return AuditLine(**{**values, "at": datetime.fromisoformat(row["at"])})


def _project_of(row: Mapping[str, Any]) -> ProjectView:
    return ProjectView(
        id=row["id"],
        code=row["code"],
        name=row["name"],
        description=row["description"],
        user_id=0,
        user_name=row["owner"],
        actions=Action(ROLES.get(row["role"], NOTHING)),
        definitions=row["definitions"],
        live_instances=row["live_instances"],
        review_since=(
            None if row["review_since"] is None else datetime.fromisoformat(row["review_since"])
        ),
        create_time=datetime.fromisoformat(row["create_time"]),
        update_time=datetime.fromisoformat(row["update_time"]),
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "audits.list_audit": list_audit,
    "identities.link": link,
    "identities.unlink": unlink,
    "projects.create_project": create_project,
    "projects.delete_project": delete_project,
    "projects.edit_project": edit_project,
    "projects.project_detail": project_detail,
    "projects.project_page": project_page,
    "tokens.create_token": create_token,
    "tokens.list_tokens": list_tokens,
    "tokens.revoke_token": revoke_token,
    "users.create_user": create_user,
    "users.edit_user": edit_user,
    "users.grant": grant,
    "users.list_users": list_users,
    "users.set_enabled": set_enabled,
    "users.set_password": set_password,
}
