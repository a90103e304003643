"""The form that begins a run or a complement: typed parameters, a look ahead, then the order.

A field that is left empty keeps what the definition says. The look ahead has a key, so that a form
that is sent twice begins one run.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import waiting
from api.console.rendering import rendered
from api.console.table import Visit, order, page, unknown
from api.policy import Policy
from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.masking import MASK, is_secret
from common.model.complement_states import Reprocess, RunOrder
from common.model.date_rules import DateRule
from common.model.rights import Action
from common.model.states import FailureStrategy, Priority, TaskDependType
from common.params.properties import DataType, Property
from operations import complementing
from operations.complement_plans import ComplementPlan
from operations.complementing import ComplementOptions
from operations.environments import list_environments
from operations.errors import ForbiddenError, UsageError
from operations.run_plans import RunPlan, plan_run, shown_params
from operations.runs import begin_run
from operations.start_params import params_of
from operations.worker_groups import group_names

_OPERATE: Final = Policy(takes=Action.OPERATE, thing="definition")
_PARAM: Final = "param:"
WAIT_SECONDS: Final = 3.0
_SHOWN_TASKS: Final = 12
_SHOWN_DATES: Final = 3
_MOST_PARALLEL: Final = 1000
_KINDS: Final[Mapping[DataType, str]] = {
    DataType.INTEGER: "number",
    DataType.LONG: "number",
    DataType.FLOAT: "number",
    DataType.DOUBLE: "number",
    DataType.DATE: "date",
    DataType.TIME: "time",
    DataType.TIMESTAMP: "datetime-local",
}
_DEFAULTS: Final[Mapping[str, str]] = {
    "--parallel": "1",
    "--order": "ascending",
    "--reprocess": "all",
    "--priority": "medium",
    "--failure-strategy": "continue",
}
"""Of the command line."""
_WHOLE: Final = frozenset({DataType.INTEGER, DataType.LONG})
_clock = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter as a field of the form; `resolved` is the value of its default today."""

    name: str
    key: str
    type: str
    kind: str
    step: str
    default: str
    resolved: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A run as the form asks for it; `first` makes it a complement."""

    params: Mapping[str, str]
    date: str | None
    start_nodes: str | None
    depend: TaskDependType
    failure_strategy: FailureStrategy
    priority: Priority
    worker_group: str | None
    environment: str | None
    first: str | None
    last: str | None
    parallelism: int
    reprocess: Reprocess
    order: RunOrder
    date_rule: DateRule | None


def show(visit: Visit) -> Response:
    """Show the form."""
    return _form(visit, plan_run(visit.session, visit.id, now=_clock.now()), visit.query)


def check(visit: Visit) -> Response:
    """Show what would begin; a mistake leads back to the form with what was typed."""
    now = _clock.now()
    whole = plan_run(visit.session, visit.id, now=now)
    try:
        asked = _asked(visit, whole.declared)
        plan = plan_run(
            visit.session,
            visit.id,
            now=now,
            params=asked.params,
            date=asked.date,
            start_nodes=asked.start_nodes,
            depend=asked.depend,
        )
        plans = () if asked.first is None else _complements(visit, asked)
    except UsageError as mistake:
        return _form(visit, whole, visit.form, mistake=_text(mistake))
    except NotFoundError as mistake:
        return _form(visit, whole, visit.form, mistake=str(mistake))
    dates = [plan.new.dates for plan in plans]
    given = {name: value for name, value in visit.form.items() if value and name != "csrf_token"}
    return rendered(
        "begin_check.html",
        zone=visit.session.zone,
        visit=visit,
        # The page repeats a typed secret in its form, so the browser must not store the page.
        keeps=not any(map(is_secret, asked.params)),
        definition=plan.definition,
        plan=replace(plan, params=shown_params(plan.params)),
        tasks=plan.tasks[:_SHOWN_TASKS],
        asked=asked,
        complements=plans,
        shown_dates=[(each[:_SHOWN_DATES], each[_SHOWN_DATES:][-1:], len(each)) for each in dates],
        given={**given, "once": secrets.token_hex(16)},
        command=_command(plan, asked),
    )


def begin(visit: Visit) -> Response:
    """Begin it, and go to the run or the complement."""
    whole = plan_run(visit.session, visit.id, now=_clock.now())
    try:
        place = _begun(visit, _asked(visit, whole.declared))
    except ForbiddenError:
        raise
    except UsageError as error:
        return _form(visit, whole, visit.form, mistake=_text(error))
    except (NotAllowedError, NotFoundError) as error:
        # What was typed stays, for one more try.
        return _form(visit, whole, visit.form, mistake=str(error), status=409)
    return RedirectResponse(place, status_code=303)


def _begun(visit: Visit, asked: Asked) -> str:
    """Start the run or the complement; return the path of its page."""
    session, once = visit.session, visit.once(visit.id)
    if asked.first is not None:
        made = complementing.create(session, visit.id, _options(asked), now=_clock.now(), once=once)
        return f"/complements/{made[0].id}"
    command = begin_run(
        session,
        visit.id,
        params=asked.params,
        date=asked.date,
        start_nodes=asked.start_nodes,
        depend=asked.depend,
        failure_strategy=asked.failure_strategy,
        priority=asked.priority,
        worker_group=asked.worker_group,
        environment=asked.environment,
        once=once,
    )
    run = waiting.await_instance(session, command, WAIT_SECONDS)
    return f"/definitions/{visit.id}?view=runs" if run is None else f"/runs/{run}"


def _text(mistake: UsageError) -> str:
    return ": ".join(filter(None, (mistake.field, mistake.message)))


def _form(
    visit: Visit,
    plan: RunPlan,
    given: Mapping[str, str],
    *,
    mistake: str | None = None,
    status: int = 422,
) -> Response:
    values = {each.prop: each.value for each in shown_params(plan.params)}
    return rendered(
        "begin.html",
        zone=visit.session.zone,
        visit=visit,
        status=200 if mistake is None else status,
        definition=plan.definition,
        held=plan.held,
        mistake=mistake,
        fields=[_field(each, values[each.prop]) for each in shown_params(plan.declared)],
        given={
            name: "" if name.startswith(_PARAM) and is_secret(name) else value
            for name, value in given.items()
        },
        groups=group_names(visit.session),
        environments=[each.view.name for each in list_environments(visit.session)],
        priorities=[each.name for each in Priority],
    )


def _field(declared: Property, resolved: str) -> Field:
    return Field(
        name=declared.prop,
        key=f"{_PARAM}{declared.prop}",
        type=declared.type.name,
        kind=_kind(declared),
        step="any" if declared.type in (DataType.FLOAT, DataType.DOUBLE) else "1",
        default=declared.value,
        resolved=resolved,
    )


def _kind(declared: Property) -> str:
    if declared.secret or is_secret(declared.prop):
        return "password"
    return "boolean" if declared.type is DataType.BOOLEAN else _KINDS.get(declared.type, "text")


def _asked(visit: Visit, declared: Sequence[Property]) -> Asked:
    """Read the form; `UsageError` names the field that is wrong."""
    form = visit.form
    types = {each.prop: each.type for each in declared}
    params = {
        name.removeprefix(_PARAM): _typed(visit, name.removeprefix(_PARAM), value, types)
        for name, value in form.items()
        if name.startswith(_PARAM) and value
    }
    others = params_of([each for each in form.get("params", "").splitlines() if each.strip()])
    known = sorted(set(params).intersection(others))
    if known:
        raise UsageError("params", visit.said("%(text)s is given twice", text=f"{known[0]!r:.200}"))
    text = form.get("parallelism") or "1"
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST_PARALLEL):
        raise UsageError(
            "parallelism", visit.said("must be from 1 to %(most)s", most=_MOST_PARALLEL)
        )
    if form.get("last") and not form.get("first"):
        raise UsageError(
            "first", visit.said("is missing: past dates run from the first to the last")
        )
    return Asked(
        params={**params, **others},
        date=form.get("date") or None,
        start_nodes=form.get("start_nodes") or None,
        depend=TaskDependType[_one_of(visit, "depend", "TASK_POST", TaskDependType.__members__)],
        failure_strategy=FailureStrategy[
            _one_of(visit, "failure_strategy", "CONTINUE", FailureStrategy.__members__)
        ],
        priority=Priority[_one_of(visit, "priority", "MEDIUM", Priority.__members__)],
        worker_group=form.get("worker_group") or None,
        environment=form.get("environment") or None,
        first=form.get("first") or None,
        last=form.get("last") or None,
        parallelism=int(text),
        reprocess=Reprocess(_one_of(visit, "reprocess", "all", [str(each) for each in Reprocess])),
        order=RunOrder(_one_of(visit, "order", "ascending", [str(each) for each in RunOrder])),
        date_rule=DateRule(_one_of(visit, "date_rule", "", [str(each) for each in DateRule]))
        if form.get("date_rule")
        else None,
    )


def _one_of(
    visit: Visit, name: str, default: str, known: Mapping[str, object] | Sequence[str]
) -> str:
    given = visit.form.get(name) or default
    if given not in known:
        raise unknown(visit, name, given, known)
    return given


def _typed(visit: Visit, name: str, text: str, types: Mapping[str, DataType]) -> str:
    """Return the value of a parameter as a run gets it; `UsageError` if it is not of its type."""
    kind = types.get(name, DataType.VARCHAR)
    try:
        if kind in _WHOLE:
            int(text)
        elif kind in (DataType.FLOAT, DataType.DOUBLE):
            float(text)
    except ValueError:
        given = f"{text!r:.50}"
        raise UsageError(
            name,
            visit.said("is a whole number, and not %(text)s", text=given)
            if kind in _WHOLE
            else visit.said("is a number, and not %(text)s", text=given),
        ) from None
    return text.replace("T", " ") if kind is DataType.TIMESTAMP else text


def _options(asked: Asked) -> ComplementOptions:
    return ComplementOptions(
        first=asked.first,
        last=asked.last or asked.first,
        parallelism=asked.parallelism,
        order=asked.order,
        reprocess=asked.reprocess,
        date_rule=asked.date_rule,
        start_nodes=() if asked.start_nodes is None else tuple(asked.start_nodes.split(",")),
        task_depend_type=asked.depend,
        failure_strategy=asked.failure_strategy,
        priority=asked.priority,
        worker_group=asked.worker_group,
        environment=asked.environment,
        start_params=asked.params,
    )


def _complements(visit: Visit, asked: Asked) -> list[ComplementPlan]:
    return complementing.plan(visit.session, visit.id, _options(asked))


def _command(plan: RunPlan, asked: Asked) -> str:
    """Return the line that begins the same at a terminal."""
    is_run = asked.first is None
    words = ["orcaflow", "run" if is_run else "complement", plan.definition.name]
    options: dict[str, str | None] = {
        "--date": asked.date if is_run else None,
        "--from": asked.first,
        "--to": None if is_run else asked.last or asked.first,
        "--parallel": str(asked.parallelism),
        "--order": str(asked.order),
        "--reprocess": str(asked.reprocess),
        "--date-rule": None if is_run else asked.date_rule,
        "--start-nodes": asked.start_nodes,
        "--priority": asked.priority.name.lower(),
        "--failure-strategy": asked.failure_strategy.name.lower(),
        "--worker-group": asked.worker_group,
        "--environment": asked.environment,
    }
    for option, text in options.items():
        words += [] if text is None or _DEFAULTS.get(option) == text else [option, text]
    mode = asked.depend.name.removeprefix("TASK_").lower()
    if mode != "post":
        words += ["--depend", mode] if is_run else [f"--{mode}"]
    for name, value in asked.params.items():
        words += ["--param", f"{name}={MASK if is_secret(name) else value}"]
    return shlex.join(words)


PAGES: Final = (
    page("/definitions/{id}/run", _OPERATE, show),
    order("/definitions/{id}/run/check", _OPERATE, check),
    order("/definitions/{id}/run", _OPERATE, begin),
)
