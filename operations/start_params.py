"""Start-up parameters as people give them: pairs of a name and a value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from common.masking import is_secret
from common.model.command_param import is_marked, marked, unmarked
from common.params import DataType, ParameterError, parse_properties
from common.params.values import ParameterValueError, check_given
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


def checked_params(
    params: Mapping[str, str], definition: DefinitionRow | None, *, stored: str | None = None
) -> dict[str, str]:
    """Return the parameters with each mask of a secret replaced by its stored value.

    `stored` holds the parameters that these replace. A masked parameter that it lacks is left out
    if the definition declares it, so that the definition's value applies; else `UsageError`. So is
    a value that is not of the type which the definition declares for its name.
    """
    found = _unmasked(params, definition, stored=stored)
    if definition is not None:
        try:
            check_given(found, types_of(definition))
        except ParameterValueError as error:
            raise UsageError("params", str(error)) from error
    return found


def types_of(definition: DefinitionRow) -> dict[str, DataType]:
    """Return the declared types of a definition's global parameters; none that can't be read."""
    inner = object_of(definition.process_definition_json or "{}").get("globalParams")
    for given in (definition.global_params, inner):
        try:
            # As in a run: the first source that has any counts.
            if declared := parse_properties(given):
                return {each.prop: each.type for each in declared}
        except ParameterError:
            continue  # The run itself is refused for it.
    return {}


def _unmasked(
    params: Mapping[str, str], definition: DefinitionRow | None, *, stored: str | None
) -> dict[str, str]:
    former = unmarked(object_of(stored or "{}"))
    declared = {} if definition is None else _declared(definition)
    found: dict[str, str] = {}
    for name, value in params.items():
        if not (is_mask(value) and (is_secret(name) or declared.get(name))):
            found[name] = value
        elif name in former:
            known = former[name]
            found[name] = known if isinstance(known, str) else json.dumps(known)
        elif name not in declared:
            raise UsageError(
                "params", f"{name:.200} is masked, and no value of it is stored: give the value"
            )
    return found


def _declared(definition: DefinitionRow) -> dict[str, bool]:
    """Return the names of the definition's global parameters; True for those marked secret."""
    inner = object_of(definition.process_definition_json or "{}").get("globalParams")
    found: dict[str, bool] = {}
    for each in [*_decoded(definition.global_params), *_decoded(inner)]:
        if isinstance(each, dict):
            name = str(each.get("prop"))
            found[name] = found.get(name, False) or each.get("secret") is True
    return found


def _decoded(given: object) -> list[object]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return []
    return given if isinstance(given, list) else []


def marked_params(
    params: Mapping[str, object], definition: DefinitionRow | None
) -> dict[str, object]:
    """Return the parameters with marks at those that the definition marks as secret.

    Marks that the parameters have already stay.
    """
    declared = {} if definition is None else _declared(definition)
    secret = {name for name, is_secret_there in declared.items() if is_secret_there}
    secret |= {name for name, value in params.items() if is_marked(name, value)}
    return marked(unmarked(params), secret)


def stored_params(params: Mapping[str, object]) -> str:
    """The JSON of the column `start_params`."""
    return json.dumps(params, ensure_ascii=False)
