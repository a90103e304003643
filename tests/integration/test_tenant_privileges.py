"""Tasks of tenants run without privileges, and no program on the host grants them any."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from common.model.states import TaskState
from tests.integration.pythons import Pythons
from tests.integration.spark_accounts import AS_ROOT, a_python, accounts, bare_python
from tests.integration.tenant_privileges import (
    none_but_groups,
    own_privileges,
    privileges,
    privileges_of_processes,
)
from tests.integration.worker_host import PATIENCE_SECONDS, Host
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes import tenant_start
from worker.workspace import Account

pytestmark = AS_ROOT

PROBE_SHELL = """
grep -E '^(Cap|NoNewPrivs|Groups)' /proc/self/status
for program in {programs}; do "$program" {secret}; done
kill -0 {daemon} && echo "signalled the daemon"
true
"""
PROBE_PYTHON = """
import contextlib, ctypes, os, subprocess
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs", "Groups")):
        print(line, end="")
for program in {programs}:
    # The kernel refuses a program that needs the capability of its file.
    with contextlib.suppress(OSError):
        subprocess.run([program, {secret!r}])
try:
    os.kill({daemon}, 0)
    print("signalled the daemon")
except PermissionError:
    pass
if ctypes.CDLL(None).ptrace(16, {daemon}, 0, 0) == 0:
    print("traces the daemon")
"""
CAP_DAC_READ_SEARCH = 2


class PrivilegedPrograms:
    """Two copies of `cat` that read root's file for any account: by setuid and by a capability."""

    def __init__(self, folder: Path, account: Account) -> None:
        folder.mkdir(mode=0o711)
        self.secret = folder / "secret"
        self.secret.write_text("a secret of root\n")
        self.secret.chmod(0o600)
        self.by_setuid, self.by_capability = folder / "setuid-cat", folder / "capable-cat"
        cat = shutil.which("cat")
        assert cat is not None
        for each in (self.by_setuid, self.by_capability):
            shutil.copy(cat, each)
            each.chmod(0o755)
        self.by_setuid.chmod(0o4755)
        # Revision 2 of the attribute, effective: the low words of both sets, then the high words.
        granted = struct.pack("<IIIII", 0x02000001, 1 << CAP_DAC_READ_SEARCH, 0, 0, 0)
        try:
            os.setxattr(self.by_capability, "security.capability", granted)
        except OSError:
            self.by_capability.unlink()
        self.all = [each for each in (self.by_setuid, self.by_capability) if each.exists()]
        if not all(self._works_for(account, each) for each in self.all):
            pytest.skip("the file system of temporary files ignores setuid programs")

    def _works_for(self, account: Account, program: Path) -> bool:
        done = subprocess.run(
            [program, self.secret],
            user=account.uid,
            group=account.gid,
            extra_groups=account.groups,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder that other accounts can traverse, which `tmp_path` does not ensure."""
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def log_of_probe(home: Path, account: Account, kind: str, script: str) -> str:
    """Run a script as a task of the account; return its log."""
    settings = TaskSettings(environment=seen_by_tasks(os.environ), python=bare_python(account))
    known = {"mallory": account}.__getitem__
    if kind == "SHELL":
        host = Host(home, tenant_mode="tenant", account_of=known, settings=settings)
        end = host.run(host.task(1, script, tenant_code="mallory"))
    else:
        pythons = Pythons(home, kind, tenant_mode="tenant", account_of=known, settings=settings)
        host = pythons.host
        pythons.warm(tenant_code="mallory")
        end, _ = pythons.run(script, tenant_code="mallory")
    host.supervisor.close()
    log = host.log(end.task_instance_id)
    assert end.state is TaskState.SUCCESS, log
    return log


@pytest.mark.parametrize("kind", ["SHELL", "fresh", "forked"])
def test_a_task_of_a_tenant_gains_no_privileges_x49(home: Path, kind: str) -> None:
    _, mallory = accounts(home)
    programs = PrivilegedPrograms(home / "programs", mallory)
    paths = [str(each) for each in programs.all]
    if kind == "SHELL":
        script = PROBE_SHELL.format(
            programs=" ".join(paths), secret=programs.secret, daemon=os.getpid()
        )
    else:
        script = PROBE_PYTHON.format(
            programs=paths, secret=str(programs.secret), daemon=os.getpid()
        )
    log = log_of_probe(home, mallory, kind, script)
    assert privileges(log) == none_but_groups(mallory)
    printed = [line for line in log.splitlines() if not line.startswith("[orcaflow]")]
    assert "a secret of root" not in printed
    assert [line for line in printed if line.endswith("the daemon")] == []


def test_a_runner_of_a_tenant_has_no_privileges_x49(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mallory = accounts(home)
    home.chmod(0o755)
    # Runners use the worker's interpreter, which this account may be unable to reach.
    monkeypatch.setattr(sys, "executable", a_python(home, mallory))
    seen: list[Mapping[str, str]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.extend(privileges_of_processes(mallory.uid))
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    host = Host(
        home,
        tenant_mode="tenant",
        account_of=lambda _: mallory,
        settings=TaskSettings(environment=seen_by_tasks(os.environ), http_allowed=("127.0.0.0/8",)),
    )
    params = {"url": f"http://127.0.0.1:{server.server_port}/", "httpMethod": "GET"}
    try:
        end = host.run(host.task(1, task_type="HTTP", params=params, tenant_code="mallory"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        host.supervisor.close()
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert seen
    assert [each for each in seen if each != none_but_groups(mallory)] == []


def test_only_programs_of_tenants_are_started_without_privileges_x49(home: Path) -> None:
    before = own_privileges()
    _, mallory = accounts(home)
    found = []
    for account in (None, mallory):
        with (home / "output").open("wb") as file:
            process = tenant_start.start_program(
                ("/bin/cat", "/proc/self/status"),
                account=account,
                files=(subprocess.DEVNULL, file, subprocess.DEVNULL),
                directory="/",
                environment={},
            )
            assert process.wait(PATIENCE_SECONDS) == 0
        found.append(privileges((home / "output").read_text()))
    assert found == [before, none_but_groups(mallory)]
    assert own_privileges() == before
