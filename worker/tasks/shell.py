"""SHELL: a script, run by its `#!` line, by the shell that the task names, or by `worker.shell`.

Parameters are given as variables (`common.params.variables`), and put into the text where that asks
for it, unless the worker's operator refuses it.

The script is a file in the attempt's directory and never part of a command line, where every user
of the host could read it. An environment file, if one is configured, is sourced before it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from common.model.task_type import LOCAL_PARAMS, RESOURCE_LIST, Key, TaskTypeSpec, ValueFaultError
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import KEEP_CHILDREN, PROGRAM_NAME, RAW_SCRIPT
from worker.launching.resources import fetch_resources

# The path comes as an argument: a text that Orcaflow composes holds nobody's words.
# No parameter has its variable's name, which the task would else find changed.
_SOURCE = 'ORCAFLOW_ENV_PATH=$1; shift; . "$ORCAFLOW_ENV_PATH"; exec "$@"'


def _check_shell(value: Any) -> None:
    if not PROGRAM_NAME.fullmatch(str(value)):
        raise ValueFaultError("must be the name of a shell as bash, or its path as /bin/zsh")


SHELL: Final = Key(
    name="shell",
    about="The shell that runs the script, as bash, zsh or /bin/sh; the default is `worker.shell`.",
    check=_check_shell,
)
SPEC: Final = TaskTypeSpec(
    name="SHELL",
    about="A shell script.",
    keys=(RAW_SCRIPT, SHELL, KEEP_CHILDREN, RESOURCE_LIST, LOCAL_PARAMS),
    needs=((RAW_SCRIPT.name,),),
    scripts=(RAW_SCRIPT.name,),
    program=RAW_SCRIPT.name,
    starts_with={RAW_SCRIPT.name: "true"},
    # Making the file takes a good part of the time that starting a short script takes.
    skips_parameters_file=True,
)


class ShellTask:
    """Runs `rawScript`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        script = context.script()
        if not script.strip():
            raise TaskParameterError("params.rawScript is empty")
        fetch_resources(context)
        path = context.write_program(f"{context.app_id}_node.sh", script)
        argv = (path,) if _has_interpreter(script) else (_shell(context), path)
        env_path = context.settings.env_path
        if env_path:
            if not Path(env_path).is_file():
                raise TaskParameterError(f"worker.env_path: there is no file {env_path}")
            argv = (
                _shell(context),
                "-c",
                _SOURCE,
                "orcaflow",
                str(Path(env_path).absolute()),
                *argv,
            )
        return Launch(argv=argv, keeps_children=context.flag(KEEP_CHILDREN), leads=True)


TASK_TYPE: Final = ShellTask


def _shell(context: TaskContext) -> str:
    """Return the path of the shell that the task or, without one, the worker's settings name."""
    named = context.substitute(context.text(SHELL.name)).strip()
    with fault_at(SHELL.name):
        if named:
            _check_shell(named)
    return context.program(
        named or context.settings.shell,
        f"params.{SHELL.name}" if named else "worker.shell",
        cure="install it, or name another shell by worker.shell or by the task's key `shell`",
    )


def _has_interpreter(script: str) -> bool:
    """Return whether the first line names an interpreter; one that is not there is an error."""
    if not script.startswith("#!"):
        return False
    words = script[2:].split("\n", 1)[0].split()
    if not words or not words[0].startswith("/"):
        return False
    if not os.access(words[0], os.X_OK):
        raise TaskParameterError(
            f"params.rawScript: its first line asks for {words[0][:200]},"
            " which is not on this worker"
        )
    return True
