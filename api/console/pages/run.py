"""A run: its graph, its attempts along time and as a list, its parameters, its orders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console import looks
from api.console.application import application_of
from api.console.differences import shown
from api.console.graph import BOX, Graph, Task, graph_of
from api.console.history import History, Ordered, Ran, Tried, history_of
from api.console.parts import HEADER
from api.console.rendering import rendered
from api.console.since import ShownSince, since
from api.console.table import Serve, Visit, order, page, unknown
from api.console.timeline import SCALE, Attempt, bars_of
from api.console.words import Say, span_text
from api.policy import Policy
from common.clock import SystemClock
from common.model.command_param import LATEST
from common.model.commands import CommandType
from common.model.rights import Action
from common.model.states import TERMINAL_PROCESS_CODES, ProcessState, TaskDependType, TaskState
from common.store.people.rights import Thing
from common.store.people.views import ProcessInstanceView, TaskInstanceView
from operations.documents.causes import cause_rows
from operations.documents.instances import date_fields, instance_row, parameter_fields, task_row
from operations.errors import UsageError
from operations.explaining import explain_instance
from operations.instance_commands import execute_tasks, put_command
from operations.instance_commands import recover as put_recovery
from operations.instances import dag_of, find_instance, instance_detail
from operations.rights import may
from operations.run_changes import changes_since_good
from operations.run_orders import orders_of
from operations.run_versions import compare_with_latest
from operations.tasks import force_success, list_tasks

_VIEWS: Final = ("graph", "timeline", "list", "parameters", "history")
_MOST_ATTEMPTS: Final = 10_000
_DEPENDENT: Final = "DEPENDENT"
_MOST_NAMED: Final = 200
"""The tasks that a list names; the number of the others is shown."""
_OPERATE: Final = Policy(takes=Action.OPERATE, thing="instance")
_clock = SystemClock()

# The first is what one would do next.
_VERBS: Final[Mapping[ProcessState, tuple[str, ...]]] = {
    ProcessState.PAUSE: ("resume", "rerun"),
    ProcessState.STOP: ("resume", "rerun"),
    ProcessState.FAILURE: ("recover", "rerun"),
    ProcessState.SUCCESS: ("rerun",),
}
_OF_LIVE: Final = ("pause", "stop")
_PRIMARY: Final = frozenset({"resume", "recover"})


def show(visit: Visit) -> Response:
    """Show a run; `view` is one of its sides, `task` the one that is looked at."""
    view = visit.query.get("view", "graph")
    if view not in _VIEWS:
        raise unknown(visit, "view", view, _VIEWS)
    session, now = visit.session, _clock.now()
    detail = instance_detail(session, visit.id, with_tasks=False)
    attempts = list_tasks(
        session, process_instance_id=visit.id, valid_only=False, limit=_MOST_ATTEMPTS
    )
    newest = _newest(attempts)
    dag = dag_of(session, visit.id)
    names = dag.names if dag is not None else tuple(newest)
    chosen = visit.query.get("task", "")
    chosen_task = task_row(newest[chosen], now=now) if chosen in newest else None
    state = detail.instance.state
    graph = None
    if view == "graph" and dag is not None:
        graph = graph_of(dag, {name: _task(each, visit.said) for name, each in newest.items()})
    return rendered(
        "run.html",
        zone=session.zone,
        visit=visit,
        view=view,
        run=instance_row(detail.instance, now=now) | date_fields(detail),
        version=detail.instance.version,
        newer=detail.instance.latest_version if detail.instance.has_newer_version else None,
        since=_since(visit, detail.instance, attempts) if view == "graph" else None,
        look=looks.of_run(state, detail.instance.wanted_state),
        is_live=state not in TERMINAL_PROCESS_CODES,
        verbs=_verbs(visit, state),
        primary=_PRIMARY,
        task_verbs=_task_verbs(visit, state, newest.get(chosen)),
        shares=_shares(names, newest),
        graph=graph if isinstance(graph, Graph) else None,
        ranks=None if isinstance(graph, Graph) else graph,
        box=BOX,
        scale=SCALE,
        bars=bars_of(
            [
                _attempt(each)
                for each in sorted(attempts, key=lambda each: (each.submit_time or now, each.id))
            ],
            start=detail.instance.start_time,
            end=detail.instance.end_time or now,
        )
        if view in ("graph", "timeline")
        else (),
        tasks=[
            (name, task_row(newest[name], now=now) if name in newest else None, _look(newest, name))
            for name in names
        ],
        history=_history(visit, detail.instance, attempts) if view == "history" else None,
        parameters=_parameters(parameter_fields(detail)) if view == "parameters" else {},
        chosen=chosen,
        chosen_task=chosen_task,
        application=None if chosen_task is None else application_of(chosen_task),
        chosen_look=_look(newest, chosen),
        # A function, since to explain takes longer than all the rest: only the panel asks.
        causes=lambda: (
            cause_rows(explain_instance(session, visit.id, task=chosen or None).causes)
            if chosen in names or (not chosen and state != ProcessState.SUCCESS)
            else []
        ),
    )


def _since(
    visit: Visit, run: ProcessInstanceView, attempts: Sequence[TaskInstanceView]
) -> ShownSince | None:
    """Return the changes since the last good run; none for an open page, which keeps its own."""
    if HEADER in visit.request.headers:
        return None
    found = changes_since_good(visit.session, run, attempts, now=_clock.now())
    return None if found is None else since(found.good, found.changes)


def _history(
    visit: Visit, run: ProcessInstanceView, attempts: Sequence[TaskInstanceView]
) -> History:
    """Return what happened, with the orders of people."""
    ran = Ran(
        state=run.state,
        start_time=run.start_time,
        end_time=run.end_time,
        host=run.host,
        note=run.state_reason,
    )
    tried = [
        Tried(
            id=each.id,
            name=each.name,
            number=each.attempt,
            state=each.state,
            start_time=each.start_time,
            end_time=each.end_time,
            host=each.host,
            note=each.failure_reason or each.reason,
        )
        for each in attempts
    ]
    orders = [
        Ordered(
            at=each.at,
            verb=each.action.partition(".")[2],
            by=each.user_name,
            attempt=each.task_instance_id,
            note=each.detail,
        )
        for each in orders_of(visit.session, run.id)
    ]
    return history_of(ran, tried, orders)


def _newest(attempts: Sequence[TaskInstanceView]) -> dict[str, TaskInstanceView]:
    """Return the valid attempt of each task, or its last."""
    newest: dict[str, TaskInstanceView] = {}
    for each in sorted(attempts, key=lambda each: (each.valid, each.id)):
        newest[each.name] = each
    return newest


def _task(view: TaskInstanceView, say: Say) -> Task:
    row = task_row(view, now=_clock.now())
    told = view.failure_reason or span_text(row["duration"], say)  # type: ignore[arg-type]  # A span.
    return Task(state=view.state, second=f"{view.task_type} · {told}" if told else view.task_type)


def _attempt(view: TaskInstanceView) -> Attempt:
    return Attempt(
        name=view.name,
        number=view.attempt,
        state=view.state,
        submit_time=view.submit_time,
        start_time=view.start_time,
        end_time=view.end_time,
    )


def _look(newest: Mapping[str, TaskInstanceView], name: str) -> looks.Look:
    return looks.of_task(newest[name].state if name in newest else None)


def _shares(
    names: Sequence[str], newest: Mapping[str, TaskInstanceView]
) -> list[tuple[looks.Look, int]]:
    """Count tasks by their look, those that are done first."""
    order_of = ("success", "running", "failure", "paused", "ink-2", "waiting")
    counts = Counter(_look(newest, name) for name in names)
    return sorted(counts.items(), key=lambda each: (order_of.index(each[0].colour), each[0].word))


def _parameters(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the documents of a run's parameters, set out."""
    shown = {}
    for name, text in fields.items():
        if not isinstance(text, str) or not text:
            continue
        try:
            shown[name] = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            shown[name] = text
    return shown


