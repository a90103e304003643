"""The rule for the names and ids of projects and definitions, at the database and over HTTP.

A text is first read as a name, within the chosen project. If no object has the name and the text is
a number, it is an id. A name of several objects is refused, with the candidates that the user may
see. Reads no table.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from common.errors import NotFoundError
from common.model.values import value
from operations.errors import UsageError

_SHOWN: Final = 10
MOST_CANDIDATES: Final = _SHOWN + 1
"""The number of candidates to read: one more than the error lists."""
LARGEST_ID: Final = 2**31 - 1


@value
class Candidate:
    """An object with the name; a project as candidate lacks `project`."""

    id: int
    name: str
    project: str | None = None

    def __str__(self) -> str:
        whole = self.name if self.project is None else f"{self.project}/{self.name}"
        return f"{whole} (id {self.id})"


@value
class ChosenProject:
    """The project that a command is limited to."""

    id: int
    name: str


class AmbiguousNameError(UsageError):
    """A name that several visible objects have. Report the candidates."""

    def __init__(self, name: str, candidates: Sequence[Candidate]) -> None:
        shown = ", ".join(str(each) for each in candidates[:_SHOWN])
        more = ", …" if len(candidates) > _SHOWN else ""
        is_project = candidates[0].project is None
        cure = "give the id" if is_project else "give --project, or the id"
        super().__init__(None, f"{name!r:.200} is ambiguous: {shown}{more}; {cure}")
        self.candidates: Final = tuple(candidates)


def check_one(name: str, candidates: Sequence[Candidate]) -> None:
    """Raise `AmbiguousNameError` if several objects have the name."""
    if len(candidates) > 1:
        raise AmbiguousNameError(name, candidates)


def id_in(given: str) -> int | None:
    """Return the id in a text; None if the text can only be a name."""
    if not given.isascii() or not given.isdigit() or len(given) > len(str(LARGEST_ID)):
        return None
    number = int(given)
    return number if 0 < number <= LARGEST_ID else None


def missing_project(given: str, known: Sequence[str]) -> NotFoundError:
    """Create the error for a missing project; it lists `known`, the projects that the user sees."""
    near = difflib.get_close_matches(given, known, n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    there = f"; there is {listed}" if known else ""
    return NotFoundError(f"there is no project {given!r:.200}{perhaps}{there:.500}")
