"""SPARK: a program that `spark-submit` starts, be it Python, Java or Scala.

`worker.runners.spark_submit` runs it, follows its application and ends that. The command is a list
of arguments from the start, never a line that a shell reads, so that no key can smuggle in another
program. The keys are those of contract §1.20.4, their order is that of contract §6.7; additions are
`master` in place of `yarn` or `local`, `conf`, `env`, `name`, `queue`, `namespace`, `files`,
`archives`, `pyFiles`, `jars`, `packages`, `principal` with `keytab`, and the overheads of memory.
All of `conf` goes by a file that only the attempt can read; `others` must hold nothing secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from common.masking import is_secret, mask_setting, printable
from common.model import spark_keys
from common.model.spark_paths import read_spark_path
from common.model.task_type import (
    LOCAL_PARAMS,
    RESOURCE_LIST,
    Fault,
    Key,
    Shape,
    TaskTypeSpec,
    ValueFaultError,
    faults_from,
    is_absent,
    is_open,
    read_entries,
    read_resource,
    read_settings,
    text_of,
)
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import ARCHIVES, CONF, MAIN_ARGS, PY_FILES, check_shipped
from worker.launching.lineage import lineage_conf
from worker.launching.resources import fetch_resources, resource_name
from worker.launching.runner import run_by
from worker.launching.shipped import Reader, check_alias, local_file, shipped_files
from worker.launching.spark_installation import scratch_variables, spark_environment, spark_home
from worker.launching.spark_memory import Memory, check_heap
from worker.launching.spark_target import (
    DEPLOY_MODE,
    Target,
    default_settings,
    fallback_settings,
    namespace_of,
    notes_of_managers,
    read_target,
    target_of,
    waiting_settings,
)
from worker.spark.managers import tags
from worker.spark.managers.settings import ManagerSettings

_FACTS_VARIABLE: Final = "ORCAFLOW_SPARK_FACTS"
_FACTS_FILE: Final = "spark-facts.json"
_SHOWN_CHARS: Final = 2_000
_ENDED_LOOKED_AT: Final = 5
"""Of earlier attempts that ended: what is left of older ones the sweep has ended long since."""

_PACKAGE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")


def _check_main_file(value: Any) -> None:
    name = read_resource(value)
    if name.startswith("-"):
        raise ValueFaultError(f"{name[:80]!r} would be taken for an option")
    if read_spark_path(name).is_path and "*" in name:
        raise ValueFaultError(f"{name[:80]!r} is a pattern, and the program is one file")


def _check_packages(value: Any) -> None:
    for index, each in enumerate(read_entries(value, "Maven coordinates")):
        _check_package(str(each).strip(), index)


def _check_package(package: str, index: int) -> None:
    if not _PACKAGE.fullmatch(package):
        raise ValueFaultError(
            f"must be like org.example:library:1.0, not {package[:80]!r}", at=f"[{index}]"
        )


def _check_kerberos(principal: str, keytab: str) -> None:
    """Refuse one of the two without the other; `at` is the whole key here."""
    if bool(principal) != bool(keytab):
        missing = "keytab" if principal else "principal"
        raise ValueFaultError("a principal and its keytab go together", at=missing)
    if principal.startswith("-") or not principal.isprintable():
        raise ValueFaultError(f"{principal[:80]!r} is no principal", at="principal")


def _faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    for key, problem in spark_keys.mistakes(params):
        yield Fault(key=key, problem=problem)
    with suppress(ValueError):
        options = spark_keys.options_in(params)
        for problem in _faults_of_options(options):
            yield Fault(key="others", problem=problem)
        params = {**params, **spark_keys.keys_of(options)}
    program_type = text_of(params, PROGRAM_TYPE.name).upper() or str(PROGRAM_TYPE.default)
    if program_type in ("JAVA", "SCALA") and not text_of(params, "mainClass"):
        problem = f"a {program_type} program needs one"
        yield Fault(key="mainClass", problem=problem, is_missing=True)
    principal, keytab = text_of(params, "principal"), text_of(params, "keytab")
    if not is_open([principal, keytab]):
        try:
            _check_kerberos(principal, keytab)
        except ValueFaultError as error:
            yield Fault(key=error.at, problem=str(error))
    main_file = params.get("mainJar")
    if program_type == "PYTHON" and not is_absent(main_file) and not is_open(main_file):
        try:
            _check_python_file(read_resource(main_file))
        except ValueFaultError as error:
            yield Fault(key="mainJar", problem=str(error))
    mode, master = text_of(params, DEPLOY_MODE.name).lower(), text_of(params, "master")
    if not is_open(master) and mode in ("", *DEPLOY_MODE.words):
        try:
            target = read_target(mode, master, program_type)
        except TaskParameterError as error:
            yield from faults_from(str(error))
        else:
            yield from _faults_of_aliases(params, target)


def _warnings(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the keys that an option in `others` replaces."""
    with suppress(ValueError):
        for option in spark_keys.options_in(params):
            key = spark_keys.KEYS_OF_OPTIONS.get(option.name)
            if key is not None and not is_absent(params.get(key)):
                yield Fault(
                    key=key, problem=f"has no effect, because others has {option.name}: keep one"
                )


