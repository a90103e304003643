"""Finds what in a script needs a separate Spark driver. Pure: the script is parsed, never run.

Tasks share the JVM of a warm server. A script that changes this JVM as a whole, reaches into it, or
gives settings that only a new JVM can have, would change other tasks or get other results than
`spark-submit` gives. Only the text of the script is searched, not what it imports.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from typing import Final

from worker.spark.session.sharing import statement_brings

_INSIDE: Final = frozenset({"_gateway", "_jsc", "_jvm"})
"""Attributes of PySpark's objects that are the JVM."""
_HIVE: Final = "enableHiveSupport"
_CATALOG: Final = "spark.sql.catalogImplementation"
_OF_THE_DRIVER: Final = frozenset(
    {
        "addArchive",
        "addArtifact",
        "addArtifacts",
        "addFile",
        "addJar",
        "addPyFile",
        "cancelJobGroup",
        "cancelJobGroupAndFutureJobs",
        "cancelJobsWithTag",
        "cancelJobsWithTagAndFutureJobs",
        _HIVE,
        "setCheckpointDir",
        "setExecutorEnv",
        "setSystemProperty",
    }
)
"""Methods that change the driver, or end jobs, for all of its sessions."""
_ONE_FOR_A_DRIVER: Final = frozenset({"HiveContext", "StreamingContext"})
"""Classes of which a JVM has one object that works."""
_SETTERS: Final = frozenset({"config", "set", "setIfMissing"})
_KEY = re.compile(r"spark\.[\w.-]{1,150}")
"""A setting whose name can be part of a message."""
_OF_A_SESSION = re.compile(r"spark\.sql\.\S+")
_STATIC = re.compile(
    r"spark\.sql\.(catalogImplementation|extensions|warehouse\.dir|globalTempDatabase"
    r"|cache\.serializer|queryExecutionListeners|streaming\.streamingQueryListeners"
    r"|catalog\.spark_catalog\.defaultDatabase|sources\.disabledJdbcConnProviderList"
    r"|(hive\.metastore|hive\.thriftServer|streaming\.ui|ui)\.\S+|hive\.version)"
)
WITHOUT_EFFECT: Final = frozenset(
    {
        "spark.app.id",
        "spark.app.name",
        "spark.app.startTime",
        "spark.app.submitTime",
        "spark.driver.memory",
        "spark.submit.deployMode",
        "spark.ui.enabled",
        "spark.ui.port",
        "spark.ui.showConsoleProgress",
    }
)
"""Settings that change no result of a script whose driver runs already."""


def needs_driver(source: str) -> str:
    """Return what needs a separate driver, with its line; "" if nothing does.

    A script that can't be parsed needs none: its error is reported when it is compiled.
    """
    tree = _parsed(source)
    found = None if tree is None else min(_needs(tree), default=None)
    return "" if found is None else f"{found[1]} (line {found[0]})"


def driver_settings(source: str) -> dict[str, str]:
    """Return the settings of a driver that a script gives as literals; a later value counts.

    The driver starts before the script runs, and so has to be started with them.
    """
    tree = _parsed(source)
    if tree is None:
        return {}
    found = sorted(_settings(tree), key=lambda each: each[0])
    given = {key: value for _, key, value in found if value is not None and _is_of_a_driver(key)}
    if any(name == _HIVE for _, name in _needs(tree)):
        given[_CATALOG] = "hive"
    return given


def is_of_a_session(key: str) -> bool:
    """Return True if a setting can be changed for one session of a driver that runs."""
    return bool(_OF_A_SESSION.fullmatch(key)) and not _STATIC.fullmatch(key)


def _parsed(source: str) -> ast.AST | None:
    try:
        return ast.parse(source.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _needs(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, key, _ in _settings(tree):
        if _is_of_a_driver(key):
            yield line, key
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name in _INSIDE:
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(attr=name)) if name in _OF_THE_DRIVER:
                yield node.lineno, name
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in _ONE_FOR_A_DRIVER
            ):
                yield node.lineno, name
            case ast.Call(
                func=ast.Attribute(attr="master" | "setMaster"),
                args=[ast.Constant(value=str(where))],
            ):
                if not where.startswith("local"):
                    yield node.lineno, f"the master {where[:80]}"
            case ast.Constant(value=str(text)) if statement_brings(text):
                yield node.lineno, "a statement that brings jars, files or archives"


def _settings(tree: ast.AST) -> Iterator[tuple[int, str, str | None]]:
    """Yield the line, the key and the value of each setting; None is a value that is no literal."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=name), args=[ast.Constant(value=str(key)), value, *_]
            ) if name in _SETTERS:
                yield node.lineno, key, _literal(value)
            case ast.Call(func=ast.Attribute(attr="config"), keywords=[*named]):
                for keyword in named:
                    if keyword.arg == "map":
                        yield from _of_a_map(keyword.value)
            case ast.Call(func=ast.Attribute(attr="setAll"), args=[pairs, *_]):
                yield from _of_pairs(pairs)


def _of_a_map(given: ast.expr) -> Iterator[tuple[int, str, str | None]]:
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key.lineno, str(key.value), _literal(value)


def _of_pairs(given: ast.expr) -> Iterator[tuple[int, str, str | None]]:
    for node in ast.walk(given):
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(key)), value]):
                yield node.lineno, key, _literal(value)
            case ast.List(elts=[ast.Constant(value=str(key)), value]):
                yield node.lineno, key, _literal(value)


def _literal(value: ast.expr) -> str | None:
    match value:
        case ast.Constant(value=bool(given)):
            return str(given).lower()
        case ast.Constant(value=str(given) | int(given) | float(given)):
            # Python prints no integer that is longer than its limit.
            with contextlib.suppress(ValueError):
                return str(given)
    return None


def _is_of_a_driver(key: object) -> bool:
    return (
        isinstance(key, str)
        and bool(_KEY.fullmatch(key))
        and key not in WITHOUT_EFFECT
        and not is_of_a_session(key)
        and key != "spark.master"
    )
