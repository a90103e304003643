"""Connections that encrypt the secrets of JSON documents in rows, and decrypt them.

Secrets in the parameters of every statement are encrypted before the driver gets them. Columns of
the types `text` and `jsonb` in results are decrypted. A `varchar` column holds a name and is not
decrypted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from psycopg2 import extensions

from common.sealed_tokens import DOCUMENT_BEGINS, MARK

_TEXT = 25


class RowKeys(Protocol):
    """The methods of `common.parameter_keys.ParameterKeys` that connections use."""

    def sealed(self, text: str) -> str: ...

    def opened(self, text: str) -> str: ...


def protect(connection: Any, keys: RowKeys) -> None:
    """Encrypt the secrets that a driver connection writes, and decrypt the texts that it reads."""

    def read(written: Any, _cursor: object) -> Any:
        return keys.opened(written) if written is not None and MARK in written else written

    extensions.register_type(extensions.new_type((_TEXT,), "OPENED_TEXT", read), connection)
    connection.cursor_factory = _cursor(connection.cursor_factory or extensions.cursor, keys)


def reader_of_json(keys: RowKeys) -> Callable[[str], Any]:
    """Return the function that reads a JSON column."""
    return lambda text: json.loads(keys.opened(text))


def _cursor(base: type[Any], keys: RowKeys) -> type[Any]:
    # Called for every statement, so it must be fast for numbers, times and names.
    def sealed(value: Any) -> Any:
        kind = type(value)
        if kind is str:
            is_plain = value[:1] not in DOCUMENT_BEGINS and MARK not in value
            return value if is_plain else keys.sealed(value)
        if kind is list:
            first = next((each for each in value if each is not None), None)
            return [sealed(each) for each in value] if isinstance(first, str | list) else value
        return keys.sealed(value) if isinstance(value, str) else value

    def all_sealed(values: Any) -> Any:
        if isinstance(values, dict):
            return {name: sealed(each) for name, each in values.items()}
        return None if values is None else tuple(map(sealed, values))

    class SealingCursor(base):  # type: ignore[misc]
        def execute(self, query: Any, vars: Any = None) -> Any:  # noqa: A002  # The driver's name.
            return super().execute(query, all_sealed(vars))

        def mogrify(self, query: Any, vars: Any = None) -> Any:  # noqa: A002  # As above.
            return super().mogrify(query, all_sealed(vars))

        def executemany(self, query: Any, vars_list: Any) -> Any:
            return super().executemany(query, map(all_sealed, vars_list))

    return SealingCursor
