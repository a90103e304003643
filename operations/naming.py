"""The choice among objects of one name: the only one, or a refusal that lists the candidates.

The rule for projects and definitions, at the database and over HTTP: a name comes first, within
the project that was chosen; a number that names nothing is an id; several objects of a name are
refused with the candidates that the user may see. Reads no table.
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
"""The number of candidates to read: one more than a refusal lists."""
LARGEST_ID: Final = 2**31 - 1


@value
class Candidate:
    """An object of the name, in its project. A project is in none."""

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
    """Several objects that the user may see have the name. Report the candidates."""

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
    """Return the id that a text consists of; None if it can only be a name."""
    if not given.isascii() or not given.isdigit() or len(given) > len(str(LARGEST_ID)):
        return None
    number = int(given)
    return number if 0 < number <= LARGEST_ID else None


def missing_project(given: str, known: Sequence[str]) -> NotFoundError:
    """Make the error for a missing project; it lists the projects that the user may see."""
    near = difflib.get_close_matches(given, known, n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    there = f"; there is {listed}" if known else ""
    return NotFoundError(f"there is no project {given!r:.200}{perhaps}{there:.500}")
