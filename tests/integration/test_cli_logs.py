"""Logs of other hosts on the command line: where they are looked for, and what an error names."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, insert

from common.log_access import read_key
from common.model.states import ProcessState, TaskState
from common.store.cluster import cluster_token
from common.store.tables import task_log_tail
from tests.integration.cli_rows import an_attempt, an_instance
from tests.integration.conftest import Cli
from tests.log_workers import serving


def test_a_log_of_another_home_is_read_from_its_worker(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    run = an_instance(db, ProcessState.FAILURE)
    logs = tmp_path / "other" / "tasks" / "logs"
    key = tmp_path / "home" / "keys" / "log.key"
    key.parent.parent.mkdir(parents=True, exist_ok=True)
    with serving(logs, key=read_key(key, makes=True), cluster=cluster_token(db)) as address:
        # The row names the log by its own id.
        task = an_attempt(db, run, TaskState.FAILURE, host=address, log_path="/logs/1/1/1.log")
        assert (run, task) == (1, 1)
        log = logs / "1" / "1" / "1.log"
        log.parent.mkdir(parents=True)
        log.write_text("one\ntwo\n")
        assert cli("task", "log", "1") == (0, "one\ntwo\n", "")
        assert cli("task", "log", "1", "-n", "1", "--follow") == (0, "two\n", "")
        key.write_text("0" * 64)
        code, _, err = cli("task", "log", "1")
        assert code == 3
        assert f"worker {address} refuses: the token is not of this cluster" in err
    code, _, err = cli("task", "log", "1")
    assert code == 3
    assert "is not below" in err
    assert f"worker {address} does not answer" in err
    key.unlink()
    assert "copy" in cli("task", "log", "1")[2]
    # Its worker has kept the last words, as the host is gone for good.
    with db.begin() as connection:
        words = {"task_instance_id": 1, "size": 40, "tail": "é\n…zwei\n".encode()}
        connection.execute(insert(task_log_tail).values(words))
    code, out, _ = cli("task", "log", "1", "--follow")
    assert (code, out.partition("\n")[2]) == (0, "é\n…zwei\n")
    assert "29 bytes before this are out of reach" in out
    assert cli("task", "log", "1", "-n", "1")[1] == "…zwei\n"
