"""The shapes of answers and requests about users, tokens and projects."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from api.answers import Answer, Grant, Shape

# The operations know how long a text may be, and say so in words.
Word = Annotated[str, StringConstraints(max_length=1000)]
Password = Annotated[str, StringConstraints(max_length=2000)]
Role = Literal["viewer", "operator", "author", "admin"]


class Holding(Grant):
    """A role in a project, with the bits that it adds up to."""

    perm: int


class KnownAs(Answer):
    """An identity of a user: an OpenID provider, and its own name for the user."""

    issuer: str
    subject: str


class User(Answer):
    """A user with the roles in projects; an administrator needs none.

    `password` is true if there is one.
    """

    id: int
    name: str
    admin: bool
    enabled: bool
    password: bool
    tenant: str | None
    projects: list[Holding]
    identities: list[KnownAs]
    create_time: datetime


class NewIdentity(Shape):
    """An identity to give; without an issuer it is the provider of the settings."""

    subject: Word
    issuer: Word | None = None


class LinkedUser(User):
    """A user with another identity, that of this issuer."""

    issuer: str


class UnlinkedUser(Answer):
    """A user without identities; so many were taken away."""

    id: int
    removed: int


class UserPage(Answer):
    """A page of users."""

    items: list[User]
    next: str | None


class NewUser(Shape):
    """A user to make; without a password it is one who can use tokens alone."""

    name: Word
    admin: bool = False
    password: Password | None = Field(default=None, repr=False)
    tenant: Word | None = None


class UserChange(Shape):
    """A change of a user; what is left out stays."""

    admin: bool | None = None
    tenant: Word | None = None


class EnabledUser(Answer):
    """A user after a request; `changed` is false if it was so already."""

    id: int
    name: str
    enabled: bool
    changed: bool


class NewPassword(Shape):
    """A password to set."""

    password: Password = Field(repr=False)


class OwnPassword(Shape):
    """A password to set, with the one of before."""

    old: Password = Field(repr=False)
    new: Password = Field(repr=False)


class PasswordSet(Answer):
    """A password was set; other sessions of the user have ended."""

    changed: bool


class Token(Answer):
    """A token without its text; `projects` null is all of its user's."""

    id: int
    user: str | None
    name: str | None
    role: str
    projects: list[int] | None
    expire_time: datetime | None
    last_used: datetime | None
    create_time: datetime


class TokenPage(Answer):
    """A page of tokens."""

    items: list[Token]
    next: str | None


class AuditLine(Answer):
    """A line of the audit; `user_id` null is somebody with the database's password."""

    id: int
    at: datetime
    user: str
    user_id: int | None
    token_id: int | None
    address: str | None
    action: str
    object_type: str
    object_id: int | None
    object: str | None
    project_id: int | None
    outcome: Literal["done", "refused"]
    detail: str | None
    request: str | None


class AuditPage(Answer):
    """A page of the audit."""

    items: list[AuditLine]
    next: str | None


class NewToken(Shape):
    """A token to make, yours, or as an administrator anybody's; good for so many seconds."""

    name: Word
    user: Word | None = None
    role: Role = "admin"
    projects: Annotated[list[Word], Field(max_length=1000)] = Field(default_factory=list)
    expires: Annotated[int, Field(ge=0, le=10**11)] = 2_592_000


class MadeToken(Token):
    """A token that was made, with its text, which is not shown again."""

    token: str


class RevokedToken(Token):
    """A token that is gone."""

    revoked: bool


class Project(Answer):
    """A project; `role` is yours there, `code` its name in DolphinScheduler's API.

    `review_since`: its definitions change by approved proposals alone; null if it asks for none.
    """

    id: int
    code: int
    name: str
    description: str | None
    owner: str | None
    role: str | None
    definitions: int
    live_instances: int
    review_since: datetime | None
    create_time: datetime
    update_time: datetime


class ProjectPage(Answer):
    """A page of projects."""

    items: list[Project]
    next: str | None


class NewProject(Shape):
    """A project to make."""

    name: Word
    description: Word | None = None


class ProjectChange(Shape):
    """A change of a project; what is left out stays."""

    name: Word | None = None
    description: Word | None = None
    review: bool | None = None


class Member(Answer):
    """A user with a role in a project."""

    user_id: int
    user: str
    enabled: bool
    role: str | None
    perm: int


class MemberList(Answer):
    """The users with a role in a project; administrators need none."""

    items: list[Member]


class NewRole(Shape):
    """A role for the user of this name, in the place of any other; `none` takes it away."""

    user: Word
    role: Literal["viewer", "operator", "author", "admin", "none"]


class DeletedProject(Project):
    """A project that is gone, with the roles in it."""

    deleted: bool
