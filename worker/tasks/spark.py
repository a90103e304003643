"""SPARK: a program that `spark-submit` starts, be it Python, Java or Scala.

`worker.runners.spark_submit` runs it, follows its application and ends that. The command is a list
of arguments from the start, never a line that a shell reads, so that no key can smuggle in another
program. The keys are those of the specification §1.20.4, the order is that of §6.7; additions are
`master` in place of `yarn` or `local`, `conf`, `env`, `name`, `queue`, `namespace`, `files`,
`archives`, `pyFiles`, `jars`, `packages`, `principal` with `keytab`, and the overheads of memory.
All of `conf` goes by a file that only the attempt can read; `others` must hold nothing secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from common.masking import is_secret, mask_setting, printable
from common.model import spark_keys
from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.lineage import lineage_conf
from worker.launching.resources import fetch_resources, resource_name
from worker.launching.runner import run_by
from worker.launching.shipped import local_file, shipped_files
from worker.launching.spark_installation import spark_environment, spark_home
from worker.launching.spark_memory import MEMORY_KEYS, Memory
from worker.launching.spark_target import (
    Target,
    default_settings,
    namespace_of,
    notes_of_managers,
    target_of,
    waiting_settings,
)
from worker.spark.managers import tags
from worker.spark.managers.settings import ManagerSettings

_PROGRAM_TYPES = ("PYTHON", "JAVA", "SCALA")
_SPARK_VERSIONS = ("SPARK1", "SPARK2")

_FACTS_VARIABLE: Final = "ORCAFLOW_SPARK_FACTS"
_FACTS_FILE: Final = "spark-facts.json"
_SHOWN_CHARS: Final = 2_000
_ENDED_LOOKED_AT: Final = 5
"""Of earlier attempts that ended: what is left of older ones the sweep has ended long since."""

_PACKAGE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")


class SparkTask:
    """Runs `spark-submit`."""

    def launch(self, context: TaskContext) -> Launch:
        home = spark_home(context, context.one_of("sparkVersion", _SPARK_VERSIONS, ""))
        program_type = context.one_of("programType", _PROGRAM_TYPES, "SCALA")
        target = target_of(context, program_type)
        managers = ManagerSettings.of(context.settings.spark)
        notes = notes_of_managers(managers, target)
        namespace = namespace_of(context, managers, target)
        others = _others(context)
        variables = _variables(context)
        conf = _conf(context)
        memory = Memory(context)
        others, conf = memory.raised_options(others), memory.raised_settings(conf)
        (own_tag,) = _tags(context, [context.task.id])
        fetch_resources(context)
        shipped = {
            key: shipped_files(context, key) for key in ("jars", "files", "archives", "pyFiles")
        }
        main_file = _main_file(context, program_type)
        argv = [
            context.program(f"{home}/bin/spark-submit", "worker.spark_home"),
            *target.words,
            *_main_class(context, program_type),
            *_sizes(context, memory),
            "--properties-file",
            str(properties := context.directory / f"spark_{context.app_id}.conf"),
            "--name",
            tags.named(_name(context), own_tag, target.master),
            *_option("--jars", shipped["jars"]),
            *_option("--files", shipped["files"]),
            *_option("--archives", shipped["archives"]),
            *_option("--py-files", shipped["pyFiles"]),
            *_option("--packages", _packages(context)),
            *_kerberos(context),
            *_queue(context, others),
            *spark_keys.words_of(others),
            main_file,
            *context.words("mainArgs"),
        ]
        said = {**spark_keys.settings_of(others), **conf}
        conf = {
            **default_settings(target, said),
            **lineage_conf(context),
            **_variables_elsewhere(variables, target),
            **conf,
            **memory.overheads(said),
            **tags.conf(own_tag, target.master),
            **waiting_settings(target),
            **({"spark.kubernetes.namespace": namespace} if namespace else {}),
        }
        if target.mode == "cluster" and target.ruler == "standalone":
            with _checked("params.conf"):
                spark_keys.check_secrets_in_driver(conf)
        secrets = [
            *context.secrets,
            *(text for name, text in (*conf.items(), *variables.items()) if is_secret(name)),
        ]
        shown = mask_setting(printable(" ".join(argv)), secrets)
        notes += [*memory.notes(), f"spark-submit is {shown[:_SHOWN_CHARS]}"]
        facts = context.directory / _FACTS_FILE
        launch = run_by(
            context,
            "spark_submit",
            {
                "argv": argv,
                "properties": str(properties),
                "conf": conf,
                "environment": {**_environment(context, home, target), **variables},
                "memory": memory.of_defaults(said, is_local=target.ruler == "local"),
                "master": target.master,
                "ruler": target.ruler,
                "in_cluster": target.in_cluster,
                "driver_class": _driver_class(context, target),
                "namespace": namespace,
                "tag": own_tag,
                "attach_tags": _tags(context, context.task.lost_attempts),
                "end_tags": _tags(context, context.task.ended_attempts[:_ENDED_LOOKED_AT]),
                # A Master's page whose address is only guessed may well not be reached from here.
                "must_ask": target.ruler != "standalone" or bool(managers.standalone_urls),
                "managers": managers.to_document(),
                "resources": _local_files(
                    context, [main_file, *chain.from_iterable(shipped.values())]
                ),
                "secrets": [text for text in secrets if text],
            },
        )
        return replace(
            launch,
            environment={**launch.environment, _FACTS_VARIABLE: str(facts)},
            # A driver elsewhere prints elsewhere.
            prints_outputs=not target.in_cluster,
            notes=tuple(notes),
            facts_file=facts,
        )


def _environment(context: TaskContext, home: str, target: Target) -> dict[str, str]:
    environment = spark_environment(context, home)
    if target.in_cluster and not context.settings.python:
        # It would go to hosts where the worker's own interpreter need not be.
        del environment["PYSPARK_PYTHON"], environment["PYSPARK_DRIVER_PYTHON"]
    return environment


def _tags(context: TaskContext, attempts: Iterable[int]) -> list[str]:
    cluster = context.settings.cluster or tags.NO_CLUSTER
    return [tags.tag(cluster, attempt) for attempt in attempts]


def _name(context: TaskContext) -> str:
    name = context.substitute(context.text("name")).strip()
    return printable(name or f"{context.task.process_name} {context.task.name}")


def _main_class(context: TaskContext, program_type: str) -> list[str]:
    if program_type == "PYTHON":
        return []
    main_class = context.text("mainClass").strip()
    if not main_class:
        raise TaskParameterError(f"params.mainClass: a {program_type} program needs one")
    return ["--class", main_class]


def _driver_class(context: TaskContext, target: Target) -> str:
    """All that a standalone Master shows of a driver in its cluster; "" for any other driver."""
    is_hidden = target.mode == "cluster" and target.ruler == "standalone"
    return context.text("mainClass").strip() if is_hidden else ""


def _sizes(context: TaskContext, memory: Memory) -> list[str]:
    words: list[str] = []
    for key, option in (
        ("driverCores", "--driver-cores"),
        ("driverMemory", "--driver-memory"),
        ("numExecutors", "--num-executors"),
        ("executorCores", "--executor-cores"),
        ("executorMemory", "--executor-memory"),
    ):
        if key in MEMORY_KEYS:
            size = memory.of_key(key)
            words += [option, size] if size else []
        elif number := context.number(key):
            words += [option, str(number)]
    return words


def _option(option: str, values: list[str]) -> list[str]:
    return [option, ",".join(values)] if values else []


def _packages(context: TaskContext) -> list[str]:
    given = context.params.get("packages") or []
    entries = given.split(",") if isinstance(given, str) else given
    if not isinstance(entries, list):
        raise TaskParameterError("params.packages must be a list of Maven coordinates")
    packages = [context.substitute(str(each)).strip() for each in entries]
    for index, package in enumerate(packages):
        if not _PACKAGE.fullmatch(package):
            raise TaskParameterError(
                f"params.packages[{index}] must be like org.example:library:1.0,"
                f" not {package[:80]!r}"
            )
    return packages


def _kerberos(context: TaskContext) -> list[str]:
    principal = context.substitute(context.text("principal")).strip()
    keytab = context.substitute(context.text("keytab")).strip()
    if not principal and not keytab:
        return []
    if not principal or not keytab:
        missing = "keytab" if principal else "principal"
        raise TaskParameterError(f"params.{missing}: a principal and its keytab go together")
    if principal.startswith("-") or not principal.isprintable():
        raise TaskParameterError(f"params.principal: {principal[:80]!r} is no principal")
    return ["--principal", principal, "--keytab", local_file(context, "keytab", keytab)]


def _queue(context: TaskContext, others: list[spark_keys.Option]) -> list[str]:
    queue = context.substitute(context.text("queue")).strip()
    if any(option.name == "--queue" for option in others):
        if queue:
            raise TaskParameterError(
                "params.queue and --queue in params.others are both given; which one is meant?"
            )
        return []
    queue = queue or context.task.queue or ""
    return ["--queue", queue] if queue else []


def _others(context: TaskContext) -> list[spark_keys.Option]:
    words = context.words("others")
    with _checked("params.others"):
        return spark_keys.read_others(words)


def _conf(context: TaskContext) -> dict[str, str]:
    """`conf`: an object of Spark's settings; parameters are put into its values."""
    given = context.params.get("conf") or {}
    if not isinstance(given, Mapping):
        raise TaskParameterError("params.conf must be an object")
    conf: dict[str, str] = {}
    for name, value in given.items():
        key, text = str(name).strip(), _setting_text(context, "conf", name, value)
        with _checked("params.conf"):
            spark_keys.check_setting(key, text)
        conf[key] = text
    return conf


