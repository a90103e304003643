"""The command line's frame: its groups, how errors are told, and with which exit code it ends.

Imports nothing that takes time: each command imports what it needs when it is called, so that
`orcaflow --help` is there at once. Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not
allowed, 5 a service is unreachable, 78 configuration, 124 time-out, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from common.errors import InvalidDefinitionError, SchedulerError
from orcaflow.cli.commands import (
    complement,
    config,
    database,
    datasource,
    definition,
    doctor,
    instance,
    pool,
    run,
    schedule,
    server,
    task,
    version,
)
from orcaflow.cli.output import say
from orcaflow.cli.usage import translate_usage_errors

DEBUG_VARIABLE = "ORCAFLOW_DEBUG"

app = typer.Typer(
    name="orcaflow",
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
app.add_typer(database.app, name="db")
app.add_typer(definition.app, name="definition")
app.command(name="run", epilog=run.EXAMPLES)(run.run)
app.add_typer(instance.app, name="instance")
app.add_typer(task.app, name="task")
app.add_typer(schedule.app, name="schedule")
app.add_typer(complement.app, name="complement")
app.add_typer(pool.app, name="pool")
app.add_typer(datasource.app, name="datasource")
app.add_typer(server.app, name="server")
app.add_typer(config.app, name="config")
app.command(name="doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command(name="version", epilog=version.EXAMPLES)(version.version)
translate_usage_errors(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit code. One clear sentence tells what went wrong."""
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
        return _told(error)
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


def _told(error: SchedulerError) -> int:
    if isinstance(error, InvalidDefinitionError) and len(error.mistakes) > 1:
        lines = "\n".join(f"  {mistake}" for mistake in error.mistakes)
        say(f"orcaflow: {len(error.mistakes)} mistakes:\n{lines}")
    else:
        say(f"orcaflow: {error}")
    return error.exit_code
