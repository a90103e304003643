"""The log of an attempt: its last lines, or a piece from an offset on; scripts read further."""

from __future__ import annotations

import re
from typing import Final

from fastapi import Response

from api.console import looks
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.live.log_texts import COLOUR, viewable
from api.policy import Policy
from common.clock import SystemClock
from common.model.rights import Action
from operations.attempt_logs import LogPiece, SourceGoneError, log_end, log_piece
from operations.documents.instances import task_row
from operations.errors import UsageError
from operations.task_log import LogMissingError
from operations.tasks import find_task

_LINES: Final = 200
_PIECE: Final = 65_536
_OFFSET: Final = re.compile("[0-9]{1,15}", re.ASCII)
_clock = SystemClock()


def show(visit: Visit) -> Response:
    """Show the last lines; with `from` the piece that begins there."""
    given = visit.query.get("from")
    if given is not None and not _OFFSET.fullmatch(given):
        raise UsageError("from", visit.said("is no offset in bytes"))
    task = find_task(visit.session, visit.id)
    found, told = None, None
    try:
        found = _found(visit, None if given is None else int(given))
    except (LogMissingError, SourceGoneError) as error:
        told = str(error)
    end = 0 if found is None else found.start + len(found.body)
    return rendered(
        "log.html",
        zone=visit.session.zone,
        visit=visit,
        task=task_row(task, now=_clock.now()),
        look=looks.of_task(task.state),
        found=found,
        told=told,
        end=end,
        above=None if found is None or not found.start else max(0, found.start - _PIECE),
        below=None if found is None or end >= found.size else end,
        text="" if found is None else COLOUR.sub("", viewable(found.body, is_end=True)[0]),
    )


def _found(visit: Visit, start: int | None) -> LogPiece:
    if start is None:
        return log_end(visit.session, visit.id, lines=_LINES)
    return log_piece(visit.session, visit.id, start=start, most=_PIECE)


PAGES: Final = (page("/tasks/{id}/log", Policy(takes=Action.VIEW, thing="task"), show),)
