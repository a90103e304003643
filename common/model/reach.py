"""Decides which definition a name in a definition means.

Pure. A definition *reaches* the definitions of its own project, and those of other projects that
are shared with its project; no other definition exists for it. Among those reached, a name means
the definition to which the reference is bound already, then the one of its own project, then the
only shared one. `common.store.sharing` has the SQL of what is reached.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

FOREIGN: Final = "a definition of another project"
"""The words for a definition whose name the reader may not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A definition that another one reaches. `project_name` is None if its project is unknown."""

    id: int
    project_id: int
    name: str
    project_name: str | None = None
    project_code: int | None = None

    def is_in(self, project: str | int | None) -> bool:
        """Return True if this is the definition's project, by name, id or code; None is any.

        A code is the id of its project or larger than all ids, so that one number fits both.
        """
        return project in (None, self.project_id, self.project_name, self.project_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """Several definitions that a name could mean."""

    targets: tuple[Target, ...]


Resolved: TypeAlias = Target | Ambiguous | None


def resolve(
    reached: Sequence[Target],
    *,
    own_project: int,
    project: str | int | None = None,
    bound: Collection[int] = (),
) -> Resolved:
    """Return the definition that a name means; `reached` are those of the name that it reaches.

    `project` is the project that the reference names, by name, id or code. `bound` are the
    definitions to which the definition refers now. What is bound stays bound until somebody names
    another project. None: the name means nothing.
    """
    reached = [each for each in reached if each.is_in(project)]
    kept = [each for each in reached if each.id in bound]
    if len(kept) == 1:
        return kept[0]
    for each in reached:
        if each.project_id == own_project:
            return each
    if len(reached) > 1:
        return Ambiguous(targets=tuple(reached))
    return reached[0] if reached else None
