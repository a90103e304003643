"""Secrets that tasks print are masked in their logs, also after a daemon's death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from common.store.worker.ports import DataSource
from tests.integration.worker_host import Host, Signpost, a_daemon_that_dies, wait_until_gone

SECRET = "hunter2-p@ss"
PWD = {"prop": "db_pwd", "direct": "IN", "type": "VARCHAR", "value": SECRET}
MARKED = PWD | {"prop": "place", "secret": True}
OUTPUTS = [
    PWD,
    {"prop": "copy", "direct": "OUT", "type": "VARCHAR", "value": ""},
    {"prop": "new_token", "direct": "OUT", "type": "VARCHAR", "value": ""},
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.supervisor.kill_all()
    host.until(lambda: not host.supervisor.running())
    host.supervisor.close()


def test_what_a_task_prints_of_its_secrets_is_masked(host: Host) -> None:
    script = "echo a ${db_pwd} b; printf hunter2-; printf 'p@ss'; echo; echo \"$db_pwd\""
    assert host.run(host.task(1, script, local=[PWD])).state is TaskState.SUCCESS
    assert "hunter2" not in host.log(1)
    assert "a ************ b\n************\n************\n[orcaflow] exit code 0\n" in host.log(1)


def test_a_running_task_s_log_is_masked_too(host: Host, signpost: Signpost) -> None:
    script = f"echo a ${{db_pwd}} b; echo up > {signpost.path}; exec sleep 600"
    host.begin(host.task(1, script, local=[PWD]))
    signpost.wait()
    host.until(lambda: "a ************ b\n" in host.log(1))
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL
    assert "hunter2" not in host.log(1)


def test_the_password_of_a_data_source_is_masked(host: Host) -> None:
    url = {"url": "postgresql://me:hunter2-p%40ss@db/x", "note": "-"}
    source = DataSource(id=7, name="dw", type=1, connection_params=json.dumps(url))
    host.run(host.task(1, "echo hunter2-p@ss; echo hunter2-p%40ss", datasource=source))
    assert "hunter2" not in host.log(1)


def test_outputs_are_read_before_they_are_masked(host: Host) -> None:
    script = "echo '${setValue(copy=${db_pwd})}'; echo '#{setValue(new_token=abcdefgh)}'"
    end = host.run(host.task(1, script, local=OUTPUTS))
    pool = json.loads(end.var_pool or "[]")
    # The copy is marked as secret, because its name does not sound secret.
    assert [each["prop"] for each in pool if each.get("secret")] == ["copy"]
    values = {each["prop"]: each["value"] for each in pool}
    assert values == {"copy": SECRET, "new_token": "abcdefgh"}
    assert "hunter2" not in host.log(1)
    assert "abcdefgh" not in host.log(1)
    assert "setValue(new_token=********)" in host.log(1)


def test_a_task_that_gets_a_copied_secret_does_not_show_it(host: Host) -> None:
    copied = [{"prop": "copy", "direct": "IN", "type": "VARCHAR", "value": SECRET, "secret": True}]
    host.run(host.task(1, "echo ${copy}", input_pool=json.dumps(copied)))
    assert "hunter2" not in host.log(1)
    assert "copy=******" in host.log(1)
    assert "\n************\n" in host.log(1)


def test_a_huge_log_with_secrets_everywhere_is_cut_and_masked(tmp_path: Path) -> None:
    host = Host(tmp_path, log_limit_bytes=100_000)
    host.run(host.task(1, "yes \"${db_pwd}\" | tr -d '\\n' | head -c 4800000", local=[PWD]))
    assert "hunter" not in host.log(1)
    assert "p@ss" not in host.log(1)
    assert "bytes were cut" in host.log(1)
    host.supervisor.close()


@pytest.mark.parametrize("given", [PWD, MARKED], ids=["by its name", "by its mark"])
def test_what_was_printed_while_the_daemon_was_away_is_masked(
    tmp_path: Path, signpost: Signpost, given: dict[str, object]
) -> None:
    gate = Signpost(tmp_path / "gate")
    wait = f"echo $$ > {signpost.path}; read go < {gate.path}"
    name = given["prop"]
    script = f"echo a ${{{name}}}; {wait}; echo b ${{{name}}}"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}, local={[given]!r}))")
    signpost.wait()
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    gate.path.write_text("go\n")
    assert host.end_of(7).state is TaskState.SUCCESS
    assert "a ************\nb ************\n" in host.log(7)
    gate.close()
    host.supervisor.close()


def test_what_had_ended_while_the_daemon_was_away_is_masked(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f"echo '${{setValue(copy=${{db_pwd}})}}'; echo $PPID > {signpost.path}"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}, local={OUTPUTS!r}))")
    wait_until_gone(int(signpost.wait()))
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    assert json.loads(host.ends[7].var_pool or "[]")[0]["value"] == SECRET
    assert "hunter2" not in host.log(7)
    host.supervisor.close()
