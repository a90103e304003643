"""Start-up parameters as people give them: pairs of a name and a value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from common.masking import is_secret
from common.store.people.definitions import DefinitionRow
from operations.definition_document import object_of
from operations.errors import UsageError
from operations.secret_references import is_mask


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


def unmasked(
    params: Mapping[str, str], definition: DefinitionRow | None, *, stored: str | None = None
) -> dict[str, str]:
    """Return the parameters with each mask of a secret replaced by its stored value.

    `stored` holds the parameters that these replace. A masked parameter that it lacks is left out
    if the definition declares it, so that the definition's value applies; else `UsageError`.
    """
    former = object_of(stored or "{}")
    declared = () if definition is None else _declared(definition)
    found: dict[str, str] = {}
    for name, value in params.items():
        if not (is_secret(name) and is_mask(value)):
            found[name] = value
        elif name in former:
            known = former[name]
            found[name] = known if isinstance(known, str) else json.dumps(known)
        elif name not in declared:
            raise UsageError(
                "params", f"{name:.200} is masked, and no value of it is stored: give the value"
            )
    return found


def _declared(definition: DefinitionRow) -> frozenset[str]:
    """Return the names of the definition's global parameters."""
    inner = object_of(definition.process_definition_json or "{}").get("globalParams")
    found = [*_decoded(definition.global_params), *_decoded(inner)]
    return frozenset(str(each.get("prop")) for each in found if isinstance(each, dict))


def _decoded(given: object) -> list[object]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return []
    return given if isinstance(given, list) else []


def stored_params(params: Mapping[str, str]) -> str:
    """The JSON of the column `start_params`."""
    return json.dumps(params, ensure_ascii=False)
