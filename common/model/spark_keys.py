"""Checks the options, settings and variables that a SPARK task hands to spark-submit itself.

Pure. `others` is a list of words, of which each must be a known option or the value of one: a word
that is neither would be taken for the program. Refused are options that say what is run or where,
settings that have a key of their own or a value of another type than Spark's, and what is
Orcaflow's or would have the JVM load an agent or start a program. What is refused is said with the
reason and the cure; a value is never repeated, for it may be secret. A worker has the last word,
since only an attempt knows what its parameters put where.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.masking import is_secret
from common.model.spark_settings import fault_of_setting
from common.spark_config import shown_setting


@dataclass(frozen=True, slots=True)
class Option:
    """An option of spark-submit in `others`, with its value if it takes one."""

    name: str
    value: str | None = None


class RefusedError(ValueError):
    """Something may not be said here; the text says what, why, and what to do instead."""


_OPTIONS_WITH_A_KEY: Final[Mapping[str, str]] = {
    "--master": "master",
    "--deploy-mode": "deployMode",
    "--class": "mainClass",
}
"""They decide how the application is followed, and what is run: only a key may say that."""
KEYS_OF_OPTIONS: Final[Mapping[str, str]] = {
    "--name": "name",
    "--driver-cores": "driverCores",
    "--driver-memory": "driverMemory",
    "--num-executors": "numExecutors",
    "--executor-cores": "executorCores",
    "--executor-memory": "executorMemory",
    "--jars": "jars",
    "--files": "files",
    "--archives": "archives",
    "--py-files": "pyFiles",
    "--packages": "packages",
    "--queue": "queue",
    "--principal": "principal",
    "--keytab": "keytab",
}
"""Options that stand for keys, which the original's tasks did not have: the option wins."""
_REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "--properties-file": "Orcaflow writes that file itself; use params.conf",
    "--load-spark-defaults": "the installation's defaults are read anyway",
    "--proxy-user": "it would run as whomever the task names",
    "--kill": "it would end other applications; Orcaflow ends its own",
    "--status": "it asks about other applications",
    "--remote": "a Spark Connect server is used by a PYSPARK task with a profile",
    "--supervise": "what was killed would be started again; use the task's retries",
    "--help": "it submits nothing",
    "-h": "it submits nothing",
    "--version": "it submits nothing",
    "--usage-error": "it submits nothing",
}
_TAKES_A_VALUE: Final = frozenset(
    {
        *KEYS_OF_OPTIONS,
        "--conf",
        "--driver-java-options",
        "--driver-class-path",
        "--driver-library-path",
        "--exclude-packages",
        "--repositories",
        "--total-executor-cores",
    }
)
_TAKES_NONE: Final = frozenset({"--verbose", "-v"})

_SETTINGS_WITH_A_KEY: Final[Mapping[str, str]] = {
    "spark.master": "params.master",
    "spark.submit.deploymode": "params.deployMode",
    "spark.app.name": "params.name",
    "spark.submit.pyfiles": "params.pyFiles",
    "spark.kubernetes.namespace": "params.namespace",
    "spark.kerberos.principal": "params.principal",
    "spark.kerberos.keytab": "params.keytab",
    "spark.yarn.principal": "params.principal",
    "spark.yarn.keytab": "params.keytab",
}
_OWN_SETTINGS: Final = re.compile(
    r"spark\.yarn\.tags|spark\.orcaflow\..*|spark\.kubernetes\.(driver|executor)\.label\.orcaflow.*"
)
_FOLLOWS: Final = re.compile(
    r"spark\.(yarn\.submit|kubernetes\.submission|standalone\.submit)\.waitappcompletion"
)
_REFUSED_SETTINGS: Final = (
    (
        re.compile(r"spark\.yarn\.submit\.file.*"),
        "it changes what is uploaded in the task's name",
    ),
    (
        re.compile(r"spark\.(driver\.supervise|driver\.supervise\..*)"),
        "what was killed would be started again; use the task's retries",
    ),
    (
        re.compile(r"spark\.(remote|api\.mode|local\.connect)"),
        "a Spark Connect server is used by a PYSPARK task with a profile",
    ),
    (
        re.compile(r"spark\.hadoop\.yarn\.resourcemanager\..*"),
        "the application would be where nobody follows it; the worker's HADOOP_CONF_DIR is meant",
    ),
)
_ENVIRONMENT: Final = re.compile(
    r"spark\.(executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv)\.(.+)", re.IGNORECASE
)
_JAVA_OPTIONS: Final = re.compile(r".*javaoptions")
_AGENTS: Final = (
    "-javaagent",
    "-agentlib",
    "-agentpath",
    "-xrun",
    "-xx:onoutofmemoryerror",
    "-xx:onerror",
    "-xx:flags",
    "-xx:vmoptionsfile",
    "-xx:+readvmoptionsfile",
    "-xbootclasspath",
)
_PROPERTY = re.compile(r"-D([^\s=\"']+)")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_REFUSED_VARIABLES: Final = re.compile(
    r"LD_.*|DYLD_.*|BASH_ENV|ENV|BASH_FUNC.*|SHELLOPTS|BASHOPTS|IFS|PS4|PROMPT_COMMAND"
    r"|_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH"
    r"|SPARK_SUBMIT_OPTS|SPARK_LAUNCHER_OPTS|SPARK_DAEMON_.*|SPARK_PREPEND_CLASSES|SPARK_TESTING"
    r"|SPARK_SUBMIT_.*|PYSPARK_SUBMIT_ARGS|SPARK_REMOTE|SPARK_PRINT_LAUNCH_COMMAND"
    r"|HADOOP_USER_NAME|ORCAFLOW_.*"
)
_IN_PARAMS_CONF: Final = "put settings into params.conf"
_IN_THE_WORKERS: Final = "it is taken from the worker's own environment"
_VARIABLES_OF_SUBMIT: Final[Mapping[str, str]] = {
    "SPARK_HOME": "worker.spark_home in worker.toml says which Spark runs",
    "SPARK_CONF_DIR": _IN_PARAMS_CONF,
    "SPARK_ENV_LOADED": _IN_PARAMS_CONF,
    "SPARK_DIST_CLASSPATH": "put what is to be loaded into params.jars",
    "JAVA_HOME": f"{_IN_THE_WORKERS}; for executors set spark.executorEnv.JAVA_HOME in params.conf",
    "PATH": f"{_IN_THE_WORKERS}; for executors set spark.executorEnv.PATH in params.conf",
    "HADOOP_CONF_DIR": _IN_THE_WORKERS,
    "YARN_CONF_DIR": _IN_THE_WORKERS,
}
"""By these spark-submit itself finds its program, its defaults and its cluster, unchecked."""


