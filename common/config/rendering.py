"""Renders `conf/*.toml` from the settings: every key, its default and its docstring.

The docstrings of fields are read from the source here. pydantic can do that while it loads
(`use_attribute_docstrings`), but then every start pays for it, 0.15 s and more.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from common.config.keys import CONF_DIR_VARIABLE, ENVIRONMENT_PREFIX, FILES
from common.config.settings import Config
from common.config.values import as_text
from common.spark_config import DEFAULT, PROFILES, SparkProfile


def documented_settings(section: str) -> list[tuple[str, object, str]]:
    """Return name, default and docstring of each setting of a section, in the order of the code."""
    owner = _section(section)
    why = _field_docstrings(type(owner))
    return [
        (item.name, getattr(owner, item.name), why[item.name])
        for item in fields(owner)
        if item.name in why
    ]


def rendered(file: str) -> str:
    """Render a shipped file: every key, its default, and one line why."""
    lines = [
        f"# Settings of Orcaflow, {file}: each key with its default and why one would change it."
    ]
    lines += [
        "# Rendered from common/config/settings.py; own values belong in a folder of your own,"
    ]
    lines += [
        f"# named by {CONF_DIR_VARIABLE}, or in variables like {ENVIRONMENT_PREFIX}DATABASE__URL."
    ]
    for section in FILES[file]:
        if section:
            summary = (type(_section(section)).__doc__ or "").strip()
            lines += ["", f"# {summary}", f"[{section}]"]
        for name, default, why in documented_settings(section):
            lines += [*([] if section else [""]), f"# {why}", f"{name} = {_toml(default)}"]
    return "\n".join(lines) + "\n"


def _section(name: str) -> Any:
    """The default of a section by its name; "" is the whole."""
    if name == f"{PROFILES}.{DEFAULT}":
        return SparkProfile()
    return getattr(Config(), name) if name else Config()


def _field_docstrings(owner: type) -> dict[str, str]:
    """Return the string below each field of a class; Python itself does not keep them."""
    (found,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(found, ast.ClassDef)
    return {
        statement.target.id: str(following.value.value)
        for statement, following in zip(found.body, found.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
    }


def _toml(value: object) -> str:
    if isinstance(value, bool | int | float):
        return as_text(value)
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    return json.dumps(str(value))
