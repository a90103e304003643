"""Imports the module of a command when the command is named; help and completion need them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from orcaflow.cli.usage import translate_usage_errors

_Command = TyperCommand | TyperGroup

_MODULES: Final[Mapping[str, str]] = {
    "run": "run",
    "doctor": "doctor",
    "version": "version",
    "db": "database",
    "definition": "definition",
    "instance": "instance",
    "command": "command",
    "task": "task",
    "schedule": "schedule",
    "complement": "complement",
    "pool": "pool",
    "datasource": "datasource",
    "worker-group": "worker_group",
    "tenant": "tenant",
    "user": "user",
    "token": "token",
    "alert": "alert",
    "purge": "purge",
    "server": "server",
    "config": "config",
}
"""Each command with its module of `orcaflow.cli.commands`, in the order of the help."""


class RootGroup(TyperGroup):
    """The group of all commands; each is built when it is looked up."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Commands())

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(_MODULES)


class _Commands(Mapping[str, _Command]):
    def __init__(self) -> None:
        self._built: dict[str, _Command] = {}

    def __getitem__(self, name: str) -> _Command:
        if name not in self._built:
            app: typer.Typer = import_module(f"orcaflow.cli.commands.{_MODULES[name]}").app
            translate_usage_errors(app)
            command = cast(_Command, get_command(app))
            command.name = name
            self._built[name] = command
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)
