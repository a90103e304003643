"""Finds SHELL scripts whose background processes end with their task. Reads no database.

DolphinScheduler leaves such processes alone, so a script that starts a service works there. Here
the worker ends them, and the task is a success all the same. The search is by the text of the
script: it takes no account of functions and of files that the script reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from operations.definition_document import nodes_of, object_of, type_of
from operations.findings import Finding, Severity

# Comments, quoted text, arithmetic, tests and $-words, in which `&` starts nothing.
_PASSIVE: Final = re.compile(
    r"(?m)(?:^|(?<=[\s;]))#.*$|\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|\$?\(\([^()]*\)\)|\[\[.*?\]\]"
)
_BACKGROUND: Final = re.compile(r"(?<![&<>|])&(?![&>])")
_WAITS: Final = re.compile(r"(?:^|[\s;&|(])wait(?:$|[\s;&|)])")


def children_warnings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning for each SHELL task that leaves a process in the background."""
    for node in nodes_of(document):
        params = object_of(node.get("params"))
        script = params.get("rawScript")
        if type_of(node) != "SHELL" or not isinstance(script, str) or params.get("keepChildren"):
            continue
        active = _PASSIVE.sub(" ", script.replace("\r\n", "\n"))
        if _BACKGROUND.search(active) and not _WAITS.search(active):
            yield Finding(
                severity=Severity.WARNING,
                node=str(node.get("name", "")),
                key="params.rawScript",
                problem="starts a process in the background, which the worker ends when the script"
                " has ended",
                cure='set "keepChildren": true in params if the process has to stay, or wait for it'
                " in the script",
            )
