"""Renders a task's parameters and texts as its worker does, without running anything.

Values of parameters whose names sound secret are masked, wherever they came to stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from common.config import Config, cluster_zone
from common.errors import BadCommandError, SchedulerError
from common.masking import mask_value, secrets_in
from common.model.command_param import CommandParam, start_document
from common.model.task_type import ValueFaultError
from common.params import (
    Direct,
    Property,
    effective_parameters,
    parse_properties,
    replace_placeholders,
    secret_values,
    substitute,
    system_parameters,
)
from common.statement_names import with_names
from common.store.people.runs import TaskDocument
from common.task_types import known_task_types
from common.zones import zone_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`params` is the node's, every text in it with the parameters put in.

    `origins` has the source of each parameter's value; `put_out` is what the attempt has put
    out for those downstream.
    """

    moment: datetime
    parameters: Mapping[str, str]
    origins: Mapping[str, str]
    params: Mapping[str, Any]
    put_out: Mapping[str, str]


def rendered(document: TaskDocument, *, config: Config, now: datetime) -> Rendered:
    """Raises `SchedulerError` for a node or parameters that can't be read."""
    zone = _zone(document, config)
    moment = document.moment or now
    node = _node(document.task_json)
    params = _params(node)
    spec = known_task_types().get(str(node.get("type")))
    named_keys = spec.named_keys if spec is not None else ()
    system = system_parameters(moment=moment, zone=zone, built_ins=document.built_ins)
    global_properties = parse_properties(document.global_params or None)
    local_properties = parse_properties(params.get("localParams") or None)
    pool = parse_properties(document.input_pool or None)
    start_params = _start_params(document.command_param)
    parameters = effective_parameters(
        global_properties,
        local_properties,
        system=system,
        moment=moment,
        zone=zone,
        pool=pool,
        start_params=start_params,
    )
    put_out = parse_properties(document.var_pool or None)
    marked = [
        each for each in (*global_properties, *local_properties, *pool, *put_out) if each.secret
    ]
    secrets = (
        *secrets_in(parameters),
        *secret_values(marked, parameters),
        *secret_values(put_out),
    )

    def put_in(value: Any, *, is_named: bool = False) -> Any:
        match value:
            case str():
                # As in the attempt: a date may be a part of the reference.
                dated = replace_placeholders(value, moment=moment, zone=zone)
                text = _with_names(dated, parameters) if is_named else value
                return substitute(text, parameters, moment=moment, zone=zone)
            case list():
                return [put_in(item, is_named=is_named) for item in value]
            case dict():
                return {
                    key: put_in(item, is_named=key in named_keys) for key, item in value.items()
                }
            case _:
                return value

    texts = {
        key: put_in(value, is_named=key in named_keys)
        for key, value in params.items()
        if key != "localParams"
    }
    return Rendered(
        moment=moment,
        parameters=mask_value(dict(parameters), secrets),
        origins={
            name: _origin(name, global_properties, local_properties, pool, start_params)
            for name in parameters
        },
        params=mask_value(texts, secrets),
        put_out=mask_value({each.prop: each.value for each in put_out}, secrets),
    )


def _with_names(text: str, parameters: Mapping[str, str]) -> str:
    """Put the names into a text of SQL; a text whose attempt fails by one keeps its references."""
    try:
        return with_names(text, parameters.get)
    except ValueFaultError:
        return text


def _origin(
    name: str,
    global_properties: Iterable[Property],
    local_properties: Iterable[Property],
    pool: Iterable[Property],
    start_params: Mapping[str, str],
) -> str:
    """Return the source whose value a name has, by the table of `common.params`."""
    upstream = any(each.prop == name for each in pool)
    if name in start_params:
        return "start-up"
    if any(
        each.prop == name and each.direct is Direct.IN and (each.value or not upstream)
        for each in local_properties
    ):
        return "local"
    if upstream:
        return "upstream"
    return "global" if any(each.prop == name for each in global_properties) else "built-in"


def _start_params(command_param: str | None) -> dict[str, str]:
    """The values that the run was started with."""
    try:
        start = start_document(CommandParam.of_instance(command_param).start_params)
    except BadCommandError as error:
        raise SchedulerError(f"the run's StartParams can't be read: {error}") from error
    return {
        each.prop: each.value
        for each in parse_properties([{"prop": k, "value": v} for k, v in start.items()])
    }


def _node(task_json: str) -> dict[str, Any]:
    node = _read(task_json)
    return node if isinstance(node, dict) else {}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchedulerError(f"the task's JSON can't be read: {error}") from error


def _params(node: Mapping[str, Any]) -> dict[str, Any]:
    params = node.get("params")
    if isinstance(params, str) and params:
        params = _read(params)
    if params is None or params == "":
        return {}
    if not isinstance(params, dict):
        raise SchedulerError("the task's params are not an object")
    return params


def _zone(document: TaskDocument, config: Config) -> ZoneInfo:
    """The zone that placeholders are read in: the run's own, else by the daemons' rule."""
    if document.timezone_id is not None:
        return zone_named(document.timezone_id)
    return cluster_zone(config)