def _faults_of_aliases(params: Mapping[str, Any], target: Target) -> Iterator[Fault]:
    for key in ("jars", "files", "archives", "pyFiles"):
        with suppress(ValueFaultError):
            for index, entry in enumerate(read_entries(params.get(key), "files")):
                name = read_resource(entry)
                if "#" in name and not is_open(name) and not _has_aliases(key, target):
                    try:
                        check_alias(name, _reader(target))
                    except ValueFaultError as error:
                        yield Fault(key=f"{key}[{index}]", problem=str(error))


def _has_aliases(key: str, target: Target) -> bool:
    """Return True if Spark gets the aliases in a key; otherwise the worker provides them."""
    return key != "files" or target.ruler == "yarn"


def _faults_of_options(options: Iterable[spark_keys.Option]) -> Iterator[str]:
    """Yield the fault of each option that stands for a key, as the key has it."""
    for name, value in spark_keys.keys_of(options).items():
        fault = next(key for key in SPEC.keys if key.name == name).fault_of(value)
        if fault is not None:
            option = next(each for each, own in spark_keys.KEYS_OF_OPTIONS.items() if own == name)
            yield f"{option} {fault.problem}"


def _check_python_file(name: str) -> None:
    if not name.endswith(".py"):
        raise ValueFaultError(f"Spark knows a Python program by its .py, which {name[:80]!r} lacks")


def _number_key(name: str, about: str) -> Key:
    return Key(name=name, shape=Shape.NUMBER, about=about)


def _size_key(name: str, about: str) -> Key:
    return Key(name=name, shape=Shape.SIZE, about=about)


def _heap_key(name: str, about: str) -> Key:
    return Key(name=name, shape=Shape.SIZE, about=about, check=check_heap)


def _files_key(name: str, about: str) -> Key:
    return Key(name=name, shape=Shape.ENTRIES, of_what="files", about=about, check=check_shipped)


PROGRAM_TYPE: Final = Key(
    name="programType",
    shape=Shape.WORD,
    about="The language of the program.",
    words=("PYTHON", "JAVA", "SCALA"),
    default="SCALA",
)
SPARK_VERSION: Final = Key(
    name="sparkVersion",
    shape=Shape.WORD,
    about="The worker's Spark, by SPARK_HOME1 or SPARK_HOME2.",
    words=("SPARK1", "SPARK2"),
)
DRIVER_CORES: Final = _number_key("driverCores", "Processors of the driver.")
EXECUTORS: Final = _number_key("numExecutors", "Executors.")
EXECUTOR_CORES: Final = _number_key("executorCores", "Processors of an executor.")
SPEC: Final = TaskTypeSpec(
    name="SPARK",
    about="A program that spark-submit starts.",
    keys=(
        PROGRAM_TYPE,
        SPARK_VERSION,
        Key(
            name="mainJar",
            shape=Shape.RESOURCE,
            about="The program's file.",
            check=_check_main_file,
            is_file=True,
            is_in_resources=True,
        ),
        Key(name="mainClass", about="The class of a Java or Scala program."),
        MAIN_ARGS,
        DEPLOY_MODE,
        Key(name="master", about="The master: yarn, spark://…, k8s://… or local[n]."),
        DRIVER_CORES,
        _heap_key("driverMemory", "Memory of the driver, as 512M or 2G."),
        _size_key("driverMemoryOverhead", "Memory of the driver beside its heap."),
        EXECUTORS,
        EXECUTOR_CORES,
        _heap_key("executorMemory", "Memory of an executor, as 512M or 2G."),
        _size_key("executorMemoryOverhead", "Memory of an executor beside its heap."),
        CONF,
        Key(name="env", shape=Shape.SETTINGS, about="Variables of the program's environment."),
        Key(
            name="others",
            about="Other options of spark-submit, as on a command line. They win over keys.",
        ),
        Key(name="name", about="The application's name."),
        Key(name="queue", about="The queue of YARN."),
        Key(name="namespace", about="The namespace of Kubernetes."),
        _files_key("jars", "Jars on the program's class path."),
        _files_key("files", "Files in the directories of executors."),
        ARCHIVES,
        PY_FILES,
        Key(
            name="packages",
            shape=Shape.ENTRIES,
            of_what="Maven coordinates",
            about="Libraries, as org.example:library:1.0.",
            check=_check_packages,
        ),
        Key(name="principal", about="The principal of Kerberos."),
        Key(name="keytab", about="The principal's keytab."),
        RESOURCE_LIST,
        LOCAL_PARAMS,
    ),
    needs=(("mainJar",),),
    faults=_faults,
    warnings=_warnings,
    names_are_its_own=False,
    memory_retry=True,
)