def _verbs(visit: Visit, state: int) -> tuple[str, ...]:
    if not may(visit.session, Action.OPERATE, Thing.INSTANCE, visit.id):
        return ()
    try:
        return _VERBS.get(ProcessState(state), _OF_LIVE)
    except ValueError:
        return ()


def _task_verbs(visit: Visit, state: int, task: TaskInstanceView | None) -> tuple[str, ...]:
    """Return the verbs for the chosen task: for any once its run has ended, and to pass a wait."""
    if task is None:
        return ()
    waits = task.task_type == _DEPENDENT and task.state == TaskState.RUNNING
    is_live = state not in TERMINAL_PROCESS_CODES
    if is_live and not (waits and state == ProcessState.RUNNING):
        return ()
    if not may(visit.session, Action.OPERATE, Thing.INSTANCE, visit.id):
        return ()
    if is_live:
        return ("pass",)
    has_failed = task.state in (TaskState.FAILURE, TaskState.KILL)
    return ("execute", "force-success") if has_failed else ("execute",)


def show_latest(visit: Visit) -> Response:
    """Show what the latest version of the definition changes for a run, and offer to take it."""
    found = compare_with_latest(visit.session, visit.id)
    run = find_instance(visit.session, found.process_instance_id)
    return rendered(
        "run_latest.html",
        zone=visit.session.zone,
        visit=visit,
        run=run,
        found=found,
        difference=shown(found.difference),
        verbs=_verbs(visit, run.state) if run.state in TERMINAL_PROCESS_CODES else (),
        primary=_PRIMARY,
        most=_MOST_NAMED,
    )


