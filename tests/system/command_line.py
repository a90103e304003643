"""The command line for tests of whole clusters, each command once as a process of its own.

The start of a Python and its imports take ten times as long as the command itself. So a command that
has been started as a process is run in a fork of the tests' own process from then on, which has
imported already what commands import when they need it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO

import operations
from common import config
from common.errors import ConfigurationError
from orcaflow.cli import commands

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300.0
"""Far more than a command takes on a busy machine."""
_CRASHED = 70

STARTED: Path | None = None
"""The folder with a file for each command that was a process, for all lanes; None outside pytest."""

_started: set[tuple[str, ...]] = set()
"""The commands that this process has run."""


def run(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with this environment; its exit code and output."""
    if not _is_first(_command(arguments)):
        return forked(arguments, environment=environment, place=ROOT)
    return subprocess.run(
        [sys.executable, "-m", "orcaflow", *arguments],
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def forked(
    arguments: tuple[str, ...], *, environment: Mapping[str, str], place: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork of this process, in the folder `place`."""
    # Every run of tests imports this module, and few run a command.
    from orcaflow.cli.app import main

    _import_what_commands_import()
    # A copy: the fork empties its own environment, which may be the one that was given.
    given = dict(environment)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _become(partial(main, arguments), given, place, out, err)
        code = _code_of(pid)
        said = [_text(file) for file in (out, err)]
    return subprocess.CompletedProcess(["orcaflow", *arguments], code, *said)


def _is_first(command: tuple[str, ...]) -> bool:
    """Return True if no lane has run the command yet."""
    if command in _started:
        return False
    _started.add(command)
    if STARTED is None:
        return True
    STARTED.mkdir(exist_ok=True)
    try:
        (STARTED / blake2b(repr(command).encode(), digest_size=16).hexdigest()).touch(
            exist_ok=False
        )
    except FileExistsError:
        return False
    return True


@cache
def _import_what_commands_import() -> None:
    """Have this process do once what each fork would do again: imports, and the reading of settings."""
    with suppress(ConfigurationError):  # Of this process, which need not be those of the command.
        config.load()
    for package in (operations, commands):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)


def _command(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The words that name a command: a group and its command, or a command and its first value."""
    return tuple(word for word in arguments[:2] if not word.startswith("-"))


def _become(
    command: Callable[[], int],
    environment: Mapping[str, str],
    place: Path,
    out: IO[bytes],
    err: IO[bytes],
) -> None:
    """Run the command in this process, a fork, and end it."""
    code = _CRASHED
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(place)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        code = command()
    except BaseException:  # noqa: BLE001  # Nothing of a fork may come back into the tests.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _code_of(pid: int) -> int:
    """The exit code of a child, which is killed if it does not end."""
    child = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([child], [], [], PATIENCE_SECONDS)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(child)
    assert ended, "a command did not end in time"
    return os.waitstatus_to_exitcode(status)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
