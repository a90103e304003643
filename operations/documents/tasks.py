"""Rendered parameters as a document: the fields of `orcaflow task render -o json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.store.people.views import TaskInstanceView
    from operations.rendering import Rendered


def rendered_row(task: TaskInstanceView, rendered: Rendered) -> dict[str, object]:
    """The parameters of an attempt, and its texts with the parameters put in."""
    return {
        "id": task.id,
        "name": task.name,
        "task_type": task.task_type,
        "moment": rendered.moment,
        "parameters": rendered.parameters,
        "origins": rendered.origins,
        "params": rendered.params,
        "put_out": rendered.put_out,
    }
