"""Invokes commands: by the server that is chosen, and with usage errors that name the option."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand

from operations.errors import UsageError
from orcaflow.cli.projects import OF_PROJECTS, chosen, option
from orcaflow.cli.remote import carried_out


def translate_usage_errors(app: typer.Typer) -> None:
    """Have every command of the app and of its groups report `UsageError` as a usage error.

    And have a server carry it out, if one is chosen.
    """
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            translate_usage_errors(group.typer_instance)


class _Command(TyperCommand):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        found = super().get_params(ctx)
        if _words(ctx) not in OF_PROJECTS:
            return found
        # `--help` stays last.
        return [*found[:-1], option(), *found[-1:]]

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            with carried_out(ctx.find_root().obj, _words(ctx), chosen(ctx)):
                return super().invoke(ctx)
        except UsageError as error:
            # With the command's context, whose usage is printed before the message.
            raise typer.BadParameter(
                error.message, ctx=ctx, param_hint=_hint(self, error.field)
            ) from error


def _words(ctx: typer.Context) -> str:
    """The command without the program: `instance list`."""
    return ctx.command_path.partition(" ")[2]


def _hint(command: TyperCommand, field: str | None) -> str | None:
    """The option or argument that gives the field; `--field` if the command has none so named."""
    if field is None:
        return None
    for param in command.params:
        if param.name in (field, f"{field}_"):
            if isinstance(param, TyperArgument):
                return param.metavar or param.name.upper()
            long = [option for option in param.opts if option.startswith("--")]
            if long:
                return long[0]
    return "--" + field.strip("_").replace("_", "-")
