"""Starts by the C library and by `subprocess` give a program the same."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from worker.processes import spawning

SHELL = "/bin/sh"


@pytest.fixture(params=["library", "subprocess"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "subprocess":
        monkeypatch.setattr(spawning, "_LIBRARY", None)
    elif spawning._LIBRARY is None:
        pytest.skip("this C library lacks a call")


def started(
    directory: Path, *argv: str, environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """The exit code of a program and what it has printed."""
    output = os.open(directory / "output", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        leader = spawning.start(
            argv,
            files=(nothing, output, output),
            directory=str(directory),
            environment=environment or {"PATH": os.defpath},
            account=None,
        )
        code = leader.wait()
        assert leader.wait() == code == leader.returncode
        return code, os.pread(output, 100_000, 0).decode()
    finally:
        os.close(output)
        os.close(nothing)


@pytest.mark.usefixtures("_way")
def test_a_program_gets_its_session_directory_and_environment(tmp_path: Path) -> None:
    script = (
        'read -r about </proc/self/stat; set -- $about; echo "$1 $5 $6"; pwd; echo "$a-$ü"; env'
    )
    code, printed = started(tmp_path, SHELL, "-c", script, environment={"a": "b c", "d": "é"})
    ids, directory, *_ = printed.splitlines()
    assert code == 0
    assert len(set(ids.split())) == 1
    assert directory == str(tmp_path)
    assert {"a=b c", "d=é"} <= set(printed.splitlines())


@pytest.mark.usefixtures("_way")
def test_a_program_gets_no_other_file_and_no_signal_that_python_ignores(tmp_path: Path) -> None:
    inherited = 63
    os.dup2(2, inherited, inheritable=True)
    try:
        script = "for each in /proc/$$/fd/*; do echo ${each##*/}; done; grep SigIgn /proc/$$/status"
        code, printed = started(tmp_path, SHELL, "-c", script)
    finally:
        os.close(inherited)
    *files, ignored = printed.splitlines()
    assert code == 0
    assert str(inherited) not in files
    mask = int(ignored.split()[1], 16)
    assert not any(mask >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ, 32, 33))


@pytest.mark.usefixtures("_way")
def test_exit_codes_and_signals_are_told(tmp_path: Path) -> None:
    assert started(tmp_path, SHELL, "-c", "exit 7")[0] == 7
    assert started(tmp_path, SHELL, "-c", "kill -KILL $$")[0] == -signal.SIGKILL


@pytest.mark.usefixtures("_way")
def test_what_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        started(tmp_path, "/no/such/program")
    assert missing.value.errno == errno.ENOENT
    with pytest.raises(OSError, match="too long"):
        started(tmp_path, SHELL, "-c", "x" * 10_000_000)
    with pytest.raises(ValueError, match="null"):
        started(tmp_path, SHELL, "-c", "a\0b")
    with pytest.raises(ValueError, match="null"):
        started(tmp_path, SHELL, environment={"a": "b\0c"})
    with pytest.raises(ValueError, match="illegal"):
        started(tmp_path, SHELL, environment={"a=b": "c"})
