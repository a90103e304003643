"""Reads the JSON of a definition: its nodes, and the places at which it refers to definitions.

Nothing here judges: what can't be read is passed over, since the reader of definitions says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from common.model.codes import code_in
from common.model.depend_items import is_about_dataset
from common.model.task_type import LOCAL_PARAMS
from common.params import BUILT_IN_NAMES
from common.params.scope import SYSTEM_NAMES

if TYPE_CHECKING:
    from operations.references import Kind

CHILD_ID: Final = "processDefinitionId"
CHILD_CODES: Final = ("processDefinitionCode", "workflowDefinitionCode")
DEPENDENT_CODE: Final = "definitionCode"
PROJECT_KEYS: Final = ("projectName", "projectId", "projectCode")
"""The keys that name the project of the definition in a reference."""
DEPENDENT_TASK_CODE: Final = "depTaskCode"
"""The task that an item of a DEPENDENT looks at, by its code in the system that it comes from."""
PRESENT: Final = frozenset({"currentHour", "today", "thisWeek", "thisMonth"})
"""Date values of dependent items whose intervals include the present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The content that a definition was read from, as another reader may be given it.

    `content` is an object of a file whose files are absolute, or an export as it came. `given` says
    what ids of another database are called.
    """

    content: Mapping[str, Any]
    given: Mapping[tuple[Kind, int], str]


def asks_for_all(item: Mapping[str, Any]) -> bool:
    """Return whether a dependent item means a whole process instance, and not one task of it."""
    return DEPENDENT_TASK_CODE not in item and str(item.get("depTasks", "ALL")).upper() in (
        "ALL",
        "0",
        "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionReference:
    """A place that refers to another definition, by a name or by an id in the same object.

    What comes from a later line of the original may refer to it by a code instead.
    """

    node: str
    where: str
    holder: dict[str, Any]
    id_key: str
    name_key: str
    code_keys: tuple[str, ...]

    is_needed: bool = True
    """For an item of a DEPENDENT: that without a run in the present it can't go on."""

    @property
    def name(self) -> str | None:
        return text_in(self.holder, self.name_key)

    @property
    def number(self) -> int | None:
        return id_in(self.holder.get(self.id_key))

    @property
    def project(self) -> str | int | None:
        """The project in the reference, by name, id or code."""
        holder = self.holder
        return (
            text_in(holder, "projectName")
            or id_in(holder.get("projectId"))
            or code_in(holder.get("projectCode"))
        )

    @property
    def code(self) -> int | None:
        """The code, if there is neither a name nor an id."""
        return None if self.code_key is None else code_in(self.holder.get(self.code_key))

    @property
    def code_key(self) -> str | None:
        """The key of that code."""
        if self.name is not None or self.number is not None:
            return None
        keys = (key for key in self.code_keys if code_in(self.holder.get(key)) is not None)
        return next(keys, None)


def definition_references(document: Mapping[str, Any]) -> Iterator[DefinitionReference]:
    """Yield every reference to another definition: of sub processes, and of dependent items."""
    for node in nodes_of(document):
        params = object_in(node, "params") if type_of(node) == "SUB_PROCESS" else None
        if params is not None:
            yield DefinitionReference(
                node=name_of(node),
                where="params",
                holder=params,
                id_key=CHILD_ID,
                name_key="processDefinitionName",
                code_keys=CHILD_CODES,
            )
    for name, where, item, is_alone in depend_items(document):
        yield DefinitionReference(
            node=name,
            where=where,
            holder=item,
            id_key="definitionId",
            name_key="definitionName",
            code_keys=(DEPENDENT_CODE,),
            is_needed=is_alone and str(item.get("dateValue")) in PRESENT and asks_for_all(item),
        )


