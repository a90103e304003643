"""The editor of one's draft: its tasks, the script and the attributes of one, or the whole text.

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
from api.console.table import Visit, order, page, unknown
from api.policy import Policy
from common.dag import DagError, build_dag
from common.errors import InvalidDefinitionError
from common.model.rights import Action
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

_VIEWS: Final = ("tasks", "document")
_ACTS: Final = ("save", "add", "remove", "json", "yaml", "rebase", "discard")
_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="definition")


def show(visit: Visit) -> Response:
    """Show one's draft: `view` is a side of it, `task` the one whose script is shown."""
    view = visit.query.get("view", "tasks")
    if view not in _VIEWS:
        raise unknown(visit, "view", view, _VIEWS)
    return _page(visit, draft(visit.session, visit.id), view, visit.query.get("task"))


def save(visit: Visit) -> Response:
    """Save the form, and do what its button says."""
    form = visit.form
    view, act, task = form.get("view", "tasks"), form.get("act", "save"), form.get("task")
    tag = form.get("tag")
    if act not in _ACTS:
        raise unknown(visit, "act", act, _ACTS)
    if not tag:
        raise UsageError("tag", visit.said("load the page again"))
    try:
        if act == "discard":
            discard_draft(visit.session, visit.id, expected=tag)
        elif act == "rebase":
            rebase_draft(visit.session, visit.id, expected=tag)
        elif view == "document":
            _save(visit, _converted(form.get("content", ""), act), tag)
        else:
            task = _save_tasks(visit, act, task, tag)
    except ChangedMeanwhileError as error:
        return _refused(visit, view, task, str(error), status=409)
    except editing.FieldError as error:
        return _refused(visit, view, task, f"{error.field}: {error}", status=422)
    query = {"view": view} if view == "document" else {"task": task} if task else {}
    place = f"/definitions/{visit.id}/edit"
    return RedirectResponse(f"{place}?{urlencode(query)}" if query else place, status_code=303)


def _save_tasks(visit: Visit, act: str, task: str | None, tag: str) -> str | None:
    """Save the form's task on top of the text that it was made of; return the task to show."""
    text = text_as_read(visit.session, visit.id, tag)
    document = _document(text)
    if document is None:
        raise editing.FieldError("draft", "it can't be read; mend it as a whole")
    if act == "remove":
        if task is None:
            raise editing.FieldError("task", "none is chosen")
        document, task = editing.removed(document, task), None
    else:
        if task is not None:
            document = editing.changed(document, task, visit.form)
            task = visit.form.get("name", task).strip()
        if act == "add":
            document, task = editing.added(document, task)
    _save(visit, _written(document, like=text), tag)
    return task


def _save(visit: Visit, text: str, tag: str) -> None:
    save_draft(visit.session, text.encode("utf-8", "replace"), visit.id, expected=tag)


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


def _refused(visit: Visit, view: str, task: str | None, told: str, *, status: int) -> Response:
    """Show the page with what was typed, which is not saved."""
    now = draft(visit.session, visit.id)
    return _page(visit, now, view, task, told=told, status=status)


def _page(
    visit: Visit,
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
    assert found.target.row is not None
    graph = _graph(nodes)
    return rendered(
        "editor.html",
        zone=visit.session.zone,
        visit=visit,
        status=status,
        definition=found.target.row,
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


PAGES: Final = (
    page("/definitions/{id}/edit", _AUTHOR, show),
    order("/definitions/{id}/edit", _AUTHOR, save),
)
