"""The process that reads rows of datasets: its privileges, its answers, and the files it opens."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from common.dataset_program import columns_of, open_file
from common.errors import NotAllowedError
from operations.dataset_rows import QueryError, query_rows, read_answer, read_rows
from tests.house.tree import ROOT

NOBODY = 65_534
_SHOW_STATE = """
import ctypes, json, os, resource, sys
sys.path.append(sys.argv[1])
from common.dataset_program import answer
found = answer(json.loads(sys.argv[2]), most_bytes=10_000)
try:
    opened = open(sys.argv[3]).read()
except OSError as error:
    opened = type(error).__name__
print(json.dumps({
    "rows": found.get("rows"),
    "uid": os.geteuid(),
    "no_new_privileges": ctypes.CDLL(None).prctl(39, 0, 0, 0, 0),
    "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
    "opened": opened,
}))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "datasets"
    (made / "flights").mkdir(parents=True)
    parquet.write_table(pa.table({"n": [1, 2]}), made / "flights" / "a.parquet")
    return made


def test_x84_files_of_tenants_are_parsed_without_privileges(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "postgres.password"
    secret.write_text("hunter2")
    secret.chmod(0o600)
    asked = {"root": str(root), "files": ["flights/a.parquet"], "columns": [], "limit": 9}
    done = subprocess.run(
        [sys.executable, "-I", "-c", _SHOW_STATE, str(ROOT), json.dumps(asked), str(secret)],
        capture_output=True,
        check=True,
        env={},
        cwd="/",
    )
    state = json.loads(done.stdout)
    assert state["rows"] == [[1], [2]]
    assert (state["no_new_privileges"], state["memory"]) == (1, 2 * 1024**3)
    if os.geteuid() == 0:
        assert (state["uid"], state["opened"]) == (NOBODY, "PermissionError")


def test_rows_of_several_files_have_the_columns_of_all(root: Path) -> None:
    table = pa.table({"n": [3], "at": pa.array([0], pa.timestamp("us", "Europe/Berlin"))})
    parquet.write_table(table, root / "flights" / "b.parquet")
    columns, rows, _ = read_rows(root, ["flights/a.parquet", "flights/b.parquet"], (), 9)
    assert columns == ("n", "at")
    assert [(n, at and at.timestamp()) for n, at in rows] == [(1, None), (2, None), (3, 0)]
    with pytest.raises(KeyError, match="no"):
        read_rows(root, ["flights/a.parquet"], ("no",), 9)


def test_a_query_reads_the_rows_of_all_files_with_their_types(root: Path) -> None:
    table = pa.table(
        {
            "n": [3, 4],
            "price": pa.array([Decimal("10.50"), Decimal("9.25")]),
            "at": pa.array([0, 500_000], pa.timestamp("us", "Europe/Berlin")),
            "Kind of": [["a", "b"], None],
        }
    )
    parquet.write_table(table, root / "flights" / "b.parquet")
    files = ["flights/a.parquet", "flights/b.parquet"]

    def found(sql: str, limit: int = 9) -> tuple[object, ...]:
        return query_rows(root, files, sql, limit)

    assert found("SELECT count(*) AS rows, sum(n) FROM dataset") == (
        ("rows", "sum(n)"),
        ((4, 10),),
        1,
    )
    sql = """
        SELECT n, at, json_extract("Kind of", '$[1]') AS kind FROM dataset
        WHERE price > 9.5 OR at >= '1970' ORDER BY at DESC
    """
    assert found(sql, limit=1) == (
        ("n", "at", "kind"),
        ((4, "1970-01-01T00:00:00.500000Z", None),),
        2,
    )


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT m FROM dataset", "no such column: m"),
        ("SELECT n FROM flights", "no such table: flights"),
        ("SELECT n FROM dataset; SELECT 1", "one statement"),
        ("DELETE FROM dataset", "not authorized"),
        ("ATTACH '/etc/passwd' AS other", "not authorized"),
        ("PRAGMA database_list", "not authorized"),
        ("CREATE TABLE other (n)", "not authorized"),
        ("VACUUM INTO '/tmp/other'", "authorization denied"),
        ("", "not a SELECT"),
    ],
)
def test_x84_a_query_reads_only_the_dataset(sql: str, reason: str) -> None:
    with pytest.raises(sqlite3.Error, match=reason):
        columns_of(sql, ["n"])


def test_a_query_reads_only_the_columns_that_it_names() -> None:
    names = ["n", "Kind of", "at"]
    assert columns_of('SELECT max("kind OF") FROM dataset WHERE N > 1', names) == ["n", "Kind of"]
    assert columns_of("SELECT count(*) FROM dataset", names) == []
    assert columns_of("SELECT * FROM dataset", names) == names


def test_x84_a_query_that_is_refused_names_the_reason(root: Path) -> None:
    with pytest.raises(QueryError, match="not authorized"):
        query_rows(root, ["flights/a.parquet"], "PRAGMA database_list", 9)


def test_x84_an_endless_query_is_ended(root: Path) -> None:
    endless = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n FROM x"
    with pytest.raises(NotAllowedError, match="within 1 s"):
        query_rows(root, ["flights/a.parquet"], f"SELECT count(*) FROM ({endless})", 9, seconds=1)


@pytest.mark.parametrize("name", ["link.parquet", "linked/a.parquet", "../other/a.parquet"])
def test_x84_a_link_out_of_the_folder_of_datasets_is_not_followed(
    root: Path, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    parquet.write_table(pa.table({"secret": ["hunter2"]}), other / "a.parquet")
    (root / "link.parquet").symlink_to(other / "a.parquet")
    (root / "linked").symlink_to(other)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory|not a path"):
        open_file(root, name)


def test_a_pipe_and_a_torn_file_are_refused(root: Path) -> None:
    os.mkfifo(root / "pipe.parquet")
    (root / "torn.parquet").write_text("torn")
    with pytest.raises(OSError, match="ordinary file"):
        open_file(root, "pipe.parquet")
    with pytest.raises(OSError, match="no Parquet"):
        read_rows(root, ["torn.parquet"], (), 9)


@pytest.mark.parametrize(
    "answer",
    [
        *("", "[]", "7", "{", "[" * 100_000, '{"columns": ["a"], "times": [], "rows": [[]]}'),
        *('{"columns": [1], "times": [], "rows": []}', '{"failed": 7}', '{"missing": "a"}'),
        '{"columns": ["a"], "times": [0], "rows": [["yesterday"]]}',
        '{"columns": ["a"], "times": [0], "rows": [[7]]}',
        '{"columns": ["a"], "times": [], "rows": [[{"b": 1}]]}',
        '{"columns": ["a"], "times": [], "rows": [[1]], "count": "many"}',
    ],
)
def test_x84_an_answer_of_a_broken_process_is_an_error(answer: str) -> None:
    with pytest.raises(OSError, match="the program that reads it"):
        read_answer(answer.encode())


def test_rows_that_are_too_large_are_refused() -> None:
    with pytest.raises(NotAllowedError, match="bytes"):
        read_answer(b'{"large": true}')
