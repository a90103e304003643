"""Puts a task's parameters into its job, and makes Python values of them there.

Pure, and without pyspark: the worker daemon checks values with it before anything runs, and the
task's own process makes them. In a job a parameter is `{"type": "DATE", "value": "2026-01-31"}`.
What has no declared type is text.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.params import DataType
from common.params.values import typed


def in_job(values: Mapping[str, str], types: Mapping[str, DataType]) -> dict[str, dict[str, str]]:
    """The parameters as a job holds them. Raises `ParameterValueError`."""
    found = {}
    for name, text in values.items():
        kind = types.get(name, DataType.VARCHAR)
        typed(name, kind, text)
        found[name] = {"type": kind.name, "value": text}
    return found


def from_job(given: Mapping[str, object]) -> dict[str, object]:
    """The parameters of a job as Python's values. Raises `ParameterValueError`."""
    return {name: _of_job(name, each) for name, each in given.items()}


def _of_job(name: str, each: object) -> object:
    if isinstance(each, Mapping) and "type" in each:
        return typed(name, DataType[str(each["type"])], str(each["value"]))
    return each
