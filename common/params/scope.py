"""Resolves the parameters of a run and of a task, and their values in a script.

The master resolves global parameters; the worker does the rest for each task. The table in the
package's docstring decides between equal names.

Time placeholders in values and in scripts count from the same moment: the run's, or the one that a
parameter with the name `system.datetime` gives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from common.params.moments import days_later, format_compact, in_zone, parse_compact
from common.params.placeholders import replace_placeholders
from common.params.properties import DataType, Direct, Property
from common.params.references import References, replace_references

BIZ_DATE: Final = "system.biz.date"
BIZ_CURDATE: Final = "system.biz.curdate"
DATETIME: Final = "system.datetime"
SYSTEM_NAMES: Final = (BIZ_DATE, BIZ_CURDATE, DATETIME)
"""The dates that every run has."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def system_parameters(
    *, moment: datetime, zone: ZoneInfo, built_ins: Mapping[str, str] = _NONE
) -> dict[str, str]:
    """The dates that every run has; `built_ins` adds names and ids (`common.params.built_ins`).

    `moment` is the run's (`common.business_dates`); the business date is the day before.
    """
    base = in_zone(moment, zone)
    now = format_compact(base, zone)
    return {
        **built_ins,
        BIZ_DATE: format_compact(days_later(base, -1), zone)[:8],
        BIZ_CURDATE: now[:8],
        DATETIME: now,
    }


def resolve_global_params(
    properties: Iterable[Property],
    *,
    moment: datetime,
    zone: ZoneInfo,
    built_ins: Mapping[str, str] = _NONE,
    start_params: Mapping[str, str] = _NONE,
) -> tuple[Property, ...]:
    """The global parameters of a run with their values worked out, one a name.

    Of duplicates the last one wins. Start-up parameters replace values and add new parameters;
    a value may refer to system parameters and to other globals, wherever in it the `$` stands.
    """
    declared = {each.prop: each for each in properties}
    for prop, value in start_params.items():
        known = declared.get(prop)
        declared[prop] = replace(known, value=value) if known else Property(prop=prop, value=value)
    system = system_parameters(moment=moment, zone=zone, built_ins=built_ins)
    known_values = {**system, **{prop: each.value for prop, each in declared.items()}}
    references = References(known_values)
    at = _moment_of_values(known_values, moment, zone)
    return tuple(
        replace(each, value=replace_placeholders(references.value(prop), moment=at, zone=zone))
        for prop, each in declared.items()
    )


def effective_parameters(
    global_properties: Iterable[Property],
    local_properties: Iterable[Property],
    *,
    system: Mapping[str, str],
    moment: datetime,
    zone: ZoneInfo,
    pool: Iterable[Property] = (),
    start_params: Mapping[str, str] = _NONE,
) -> dict[str, str]:
    """Return the parameters of a task's scripts; the package's table decides between equal names.

    A value may refer to system parameters, globals and the pool; a local one not to other locals,
    so that `day` may be declared as `${day}-x` from the global of the same name. The pool's
    values were resolved upstream and are taken as they are. Start-up parameters are among the
    resolved globals; one that is missing there counts as given. Processing happens even when
    nothing is declared.
    """
    global_values = {**start_params, **{each.prop: each.value for each in global_properties}}
    strongest = {prop: global_values[prop] for prop in start_params}
    pool_values = {each.prop: each.value for each in pool if each.prop not in strongest}
    local_values = {
        each.prop: each.value
        for each in local_properties
        if each.direct is Direct.IN and (each.value or each.prop not in pool_values)
    }
    known_values = {**system, **global_values, **pool_values}
    references = References(known_values)
    at = _moment_of_values({**known_values, **local_values}, moment, zone)
    worked_out = {
        prop: replace_placeholders(references.replace(value), moment=at, zone=zone)
        for prop, value in {**global_values, **local_values, **strongest}.items()
        if prop not in pool_values or prop in local_values
    }
    return {**system, **pool_values, **worked_out}


def parameter_types(
    global_properties: Iterable[Property],
    local_properties: Iterable[Property],
    *,
    pool: Iterable[Property] = (),
) -> dict[str, DataType]:
    """Return the type to bind each value with: of the local, else the pool, else the global.

    A name that is missing is text.
    """
    read = (each for each in local_properties if each.direct is Direct.IN)
    return {each.prop: each.type for each in (*global_properties, *pool, *read)}


def substitute(
    text: str, parameters: Mapping[str, str], *, moment: datetime, zone: ZoneInfo
) -> str:
    """The text with every known `${name}`, then every `$[form]` replaced.

    Values are put in as they are: quoting them is the author's business. `moment` is the run's, and
    a parameter with the name `system.datetime` goes before it, as in values.
    """
    replaced = replace_references(text, parameters)
    at = _moment_of_values(parameters, moment, zone)
    return replace_placeholders(replaced, moment=at, zone=zone)


def _moment_of_values(values: Mapping[str, str], moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment of `system.datetime`, which a parameter of that name may change."""
    said = values.get(DATETIME)
    if said == format_compact(moment, zone):
        return moment  # It also knows which of two equal wall-clock times is meant.
    return parse_compact(said, zone) or moment
