"""`resourceList`: files that a task finds in its directory under their own names.

A resource is a file on the worker, named by an absolute path or below `$ORCAFLOW_HOME/resources`.
It is linked and not copied, since jars are large. A name can't lead out of the attempt's directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from worker.launching.base import TaskContext, TaskParameterError


def fetch_resources(context: TaskContext) -> None:
    """Put what `resourceList` names into the attempt's directory."""
    listed = context.params.get("resourceList") or []
    if not isinstance(listed, list):
        raise TaskParameterError("params.resourceList must be a list")
    for index, entry in enumerate(listed):
        key = f"resourceList[{index}]"
        link_resource(context, key, resource_name(key, entry))


def resource_name(key: str, entry: object) -> str:
    """The name in `{"res": …}`, or in the later forms `{"resourceName": …}` and plain text."""
    if isinstance(entry, Mapping):
        name = entry.get("res") or entry.get("resourceName")
        if not name and entry.get("id") is not None:
            raise TaskParameterError(
                f"params.{key} names a resource by its id only; give its path as 'res'"
            )
    else:
        name = entry
    if not isinstance(name, str) or not name.strip():
        raise TaskParameterError(f"params.{key} needs the path of a file as 'res'")
    return name.strip()


def link_resource(context: TaskContext, key: str, name: str) -> Path:
    """Link one file into the attempt's directory under its own name; the path of the link."""
    name = context.substitute(name)
    if "\0" in name:
        raise TaskParameterError(f"params.{key} has a NUL character")
    source = resource_path(context, key, name)
    if not source.is_file():
        raise TaskParameterError(f"params.{key}: there is no file {source} on this worker")
    target = context.directory / source.name
    try:
        target.symlink_to(source)
    except FileExistsError as error:
        if source.resolve() != target.resolve():
            raise TaskParameterError(
                f"params.{key}: another file has the name {source.name} already"
            ) from error
    return target


def resource_path(context: TaskContext, key: str, name: str) -> Path:
    """The path of a resource, which is absolute or below the resources' own directory."""
    path = Path(name)
    if ".." in path.parts and not path.is_absolute():
        raise TaskParameterError(f"params.{key}: {name} may not lead out of the resources")
    return context.resources / path
