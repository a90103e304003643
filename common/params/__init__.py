"""Parameters: what `${name}` and `$[yyyyMMdd-1]` stand for in a process definition.

Pure: the moment, its zone and all values are arguments, and text comes out; nothing here reads a
clock, a table or the environment. The master cures global parameters when an instance is made;
the worker works out the effective parameters of a task and substitutes them in its script.

A *property* is a declared parameter. A *reference* is `${name}`; a *placeholder* is `$[form]`,
which a *moment* (an instant, read on the wall clock of a zone) gives its value.
"""

from common.params.errors import CircularParameterError, ParameterError, ParameterLimitError
from common.params.moments import format_moment, parse_moment
from common.params.placeholders import replace_placeholders
from common.params.properties import (
    DataType,
    Direct,
    Property,
    parse_properties,
    properties_json,
)
from common.params.references import replace_references
from common.params.scope import (
    cure_global_parameters,
    effective_parameters,
    substitute,
    system_parameters,
)

__all__ = [
    "CircularParameterError",
    "DataType",
    "Direct",
    "ParameterError",
    "ParameterLimitError",
    "Property",
    "cure_global_parameters",
    "effective_parameters",
    "format_moment",
    "parse_moment",
    "parse_properties",
    "properties_json",
    "replace_placeholders",
    "replace_references",
    "substitute",
    "system_parameters",
]
