"""The settings about Spark: its profiles, and the addresses of its managers.

A part of `common.config`, which reads files and variables and reports mistakes; here is what the
parts mean and what is wrong with them. A *profile* is a named way to get a session. The map of
profiles is open: `default` is always there, others come with the first key that names them.
`classic` is none of them, but a private driver for each task.

`conf` is a free map of Spark's settings, whose names have dots of their own: it is one value, and
is never taken apart. What is secret in it is told by the names alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, ClassVar, Final

from annotated_types import Ge, Gt, Le

from common.masking import SHORT_MASK, is_secret, mask_setting

CLASSIC: Final = "classic"
"""In place of a profile's name: a driver of the task's own, and no server."""

CONNECT: Final = "connect"
"""In place of a profile's name: the default profile, with sessions of Spark Connect for scripts."""

WITHOUT_A_TABLE: Final = (CLASSIC, CONNECT)
"""Names of sessions that a task may give instead of a profile."""

DEFAULT: Final = "default"
"""The profile that is there without any file."""

PROFILES: Final = "spark.profiles"
"""The key of the map."""

_FORBID_UNKNOWN: dict[str, object] = {"extra": "forbid"}

_LONGEST_SECONDS = 31 * 86_400
_Seconds = Annotated[float, Gt(0), Le(_LONGEST_SECONDS)]
_Positive = Annotated[int, Ge(1)]

_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_MASTER = re.compile(
    r"local(\[[0-9*]+(,\s*[0-9]+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://\S+|k8s://\S+|yarn"
)
_MEMORY = re.compile(r"[1-9][0-9]{0,8}[kmgt]", re.IGNORECASE)
_URL = re.compile(r"https?://[^\s,/?#@]+(/[^\s,]*)?")

_KEYS_OF_THEIR_OWN: Final[Mapping[str, str]] = {
    "spark.master": "master",
    "spark.driver.memory": "driver_memory",
    "spark.jars": "jars",
    "spark.jars.packages": "packages",
    "spark.pyspark.python": "python",
}
_KEPT_FOR_ORCAFLOW: Final = (
    "spark.remote",
    "spark.api.mode",
    "spark.connect.authenticate.",
    "spark.connect.grpc.binding.",
    "spark.org.apache.spark.ui.JWSFilter.",
)
_OF_THE_PAGES: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "true",
    "spark.ui.killEnabled": "true",
    "spark.ui.threadDumpsEnabled": "true",
    "spark.ssl.ui.enabled": "false",
    "spark.ui.filters": "",
}
"""The settings of a server's own pages, by which its sessions are closed for sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProfile:
    """A way to get a session: another table [spark.profiles.NAME] makes another profile."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    master: str = "local[*]"
    """The master of its sessions: local[4], spark://host:7077, yarn, k8s://https://host:6443."""
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark's own settings, as { "spark.sql.shuffle.partitions" = 8 }, of the server as a whole."""
    jars: str = ""
    """Files that its server loads, as a,b: paths or URLs that Spark can read."""
    packages: str = ""
    """Maven coordinates that its server loads, as a,b; fetched when the server starts."""
    driver_memory: str = "1g"
    """Java heap of one server, which all of its sessions share."""
    python: str = ""
    """Interpreter for its tasks and UDFs; empty is that of worker.python."""
    idle_timeout_seconds: _Seconds = 600.0
    """A server without sessions is stopped after this, and started again when it is asked for."""
    max_sessions: _Positive = 16
    """Sessions that one server carries; one more starts the next server."""
    max_servers: _Positive = 2
    """Servers of this profile on one worker; when all are full, tasks wait for a session."""
    max_age_seconds: _Seconds = 86_400.0
    """A server this old takes no new session, and is stopped when its last one has ended."""
    max_memory_mb: Annotated[int, Ge(0)] = 0
    """A server that takes more memory than this is replaced as if it were too old; 0 never is."""
    start_timeout_seconds: _Seconds = 60.0
    """A server that does not answer for so long after its start is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """Spark: which session a task gets, and whom to ask about applications."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    default_profile: str = DEFAULT
    """The profile of tasks that name none; classic gives each of them a driver of its own."""
    prewarm: str = ""
    """Profiles whose server starts along with the worker, as a,b; others start when asked for."""
    yarn_urls: str = ""
    """YARN's ResourceManagers, as http://a:8088,http://b:8088."""
    yarn_log_url: str = ""
    """YARN's log server, as yarn.log.server.web-service.url: http://a:8188/ws/v1/applicationhistory."""
    standalone_urls: str = ""
    """Web pages of the Masters of standalone clusters, as http://a:8080,http://b:8080."""
    kubernetes_url: str = ""
    """The API server, as https://host:6443."""
    kubernetes_token_file: str = ""
    """The file with the token for it, read anew for each request; empty does without."""
    kubernetes_ca_file: str = ""
    """The file with the certificates that it is checked by; empty takes the system's."""
    kubernetes_namespace: str = "default"
    """The namespace in which the pods of applications are looked for."""
    history_url: str = ""
    """Spark's history server, as http://host:18080: links of applications that are over."""
    openlineage_url: str = ""
    """The address for OpenLineage events of applications, as http://host:5000; empty sends none."""
    openlineage_namespace: str = "orcaflow"
    """The namespace of their jobs."""
    profiles: Mapping[str, SparkProfile] = field(default_factory=lambda: {DEFAULT: SparkProfile()})

    def prewarmed(self) -> tuple[str, ...]:
        """The names in `prewarm`."""
        return _listed(self.prewarm)

    def is_known(self, name: str) -> bool:
        """True if a task may name this profile."""
        return name in WITHOUT_A_TABLE or name in self.profiles


