"""Connections that encrypt the secrets of JSON documents in rows, and decrypt them.

The parameters of every statement are encrypted before the driver gets them, and the columns of type
`text` and `jsonb` in its result are decrypted. A `varchar` holds a name and is not decrypted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from psycopg2 import extensions

from common.sealing import MARK

_TEXT = 25


class RowKeys(Protocol):
    """`common.parameter_keys.ParameterKeys`."""

    def sealed(self, text: str) -> str: ...

    def opened(self, text: str) -> str: ...


def protect(connection: Any, keys: RowKeys) -> None:
    """Encrypt what a connection of the driver writes, and decrypt what it reads."""

    def read(written: Any, cursor: Any) -> Any:
        text = extensions.UNICODE(written, cursor)
        return keys.opened(text) if text is not None and MARK in text else text

    extensions.register_type(extensions.new_type((_TEXT,), "OPENED_TEXT", read), connection)
    connection.cursor_factory = _cursor(connection.cursor_factory or extensions.cursor, keys)


def reader_of_json(keys: RowKeys) -> Callable[[str], Any]:
    """Return the function that reads a JSON column."""
    return lambda text: json.loads(keys.opened(text))


def _cursor(base: type[Any], keys: RowKeys) -> type[Any]:
    def sealed(value: Any) -> Any:
        if isinstance(value, str):
            return keys.sealed(value)
        if isinstance(value, dict):
            return {name: sealed(each) for name, each in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            return [sealed(each) for each in value]
        if isinstance(value, tuple):
            return tuple(map(sealed, value))
        return value

    class SealingCursor(base):  # type: ignore[misc]
        def execute(self, query: Any, vars: Any = None) -> Any:  # noqa: A002  # The driver's name.
            return super().execute(query, vars if vars is None else sealed(vars))

        def mogrify(self, query: Any, vars: Any = None) -> Any:  # noqa: A002  # As above.
            return super().mogrify(query, vars if vars is None else sealed(vars))

        def executemany(self, query: Any, vars_list: Any) -> Any:
            return super().executemany(query, map(sealed, vars_list))

    return SealingCursor