def mistakes(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key of a SPARK task's `params` that a worker would refuse, with the reason.

    A text with a `$` in it may still become another, and is let through.
    """
    try:
        options_in(params)
    except ValueError as error:
        yield "others", str(error)
    for key, check in (("conf", check_setting), ("env", check_variable_of_submit)):
        given = params.get(key)
        for name, value in given.items() if isinstance(given, Mapping) else ():
            try:
                check(str(name).strip(), "" if "$" in str(value) else str(value))
            except RefusedError as error:
                yield key, str(error)


def options_in(params: Mapping[str, Any]) -> list[Option]:
    """Return the options in a task's `others`, none if parameters may still change them.

    Raises `ValueError` for what may not be there.
    """
    others = params.get("others")
    if isinstance(others, int | float) and not isinstance(others, bool):
        others = str(others)
    if not isinstance(others, str) or "$" in others:
        return []
    return read_others(shlex.split(others))


def read_others(words: Sequence[str]) -> list[Option]:
    """Return the options in `others`; `RefusedError` for what may not be there."""
    found: list[Option] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.isprintable():
            raise RefusedError("it has a control character")
        name, sign, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name = "--conf" if name == "-c" else name
        _check_option(name)
        if name in _TAKES_NONE:
            found.append(Option(name))
            continue
        if not sign:
            if not waiting:
                raise RefusedError(f"{name} needs a value")
            value = waiting.pop(0)
            if not value.isprintable():
                raise RefusedError(f"the value of {name} has a control character")
        found.append(Option(name, value))
    for option in found:
        _check_value(option)
    return found


def keys_of(options: Iterable[Option]) -> dict[str, str]:
    """Return the keys for which options stand, with their values; of repeated ones the last."""
    return {
        KEYS_OF_OPTIONS[option.name]: option.value or ""
        for option in options
        if option.name in KEYS_OF_OPTIONS
    }


def settings_of(options: Iterable[Option]) -> dict[str, str]:
    """Return the settings among options that `read_others` has let through."""
    pairs = ((option.value or "").partition("=") for option in options if option.name == "--conf")
    return {key: value for key, _, value in pairs}


def words_of(options: Iterable[Option]) -> list[str]:
    """Return the options as words again."""
    words: list[str] = []
    for option in options:
        words.append(option.name)
        if option.value is not None:
            words.append(option.value)
    return words


def check_setting(key: str, value: str, *, is_argument: bool = False) -> None:
    """Refuse a setting that may not be there; `is_argument` if everybody could read its value."""
    if not key or not key.isprintable() or any(c.isspace() or c == "=" for c in key):
        raise RefusedError(f"{key[:80]!r} is no name of a setting")
    if any(not (c.isprintable() or c == "\t") for c in value):
        raise RefusedError(f"the value of {key} has a line end or a control character")
    lower = key.lower()
    if own := _SETTINGS_WITH_A_KEY.get(lower):
        raise RefusedError(f"{key} has a key of its own: {own}")
    if _OWN_SETTINGS.fullmatch(lower):
        raise RefusedError(f"{key} is set by Orcaflow, which finds its applications by it")
    if _FOLLOWS.fullmatch(lower):
        raise RefusedError(f"{key} is set by Orcaflow, which follows the application itself")
    for refused, why in _REFUSED_SETTINGS:
        if refused.fullmatch(lower):
            raise RefusedError(f"{key} is not allowed: {why}")
    if (variable := _ENVIRONMENT.fullmatch(key)) is not None:
        check_variable(variable[2], value)
    if _JAVA_OPTIONS.fullmatch(lower):
        _check_java_options(key, value)
    if fault := fault_of_setting(key, value):
        raise RefusedError(f"{key} {fault}")
    if is_argument and (is_secret(key) or _has_password(value)):
        raise RefusedError(
            f"{key} holds a secret, which everybody on this host could read in spark-submit's"
            " command line: put it into params.conf"
        )


def check_variable(name: str, value: str) -> None:
    """Refuse a variable of the environment by which something else would be run."""
    if not _VARIABLE_NAME.fullmatch(name):
        raise RefusedError(f"{name[:80]!r} is no name of a variable")
    if _REFUSED_VARIABLES.fullmatch(name):
        raise RefusedError(
            f"the variable {name} is not allowed: it changes what is run, or as whom"
        )
    if "\0" in value:
        raise RefusedError(f"the variable {name} has a NUL character")


def check_variable_of_submit(name: str, value: str) -> None:
    """Refuse a variable that spark-submit itself may not get.

    Some of these may be set where executors run, and are let through by `check_variable`.
    """
    if cure := _VARIABLES_OF_SUBMIT.get(name):
        raise RefusedError(f"the variable {name} is not allowed: {cure}")
    check_variable(name, value)


def check_secrets_in_driver(conf: Mapping[str, str]) -> None:
    """Refuse secrets where Spark itself writes every setting into a driver's command line.

    That is what a standalone cluster does with a driver that runs in it.
    """
    for key, value in conf.items():
        if is_secret(key) or _has_password(value):
            raise RefusedError(
                f"{key}: a standalone cluster would write it into the driver's command line, where"
                " everybody on that host can read it; take deployMode client"
            )


def _check_option(name: str) -> None:
    if own := _OPTIONS_WITH_A_KEY.get(name):
        raise RefusedError(f"{name} has a key of its own, params.{own}")
    if why := _REFUSED_OPTIONS.get(name):
        raise RefusedError(f"{name} is not allowed: {why}")
    if not name.startswith("-"):
        raise RefusedError(
            f"{name[:80]!r} is no option: spark-submit would take it for the program"
        )
    if name not in _TAKES_A_VALUE and name not in _TAKES_NONE:
        raise RefusedError(f"{name[:80]!r} is no option that is known here")


def _check_value(option: Option) -> None:
    if option.name == "--conf":
        key, sign, value = (option.value or "").partition("=")
        if not sign:
            raise RefusedError("--conf needs a setting like spark.x=y")
        check_setting(key, value, is_argument=True)
    elif option.name == "--driver-java-options":
        _check_java_options(option.name, option.value or "")
    elif _has_password(option.value or ""):
        raise RefusedError(
            f"{option.name} holds a password, which everybody on this host could read in"
            " spark-submit's command line: say it by a setting in params.conf"
        )


def _check_java_options(place: str, value: str) -> None:
    # Spark takes quotation marks away when it splits them into words, wherever they stand.
    bare = re.sub(r"[\"'\\]", "", value)
    lower = bare.lower()
    for agent in _AGENTS:
        if agent in lower:
            raise RefusedError(f"{place}: {agent} is not allowed: it loads or starts a program")
    if any(word.startswith("@") for word in bare.split()):
        raise RefusedError(f"{place}: a file of further options is not allowed")
    if "${" in bare:
        raise RefusedError(f"{place}: ${{…}} is not allowed: it could bring in any option")
    in_command_line = (
        "would stand in the command line of a Java program, which everybody on its host can read"
    )
    if _has_password(value):
        raise RefusedError(f"{place}: a password {in_command_line}")
    for name in _PROPERTY.findall(bare):
        if name.lower().startswith("spark."):
            raise RefusedError(f"{place}: {name} is a setting of Spark: put it into params.conf")
        if is_secret(name):
            raise RefusedError(f"{place}: {name} {in_command_line}")


def _has_password(value: str) -> bool:
    """Return whether a password stands within a value, as in a URL, whatever its key is called."""
    return shown_setting("", value) != value
