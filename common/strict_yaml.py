"""YAML from files of people, read within limits, and written so that people read it.

What is read are the values of JSON: texts, whole numbers, fractions, `true`, `false` and `null`.
Dates, `yes` and `on` stay texts, and tags are refused, so that no value means another than it says.
Repeated keys are mistakes, and aliases are few, as is all that they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from common.errors import InvalidDefinitionError
from common.strict_json import MAX_BYTES, check_storable

MAX_DEPTH: Final = 64
_MOST_ALIASES: Final = 100
_MOST_VALUES: Final = 1_000_000
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,30})")
# Not a form that the writer leaves without quotation marks for a text.
_FRACTION: Final = re.compile(r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+][0-9]{1,3})?")
_STRING: Final = "tag:yaml.org,2002:str"


def strict_yaml(content: bytes) -> Any:
    """The document; `InvalidDefinitionError` for whatever is no plain value, and for size."""
    if len(content) > MAX_BYTES:
        _refuse(f"is larger than {MAX_BYTES // 1_000_000} MB")
    try:
        text = content.decode("utf-8-sig")
        document = _Builder().build(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(f"line {line}: byte {error.start} is not UTF-8")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1} column {mark.column + 1}: "
        _refuse(f"{where}not YAML: {getattr(error, 'problem', None) or error!s:.200}")
    check_storable(document)
    return document


def yaml_text(document: object) -> str:
    """Write a document; texts of several lines stand as they are, in blocks."""
    return yaml.dump(
        document,
        Dumper=_Dumper,
        allow_unicode=True,
        sort_keys=False,
        default_flow_style=False,
        width=1000,
    )


class _Builder:
    """Builds the document from the events of the parser, and counts while it does."""

    def __init__(self) -> None:
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._aliases = 0
        self._values = 0
        self._depth = 0

    def build(self, text: str) -> Any:
        events = yaml.parse(text, Loader=yaml.CSafeLoader)
        made: list[Any] = []
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if made:
                    _refuse(f"line {_line(event)}: a file holds one document; write a list")
            elif isinstance(event, NodeEvent):
                made.append(self._value(event, events))
        return made[0] if made else None

    def _value(self, event: Any, events: Any) -> Any:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        before = self._values
        self._count(event, 1)
        if event.tag is not None and not (isinstance(event, ScalarEvent) and event.tag == _STRING):
            _refuse(f"line {_line(event)}: the tag {event.tag!r:.60} is not read")
        made = self._collection(event, events) if isinstance(event, CollectionStartEvent) else None
        if isinstance(event, ScalarEvent):
            made = _scalar(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (made, self._values - before)
        return made

    def _collection(self, event: Any, events: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            _refuse(f"line {_line(event)}: nested more than {MAX_DEPTH} levels deep")
        made: Any = self._list(events) if isinstance(event, SequenceStartEvent) else None
        if isinstance(event, MappingStartEvent):
            made = self._object(events)
        self._depth -= 1
        return made

    def _list(self, events: Any) -> list[Any]:
        made: list[Any] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            made.append(self._value(event, events))
        return made

    def _object(self, events: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = event.value if isinstance(event, ScalarEvent) else None
            if not isinstance(key, Hashable) or not isinstance(key, str):
                _refuse(f"line {_line(event)}: a key must be a text")
            if key in made:
                _refuse(f"line {_line(event)}: the key {key!r:.80} stands twice")
            made[key] = self._value(next(events), events)
        return made

    def _alias(self, event: Any) -> Any:
        self._aliases += 1
        if self._aliases > _MOST_ALIASES:
            _refuse(f"line {_line(event)}: there are more than {_MOST_ALIASES} aliases")
        if event.anchor not in self._anchors:
            _refuse(f"line {_line(event)}: *{event.anchor:.60} stands for nothing above it")
        made, count = self._anchors[event.anchor]
        self._count(event, count)
        return made

    def _count(self, event: Any, count: int) -> None:
        self._values += count
        if self._values > _MOST_VALUES:
            _refuse(f"line {_line(event)}: there are more than {_MOST_VALUES:,} values")


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _FRACTION.fullmatch(text) else text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _refuse(mistake: str) -> NoReturn:
    raise InvalidDefinitionError((mistake,))


class _Dumper(yaml.SafeDumper):
    """Repeats what stands twice instead of pointing at it."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line ends are read as white space unless they stand as escapes.
    is_plain = text.replace("\n", "").replace("\t", "").isprintable()
    style = None if is_plain else '"'
    return dumper.represent_scalar(_STRING, text, style="|" if is_plain and "\n" in text else style)


_Dumper.add_representer(str, _written)