def _variables(context: TaskContext) -> dict[str, str]:
    """`env`: an object of variables that the program gets, wherever it runs."""
    given = context.params.get("env") or {}
    if not isinstance(given, Mapping):
        raise TaskParameterError("params.env must be an object")
    variables: dict[str, str] = {}
    for name, value in given.items():
        text = _setting_text(context, "env", name, value)
        with _checked("params.env"):
            spark_keys.check_variable_of_submit(str(name), text)
        variables[str(name)] = text
    return variables


def _setting_text(context: TaskContext, place: str, name: object, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return context.substitute(str(value))
    raise TaskParameterError(f"params.{place}.{str(name)[:80]} must be text, a number or a boolean")


def _variables_elsewhere(variables: Mapping[str, str], target: Target) -> dict[str, str]:
    """The settings that bring variables to processes which spark-submit does not start."""
    places = [] if target.ruler == "local" else ["spark.executorEnv"]
    if target.in_cluster:
        driver = (
            "spark.yarn.appMasterEnv" if target.ruler == "yarn" else "spark.kubernetes.driverEnv"
        )
        places.append(driver)
    return {f"{place}.{name}": text for place in places for name, text in variables.items()}


def _main_file(context: TaskContext, program_type: str) -> str:
    key = "mainJar"
    entry = context.params.get(key)
    if not entry:
        raise TaskParameterError("params.mainJar: a Spark task needs the file of its program")
    name = context.substitute(resource_name(key, entry))
    if name.startswith("-"):
        raise TaskParameterError(f"params.mainJar: {name[:80]!r} would be taken for an option")
    if program_type == "PYTHON" and not name.endswith(".py"):
        raise TaskParameterError(
            f"params.mainJar: Spark knows a Python program by its .py, which {name[:80]!r} lacks"
        )
    return local_file(context, key, name)


def _local_files(context: TaskContext, files: list[str]) -> list[str]:
    """Those that are on this host, along with the resources; without what an archive is called."""
    listed = context.params.get("resourceList") or []
    named = [resource_name(f"resourceList[{i}]", each) for i, each in enumerate(listed)]
    linked = [str(context.directory / Path(context.substitute(name)).name) for name in named]
    paths = [each.partition("#")[0] for each in files if "://" not in each]
    return list(dict.fromkeys([*paths, *linked]))


class _checked:  # noqa: N801  # Read as a word of the sentence `with _checked(place)`.
    """Turns a refusal into the mistake of a task's author, with its place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, spark_keys.RefusedError):
            raise TaskParameterError(f"{self._place}: {error}") from None
