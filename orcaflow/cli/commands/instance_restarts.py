"""The subcommands of `orcaflow instance` that make an ended one live again.

`resume`, `rerun`, `recover` and `execute`, and `diff` for what a later version would change.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from operations.instance_commands import PutCommand
    from operations.session import Session

WaitOption = Annotated[bool, typer.Option("--wait", "-w", help="Until it has ended.")]
TimeoutOption = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Wait no longer, as 90s, 10m or 2h."),
]
InstanceId = Annotated[int, typer.Argument(metavar="ID", help="Id of a process instance.", min=1)]
_VersionOption = Annotated[
    str | None,
    typer.Option("--with-version", metavar="latest", help="Take the definition's latest version."),
]
_YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Take the latest version unasked.")]


def add_to(app: typer.Typer) -> None:
    """Add the subcommands to those of process instances."""
    app.command(epilog="Example: orcaflow instance resume 12 --wait")(resume)
    app.command(
        epilog=(
            "\b\n"
            "Examples:\n"
            "  orcaflow instance rerun 12 --failed --wait\n"
            "  orcaflow instance rerun 12 --all\n"
            "  orcaflow instance rerun 12 --failed --with-version latest\n"
        )
    )(rerun)
    app.command(
        epilog=(
            "\b\n"
            "Examples:\n"
            "  orcaflow instance recover 12 --wait\n"
            "  orcaflow instance recover 12 --with-version latest\n"
        )
    )(recover)
    app.command(epilog="Example: orcaflow instance diff 12")(diff)
    app.command(
        epilog=(
            "\b\n"
            "Examples:\n"
            "  orcaflow instance execute 12 --tasks join,report\n"
            "  orcaflow instance execute 12 --tasks join --post --wait\n"
        )
    )(execute)


def resume(
    process_instance_id: InstanceId,
    *,
    with_version: _VersionOption = None,
    yes: _YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Go on with a process instance that was paused or stopped.

    Tasks that were paused or killed run again, then all that never began; what succeeded stays.
    `--with-version latest` works as with `recover`. Exit code 4 if it is in another state, or is
    being recovered already. Fields: command_id, instance (as in `list`), and with --wait tasks (as
    in `task list`).
    """
    kind = "RECOVER_SUSPENDED_PROCESS"
    put = _putting(process_instance_id, kind, _latest(with_version, form, yes=yes))
    _recover(put, wait, timeout, form)


def rerun(
    process_instance_id: InstanceId,
    *,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed/--all", help="Only what failed and what comes after it, or everything."
        ),
    ] = False,
    with_version: _VersionOption = None,
    yes: _YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run a process instance that has ended again: all of it, or with --failed what is not good.

    It stays the same instance, with its date. --failed keeps every success, and also runs what
    never began. `--with-version latest` works as with `recover`; it keeps results only with
    --failed. Exit code 4 if its state forbids
    it, or it is being recovered already. Fields: command_id, instance (as in `list`), and with
    --wait tasks (as in `task list`).
    """
    kind = "START_FAILURE_TASK_PROCESS" if failed else "REPEAT_RUNNING"
    latest = _latest(with_version, form, yes=yes, runs_all=not failed)
    _recover(_putting(process_instance_id, kind, latest), wait, timeout, form)


def recover(
    process_instance_id: InstanceId,
    *,
    with_version: _VersionOption = None,
    yes: _YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Go on where a process instance ended: as `resume`, or as `rerun --failed` if it failed.

    It runs its copy of the definition. `--with-version latest` prints the difference, requests a
    confirmation on a terminal, and takes the latest version. Tasks that succeeded keep their
    results if neither they nor a task before them has changed. All other tasks run.

    Exit code 4 if it succeeded, still goes on, or is being recovered already. Fields: command_id,
    instance (as in `list`), and with --wait tasks (as in `task list`).
    """
    from operations import instance_commands

    latest = _latest(with_version, form, yes=yes)

    def put(session: Session) -> PutCommand:
        if latest is not None:
            latest(session, process_instance_id)
        return instance_commands.recover(
            session, process_instance_id, takes_latest=latest is not None, notify=say
        )

    _recover(put, wait, timeout, form)


def diff(process_instance_id: InstanceId, form: FormatOption = Format.TABLE) -> None:
    """Compare a process instance with the latest version of its definition.

    That is what `--with-version latest` would change. A sub process is compared at the root of its
    tree. Fields: process_instance_id, definition, version, latest_version, kept (tasks whose
    results stay), runs (tasks that would run), removed_tasks, and the fields of `definition diff`.
    """
    from operations.documents.definition_versions import run_and_latest_document
    from operations.run_versions import compare_with_latest
    from operations.session import opened
    from orcaflow.cli.screens.difference import print_run_and_latest

    with opened() as session:
        found = compare_with_latest(session, process_instance_id)
    if form is Format.JSON:
        print_json(run_and_latest_document(found))
    else:
        print_run_and_latest(found)


