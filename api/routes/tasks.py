"""Attempts at tasks: shown, explained, and declared good."""

from __future__ import annotations

from typing import Any, Final

from api.answers import CauseList, Rendered, Task, state_of
from api.asking import Asked
from api.route import Id, Route, get, post
from common.clock import SystemClock
from common.errors import (
    NotAllowedError,
    NotFoundError,
    SchedulerError,
    ServiceUnreachableError,
)
from common.store.people.views import TaskInstanceView
from operations.documents.causes import cause_rows
from operations.documents.instances import task_row
from operations.documents.tasks import rendered_row
from operations.explaining import causes_of_task_instance
from operations.tasks import find_task, force_success, render_task

_clock = SystemClock()


def show_attempt(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show an attempt at a task."""
    return _row(find_task(session, id))


def explain_attempt(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Explain why an attempt is not done."""
    return {"items": cause_rows(causes_of_task_instance(session, id))}


def render(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Show the parameters of an attempt, and its texts with the parameters put in.

    Values of names that sound secret are masked.
    """
    try:
        return rendered_row(*render_task(session, id))
    except (NotFoundError, ServiceUnreachableError):
        raise
    except SchedulerError as error:
        # The row holds what can't be read; the request is as it should be.
        raise NotAllowedError(str(error)) from error


def force(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Declare a failed attempt of an ended run to be a success, or pass a DEPENDENT that waits.

    A recovery continues a run after a failed attempt. A run with a DEPENDENT needs none.
    """
    return _row(force_success(session, id))


def _row(view: TaskInstanceView) -> dict[str, object]:
    row = task_row(view, now=_clock.now())
    return row | {"state": state_of(row)}


ROUTES: Final[tuple[Route, ...]] = (
    get("/tasks/{id}", show_attempt, Task, is_quick=True),
    get("/tasks/{id}/render", render, Rendered),
    get("/tasks/{id}/why", explain_attempt, CauseList),
    post("/tasks/{id}/force-success", force, Task),
)
