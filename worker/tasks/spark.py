"""SPARK: a program that `spark-submit` starts, be it Python, Java or Scala.

The command is a list of arguments from the start, never a line that a shell reads, so that no key
can smuggle in another program. The keys are those of the specification §1.20.4, the order is that
of §6.7; `master` is an addition that replaces `yarn` or `local`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from worker.tasks.base import Launch, TaskContext, TaskParameterError
from worker.tasks.python import interpreter
from worker.tasks.resources import fetch_resources, link_resource, resource_name

_PROGRAM_TYPES = ("PYTHON", "JAVA", "SCALA")
_DEPLOY_MODES = ("cluster", "client", "local")
_SPARK_VERSIONS = ("SPARK1", "SPARK2")

_OPTIONS_WITH_A_KEY = {
    "--master": "master",
    "--deploy-mode": "deployMode",
    "--class": "mainClass",
}


class SparkTask:
    """Runs `spark-submit`."""

    def launch(self, context: TaskContext) -> Launch:
        home = spark_home(context, context.one_of("sparkVersion", _SPARK_VERSIONS, ""))
        program_type = context.one_of("programType", _PROGRAM_TYPES, "SCALA")
        others = _others(context)
        fetch_resources(context)
        argv = [context.program(f"{home}/bin/spark-submit", "worker.spark_home"), *_target(context)]
        main_class = context.text("mainClass").strip()
        if program_type != "PYTHON":
            if not main_class:
                raise TaskParameterError(f"params.mainClass: a {program_type} program needs one")
            argv += ["--class", main_class]
        for key, option in (("driverCores", "--driver-cores"), ("driverMemory", "--driver-memory")):
            argv += _option(context, key, option)
        for key, option in (
            ("numExecutors", "--num-executors"),
            ("executorCores", "--executor-cores"),
            ("executorMemory", "--executor-memory"),
        ):
            argv += _option(context, key, option)
        if context.task.queue and not any(_is_option(word, "--queue") for word in others):
            argv += ["--queue", context.task.queue]
        argv += others
        argv.append(_main_file(context))
        argv += context.words("mainArgs")
        return Launch(argv=tuple(argv), environment=spark_environment(context, home))


def spark_home(context: TaskContext, version: str = "") -> str:
    """The Spark to use: the configured one, the environment's, or the pyspark package's."""
    environment = context.settings.environment
    home = (
        context.settings.spark_home
        or environment.get({"SPARK1": "SPARK_HOME1", "SPARK2": "SPARK_HOME2"}.get(version, ""))
        or environment.get("SPARK_HOME")
        or _home_of_pyspark()
    )
    if not home:
        raise TaskParameterError("worker.spark_home: there is no Spark on this worker")
    return home


def spark_environment(context: TaskContext, home: str) -> dict[str, str]:
    """What Spark programs get besides: the right Python on both sides, and scratch space."""
    python = interpreter(context)
    return {
        "SPARK_HOME": home,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_DIRS": str(context.directory / "spark-local"),
    }


def _home_of_pyspark() -> str:
    # Finds the package without importing it, which would take a second.
    spec = find_spec("pyspark")
    locations = None if spec is None else spec.submodule_search_locations
    return str(locations[0]) if locations else ""


def _target(context: TaskContext) -> list[str]:
    mode = context.one_of("deployMode", _DEPLOY_MODES, "cluster")
    master = context.substitute(context.text("master")).strip()
    if mode == "local" or (master.startswith("local") and not context.text("deployMode").strip()):
        return ["--master", master or "local"]
    return ["--master", master or "yarn", "--deploy-mode", mode]


def _option(context: TaskContext, key: str, option: str) -> list[str]:
    """The option if the key is set; memory has a unit, everything else is a number."""
    if key.endswith("Memory"):
        value = context.text(key).strip()
        if value and not (value[:-1] or value).isdecimal():
            raise TaskParameterError(f"params.{key} must be like 512M or 2G, not {value[:40]!r}")
        return [option, value] if value.strip("0") else []
    number = context.number(key)
    return [option, str(number)] if number else []


def _others(context: TaskContext) -> list[str]:
    words = list(context.words("others"))
    for word in words:
        if not word.isprintable():
            raise TaskParameterError(f"params.others has a control character in {word[:80]!r}")
        for option, key in _OPTIONS_WITH_A_KEY.items():
            if _is_option(word, option):
                raise TaskParameterError(
                    f"params.others: {option} has a key of its own, params.{key}"
                )
    return words


def _is_option(word: str, option: str) -> bool:
    return word == option or word.startswith(f"{option}=")


def _main_file(context: TaskContext) -> str:
    key = "mainJar"
    entry = context.params.get(key)
    if not entry:
        raise TaskParameterError("params.mainJar: a Spark task needs the file of its program")
    name = context.substitute(resource_name(key, entry))
    if "://" in name:
        return name  # In a file system that Spark itself reads, as hdfs:// or s3a://.
    given = context.directory / name
    if not Path(name).is_absolute() and ".." not in given.parts and given.is_file():
        return str(given)  # One of the resources.
    return str(link_resource(context, key, name))
