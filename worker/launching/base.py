"""The contract of task types: from a claimed task and its parameters to a program to run.

A *task type* has a specification (`common.model.task_type`) and a launcher, which reads its keys of
a node's `params`, puts files into the attempt's directory, and returns a `Launch`. It starts
nothing, waits for nothing and knows no daemon. Types are found by the name in
`t_ds_task_instance.task_type` (`common.task_types`); other distributions add some as entry points
of the group `orcaflow.tasks`. Time-outs are not a type's business: they are the supervisor's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from zoneinfo import ZoneInfo

from common.errors import SchedulerError
from common.masking import printable, secrets_in
from common.model.codes import code_of_node, task_code
from common.model.failures import FailureReason
from common.model.grants import GrantKind, cure, missing
from common.model.task_type import (
    DIGESTS,
    FILE_TEXT,
    Fault,
    Key,
    ValueFaultError,
    kind_of,
    read_flag,
    read_number,
    read_settings,
    read_text,
    read_word,
)
from common.model.user_resources import not_lent, owner_of
from common.params import (
    DataType,
    Direct,
    Property,
    built_in_parameters,
    references_in,
    replace_placeholders,
    safe_way,
    substitute,
)
from common.spark_config import SparkConfig
from common.task_types import UnknownTaskTypeError, known_task_types
from worker.launching.keys import read_words
from worker.launching.user_files import (
    MOST_FILES,
    TooManyFilesError,
    below_users,
    copy_with_neighbors,
    user_file,
)
from worker.spark.managers.tags import NO_TAGS, Tags
from worker.workspace import Account, artefact_path, make_artefact, may_read_file, write_file

if TYPE_CHECKING:
    from common.store.worker.ports import ClaimedTask

_ENVIRONMENT_CODE: Final = "environmentCode"


class TaskParameterError(SchedulerError):
    """A task can't be run as it is written. Fail the attempt with the text, which names the key."""

    failure = FailureReason.CONFIGURATION


class NotGrantedError(TaskParameterError):
    """The project of a task may not use an object that the task names. A retry would not help."""

    failure = FailureReason.NOT_GRANTED

    def __init__(self, kind: GrantKind, number: str | int, *, key: str = "") -> None:
        place = f"{key}: " if key else ""
        super().__init__(f"{place}{missing(kind, number)}: {cure(kind, number)}")


