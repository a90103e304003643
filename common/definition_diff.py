"""The difference of two documents of one definition: tasks, edges, settings, and what is risky.

Pure. A document is what an export has, with references in the place of secrets, which all look
alike here. A task that has another name, and its code or id or much the same content, is *renamed*,
and so are the edges that lead to it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.hidden_characters import lines_of, oddities
from common.line_changes import Steps, changed_lines, replaced_lines
from common.masking import MASK
from common.model.reach import FOREIGN

_ALIKE: Final = 0.8
_MOST_COMPARED: Final = 40
"""More tasks than these, gone and new, are compared for being the same alone."""
_LONGEST_TEXT: Final = 1000
"""Lines of a text that are compared one by one; comparing takes time by their square."""
_MOST_COMPARED_LINES: Final = 20_000
_MOST_STEPS: Final = 5_000_000
"""The limit of compared pairs of lines per difference, about two seconds of work."""
_MOST_WORDS: Final = 1_000_000
"""The limit of compared words in the search for renamed tasks."""
_JSON: Final = "processDefinitionJson"
# What these say is told as names and edges, or means nothing here.
_ELSEWHERE: Final = frozenset({"name", "preTasks", "id", "code"})
_LEFT_OUT: Final = frozenset(
    {"name", "processDefinitionLocations", "processDefinitionConnects", "schedules"}
)
_COMMON: Final = {"direct": "IN", "type": "VARCHAR"}
_REFERENCE: Final = re.compile(r"\$ENV\{ORCAFLOW_SECRET_\w+\}")
_WORD: Final = re.compile(r"\w+")
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """A value that differs; None is none. `lines` are those of a text, as `diff -u` prints them."""

    key: str
    before: Any
    after: Any
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """A task whose values differ, or whose name does: `was` is that of before."""

    name: str
    was: str
    changes: tuple[ValueChange, ...]

    @property
    def is_renamed(self) -> bool:
        return self.was != self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The differences of two definitions; edges are pairs of the new names.

    `contents` has all values of each added task.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[TaskChange, ...]
    edges_added: tuple[tuple[str, str], ...]
    edges_removed: tuple[tuple[str, str], ...]
    settings: tuple[ValueChange, ...]
    risks: tuple[str, ...]
    contents: tuple[TaskChange, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (
            self.added
            or self.removed
            or self.changed
            or self.edges_added
            or self.edges_removed
            or self.settings
        )


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """Compare two documents; parameters are compared by their names."""
    old, new = _tasks(before), _tasks(after)
    renamed = _renamed(
        {name: node for name, node in old.items() if name not in new},
        {name: node for name, node in new.items() if name not in old},
    )
    was = {now: former for former, now in renamed.items()}
    lines = _Lines()
    changed = []
    for name, node in new.items():
        former = was.get(name, name)
        if former in old:
            changes = tuple(_changes(_values(old[former]), _values(node), lines))
            if changes or former != name:
                changed.append(TaskChange(name=name, was=former, changes=changes))
    old_edges, new_edges = _edges(old, renamed), _edges(new, {})
    removed = tuple(name for name in old if name not in new and name not in renamed)
    added = tuple(name for name in new if name not in old and name not in was)
    settings = tuple(_changes(_settings(before), _settings(after), lines))
    contents = tuple(
        TaskChange(name=name, was=name, changes=tuple(_contents(new[name]))) for name in added
    )
    return Difference(
        added=added,
        removed=removed,
        changed=tuple(changed),
        edges_added=tuple(each for each in new_edges if each not in old_edges),
        edges_removed=tuple(each for each in old_edges if each not in new_edges),
        settings=settings,
        risks=(
            *_risks(changed, removed, old),
            *_rebound(changed, old, new),
            *_odd_texts(settings, (*changed, *contents)),
            *_unseen_files(new, (*added, *(each.name for each in changed))),
        ),
        contents=contents,
    )


def rebound(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each task that refers to other definitions than before.

    A definition of another project is shown as `project/name`.
    """
    return tuple(
        each
        for name, node in _tasks(after).items()
        if (old := _tasks(before).get(name)) is not None and (each := _rebinding(name, old, node))
    )


