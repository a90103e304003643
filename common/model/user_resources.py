"""The owners of users' resources that a task names. Pure.

A user's own resources are files below `resources/users/<id>-<secret>/`. A definition has to write
the name of the folder out: a name that parameters complete is not found here, and workers then
refuse the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_FOLDER: Final = re.compile(r"(?<![\w.-])users/+([0-9]{1,10})-[0-9a-f]{32}/")
# Former versions named the folder by the id alone, which also occurs in addresses and scripts.
_FORMER: Final = re.compile(r'(?:(?<=")|(?<=/resources/))users/+([0-9]{1,10})/')
_OWNER: Final = re.compile(r"([0-9]{1,10})(?:-[0-9a-f]{32})?")


def owners_in(texts: Iterable[str | None]) -> frozenset[int]:
    """Return the ids of the users with folders that JSON texts name."""
    return frozenset(
        int(found)
        for text in texts
        if text and "users/" in text
        for pattern in (_FOLDER, _FORMER)
        for found in pattern.findall(text)
    )


def owner_of(folder: str) -> int | None:
    """Return the id of the user with a folder of this name; None for any other folder."""
    found = _OWNER.fullmatch(folder)
    return None if found is None else int(found[1])


def not_lent(owner: int, project: str | None = None) -> tuple[str, str]:
    """Return why a task may not use the resources of a user, and the remedy."""
    whose = "the project" if project is None else f"project {project!r:.100}"
    problem = f"user {owner} does not have a role in {whose}, so tasks may not use the user's files"
    cure = "save the file as your own resource, or let an admin of the project give the user a role"
    return problem, cure
