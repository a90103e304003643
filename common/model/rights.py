"""The rights of people in projects: actions, the roles that hold them, and who is asking.

Adds the words *principal* (somebody who asks or orders something) and *scope* (the actions that a
token allows at most). Pure: `operations.rights` asks the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Final


class Action(IntFlag):
    """The kinds of things done in a project; the values are those of a grant's `perm`, added up."""

    VIEW = 1
    OPERATE = 2
    AUTHOR = 4
    ADMIN = 8


NOTHING: Final = Action(0)
EVERYTHING: Final = Action.VIEW | Action.OPERATE | Action.AUTHOR | Action.ADMIN

ROLES: Final = {
    "viewer": Action.VIEW,
    "operator": Action.VIEW | Action.OPERATE,
    "author": Action.VIEW | Action.OPERATE | Action.AUTHOR,
    "admin": EVERYTHING,
}
"""The roles in a project, the least first; each holds the actions of those before it."""


def role_of(held: int) -> str | None:
    """Name the greatest role whose actions are all held; None if there is none."""
    found = [name for name, actions in ROLES.items() if held & actions == actions]
    return found[-1] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who asks or orders something, by a token or at the database itself.

    `scope` and `projects` are the limits of the token; None means all projects. A session of a
    log-in has none. Roles are not
    here: they are looked up at each use, so that one taken away is gone at once.
    A request that names a project is limited to it (`within`), also for the owner of the database.
    """

    user_id: int
    user_name: str
    owns_database: bool = False
    scope: Action = EVERYTHING
    projects: tuple[int, ...] | None = None
    token_id: int | None = None
    session_hash: str | None = None
    address: str | None = None
    request: str | None = None
    chose_project: bool = False
    """True if the request chose `projects`, and the token covers all projects."""

    @property
    def sees_all(self) -> bool:
        """True for the owner of the database without a project; statements then read all rows."""
        return self.owns_database and self.projects is None

    @property
    def without_choice(self) -> Principal:
        """The principal without the limit of the chosen project, to check a second project."""
        return replace(self, projects=None, chose_project=False) if self.chose_project else self

    def within(self, project_id: int) -> Principal:
        """Return the principal limited to one project; the limits of a token remain."""
        known = self.projects is None or project_id in self.projects
        return replace(
            self,
            projects=(project_id,) if known else (),
            chose_project=self.projects is None or self.chose_project,
        )


DATABASE: Final = Principal(user_id=1, user_name="database", owns_database=True)
"""The owner of the database: the command line. It needs no grant and stands in no table."""

NOBODYS_NAME: Final = "unknown"
"""Stands in the audit for whoever was not let in."""
