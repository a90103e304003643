"""Prints the difference of two versions of a definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from common.definition_diff import Difference, ValueChange
from operations.definition_versions import Compared
from operations.run_versions import RunAndLatest
from orcaflow.cli.output import escaped, write


def print_difference(compared: Compared) -> None:
    """Print the difference of two versions for people."""
    write(f"{escaped(compared.name)}: version {compared.before} → {compared.after}")
    print_changes(compared.difference)


def print_run_and_latest(compared: RunAndLatest) -> None:
    """Print the difference between a run and the latest version, and what would run with it."""
    before = "?" if compared.version is None else compared.version
    name = escaped(compared.definition)
    write(
        f"process instance {compared.process_instance_id} of {name}: version {before} →"
        f" {compared.latest_version}"
    )
    print_changes(compared.difference)
    write(f"results that stay: {_listed(compared.kept)}")
    write(f"tasks that run: {_listed(compared.runs)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(escaped, names)) or "none"


def print_changes(found: Difference) -> None:
    """Print all differences: tasks, edges, settings, and the risks last.

    Values are printed in full, since a reviewer approves what is printed.
    """
    if found.is_none:
        write("no difference; secrets are not compared")
    contents = {each.name: each.changes for each in found.contents}
    for name in found.added:
        write(f"+ {escaped(name)}")
        _write_all(contents.get(name, ()))
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
        before = "" if change.before is None else f"{_whole(change.before)} → "
        yield f"{escaped(change.key)}: {before}{_whole(change.after)}"
        return
    yield f"{escaped(change.key)}:"
    for line in change.lines:
        yield f"  {escaped(line)}"


def _whole(value: Any) -> str:
    return "nothing" if value is None else escaped(json.dumps(value, ensure_ascii=False))
