"""Reads what the DEPENDENT tasks of a stored definition ask about.

Pure. A document that a person has spoilt asks about nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from common.model.control import Dependent, read_control
from common.model.depend_items import DependItem

_DEPENDENT: Final = "DEPENDENT"


def asked_items(document: str) -> Iterator[DependItem]:
    """Yield the items about definitions of all DEPENDENT tasks of a definition's JSON."""
    try:
        nodes: list[dict[str, Any]] = json.loads(document)["tasks"]
        for node in nodes:
            if str(node.get("type", "")).upper() != _DEPENDENT:
                continue
            control = read_control(_DEPENDENT, node, "task", [])
            if isinstance(control, Dependent):
                for group in control.groups:
                    yield from (item for item in group.items if isinstance(item, DependItem))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        # A person typed this row. No run can start from it.
        return


def asked_names(document: str) -> frozenset[str]:
    """Return the names of definitions that stand in a definition's JSON without an id."""
    names = (item.definition_name for item in asked_items(document) if item.definition_id is None)
    return frozenset(name for name in names if name is not None)