class NotLentError(TaskParameterError):
    """An attempt names a resource of a user who has no role in its project."""

    failure = FailureReason.NOT_GRANTED

    def __init__(self, owner: int | None) -> None:
        if owner is None:
            super().__init__("a folder below resources/users does not belong to a user")
        else:
            super().__init__(": ".join(not_lent(owner)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """An operator's choices for all tasks of a worker. Empty text means the default."""

    python: str = ""
    spark_home: str = ""
    env_path: str = ""
    shell: str = "bash"
    """The shell of SHELL tasks that name no shell. A task's shell also sources `env_path`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The part of the daemon's environment that tasks may see."""
    named: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables of the environment that the task or its run names."""
    added_folders: tuple[str, ...] = ()
    """The folders of the search path in `named` that the daemon's search path lacks."""
    stream_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The part of the daemon's environment that stream consumers may read secrets from."""
    http_allowed: tuple[str, ...] = ()
    """Networks and hosts that HTTP tasks may reach beside the public internet."""
    http_denied: tuple[str, ...] = ()
    """Networks that they may not reach in any case."""
    splices_scripts: bool = True
    """False refuses scripts that ask for a parameter's value as a part of their text."""
    spark: SparkConfig = field(default_factory=SparkConfig)
    spark_socket: str = ""
    """The socket of the Spark host of the worker's own account, from which those of tenants follow
    (`worker.spark.host.folders`); empty if there is none, and so no warm session."""
    data_dir: str = ""
    """The folder of the data that tasks share, in which files of data sources must be."""
    cluster: str = ""
    """The token of this database in traces and lineage."""
    tags: Tags = NO_TAGS
    """The tags of this database's Spark applications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program to run, with its arguments: never a command line for a shell.

    The first argument is the program, as an absolute path or to be found on the task's `PATH`.
    `environment` is added to what every task gets. What a task prints may put out parameters,
    unless `prints_outputs` is off, as for types that print what others wrote. `job_file` tells
    the process what to do and may hold a password: it is gone when the attempt has ended. Beside
    it, with the suffix `.reason`, a process that fails may leave a line that says why. `notes` are
    lines for the log, about choices that the author may want to know of. `facts_file` is where the
    process may say what it knows of its Spark application. `asks_host`: the program is to find the
    worker's Spark host at work. `keeps_children`: processes that are left may outlive the attempt.
    `forks`: a fork server may run it; `argv` is then PYTHON -u SCRIPT WORD…. `leads`: the program
    may lead the session itself, where else a wrapper does.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    prints_outputs: bool = True
    job_file: Path | None = None
    notes: tuple[str, ...] = ()
    facts_file: Path | None = None
    asks_host: bool = False
    keeps_children: bool = False
    forks: bool = False
    leads: bool = False


class TaskType(Protocol):
    """One way to do work. Its class has the specification too, as `spec`."""

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
    resources: Path
    account: Account | None
    settings: TaskSettings

    @property
    def directory(self) -> Path:
        """The attempt's directory."""
        return Path(self.task.execute_path)

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
        """Make an empty file that the attempt may fill and that stays as long as its log."""
        path = artefact_path(Path(self.task.log_path), name)
        make_artefact(path, self.account)
        return path

    def write(self, name: str, content: str) -> Path:
        """Put a file into the attempt's directory; return its path. No user chooses the name."""
        path = self.directory / name
        write_file(path, content, self.account)
        return path

    def write_program(self, name: str, content: str) -> str:
        """Do what `write` does, with a file that can be executed."""
        # To make a `Path` takes longer than to write the file.
        path = f"{self.task.execute_path}/{name}"
        write_file(path, content, self.account, executable=True)
        return path

    def text(self, key: str) -> str:
        """Return a text, "" if it is absent. Numbers are taken as they are written."""
        with fault_at(key):
            return read_text(self.params.get(key))

    def script(self, key: str = "rawScript") -> str:
        """Return a script with its parameters put in and Unix line ends; "" if it is absent."""
        written = self.text(key).replace("\r\n", "\n")
        spliced = () if self.settings.splices_scripts else references_in(written, self.parameters)
        if spliced:
            names = ", ".join(f"${{{printable(name)[:80]}}}" for name in spliced[:5])
            raise TaskParameterError(
                f"params.{key}: {names} would put a value into the script, where it can be a"
                f" command, which worker.shell_parameters = 'environment' refuses; write"
                f" {printable(safe_way(spliced[0]))}"
            )
        script = self.substitute(written)
        if "\0" in script:
            raise TaskParameterError(f"params.{key}: a parameter puts a NUL character into it")
        return script

    def number(self, key: Key) -> int:
        """Return a whole number that is not negative: the key's default if it is absent or 0."""
        with fault_at(key.name):
            number = read_number(self.params.get(key.name)) or int(key.default or 0)
        return number if key.highest is None else min(number, key.highest)

    def word(self, key: Key) -> str:
        """Return one of the key's words, in their spelling; its default if it is absent."""
        with fault_at(key.name):
            return read_word(self.params.get(key.name), key.words) or str(key.default or "")

    def flag(self, key: Key) -> bool:
        """Return true or false, which is the default."""
        with fault_at(key.name):
            return read_flag(self.params.get(key.name))

    def words(self, key: str) -> tuple[str, ...]:
        """Return the arguments in a text as on a command line, after parameters were put in.

        Where scripts are not spliced, a value is not split either: it adds no argument.
        """
        with fault_at(key):
            if self.settings.splices_scripts:
                return read_words(self.substitute(self.text(key)))
            words = read_words(self.dated(self.text(key)))
            return tuple(read_text(self.substitute(word)) for word in words)

    def file(self, key: str, text: str) -> Path:
        """Return a file that must be there: absolute, or relative to the attempt's directory."""
        name = self.substitute(text)
        if "\0" in name:
            raise TaskParameterError(f"params.{key} has a NUL character")
        inlined = self.text(FILE_TEXT.name)
        if inlined:
            # The suffix is kept, because an interpreter may depend on it.
            return self.write(f"{self.app_id}_file{_ending(name)}", inlined)
        path = self.directory / name
        if self.account is None and path.is_dir():
            raise TaskParameterError(f"params.{key}: {name} is a directory, not a file")
        own = self.user_file(path)
        if own is not None:
            self.check_digest(key, name, own, is_readable=True)
            return self._copied(key, own)
        if not (path.exists() if self.account is None else may_read_file(self.account, path)):
            raise self.no_file(key, name)
        self.check_digest(key, name, path)
        return path

    def user_file(self, path: Path) -> Path | None:
        """Return the real path of a user's resource if it has to be copied for the account."""
        if self.account is None:
            return None
        own = below_users(self.resources, path)
        if own is None:
            return None
        # The answer is the same whether the file exists or not.
        owner = owner_of(own.parts[0])
        if owner not in self.task.lenders:
            raise NotLentError(owner)
        return user_file(self.resources, path)

    def _copied(self, key: str, own: Path) -> Path:
        assert self.account is not None
        try:
            folder = self.directory / f"{self.app_id}_resources"
            return copy_with_neighbors(own, folder, self.account)
        except TooManyFilesError:
            raise TaskParameterError(
                f"params.{key}: the folder of {own.name} has more than {MOST_FILES:,} files, which"
                " are copied for each attempt: move the script into a folder of its own"
            ) from None

    def no_file(self, key: str, name: object) -> TaskParameterError:
        """Return the error for a file that is missing or that the attempt's account may not read.

        The text is the same in both cases, so it does not reveal files of other accounts.
        """
        whose = "" if self.account is None else f" that the account {self.account.name} may read"
        return TaskParameterError(f"params.{key}: there is no file {name} on this worker{whose}")

    def check_digest(self, key: str, name: str, path: Path, *, is_readable: bool = False) -> None:
        """Refuse a file that has changed since the import, if its digest is known.

        `is_readable`: the attempt gets a copy, so its account need not be able to read the file.
        """
        with fault_at(DIGESTS.name):
            expected = read_settings(self.params.get(DIGESTS.name)).get(name)
        if expected is None:
            return
        if not (is_readable or may_read_file(self.account, path)):
            raise TaskParameterError(f"params.{key}: {name} is not a regular file")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected.lower():
            raise TaskParameterError(
                f"params.{key}: {name} has changed since the definition was imported (its SHA-256"
                f" begins with {found[:12]}, not {expected[:12]}); import the definition again, or"
                " restore the file"
            )

    def program(self, name: str, setting: str, *, cure: str = "") -> str:
        """Return the path of a program that must be there, by its path or on `PATH`."""
        path = find_program(name, self.settings.environment.get("PATH", os.defpath))
        if path is None:
            raise TaskParameterError(
                f"{setting}: there is no program {name} on this worker{cure and '; '}{cure}"
            )
        return path


def _ending(name: str) -> str:
    ending = Path(name).suffix
    return ending if ending.isascii() and ending[1:].isalnum() and len(ending) < 10 else ""


def find_program(name: str, search_path: str) -> str | None:
    """Return the absolute path of a program that can be executed; None if there is none."""
    paths = [name] if "/" in name else [f"{each}/{name}" for each in search_path.split(os.pathsep)]
    for path in paths:
        # First the cheaper check, which most folders fail: every attempt searches its shell.
        if path.startswith("/") and os.access(path, os.X_OK) and os.path.isfile(path):  # noqa: PTH113
            return path
    return None


def read_node(task: ClaimedTask) -> tuple[Mapping[str, Any], object]:
    """Return a node's `params` and its `localParams`; both may be text that holds JSON."""
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
        raise TaskParameterError(f"params must be an object, not {kind_of(params)}")
    return params, params.get("localParams")


def read_memory_max(task: ClaimedTask) -> int:
    """Return a node's `memoryMax` in megabytes; 0, and no further cost, for most, which have none.

    The node's JSON must have been read before.
    """
    if '"memoryMax"' not in task.task_json:
        return 0
    node = json.loads(task.task_json)
    value = node.get("memoryMax") if isinstance(node, dict) else None
    try:
        return max(0, int(str(value).strip() or 0)) if value is not None else 0
    except ValueError:
        raise TaskParameterError("memoryMax must be a whole number of megabytes") from None


def built_ins(task: ClaimedTask) -> dict[str, str]:
    """Return the system parameters that name an attempt, its run, definition and project."""
    code = code_of_node(task.task_json) or task_code(task.process_definition_id, task.name)
    return built_in_parameters(
        task.origin,
        process_instance_id=task.process_instance_id,
        task_instance_id=task.id,
        task_name=task.name,
        task_code=code,
        folder=task.execute_path,
    )


def environment_code(task: ClaimedTask) -> int | None:
    """Return the environment that a node names, else that of its run; None, at no cost, for most.

    The node's JSON has been read strictly when the run began.
    """
    if f'"{_ENVIRONMENT_CODE}"' not in task.task_json:
        return task.environment_code
    try:
        node = json.loads(task.task_json)
        code = int(str(node.get(_ENVIRONMENT_CODE)).strip())
    except (ValueError, RecursionError, AttributeError):
        return task.environment_code
    return code if code > 0 else task.environment_code


class fault_at:  # noqa: N801  # Used as a function; the library's decorator takes several times as long.
    """Turn a value's fault into the mistake of a task's author, with its key."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ValueFaultError):
            fault = Fault(key=f"{self._key}{error.at}", problem=str(error))
            raise TaskParameterError(str(fault)) from error


class TaskTypes:
    """The launchers of this worker, by the names of their types, each made when it is needed."""

    def __init__(self, made: Mapping[str, TaskType] | None = None) -> None:
        self._made: dict[str, TaskType] = dict(made or {})

    def find(self, name: str) -> TaskType:
        """Return the type with this name. Raises `TaskParameterError` if there is none."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = _made(name)
        return made

    def make_built_in(self) -> None:
        """Make the built-in types now, so that no attempt has to wait for their modules."""
        for name in known_task_types().built_in:
            self.find(name)
        # Some launchers import it only when they run, for the sake of lint.
        import_module("worker.launching.spark_session")


def _made(name: str) -> TaskType:
    try:
        make = known_task_types().maker(name)
    except UnknownTaskTypeError as error:
        raise TaskParameterError(str(error)) from error
    try:
        made: TaskType = make()
    except Exception as error:
        raise TaskParameterError(f"task type {name}: {make!r} can't be made: {error}") from error
    return made
