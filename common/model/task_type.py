"""The specification of a task type: its name, its keys, and what the parts of the system do for it.

Pure. A *specification* stands beside the type's launcher, in `worker/tasks/<type>.py` or in a
package of its own, and is the only place that describes the type: lint, the JSON schema, the
importer, the master, the claim loop and the supervisor all read it (`common.task_types` finds it by
the type's name). A *key* is one entry of a node's `params`; a *fault* is a value that the launcher
would refuse. The readers of single values (`read_text`, `read_number`, …) are those of the
launchers too, so that lint and a worker can't disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final, TypeAlias, assert_never

RESULT: Final = "result.csv"
"""The artefact with the rows of a query."""
QUALITY: Final = "quality.json"
"""The artefact with the results of rules on data; the supervisor reports it to the tables."""

DATASOURCES: Final = "datasources"
"""The key under which a task names any number of data sources."""

_PLACEHOLDER: Final = re.compile(r"\$[{\[]")
_SIZE: Final = re.compile(r"[0-9]{1,12}([kmgt]b?)?", re.IGNORECASE)
_SHOWN_CHARS: Final = 40
# Faults of this kind read as one sentence with the key before them.
_VERBS: Final = frozenset({"must", "has", "is", "names", "needs", "can't", "and", "can"})
_FAULT: Final = re.compile(r"params\.([\w.$\[\]-]+):? (.*)")


class TaskKind(Enum):
    """The place where a task's work is done."""

    CONTROL = "control"
    """In the master: a decision, without slot or worker."""
    PROCESS = "process"
    """In a process that a worker starts."""
    SESSION = "session"
    """In a process with a Spark session, which runs a module of `worker.spark`."""


class DatasourceUse(Enum):
    """The data sources whose rows an attempt is given when it is claimed."""

    NONE = "none"
    ONE = "one"
    """The one that `params.datasource` names."""
    NAMED = "named"
    """Any number of them, which `params.datasources` names."""


class Shape(StrEnum):
    """The shape of a key's value. Absent, null and "" are always allowed, and mean the default."""

    TEXT = "text"
    """Text; a number stands for its digits."""
    NUMBER = "number"
    """A whole number that is not negative, or its digits as text."""
    WORD = "word"
    """One of a closed set of words, in any case."""
    FLAG = "flag"
    """True or false, as a boolean or as that word."""
    SIZE = "size"
    """An amount of memory, as 512M or 2G."""
    LIST = "list"
    """A list; a text stands for a list of one."""
    ENTRIES = "entries"
    """A list, or its entries joined by commas."""
    SETTINGS = "settings"
    """An object of texts, numbers and booleans."""
    RESOURCE = "resource"
    """A file, as text or as an object whose `res` or `resourceName` is that text."""
    RESOURCES = "resources"
    """A list of resources."""
    ANY = "any"
    """A value that only the key's own check understands."""


class ValueFaultError(ValueError):
    """A value can't be taken. The text says why; `at` is the place in the value, as `[2]`."""

    def __init__(self, problem: str, *, at: str = "") -> None:
        super().__init__(problem)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A value of a node's `params` that ends every attempt. `key` lacks the prefix `params.`."""

    key: str
    problem: str
    is_missing: bool = False
    """True if the fault is a key that is not there."""

    def __str__(self) -> str:
        """The fault as one sentence, which begins with the key."""
        joint = " " if self.problem.split(" ", 1)[0] in _VERBS else ": "
        return f"params.{self.key}{joint}{self.problem}"