def addresses(urls: str) -> tuple[str, ...]:
    """The URLs in a setting that lists them."""
    return tuple(url.rstrip("/") for url in _listed(urls))


def profile_of(key: str) -> tuple[str, str] | None:
    """The profile and the field that a key is about; the field is "" for a profile as a whole."""
    if not key.startswith(f"{PROFILES}."):
        return None
    name, _, own = key.removeprefix(f"{PROFILES}.").partition(".")
    return name, own


def profile_keys(name: str) -> frozenset[str]:
    """Every key of a profile."""
    return frozenset(f"{PROFILES}.{name}.{each.name}" for each in fields(SparkProfile))


def is_conf(key: str) -> bool:
    """True if a key is that of a profile's free map."""
    found = profile_of(key)
    return found is not None and found[1] == "conf"


def conf_from(value: object) -> dict[str, str]:
    """A free map of Spark's settings, from a table or from JSON; `ValueError` says what is wrong.

    TOML makes tables of names with dots that are not quoted: both spellings mean the same.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise ValueError('it must be JSON such as {"spark.sql.ansi.enabled": "true"}') from None
    if not isinstance(value, Mapping):
        raise _wrong('it must be a table such as { "spark.sql.ansi.enabled" = "true" }')
    from common.model.spark_settings import fault_of_setting  # Most profiles need none.

    conf: dict[str, str] = {}
    for key, each in _settings(value):
        text = {True: "true", False: "false"}[each] if isinstance(each, bool) else each
        if not isinstance(text, str | int | float):
            raise _wrong(f"{key!r} must be text, a number or a boolean")
        if not key.isprintable() or any(sign in key for sign in " =") or not key:
            raise ValueError(f"{key!r} is no name of a setting")
        if own := _KEYS_OF_THEIR_OWN.get(key):
            raise ValueError(f"{key} has a key of its own: {own}")
        if key.startswith(_KEPT_FOR_ORCAFLOW):
            raise ValueError(f"{key} is set by Orcaflow itself")
        needed = _OF_THE_PAGES.get(key)
        if needed is not None and str(text).strip().lower() != needed:
            raise ValueError(
                f"{key} must stay {needed or 'empty'}: by its pages a server's sessions are closed"
            )
        if any(c in str(text) for c in "\0\r\n"):
            raise ValueError(f"the value of {key} has a control character")
        if fault := fault_of_setting(key, str(text)):
            raise ValueError(f"{key} {fault}")
        conf[key] = str(text)
    return conf


def shown_conf(conf: Mapping[str, str]) -> str:
    """The map as a person may see it, as JSON."""
    return json.dumps({key: shown_setting(key, value) for key, value in conf.items()})


def shown_setting(key: str, value: str) -> str:
    """The value of one of Spark's settings as a person may see it."""
    if is_secret(key) and value:
        return SHORT_MASK
    return mask_setting(value, mask=SHORT_MASK)


