"""Mode `tenant`: tasks run as their tenants, who reach nothing of each other or of the worker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests.integration.spark_accounts import AS_ROOT, accounts, bare_python
from tests.integration.worker_host import Host, Signpost
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.workspace import Account

pytestmark = AS_ROOT

SHELL = """
for path in {paths}; do
    (cat "$path" || ls "$path/" || echo planted >> "$path") && echo "reached $path"
done
echo "uid $(id -u)"
echo mine > "$ORCAFLOW_DATA_DIR/shell" && echo "wrote $ORCAFLOW_DATA_DIR"
"""
PYTHON = """
import os
for path in {paths}:
    for reach in (open, os.listdir, lambda path: open(path, "a")):
        try:
            reach(path)
        except OSError:
            continue
        print("reached", path)
print("uid", os.getuid())
open(os.environ["ORCAFLOW_DATA_DIR"] + "/python", "w").close()
print("wrote", os.environ["ORCAFLOW_DATA_DIR"])
"""


class Tenants:
    """A worker with two tenants: Alice, a task of whom is at work, and Mallory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.alice, self.mallory = accounts(home)
        known: dict[str | None, Account] = {"alice": self.alice, "mallory": self.mallory}
        (home / "postgres.password").touch(mode=0o600)
        self.host = Host(
            home,
            tenant_mode="tenant",
            account_of=known.__getitem__,
            settings=TaskSettings(
                environment=seen_by_tasks(os.environ), python=bare_python(self.mallory)
            ),
        )
        signpost = Signpost(home / "signpost")
        signpost.path.chmod(0o666)
        script = f"echo 'a secret' > note; cp note $ORCAFLOW_DATA_DIR; echo up > {signpost.path}"
        self.host.begin(self.host.task(1, f"{script}; sleep 600", tenant_code="alice"))
        signpost.wait()
        signpost.close()
        # Each would be reached without the rights of accounts: all are there.
        self.others = (
            self.host.directory(1),
            self.host.directory(1) / "note",
            self.host.log_path(1),
            home / "data" / "tenants" / self.alice.name,
            home / "data" / "tenants" / self.alice.name / "note",
            home / "tasks" / "records",
            home / "tasks" / "records" / "1",
            home / "postgres.password",
            Path(f"/proc/{os.getpid()}/environ"),
        )
        assert all(each.exists() for each in self.others), self.others

    def close(self) -> None:
        self.host.supervisor.kill(1)
        self.host.end_of(1)
        self.host.supervisor.close()


@pytest.fixture
def tenants() -> Iterator[Tenants]:
    # The folders of `tmp_path` are closed to other accounts.
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as home:
        Path(home).chmod(0o711)
        made = Tenants(Path(home))
        try:
            yield made
        finally:
            made.close()


def test_a_task_runs_as_its_tenant_and_reaches_nothing_of_another_or_of_the_worker(
    tenants: Tenants,
) -> None:
    host = tenants.host
    assert (host.supervisor.uid_of(1), host.supervisor.uid_of(2)) == (tenants.alice.uid, None)
    words = " ".join(map(str, tenants.others))
    tasks = {
        2: host.task(2, SHELL.format(paths=words), tenant_code="mallory"),
        3: host.task(
            3,
            PYTHON.format(paths=[*map(str, tenants.others)]),
            task_type="PYTHON",
            tenant_code="mallory",
        ),
    }
    own = tenants.home / "data" / "tenants" / tenants.mallory.name
    for number, task in tasks.items():
        end = host.run(task)
        log = host.log(number)
        assert end.state is TaskState.SUCCESS, log
        lines = log.splitlines()
        assert f"uid {tenants.mallory.uid}" in lines
        assert f"wrote {own}" in lines
        assert [line for line in lines if line.startswith("reached ")] == []
    for made in (own / "shell", own / "python"):
        assert made.stat().st_uid == tenants.mallory.uid


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("root", "uid 0 is root"),
        ("daemon", "is a system account"),
        ("no_such_account", "host lacks the account"),
        ("a;b", "is not the name of an account"),
        (None, "lacks a tenant to run as"),
    ],
)
def test_an_attempt_of_an_unfit_tenant_fails_with_the_reason_x50(
    tmp_path: Path, code: str | None, reason: str
) -> None:
    host = Host(tmp_path, tenant_mode="tenant")
    end = host.run(host.task(1, "id -u > ran", tenant_code=code))
    host.supervisor.close()
    assert end.state is TaskState.FAILURE
    assert reason in (end.reason or "")
    assert not (host.directory(1) / "ran").exists()