def _tasks(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    inner = document.get(_JSON)
    nodes = inner.get("tasks") if isinstance(inner, dict) else None
    return {
        str(node.get("name", "")): node
        for node in (nodes if isinstance(nodes, list) else ())
        if isinstance(node, dict)
    }


def _renamed(
    gone: Mapping[str, Mapping[str, Any]], fresh: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """The names of now by those of before: by code or id, then the same, then the most alike."""
    found: dict[str, str] = {}
    left = dict(fresh)
    for mark in (_code, _content):
        by_mark = {mark(node): name for name, node in reversed(left.items())}
        for name, node in gone.items():
            key = mark(node)
            if name not in found and key is not None and key in by_mark:
                found[name] = by_mark.pop(key)
                del left[found[name]]
    rest = {name: node for name, node in gone.items() if name not in found}
    if len(rest) > _MOST_COMPARED or len(left) > _MOST_COMPARED:
        return found
    words = {id(node): _words(node) for node in (*rest.values(), *left.values())}
    if sum(len(words[id(node)]) for node in rest.values()) * len(left) > _MOST_WORDS:
        return found
    pairs = [
        (_likeness(words[id(node)], words[id(other)]), name, now)
        for name, node in rest.items()
        for now, other in left.items()
        if node.get("type") == other.get("type")
    ]
    for likeness, name, now in sorted(pairs, key=lambda each: -each[0]):
        if likeness >= _ALIKE and name not in found and now in left:
            found[name] = now
            del left[now]
    return found


def _code(node: Mapping[str, Any]) -> str | None:
    own = node.get("code") or node.get("id")
    return str(own) if isinstance(own, str | int) else None


def _content(node: Mapping[str, Any]) -> str:
    own = {key: value for key, value in node.items() if key not in _ELSEWHERE}
    return json.dumps(own, sort_keys=True, ensure_ascii=False, default=str)


def _words(node: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """The words of a task's parameters; the rest is alike in most tasks."""
    return Counter(
        (key, word)
        for key, value in _values({"params": node.get("params")}).items()
        for word in _WORD.findall(value if isinstance(value, str) else json.dumps(value))
        if value not in (None, [], {}, "")
    )


def _likeness(one: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> float:
    """The share of words that two tasks have in common, of 1."""
    return 2 * (one & other).total() / max(one.total() + other.total(), 1)


def _edges(
    tasks: Mapping[str, Mapping[str, Any]], renamed: Mapping[str, str]
) -> dict[tuple[str, str], None]:
    found: dict[tuple[str, str], None] = {}
    for name, node in tasks.items():
        above = node.get("preTasks")
        for each in above if isinstance(above, list) else ():
            found[renamed.get(str(each), str(each)), renamed.get(name, name)] = None
    return found


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    inner = document.get(_JSON)
    own = {key: value for key, value in document.items() if key != _JSON and key not in _LEFT_OUT}
    if isinstance(inner, dict):
        own |= {
            key: value
            for key, value in inner.items()
            if key != "tasks" and key not in own and value not in (None, "", [])
        }
    elif inner is not None:
        own[_JSON] = inner
    # Nothing at all is no value of its own.
    return dict(_flat("", own)) if own else {}


def _values(node: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_flat("", {key: each for key, each in node.items() if key not in _ELSEWHERE}))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values below a value by their paths; parameters by their names."""
    if isinstance(value, str):
        try:
            inner = json.loads(value) if value[:1] in ("{", "[") else None
        except (ValueError, RecursionError):
            inner = None
        if not isinstance(inner, dict | list):
            yield path, _REFERENCE.sub(MASK, value)
            return
        value = inner
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), item)
    elif _are_properties(value):
        for each in value:
            rest = {
                key: item
                for key, item in each.items()
                if key not in ("prop", "value") and item != _COMMON.get(key)
            }
            yield from _flat(f"{path}.{each['prop']}", each.get("value"))
            for key, item in rest.items():
                yield from _flat(f"{path}.{each['prop']}.{key}", item)
    elif isinstance(value, list):
        yield path, json.loads(_REFERENCE.sub(MASK, json.dumps(value)))
    else:
        yield path, value


def _are_properties(value: Any) -> bool:
    """True for a list of properties whose names are all different."""
    if not isinstance(value, list) or not value:
        return False
    names = [each.get("prop") if isinstance(each, dict) else None for each in value]
    return all(isinstance(each, str) for each in names) and len(set(names)) == len(names)


def _changes(
    before: Mapping[str, Any], after: Mapping[str, Any], lines: _Lines
) -> Iterator[ValueChange]:
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key, _NOTHING), after.get(key, _NOTHING)
        if old == new and type(old) is type(new):
            continue
        old, new = (None if each is _NOTHING else each for each in (old, new))
        yield ValueChange(key=key, before=old, after=new, lines=lines.of(old, new))


def _contents(node: Mapping[str, Any]) -> Iterator[ValueChange]:
    """Yield the values of a new task, uncut, because a reviewer has to read all of them."""
    for key, value in _values(node).items():
        if value in (None, "", [], {}):
            continue
        lines = lines_of(value) if isinstance(value, str) else []
        shown = () if len(lines) < 2 and value in lines else tuple(f"+{each}" for each in lines)
        yield ValueChange(key=key, before=None, after=value, lines=shown)


class _Lines:
    """Compares texts line by line, as long as there is not too much of it."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARED_LINES
        self._steps = Steps(_MOST_STEPS)

    def of(self, before: Any, after: Any) -> tuple[str, ...]:
        """Return the lines that differ, with those around; none for texts of one plain line."""
        texts = [before or "", after or ""]
        if not all(isinstance(each, str) for each in texts):
            return ()
        old, new = (lines_of(each) for each in texts)
        size = max(len(old), len(new))
        if size < 2 and [old, new] == [[each] if each else [] for each in texts]:
            return ()
        if size > _LONGEST_TEXT or size > self._left:
            # Comparing would take too long. The whole text is shown so that no change is hidden.
            return replaced_lines(old, new)
        self._left -= size
        return changed_lines(old, new, self._steps)


def _risks(
    changed: Sequence[TaskChange], removed: Sequence[str], old: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    waited_for = {above for above, _ in _edges(old, {})}
    for name in removed:
        if name in waited_for:
            yield f"{name!r} is gone: what came after it no longer waits for it"
    for task in changed:
        for each in task.changes:
            if each.key == "type":
                yield f"{task.name!r} is of another type: {each.before} → {each.after}"
            elif each.key == "maxRetryTimes" and _number(each.after) < _number(each.before):
                yield f"{task.name!r} is retried {_number(each.after)} times at most"
            elif each.key == "runFlag" and each.after == "FORBIDDEN":
                yield f"{task.name!r} no longer runs"


def _odd_texts(settings: Sequence[ValueChange], tasks: Sequence[TaskChange]) -> Iterator[str]:
    named = [(each.key, each.after) for each in settings]
    named += [
        (f"{each.key} of {task.name!r}", each.after) for task in tasks for each in task.changes
    ]
    for name, value in named:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for found in oddities(text):
            yield f"{name} contains {found}"


def _rebound(
    changed: Sequence[TaskChange],
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    for task in changed:
        if each := _rebinding(task.name, old[task.was], new[task.name]):
            yield each


def _rebinding(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    old, new = _bindings(before), _bindings(after)
    if old == new or not (old and new):
        return None
    return f"{name!r} refers to another definition: {', '.join(old)} → {', '.join(new)}"


def _bindings(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the definitions that a SUB_PROCESS or a DEPENDENT refers to, each once."""
    found: dict[str, None] = {}
    for holder in _holders(node):
        name = holder.get("processDefinitionName") or holder.get("definitionName")
        number = holder.get("processDefinitionId") or holder.get("definitionId")
        project = holder.get("projectName")
        if name:
            found[f"{project}/{name}" if project else str(name)] = None
        elif number:
            # The name is unknown because the definition is no longer shared with this project.
            found[f"{FOREIGN} ({number})"] = None
    return tuple(found)


def _holders(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a task that name a definition."""
    kind = str(node.get("type", "")).upper()
    if kind == "SUB_PROCESS":
        yield _object(node.get("params"))
    elif kind == "DEPENDENT":
        groups = _object(node.get("dependence")).get("dependTaskList")
        for group in groups if isinstance(groups, list) else ():
            items = _object(group).get("dependItemList")
            for item in items if isinstance(items, list) else ():
                yield _object(item)


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _unseen_files(tasks: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    """Yield a risk for each task that runs a file whose text is not in the document."""
    for name in names:
        params = tasks[name].get("params")
        if not isinstance(params, dict) or params.get("fileText"):
            continue
        file, digests = params.get("file"), params.get("digests")
        if not isinstance(file, str) or not file:
            continue
        if isinstance(digests, dict) and digests.get(file):
            yield f"{name!r} runs the file {file!r}: its SHA-256 is checked, its text is not here"
        else:
            yield f"{name!r} runs the file {file!r} of its worker, with the content at that time"


def _number(value: Any) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0