Check: TypeAlias = Callable[[Any], None]
"""Raises `ValueFaultError` for a value that the launcher would refuse."""
Faults: TypeAlias = Callable[[Mapping[str, Any]], Iterator[Fault]]
IsParameter: TypeAlias = Callable[[str], bool]
"""True for a name that a task has a parameter of."""
TextFaults: TypeAlias = Callable[[Mapping[str, Any], IsParameter], Iterator[Fault]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a node's `params`."""

    name: str
    shape: Shape = Shape.TEXT
    about: str = ""
    """One sentence for authors; the schema shows it."""
    words: tuple[str, ...] = ()
    default: str | int | None = None
    of_what: str = "texts"
    """The name of a list's entries, in the plural."""
    highest: int | None = None
    """The largest number that counts; more is taken for that."""
    check: Check | None = None
    """Asked about a value of the right shape in which no placeholder stands."""
    is_literal: bool = False
    """True if nothing is put into the value, so that no placeholder can make it right."""
    is_file: bool = False
    """True if a relative path is looked for beside the definition's file when that is imported."""
    is_in_resources: bool = False
    """True if such a file may stand in the folder of resources of the workers instead."""

    def fault_of(self, value: object) -> Fault | None:
        """Return the fault that a value is; None if the launcher takes it."""
        if value is None:
            return None
        try:
            self._read(value)
        except ValueFaultError as error:
            return Fault(key=f"{self.name}{error.at}", problem=str(error))
        return None

    def _read(self, value: object) -> None:
        match self.shape:
            case Shape.TEXT:
                read_text(value)
            case Shape.NUMBER:
                read_number(value)
            case Shape.WORD:
                read_word(value, self.words)
            case Shape.FLAG:
                read_flag(value)
            case Shape.SIZE:
                read_size(value)
            case Shape.LIST:
                read_list(value, self.of_what)
            case Shape.ENTRIES:
                read_entries(value, self.of_what)
            case Shape.SETTINGS:
                read_settings(value)
            case Shape.RESOURCE:
                read_resource(value)
            case Shape.RESOURCES:
                read_resources(value)
            case Shape.ANY:
                pass
            case _:
                assert_never(self.shape)
        # A blank text is a missing one; any other shape has no blanks.
        is_given = not is_absent(value) if self.shape is Shape.TEXT else value not in ("", {})
        if self.check is not None and is_given and (self.is_literal or not is_open(value)):
            self.check(value)


LOCAL_PARAMS: Final = Key(
    name="localParams", shape=Shape.ANY, about="Parameters of the task itself, IN and OUT."
)
RESOURCE_LIST: Final = Key(
    name="resourceList",
    shape=Shape.RESOURCES,
    about="Files that the task finds in its directory under their own names.",
    is_file=True,
    is_in_resources=True,
)

FILE_TEXT: Final = Key(
    name="fileText", about="The text of the script that `file` names; it runs without any change."
)
DIGESTS: Final = Key(
    name="digests",
    shape=Shape.SETTINGS,
    about="The SHA-256 of files on the workers, by their names; an attempt fails by another file.",
)


def _no_faults(_params: Mapping[str, Any], /) -> Iterator[Fault]:
    yield from ()


def _no_text_faults(_params: Mapping[str, Any], _is_parameter: IsParameter, /) -> Iterator[Fault]:
    yield from ()


def _any_name(_name: str, /) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTypeSpec:
    """All that is known of a task type before one of its tasks runs.

    With its name alone it promises nothing: any keys, no data sources, no help after failures.
    """

    name: str
    about: str = ""
    kind: TaskKind = TaskKind.PROCESS
    keys: tuple[Key, ...] = ()
    node_keys: tuple[str, ...] = ()
    """The keys of the node itself, outside `params`, that mean something to this type alone."""
    ignored_keys: tuple[str, ...] = ()
    """The keys that the original's front end writes, and that have no effect here."""
    needs: tuple[tuple[str, ...], ...] = ()
    """Groups of keys. Without one key of each group every attempt fails."""
    alternatives: tuple[tuple[str, ...], ...] = ()
    """Groups of keys of which one at most may be given."""
    faults: Faults = _no_faults
    """Finds the faults that lie between keys. Values with placeholders are to be let through."""
    text_faults: TextFaults = _no_text_faults
    """Finds the faults in texts with bound parameters, also if they contain placeholders."""
    warnings: Faults = _no_faults
    """Finds keys that are allowed and do not do what their author may expect."""
    named_keys: tuple[str, ...] = ()
    """The keys with texts in which `!{name}` is a name; without the parameter an attempt fails."""
    needs_values: bool = False
    """True if an attempt also fails by a `${name}` in these texts without the parameter."""
    names_are_its_own: bool = True
    """True if `${name}` in its texts may mean something else than a parameter, as in a shell."""
    datasources: DatasourceUse = DatasourceUse.NONE
    former_values: str = ""
    """A word that stands in the JSON of every node which wants what former runs have measured; ""
    if none does."""
    memory_retry: bool = False
    """True if the memory of an attempt is Orcaflow's to raise (`memoryRetry`)."""
    is_retried: bool = True
    """False if no attempt is ever tried again."""
    artefacts: tuple[str, ...] = ()
    """The files that an attempt leaves beside its log."""
    session_work: str = ""
    """For a session: the module whose `run(spark, job)` does the work."""
    scripts: tuple[str, ...] = ()
    """The keys whose text is a program, of which a value that is put into it becomes a part."""
    program: str = ""
    """The key with the script or statements, which an editor shows with line numbers."""
    starts_with: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Initial values of a new task in an editor, by keys of `params` and of the node."""
    skips_parameters_file: bool = False
    """True if an attempt without parameters of its own needs no file of parameters."""
    problem: str = ""
    """The reason for which the type's own specification can't be had; "" if it could be read."""

    def faults_in(
        self, params: Mapping[str, Any], is_parameter: IsParameter = _any_name
    ) -> Iterator[Fault]:
        """Yield every value that the launcher refuses for any values of parameters.

        This is the only check of a task's form: lint, import and the launcher call it.
        """
        for key in self.keys:
            fault = key.fault_of(params.get(key.name))
            if fault is not None:
                yield fault
        for group in self.alternatives:
            given = [key for key in group if not is_absent(params.get(key))]
            if len(given) > 1:
                problem = f"and params.{given[1]} are both given; which one is meant?"
                yield Fault(key=given[0], problem=problem)
        yield from self.faults(params)
        yield from self.text_faults(params, is_parameter)

    def missing_in(self, params: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
        """Yield each group of keys of which one is needed and none is given."""
        for keys in self.needs:
            if all(is_absent(params.get(key)) or params[key] == "{}" for key in keys):
                yield keys

    def keeps(self, key: str) -> bool:
        """Return whether a task of this type may have the key in its `params`."""
        return (
            key in self.node_keys
            or key in self.ignored_keys
            or any(each.name == key for each in (*self.keys, LOCAL_PARAMS, RESOURCE_LIST))
        )

    def files(self) -> Iterator[Key]:
        """Yield the keys that name files. Every type may have resources."""
        yield from (key for key in self.keys if key.is_file and key.name != RESOURCE_LIST.name)
        yield RESOURCE_LIST

    def wants_datasources(self, task_json: str) -> bool:
        """Return whether an attempt with this node is given rows of data sources."""
        if self.datasources is DatasourceUse.NAMED:
            # Most Spark tasks name none, and their JSON need not be read to know that.
            return DATASOURCES in task_json
        return self.datasources is DatasourceUse.ONE

    def wants_former_values(self, task_json: str) -> bool:
        """Return whether an attempt with this node is given what former runs have measured."""
        return bool(self.former_values) and self.former_values in task_json


def is_absent(value: object) -> bool:
    """Return whether a value means that its key is not given."""
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], {})


def read_text(value: object) -> str:
    """Return a text, "" for None. Numbers are taken as they are written."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueFaultError(f"must be text, not {kind_of(value)}")
    if "\0" in str(value):
        raise ValueFaultError("has a NUL character")
    return str(value)


def read_number(value: object) -> int:
    """Return a whole number that is not negative, 0 for none."""
    text = read_text(value).strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise ValueFaultError(f"must be a whole number, not {text[:_SHOWN_CHARS]!r}")
    return int(text[:12])


def read_word(value: object, words: tuple[str, ...]) -> str:
    """Return one of the words in their own spelling, "" for none."""
    text = read_text(value).strip()
    for word in words:
        if text.lower() == word.lower():
            return word
    if text:
        raise ValueFaultError(f"must be one of {', '.join(words)}, not {text[:_SHOWN_CHARS]!r}")
    return ""


def read_flag(value: object) -> bool:
    """Return a boolean or the word for it, False for none."""
    if isinstance(value, bool):
        return value
    text = "" if value is None else str(value).strip().lower()
    if text not in ("", "true", "false"):
        raise ValueFaultError(f"must be true or false, not {text[:_SHOWN_CHARS]!r}")
    return text == "true"


def read_size(value: object) -> str:
    """Return an amount of memory as it is written, "" for none."""
    text = read_text(value).strip()
    if text and not _SIZE.fullmatch(text):
        raise ValueFaultError(f"must be like 512M or 2G, not {text[:_SHOWN_CHARS]!r}")
    return text


def read_list(value: object, of_what: str) -> list[str]:
    """Return a list of texts; a text stands for a list of one."""
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueFaultError(f"must be a list of {of_what}")
    return texts


def read_entries(value: object, of_what: str) -> list[object]:
    """Return the entries of a list, or of a text that has them joined by commas."""
    entries = value.split(",") if isinstance(value, str) and value else value or []
    if not isinstance(entries, list):
        raise ValueFaultError(f"must be a list of {of_what}")
    return entries


def read_settings(value: object) -> dict[str, str]:
    """Return an object of texts; booleans are spelled as JSON does."""
    if not value:
        return {}
    if not isinstance(value, Mapping):
        raise ValueFaultError("must be an object")
    settings: dict[str, str] = {}
    for name, each in value.items():
        if isinstance(each, bool):
            settings[str(name)] = "true" if each else "false"
        elif isinstance(each, str | int | float):
            settings[str(name)] = str(each)
        else:
            raise ValueFaultError("must be text, a number or a boolean", at=f".{str(name)[:80]}")
    return settings


def read_resource(entry: object) -> str:
    """Return the name in `{"res": …}`, or in the later forms `{"resourceName": …}` and text."""
    if isinstance(entry, Mapping):
        name = entry.get("res") or entry.get("resourceName")
        if not name and entry.get("id") is not None:
            raise ValueFaultError("names a resource by its id only; give its path as 'res'")
    else:
        name = entry
    if not isinstance(name, str) or not name.strip():
        raise ValueFaultError("needs the path of a file as 'res'")
    return name.strip()


def read_resources(value: object) -> list[str]:
    """Return the names in a list of resources."""
    listed = value or []
    if not isinstance(listed, list):
        raise ValueFaultError("must be a list")
    names = []
    for index, entry in enumerate(listed):
        try:
            names.append(read_resource(entry))
        except ValueFaultError as error:
            raise ValueFaultError(str(error), at=f"[{index}]") from None
    return names


def kind_of(value: object) -> str:
    """Return the JSON name of a value's kind, with its article."""
    names = {dict: "an object", list: "a list", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else "text")


def is_open(value: object) -> bool:
    """Return whether a placeholder stands in a value, so that it may still become another."""
    if isinstance(value, str):
        return _PLACEHOLDER.search(value) is not None
    if isinstance(value, Mapping):
        return any(is_open(each) for each in value.values())
    if isinstance(value, list):
        return any(is_open(each) for each in value)
    return False


def faults_from(text: str) -> Iterator[Fault]:
    """Yield the faults in a launcher's message: its lines that begin with a key."""
    for line in text.splitlines():
        found = _FAULT.fullmatch(line)
        if found is not None:
            yield Fault(key=found[1], problem=found[2])


def text_of(params: Mapping[str, Any], key: str) -> str:
    """Return a text, "" if it is absent or none: for rules between keys, which are judged apart."""
    try:
        return read_text(params.get(key)).strip()
    except ValueFaultError:
        return ""
