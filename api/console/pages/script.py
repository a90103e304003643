"""The script of an attempt, with the parameters put in, and where their values come from."""

from __future__ import annotations

import json
from typing import Final

from fastapi import Response

from api.console import looks
from api.console.highlighting import highlighted
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.policy import Policy
from common.errors import NotFoundError, SchedulerError, ServiceUnreachableError
from common.model.rights import Action
from operations.tasks import find_task, render_task

_SCRIPTS: Final = ("rawScript", "sql")


def show(visit: Visit) -> Response:
    """Show the script as the worker renders it; values that sound secret are masked."""
    task = find_task(visit.session, visit.id)
    found, told = None, None
    try:
        _, found = render_task(visit.session, visit.id)
    except (NotFoundError, ServiceUnreachableError):
        raise
    except SchedulerError as error:
        told = str(error)
    params = {} if found is None else dict(found.params)
    key = next((each for each in _SCRIPTS if isinstance(params.get(each), str)), None)
    script = None if key is None else params.pop(key)
    return rendered(
        "script.html",
        zone=visit.session.zone,
        visit=visit,
        task=task,
        look=looks.of_task(task.state),
        told=told,
        pieces=[] if script is None else highlighted(script, task.task_type),
        parameters=[]
        if found is None
        else [
            (name, value, found.origins.get(name, "")) for name, value in found.parameters.items()
        ],
        put_out=[] if found is None else list(found.put_out.items()),
        params=json.dumps(params, indent=2, ensure_ascii=False) if params else "",
    )


PAGES: Final = (page("/tasks/{id}/script", Policy(takes=Action.VIEW, thing="task"), show),)
