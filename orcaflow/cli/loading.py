"""Imports the module of a command when the command is named; completion needs them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from orcaflow.cli.usage import translate_usage_errors

_Command = TyperCommand | TyperGroup


class _Place(NamedTuple):
    """A command's module below `orcaflow.cli.commands`, and the first sentence of its help.

    Here too, so that the list of commands imports none of them.
    """

    module: str
    help: str


_PLACES: Final[Mapping[str, _Place]] = {
    "run": _Place(
        "run",
        "Begin a run: put a command into t_ds_command, and tell which process instance it became.",
    ),
    "doctor": _Place(
        "doctor",
        "Look at everything that Orcaflow needs, and tell the cure for what is missing.",
    ),
    "version": _Place("version", "Print the version of Orcaflow and of what it runs on."),
    "db": _Place("database", "Make, check and print the schema of the database."),
    "definition": _Place("definition", "Import, look at, release and delete process definitions."),
    "instance": _Place(
        "instance",
        "Look at process instances, watch, stop, pause, recover and delete them.",
    ),
    "command": _Place(
        "command",
        "Look at commands: those that wait, and the outcomes of those that are gone.",
    ),
    "task": _Place("task", "Look at attempts at tasks, their logs and parameters."),
    "schedule": _Place(
        "schedule",
        "Begin runs by the clock: Quartz cron lines in time zones, and a ledger of every fire.",
    ),
    "complement": _Place(
        "complement",
        "Run many past dates of a definition (a backfill) as one object that can be "
        "looked at, paused, resumed, cancelled and retried.",
    ),
    "pool": _Place(
        "pool",
        "Slots that tasks share: how many of them may run at the same time, whatever runs them.",
    ),
    "locks": _Place(
        "locks", "Locks on intervals of datasets: who holds them, and who waits for them."
    ),
    "stream": _Place(
        "stream", "Supervisors of streams: they keep topics of Kafka flowing into datasets."
    ),
    "topology": _Place(
        "topology", "Topologies: graphs of spouts and bolts that run until they are killed."
    ),
    "dataset": _Place("dataset", "Datasets: their segments and files by time, and rows of them."),
    "datasource": _Place("datasource", "Databases that SQL and PROCEDURE tasks connect to."),
    "secrets": _Place("secrets", "Encrypt secret parameters in the tables."),
    "worker": _Place("worker", "Workers: their room, and those that are taken out of service."),
    "worker-group": _Place(
        "worker_group",
        "Groups of workers: a task or a run that names one runs on its workers alone.",
    ),
    "environment": _Place(
        "environment", "Environments: variables that the tasks that name one are started with."
    ),
    "tenant": _Place(
        "tenant",
        "Tenants: the accounts that tasks run as where worker.tenant_mode is tenant.",
    ),
    "grants": _Place("grants", "List shared objects with the projects that can use each."),
    "user": _Place(
        "user",
        "Users of the HTTP API: made, listed, disabled, and given roles in projects.",
    ),
    "project": _Place(
        "project",
        "Projects: definitions of a team, and who may do what with them.",
    ),
    "token": _Place("token", "API tokens: made, listed and revoked."),
    "console": _Place(
        "console",
        "Open a browser at the api-server, logged in by a link that is good for 30 s, once.",
    ),
    "overview": _Place(
        "overview",
        "Show what needs a person: failed, paused, refused, missed and unhealthy objects.",
    ),
    "alert": _Place(
        "alert",
        "Look at alerts: ends of runs, time-outs, lost daemons and their tasks.",
    ),
    "audit": _Place(
        "audit",
        "Look at the audit: what people have changed and ordered, and what was refused.",
    ),
    "purge": _Place(
        "purge",
        "Delete runs that ended so long ago, with attempts, logs, alerts, fires and complements.",
    ),
    "server": _Place("server", "Start, stop and list daemons."),
    "context": _Place("context", "Name api-servers, and choose the one that commands are sent to."),
    "config": _Place("config", "Show the settings in force."),
}
"""Each command, in the order of the help."""


class RootGroup(TyperGroup):
    """The group of all commands; each is built when it is looked up."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, _Commands())

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(_PLACES)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        limit = formatter.width - 6 - max(map(len, _PLACES))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, TyperCommand(name, help=place.help).get_short_help_str(limit))
                    for name, place in _PLACES.items()
                ]
            )


class _Commands(Mapping[str, _Command]):
    def __init__(self) -> None:
        self._built: dict[str, _Command] = {}

    def __getitem__(self, name: str) -> _Command:
        if name not in self._built:
            app: typer.Typer = import_module(f"orcaflow.cli.commands.{_PLACES[name].module}").app
            translate_usage_errors(app)
            command = cast(_Command, get_command(app))
            command.name = name
            self._built[name] = command
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in _PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)
