"""The editor of one's draft: its tasks, the script and the attributes of one, or the whole text.

The draft is of a definition, or of one that is to be made in a project.

Each save is a form that leads back to the page, so that it works without scripts. With them the
same form is sent a moment after somebody stops typing.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console import editing
from api.console.graph import BOX, Graph, Ranks, Task, graph_of
from api.console.rendering import rendered
from api.console.subjects import KINDS, Subject, about
from api.console.table import Page, Visit, order, page, unknown
from api.console.task_inputs import FieldError
from api.policy import Policy
from common.dag import DagError, build_dag
from common.errors import InvalidDefinitionError
from common.model.rights import Action
from common.store.people.rights import Thing
from common.strict_yaml import yaml_text
from common.task_types import known_task_types
from operations.draft_texts import is_yaml, parsed
from operations.drafts import (
    Draft,
    discard_draft,
    draft,
    rebase_draft,
    save_draft,
    text_as_read,
)
from operations.errors import ChangedMeanwhileError, UsageError

_FIRST_TYPE: Final = "SHELL"
"""The type that is offered first for a new task."""
_VIEWS: Final = ("tasks", "document")
_NEW_ACTS: Final = ("save", "add", "remove", "json", "yaml", "discard")
_ACTS: Final = (*_NEW_ACTS, "rebase")


def show(visit: Visit, subject: Subject) -> Response:
    """Show one's draft: `view` is a side of it, `task` the one whose script is shown."""
    view = visit.query.get("view", "tasks")
    if view not in _VIEWS:
        raise unknown(visit, "view", view, _VIEWS)
    found = draft(visit.session, **subject.whose)
    return _page(visit, subject, found, view, visit.query.get("task"))


def save(visit: Visit, subject: Subject) -> Response:
    """Save the form, and do what its button says."""
    form = visit.form
    view, act, task = form.get("view", "tasks"), form.get("act", "save"), form.get("task")
    tag = form.get("tag")
    known = _NEW_ACTS if subject.is_new else _ACTS
    if act not in known:
        raise unknown(visit, "act", act, known)
    if not tag:
        raise UsageError("tag", visit.said("load the page again"))
    try:
        if act == "discard":
            discard_draft(visit.session, expected=tag, **subject.whose)
        elif act == "rebase":
            rebase_draft(visit.session, visit.id, expected=tag)
        elif view == "document":
            _save(visit, subject, _converted(form.get("content", ""), act), tag)
        else:
            task = _save_tasks(visit, subject, act, task, tag)
    except ChangedMeanwhileError as error:
        return _refused(visit, subject, view, task, str(error), status=409)
    except FieldError as error:
        return _refused(visit, subject, view, task, f"{error.field}: {error}", status=422)
    query = {"view": view} if view == "document" else {"task": task} if task else {}
    place = f"{subject.place}/edit"
    return RedirectResponse(f"{place}?{urlencode(query)}" if query else place, status_code=303)


def _save_tasks(visit: Visit, subject: Subject, act: str, task: str | None, tag: str) -> str | None:
    """Save the form's task on top of the text that it was made of; return the task to show."""
    text = text_as_read(visit.session, tag, **subject.whose)
    document = _document(text)
    if document is None:
        raise FieldError("draft", "it can't be read; mend it as a whole")
    if "definition" in visit.form:
        document = {**document, "name": visit.form["definition"].strip()}
    if act == "remove":
        if task is None:
            raise FieldError("task", "none is chosen")
        document, task = editing.removed(document, task), None
    else:
        if task is not None:
            document = editing.changed(document, task, visit.form)
            task = visit.form.get("name", task).strip()
        if act == "add":
            name = visit.form.get("new_type", _FIRST_TYPE)
            if name not in known_task_types():
                raise unknown(visit, "new_type", name, sorted(known_task_types()))
            document, task = editing.added(document, task, name)
    _save(visit, subject, _written(document, like=text), tag)
    return task


def _save(visit: Visit, subject: Subject, text: str, tag: str) -> None:
    save_draft(visit.session, text.encode("utf-8", "replace"), expected=tag, **subject.whose)


