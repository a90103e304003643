"""Relative paths of sessions of Spark Connect, in the plans that are sent to the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.connect import plan as plans

from worker.spark.session import own_paths

FOLDER = Path("/attempt/7")


class Asked:
    """The folder of relative paths, and the number of times that it was wanted."""

    times = 0

    def __call__(self) -> Path | None:
        self.times += 1
        return FOLDER


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Asked:
    for of in (plans.DataSource, plans.CreateTable):
        monkeypatch.setattr(of, "plan", of.plan)
    for of in (plans.WriteOperation, plans.WriteStreamOperation):
        monkeypatch.setattr(of, "command", of.command)
    asked = Asked()
    own_paths.take_over(asked)
    return asked


def read(*paths: str, kind: str | None = None, **options: str) -> Any:
    source = plans.DataSource(format=kind, paths=list(paths), options=options)
    return source.plan(None).read.data_source  # type: ignore[arg-type]


def written(path: str | None, kind: str | None = None, **options: str) -> Any:
    operation = plans.WriteOperation(plans.DataSource())
    operation.path, operation.source, operation.options = path, kind, dict(options)
    if path is None:
        operation.table_name, operation.table_save_method = "t", "save_as_table"
    operation.mode = "append"
    return operation.command(None).write_operation  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [None, "csv", "parquet", "DELTA"])
def test_relative_paths_of_files_are_below_the_folder_of_the_attempt(
    folder: Asked, kind: str | None
) -> None:
    found = read("in/a", "/abs", "s3a://b/c", kind=kind, path="x", Other="in/a")
    assert list(found.paths) == ["file:/attempt/7/in/a", "/abs", "s3a://b/c"]
    assert dict(found.options) == {"path": "file:/attempt/7/x", "Other": "in/a"}
    assert written("out/report", kind).path == "file:/attempt/7/out/report"
    assert dict(written(None, kind, Path="t").options) == {"Path": "file:/attempt/7/t"}


def test_absolute_paths_and_names_of_tables_stay_as_they_are(folder: Asked) -> None:
    assert list(read("lake.db.t", kind="iceberg").paths) == ["lake.db.t"]
    assert written("lake.db.t", "iceberg").path == "lake.db.t"
    assert list(read("/a", "hdfs://n/a", "file:///a", kind="csv").paths) == [
        *("/a", "hdfs://n/a", "file:///a")
    ]
    # Most tasks name no relative path, and need no request to find out where files are.
    assert folder.times == 0


def test_the_checkpoint_of_a_stream_is_below_the_folder_whatever_its_format(folder: Asked) -> None:
    operation = plans.WriteStreamOperation(plans.DataSource())
    operation.write_op.format = "kafka"
    operation.write_op.options["checkpointLocation"] = "marks"
    operation.write_op.options["path"] = "topic"
    found = operation.command(None).write_stream_operation_start  # type: ignore[arg-type]
    assert dict(found.options) == {"checkpointLocation": "file:/attempt/7/marks", "path": "topic"}


def session(**settings: str) -> Callable[[], Any]:
    def get(key: str, default: str | None = None) -> str | None:
        return settings.get(key.rpartition(".")[2], default)

    return lambda: SimpleNamespace(conf=SimpleNamespace(get=get))


@pytest.mark.parametrize(
    ("settings", "is_here"),
    [
        ({"master": "local[2]"}, True),
        ({"master": "local[2]", "defaultFS": "file:///"}, True),
        ({"master": "local[2]", "defaultFS": "hdfs://n:8020"}, False),
        ({"master": "spark://m:7077"}, False),
    ],
)
def test_paths_are_left_to_spark_where_files_or_executors_are_elsewhere(
    settings: dict[str, str], is_here: bool
) -> None:
    assert own_paths.folder_of(session(**settings), FOLDER) == (FOLDER if is_here else None)


def test_a_site_file_names_the_default_file_system(tmp_path: Path) -> None:
    site = tmp_path / "core-site.xml"
    assert not own_paths.has_files_elsewhere(site)
    for name, value, elsewhere in (
        ("fs.defaultFS", "hdfs://n:8020", True),
        ("fs.default.name", " s3a://b ", True),
        ("fs.defaultFS", "file:///", False),
        ("fs.s3a.endpoint", "http://s3", False),
    ):
        site.write_text(f"<property>\n<name>{name}</name>\n <value>{value}</value></property>")
        assert own_paths.has_files_elsewhere(site) is elsewhere, (name, value)
