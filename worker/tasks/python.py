"""PYTHON: a script, inline or a file; its keys choose an interpreter, packages and data sources.

Inline scripts stand in a file of the attempt's directory, so that tracebacks show their lines. A
worker forks a Python for them that has its imports made, unless a task asks for a new one or for
another interpreter. The key `interpreter` names the interpreter. The named environment is second,
then the configured one, then the worker's own. The configured one or the worker's own makes the
packages of the key `environment`, which is that of PYSPARK.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from common.model.task_type import (
    DATASOURCES,
    FILE_TEXT,
    LOCAL_PARAMS,
    RESOURCE_LIST,
    DatasourceUse,
    Key,
    Shape,
    TaskTypeSpec,
    ValueFaultError,
)
from worker.launching.base import Launch, TaskContext, fault_at
from worker.launching.keys import (
    ENVIRONMENT,
    FILE,
    KEEP_CHILDREN,
    MAIN_ARGS,
    PROGRAM_NAME,
    RAW_SCRIPT,
    check_sources,
)
from worker.launching.python_datasource import Connections, connections
from worker.launching.resources import fetch_resources
from worker.launching.scripts import interpreter, named_interpreter, script_path

FRESH: Final = "fresh"
PROFILE: Final = Key(
    name="profile",
    shape=Shape.WORD,
    about="fresh starts a new interpreter; default lets the worker fork one.",
    words=("default", FRESH),
    default="default",
)
CONNECTIONS: Final = "ORCAFLOW_DATASOURCES"
"""The variable that names the file with the connections of the data sources."""
_NOTHING: Final[tuple[object, ...]] = (None, "", {})
_FACTS: Final = "ORCAFLOW_SPARK_FACTS"
_ENVIRONMENTS: Final = str(
    Path(__file__).resolve().parent.parent / "spark" / "session" / "environments.py"
)


def _check_interpreter(value: Any) -> None:
    if not PROGRAM_NAME.fullmatch(str(value)):
        raise ValueFaultError("must be the name of a Python as python3.12, or its path")


INTERPRETER: Final = Key(
    name="interpreter",
    about="The Python that runs the script, as python3.12 or /opt/venv/bin/python; the default is"
    " that of the named environment, or `worker.python`.",
    check=_check_interpreter,
)
SPEC: Final = TaskTypeSpec(
    name="PYTHON",
    about="A Python script.",
    keys=(
        RAW_SCRIPT,
        FILE,
        FILE_TEXT,
        MAIN_ARGS,
        PROFILE,
        INTERPRETER,
        ENVIRONMENT,
        Key(
            name=DATASOURCES,
            shape=Shape.ANY,
            about="Data sources: an object from names to data sources, or a list of them.",
            check=check_sources,
            is_literal=True,
        ),
        KEEP_CHILDREN,
        RESOURCE_LIST,
        LOCAL_PARAMS,
    ),
    needs=((RAW_SCRIPT.name, FILE.name),),
    alternatives=((RAW_SCRIPT.name, FILE.name), (INTERPRETER.name, ENVIRONMENT.name)),
    scripts=(RAW_SCRIPT.name,),
    program=RAW_SCRIPT.name,
    datasources=DatasourceUse.NAMED,
)


class PythonTask:
    """Runs `rawScript`, or `file` with `mainArgs`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        path = script_path(context, f"py_{context.app_id}.command")
        words = context.words("mainArgs")
        sources = _connections(context)
        named = _named(context)
        launch = Launch(
            # Unbuffered: who watches the log sees each line when it is printed.
            argv=(named or interpreter(context), "-u", str(path), *words),
            keeps_children=context.flag(KEEP_CHILDREN),
            # A fork server for each interpreter that a task names would be too many.
            forks=context.word(PROFILE) != FRESH and named is None,
        )
        if context.params.get(ENVIRONMENT.name) not in _NOTHING:
            return _in_environment(context, launch, sources, path, words)
        if not sources.documents:
            return launch
        file = context.write(_file_name(context), json.dumps(sources.documents))
        return replace(launch, environment={CONNECTIONS: str(file)}, job_file=file)


def _in_environment(
    context: TaskContext,
    launch: Launch,
    sources: Connections,
    script: Path,
    words: tuple[str, ...],
) -> Launch:
    """Return the launch of a program that makes the environment and becomes the script."""
    # Lint needs no environment.
    from worker.launching.spark_environment import task_environment

    environment = task_environment(context)
    assert environment is not None  # The key has a value.
    job = {
        "kind": "python",
        "script": str(script),
        "arguments": words,
        "secrets": [*context.secrets, *sources.secrets],
        "environment": {**environment.document(context), "without_spark": True},
        "connections": sources.documents,
    }
    file = context.write(_file_name(context), json.dumps(job))
    facts = context.directory / "facts.json"
    return replace(
        launch,
        # -P keeps the program's own folder, whose modules are ours, from being searched.
        argv=(interpreter(context), "-P", "-u", _ENVIRONMENTS, str(file)),
        environment={_FACTS: str(facts)},
        job_file=file,
        facts_file=facts,
        forks=False,
    )


def _connections(context: TaskContext) -> Connections:
    if context.params.get(DATASOURCES) in (*_NOTHING, []):
        return Connections()
    rows = {each.id: each for each in context.task.datasources}
    return connections(context.params, rows, data_dir=context.settings.data_dir)


def _named(context: TaskContext) -> str | None:
    """Return the Python that the task or its environment names."""
    name = context.substitute(context.text(INTERPRETER.name)).strip()
    if not name:
        return named_interpreter(context)
    with fault_at(INTERPRETER.name):
        _check_interpreter(name)
    return context.program(name, f"params.{INTERPRETER.name}", cure="install it on this worker")


def _file_name(context: TaskContext) -> str:
    return f"python_{context.app_id}.json"


TASK_TYPE: Final = PythonTask
