"""Process definitions as files: read strictly, with every mistake in every file found at once.

A file holds one JSON object, a list of them, or a bare 1.2 JSON that gets its name elsewhere; one
whose name ends in `.yaml` has the same in YAML. An object has `name` and `processDefinitionJson`
(an object, or text that holds one), and may have `description`, `globalParams`, `timeout`
(minutes), `tenantId`, `executionType`, `complementDateRule` and `schedules`.
Exports of DolphinScheduler are read too: 1.x is told apart by the key `processDefinitionName`, 2.x
and 3.x by the lists of tasks and relations (`operations.later_exports`). Their ids are those of
another database, and parts that can't be taken over are listed. The rules for the JSON itself are
those of `common.model.definitions`.

Scripts, jars and resources that a task names by a relative path are looked for beside the file, and
stored by their absolute path; a resource may also stand in the folder of resources, where workers
find it by its relative path. Nothing here talks to a database.
"""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import InvalidDefinitionError
from common.model.date_rules import DateRule
from common.model.definitions import read_process_json
from common.model.states import ExecutionType
from common.params import ParameterError, parse_properties
from common.strict_json import strict_json
from common.task_types import known_task_types
from operations.awaited import awaited, cycles
from operations.definition_document import (
    CHILD_ID,
    Source,
    id_in,
    inherited_names,
    nodes_of,
    objects_of,
)
from operations.document_limits import FindingLimits, document_mistakes
from operations.file_forms import STANDARD_INPUT, read_content
from operations.file_values import fault_of_name, first_in, number_in, word_in
from operations.findings import Finding, Severity
from operations.later_exports import LaterExport, is_later_export, name_in, read_later_export
from operations.leniency import (
    failing_warnings,
    foreign_types,
    of_unknown_task,
    taken_leniently,
    within_foreign_tasks,
    without_foreign_ids,
    without_mistakes,
)
from operations.lint_children import keep_children
from operations.lint_keys import FILE_KEYS, SCHEDULE_KEYS, key_findings, unread_keys
from operations.lint_scripts import splicing_mistakes
from operations.lint_warnings import lint_warnings
from operations.named_files import FileRules, tie_files
from operations.references import (
    Kind,
    Names,
    labels_in,
    name_references,
    name_tasks_awaited,
    provisional,
)
from operations.task_params import parameter_mistakes, type_faults, value_mistakes

if TYPE_CHECKING:
    from operations.exported_schedule import ExportedSchedule

