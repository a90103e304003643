"""Attempts at tasks and their logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi.responses import StreamingResponse

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status, page
from api.dolphinscheduler.instances import shown_task
from api.dolphinscheduler.table import Row
from common.model.rights import Action
from common.store.people.rights import Thing
from operations import numbered_pages
from operations.errors import UsageError
from operations.projects import check_in
from operations.task_log import LogElsewhereError, LogMissingError
from operations.tasks import find_task, force_success
from operations.worker_calls import WorkerCallError
from operations.worker_logs import opened_anywhere

_MOST_LINES: Final = 100_000
_MOST_CHARACTERS: Final = 10_000_000
_DEFAULT_LINES: Final = 100
_TASK: Final = ("taskInstanceId", "taskInstId")


def list_page(call: Call) -> dict[str, Any]:
    """List the valid attempts of a project's runs page by page, the newest first."""
    number, size = call.page_number, call.page_size
    run = call.number(*call.worded("InstanceId")) or None
    if run is not None:
        check_in(call.session, call.project, Thing.INSTANCE, [run])
    found, total = numbered_pages.tasks(
        call.session,
        call.project.id,
        number,
        size,
        process_instance_id=run,
        states=_states(call),
        search=call.text("taskName", "searchVal"),
        since=call.moment("startDate"),
        until=call.moment("endDate", ends_day=True),
    )
    ids = {task.process_instance_id for task in found}
    runs = numbered_pages.run_names(call.session, ids)
    rows = [shown_task(call, each, runs.get(each.process_instance_id)) for each in found]
    return page(rows, total=total, number=number, size=size)


def force(call: Call) -> None:
    """Declare a failed attempt of an ended run to be a success."""
    number = call.needed_number("id")
    check_in(call.session, call.project, Thing.TASK, [number], action=Action.OPERATE)
    force_success(call.session, number)


def stop(call: Call) -> None:
    """Refuse to stop a task alone."""
    number = call.needed_number("id")
    check_in(call.session, call.project, Thing.TASK, [number], action=Action.OPERATE)
    run = find_task(call.session, number).process_instance_id
    raise RefusedError(
        Status.INTERNAL,
        f"a task is not stopped alone here; stop its run: POST /api/v1/instances/{run}/stop",
    )


def show_log(call: Call) -> Any:
    """Show some lines of a log: as text in 1.x, from then on with their number and a first line.

    Lines end as they do there.
    """
    number = _given(call)
    skip = call.number("skipLineNum", default=0) or 0
    limit = call.number("limit", default=_DEFAULT_LINES) or 0
    if skip < 0:
        raise UsageError("skipLineNum", "is a whole number from 0")
    # -1 means all of it there.
    lines = _lines(call, number, skip, _MOST_LINES if limit < 0 else min(limit, _MOST_LINES))
    text = "".join(f"{line}\r\n" for line in lines)
    if call.dialect.is_classic:
        return text
    if skip == 0:
        task = find_task(call.session, number)
        text = f"[LOG-PATH]: {task.log_path}, [HOST]:  {task.host or ''}\n{text}"
    return {"lineNum": len(lines), "message": text}


def download_log(call: Call) -> StreamingResponse:
    """Send a whole log as it is."""
    number = _given(call)
    pieces = _pieces(call, number)
    # What is wrong with the log shows with its first piece, while there is an answer to give.
    first = next(pieces, "")

    def whole() -> Iterator[bytes]:
        yield first.encode("utf-8", "replace")
        for each in pieces:
            yield each.encode("utf-8", "replace")

    return StreamingResponse(
        whole(),
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{number}.log"'},
    )


def _lines(call: Call, number: int, skip: int, most: int) -> list[str]:
    """Return the lines behind those that are skipped, within bounds of number and size."""
    found: list[str] = []
    size = seen = 0
    rest = ""
    for piece in _pieces(call, number):
        *whole, rest = (rest + piece).split("\n")
        if len(rest) > _MOST_CHARACTERS:
            whole, rest = [*whole, rest], ""
        for line in whole:
            seen += 1
            if seen <= skip:
                continue
            size += len(line)
            if len(found) >= most or (found and size > _MOST_CHARACTERS):
                return found
            found.append(line)
    if rest and seen >= skip and len(found) < most:
        found.append(rest)
    return found


def _pieces(call: Call, number: int) -> Iterator[str]:
    task = find_task(call.session, number)
    try:
        with opened_anywhere(call.session, task) as log:
            yield from log.rest()
    except (LogMissingError, LogElsewhereError, WorkerCallError) as error:
        raise RefusedError(Status.LOG, more=str(error)) from error


def _given(call: Call) -> int:
    number = call.needed_number(*_TASK)
    find_task(call.session, number)
    if "project" in call.path:
        check_in(call.session, call.project, Thing.TASK, [number])
    return number


def _states(call: Call) -> list[int]:
    given = call.text("stateType")
    if given is None:
        return []
    found = call.dialect.task_states_named(given.upper())
    if not found:
        raise UsageError("stateType", f"{given!r:.60} is no state")
    return found


_LATER: Final = "projects/{project}/task-instances"
ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=list_page,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", "projects/{project}/task-instance/list-paging"),
        later=("GET", _LATER),
    ),
    Row(
        serve=force,
        takes=Action.OPERATE,
        thing=Thing.TASK,
        later=("POST", f"{_LATER}/{{id}}/force-success"),
        refused=Status.FORCE_SUCCESS,
    ),
    Row(
        serve=stop,
        takes=Action.OPERATE,
        thing=Thing.TASK,
        later=("POST", f"{_LATER}/{{id}}/stop"),
    ),
    Row(
        serve=show_log,
        takes=Action.VIEW,
        thing=Thing.TASK,
        classic=("GET", "log/detail"),
        later=("GET", "log/detail"),
        refused=Status.LOG,
    ),
    Row(
        serve=show_log,
        takes=Action.VIEW,
        thing=Thing.TASK,
        later=("GET", "log/{project}/detail"),
        refused=Status.LOG,
    ),
    Row(
        serve=download_log,
        takes=Action.VIEW,
        thing=Thing.TASK,
        classic=("GET", "log/download-log"),
        later=("GET", "log/download-log"),
        refused=Status.DOWNLOAD_LOG,
    ),
    Row(
        serve=download_log,
        takes=Action.VIEW,
        thing=Thing.TASK,
        later=("GET", "log/{project}/download-log"),
        refused=Status.DOWNLOAD_LOG,
    ),
)
