"""The environments that tasks name: by name in files, by code in this database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from common.model.codes import code_in
from operations.definition_document import text_in

ENVIRONMENT_CODE: Final = "environmentCode"
ENVIRONMENT_NAME: Final = "environmentName"


def environment_wanted(node: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the name that a node gives, or else the code."""
    name = text_in(node, ENVIRONMENT_NAME)
    return name, None if name is not None else code_in(node.get(ENVIRONMENT_CODE))


def name_environment(node: dict[str, Any], name_of: Callable[[int], str | None]) -> None:
    """Put the name in the place of a code; a code without one is the same in all systems."""
    code = code_in(node.get(ENVIRONMENT_CODE))
    given = None if code is None else name_of(code)
    if given is not None:
        node[ENVIRONMENT_NAME] = given
    if text_in(node, ENVIRONMENT_NAME) is not None:
        node.pop(ENVIRONMENT_CODE, None)


def number_environment(node: dict[str, Any], codes: Mapping[str, int]) -> None:
    """Replace a known name by its code."""
    name, _ = environment_wanted(node)
    if name is not None and name in codes:
        node[ENVIRONMENT_CODE] = codes[name]
        del node[ENVIRONMENT_NAME]
