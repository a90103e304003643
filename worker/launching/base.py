"""What a task type is: from a claimed task and its parameters to what has to be run.

A *task type* reads its own keys of a node's `params`, puts files into the attempt's directory, and
returns a `Launch`. It starts nothing, waits for nothing and knows no daemon. Types are found by the
name in `t_ds_task_instance.task_type`; other distributions add some as entry points of the group
`orcaflow.tasks`. A time-out is not a type's business: it is the supervisor's.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from common.errors import SchedulerError
from common.masking import secrets_in
from common.params import DataType, Direct, Property, replace_placeholders, substitute
from common.spark_config import SparkConfig
from common.store.worker.ports import ClaimedTask
from common.task_types import ENTRY_POINT_GROUP
from worker.workspace import Account, artefact_path, make_artefact, write_file


class TaskParameterError(SchedulerError):
    """A task can't be run as it is written. Fail the attempt with the text, which names the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What an operator chose for all tasks of a worker. Empty text means the default."""

    python: str = ""
    spark_home: str = ""
    env_path: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The part of the daemon's environment that tasks may see."""
    http_denied: tuple[str, ...] = ("169.254.0.0/16", "fe80::/10")
    """Networks that HTTP tasks may not talk to. By default those in which clouds give keys away."""
    spark: SparkConfig = field(default_factory=SparkConfig)
    spark_socket: str = ""
    """Where the Spark host listens; empty if there is none, and so no warm session."""
    cluster: str = ""
    """What the tags of this database's applications begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What has to be run: a program with its arguments, never a command line for a shell.

    The first argument is the program, as an absolute path or to be found on the task's `PATH`.
    `environment` is added to what every task gets. What a task prints may put out parameters,
    unless `prints_outputs` is off, as for types that print what strangers wrote. `job_file` tells
    the process what to do and may hold a password: it is gone when the attempt has ended. Beside
    it, with the suffix `.reason`, a process that fails may leave a line that says why. `notes` are
    lines for the log, about choices that the author may want to know of. `facts_file` is where the
    process may say what it knows of its Spark application. `asks_host`: the program is to find the
    worker's Spark host at work.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    prints_outputs: bool = True
    job_file: Path | None = None
    notes: tuple[str, ...] = ()
    facts_file: Path | None = None
    asks_host: bool = False


class TaskType(Protocol):
    """One way to do work."""

    def launch(self, context: TaskContext) -> Launch:
        """Prepare an attempt. Raises `TaskParameterError` for what its author has to mend."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """A claimed task with its parameters worked out, and the directory that it will run in."""

    task: ClaimedTask
    params: Mapping[str, Any]
    parameters: Mapping[str, str]
    types: Mapping[str, DataType]
    local: tuple[Property, ...]
    moment: datetime
    zone: ZoneInfo
    directory: Path
    resources: Path
    account: Account | None
    settings: TaskSettings

    @property
    def app_id(self) -> str:
        """`<definition>_<process instance>_<task instance>`: the stem of file names."""
        task = self.task
        return f"{task.process_definition_id}_{task.process_instance_id}_{task.id}"

    def substitute(self, text: str) -> str:
        """Put parameters and time placeholders into a text of the task's."""
        return substitute(text, self.parameters, moment=self.moment, zone=self.zone)

    def dated(self, text: str) -> str:
        """Put the time placeholders alone into a text: its parameters are to be bound."""
        return replace_placeholders(text, moment=self.moment, zone=self.zone)

    @property
    def outputs(self) -> dict[str, DataType]:
        """The parameters that the task may put out, by name."""
        return {each.prop: each.type for each in self.local if each.direct is Direct.OUT}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of parameters whose names sound secret."""
        return secrets_in(self.parameters)

    def artefact(self, name: str) -> Path:
        """An empty file that the attempt may fill and that stays as long as its log."""
        path = artefact_path(Path(self.task.log_path), name)
        make_artefact(path, self.account)
        return path

    def write(self, name: str, content: str, *, executable: bool = False) -> Path:
        """Put a file into the attempt's directory; its path. The name is never a user's text."""
        path = self.directory / name
        write_file(path, content, self.account, executable=executable)
        return path

    def text(self, key: str) -> str:
        """A text, "" if it is absent. Numbers are taken as they are written."""
        value = self.params.get(key)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TaskParameterError(f"params.{key} must be text, not {_kind(value)}")
        if "\0" in str(value):
            raise TaskParameterError(f"params.{key} has a NUL character")
        return str(value)

    def script(self, key: str = "rawScript") -> str:
        """A script with its parameters put in and Unix line ends; "" if it is absent."""
        script = self.substitute(self.text(key).replace("\r\n", "\n"))
        if "\0" in script:
            raise TaskParameterError(f"params.{key}: a parameter puts a NUL character into it")
        return script

    def number(self, key: str) -> int:
        """A whole number that is not negative, 0 if it is absent."""
        text = self.text(key).strip()
        if not text:
            return 0
        if not (text.isascii() and text.isdecimal()):
            raise TaskParameterError(f"params.{key} must be a whole number, not {text[:40]!r}")
        return int(text[:12])

    def one_of(self, key: str, known: tuple[str, ...], default: str) -> str:
        """One of some words, in the spelling of `known`."""
        text = self.text(key).strip()
        for word in known:
            if text.lower() == word.lower():
                return word
        if text:
            raise TaskParameterError(
                f"params.{key} must be one of {', '.join(known)}, not {text[:40]!r}"
            )
        return default

    def words(self, key: str) -> tuple[str, ...]:
        """Arguments written as on a command line, after the parameters were put in."""
        text = self.substitute(self.text(key))
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise TaskParameterError(f"params.{key} can't be split into words: {error}") from error
        for word in words:
            if "\0" in word:
                raise TaskParameterError(f"params.{key} has a NUL character")
        return words

    def file(self, key: str, text: str) -> Path:
        """A file that must be there: absolute, or relative to the attempt's directory."""
        name = self.substitute(text)
        if "\0" in name:
            raise TaskParameterError(f"params.{key} has a NUL character")
        path = self.directory / name
        if path.is_dir():
            raise TaskParameterError(f"params.{key}: {name} is a directory, not a file")
        if not path.exists():
            raise TaskParameterError(f"params.{key}: there is no file {name} on this worker")
        return path

    def program(self, name: str, setting: str) -> str:
        """The path of a program that must be there, given as a path or to be found on `PATH`."""
        path = find_program(name, self.settings.environment.get("PATH", os.defpath))
        if path is None:
            raise TaskParameterError(f"{setting}: there is no program {name} on this worker")
        return path


