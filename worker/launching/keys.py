"""The keys that several task types have: scripts, and those of every type with a Spark session.

Pure and quick to import, since lint reads the specifications of all types that a file names.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from common.model.datasource_references import spark_sources
from common.model.spark_keys import RefusedError, check_setting
from common.model.spark_paths import needs_spark, read_spark_path
from common.model.task_type import (
    DATASOURCES,
    LOCAL_PARAMS,
    RESOURCE_LIST,
    Fault,
    Key,
    Shape,
    ValueFaultError,
    is_open,
    read_entries,
    read_resource,
    text_of,
)
from common.spark_config import CLASSIC

MAX_DATASOURCES: Final = 20
MAX_REQUIREMENTS: Final = 200

_CATALOG = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_TAKEN: Final = frozenset({"spark_catalog", "system", "session", "global_temp", "builtin"})
_KEPT_FOR_ORCAFLOW = re.compile(r"spark\.(connect\..*|submit\.deployMode)")
# What Spark reads when it starts, in spite of the name.
_STATIC: Final = re.compile(
    r"spark\.sql\.(warehouse\.dir|extensions|catalogImplementation|globalTempDatabase"
    r"|cache\.serializer|catalog\.spark_catalog\.defaultDatabase|event\.truncate\.length"
    r"|queryExecutionListeners|streaming\.streamingQueryListeners|metadataCacheTTLSeconds"
    r"|reflect\.allowList|sources\.disabledJdbcConnProviderList"
    r"|(ui|streaming\.ui|hive\.metastore|hive\.thriftServer)\..*|hive\.version)"
)
_WITHOUT_A_KEY: Final = frozenset(
    {
        "spark.master",
        "spark.app.name",
        "spark.kubernetes.namespace",
        "spark.kerberos.principal",
        "spark.kerberos.keytab",
        "spark.yarn.principal",
        "spark.yarn.keytab",
    }
)
"""Settings that a SPARK task has keys for, and others don't."""


def read_words(text: str) -> tuple[str, ...]:
    """Return the arguments in a text that is written as on a command line."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueFaultError(f"can't be split into words: {error}") from error
    if any("\0" in word for word in words):
        raise ValueFaultError("has a NUL character")
    return words


def check_words(value: Any) -> None:
    read_words(str(value))


def check_shipped(value: Any) -> None:
    """Refuse entries that are no files as Spark takes them."""
    for index, entry in enumerate(read_entries(value, "files")):
        try:
            check_shipped_name(read_resource(entry))
        except ValueFaultError as error:
            raise ValueFaultError(str(error), at=f"[{index}]") from None


def check_shipped_name(name: str) -> None:
    if "," in name or not name.isprintable():
        raise ValueFaultError("has a comma or a control character")
    read_spark_path(name.partition("#")[0])


def is_catalog_name(name: str) -> bool:
    """Return whether a data source can have this name in a session."""
    return _CATALOG.fullmatch(name) is not None and name.lower() not in _TAKEN


def check_sources(value: Any) -> None:
    """Raise `ValueFaultError` for a bad or missing data source, or for too many."""
    found = list(spark_sources({DATASOURCES: value}))
    for each in found:
        if each.problem:
            raise ValueFaultError(each.problem, at=each.key.removeprefix(DATASOURCES))
    if len(found) > MAX_DATASOURCES:
        raise ValueFaultError(f"names {len(found)} data sources; {MAX_DATASOURCES} are allowed")


def check_datasources(value: Any) -> None:
    """Do what `check_sources` does, and refuse a name that no catalog of Spark takes."""
    check_sources(value)
    for name in value if isinstance(value, Mapping) else ():
        if not is_catalog_name(str(name)):
            raise ValueFaultError(
                f"{str(name)[:80]!r} can't be the name of a catalog: give the data source another"
                ' for this task, as in {"sales": 3}',
                at=f".{str(name)[:80]}",
            )


def read_environment(value: object) -> Mapping[str, object]:
    """Return an object with `archive` or `requirements`; an empty one if it is absent."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = 0
    if value in (None, "", {}):
        return {}
    named = [
        key for key in ("archive", "requirements") if isinstance(value, Mapping) and value.get(key)
    ]
    if not isinstance(value, Mapping) or len(named) != 1 or set(value) - set(named):
        raise ValueFaultError('must be {"archive": "path"} or {"requirements": ["name==1.0"]}')
    if named == ["archive"]:
        return {"archive": _archive(value["archive"])}
    return {"requirements": _requirements(value["requirements"])}


def check_archive_name(name: str) -> None:
    if needs_spark(name) or "#" in name or not name.isprintable():
        raise ValueFaultError("must be a file on this worker", at=".archive")


def check_requirement(text: str, index: int) -> None:
    # An option would have pip do something else.
    if not text or text.startswith("-") or not text.isprintable():
        raise ValueFaultError(
            "must be like name==1.0, without options", at=f".requirements[{index}]"
        )