def execute(visit: Visit) -> Response:
    """Run one task of an ended run again."""
    task = visit.form.get("task", "")
    execute_tasks(visit.session, visit.id, task, TaskDependType.TASK_ONLY)
    return RedirectResponse(f"/runs/{visit.id}?task={quote(task)}", status_code=303)


def declare_good(visit: Visit) -> Response:
    """Declare a failed attempt to be a success."""
    made = force_success(visit.session, visit.id)
    place = f"/runs/{made.process_instance_id}?task={quote(made.name)}"
    return RedirectResponse(place, status_code=303)


def _ordered(kind: CommandType | None) -> Serve:
    """Return what carries a verb out; without a kind of command it goes on where the run ended."""

    def carry_out(visit: Visit) -> Response:
        version = visit.form.get("version", "")
        if version not in ("", LATEST):
            raise UsageError("version", f"{version!r:.50} is not {LATEST!r}")
        takes_latest = version == LATEST
        if kind is None:
            put_recovery(visit.session, visit.id, takes_latest=takes_latest)
        else:
            put_command(visit.session, visit.id, kind, takes_latest=takes_latest)
        return RedirectResponse(f"/runs/{visit.id}", status_code=303)

    return carry_out


PAGES: Final = (
    page("/runs/{id}", Policy(takes=Action.VIEW, thing="instance"), show),
    page(
        "/runs/{id}/latest", Policy(takes=Action.VIEW, thing="instance"), show_latest, is_heavy=True
    ),
    order("/runs/{id}/stop", _OPERATE, _ordered(CommandType.STOP)),
    order("/runs/{id}/pause", _OPERATE, _ordered(CommandType.PAUSE)),
    order("/runs/{id}/resume", _OPERATE, _ordered(CommandType.RECOVER_SUSPENDED_PROCESS)),
    order("/runs/{id}/rerun", _OPERATE, _ordered(CommandType.REPEAT_RUNNING)),
    order("/runs/{id}/recover", _OPERATE, _ordered(None)),
    order("/runs/{id}/execute", _OPERATE, execute),
    order("/tasks/{id}/force-success", Policy(takes=Action.OPERATE, thing="task"), declare_good),
)
