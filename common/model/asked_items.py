"""Reads the items that the DEPENDENT tasks of a stored definition wait for.

Pure. A document that was damaged by hand has no items.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from common.model.control import Dependent, read_control
from common.model.depend_items import DependItem

_DEPENDENT: Final = "DEPENDENT"


def asked_items(document: str) -> Iterator[DependItem]:
    """Yield the items of all DEPENDENT tasks in a definition's JSON that wait for definitions."""
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
        # The row was edited by hand. No run can start from it.
        return


def asked_names(document: str) -> frozenset[str]:
    """Return the names of definitions that a definition's JSON refers to without an id."""
    names = (item.definition_name for item in asked_items(document) if item.definition_id is None)
    return frozenset(name for name in names if name is not None)