def check_session_setting(key: str, value: str) -> None:
    """Refuse a setting that a session of Orcaflow's may not have."""
    if _KEPT_FOR_ORCAFLOW.fullmatch(key):
        raise ValueFaultError(f"{key} is set by Orcaflow itself")
    if key not in _WITHOUT_A_KEY:
        try:
            check_setting(key, value)
        except RefusedError as error:
            raise ValueFaultError(str(error)) from None


def driver_needs(master: str, conf: Iterable[str], shipped: Iterable[str]) -> list[str]:
    """Return the requests that no session in a server can meet, in the author's own words."""
    needs = [f"params.master ({master})"] if master else []
    needs += [
        f"params.conf: {key}"
        for key in conf
        if not key.startswith("spark.sql.") or _STATIC.fullmatch(key)
    ]
    needs += [f"the remote file {name}" for name in shipped if needs_spark(name)]
    return needs


def not_in_session(profile: str) -> str:
    """Return the end of the sentence that refuses such a request."""
    return (
        f"can't be had in a session of the profile {profile!r}, whose server is running: put it"
        " into the profile, or take `profile: classic`"
    )


def session_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the settings in `conf` that are refused; a value with a `$` may become another.

    A task that names a profile is given no driver of its own, so neither is what needs one.
    """
    given = params.get("conf")
    conf: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    is_refused = False
    for key, value in conf.items():
        try:
            check_session_setting(str(key), "" if "$" in str(value) else str(value))
        except ValueFaultError as error:
            is_refused = True
            yield Fault(key="conf", problem=str(error))
    profile, master = text_of(params, "profile"), text_of(params, "master")
    if is_refused or profile in ("", CLASSIC) or is_open([profile, master]):
        return
    names = [name for key in ("pyFiles", "archives") for name in _shipped_names(params.get(key))]
    for need in driver_needs(master, map(str, conf), names)[:1]:
        key, colon, rest = need.removeprefix("params.").partition(": ")
        if colon:
            yield Fault(key=key, problem=f"{rest} {not_in_session(profile)}")
        elif master:
            yield Fault(key="master", problem=not_in_session(profile))
        else:
            yield Fault(key="profile", problem=f"{need} {not_in_session(profile)}")


def _shipped_names(value: object) -> list[str]:
    try:
        return [read_resource(entry) for entry in read_entries(value, "files")]
    except ValueFaultError:
        return []  # Told of elsewhere.


def _archive(entry: object) -> str:
    try:
        name = read_resource(entry)
    except ValueFaultError as error:
        raise ValueFaultError(str(error), at=".archive") from None
    return name


def _requirements(given: object) -> list[str]:
    if not isinstance(given, list) or len(given) > MAX_REQUIREMENTS:
        raise ValueFaultError(f"must be a list of at most {MAX_REQUIREMENTS}", at=".requirements")
    for index, each in enumerate(given):
        if not isinstance(each, str):
            check_requirement("", index)
    return given


def _check_environment(value: Any) -> None:
    environment = read_environment(value)
    if archive := environment.get("archive"):
        check_archive_name(str(archive))
    requirements = environment.get("requirements")
    for index, each in enumerate(requirements if isinstance(requirements, list) else ()):
        check_requirement(each.strip(), index)


RAW_SCRIPT: Final = Key(
    name="rawScript", about="The script itself; `${name}` in it is replaced by the value's text."
)
FILE: Final = Key(name="file", about="The script's file, instead of rawScript.", is_file=True)
MAIN_ARGS: Final = Key(
    name="mainArgs", about="Arguments, written as on a command line.", check=check_words
)
KEEP_CHILDREN: Final = Key(
    name="keepChildren",
    shape=Shape.FLAG,
    about="True leaves processes alive that the task has left when it ends by itself.",
)
ARCHIVES: Final = Key(
    name="archives",
    shape=Shape.ENTRIES,
    of_what="files",
    about="Archives that are unpacked where the task runs.",
    check=check_shipped,
)
PY_FILES: Final = Key(
    name="pyFiles",
    shape=Shape.ENTRIES,
    of_what="files",
    about="Python modules and packages that executors get.",
    check=check_shipped,
)
PROGRAM_NAME: Final = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}|/[\w./+-]{1,255}")
"""A program by its name, or by its path."""
ENVIRONMENT: Final = Key(
    name="environment",
    shape=Shape.ANY,
    about='The task\'s own Python: {"archive": path} or {"requirements": ["name==1.0"]}.',
    check=_check_environment,
    is_literal=True,
)
CONF: Final = Key(name="conf", shape=Shape.SETTINGS, about="Settings of Spark.")
SESSION_KEYS: Final = (
    Key(
        name="profile",
        about="The worker's Spark profile; classic is a separate driver, connect is Spark Connect.",
    ),
    Key(name="master", about="The master of a driver of its own."),
    CONF,
    PY_FILES,
    ARCHIVES,
    Key(
        name=DATASOURCES,
        shape=Shape.ANY,
        about="Data sources: an object from names to data sources, or a list of them.",
        check=check_datasources,
        is_literal=True,
    ),
    ENVIRONMENT,
    RESOURCE_LIST,
    LOCAL_PARAMS,
)
"""The keys of every type whose tasks have a Spark session."""
