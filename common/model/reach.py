"""Decides which definition a name in a definition refers to.

Pure. A definition *reaches* the definitions of its project and the definitions of other projects
that are shared with its project; it sees no others. Among the reached definitions, a name refers to
the definition to which the reference is already bound, else to the definition of the same project,
else to the only shared one. `common.store.sharing` has the SQL of this rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

FOREIGN: Final = "a definition of another project"
"""The text for a definition with a name that the reader may not see."""


class ShareKind(StrEnum):
    """The kinds of objects that a project shares; the values are stored in `t_ds_share`.

    Commands, URLs and the audit use them as names of the kinds.
    """

    DEFINITION = "definition"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reached definition. `project_name` and `project_code` are None if they are unknown."""

    id: int
    project_id: int
    name: str
    project_name: str | None = None
    project_code: int | None = None

    def is_in(self, project: str | int | None) -> bool:
        """Return True if the definition is in a project, given by name, id or code; None is any.

        A code is the id of its project or larger than all ids, so one number can be either.
        """
        return project in (None, self.project_id, self.project_name, self.project_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """Several definitions that a name could refer to."""

    targets: tuple[Target, ...]


Resolved: TypeAlias = Target | Ambiguous | None


def resolve(
    reached: Sequence[Target],
    *,
    own_project: int,
    project: str | int | None = None,
    bound: Collection[int] = (),
) -> Resolved:
    """Return the definition that a name refers to; None if there is no such definition.

    `reached` are the reached definitions of this name. `project` is the project in the reference,
    by name, id or code. `bound` are the definitions to which the referring definition is bound; a
    binding is kept until the reference names another project.
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
