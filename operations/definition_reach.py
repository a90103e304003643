"""Rewrites references to definitions from names and codes to the ids of this database, and back.

`common.model.reach` decides what a name means. An unresolved reference is a mistake, with the same
text for a foreign definition and for a missing one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.model.reach import Ambiguous, Resolved, Target, resolve
from operations.definition_document import CHILD_ID, PROJECT_KEYS, DefinitionReference
from operations.findings import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The definitions that the definitions of a project can refer to, by name, id and code.

    `bound` maps each definition of the project, by name, to the ids that it refers to now.
    `visible` holds the projects that the author may see; None means all. `own_codes` holds the
    codes of definitions in this database; a reference by such a code must also match the project.
    """

    project_id: int = 1
    names: Mapping[str, Sequence[Target]] = field(default_factory=dict)
    ids: Mapping[int, Target] = field(default_factory=dict)
    codes: Mapping[int, Target] = field(default_factory=dict)
    bound: Mapping[str, Collection[int]] = field(default_factory=dict)
    visible: frozenset[int] | None = None
    own_codes: frozenset[int] = frozenset()

    def named(
        self, reference: DefinitionReference, name: str, *, referring: str | None
    ) -> Resolved:
        """Resolve a name in the definition `referring`."""
        return resolve(
            self.names.get(name, ()),
            own_project=self.project_id,
            project=reference.project,
            bound=self.bound.get(referring or "", ()),
        )


def number_definition(
    reference: DefinitionReference, reach: Reach, *, referring: str | None
) -> Iterator[Finding]:
    """Replace a name or a code by an id, or check an id; yield mistakes and warnings."""
    name, number, code = reference.name, reference.number, reference.code
    if name is not None:
        target = reach.named(reference, name, referring=referring)
        if isinstance(target, Ambiguous):
            yield _ambiguous(reference, name, target, reach)
        elif target is None:
            yield _missing(
                reference,
                reference.name_key,
                f"there is no process definition {name!r:.200}{_within(reference)}",
                _cure(reference),
            )
        else:
            _bind(reference, target)
            yield from _kept(reference, name, target, reach)
    elif number is not None:
        found = reach.ids.get(number)
        if found is None or not found.is_in(reference.project):
            yield _missing(
                reference,
                reference.id_key,
                f"there is no process definition with the id {number}",
                f"name it instead, as {reference.name_key}; one of another project has to be shared"
                " with this one by an admin there",
            )
        else:
            _bind(reference, found)
    elif code is not None:
        by_code = reach.codes.get(code)
        is_elsewhere = code in reach.own_codes and not (
            by_code and by_code.is_in(reference.project)
        )
        if by_code is None or is_elsewhere:
            yield _missing(
                reference,
                reference.code_keys[0],
                f"definition {code} of the other system is neither in these files nor here",
                "import its export before this one or with it, or say which one it is:"
                f" --map definition:{code}=NAME",
            )
        else:
            _bind(reference, by_code)


def name_definition(reference: DefinitionReference, target: Target, *, own_project: int) -> None:
    """Write a reference by the name of its target, with the project's name for a foreign target.

    Without a project, the reference means a definition of the project that imports the document.
    """
    holder = reference.holder
    for key in (reference.id_key, *PROJECT_KEYS):
        holder.pop(key, None)
    holder[reference.name_key] = target.name
    if target.project_id != own_project:
        holder["projectName"] = target.project_name or target.project_id


def _bind(reference: DefinitionReference, target: Target) -> None:
    # Only the id is kept: a name next to it could later mean a different definition.
    holder: dict[str, Any] = reference.holder
    for key in (reference.name_key, *reference.code_keys, *PROJECT_KEYS):
        holder.pop(key, None)
    holder[reference.id_key] = target.id
    if reference.id_key != CHILD_ID:
        holder["projectId"] = target.project_id


def _kept(
    reference: DefinitionReference, name: str, target: Target, reach: Reach
) -> Iterator[Finding]:
    """Yield a warning if a name stays bound to a foreign definition although it is ambiguous."""
    others = [each for each in reach.names.get(name, ()) if each.id != target.id]
    if target.project_id != reach.project_id and others and reference.project is None:
        yield Finding(
            severity=Severity.WARNING,
            node=reference.node,
            key=f"{reference.where}.{reference.name_key}",
            problem=f"{name!r:.200} stays bound to the definition of the project"
            f" {target.project_name!r}, as before",
            cure="write projectName beside the name to choose another one",
        )


def _ambiguous(
    reference: DefinitionReference, name: str, found: Ambiguous, reach: Reach
) -> Finding:
    projects = [
        repr(each.project_name)
        for each in found.targets
        if reach.visible is None or each.project_id in reach.visible
    ]
    among = f": {', '.join(projects)}" if projects else ""
    return _missing(
        reference,
        reference.name_key,
        f"{name!r:.200} is ambiguous: several projects share a definition of this name{among}",
        "write the project beside the name, as projectName",
    )


def _cure(reference: DefinitionReference) -> str:
    shared = "a definition of another project has to be shared with this one by an admin there"
    if reference.project is None:
        return f"import it too: `orcaflow definition import` takes several files at once; {shared}"
    return (
        "import the files into the project of that name (--project), or change projectName, or"
        f" remove it where the definition of this project is meant; {shared}"
    )


def _within(reference: DefinitionReference) -> str:
    project = reference.project
    return "" if project is None else f" in the project {project!r:.200}"


def _missing(reference: DefinitionReference, key: str, problem: str, cure: str) -> Finding:
    return Finding(
        severity=Severity.MISTAKE,
        node=reference.node,
        key=f"{reference.where}.{key}",
        problem=problem,
        cure=cure,
    )
