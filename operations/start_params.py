"""Start-up parameters as people give them: pairs of a name and a value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from operations.errors import UsageError


def params_of(pairs: Sequence[str]) -> dict[str, str]:
    """Names and values of NAME=VALUE pairs.

    Raises a `UsageError` of the field `param` for a text that is no pair, and for a repeated name.
    """
    params: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError("param", f"{pair!r:.200} is not NAME=VALUE")
        if name in params:
            raise UsageError("param", f"{name!r:.200} is given twice")
        if "\0" in pair or any("\ud800" <= character <= "\udfff" for character in pair):
            raise UsageError("param", f"{pair!r:.200} has a character that can't be stored")
        params[name] = value
    return params


def stored_params(params: Mapping[str, str]) -> str:
    """The JSON of the column `start_params`."""
    return json.dumps(params, ensure_ascii=False)
