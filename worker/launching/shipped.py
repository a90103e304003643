"""Files that a Spark program gets along with it: named as resources, or where Spark itself reads.

A key holds a list, or text like `a,b`. A name with `://` is left alone; any other is one of the
attempt's resources, or a file on the worker as in `resourceList`. An archive, or a file, may say
after a `#` what it is to be called.
"""

from __future__ import annotations

from pathlib import Path

from worker.launching.base import TaskContext, TaskParameterError
from worker.launching.resources import link_resource, resource_name


def shipped_files(context: TaskContext, key: str) -> list[str]:
    """The files of one key, as Spark takes them: paths that are there, or URLs."""
    given = context.params.get(key) or []
    entries = given.split(",") if isinstance(given, str) else given
    if not isinstance(entries, list):
        raise TaskParameterError(f"params.{key} must be a list of files")
    files = []
    for index, entry in enumerate(entries):
        place = f"{key}[{index}]"
        whole = context.substitute(resource_name(place, entry))
        if "," in whole or not whole.isprintable():
            raise TaskParameterError(f"params.{place} has a comma or a control character")
        name, sign, alias = whole.partition("#")
        files.append(f"{local_file(context, place, name)}{sign}{alias}")
    return files


def local_file(context: TaskContext, place: str, name: str) -> str:
    """One file, its name with parameters put in; `params.<place>` is where it was named."""
    if "://" in name:
        return name  # In a file system that Spark itself reads, as hdfs:// or s3a://.
    given = context.directory / name
    if not Path(name).is_absolute() and ".." not in given.parts and given.is_file():
        return str(given)  # One of the resources.
    return str(link_resource(context, place, name))