def execute(
    process_instance_id: InstanceId,
    *,
    tasks: Annotated[
        str, typer.Option("--tasks", metavar="A,B", help="Tasks of the instance to run again.")
    ],
    only: Annotated[bool, typer.Option("--only", help="These alone; that is the default.")] = False,
    pre: Annotated[bool, typer.Option("--pre", help="And all before them.")] = False,
    post: Annotated[bool, typer.Option("--post", help="And all after them.")] = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run chosen tasks of a process instance that has ended, and nothing else of it.

    They run as the instance's copy of the definition has them; if a later version exists, this is
    said.
    Exit code 3 for a task that it has not, 4 for a sub process (execute them in its own definition)
    or if it is being recovered already. Fields: command_id, instance (as in `list`), and with
    --wait tasks (as in `task list`).
    """
    from common.model.states import TaskDependType
    from operations.instance_commands import execute_tasks

    if only + pre + post > 1:
        raise typer.BadParameter("--only, --pre and --post exclude each other")
    mode = TaskDependType.TASK_ONLY
    if pre or post:
        mode = TaskDependType.TASK_PRE if pre else TaskDependType.TASK_POST

    def put(session: Session) -> PutCommand:
        return execute_tasks(session, process_instance_id, tasks, mode, notify=say)

    _recover(put, wait, timeout, form)


def _putting(
    process_instance_id: int, kind: str, latest: Callable[[Session, int], None] | None
) -> Callable[[Session], PutCommand]:
    from common.model.commands import CommandType
    from operations.instance_commands import put_command

    def put(session: Session) -> PutCommand:
        if latest is not None:
            latest(session, process_instance_id)
        return put_command(
            session,
            process_instance_id,
            CommandType[kind],
            takes_latest=latest is not None,
            notify=say,
        )

    return put


def _latest(
    with_version: str | None, form: Format, *, yes: bool, runs_all: bool = False
) -> Callable[[Session, int], None] | None:
    """Return what shows the latest version before a run takes it; None to keep the run's copy."""
    from common.model.command_param import LATEST

    if with_version is None:
        return None
    if with_version != LATEST:
        raise typer.BadParameter(f"--with-version takes {LATEST!r}, not {with_version!r:.60}")

    def show(session: Session, process_instance_id: int) -> None:
        if form is Format.JSON:
            # `diff -o json` has it, and one command prints one document.
            return
        from operations.run_versions import compare_with_latest
        from orcaflow.cli.screens.difference import print_run_and_latest

        found = compare_with_latest(session, process_instance_id)
        print_run_and_latest(found.with_all_tasks() if runs_all else found)
        if not yes and sys.stdin.isatty():
            typer.confirm("Take the latest version?", abort=True, err=True)

    return show


def _say_version(command: PutCommand) -> None:
    """Say which version runs, and how to take a later one."""
    from common.model.commands import CommandType

    if command.version is None:
        return
    number = command.process_instance_id
    if not command.has_newer_version:
        say(f"process instance {number} runs version {command.version} of its definition")
        return
    cure = "take it with `--with-version latest`"
    if command.command_type is CommandType.EXECUTE_TASK:
        cure = (
            f"`orcaflow instance recover {number} --with-version latest` takes it (`rerun` in the"
            " place of `recover` if the run has succeeded)"
        )
    say(
        f"process instance {number} runs version {command.version} of its definition; version"
        f" {command.latest_version} exists: see `orcaflow instance diff {number}`, and {cure}"
    )


def _recover(
    put: Callable[[Session], PutCommand], wait: bool, timeout: str | None, form: Format
) -> None:
    from operations.session import opened
    from orcaflow.cli.commands.run import report_begun, watched
    from orcaflow.cli.options import patience_of
    from orcaflow.cli.waiting import TAKEN_WITHIN, await_taken, await_taken_or_time_out

    patience = patience_of(timeout, wait=wait)
    with opened() as session:
        command = put(session)
        _say_version(command)
        try:
            if not wait:
                if await_taken(session, command, patience=TAKEN_WITHIN):
                    report_begun(session, command.id, command.process_instance_id, form)
                else:
                    _report_waiting(command.id, form)
                return
            await_taken_or_time_out(session, command, patience)
            ended_well = watched(session, command.id, command.process_instance_id, patience, form)
        except KeyboardInterrupt:
            say(
                "\nNot watching any more; it goes on."
                f" Watch it: `orcaflow instance watch {command.process_instance_id}`"
            )
            raise typer.Exit(130) from None
    if not ended_well:
        raise typer.Exit(1)


def _report_waiting(command_id: int, form: Format) -> None:
    say_waiting(command_id)
    if form is Format.JSON:
        print_json({"command_id": command_id, "instance": None})


def say_waiting(command_id: int) -> None:
    say(
        f"command {command_id} waits: no master has taken it yet. It is carried out when one does"
        f" (orcaflow instance why --command {command_id})"
    )
