"""The global parameters of a process instance, when it begins or begins again. Pure.

Global parameters are *resolved*: their values are computed (contract §9.3). A sub process also
inherits: the local parameters of the task that began it replace values of its own; the output of
the tasks above, and then the parent's globals, fill in what it does not have (contract §3.7, §9.8).

A sub process of another project runs with the account and the secrets of that project, and its
scripts may contain `${name}`, which a worker replaces by the value. So only values for names that
the child declares reach it, and only values that are harmless in a program's text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from common.errors import BadCommandError
from common.masking import SHORTEST_MASKED
from common.model.codes import code_of_node, task_code
from common.model.command_param import start_values
from common.model.plans import ParentSnapshot
from common.params import (
    Direct,
    ParameterError,
    Property,
    built_in_parameters,
    effective_parameters,
    parse_properties,
    properties_json,
    resolve_global_params,
    secret_values,
    system_parameters,
)
from common.params.values import check_given
from master.logic.node_json import local_parameters

_HARMLESS: Final = re.compile(
    r"[\w./:@%+,-]*|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
)
"""A value that no shell, no Python and no SQL takes for more than a word or a moment."""


class ForeignValueError(ParameterError):
    """A value for a child of another project is refused, with a text for the parent's project."""


def resolved_global_params(
    declared: tuple[str | None, ...],
    *,
    given: str | None,
    moment: datetime,
    parent: ParentSnapshot | None,
    zone: ZoneInfo,
    is_foreign: bool = False,
    is_stored: bool = False,
) -> str:
    """Resolve the global parameters, as JSON, with dates counted from the moment in `zone`.

    `declared`: the sources, of which the first that has any counts; `given`: StartParams, which
    are of their declared types unless `is_stored`: a run from before this was checked may be
    repeated; `is_foreign`: the parent is of another project than the run. Raises `ParameterError`
    for mistakes of an author or a user.
    """
    properties: tuple[Property, ...] = ()
    for source in declared:
        properties = properties or parse_properties(source)
    try:
        start = start_values(given)
    except BadCommandError as error:
        raise ParameterError(str(error)) from error
    if parent is not None:
        handed = _handed_down(parent, moment, zone)
        if is_foreign:
            handed = _for_another_project(handed, parent, {each.prop for each in properties})
        start = {**handed, **start}
    result = list(resolve_global_params(properties, moment=moment, zone=zone, start_params=start))
    if start and not is_stored:
        values = {each.prop: each.value for each in result if each.prop in start}
        check_given(values, {each.prop: each.type for each in properties})
    if parent is not None:
        result = _marked(result, parent)
    if parent is not None and not is_foreign:
        known = {each.prop for each in result}
        for each in (*parse_properties(parent.input_pool), *parse_properties(parent.global_params)):
            if each.prop not in known:
                known.add(each.prop)
                # What goes up is the child's own to say.
                result.append(
                    Property(prop=each.prop, type=each.type, value=each.value, secret=each.secret)
                )
    return properties_json(result)


def _marked(properties: Sequence[Property], parent: ParentSnapshot) -> list[Property]:
    """Mark the parameters with values that contain a secret of the parent."""
    local = parse_properties(local_parameters(parent.task_json))
    secrets = secret_values(
        (*parse_properties(parent.global_params), *parse_properties(parent.input_pool), *local)
    )

    def holds(value: str, secret: str) -> bool:
        return value == secret or (len(secret) >= SHORTEST_MASKED and secret in value)

    return [
        replace(each, secret=True) if any(holds(each.value, one) for one in secrets) else each
        for each in properties
    ]


def _handed_down(parent: ParentSnapshot, moment: datetime, zone: ZoneInfo) -> dict[str, str]:
    """Compute the local IN parameters of the SUB_PROCESS task like those of any task."""
    local = parse_properties(local_parameters(parent.task_json))
    wanted = [each.prop for each in local if each.direct is not Direct.OUT]
    if not wanted:
        return {}
    known = effective_parameters(
        parse_properties(parent.global_params),
        local,
        system=system_parameters(moment=moment, zone=zone, built_ins=_built_ins(parent)),
        moment=moment,
        zone=zone,
        pool=parse_properties(parent.input_pool),
    )
    return {name: known[name] for name in wanted if name in known}


def _for_another_project(
    handed: Mapping[str, str], parent: ParentSnapshot, declared: Collection[str]
) -> dict[str, str]:
    """Return the values that a child of another project gets.

    All values are checked, so that the answer does not show which names the child declares.
    """
    for name, value in handed.items():
        if not _HARMLESS.fullmatch(value):
            raise ForeignValueError(
                f"the value of {name!r} in task {parent.task_name!r} can't go to a definition of"
                " another project: it may contain letters, digits and _ . / : @ % + , - without"
                " spaces, or be a moment such as 2026-01-31 06:00:00"
            )
    return {name: value for name, value in handed.items() if name in declared}


def _built_ins(parent: ParentSnapshot) -> dict[str, str]:
    definition_id = parent.ancestors[-1] if parent.ancestors else 0
    return built_in_parameters(
        parent.origin,
        process_instance_id=parent.process_instance_id,
        task_name=parent.task_name,
        task_code=code_of_node(parent.task_json) or task_code(definition_id, parent.task_name),
    )
