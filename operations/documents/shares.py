"""Shares as documents: the fields of `orcaflow definition|dataset shares|share|unshare -o json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.store.people.shares import Share
    from operations.shares import Shared

SHARE_COLUMNS = ("project_id", "project", "user", "create_time")


def share_row(share: Share) -> dict[str, object]:
    """Return a share; `project` is null for a project that the reader may not see."""
    return {
        "project_id": share.project_id,
        "project": share.project_name,
        "user": share.user_name,
        "create_time": share.create_time,
    }


def shared_row(shared: Shared) -> dict[str, object]:
    """Return the outcome of a share, or of its end; the name of the object is below its kind."""
    return {
        shared.kind.value: shared.name,
        **({} if shared.id is None else {"id": shared.id}),
        "project": shared.project,
        "changed": shared.changed,
    }
