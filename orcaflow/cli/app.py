"""The frame of the command line: its help, its error messages and its exit codes.

Imports nothing that takes time: a group is imported when it is named, and each command imports what
it needs when it is called. Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not
allowed, 5 a service is unreachable, 78 configuration, 124 time-out, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from common.errors import SchedulerError
from orcaflow.cli.loading import RootGroup
from orcaflow.cli.output import say, write
from orcaflow.cli.remote import Chosen

DEBUG_VARIABLE = "ORCAFLOW_DEBUG"

app = typer.Typer(
    name="orcaflow",
    cls=RootGroup,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Runs DAGs of shell, Python, SQL, HTTP and Spark tasks on master and worker daemons.\n\n"
        "A first tour:\n\n"
        "\b\n"
        "  orcaflow server start standalone-server   a whole cluster on this computer\n"
        "  orcaflow definition import FILE           what is to run, from a file\n"
        "  orcaflow run NAME --wait                  run it, and watch it\n"
        "  orcaflow task list --instance 1           what its tasks came to\n"
        "  orcaflow instance why 1                   why something is not running\n"
        "  orcaflow schedule create NAME --cron ...  begin it by the clock\n"
        "  orcaflow complement NAME --from --to      run it for dates of the past\n"
        "  orcaflow doctor                           when something does not work\n"
    ),
    epilog=(
        "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 a service is "
        "unreachable, 78 configuration, 124 time-out."
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from orcaflow.cli.commands.version import version_line

        write(version_line())
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    *,
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="URL", help="Have this api-server do it; see `orcaflow context`."
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="Holds the token; yours alone (0600)."),
    ] = None,
    ca_file: Annotated[
        str | None,
        typer.Option(
            "--ca-file", metavar="FILE", help="Certificates to check the server's by, in PEM."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    del version  # Printed by its callback.
    ctx.obj = Chosen(url=server, token_file=token_file, ca_file=ca_file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the arguments and return its exit code; an error is one clear sentence."""
    # Names from the tables or the command line may hold what the terminal's encoding has not.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=None if arguments is None else list(arguments), prog_name="orcaflow")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except SchedulerError as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        return _report(error)
    except OSError as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        # A folder that can't be written, a full disk: the system's own words name the cause.
        place = "" if error.filename is None else f"{error.filename}: "
        say(f"orcaflow: {place}{error.strerror or error}")
        return 1
    except Exception as error:
        # Nobody is left to catch it: a person gets a sentence, and the trace if they ask for it.
        if os.environ.get(DEBUG_VARIABLE):
            raise
        say(
            f"orcaflow: {type(error).__name__}: {error}\n"
            f"This was not foreseen; {DEBUG_VARIABLE}=1 shows where it happened."
        )
        return 1
    return 0


def _report(error: SchedulerError) -> int:
    mistakes = getattr(error, "mistakes", ())
    if len(mistakes) > 1:
        lines = "\n".join(f"  {mistake}" for mistake in mistakes)
        say(f"orcaflow: {len(mistakes)} mistakes:\n{lines}")
    else:
        say(f"orcaflow: {error}")
    return error.exit_code