def mistakes(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Each key with what is wrong with it, of the `values` by full key that are about Spark.

    Types and bounds are not looked at here.
    """
    named = {profile: key for key in values if (profile := _profile_name(key)) is not None}
    for name, key in named.items():
        if name in WITHOUT_A_TABLE:
            yield key, f"{name} is a kind of session and no profile; take another name"
        elif not _NAME.fullmatch(name):
            yield key, f"{name!r} is no name: it has 1 to 40 of a-z, 0-9, _ and -"
    known = sorted({DEFAULT, *(name for name in named if name not in WITHOUT_A_TABLE)})
    for key, value in values.items():
        about = profile_of(key)
        if about is not None and not about[1] and value != {}:
            yield key, f"it must be a table, [{key}]"
        check = _CHECKS.get(key) if about is None else _PROFILE_CHECKS.get(about[1])
        if not isinstance(value, str):
            continue
        if key == "spark.default_profile" and value not in (*known, *WITHOUT_A_TABLE):
            all_names = ", ".join([*known, *WITHOUT_A_TABLE])
            yield key, f"there is no profile {value!r}; known are {all_names}"
        elif key == "spark.prewarm":
            for name in _listed(value):
                if name not in known:
                    yield key, f"there is no profile {name!r}; known are {', '.join(known)}"
        elif check is not None and not (about is None and not value):
            try:
                check(value)
            except ValueError as error:
                yield key, str(error)


def _wrong(text: str) -> ValueError:
    return ValueError(text)


def _profile_name(key: str) -> str | None:
    found = profile_of(key)
    return None if found is None else found[0]


def _settings(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _settings(value, f"{key}.")
        else:
            yield key, value


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check_master(master: str) -> None:
    if not _MASTER.fullmatch(master):
        raise ValueError(
            f"{master[:80]!r} is no master, as local[4], spark://host:7077, yarn and"
            " k8s://https://host:6443 are"
        )


def _check_memory(memory: str) -> None:
    if not _MEMORY.fullmatch(memory):
        raise ValueError(f"{memory[:40]!r} is no amount of memory, as 512m and 2g are")


def _check_urls(urls: str) -> None:
    for url in _listed(urls) or (urls,):
        if not _URL.fullmatch(url):
            # Not repeated: somebody may have put a password into it.
            raise ValueError("it must be like http://host:8088, without a password in it")


def _check_url(url: str) -> None:
    if "," in url:
        raise ValueError("it must be one URL")
    _check_urls(url)


def _check_text(text: str) -> None:
    if not text.isprintable():
        raise ValueError("it has a control character")


_CHECKS: Final = {
    "spark.yarn_urls": _check_urls,
    "spark.standalone_urls": _check_urls,
    "spark.kubernetes_url": _check_url,
    "spark.history_url": _check_url,
    "spark.yarn_log_url": _check_url,
    "spark.openlineage_url": _check_url,
    "spark.openlineage_namespace": _check_text,
    "spark.kubernetes_token_file": _check_text,
    "spark.kubernetes_ca_file": _check_text,
    "spark.kubernetes_namespace": _check_text,
}

_PROFILE_CHECKS: Final = {
    "master": _check_master,
    "driver_memory": _check_memory,
    "jars": _check_text,
    "packages": _check_text,
    "python": _check_text,
}
