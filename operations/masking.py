"""Keeps values that must not be seen off the screen: those of parameters whose names sound secret.

The rule is that of the workers' logs, so that what a log hides is not shown here either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.masking import MASK, SHORTEST_MASKED, is_secret


def secrets_in(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """The values to hide, longer ones first: one may begin with another."""
    found = {value for name, value in parameters.items() if value and is_secret(name)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def masked(value: Any, secrets: Sequence[str], *, name: str = "") -> Any:
    """The value, or the parts of it, without these secrets; all of it if its name sounds secret."""
    match value:
        case str():
            if name and value and is_secret(name):
                return MASK
            for secret in secrets:
                if len(secret) >= SHORTEST_MASKED:
                    value = value.replace(secret, MASK)
            return value
        case list():
            return [masked(item, secrets) for item in value]
        case dict():
            return {key: masked(item, secrets, name=str(key)) for key, item in value.items()}
        case _:
            return value
