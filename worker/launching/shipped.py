"""Files that are shipped with a Spark program: paths, patterns, and URIs that Spark reads itself.

A key holds a list, or text like `a,b`. A path is one of the attempt's resources, or a file on the
worker as in `resourceList`; it is linked into the attempt's directory. A pattern is replaced by the
files that match it. An archive or a file may have an alias after a `#`. `docs/spark.md` has the
table of forms and deploy modes.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

from common.model.spark_paths import SparkPath, read_spark_path
from common.model.task_type import ValueFaultError, read_entries, read_resource
from worker.launching.base import TaskContext, TaskParameterError, fault_at
from worker.launching.keys import check_shipped_name
from worker.launching.patterns import matching_files
from worker.launching.resources import link_resource, resource_path
from worker.workspace import may_read_file

_MOST_MATCHES: Final = 1_000
_READ_BY_DRIVER: Final = frozenset({"mainJar", "jars", "pyFiles", "keytab"})
"""The keys with files that the driver opens. Spark ignores `local:` files in other keys."""


class Reader(Enum):
    """The process that opens the files that a task names by path."""

    DRIVER_HERE = "a driver on this worker"
    SUBMIT_HERE = "spark-submit on this worker, which uploads them for a driver elsewhere"
    DRIVER_ELSEWHERE = "a driver on a node of a standalone cluster, to which nothing is uploaded"


def shipped_files(
    context: TaskContext,
    key: str,
    reader: Reader = Reader.DRIVER_HERE,
    *,
    has_aliases: bool = True,
) -> list[str]:
    """Return the files of one key in Spark's form: paths or URIs.

    Without `has_aliases`, Spark refuses aliases, and files on this worker are linked under theirs.
    """
    with fault_at(key):
        entries = read_entries(context.params.get(key), "files")
    files = []
    for index, entry in enumerate(entries):
        place = f"{key}[{index}]"
        with fault_at(place):
            whole = context.substitute(read_resource(entry))
            check_shipped_name(whole)
        name, sign, alias = whole.partition("#")
        with fault_at(place):
            found = read_spark_path(name)
            if sign and not has_aliases:
                check_alias(whole, reader)
        if not found.is_pattern:
            matches = [local_file(context, place, name, reader)]
        else:
            matches = _matches(context, place, found, reader)
        if sign and len(matches) > 1:
            raise TaskParameterError(
                f"params.{place}: {name} matches {len(matches)} files, which can't all be named"
                f" {alias[:80]!r}"
            )
        if sign and not has_aliases:
            files.append(_renamed(context, place, matches[0], alias))
        else:
            files += [f"{each}{sign}{alias}" for each in matches]
    return files


def check_alias(name: str, reader: Reader) -> None:
    """Raise `ValueFaultError` for an alias under which no process can provide the file.

    Apart from YARN, Spark knows aliases of archives only.
    """
    path, _, alias = name.partition("#")
    if not alias or "/" in alias or alias in (".", ".."):
        raise ValueFaultError(f"{name[:80]!r} needs the name of a file behind the #")
    if reader is Reader.DRIVER_ELSEWHERE or not read_spark_path(path).is_path:
        raise ValueFaultError(
            f"{name[:80]!r} has an alias, which Spark knows for files on YARN only; give the file"
            f" itself the name {alias[:80]!r}"
        )


def _renamed(context: TaskContext, place: str, path: str, alias: str) -> str:
    """Link a file into the attempt's directory under its alias, and return its URI.

    Spark follows a link in a path, and would take the file's own name, but not a link in a URI.
    """
    target = context.directory / alias
    try:
        target.symlink_to(path)
    except FileExistsError as error:
        if target.resolve() != Path(path).resolve():
            raise TaskParameterError(
                f"params.{place}: another file has the name {alias[:80]} already"
            ) from error
    return target.as_uri()


def local_file(
    context: TaskContext, place: str, name: str, reader: Reader = Reader.DRIVER_HERE
) -> str:
    """Return one file in Spark's form; `name` is the substituted value of `params.<place>`."""
    with fault_at(place):
        found = read_spark_path(name)
    if found.scheme == "local":
        key = place.partition("[")[0]
        if reader is Reader.DRIVER_ELSEWHERE and key == "mainJar":
            # The node opens a program as a file, and knows no file system of this scheme.
            return found.path
        if reader is Reader.DRIVER_HERE and key in _READ_BY_DRIVER:
            _check_is_here(context, place, found)
        return name
    if not found.is_path:
        return name
    if reader is Reader.DRIVER_ELSEWHERE and Path(found.path).is_absolute():
        # Only that node knows if the file exists. If there is a digest, an import has found the
        # file, and its content has to be checked here.
        context.check_digest(place, found.path, Path(found.path))
        return found.path
    given = context.directory / found.path
    if not Path(found.path).is_absolute() and ".." not in given.parts and given.is_file():
        return str(given)  # One of the resources.
    try:
        return str(link_resource(context, place, found.path))
    except TaskParameterError as error:
        if reader is Reader.SUBMIT_HERE and Path(found.path).is_absolute():
            raise TaskParameterError(
                f"{error}, from where spark-submit uploads it; if every node of the cluster has"
                f" it, write local:{found.path}"
            ) from error
        raise


def _check_is_here(context: TaskContext, place: str, found: SparkPath) -> None:
    if not may_read_file(context.account, Path(found.path)):
        raise TaskParameterError(
            f"{context.no_file(place, found.path)}, where the driver runs; local: names a file that"
            " every node has, this one too"
        )


def _matches(context: TaskContext, place: str, found: SparkPath, reader: Reader) -> list[str]:
    """Return the files that a pattern matches on this worker, where spark-submit also expands it.

    Spark silently ignores a pattern without matches, so this raises `TaskParameterError` instead.
    """
    is_relative = not Path(found.path).is_absolute()
    own = context.directory / found.path
    paths: list[Path] = []
    if is_relative and ".." not in own.parts:
        paths = matching_files(own, None, limit=_MOST_MATCHES + 1)
    if paths:
        return list(map(str, paths))
    pattern = resource_path(context, place, found.path)
    paths = matching_files(pattern, context.account, limit=_MOST_MATCHES + 1)
    if not paths:
        raise TaskParameterError(f"params.{place}: no file on this worker matches {pattern}")
    if len(paths) > _MOST_MATCHES:
        raise TaskParameterError(
            f"params.{place}: {pattern} matches more than {_MOST_MATCHES:,} files"
        )
    if reader is Reader.DRIVER_ELSEWHERE and not is_relative:
        return [local_file(context, place, str(path), reader) for path in paths]
    return [str(link_resource(context, place, str(path))) for path in paths]
