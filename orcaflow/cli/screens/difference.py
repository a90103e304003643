"""Prints the difference of two versions of a definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from common.definition_diff import Difference, ValueChange
from operations.definition_versions import Compared
from orcaflow.cli.output import escaped, write

_LONGEST: Final = 80


def print_difference(compared: Compared) -> None:
    """Print the difference of two versions for people."""
    write(f"{escaped(compared.name)}: version {compared.before} → {compared.after}")
    print_changes(compared.difference)


def print_changes(found: Difference) -> None:
    """Print all that differs: tasks, edges, settings, and what is risky last."""
    if found.is_none:
        write("no difference; secrets are not compared")
    for name in found.added:
        write(f"+ {escaped(name)}")
    for name in found.removed:
        write(f"- {escaped(name)}")
    for task in found.changed:
        was = f" (was {escaped(task.was)})" if task.is_renamed else ""
        write(f"~ {escaped(task.name)}{was}")
        _write_all(task.changes)
    for above, below in found.edges_added:
        write(f"+ {escaped(above)} → {escaped(below)}")
    for above, below in found.edges_removed:
        write(f"- {escaped(above)} → {escaped(below)}")
    if found.settings:
        write("settings:")
        _write_all(found.settings)
    for risk in found.risks:
        write(f"risk: {escaped(risk)}")


def _write_all(changes: Sequence[ValueChange]) -> None:
    for change in changes:
        for line in _lines(change):
            write(f"    {line}")


def _lines(change: ValueChange) -> Iterator[str]:
    if not change.lines:
        yield f"{escaped(change.key)}: {_short(change.before)} → {_short(change.after)}"
        return
    yield f"{escaped(change.key)}:"
    for line in change.lines:
        yield f"  {escaped(line)}"


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return escaped(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
