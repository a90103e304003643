"""Reads the `connection_params` of a data source as strictly as a definition. Pure.

Errors repeat no value, because the text contains a password.
"""

from __future__ import annotations

from typing import Any

from common.errors import InvalidDefinitionError
from common.strict_json import NotJsonError, strict_json


class ConnectionParamsError(ValueError):
    """A text is not a valid set of connection parameters."""


def read_connection_params(text: str) -> dict[str, Any]:
    """Return the object in a text; `ConnectionParamsError` for any other text."""
    try:
        given = strict_json(text.encode("utf-8", "surrogatepass"))
    except NotJsonError:
        raise ConnectionParamsError("is not valid JSON") from None
    except InvalidDefinitionError:
        raise ConnectionParamsError(
            "is JSON with a repeated key, with NaN, or above the limits of size and depth"
        ) from None
    if not isinstance(given, dict):
        raise ConnectionParamsError("must be a JSON object")
    return given
