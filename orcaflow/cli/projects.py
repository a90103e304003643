"""Adds the option `--project` to each command that names or lists objects of a project.

The option takes precedence over the variable `ORCAFLOW_PROJECT`, and the variable over the project
of the context in use. An empty name means no project. Operations get the project from their session
(`operations.session`).
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
        *("dataset list", "dataset show", "dataset segments", "dataset files", "dataset query"),
        *("dataset share", "dataset unshare", "dataset shares"),
    }
)
"""The commands with the option. A test compares them with the operations that they call."""

_KEY: Final = "orcaflow.project"


def option() -> TyperOption:
    """Create the option `--project`."""
    return TyperOption(
        # Parsers store values by parameter name, so no command may use this one.
        param_decls=["--project", "chosen_project"],
        metavar="NAME",
        help=HELP,
        expose_value=False,
        callback=_keep,
        envvar=VARIABLE,
        show_envvar=False,
    )


def chosen(ctx: typer.Context) -> str | None:
    """Return the value of the option or of the variable; None if neither is set."""
    found: str | None = ctx.meta.get(_KEY)
    return found


def _keep(ctx: Any, _: Any, value: str | None) -> str | None:
    ctx.meta[_KEY] = value
    return value
