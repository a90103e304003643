"""Commands about pools, locks and datasets, on a real database."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from sqlalchemy import Engine, insert, text

from common.model.intervals import read_interval
from common.model.lock_needs import group_of_run
from common.model.locks import LockRequest, LockType
from common.model.states import ProcessState, TaskState
from common.store.streams.locks import request_locks
from common.store.tables import segment, task_group_queue, task_lock_request
from tests.integration.cli_rows import an_attempt, an_instance, parsed
from tests.integration.conftest import Cli


def test_a_pool_is_made_resized_and_removed(cli: Cli) -> None:
    assert parsed(cli("pool", "create", "db", "--size", "2", "-o", "json")) == {
        "id": 1,
        "name": "db",
        "size": 2,
    }
    code, _, err = cli("pool", "create", "db", "--size", "3")
    assert code == 4
    assert "orcaflow pool resize" in err
    assert parsed(cli("pool", "resize", "db", "--size", "5", "-o", "json"))["size"] == 5
    assert cli("pool", "resize", "bd", "--size", "5")[0] == 3
    assert cli("pool", "remove", "db")[0] == 0
    assert cli("pool", "remove", "db")[0] == 3


def test_a_pool_of_an_absurd_size_is_refused_with_the_limits(cli: Cli) -> None:
    for size in ("0", "-1", "1000001"):
        code, _, err = cli("pool", "create", "db", "--size", size)
        assert code == 2
        assert "from 1 to 1000000 slots" in err
    assert cli("pool", "create", "db", "--size", "many")[0] == 2
    assert cli("pool", "create", " db", "--size", "1")[0] == 2


def test_one_slot_is_no_slots(cli: Cli) -> None:
    assert cli("pool", "create", "db", "--size", "1")[1] == "pool db has 1 slot\n"
    assert cli("pool", "show", "db")[1] == "db: 0 of 1 slot is taken, 0 tasks wait\n"


def test_a_pool_lists_its_holders_and_waiters_and_is_not_removed_while_it_has_any(
    cli: Cli, db: Engine
) -> None:
    cli("pool", "create", "db", "--size", "3")
    an_instance(db, ProcessState.RUNNING)
    holder = an_attempt(db, 1, TaskState.RUNNING)
    waiter = an_attempt(db, 1, TaskState.WAITING_DEPEND, name="b")
    ended = an_attempt(db, 1, TaskState.SUCCESS, name="c")
    with db.begin() as connection:
        for task, status, weight in ((holder, 1, 2), (waiter, -1, 2), (ended, 1, 3)):
            connection.execute(
                insert(task_group_queue).values(
                    task_id=task, group_id=1, status=status, weight=weight, process_id=1
                )
            )
    (row,) = parsed(cli("pool", "list", "-o", "json"))
    # An ended attempt holds no slots, whatever its row says: slots can't leak.
    assert (row["used"], row["free"], row["waiting"]) == (2, 1, 1)
    shown = parsed(cli("pool", "show", "db", "-o", "json"))
    assert [each["task"] for each in shown["holders"]] == ["a"]
    assert [each["task"] for each in shown["waiters"]] == ["b"]
    code, _, err = cli("pool", "remove", "db")
    assert code == 4
    assert "task 'a' of process instance 1 holds" in err
    causes = parsed(cli("task", "why", str(waiter), "-o", "json"))
    assert [each["cause"] for each in causes][-3:] == ["pool", "pool", "running"]


def test_locks_are_listed_with_those_that_hold_and_await_them(cli: Cli, db: Engine) -> None:
    assert "No task holds a lock" in "".join(cli("locks", "list")[1:])
    an_instance(db, ProcessState.RUNNING)
    an_instance(db, ProcessState.RUNNING)
    holder = an_attempt(db, 1, TaskState.RUNNING, name="load")
    waiter = an_attempt(db, 2, TaskState.WAITING_DEPEND)
    day = LockRequest(
        dataset="flights",
        group_id=group_of_run(1),
        interval=read_interval("2026-11-20/P1D"),
        type=LockType.SHARED,
    )
    with db.begin() as connection:
        (lock,) = request_locks(connection, holder, [day])  # type: ignore[misc]
        connection.execute(
            insert(task_lock_request).values(
                task_id=waiter, dataset="flights", interval="2026-11-20/PT1H", type="EXCLUSIVE"
            )
        )
    held, waiting = parsed(cli("locks", "list", "--dataset", "flights", "-o", "json"))
    assert (held["state"], held["type"], held["version"]) == ("held", "SHARED", lock.version)
    assert held["interval"] == "2026-11-20T00:00:00.000Z/2026-11-21T00:00:00.000Z"
    assert [task["task_instance_id"] for task in held["tasks"]] == [holder]
    assert (waiting["state"], waiting["interval"]) == ("waiting", "2026-11-20/PT1H")
    assert f"load ({holder})" in cli("locks", "list")[1]
    assert parsed(cli("locks", "list", "--dataset", "trains", "-o", "json")) == []
    causes = parsed(cli("instance", "why", "2", "-o", "json"))
    texts = [each["text"] for each in causes if each["cause"] in {"lock", "running"}]
    assert texts[0] == "task 'a' waits for locks: EXCLUSIVE of flights 2026-11-20/PT1H"
    assert texts[2].startswith("task 'load' of process instance 1 holds SHARED 2026-11-20")


def test_a_dataset_is_listed_shown_and_read(
    cli: Cli, db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No dataset has anything" in cli("dataset", "list")[2]
    assert cli("dataset", "show", "flights")[0] == 3
    monkeypatch.setenv("ORCAFLOW_WORKER__DATASETS_DIR", str(tmp_path))
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    day = text("tstzrange('2026-11-20Z', '2026-11-21Z')")
    for number, table in enumerate(({"at": [noon], "n": [1]}, {"n": [2], "new": [[b"x"]]})):
        parquet.write_table(pa.table(table), tmp_path / f"{number}.parquet")
        with db.begin() as connection:
            connection.execute(
                insert(segment).values(
                    dataset="flights",
                    interval=day,
                    version="v1",
                    partition_num=number,
                    files=[f"{number}.parquet"],
                    rows=1,
                    bytes=100,
                    used=True,
                    origin_version="v1",
                    origin_num=number,
                )
            )
    (found,) = parsed(cli("dataset", "list", "-o", "json"))
    assert (found["dataset"], found["segments"], found["rows"]) == ("flights", 2, 2)
    shown = parsed(cli("dataset", "show", "flights", "--interval", "2026-11-20/P1D", "-o", "json"))
    assert [each["number"] for each in shown["segments"]] == [0, 1]
    assert (
        "2026-11-20T00:00:00.000Z/2026-11-21T00:00:00.000Z" in cli("dataset", "show", "flights")[1]
    )
    files = cli("dataset", "files", "flights")[1]
    assert str(tmp_path / "1.parquet") in files
    assert parsed(cli("dataset", "query", "flights", "-o", "json")) == [
        {"at": "2026-11-20T12:00:00Z", "n": 1, "new": None},
        {"at": None, "n": 2, "new": "[b'x']"},
    ]
    code, _, err = cli("dataset", "query", "flights", "--columns", "n,no")
    assert code == 2
    assert "has no column 'no'; it has at, n, new" in err
    assert cli("dataset", "query", "flights", "--interval", "today")[0] == 2
    query = ("dataset", "query", "flights", "-o", "json", "--limit", "1")
    assert parsed(cli(*query, "--columns", "new")) == [{"new": None}]
    of_day = ("--interval", "2026-11-20/P1D")
    listed = parsed(cli("dataset", "segments", "flights", *of_day, "-o", "json"))
    assert listed == shown["segments"]
    sql = "SELECT n, at FROM dataset WHERE n < 2"
    assert parsed(cli(*query, *of_day, "--sql", sql)) == [
        {"n": 1, "at": "2026-11-20T12:00:00.000000Z"}
    ]
    code, _, err = cli(*query, "--interval", "2026-11-20/PT6H", "--sql", sql)
    assert code == 2
    assert "cuts the chunk 2026-11-20T00:00:00.000Z/2026-11-21T00:00:00.000Z" in err
    code, _, err = cli(*query, "--sql", "SELECT m FROM dataset")
    assert code == 2
    assert "refused by SQLite: no such column: m" in err
    assert cli(*query, "--sql", sql, "--columns", "n")[0] == 2
    assert cli(*query, "--sql", sql, "--interval", "2026-11-21/P1D")[0] == 2
    (tmp_path / "1.parquet").write_text("torn")
    # The first file has enough rows.
    assert parsed(cli(*query)) == [{"at": "2026-11-20T12:00:00Z", "n": 1}]
    code, _, err = cli("dataset", "query", "flights")
    assert code == 78
    assert "worker.datasets_dir" in err
    (tmp_path / "0.parquet").unlink()
    assert cli("dataset", "query", "flights")[0] == 78
    monkeypatch.setattr("operations.datasets.MOST_SEGMENTS", 1)
    code, _, err = cli(*query)
    assert code == 2
    assert "more than 1 segments" in err
