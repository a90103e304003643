"""Puts names of tables and columns into the text of SQL: `!{name}`, as in DolphinScheduler.

Pure. A value that is put into a statement's text becomes a part of the statement, so only names are
accepted: letters, digits and `_`, with dots between the parts. Such a value can neither close a
text nor begin a comment or another statement. Used by SQL and SPARK_SQL tasks, and by lint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from common.model.task_type import Fault, ValueFaultError, read_list, read_text
from common.params import NAME_REFERENCE

_NAME: Final = re.compile(r"\w+(?:\.\w+)*")
_MAX_CHARS: Final = 400
_STAND_IN: Final = "x"
# `extract(year from ${day})` is right, so this is only ever a warning.
_AT_A_NAME: Final = re.compile(
    r"\b(from|join|into|table|update|view|database|schema|use)\s+\$\{([^{}\s]{1,80})\}",
    re.IGNORECASE,
)


def with_names(text: str, value_of: Callable[[str], str | None]) -> str:
    """Return the text with every `!{name}` replaced by the value of the parameter.

    `ValueFaultError` names a parameter that does not exist or whose value is not a name.
    """

    def put_in(reference: re.Match[str]) -> str:
        name = reference[1]
        value = value_of(name)
        if value is None:
            raise ValueFaultError(f"there is no parameter {name[:80]!r}")
        if len(value) > _MAX_CHARS or not _NAME.fullmatch(value):
            raise ValueFaultError(
                f"the value of parameter {name[:80]!r} is not a name, which !{{{name[:80]}}} needs:"
                " letters, digits and _, with dots between the parts; write"
                f" ${{{name[:80]}}} for a value"
            )
        return value

    return NAME_REFERENCE.sub(put_in, text)


def with_any_names(text: str) -> str:
    """Return the text with a stand-in for every `!{name}`, to check its form."""
    return NAME_REFERENCE.sub(_STAND_IN, text)


def name_notes(params: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[Fault]:
    """Yield a note for each `!{name}`, and for each `${name}` that is in the place of a name."""
    for key, text in texts_of(params, keys):
        for name in dict.fromkeys(NAME_REFERENCE.findall(text)):
            yield Fault(
                key=key,
                problem=f"!{{{name:.80}}} is replaced by the value itself, which must be a name:"
                " letters, digits and _, with dots between the parts",
            )
        for word, name in dict.fromkeys(_AT_A_NAME.findall(text)):
            yield Fault(
                key=key,
                problem=f"${{{name}}} after {word.upper()} is a value and not a name: write"
                f" !{{{name}}} for the name of a table",
            )


def texts_of(params: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the key and the text of every statement, those in lists as `key[index]`."""
    for key in keys:
        value = params.get(key)
        try:
            if isinstance(value, list):
                yield from (
                    (f"{key}[{index}]", each)
                    for index, each in enumerate(read_list(value, "statements"))
                )
            else:
                yield key, read_text(value)
        except ValueFaultError:
            continue  # The check of the key's shape reports it.
