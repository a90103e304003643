"""Gives parameters to programs as environment variables, under names that no program heeds.

A value in a variable stays a value: `"$day"` is one word to a shell, whatever stands in it, while a
value that is put into a script's text becomes part of the program. Names come from whoever starts a
run, so they must not reach what shells, loaders and interpreters read from their environment. POSIX
leaves names with a lower-case letter to applications (XBD 8.1), but programs also read names such
as `TF_CLI_ARGS_plan` and `spring_config_location`. A name is not changed if each word of it has a
lower-case letter and no program is known to read it. Every other one gets a prefix. Pure; used by
the worker's launcher and by lint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

OWN_PREFIX: Final = "ORCAFLOW_PARAM_"
"""The beginning of the variable of a parameter that may not have its own name."""

MAX_VALUE_BYTES: Final = 64 * 1024
"""The longest value in a variable: the system takes 128 KiB for one, its name included."""

MAX_TOTAL_BYTES: Final = 512 * 1024
"""The most that all variables may have: a program's arguments need some of the room as well."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_WORD: Final = "[A-Z]?[0-9]*[a-z][A-Za-z0-9]*"
_FREE: Final = re.compile(rf"_?{_WORD}(?:_(?:{_WORD}|[0-9]+))*_?")
"""The form of a name that is not changed: words with a lower-case letter first, or numbers.

Programs have prefixes in capitals (`GIT_CONFIG_x`, `PSModulePath`), and suffixes (`Boost_ROOT`) and
double underscores (`Logging__Level`).
"""
_HEEDED: Final = re.compile(
    r".*_proxy|(?:npm|pnpm|yarn|pip|fish|orcaflow|spring|logging|management|ac_cv|rvm|cypress)_.*"
    r"|histchars|auto_resume|bashrcsource|gitproxy|rpm_config|shell_escape.*|open(?:in|out)_any",
    re.IGNORECASE,
)
"""Names of the form `_FREE` by which programs are configured all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The variables of a task's parameters."""

    given: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The parameters without a variable, each with the reason."""


@lru_cache(maxsize=2_000)
def variable_of(name: str) -> str | None:
    """Return the variable of a parameter; None if nothing like its name can be one.

    A dot and a hyphen become an underscore: `system.biz.date` is `system_biz_date`.
    """
    variable = name.replace(".", "_").replace("-", "_")
    if not _NAME.fullmatch(variable):
        return None
    is_free = _FREE.fullmatch(variable) is not None and _HEEDED.fullmatch(variable) is None
    return variable if is_free else OWN_PREFIX + variable


def safe_way(name: str) -> str:
    """Return the way to read a parameter in a script without its value becoming a part of that."""
    variable = variable_of(name)
    in_python = f"params[{name!r:.100}] of orcaflow.task"
    return (
        in_python if variable is None else f'"${variable:.100}" in a shell, {in_python} in Python'
    )


def variables_of(parameters: Mapping[str, str]) -> Variables:
    """Return the variables of a task's parameters, and the parameters that have none.

    A parameter whose name is its variable's goes before one whose name only becomes that; of two
    that become the same, neither is given.
    """
    given: dict[str, str] = {}
    left_out: dict[str, str] = {}
    claims: dict[str, list[str]] = {}
    for name in parameters:
        variable = variable_of(name)
        if variable is None:
            left_out[name] = "its name can't be that of a variable"
        else:
            claims.setdefault(variable, []).append(name)
    total = 0
    for variable, names in claims.items():
        owner = _owner(variable, names)
        left_out |= {name: f"{variable} may be another's" for name in names if name != owner}
        if owner is None:
            continue
        value = parameters[owner]
        is_ascii = value.isascii()
        size = len(value) if is_ascii else len(value.encode(errors="replace"))
        if "\0" in value or not (is_ascii or _SURROGATE.search(value) is None):
            left_out[owner] = "its value has characters that no variable may have"
        elif size > MAX_VALUE_BYTES or total + size > MAX_TOTAL_BYTES:
            left_out[owner] = f"its value is too large ({size:,} bytes)"
        else:
            total += size
            given[variable] = value
    return Variables(given=given, left_out=left_out)


def _owner(variable: str, names: list[str]) -> str | None:
    """Return the parameter that a variable stands for; None if it could be more than one."""
    if len(names) == 1:
        return names[0]
    exact = [name for name in names if variable in (name, OWN_PREFIX + name)]
    return exact[0] if exact else None
