"""Codes of tasks, by which DolphinScheduler's clients name them.

A task that was imported keeps its code. Any other has one that is worked out from the definition's
id and the task's name, so that it stays the same as long as these do.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.model.codes import code_in, task_code
from operations.definition_document import name_of, nodes_of, object_of

_CODE_BITS: Final = 52
_FIRST_CODE: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The tasks of a definition with their codes, by name."""

    nodes: Mapping[str, Mapping[str, Any]]
    codes: Mapping[str, int]

    def names_of(self, codes: list[int]) -> list[str]:
        """Return the names of tasks by their codes; an unknown code stands for itself."""
        names = {code: name for name, code in self.codes.items()}
        return [names.get(each, str(each)) for each in codes]


def new_code() -> int:
    """Draw a code that nobody else has."""
    return _FIRST_CODE + secrets.randbits(_CODE_BITS)


def graph_of(definition_id: int, text: str | None) -> Graph:
    """Read the tasks of a definition; none from a JSON that can't be read."""
    nodes = {name_of(node): node for node in nodes_of(document_of(text))}
    return Graph(
        nodes=nodes,
        codes={
            name: code_in(node.get("code")) or task_code(definition_id, name)
            for name, node in nodes.items()
        },
    )


def document_of(text: str | None) -> Mapping[str, Any]:
    return object_of(text or "{}")
