"""Worker groups as documents: the fields of `orcaflow worker-group … -o json`."""

from __future__ import annotations

from operations.worker_groups import WorkerGroup


def group_row(group: WorkerGroup) -> dict[str, object]:
    """A group; `members` is null if ZooKeeper does not tell which workers are alive."""
    view, members = group.view, group.members
    return {
        "id": view.id,
        "name": view.name,
        "addresses": list(view.addresses),
        "workers": None if members is None else len(members),
        "create_time": view.create_time,
        "members": None
        if members is None
        else [{"address": each.address, "known_by": each.known_by.value} for each in members],
    }
