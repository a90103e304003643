"""Finds SHELL scripts that leave processes in the background. Reads no database.

DolphinScheduler leaves such processes alone, so a script that starts a service works there. Here
the worker ends them unless the task has `keepChildren`, and the task is a success in both cases. So
an import of an export sets `keepChildren`. The search is by the text of the script: it takes no
account of functions and of files that the script reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from operations.definition_document import nodes_of, type_of
from operations.findings import Finding, Severity

# Comments, quoted text, arithmetic, tests and $-words, in which `&` starts nothing.
_PASSIVE: Final = re.compile(
    r"(?m)(?:^|(?<=[\s;]))#.*$|\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|\$?\(\([^()]*\)\)|\[\[.*?\]\]"
)
_BACKGROUND: Final = re.compile(r"(?<![&<>|])&(?![&>])")
_KEY: Final = "keepChildren"
_WAITS: Final = re.compile(r"(?:^|[\s;&|(])wait(?:$|[\s;&|)])")


def children_warnings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning for each SHELL task that leaves a process in the background."""
    for node, params in _leaving(document):
        if not params.get(_KEY):
            yield _finding(
                node,
                "starts a process in the background, which the worker ends when the script has"
                " ended",
                'set "keepChildren": true in params if the process has to stay, or wait for it in'
                " the script",
            )


def keep_children(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Set `keepChildren` of the SHELL tasks of an export whose scripts need it; warn of each."""
    for node, params in _leaving(document):
        if _KEY not in params:
            params[_KEY] = True
            yield _finding(
                node,
                "starts a process in the background, which stays alive after the task, as in"
                " DolphinScheduler",
                'set "keepChildren": false in params if the worker has to end it',
            )


def _leaving(
    document: Mapping[str, Any],
) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield the SHELL tasks that leave a process in the background, with their parameters."""
    for node in nodes_of(document):
        params = node.get("params")
        if type_of(node) != "SHELL" or not isinstance(params, dict):
            continue
        script = params.get("rawScript")
        if not isinstance(script, str):
            continue
        active = _PASSIVE.sub(" ", script.replace("\r\n", "\n"))
        if _BACKGROUND.search(active) and not _WAITS.search(active):
            yield node, params


def _finding(node: Mapping[str, Any], problem: str, cure: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        node=str(node.get("name", "")),
        key="params.rawScript",
        problem=problem,
        cure=cure,
    )
