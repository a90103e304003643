"""`resourceList`: files that a task finds in its directory under their own names.

A resource is a file on the worker, named by an absolute path or below `$ORCAFLOW_HOME/resources`.
It is linked and not copied, since jars are large; only a user's own resource is copied for a tenant
(`worker.launching.user_files`). A name can't lead out of the attempt's directory.
"""

from __future__ import annotations

import filecmp
from pathlib import Path

from common.model.task_type import RESOURCE_LIST, read_resource, read_resources
from worker.launching.base import TaskContext, TaskParameterError, fault_at
from worker.launching.user_files import copy_file
from worker.workspace import may_read_file


def fetch_resources(context: TaskContext) -> None:
    """Put the files of `resourceList` into the attempt's directory."""
    with fault_at(RESOURCE_LIST.name):
        names = read_resources(context.params.get(RESOURCE_LIST.name))
    for index, name in enumerate(names):
        link_resource(context, f"{RESOURCE_LIST.name}[{index}]", name)


def resource_name(key: str, entry: object) -> str:
    """Return the name of a resource that stands at `params.<key>`."""
    with fault_at(key):
        return read_resource(entry)


def link_resource(context: TaskContext, key: str, name: str) -> Path:
    """Link one file into the attempt's directory under its own name; return the link's path."""
    name = context.substitute(name)
    if "\0" in name:
        raise TaskParameterError(f"params.{key} has a NUL character")
    source = resource_path(context, key, name)
    own = context.user_file(source)
    if own is None and not may_read_file(context.account, source):
        raise context.no_file(key, source)
    context.check_digest(key, name, source, is_readable=own is not None)
    target = context.directory / source.name
    try:
        if own is None or context.account is None:
            target.symlink_to(source)
        else:
            copy_file(own, target, context.account)
    except FileExistsError as error:
        is_same = source.resolve() == target.resolve() or (
            own is not None and target.is_file() and filecmp.cmp(own, target, shallow=False)
        )
        if not is_same:
            raise TaskParameterError(
                f"params.{key}: another file has the name {source.name} already"
            ) from error
    return target


def resource_path(context: TaskContext, key: str, name: str) -> Path:
    """Return the path of a resource: absolute, or below the resources' own directory."""
    path = Path(name)
    if ".." in path.parts and not path.is_absolute():
        raise TaskParameterError(f"params.{key}: {name} may not lead out of the resources")
    return context.resources / path
