"""The fields of a form for the keys of a task type, made from the type's specification.

Pure. A key with a simple shape has a field with its text. The value of any other key is JSON in its
field, or plain text. A value that its field can't show stays with the keys that have no field, so
that a form loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.errors import InvalidDefinitionError
from common.model.task_type import Key, Shape, TaskTypeSpec
from common.strict_json import strict_json

PARAM: Final = "param:"
"""Before the name of a key of `params`, in the name of its field."""
PART: Final = "part:"
"""Before the name of a key of the node itself."""
_TEXTS: Final = frozenset({Shape.TEXT, Shape.SIZE, Shape.WORD})
_SIMPLE: Final = frozenset({*_TEXTS, Shape.NUMBER, Shape.FLAG})
_BEGINS_JSON: Final = ("{", "[", '"')
_FLAGS: Final = ("true", "false")
_MOST_DIGITS: Final = 18


class FieldError(Exception):
    """A field of the form can't be read; `field` is its name, or the name of its key."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field: Final = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A field of the form."""

    field: str
    key: str
    kind: str
    """`line`, `number`, `choice`, `lines`, or `json`."""
    text: str
    words: tuple[str, ...] = ()
    default: str = ""
    about: str = ""
    group: tuple[str, ...] = ()
    """The keys of which one is needed; empty for a key that is not needed."""

    @property
    def is_main(self) -> bool:
        """True for a field that is shown without unfolding: it is needed, or has a value."""
        return bool(self.group or self.text or self.field.startswith(PART))


def inputs_of(spec: TaskTypeSpec, node: Mapping[str, Any]) -> tuple[Input, ...]:
    """Return the fields for the keys of a type, filled from a task."""
    params = params_of(node)
    return (
        *(
            _input(key, spec, shown)
            for key in _keys(spec)
            if (shown := shown_text(key, params.get(key.name))) is not None
        ),
        *(
            Input(field=PART + name, key=name, kind="json", text=_json(part_of(node, name)))
            for name in spec.node_keys
        ),
    )


def typed_inputs(spec: TaskTypeSpec, form: Mapping[str, str]) -> tuple[Input, ...]:
    """Return the fields with what was typed into them."""
    return (
        *(_input(key, spec, form.get(PARAM + key.name, "")) for key in _keys(spec)),
        *(
            Input(field=PART + name, key=name, kind="json", text=form.get(PART + name, ""))
            for name in spec.node_keys
        ),
    )


def params_of(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a task; none if the document has something else there."""
    params = node.get("params")
    return params if isinstance(params, dict) else {}


def part_of(node: Mapping[str, Any], name: str) -> object:
    """Return a part of a node that control tasks have; older documents have it in `params`."""
    return node[name] if name in node else params_of(node).get(name)


def without_field(spec: TaskTypeSpec, node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `params` that have no field and are not the task's program."""
    keys = {key.name: key for key in _keys(spec)}
    hidden = {spec.program, *spec.node_keys}
    return {
        name: value
        for name, value in params_of(node).items()
        if name not in hidden
        and (name not in keys or (value is not None and shown_text(keys[name], value) is None))
    }


def read_params(
    spec: TaskTypeSpec, node: Mapping[str, Any], form: Mapping[str, str]
) -> dict[str, Any]:
    """Return the entries of `params` from their fields; `FieldError` names a key that is wrong.

    A field that the form lacks, and a text that was not changed, leave the value as it is.
    """
    stored = params_of(node)
    found: dict[str, Any] = {}
    for key in _keys(spec):
        given = form.get(PARAM + key.name)
        shown = shown_text(key, stored.get(key.name))
        if given is not None and _plain(given) != _plain(shown or ""):
            value = _value(key, _plain(given))
            if value is not None:
                found[key.name] = value
        elif key.name in stored and shown is not None:
            found[key.name] = stored[key.name]
    return found


def read_parts(
    spec: TaskTypeSpec, node: Mapping[str, Any], form: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield the parts of the node itself from their fields, if there are any."""
    for name in spec.node_keys:
        value = part_of(node, name)
        given = form.get(PART + name)
        if given is not None and _plain(given) != _plain(_json(value)):
            value = _json_in(name, given) if given.strip() else None
        if value is not None:
            yield name, value


def shown_text(key: Key, value: object) -> str | None:
    """Return the text of a value in its field; None if the field can't show it."""
    if value is None:
        return ""
    if key.shape not in _SIMPLE:
        is_text = isinstance(value, str) and not _is_json(value.strip())
        is_plain = is_text and _value(key, _plain(str(value))) == value
        return str(value) if is_plain else json.dumps(value, ensure_ascii=False, indent=2)
    if isinstance(value, bool):
        return str(value).lower() if key.shape is Shape.FLAG else None
    if not isinstance(value, str | int | float):
        return None
    # A word in other letters is the same word.
    bare = str(value).strip().lower()
    return next((word for word in _words(key) if word.lower() == bare), str(value))


def _words(key: Key) -> tuple[str, ...]:
    return _FLAGS if key.shape is Shape.FLAG else key.words


def _input(key: Key, spec: TaskTypeSpec, text: str) -> Input:
    words = _words(key)
    kind = "line"
    if words:
        kind = "choice"
        words = words if not text or text in words else (*words, text)
    elif key.shape is Shape.NUMBER:
        kind = "number"
    elif key.shape not in _SIMPLE:
        kind = "json"
    elif "\n" in text:
        kind = "lines"
    return Input(
        field=PARAM + key.name,
        key=key.name,
        kind=kind,
        text=text,
        words=words,
        default="" if key.default is None else str(key.default),
        about=key.about,
        group=next((group for group in spec.needs if key.name in group), ()),
    )


def _value(key: Key, text: str) -> Any:
    """Return the value that a text means."""
    bare = text.strip()
    if not bare:
        return None
    if key.shape in _TEXTS:
        return text
    if key.shape is Shape.NUMBER:
        is_number = bare.isascii() and bare.isdigit() and len(bare) <= _MOST_DIGITS
        return int(bare) if is_number else text
    if key.shape is Shape.FLAG:
        return bare.lower() == "true" if bare.lower() in _FLAGS else text
    if _is_json(bare):
        return _json_in(key.name, bare)
    return int(bare) if key.shape is Shape.ANY and _is_whole(bare) else text


def _is_json(text: str) -> bool:
    return text.startswith(_BEGINS_JSON)


def _is_whole(text: str) -> bool:
    return (
        text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and str(int(text)) == text
    )


def _json_in(key: str, text: str) -> Any:
    try:
        return strict_json(text.encode())
    except InvalidDefinitionError as error:
        raise FieldError(key, "; ".join(error.mistakes)) from None


def _json(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)


def _keys(spec: TaskTypeSpec) -> Iterator[Key]:
    yield from (key for key in spec.keys if key.name != spec.program)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")
