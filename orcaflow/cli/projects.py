"""Gives the option `--project` to each command that names or lists objects of a project.

One option, made here, and one order: the option, else the variable `ORCAFLOW_PROJECT`, else the
project of the context in use. An empty name chooses none. Operations get the choice with their
session (`operations.session`).
"""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperOption

VARIABLE: Final = "ORCAFLOW_PROJECT"
HELP: Final = "Project of the objects: its name or id."

OF_PROJECTS: Final = frozenset(
    {
        *("run", "command list", "task list", "instance list", "locks list", "purge"),
        *("definition import", "definition list", "definition show", "definition export"),
        *("definition online", "definition offline", "definition set", "definition delete"),
        *("definition versions", "definition diff", "definition restore"),
        *("definition propose", "definition proposals", "definition approve", "definition reject"),
        *("definition withdraw", "definition share", "definition unshare", "definition shares"),
        *("schedule create", "schedule list", "schedule online", "schedule offline"),
        *("schedule preview", "schedule fires", "schedule simulate"),
        *("complement run", "complement list"),
        *("stream submit", "stream list", "stream status", "stream lag", "stream history"),
        *("stream suspend", "stream resume", "stream reset", "stream handoff"),
        "stream terminate",
        *("topology submit", "topology list", "topology status", "topology graph"),
        *("topology activate", "topology deactivate", "topology kill", "topology rebalance"),
        *("topology logs", "topology errors", "topology history"),
        *("dataset list", "dataset show", "dataset files", "dataset query"),
    }
)
"""The commands that take the option. A test derives them from the operations that they call."""

_KEY: Final = "orcaflow.project"


def option() -> TyperOption:
    """Make the option."""
    return TyperOption(
        # A name of its parameter that no command has: parsers keep values by these.
        param_decls=["--project", "chosen_project"],
        metavar="NAME",
        help=HELP,
        expose_value=False,
        callback=_keep,
        envvar=VARIABLE,
        show_envvar=False,
    )


def chosen(ctx: typer.Context) -> str | None:
    """Return the value of the option or of the variable; None without both."""
    found: str | None = ctx.meta.get(_KEY)
    return found


def _keep(ctx: Any, _: Any, value: str | None) -> str | None:
    ctx.meta[_KEY] = value
    return value
