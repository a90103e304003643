"""Gives relative paths of a task the folder of its attempt, where Spark has the server's.

In the forked process of a warm task. A server of Spark Connect resolves a relative path by its
working directory, which all tasks share and which is removed with the server. Here the paths of
files in plans become absolute before they are sent. Paths in the text of SQL are not changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, MutableMapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.connect import plan as plans

from worker.spark.jvm import doors
from worker.spark.jvm.installation import home_of_spark

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_FORMATS: Final = frozenset(
    {
        *("", "avro", "binaryfile", "csv", "delta", "image", "json", "libsvm", "orc", "parquet"),
        *("text", "xml"),
    }
)
"""The formats of files; "" stands for the default. A path of another format may name a table."""
_PATH: Final = frozenset({"path"})
_STREAM_PATHS: Final = frozenset({"path", "checkpointlocation"})
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DEFAULT: Final = "spark.hadoop.fs.defaultFS"
_SITE: Final = re.compile(
    r"<name>\s*fs\.default(?:FS|\.name)\s*</name>\s*<value>\s*(?!\s|file:)", re.IGNORECASE
)
_SITE_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def absolute(folder: Path | None, path: Any) -> Any:
    """Return a relative path as one below the folder; any other value as it is."""
    is_relative = isinstance(path, str) and path and not path.startswith("/")
    if folder is None or not is_relative or _SCHEME.match(path):
        return path
    return f"file:{folder}/{path}"


def take_over(folder: Callable[[], Path | None]) -> None:
    """Change the plans of Spark Connect; `folder` is called at the first relative path.

    It returns None where relative paths are left to Spark.
    """

    def made(path: str) -> str:
        is_relative = absolute(Path("/"), path) != path
        return str(absolute(folder(), path)) if is_relative else path

    def in_options(options: MutableMapping[str, str], names: frozenset[str]) -> None:
        for key in list(options):
            if key.lower() in names:
                options[key] = made(options[key])

    def read(found: Any) -> None:
        source = found.read.data_source
        if source.format.lower() in _FORMATS:
            paths = [made(each) for each in source.paths]
            del source.paths[:]
            source.paths.extend(paths)
            in_options(source.options, _PATH)

    def write(found: Any) -> None:
        target = found.write_operation
        if target.source.lower() in _FORMATS:
            if target.path:
                target.path = made(target.path)
            in_options(target.options, _PATH)

    def stream(found: Any) -> None:
        target = found.write_stream_operation_start
        of_files = target.format.lower() in _FORMATS
        if of_files and target.path:
            target.path = made(target.path)
        in_options(target.options, _STREAM_PATHS if of_files else _STREAM_PATHS - _PATH)

    def table(found: Any) -> None:
        target = found.catalog.create_table
        if target.path and target.source.lower() in _FORMATS:
            target.path = made(target.path)

    _change(plans.DataSource, "plan", read)
    _change(plans.WriteOperation, "command", write)
    _change(plans.WriteStreamOperation, "command", stream)
    _change(plans.CreateTable, "plan", table)


def folder_of(session: Callable[[], SparkSession | None], directory: Path) -> Path | None:
    """Return the folder for relative paths, None if files are elsewhere by default.

    Executors on other computers do not have the folder of the attempt either.
    """
    spark = session()
    if spark is None or not doors.is_local(spark.conf.get("spark.master") or ""):
        return None
    default = spark.conf.get(_DEFAULT, "file:") or "file:"
    return directory if default.startswith("file:") and not _site_has_files_elsewhere() else None


@cache
def _site_has_files_elsewhere() -> bool:
    names = [os.environ.get(each, "") for each in _SITE_FOLDERS]
    if home := home_of_spark("", os.environ):
        names.append(f"{home}/conf")
    return any(has_files_elsewhere(Path(each, "core-site.xml")) for each in names if each)


def has_files_elsewhere(site: Path) -> bool:
    """Return True if a file of Hadoop names another default file system than the local one."""
    try:
        text = site.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return _SITE.search(text) is not None


def _change(of: type, name: str, change: Callable[[Any], None]) -> None:
    make = getattr(of, name)

    def changed(*given: Any, **named: Any) -> Any:
        found = make(*given, **named)
        change(found)
        return found

    setattr(of, name, changed)