class SparkTask:
    """Runs `spark-submit`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        home = spark_home(context, context.word(SPARK_VERSION))
        program_type = context.word(PROGRAM_TYPE)
        target = target_of(context, program_type)
        managers = ManagerSettings.of(context.settings.spark)
        notes = notes_of_managers(managers, target)
        namespace = namespace_of(context, managers, target)
        others = _others(context)
        # They stand for keys, and are treated as these are: files are fetched, memory is raised.
        context = replace(context, params={**context.params, **spark_keys.keys_of(others)})
        others = [each for each in others if each.name not in spark_keys.KEYS_OF_OPTIONS]
        variables = _variables(context)
        conf = _conf(context)
        memory = Memory(context)
        others, conf = memory.raised_options(others), memory.raised_settings(conf)
        own_tag = context.settings.tags.of(context.task.id)
        name = tags.named(_name(context), own_tag, target.master)
        fetch_resources(context)
        reader = _reader(target)
        shipped = {
            key: shipped_files(context, key, reader, has_aliases=_has_aliases(key, target))
            for key in ("jars", "files", "archives", "pyFiles")
        }
        main_file = _main_file(context, program_type, reader)
        argv = [
            context.program(f"{home}/bin/spark-submit", "worker.spark_home"),
            *target.words,
            *_main_class(context, program_type),
            *_sizes(context, memory),
            "--properties-file",
            str(properties := context.directory / f"spark_{context.app_id}.conf"),
            *([] if own_tag in name else ["--name", name]),
            *_option("--jars", shipped["jars"]),
            *_option("--files", shipped["files"]),
            *_option("--archives", shipped["archives"]),
            *_option("--py-files", shipped["pyFiles"]),
            *_option("--packages", _packages(context)),
            *_kerberos(context),
            *_option("--queue", [_queue(context)]),
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
            # Every account can read command lines, so a name with the tag is a setting.
            **({"spark.app.name": name} if own_tag in name else {}),
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
                "fallbacks": fallback_settings(target, said),
                "environment": {**_environment(context, home, target), **variables},
                "memory": memory.of_defaults(said, is_local=target.ruler == "local"),
                "master": target.master,
                "ruler": target.ruler,
                "in_cluster": target.in_cluster,
                "driver_class": _driver_class(context, target),
                "namespace": namespace,
                "tag": own_tag,
                "attach_tags": context.settings.tags.of_earlier(context.task.lost_attempts),
                "end_tags": context.settings.tags.of_earlier(
                    context.task.ended_attempts[:_ENDED_LOOKED_AT]
                ),
                "user": _user(context, target, [*said.values(), *argv]),
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
            prints_outputs=target.mode != "cluster",
            notes=tuple(notes),
            facts_file=facts,
        )


TASK_TYPE: Final = SparkTask


def _environment(context: TaskContext, home: str, target: Target) -> dict[str, str]:
    environment = {**spark_environment(context, home), **scratch_variables(context)}
    if target.in_cluster and not context.settings.python:
        # It would go to hosts where the worker's own interpreter need not be.
        del environment["PYSPARK_PYTHON"], environment["PYSPARK_DRIVER_PYTHON"]
    return environment


def _user(context: TaskContext, target: Target, said: Iterable[str]) -> str:
    """Return the user that the manager shows of the attempt's applications; "" for any.

    A standalone Master shows the account of a driver on the worker. Other managers show a user that
    their own rules choose: of a Kerberos ticket, of a Worker in the cluster.
    """
    is_shown = target.ruler == "standalone" and target.mode == "client"
    # The name that Java reports is a property, which options of the driver can replace.
    if context.account is None or not is_shown or any("user.name" in each for each in said):
        return ""
    return context.account.name


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
    """Return what a standalone Master shows of a driver in its cluster; "" for other drivers."""
    is_hidden = target.mode == "cluster" and target.ruler == "standalone"
    return context.text("mainClass").strip() if is_hidden else ""


def _sizes(context: TaskContext, memory: Memory) -> list[str]:
    words: list[str] = []
    for key, option in (
        (DRIVER_CORES, "--driver-cores"),
        ("driverMemory", "--driver-memory"),
        (EXECUTORS, "--num-executors"),
        (EXECUTOR_CORES, "--executor-cores"),
        ("executorMemory", "--executor-memory"),
    ):
        if isinstance(key, str):
            size = memory.of_key(key)
            words += [option, size] if size else []
        elif number := context.number(key):
            words += [option, str(number)]
    return words


def _option(option: str, values: list[str]) -> list[str]:
    joined = ",".join(values)
    return [option, joined] if joined else []


def _packages(context: TaskContext) -> list[str]:
    with fault_at("packages"):
        entries = read_entries(context.params.get("packages"), "Maven coordinates")
        packages = [context.substitute(str(each)).strip() for each in entries]
        for index, package in enumerate(packages):
            _check_package(package, index)
    return packages


def _kerberos(context: TaskContext) -> list[str]:
    principal = context.substitute(context.text("principal")).strip()
    keytab = context.substitute(context.text("keytab")).strip()
    if not principal and not keytab:
        return []
    with fault_at(""):
        _check_kerberos(principal, keytab)
    return ["--principal", principal, "--keytab", local_file(context, "keytab", keytab)]


def _queue(context: TaskContext) -> str:
    return context.substitute(context.text("queue")).strip() or context.task.queue or ""


def _others(context: TaskContext) -> list[spark_keys.Option]:
    words = context.words("others")
    with _checked("params.others"):
        options = spark_keys.read_others(words)
        for problem in _faults_of_options(options):
            raise spark_keys.RefusedError(problem)
    return options


def _conf(context: TaskContext) -> dict[str, str]:
    """Return the settings in `conf`, with parameters put into their values."""
    conf: dict[str, str] = {}
    with fault_at(CONF.name):
        given = read_settings(context.params.get(CONF.name))
    for name, value in given.items():
        key, text = name.strip(), context.substitute(value)
        with _checked("params.conf"):
            spark_keys.check_setting(key, text)
        conf[key] = text
    return conf


def _variables(context: TaskContext) -> dict[str, str]:
    """Return the variables in `env`, which the program gets wherever it runs."""
    with fault_at("env"):
        given = read_settings(context.params.get("env"))
    variables = {name: context.substitute(value) for name, value in given.items()}
    for name, text in variables.items():
        with _checked("params.env"):
            spark_keys.check_variable_of_submit(name, text)
    return variables


def _variables_elsewhere(variables: Mapping[str, str], target: Target) -> dict[str, str]:
    """Return the settings that bring variables to processes which spark-submit does not start."""
    places = [] if target.ruler == "local" else ["spark.executorEnv"]
    if target.in_cluster:
        driver = (
            "spark.yarn.appMasterEnv" if target.ruler == "yarn" else "spark.kubernetes.driverEnv"
        )
        places.append(driver)
    return {f"{place}.{name}": text for place in places for name, text in variables.items()}


def _reader(target: Target) -> Reader:
    if target.mode != "cluster":
        return Reader.DRIVER_HERE
    return Reader.SUBMIT_HERE if target.in_cluster else Reader.DRIVER_ELSEWHERE


def _main_file(context: TaskContext, program_type: str, reader: Reader) -> str:
    key = "mainJar"
    entry = context.params.get(key)
    if not entry:
        raise TaskParameterError("params.mainJar: a Spark task needs the file of its program")
    name = context.substitute(resource_name(key, entry))
    with fault_at(key):
        _check_main_file(name)
        if program_type == "PYTHON":
            _check_python_file(name)
    return local_file(context, key, name, reader)


def _local_files(context: TaskContext, files: list[str]) -> list[str]:
    """Return the files in the attempt's directory and the resources, without aliases."""
    listed = context.params.get("resourceList") or []
    named = [resource_name(f"resourceList[{i}]", each) for i, each in enumerate(listed)]
    linked = [str(context.directory / Path(context.substitute(name)).name) for name in named]
    paths = [unquote(each.removeprefix("file://").partition("#")[0]) for each in files]
    paths = [each for each in paths if Path(each).is_relative_to(context.directory)]
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
