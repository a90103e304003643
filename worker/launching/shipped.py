"""Files that a Spark program gets along with it: named as resources, or where Spark itself reads.

A key holds a list, or text like `a,b`. A name with `://` is left alone; any other is one of the
attempt's resources, or a file on the worker as in `resourceList`. An archive, or a file, may say
after a `#` what it is to be called.
"""

from __future__ import annotations

from pathlib import Path

from common.model.task_type import read_entries, read_resource
from worker.launching.base import TaskContext, fault_at
from worker.launching.keys import check_shipped_name
from worker.launching.resources import link_resource


def shipped_files(context: TaskContext, key: str) -> list[str]:
    """Return the files of one key as Spark takes them: paths that are there, or URLs."""
    with fault_at(key):
        entries = read_entries(context.params.get(key), "files")
    files = []
    for index, entry in enumerate(entries):
        place = f"{key}[{index}]"
        with fault_at(place):
            whole = context.substitute(read_resource(entry))
            check_shipped_name(whole)
        name, sign, alias = whole.partition("#")
        files.append(f"{local_file(context, place, name)}{sign}{alias}")
    return files


def local_file(context: TaskContext, place: str, name: str) -> str:
    """Return one file; `name` has its parameters put in and stood at `params.<place>`."""
    if "://" in name:
        return name  # In a file system that Spark itself reads, as hdfs:// or s3a://.
    given = context.directory / name
    if not Path(name).is_absolute() and ".." not in given.parts and given.is_file():
        return str(given)  # One of the resources.
    return str(link_resource(context, place, name))