def _converted(content: str, act: str) -> str:
    """Return the text, in the other form if that is asked for and it can be read."""
    content = content.replace("\r\n", "\n")
    document = _document(content) if act in ("json", "yaml") else None
    if document is None:
        return content
    return _written(document, like="{" if act == "json" else "y")


def _written(document: object, *, like: str) -> str:
    if is_yaml(like):
        return yaml_text(document)
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _document(text: str) -> dict[str, Any] | None:
    try:
        found = parsed(text)
    except InvalidDefinitionError:
        return None
    is_one = isinstance(found, dict) and isinstance(found.get("processDefinitionJson"), dict)
    return found if is_one else None


def _refused(
    visit: Visit, subject: Subject, view: str, task: str | None, told: str, *, status: int
) -> Response:
    """Show the page with what was typed, which is not saved."""
    now = draft(visit.session, **subject.whose)
    return _page(visit, subject, now, view, task, told=told, status=status)


def _page(
    visit: Visit,
    subject: Subject,
    found: Draft,
    view: str,
    task: str | None,
    *,
    told: str | None = None,
    status: int = 200,
) -> Response:
    document = _document(found.content)
    nodes = [] if document is None else editing.nodes_in(document)
    names = [each["name"] for each in nodes]
    chosen = next((each for each in nodes if each["name"] == task), nodes[0] if nodes else None)
    fields = None if chosen is None else editing.fields_of(chosen)
    if told is not None and view == "tasks" and "name" in visit.form:
        fields = editing.typed(visit.form)
    if document is None:
        view = "document"
    content = found.content
    if told is not None and "content" in visit.form:
        content = visit.form["content"]
    mistakes = [each.row() for each in found.looked.mistakes]
    findings = [
        {"node": each.node, "key": each.key, "problem": f"{each.problem}{_cure(each.cure)}"}
        for each in found.looked.findings
    ]
    title = visit.form.get("definition") if told is not None else None
    if title is None and document is not None:
        title = str(document.get("name", ""))
    graph = _graph(nodes)
    return rendered(
        "editor.html",
        zone=visit.session.zone,
        visit=visit,
        status=status,
        subject=subject,
        name=subject.name(visit.session),
        title=title,
        draft=found,
        # As a condition names it.
        tag=visit.form.get("tag") if status == 422 else f'"{found.tag}"',
        told=told,
        view=view,
        nodes=nodes,
        task=None if chosen is None else chosen["name"],
        fields=fields,
        content=content,
        is_yaml=is_yaml(content),
        lines=editing.lines_in(_edited(view, content, fields)),
        mistakes=mistakes,
        findings=findings,
        marked={each["node"] for each in mistakes if each["node"]},
        others=[each for each in mistakes if each["node"] not in names],
        types=sorted({*known_task_types(), *(() if fields is None else (fields.type,))}),
        new_types=sorted(known_task_types()),
        first_type=visit.form.get("new_type", _FIRST_TYPE),
        flags=editing.RUN_FLAGS,
        priorities=editing.PRIORITIES,
        graph=graph if isinstance(graph, Graph) else None,
        ranks=graph if isinstance(graph, Ranks) else None,
        box=BOX,
    )


def _edited(view: str, content: str, fields: editing.Fields | None) -> str:
    """Return the text whose lines are numbered."""
    if view == "document":
        return content
    return (fields.script if fields else None) or ""


def _cure(text: str) -> str:
    return f" ({text})" if text else ""


def _graph(nodes: list[dict[str, Any]]) -> Graph | Ranks | None:
    """Draw the tasks as far as they are there; None if they wait for each other."""
    known = {each["name"]: each for each in nodes}
    if not known:
        return None
    try:
        dag = build_dag(
            {
                name: [other for other in editing.before(each) if other in known]
                for name, each in known.items()
            }
        )
    except DagError:
        return None
    tasks = {
        name: Task(state=None, second=str(each.get("type", ""))) for name, each in known.items()
    }
    return graph_of(dag, tasks)


def _pages(thing: Thing, things: str) -> tuple[Page, ...]:
    author = Policy(takes=Action.AUTHOR, thing=thing.value)
    path = f"/{things}/{{id}}/edit"
    return (
        page(path, author, about(thing, things, show)),
        order(path, author, about(thing, things, save)),
    )


PAGES: Final = tuple(each for thing, things in KINDS for each in _pages(thing, things))