_EXPORTED_NAME_KEY = "processDefinitionName"
_NAME_KEYS = ("name", _EXPORTED_NAME_KEY)
_DESCRIPTION_KEYS = ("description", "processDefinitionDescription")
_JSON_KEY = "processDefinitionJson"
# How `common.model.definitions` and this module begin a mistake: the node, then the key in it.
_PLACE = re.compile(
    r"(?:task (?P<node>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(?:, (?P<key>[^:]+))?"
    r"|(?P<top>[A-Za-z][\w.\[\]-]*)): (?P<problem>.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the files; `index` is that in the file's list."""

    file: Path
    index: int | None = None
    definition: str | None = None

    def __str__(self) -> str:
        index = "" if self.index is None else f": [{self.index}]"
        name = f": {self.definition!r:.80}" if self.definition else ""
        file = "standard input" if str(self.file) == STANDARD_INPUT else self.file
        return f"{file}{index}{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing that is wrong; `text` begins with the node and the key, where it has them."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"

    def row(self) -> dict[str, object]:
        """Its documented fields: file, definition, node, key, problem."""
        return {
            "file": str(self.place.file),
            "definition": self.place.definition,
            **_place_in(self.text),
        }


def _place_in(text: str) -> dict[str, object]:
    """Return the node, the key and the problem of a mistake; None where it names none."""
    found = _PLACE.match(text)
    if found is None:
        return {"node": None, "key": None, "problem": text}
    node = found["node"] and str(ast.literal_eval(found["node"]))
    return {"node": node, "key": found["key"] or found["top"], "problem": found["problem"]}


class InvalidFilesError(InvalidDefinitionError):
    """Files can't be imported; `found` has every mistake with its file, definition, node, key."""

    def __init__(self, found: Sequence[Mistake]) -> None:
        super().__init__(tuple(str(mistake) for mistake in found))
        self.found = tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionDocument:
    """One definition that can be imported; `task_count` is for telling.

    In `document` references have names where names are known, and still have to be given the ids
    of a database. `findings` are what is left out of an export, and the warnings. With `is_later`
    it comes from DolphinScheduler 2.x or 3.x; with `is_export` no reference that leads nowhere
    keeps it out.
    """

    name: str
    description: str | None
    document: Mapping[str, Any]
    global_params: str | None
    timeout_minutes: int
    tenant_id: int
    task_count: int
    place: Place
    locations: str | None = None
    connects: str | None = None
    execution_type: ExecutionType | None = None
    date_rule: DateRule | None = None
    former_date_rule: DateRule | None = None
    """The rule of the system that it comes from, for a new definition that names none."""
    schedules: tuple[ExportedSchedule, ...] = ()
    findings: tuple[Finding, ...] = ()
    is_later: bool = False
    is_export: bool = False
    """True for an export of DolphinScheduler, of any line."""
    source: Source | None = None

    @property
    def schedule(self) -> ExportedSchedule | None:
        """The only schedule that an export has."""
        return self.schedules[0] if self.schedules else None

    @property
    def file(self) -> Path:
        return self.place.file

    @property
    def process_definition_json(self) -> str:
        """The JSON as it stands before any reference has been given an id."""
        return json.dumps(self.document, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """An object of a file whose JSON could be read, and no more."""

    place: Place
    folder: Path
    wrapped: Mapping[str, Any]
    inner: dict[str, Any]
    name: object
    exported: bool
    is_bare: bool = False
    later: LaterExport | None = None
    original: Mapping[str, Any] | None = None
    """An export as it came, since reading it changes it."""

    @property
    def is_own(self) -> bool:
        """True if it is of Orcaflow's own form: it says its name, and it is no export."""
        return not self.exported and self.wrapped.get("name") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The circumstances in which files are read, as `read_definition_files` is given them.

    `tasks` are the names of tasks by their codes, in all the later exports that are read.
    """

    resources: Path
    strict: bool | None
    profiles: Collection[str] | None
    splices_scripts: bool
    looks_up: bool = True
    inlines: bool = False
    tasks: dict[int, str] = field(default_factory=dict)
    limits: FindingLimits = field(default_factory=FindingLimits)


def read_definition_files(
    paths: Sequence[Path],
    *,
    resources: Path,
    name: str | None = None,
    given: Mapping[tuple[Kind, int], str] | None = None,
    strict: bool | None = None,
    profiles: Collection[str] | None = None,
    splices_scripts: bool = True,
    standard_input: bytes = b"",
    looks_up: bool = True,
    inlines: bool = False,
) -> list[DefinitionDocument]:
    """All definitions of the files, or `InvalidFilesError` with all mistakes of all files.

    The path `-` means `standard_input`. `resources` is the folder that workers take resources from.
    `name` is for a file with a single definition, and goes before the name that stands in it.
    `given` says what ids of another database are called. `strict` makes unknown keys mistakes; None
    is for files of Orcaflow's own form alone. `profiles` are the Spark profiles of the settings
    here; None if they are not known. Without `splices_scripts`, parameters in the text of scripts
    are mistakes. `looks_up` and `inlines` are for the files that tasks name
    (`operations.named_files`).
    """
    rules = _Rules(
        resources=resources,
        strict=strict,
        profiles=profiles,
        splices_scripts=splices_scripts,
        looks_up=looks_up,
        inlines=inlines,
    )
    mistakes: list[Mistake] = []
    entries: list[_Entry] = []
    for path in paths:
        entries.extend(_entries(path, standard_input, name, mistakes))
    labels: dict[int, str] = {}
    exported: set[str] = set()
    for entry in entries:
        project = entry.wrapped.get("projectName")
        if entry.exported and isinstance(project, str):
            exported.add(project)
        if entry.exported:
            labels |= labels_in(entry.inner)
        if entry.later is not None:
            rules.tasks.update(entry.later.tasks)
    for entry in entries:
        # A definition's own name is surer than what others call it.
        if entry.later is not None and entry.later.code is not None:
            labels[entry.later.code] = str(entry.name)
        elif entry.exported and entry.later is None:
            labels |= {number: str(entry.name) for number in _own_ids(entry.wrapped)}
    names = Names(given=given or {}, labels=labels, exported=frozenset(exported))
    found = [
        document
        for entry in entries
        if (document := _within_depth(entry, names, rules, mistakes)) is not None
    ]
    first: dict[str, Path] = {}
    for document in found:
        if document.name in first:
            text = f"{document.name!r} is defined twice (also in {first[document.name]})"
            mistakes.append(Mistake(place=Place(file=document.file), text=text))
        first.setdefault(document.name, document.file)
    places = {
        each.name: [
            (place, place.target)
            for place in awaited(each.document)
            if isinstance(place.target, str) and place.project is None
        ]
        for each in found
    }
    graph = {name: [target for _, target in those] for name, those in places.items()}
    for document in found:
        mistakes.extend(
            Mistake(place=document.place, text=str(finding))
            for finding in cycles(document.name, places[document.name], graph)
        )
    if mistakes:
        raise InvalidFilesError(mistakes)
    inherited = inherited_names({each.name: each.document for each in found})
    return [_with_warnings(each, inherited.get(each.name, frozenset())) for each in found]


def _with_warnings(document: DefinitionDocument, inherited: Collection[str]) -> DefinitionDocument:
    """Return the document with what lint warns of; `inherited` are parameters of its parents."""
    warnings: Iterable[Finding] = lint_warnings(document.name, document.document, inherited)
    if document.is_later:
        warnings = failing_warnings(document.document, warnings, known=document.findings)
    return replace(document, findings=(*document.findings, *warnings))


def _own_ids(exported: Mapping[str, Any]) -> Iterator[int]:
    """Yield the ids by which other definitions of an export of 1.3 name this one."""
    for key in (CHILD_ID, "id"):
        if (number := id_in(exported.get(key))) is not None:
            yield number


def _entries(
    path: Path, standard_input: bytes, name: str | None, mistakes: list[Mistake]
) -> list[_Entry]:
    file = Place(file=path)
    try:
        document = read_content(path, standard_input)
    except InvalidDefinitionError as error:
        mistakes.extend(Mistake(place=file, text=text) for text in error.mistakes)
        return []
    listed = document if isinstance(document, list) else [document]
    wrong = document_mistakes(document)
    mistakes += [Mistake(place=Place(file=path, index=at), text=text) for at, text in wrong]
    if wrong:
        return []
    if name is not None and len(listed) > 1:
        text = f"holds {len(listed)} definitions, so one name can't be given to it"
        mistakes.append(Mistake(place=file, text=text))
        return []
    found: list[_Entry] = []
    for index, entry in enumerate(listed):
        place = Place(file=path, index=index if isinstance(document, list) else None)
        made = _entry(entry, name, place, mistakes)
        if made is not None:
            found.append(made)
    return found


def _entry(entry: object, name: str | None, place: Place, mistakes: list[Mistake]) -> _Entry | None:
    if not isinstance(entry, dict):
        mistakes.append(Mistake(place=place, text="a definition must be an object"))
        return None
    if is_later_export(entry):
        return _later_entry(entry, name, place, mistakes)
    # A bare 1.2 JSON is what others carry in `processDefinitionJson`.
    is_bare = "tasks" in entry and _JSON_KEY not in entry
    of_bare = {key: entry.get(key) for key in (*_NAME_KEYS, *_DESCRIPTION_KEYS)}
    wrapped = {**of_bare, _JSON_KEY: entry} if is_bare else entry
    own = name if name is not None else first_in(wrapped, _NAME_KEYS)
    if isinstance(own, str) and own:
        place = Place(file=place.file, index=place.index, definition=own)
    if fault := fault_of_name(own):
        mistakes.append(Mistake(place=place, text=f"name: {fault}"))
    inner = wrapped.get(_JSON_KEY)
    if isinstance(inner, str):
        try:
            inner = strict_json(inner.encode())
        except InvalidDefinitionError as error:
            mistakes.extend(
                Mistake(place=place, text=f"{_JSON_KEY}: {text}") for text in error.mistakes
            )
            return None
    if not isinstance(inner, dict):
        text = (
            f"{_JSON_KEY}: must be an object with the key 'tasks'"
            if _JSON_KEY in wrapped
            else f"neither {_JSON_KEY} nor tasks is there, so nothing is defined"
        )
        mistakes.append(Mistake(place=place, text=text))
        return None
    exported = not is_bare and _EXPORTED_NAME_KEY in entry
    return _Entry(
        place=place,
        folder=place.file.parent,
        wrapped=wrapped,
        inner=inner,
        name=own,
        exported=exported,
        is_bare=is_bare,
        original=copy.deepcopy(entry) if exported else None,
    )


def _later_entry(
    entry: Mapping[str, Any], name: str | None, place: Place, mistakes: list[Mistake]
) -> _Entry | None:
    own = name if name is not None else name_in(entry)
    if isinstance(own, str) and own:
        place = Place(file=place.file, index=place.index, definition=own)
    if fault := fault_of_name(own):
        mistakes.append(Mistake(place=place, text=f"name: {fault}"))
    original = copy.deepcopy(entry)
    try:
        later = read_later_export(entry)
    except InvalidDefinitionError as error:
        mistakes.extend(Mistake(place=place, text=text) for text in error.mistakes)
        return None
    return _Entry(
        place=place,
        folder=place.file.parent,
        wrapped={**later.wrapped, "schedule": entry.get("schedule")},
        inner=later.inner,
        name=own,
        exported=True,
        later=later,
        original=original,
    )


def _within_depth(
    entry: _Entry, names: Names, rules: _Rules, mistakes: list[Mistake]
) -> DefinitionDocument | None:
    """The document, unless a text in it holds JSON that is deeper than the file itself may be."""
    try:
        return _document(entry, names, rules, mistakes)
    except RecursionError:
        mistakes.append(Mistake(place=entry.place, text="a text in it is nested too deeply"))
        return None


def _document(
    entry: _Entry, names: Names, rules: _Rules, mistakes: list[Mistake]
) -> DefinitionDocument | None:
    wrong: list[str] = []
    description = first_in(entry.wrapped, _DESCRIPTION_KEYS)
    if description is not None and not isinstance(description, str):
        wrong.append("description: must be text")
    inner = entry.inner
    later = entry.later
    findings = list(rules.limits.bounded(_unread(entry, rules)))
    if later is not None:
        findings = [*later.findings, *without_mistakes(findings)]
        findings.extend(map(of_unknown_task, name_tasks_awaited(inner, rules.tasks)))
    # References first: a resource that is named by its id is given its path by this.
    references = list(name_references(inner, names=names, foreign=entry.exported))
    if entry.exported:
        references = list(without_foreign_ids(inner, references))
    findings.extend(references)
    if entry.exported:
        findings.extend(keep_children(inner))
    if entry.exported and later is None:
        foreign = list(foreign_types(inner))
        findings = [*foreign, *within_foreign_tasks(findings, foreign)]
    wrong.extend(str(each) for each in findings if each.is_mistake)
    folder = entry.folder if rules.looks_up else None
    files = FileRules(folder=folder, resources=rules.resources, inlines=rules.inlines)
    wrong.extend(tie_files(inner, files))
    graph = None
    text = json.dumps(provisional(inner), ensure_ascii=False)
    try:
        graph = read_process_json(text, task_types=known_task_types())
    except InvalidDefinitionError as error:
        wrong.extend(error.mistakes)
    wrong.extend(parameter_mistakes(inner))
    known = [*wrong, *map(str, findings)]
    wrong.extend(value_mistakes(inner, known=known, profiles=rules.profiles))
    ill_typed = list(type_faults({**inner, **_own_parameters(entry.wrapped)}))
    if not entry.exported:
        wrong.extend(ill_typed)
    if not rules.splices_scripts:
        wrong.extend(splicing_mistakes(inner))
    if entry.exported:
        kept = () if later is not None else [each for each in findings if each.is_mistake]
        wrong, about_tasks = taken_leniently(wrong, _place_in, kept=kept, known=findings)
        findings.extend(about_tasks)
        findings.extend(_warned(ill_typed))
    own = entry.wrapped.get("globalParams")
    global_params = None if graph is None or graph.global_params == "[]" else graph.global_params
    if graph is None and inner.get("globalParams"):
        given = inner["globalParams"]
        global_params = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if own:
        try:
            parse_properties(own)
            global_params = own if isinstance(own, str) else json.dumps(own, ensure_ascii=False)
        except ParameterError as error:
            wrong.append(f"globalParams: {error}")
    of_json = (
        graph.timeout_minutes if graph else number_in(inner, "timeout", [], default=0, lowest=0)
    )
    timeout = number_in(entry.wrapped, "timeout", wrong, default=of_json, lowest=0)
    tenant = number_in(
        entry.wrapped, "tenantId", wrong, default=graph.tenant_id if graph else -1, lowest=-1
    )
    kind = word_in(entry.wrapped, "executionType", ExecutionType.__members__, wrong)
    rule = word_in(entry.wrapped, "complementDateRule", DateRule, wrong)
    schedules: tuple[ExportedSchedule, ...] = ()
    if entry.exported or entry.wrapped.get("schedules"):
        # Most files have none, and reading cron lines takes a while to import.
        from operations.exported_schedule import read_schedules

        schedules, about_them = read_schedules(
            entry.wrapped, lambda code: names.of(Kind.ENVIRONMENT, code)
        )
        if entry.exported:
            findings.extend(about_them)
        else:
            wrong.extend(str(each) for each in about_them)
    mistakes.extend(Mistake(place=entry.place, text=each) for each in wrong)
    is_read = graph is not None or entry.exported
    if wrong or not is_read or not isinstance(entry.name, str) or fault_of_name(entry.name):
        return None
    if entry.exported:
        findings.extend(_left_out(entry.wrapped))
    return DefinitionDocument(
        name=entry.name,
        description=description,
        document=inner,
        global_params=global_params,
        timeout_minutes=timeout,
        tenant_id=tenant,
        task_count=len(list(nodes_of(inner))),
        place=entry.place,
        locations=_drawing(entry.wrapped, "processDefinitionLocations"),
        connects=_drawing(entry.wrapped, "processDefinitionConnects"),
        execution_type=None if kind is None else ExecutionType[kind],
        date_rule=None if rule is None else DateRule(rule),
        is_export=entry.exported,
        former_date_rule=DateRule.BUSINESS_DATE if entry.exported and later is None else None,
        schedules=schedules,
        is_later=later is not None,
        findings=tuple(each for each in findings if not each.is_mistake),
        source=Source(content=_source(entry), given=names.given),
    )


def _own_parameters(wrapped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters next to the JSON, which take precedence over the JSON."""
    own = wrapped.get("globalParams")
    return {"globalParams": own} if own else {}


def _warned(texts: Iterable[str]) -> Iterator[Finding]:
    """Yield a warning for each text of a mistake that does not keep a task from running."""
    for row in map(_place_in, texts):
        node = row["node"]
        yield Finding(
            severity=Severity.WARNING,
            node=node if isinstance(node, str) else None,
            key=str(row["key"]),
            problem=str(row["problem"]),
        )


def _source(entry: _Entry) -> Mapping[str, Any]:
    if entry.original is not None:
        return entry.original
    own = {**entry.wrapped, "name": entry.name, _JSON_KEY: entry.inner}
    return {key: value for key, value in own.items() if value is not None}


def _unread(entry: _Entry, rules: _Rules) -> Iterator[Finding]:
    strict = entry.is_own if rules.strict is None else rules.strict
    # An export has keys of another system around its JSON, and a bare JSON has nothing around it.
    if not entry.exported and not entry.is_bare:
        yield from unread_keys(entry.wrapped, FILE_KEYS, strict=strict)
        for index, each in enumerate(objects_of(entry.wrapped.get("schedules"))):
            yield from unread_keys(each, SCHEDULE_KEYS, f"schedules[{index}]", strict=strict)
    yield from key_findings(entry.inner, strict=strict)


def _left_out(exported: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each part of an export that has no place here."""
    project = exported.get("projectName")
    if project and project != "default":
        yield Finding(
            severity=Severity.UNMAPPED,
            key="projectName",
            problem=f"the project {project!r:.200} is not kept: the definition goes into 'default'",
            cure="nothing has to be done as long as names differ",
        )


def _drawing(wrapped: Mapping[str, Any], key: str) -> str | None:
    """Return the drawing of a front end: opaque, and stored as it is (contract §1.3)."""
    value = wrapped.get(key)
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
