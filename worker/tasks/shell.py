"""SHELL: a script with its parameters put in, run by `sh`, or by what its first line names.

The script is a file in the attempt's directory and never part of a command line, where every user
of the host could read it. An environment file, if one is configured, is sourced before it.
"""

from __future__ import annotations

import os
from pathlib import Path

from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.resources import fetch_resources

_SHELL = "/bin/sh"

# The path comes as an argument: a text that Orcaflow composes holds nobody's words.
_SOURCE = 'file=$1; shift; . "$file"; exec "$@"'


class ShellTask:
    """Runs `rawScript`."""

    def launch(self, context: TaskContext) -> Launch:
        script = context.script()
        if not script.strip():
            raise TaskParameterError("params.rawScript is empty")
        fetch_resources(context)
        path = context.write(f"{context.app_id}_node.sh", script, executable=True)
        argv = (str(path),) if _has_interpreter(script) else (_SHELL, str(path))
        env_path = context.settings.env_path
        if env_path:
            if not Path(env_path).is_file():
                raise TaskParameterError(f"worker.env_path: there is no file {env_path}")
            argv = (_SHELL, "-c", _SOURCE, "orcaflow", str(Path(env_path).absolute()), *argv)
        return Launch(argv=argv)


def _has_interpreter(script: str) -> bool:
    """Whether the first line names an interpreter; one that is not there is an error."""
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
