"""All commands that name or list objects of a project take `--project`; other commands do not."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

import pytest
from typer.main import get_command

from orcaflow.cli.app import app
from orcaflow.cli.app import main as command_line
from orcaflow.cli.projects import HELP, OF_PROJECTS

_NAMES_OF_OBJECTS: Final = frozenset(
    {
        *("definition", "definitions", "definition_name", "documents", "request", "target"),
        *("stream", "topology", "dataset"),
    }
)
_BY_NAME: Final = frozenset({"operations.datasets", "operations.shares"})
"""Modules of operations whose parameter `name` is the name of an object of a project."""
_MAKES_OBJECTS: Final = frozenset({"submit_stream", "submit_topology"})
_ROWS_OF_PROJECTS: Final = (
    *("DefinitionRow", "ProcessInstanceView", "TaskInstanceView", "ScheduleView"),
    *("ComplementView", "CommandView", "SupervisorView", "TopologyLine", "DatasetSummary"),
)


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(group, "commands"):
        yield " ".join(path), group
        return
    for name in group.list_commands(None):
        yield from _commands(group.commands[name], (*path, name))


def _operations_of(function: Callable[..., Any], seen: set[str]) -> Iterator[FunctionType]:
    """Yield the operations that a command calls, directly or through functions of its module."""
    function = inspect.unwrap(function)
    if function.__qualname__ in seen:
        return
    seen.add(function.__qualname__)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names: dict[str, Any] = dict(inspect.getmodule(function).__dict__)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("operations"):
            for each in node.names:
                names[each.asname or each.name] = _imported(node.module or "", each.name)
    for node in ast.walk(tree):
        found: Any = None
        if isinstance(node, ast.Name):
            found = names.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = getattr(names.get(node.value.id), node.attr, None)
        if not isinstance(found, FunctionType):
            continue
        if found.__module__.startswith("operations."):
            yield found
        elif found.__module__ == function.__module__:
            yield from _operations_of(found, seen)


def _imported(module: str, name: str) -> Any:
    found = getattr(importlib.import_module(module), name, None)
    return importlib.import_module(f"{module}.{name}") if found is None else found


def _is_about_projects(operation: FunctionType) -> bool:
    asked = dict(inspect.signature(operation).parameters)
    if "session" not in asked:
        return False
    names = {
        name
        for name, each in asked.items()
        if "str" in str(each.annotation) and "Address" not in str(each.annotation)
    }
    names |= {
        name
        for name, each in asked.items()
        if name == "documents" or "SimulationRequest" in str(each.annotation)
    }
    by_name = operation.__module__ in _BY_NAME and "name" in asked
    made = str(inspect.signature(operation).return_annotation)
    lists = made.startswith(("list[", "tuple[")) and any(each in made for each in _ROWS_OF_PROJECTS)
    needs_ids = any(
        name.endswith(("_id", "ids")) and each.default is inspect.Parameter.empty
        for name, each in asked.items()
    )
    return (
        bool(names & _NAMES_OF_OBJECTS)
        or by_name
        or operation.__name__ in _MAKES_OBJECTS
        or (lists and not needs_ids)
    )


def test_every_command_that_names_or_lists_objects_of_a_project_takes_the_option() -> None:
    found = {
        words
        for words, command in _commands(get_command(app))
        if any(_is_about_projects(each) for each in _operations_of(command.callback, set()))
    }
    assert found == set(OF_PROJECTS)


def test_the_option_is_explained_in_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(HELP) <= 48
    for words in sorted(OF_PROJECTS):
        assert command_line([*words.split(), "--help"]) == 0
        assert "--project NAME" in capsys.readouterr().out, words
