"""Reads the settings from their sources, and reports every mistake at once with its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from common.config.folder import folder_of, is_named, record_of
from common.config.keys import CONF_DIR_VARIABLE, ENVIRONMENT_PREFIX, FILES, defaults, known_keys
from common.config.settings import DEFAULT_HOME, Config
from common.config.zone import recorded_zone, zone_record
from common.errors import ConfigurationError
from common.libpq import dsn as libpq_dsn
from common.spark_config import DEFAULT, PROFILES, conf_from, is_conf, profile_of
from common.spark_config import mistakes as spark_mistakes

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails


def load(*, overrides: Mapping[str, object] | None = None) -> Config:
    """Read the configuration in force; one `ConfigurationError` lists every mistake.

    `overrides` are options of a command line, by full key (`master.port`).
    """
    mistakes: list[str] = []
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    named = (overrides or {}).get("home")
    for origin, layer in _layers(mistakes, home=named if isinstance(named, str) else None):
        for key, value, place in layer:
            values[key] = value
            origins[key] = place or origin
    for key, value in (overrides or {}).items():
        values[key] = value
        origins[key] = "command line"
    if not values.get("time_zone"):
        home = values.get("home")
        folder = _home_from(home if isinstance(home, str) else None)
        if zone := recorded_zone(folder):
            values["time_zone"], origins["time_zone"] = zone, str(zone_record(folder))
    config = _validated(values, origins, mistakes)
    if mistakes or config is None:
        raise ConfigurationError("\n".join(["the configuration is wrong:", *_indented(mistakes)]))
    return config


def home() -> Path:
    """Read where the data of this cluster is, and nothing else: that takes no pydantic.

    The other settings are not checked. Raises `ConfigurationError`.
    """
    mistakes: list[str] = []
    found: object = None
    for _, layer in _layers(mistakes):
        found = {key: value for key, value, _ in layer}.get("home", found)
    if mistakes or not isinstance(found, str | None):
        return load().home
    return _home_from(found)


def spark_profiles() -> frozenset[str]:
    """Read the names of the Spark profiles that the settings here have, and nothing else of them.

    Mistakes in files are not reported: `load` does that.
    """
    names = {DEFAULT}
    for _, layer in _layers([]):
        names.update(found[0] for key, _, _ in layer if (found := profile_of(key)))
    return frozenset(names)


def splices_scripts() -> bool:
    """Read whether workers with the settings here put parameters into scripts; nothing else.

    Mistakes in files are not reported: `load` does that.
    """
    found: object = None
    for _, layer in _layers([]):
        found = {key: value for key, value, _ in layer}.get("worker.shell_parameters", found)
    return found != "environment"


def default_conf_dir() -> Path | None:
    """Find the shipped folder: beside the packages in a checkout, in `orcaflow` if installed."""
    top = Path(__file__).resolve().parents[2]
    for folder in (top / "conf", top / "orcaflow" / "_conf"):
        if (folder / "common.toml").is_file():
            return folder
    return None


_Layer: TypeAlias = tuple[str, list[tuple[str, object, str]]]


def _layers(mistakes: list[str], *, home: str | None = None) -> Iterator[_Layer]:
    """Yield each source, weakest first: its name, and its (key, value, place) triples.

    `home` is the folder of the data, if it is known before all sources are read.
    """
    shipped = default_conf_dir()
    variables = _of_environment()
    own = list(_files_of(shipped, mistakes)) if shipped is not None else []
    yield from own
    for layer in (*(layer for _, layer in own), variables) if home is None else ():
        home = next((str(value) for key, value, _ in layer if key == "home" and value), home)
    folder = folder_of(_home_from(home))
    if folder is not None and folder.is_dir():
        yield from _files_of(folder, mistakes)
    elif folder is not None and is_named():
        mistakes.append(f"{CONF_DIR_VARIABLE}: {folder} is not a folder")
    elif folder is not None:
        mistakes.append(
            f"{record_of(_home_from(home))}: {folder} is not a folder, and the daemons of this home"
            f" were started with it: name its new place by {CONF_DIR_VARIABLE}, or set that to"
            " nothing for no folder"
        )
    yield "environment", variables


def _files_of(folder: Path, mistakes: list[str]) -> Iterator[_Layer]:
    for file in FILES:
        path = folder / file
        if path.exists():
            yield str(path), _of_file(path, mistakes)


def _of_file(path: Path, mistakes: list[str]) -> list[tuple[str, object, str]]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        mistakes.append(f"{path}: {error}")
        return []
    found: list[tuple[str, object, str]] = []
    for key, value in _pairs(document):
        # All profiles are where the one is that is always there.
        section = f"{PROFILES}.{DEFAULT}" if profile_of(key) else key.rpartition(".")[0]
        home = next((file for file, own in FILES.items() if section in own), None)
        if home is not None and home != path.name and key in known_keys({key: value}):
            mistakes.append(f"{path}: {key} belongs into {home}")
        else:
            found.append((key, value, ""))
    return found


def _of_environment() -> list[tuple[str, object, str]]:
    """Return the variables with our prefix that are settings.

    A name without a double underscore that is no setting may be something else of Orcaflow's (what
    a task is given, for example), so it is not a mistake.
    """
    found: list[tuple[str, object, str]] = []
    for variable, value in sorted(os.environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONF_DIR_VARIABLE:
            continue
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        if "." in key or key in known_keys({}):
            found.append((key, value, variable))
    return found


def _pairs(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        key = f"{prefix}{name}"
        profile = profile_of(key)
        # A table without a key still makes a profile, and a free map is one value.
        whole = profile is not None and (profile[1] == "conf" or not (profile[1] or value))
        if isinstance(value, dict) and not whole:
            yield from _pairs(value, f"{key}.")
        else:
            yield key, value


def _validated(
    values: Mapping[str, object], origins: dict[str, str], mistakes: list[str]
) -> Config | None:
    """Make the settings of those values that differ from their defaults, which need no check."""
    known = known_keys(values)
    usual = defaults()
    differing: dict[str, object] = {}
    for key, value in values.items():
        if key not in known:
            mistakes.append(f"{origins[key]}: {key} is not a setting{_perhaps(key, known)}")
            continue
        # One of another type, as 30 for 30.0, is not what it is once it is checked.
        if key in usual and type(value) is type(usual[key]) and value == usual[key]:
            continue
        if is_conf(key):
            try:
                value = conf_from(value)
            except ValueError as error:
                mistakes.append(f"{origins[key]}: {key}: {error}")
                continue
        differing[key] = value
    for key, check in _CHECKS.items():
        if isinstance(value := differing.get(key), str) and value:
            try:
                check(value)
            except ValueError as error:
                mistakes.append(f"{origins[key]}: {key}: {error}")
    mistakes.extend(f"{origins[key]}: {key}: {wrong}" for key, wrong in spark_mistakes(differing))
    found: dict[str, Any] = {"home": _home_from(None)}
    for name, given in _nested(differing).items():
        if name == "home" and isinstance(given, str | None):
            found[name] = _home_from(given)
        else:
            found[name] = _checked(name, given, origins, mistakes)
    return None if mistakes else Config(**found, origins=origins)


def _nested(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values by the fields of `Config`, in their order: those of sections as maps."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        if (profile := profile_of(key)) is not None:
            # The default one is there in any case.
            profiles = nested.setdefault("spark", {}).setdefault("profiles", {DEFAULT: {}})
            of_profile = profiles.setdefault(profile[0], {})
            of_profile.update({profile[1]: value} if profile[1] else {})
        else:
            (nested.setdefault(section, {}) if section else nested)[name] = value
    return {field.name: nested[field.name] for field in fields(Config) if field.name in nested}


def _checked(name: str, value: object, origins: Mapping[str, str], mistakes: list[str]) -> Any:
    """Return a field of `Config` as its type has it, and add what is wrong with it."""
    from pydantic import ValidationError

    try:
        return _adapter(name).validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        mistakes.extend(_mistake(name, detail, origins) for detail in details)


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    """Return what checks a field of `Config`; to make it takes ten times as long as to check it."""
    from typing import get_type_hints

    from pydantic import TypeAdapter

    return TypeAdapter(get_type_hints(Config, include_extras=True)[name])


def _home_from(named: str | None) -> Path:
    return Path(named or DEFAULT_HOME).expanduser().absolute()


_SECRET_KEYS = ("database.url", "zookeeper.digest", "log_store")


def _mistake(field: str, detail: ErrorDetails, origins: Mapping[str, str]) -> str:
    """Say in one line the place, key and problem; and the value, unless it may hold a secret."""
    key = ".".join(str(part) for part in (field, *detail["loc"]))
    message = detail["msg"]
    value = "" if key in _SECRET_KEYS else f" (it is {detail['input']!r})"
    return f"{origins.get(key, 'default')}: {key}: {message[:1].lower()}{message[1:]}{value}"


def _check_hosts(hosts: str) -> None:
    for host in hosts.split(","):
        name, _, port = host.strip().rpartition(":")
        if not name or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{host.strip()!r} is not host:port")


def _check_root(root: str) -> None:
    # As ZooKeeper itself would refuse it, only later and less clearly.
    parts = root.split("/")
    if parts[0] or not all(parts[1:]) or {".", ".."} & set(parts) or not root.isprintable():
        raise ValueError(f"{root!r} is not the path of a node, as /dolphinscheduler is")


def _check_digest(digest: str) -> None:
    if ":" not in digest:
        raise ValueError("it must be user:password")


def _check_time_zone(name: str) -> None:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        text = f"{name!r} is no zone of the tz database, as Asia/Shanghai is"
        raise ValueError(text) from error


def _check_allowed(text: str) -> None:
    from common.destinations import destinations, listed

    destinations(allowed=listed(text), denied=())


def _check_variables(text: str) -> None:
    from common.destinations import listed
    from common.model.streams.consumer import OWN_VARIABLES, may_be_listed

    if wrong := [each for each in listed(text) if not may_be_listed(each)]:
        raise ValueError(
            f"{wrong[0][:80]!r} is not the name of a variable, or begins with"
            f" {' or '.join(OWN_VARIABLES)}, as variables of daemons do"
        )


def _check_denied(text: str) -> None:
    from common.destinations import destinations, listed

    destinations(allowed=(), denied=listed(text))


_CHECKS: Mapping[str, Callable[[str], object]] = {
    "time_zone": _check_time_zone,
    "database.url": libpq_dsn,
    "zookeeper.hosts": _check_hosts,
    "zookeeper.root": _check_root,
    "zookeeper.digest": _check_digest,
    "stream_variables": _check_variables,
    "worker.http_allowed": _check_allowed,
    "worker.http_denied": _check_denied,
}
"""Checks that a type can't express, each given a non-empty value. All of them are tried."""


def _perhaps(key: str, known: frozenset[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