def depend_items(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, str, dict[str, Any], bool]]:
    """Yield each item about a definition: node, place, and True if nothing else could do for it."""
    for node in nodes_of(document):
        if type_of(node) != "DEPENDENT":
            continue
        dependence = object_in(node, "dependence") or {}
        groups = listed(dependence.get("dependTaskList"))
        outer_and = _is_and(dependence) or len(groups) == 1
        for outer, group in enumerate(groups):
            items = listed(group.get("dependItemList")) if isinstance(group, dict) else []
            inner_and = isinstance(group, dict) and (_is_and(group) or len(items) == 1)
            for inner, item in enumerate(items):
                if isinstance(item, dict) and not is_about_dataset(item):
                    where = f"dependence.dependTaskList[{outer}].dependItemList[{inner}]"
                    yield name_of(node), where, item, outer_and and inner_and


def _is_and(holder: Mapping[str, Any]) -> bool:
    return str(holder.get("relation") or "AND") == "AND"


def object_of(value: object) -> Mapping[str, Any]:
    """Return an object, also one that a text holds as JSON; an empty one for anything else."""
    value = _unpacked(value)
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list, also of one that a text holds as JSON."""
    value = _unpacked(value)
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def _unpacked(value: object) -> object:
    if isinstance(value, str) and value.strip():
        try:
            unpacked: object = json.loads(value)
        except (ValueError, RecursionError):
            return None
        return unpacked
    return value


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def nodes_of(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    tasks = document.get("tasks")
    for node in tasks if isinstance(tasks, list) else ():
        if isinstance(node, dict):
            yield node


def declared_names(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all parameters of a definition, those of the system included.

    The outputs of a task may reach every task after it, so the names of all tasks count.
    """
    items = list(objects_of(document.get("globalParams")))
    for node in nodes_of(document):
        items.extend(objects_of(object_of(node.get("params")).get(LOCAL_PARAMS.name)))
    return (*(str(item.get("prop")) for item in items), *SYSTEM_NAMES, *BUILT_IN_NAMES)


def has_children(document: Mapping[str, Any]) -> bool:
    """Return whether a task may have outputs that another file declares: of a sub process."""
    return any(type_of(node) == "SUB_PROCESS" for node in nodes_of(document))


def inherited_names(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return the parameters that each definition may have of its parents, by its name.

    A sub process inherits the parameters and outputs of its parents and of their parents.
    """
    parents: dict[str, set[str]] = {name: set() for name in documents}
    for parent, document in documents.items():
        for node in nodes_of(document):
            child = text_in(object_of(node.get("params")), "processDefinitionName")
            if type_of(node) == "SUB_PROCESS" and child in parents:
                parents[child].add(parent)
    names = {name: set(declared_names(document)) for name, document in documents.items()}
    found: dict[str, frozenset[str]] = {}
    for name in documents:
        above: set[str] = set()
        waiting = list(parents[name])
        while waiting:
            parent = waiting.pop()
            if parent not in above:
                above.add(parent)
                waiting.extend(parents[parent])
        found[name] = frozenset(each for parent in above for each in names[parent])
    return found


def name_of(node: Mapping[str, Any]) -> str:
    return str(node.get("name", ""))


def type_of(node: Mapping[str, Any]) -> str:
    return str(node.get("type", "")).upper()


def object_in(node: dict[str, Any], key: str) -> dict[str, Any] | None:
    """Return the object under the key; if it is text, put the object in the text's place."""
    value = node.get(key)
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None  # The reader of definitions says so.
        if isinstance(value, dict):
            node[key] = value
    return value if isinstance(value, dict) else None


def text_in(holder: Mapping[str, Any], key: str) -> str | None:
    value = holder.get(key)
    return value if isinstance(value, str) and value else None


_DIGITS = re.compile(r"[0-9]{1,10}")


def id_in(value: object) -> int | None:
    """Return a number that can be somebody's id; −1, 0 and what is no number are nobody's."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip() if isinstance(value, str) or abs(value) < 2**31 else ""
    if not _DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if 0 < number < 2**31 else None