def find_program(name: str, search_path: str) -> str | None:
    """The absolute path of a program that can be executed; None if there is none."""
    folders = [""] if "/" in name else search_path.split(os.pathsep)
    for folder in folders:
        path = Path(folder, name)
        if path.is_absolute() and path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def read_node(task: ClaimedTask) -> tuple[Mapping[str, Any], object]:
    """The `params` of a task's node, and its `localParams`; both may be text that holds JSON."""
    try:
        node = json.loads(task.task_json)
        params = node.get("params") if isinstance(node, dict) else None
        if isinstance(params, str) and params:
            params = json.loads(params)
    except (ValueError, RecursionError) as error:
        raise TaskParameterError(f"the task's JSON can't be read: {error}") from error
    if params is None or params == "":
        params = {}
    if not isinstance(params, dict):
        raise TaskParameterError(f"params must be an object, not {_kind(params)}")
    return params, params.get("localParams")


class TaskTypes:
    """The task types that this worker knows, by name; others are looked for when asked for."""

    def __init__(self, built_in: Mapping[str, TaskType]) -> None:
        self._known: dict[str, TaskType] = dict(built_in)

    def find(self, name: str) -> TaskType:
        """The type with this name. Raises `TaskParameterError` if there is none."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = _of_entry_point(name)
        return known


def _of_entry_point(name: str) -> TaskType:
    # Slow to import, and most workers never need it.
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            make: Callable[[], TaskType] = entry.load()
            return make()
        except Exception as error:
            raise TaskParameterError(
                f"task type {name}: {entry.value} can't be loaded: {error}"
            ) from error
    raise TaskParameterError(f"this worker knows no task type {name!r}")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else "text")
