"""Parameters: what `${name}` and `$[yyyyMMdd-1]` stand for in a process definition.

Pure: the moment, its zone and all values are arguments, and text comes out; nothing here reads a
clock, a table or the environment. The master resolves global parameters when an instance is made;
the worker works out the effective parameters of a task and substitutes them in its script.

A *property* is a declared parameter. A *reference* is `${name}`; a *placeholder* is `$[form]`,
which a *moment* (an instant, read on the wall clock of a zone) gives its value. The *pool* is what
tasks upstream have put out.

Of parameters with the same name the one further down counts:

| from weak to strong | where it comes from | worked out by |
|---|---|---|
| built-in | the run's dates (`SYSTEM_NAMES`) and names (`BUILT_IN_NAMES`) | worker |
| global | `globalParams` of the definition | master, once a run |
| pool | OUT parameters of tasks upstream, of equal ones the latest | who put it out |
| local | `localParams` with `direct` IN | worker, for each attempt |
| start-up | `StartParams` of the command | master, together with the globals |

A local IN with an empty value takes the pool's value, if the pool has that name. A local OUT is not
read: it names a value that the task puts out, and hides nothing.
"""

from common.model.origins import Origin
from common.params.built_ins import (
    ATTEMPT_NAMES,
    BUILT_IN_NAMES,
    built_in_parameters,
    response_name,
)
from common.params.errors import CircularParameterError, ParameterError, ParameterLimitError
from common.params.moments import format_moment, parse_moment
from common.params.placeholders import replace_placeholders, with_some_date
from common.params.properties import (
    DataType,
    Direct,
    Property,
    parse_properties,
    properties_json,
    secret_values,
)
from common.params.references import NAME_REFERENCE, references_in, replace_references
from common.params.scope import (
    effective_parameters,
    parameter_types,
    resolve_global_params,
    substitute,
    system_parameters,
)
from common.params.variables import Variables, safe_way, variable_of, variables_of

__all__ = [
    "ATTEMPT_NAMES",
    "BUILT_IN_NAMES",
    "CircularParameterError",
    "NAME_REFERENCE",
    "Origin",
    "built_in_parameters",
    "DataType",
    "Direct",
    "ParameterError",
    "ParameterLimitError",
    "Property",
    "Variables",
    "resolve_global_params",
    "safe_way",
    "effective_parameters",
    "format_moment",
    "parameter_types",
    "parse_moment",
    "parse_properties",
    "properties_json",
    "secret_values",
    "references_in",
    "replace_placeholders",
    "response_name",
    "replace_references",
    "substitute",
    "system_parameters",
    "variable_of",
    "variables_of",
    "with_some_date",
]
