"""Finds scripts of which the value of a parameter becomes a part.

`${name}` in a script is replaced by text. Whoever may start a run may give every declared parameter
any value, so a value can be a command. Reads no database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from common.params import references_in, safe_way
from operations.definition_document import declared_names, nodes_of, object_of
from operations.findings import Finding, Severity
from operations.task_params import spec_of

_NAMED: Final = 5


def splicing_warnings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a warning for each script that declared parameters are put into."""
    for task, key, names in _spliced(document):
        yield Finding(
            severity=Severity.WARNING,
            node=task,
            key=key,
            problem=f"{_shown(names)} puts a value into the script, where what --param gives can be"
            " a command",
            cure=f"write {safe_way(names[0])}",
        )


def splicing_mistakes(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the same as mistakes, for workers that refuse such scripts."""
    for task, key, names in _spliced(document):
        yield (
            f"task {task[:80]!r}, {key}: {_shown(names)} puts a value into the script, which"
            f" worker.shell_parameters = 'environment' refuses; write {safe_way(names[0])}"
        )


def _spliced(document: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield task, key and parameters of each script."""
    declared = dict.fromkeys(declared_names(document), "")
    for node in nodes_of(document):
        params = object_of(node.get("params"))
        for key in spec_of(node).scripts:
            script = params.get(key)
            names = references_in(script, declared) if isinstance(script, str) else ()
            if names:
                yield str(node.get("name", "")), f"params.{key}", names


def _shown(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"${{{name:.80}}}" for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown
