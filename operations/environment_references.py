"""The environments that tasks name: by name in files, by code in this database."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from operations.definition_document import code_in, text_in
from operations.findings import Finding, Severity

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


def number_environment(
    node: dict[str, Any], place: str, codes: Mapping[str, int]
) -> Iterator[Finding]:
    """Put the code in the place of a name; what is not there is a mistake."""
    name, code = environment_wanted(node)
    if name is not None and name in codes:
        node[ENVIRONMENT_CODE] = codes[name]
        del node[ENVIRONMENT_NAME]
    elif name is not None:
        near = difflib.get_close_matches(name, codes, n=1)
        yield Finding(
            severity=Severity.MISTAKE,
            node=place,
            key=ENVIRONMENT_NAME,
            problem=f"there is no environment {name!r:.200}",
            cure=f"did you mean {near[0]!r}?" if near else "see `orcaflow environment list`",
        )
    elif code is not None and code not in codes.values():
        yield Finding(
            severity=Severity.MISTAKE,
            node=place,
            key=ENVIRONMENT_CODE,
            problem=f"there is no environment with the code {code}",
            cure=f"make it (orcaflow environment create NAME --code {code} --config FILE), or say"
            f" which one it is: --map environment:{code}=NAME",
        )
