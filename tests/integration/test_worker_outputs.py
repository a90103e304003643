"""Outputs and time-outs of attempts, with real processes and across restarts."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, ClaimedTask
from tests.integration.worker_host import (
    Host,
    SetClock,
    Signpost,
    a_daemon_that_dies,
    wait_until_gone,
)
from worker.processes.outputs import Declared
from worker.processes.starting import Prepared

LATER = timedelta(hours=1)
OUT_A = [{"prop": "a", "direct": "OUT", "type": "INTEGER", "value": ""}]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.supervisor.kill_all()
    host.until(lambda: not host.supervisor.running())
    host.supervisor.close()


def put_out(end: AttemptEnd) -> dict[str, str]:
    return {each["prop"]: each["value"] for each in json.loads(end.var_pool or "[]")}


def test_what_a_task_puts_out_comes_with_its_end(host: Host) -> None:
    end = host.run(host.task(1, "echo '${setValue(a=1)}'", local=OUT_A))
    assert end.var_pool == '[{"prop":"a","direct":"IN","type":"INTEGER","value":"1"}]'
    assert host.log(1).endswith("[orcaflow] puts out a\n[orcaflow] exit code 0\n")


def test_t59_a_log_is_read_when_nobody_writes_it_any_more(host: Host) -> None:
    # The supervisor has seen the leader's end once its pid is free.
    script = """
        ( trap '' TERM; echo > deaf
          while kill -0 $PPID 2>/dev/null; do :; done; echo '${setValue(a=2)}' ) &
        while [ ! -s deaf ]; do :; done
        echo '${setValue(a=1)}'
    """
    end = host.run(host.task(1, script, local=OUT_A))
    assert (end.state, put_out(end)) == (TaskState.SUCCESS, {"a": "2"})


def test_the_file_for_outputs_is_named_to_every_task(host: Host) -> None:
    script = """echo '{"a": 5}' >> "$ORCAFLOW_OUTPUT"; dirname "$ORCAFLOW_OUTPUT"; pwd"""
    end = host.run(host.task(1, script, local=OUT_A))
    assert put_out(end) == {"a": "5"}
    lines = host.log(1).splitlines()
    assert lines[-4] == lines[-3]
    end = host.run(host.task(2, 'echo "$ORCAFLOW_OUTPUT"'))
    assert str(host.directory(2) / "output.jsonl") in host.log(2)


def test_without_out_parameters_nothing_is_read(host: Host) -> None:
    end = host.run(host.task(1, "echo '${setValue(a=1)}'; echo nonsense > $ORCAFLOW_OUTPUT"))
    assert (end.state, end.var_pool) == (TaskState.SUCCESS, None)


def test_what_failed_or_was_killed_puts_out_nothing(host: Host, signpost: Signpost) -> None:
    end = host.run(host.task(1, "echo '${setValue(a=1)}'; exit 1", local=OUT_A))
    assert (end.state, end.var_pool) == (TaskState.FAILURE, None)
    script = f"echo '${{setValue(a=1)}}'; echo up > {signpost.path}; exec sleep 600"
    host.begin(host.task(2, script, local=OUT_A))
    signpost.wait()
    host.supervisor.kill(2)
    end = host.end_of(2)
    assert (end.state, end.var_pool) == (TaskState.KILL, None)


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("echo '{' > $ORCAFLOW_OUTPUT", "output.jsonl, line 1: not valid JSON"),
        ("ln -s /etc/passwd $ORCAFLOW_OUTPUT", "can't be read"),
        ("echo '{}' > other; ln other $ORCAFLOW_OUTPUT", "no ordinary file of the attempt's own"),
        ("yes '${setValue(a=' | tr -d '\\n' | head -c 200000", "longer than 65,536 bytes"),
        ('i=0; while [ $i -lt 1001 ]; do i=$((i+1)); echo "\\${setValue(v$i=1)}"; done', "1,000"),
    ],
)
def test_outputs_that_can_t_be_taken_fail_the_attempt_with_the_reason(
    host: Host, script: str, cause: str
) -> None:
    end = host.run(host.task(1, script, local=OUT_A))
    assert (end.state, end.exit_code, end.var_pool) == (TaskState.FAILURE, 0, None)
    assert cause in (end.reason or "")
    assert cause in host.log(1).splitlines()[-1]
    assert host.run(host.task(2, "true")).state is TaskState.SUCCESS


def test_declaring_more_outputs_than_are_allowed_is_a_mistake(host: Host) -> None:
    local = [
        {"prop": f"v{n}", "direct": "OUT", "type": "VARCHAR", "value": ""} for n in range(1001)
    ]
    end = host.run(host.task(1, "true", local=local))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, None)
    assert "declares 1,001 OUT parameters" in (end.reason or "")


def test_other_attempts_start_and_end_while_a_long_log_is_read(tmp_path: Path) -> None:
    host = Host(tmp_path, log_limit_bytes=100_000_000)
    script = "echo '${setValue(a=1)}'; yes 0123456789 | head -c 30000000; echo '${setValue(a=2)}'"
    host.begin(host.task(1, script, local=OUT_A))
    host.supervisor.start(host.task(2, "true"))
    assert put_out(host.end_of(1)) == {"a": "2"}
    assert host.end_of(2).state is TaskState.SUCCESS
    host.supervisor.close()


def test_a_log_that_was_cut_says_that_values_may_be_lost(tmp_path: Path) -> None:
    host = Host(tmp_path, log_limit_bytes=100_000)
    script = "echo '${setValue(a=1)}'; yes 0123456789 | head -c 3000000"
    assert put_out(host.run(host.task(1, script, local=OUT_A))) == {"a": "1"}
    assert "what was cut out of this log puts out no parameters" in host.log(1)
    host.supervisor.close()


def test_an_adopted_attempt_puts_out_the_same(tmp_path: Path, signpost: Signpost) -> None:
    gate = Signpost(tmp_path / "gate")
    script = f"echo '${{setValue(a=1)}}'; echo $$ > {signpost.path}; read go < {gate.path}; exit 0"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}, local={OUT_A!r}))")
    signpost.wait()
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    gate.path.write_text("go\n")
    end = host.end_of(7)
    assert (end.state, put_out(end)) == (TaskState.SUCCESS, {"a": "1"})
    gate.close()
    host.supervisor.close()


@pytest.mark.parametrize(
    ("word", "state", "values"),
    [('{"a": 2}', TaskState.SUCCESS, {"a": "2"}), ("{", TaskState.FAILURE, {})],
)
def test_what_ended_while_the_daemon_was_away_puts_out_the_same(
    tmp_path: Path, signpost: Signpost, word: str, state: TaskState, values: dict[str, str]
) -> None:
    script = f"echo '{word}' > $ORCAFLOW_OUTPUT; echo $PPID > {signpost.path}"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}, local={OUT_A!r}))")
    wait_until_gone(int(signpost.wait()))
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    assert (host.ends[7].state, put_out(host.ends[7])) == (state, values)
    host.supervisor.close()


def test_an_attempt_that_can_t_be_ended_properly_leaves_nothing_open(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.run(host.task(1, "true")).state is TaskState.SUCCESS
    job = tmp_path / "job.json"

    def with_a_place_that_no_file_has(task: ClaimedTask) -> Prepared:
        job.write_text("{}")
        prepared = host.launcher.prepare(task)
        declared = Declared(types={}, file=str(tmp_path / "none"), log_from=2**70)
        return replace(prepared, outputs=declared, job_file=job)

    broken = Host(tmp_path / "broken", prepare=with_a_place_that_no_file_has)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    end = broken.run(broken.task(2, "true"))
    assert (end.state, end.reason) == (
        TaskState.FAILURE,
        "the worker failed to end it properly; see the worker's log",
    )
    assert len(list(descriptors.iterdir())) == before
    assert not job.exists()
    assert not broken.supervisor.running()
    host.supervisor.close()
    broken.supervisor.close()


def test_a_log_that_grew_too_long_while_the_daemon_was_away_is_cut_before_it_is_read(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = (
        f"echo '${{setValue(a=1)}}'; yes 0123456789 | head -c 3300000; printf end;"
        f" echo $PPID > {signpost.path}"
    )
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}, local={OUT_A!r}))")
    wait_until_gone(int(signpost.wait()))
    host = Host(tmp_path, log_limit_bytes=100_000)
    host.supervisor.adopt({7})
    assert put_out(host.ends[7]) == {"a": "1"}
    assert len(host.log(7)) < 100_000
    assert host.log(7).splitlines()[-4:] == [
        "end",
        "[orcaflow] what was cut out of this log puts out no parameters",
        "[orcaflow] puts out a",
        "[orcaflow] exit code 0",
    ]
    host.supervisor.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as others")
def test_a_tenant_can_write_its_outputs_and_its_result() -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        home.chmod(0o711)
        host = Host(home, tenant_mode="tenant")
        task = host.task(
            1, "echo '{\"a\": 3}' > $ORCAFLOW_OUTPUT", local=OUT_A, tenant_code="nobody"
        )
        assert put_out(host.run(task)) == {"a": "3"}, host.log(1)
        host.supervisor.close()


# Inputs from upstream.


def test_a_task_gets_what_was_put_out_upstream(host: Host) -> None:
    pool = '[{"prop":"a","direct":"IN","type":"INTEGER","value":"7"}]'
    local = [{"prop": "a", "direct": "IN", "type": "VARCHAR", "value": ""}]
    host.run(host.task(1, "echo got ${a}", local=local, input_pool=pool))
    assert "\ngot 7\n" in host.log(1)


def test_a_start_parameter_goes_before_everything(host: Host) -> None:
    pool = '[{"prop":"a","direct":"IN","type":"VARCHAR","value":"pool"}]'
    local = [{"prop": "a", "direct": "IN", "type": "VARCHAR", "value": "local"}]
    task = host.task(
        1, "echo got ${a}", local=local, input_pool=pool, start_params='{"a": "start"}'
    )
    host.run(task)
    assert "\ngot start\n" in host.log(1)


@pytest.mark.parametrize(
    "changes", [{"input_pool": "{"}, {"start_params": "[1]"}, {"start_params": "{"}]
)
def test_what_can_t_be_read_from_upstream_fails_the_attempt(
    host: Host, changes: dict[str, Any]
) -> None:
    end = host.run(host.task(1, "true", **changes))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, None)
    assert end.reason


# Time-outs.


def test_an_attempt_whose_time_is_out_fails(host: Host, signpost: Signpost) -> None:
    script = f"echo up > {signpost.path}; sleep 600"
    host.begin(host.task(1, script, timeout=timedelta(seconds=0.3)))
    # What is told to end before it has begun has no exit code.
    signpost.wait()
    end = host.end_of(1)
    assert end.state is TaskState.FAILURE
    assert end.reason == "timed out after 0.005 minutes (timeout strategy FAILED)"
    assert host.log(1).splitlines()[-1] == f"[orcaflow] exit code 143: {end.reason}"


def test_an_attempt_whose_time_is_out_may_clean_up_and_still_fails(
    host: Host, signpost: Signpost
) -> None:
    script = (
        f"trap 'echo cleaned; exit 0' TERM; echo up > {signpost.path}; while :; do sleep 0.01; done"
    )
    host.begin(host.task(1, script, timeout=timedelta(seconds=0.5)))
    signpost.wait()
    end = host.end_of(1)
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 0)
    assert "cleaned" in host.log(1)


def test_what_ignores_the_end_of_its_time_is_killed_with_all_it_started(tmp_path: Path) -> None:
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    signpost = Signpost(tmp_path / "signpost")
    script = f"""
        trap '' TERM
        setsid sh -c 'trap "" TERM; echo $$ > {signpost.path}; while :; do sleep 600; done'
    """
    host.begin(host.task(1, script, timeout=timedelta(seconds=0.5)))
    pid = int(signpost.wait())
    assert host.end_of(1).state is TaskState.FAILURE
    wait_until_gone(pid)
    signpost.close()
    host.supervisor.close()


def test_a_kill_that_is_asked_for_meanwhile_ends_as_a_kill(
    host: Host, tmp_path: Path, signpost: Signpost
) -> None:
    gate = Signpost(tmp_path / "gate")
    script = f"""
        trap 'read go < {gate.path}; exit 0' TERM
        echo up > {signpost.path}
        while :; do sleep 0.01; done
    """
    host.begin(host.task(1, script, timeout=timedelta(seconds=0.3)))
    signpost.wait()
    host.until(lambda: "timed out" in host.log(1))
    host.supervisor.kill(1)
    host.until(lambda: "a kill was asked for" in host.log(1))
    gate.path.write_text("go\n")
    assert host.end_of(1).state is TaskState.KILL
    gate.close()


def test_a_kill_goes_before_a_time_out_that_comes_later(tmp_path: Path, signpost: Signpost) -> None:
    clock = SetClock()
    host = Host(tmp_path, grace=timedelta(hours=1), clock=clock)
    # Not killed before it has its trap: that would end it.
    script = f"trap : TERM; echo up > {signpost.path}; while :; do sleep 0.01; done"
    host.begin(host.task(1, script, timeout=timedelta(minutes=30)))
    signpost.wait()
    host.supervisor.kill(1)
    host.until(lambda: "a kill was asked for" in host.log(1))
    clock.ahead = timedelta(minutes=45)
    host.supervisor.run_once()
    assert host.supervisor.running() == {1}
    clock.ahead = timedelta(minutes=75)
    assert host.end_of(1).state is TaskState.KILL
    assert "timed out" not in host.log(1)
    host.supervisor.close()


def test_an_attempt_that_ends_in_time_knows_of_no_time_out(host: Host) -> None:
    assert host.run(host.task(1, "true", timeout=LATER)).state is TaskState.SUCCESS


def test_a_lost_session_goes_before_a_time_out(host: Host) -> None:
    host.begin(host.task(1, "sleep 600", timeout=LATER))
    host.supervisor.kill_all()
    assert host.end_of(1).state is TaskState.NEED_FAULT_TOLERANCE


def test_an_adopted_attempt_has_no_more_time_than_was_left(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f"echo $$ > {signpost.path}; exec sleep 600"
    a_daemon_that_dies(
        tmp_path,
        "from datetime import timedelta\n"
        f"host.begin(host.task(7, {script!r}, timeout=timedelta(hours=1)))",
    )
    pid = int(signpost.wait())
    record = tmp_path / "tasks" / "records" / "7"
    about, rest = record.read_text().split("\n", 1)
    record.write_text(json.dumps({**json.loads(about), "times_out_at": 0}) + "\n" + rest)
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    end = host.end_of(7)
    assert end.state is TaskState.FAILURE
    assert end.reason == "timed out after 60 minutes (timeout strategy FAILED)"
    wait_until_gone(pid)
    host.supervisor.close()


def test_an_adopted_attempt_with_time_left_goes_on(tmp_path: Path, signpost: Signpost) -> None:
    gate = Signpost(tmp_path / "gate")
    script = f"echo $$ > {signpost.path}; read go < {gate.path}; exit 0"
    a_daemon_that_dies(
        tmp_path,
        "from datetime import timedelta\n"
        f"host.begin(host.task(7, {script!r}, timeout=timedelta(hours=1)))",
    )
    signpost.wait()
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    gate.path.write_text("go\n")
    assert host.end_of(7).state is TaskState.SUCCESS
    gate.close()
    host.supervisor.close()
