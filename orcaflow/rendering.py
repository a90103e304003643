"""Works out what a worker makes of a task's parameters, without running anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from common.config import Config
from common.errors import SchedulerError
from common.model.commands import CommandType
from common.params import (
    effective_parameters,
    parse_properties,
    substitute,
    system_parameters,
)
from common.store.requests import TaskDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`params` is the node's, every text in it with the parameters put in."""

    moment: datetime
    parameters: Mapping[str, str]
    params: Mapping[str, Any]


def rendered(document: TaskDocument, *, config: Config, now: datetime) -> Rendered:
    """Raises `SchedulerError` for a node or parameters that can't be read."""
    zone = _zone(config)
    moment = document.schedule_time or document.start_time or now
    params = _params(document.task_json)
    system = system_parameters(
        moment=moment,
        zone=zone,
        complement=(document.history_cmd or "").startswith(CommandType.COMPLEMENT_DATA.name),
    )
    parameters = effective_parameters(
        parse_properties(document.global_params or None),
        parse_properties(params.get("localParams") or None),
        system=system,
        moment=moment,
        zone=zone,
    )

    def put_in(value: Any) -> Any:
        match value:
            case str():
                return substitute(value, parameters, moment=moment, zone=zone)
            case list():
                return [put_in(item) for item in value]
            case dict():
                return {key: put_in(item) for key, item in value.items()}
            case _:
                return value

    texts = {key: put_in(value) for key, value in params.items() if key != "localParams"}
    return Rendered(moment=moment, parameters=parameters, params=texts)


def _params(task_json: str) -> dict[str, Any]:
    try:
        node = json.loads(task_json)
        params = node.get("params") if isinstance(node, dict) else None
        if isinstance(params, str) and params:
            params = json.loads(params)
    except (ValueError, RecursionError) as error:
        raise SchedulerError(f"the task's JSON can't be read: {error}") from error
    if params is None or params == "":
        return {}
    if not isinstance(params, dict):
        raise SchedulerError("the task's params are not an object")
    return params


def _zone(config: Config) -> ZoneInfo:
    """The zone that placeholders are read in: the daemons' rule."""
    if config.time_zone:
        return ZoneInfo(config.time_zone)
    # Here, because only a computer without a configured zone has to be asked for its own.
    from tzlocal import get_localzone

    return get_localzone()
