"""Makes a claimed task ready to run: account, parameters, directory, environment, command.

Runs on the supervisor's thread just before the process is started, so it must be quick and may not
wait. It decides nothing about when or whether a task runs, and starts no process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from common.datasource_keys import DatasourceKeyError
from common.environment_config import EnvironmentConfigError, changed_secrets, variables
from common.errors import BadCommandError
from common.masking import secrets_in
from common.model.command_param import ParamKey, start_document
from common.model.grants import GrantKind
from common.model.task_type import TaskKind, TaskTypeSpec
from common.params import (
    Direct,
    ParameterError,
    Property,
    effective_parameters,
    parameter_types,
    parse_properties,
    secret_values,
    system_parameters,
    variables_of,
)
from common.store.worker.ports import ClaimedTask, DataSource
from common.task_types import task_type_spec
from common.tenant_accounts import AccountRules
from common.zones import UnknownZoneError, zone_named
from worker import task_log, tenants, tracing
from worker.launching.base import (
    Launch,
    NotGrantedError,
    TaskContext,
    TaskParameterError,
    TaskSettings,
    TaskTypes,
    built_ins,
    environment_code,
    find_program,
    read_memory_max,
    read_node,
)
from worker.launching.datasource import passwords_of
from worker.log_masking import PARAMETERS_FILE, maskable
from worker.processes import outputs
from worker.processes.starting import Prepared
from worker.workspace import Account, Crowds, make_directory, write_file

# Everything else of the daemon's environment stays with the daemon: it holds passwords and tokens.
_SEEN_BY_TASKS = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "JAVA_HOME",
        "SPARK_HOME",
        "SPARK_HOME1",
        "SPARK_HOME2",
        "SPARK_CONF_DIR",
        "HADOOP_HOME",
        "HADOOP_CONF_DIR",
        "YARN_CONF_DIR",
        "HIVE_HOME",
    }
)
_OUTPUT_FILE = "output.jsonl"
_NOTED_LEFT_OUT = 5
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Launcher:
    """Prepares attempts, all alike but for their type."""

    def __init__(
        self,
        *,
        home: Path,
        data_dir: Path,
        zone: ZoneInfo,
        tenant_mode: Literal["single", "tenant"],
        settings: TaskSettings,
        types: TaskTypes | None = None,
        tenant_min_uid: int = 1000,
        account_of: Callable[[str | None], Account] | None = None,
        wants_host: Callable[[Account | None], None] = lambda _: None,
        opened: Callable[[str], str] = lambda connection_params: connection_params,
        trouble: Callable[[str], str | None] = lambda _: None,
        asks_by: Callable[[int], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """`wants_host` is told the account of an attempt that is about to ask its Spark host.

        `opened` decrypts the passwords of a data source; `trouble` returns the reason why a secret
        in a text is still encrypted; `asks_by` returns the variables by which
        an attempt reaches this worker.
        """
        self._zone = zone
        self._tenant_mode = tenant_mode
        self._settings = settings
        self._types = types or TaskTypes()
        if types is None:
            self._types.make_built_in()
        rules = AccountRules(home=home, minimum_uid=tenant_min_uid, daemon_uid=os.geteuid())
        self._account_of = account_of or partial(tenants.account_of, rules=rules)
        self._wants_host = wants_host
        self._opened = opened
        self._trouble = trouble
        self._asks_by = asks_by
        self._crowds = Crowds()
        self._resources = home / "resources"
        self._data_dir = data_dir
        self._common = {**settings.environment, "ORCAFLOW_HOME": str(home)}

    def prepare(self, task: ClaimedTask) -> Prepared:
        """Make an attempt ready; `SchedulerError` or `OSError` with the reason if it can't be."""
        self._check_grants(task)
        account = self._account_of(task.tenant_code) if self._tenant_mode == "tenant" else None
        task_type = self._types.find(task.task_type)
        self._refuse_encrypted(task)
        task = self._with_passwords(task)
        params, local = read_node(task)
        moment = task.moment or task.start_time
        zone = self._zone_of(task)
        global_properties = _properties("the run's global parameters", task.global_params)
        local_properties = _properties("params.localParams", local)
        pool = _properties("what tasks upstream put out", task.input_pool)
        parameters = effective_parameters(
            global_properties,
            local_properties,
            system={**built_ins(task), **_system_parameters(moment.astimezone(UTC), zone)},
            moment=moment,
            zone=zone,
            pool=pool,
            start_params=_start_params(task.start_params),
        )
        named = self._environment(task, account)
        settings = self._settings
        if named:
            settings = replace(
                settings,
                environment={**settings.environment, **named},
                named=named,
                added_folders=_added_folders(named, settings.environment),
            )
        make_directory(task.execute_path, account)
        self._crowds.add(task.execute_path)
        spec = task_type_spec(task.task_type)
        _check_form(spec, params, parameters)
        given = _parameters_file(spec, parameters, task.execute_path, account)
        context = TaskContext(
            task=task,
            params=params,
            parameters=parameters,
            types=parameter_types(global_properties, local_properties, pool=pool),
            local=local_properties,
            moment=moment,
            zone=zone,
            resources=self._resources,
            account=account,
            settings=settings,
        )
        launch = task_type.launch(context)
        of_parameters, notes = _variables(spec, parameters)
        asks_by = self._asks_by(task.id)
        environment = {
            # First: every other variable goes before one of a parameter.
            **of_parameters,
            **self._common,
            **named,
            "ORCAFLOW_DATA_DIR": str(tenants.data_of(self._data_dir, account)),
            "ORCAFLOW_TASK_INSTANCE_ID": str(task.id),
            "ORCAFLOW_PROCESS_INSTANCE_ID": str(task.process_instance_id),
            "ORCAFLOW_TASK_NAME": task.name,
            "ORCAFLOW_ATTEMPT": str(task.attempt),
            tracing.VARIABLE: tracing.traceparent(
                cluster=self._settings.cluster,
                process_instance_id=task.process_instance_id,
                task_instance_id=task.id,
                given=parameters.get(tracing.PARAMETER, ""),
            ),
            **given,
            **asks_by,
            outputs.VARIABLE: f"{task.execute_path}/{_OUTPUT_FILE}",
            "TMPDIR": task.execute_path,
            **(account.variables() if account else {}),
            **launch.environment,
        }
        if launch.asks_host:
            self._wants_host(account)
        marked = [each for each in (*global_properties, *local_properties, *pool) if each.secret]
        secrets = (*secrets_in(parameters), *secret_values(marked, parameters))
        header = task_log.header(task, launch.argv, parameters, secrets)
        header += "".join(task_log.line(note) for note in (*launch.notes, *notes))
        of_author = (*secrets, *secrets_in(named), *_passwords(task))
        return Prepared(
            argv=_with_program(launch, environment),
            environment=environment,
            directory=task.execute_path,
            header=header,
            account=account,
            outputs=_declared(context, launch, header),
            job_file=launch.job_file,
            facts_file=launch.facts_file,
            asks_host=launch.asks_host,
            keeps_children=launch.keeps_children,
            forks=launch.forks,
            leads=launch.leads,
            memory_mb=read_memory_max(task),
            secrets=maskable((*of_author, *secrets_in(asks_by))),
            secret_names=tuple(each.prop for each in marked),
            # The header does not contain the secrets of `asks_by`.
            masked_from=0 if of_author else len(header.encode("utf-8", "replace")),
        )

    def _check_grants(self, task: ClaimedTask) -> None:
        """Refuse a tenant or a worker group that the project of the attempt may not use.

        The tenant of the run's creator counts only if tasks run as accounts of tenants.
        """
        for kind, number in task.lacks:
            if kind is not GrantKind.TENANT:
                raise NotGrantedError(kind, number)
            if task.names_tenant or self._tenant_mode == "tenant":
                raise NotGrantedError(kind, task.tenant_code or number)

    def _environment(self, task: ClaimedTask, account: Account | None) -> dict[str, str]:
        """Return the variables of the environment that the task or its run names; mostly none."""
        code = environment_code(task)
        if code is None:
            return {}
        found = task.environment
        if found is None:
            raise NotGrantedError(GrantKind.ENVIRONMENT, code, key="environmentCode")
        base = {**self._common, **(account.variables() if account else {})}
        try:
            config = changed_secrets(found.config, self._opened)
            return variables(config, base)
        except (EnvironmentConfigError, DatasourceKeyError) as error:
            raise TaskParameterError(f"environment {found.name!r:.100}: {error}") from None

    def _refuse_encrypted(self, task: ClaimedTask) -> None:
        """Refuse an attempt if this host can't decrypt one of its secrets."""
        for text in (task.task_json, task.global_params, task.input_pool, task.start_params):
            reason = None if text is None else self._trouble(text)
            if reason is not None:
                raise TaskParameterError(reason)

    def _with_passwords(self, task: ClaimedTask) -> ClaimedTask:
        if task.datasource is None:
            return task
        sources = tuple(self._with_password(each) for each in task.datasources)
        return replace(task, datasource=self._with_password(task.datasource), datasources=sources)

    def _with_password(self, source: DataSource) -> DataSource:
        try:
            return replace(source, connection_params=self._opened(source.connection_params))
        except DatasourceKeyError as error:
            raise TaskParameterError(f"data source {source.name!r:.100}: {error}") from None

    def _zone_of(self, task: ClaimedTask) -> ZoneInfo:
        if task.timezone_id is None:
            return self._zone
        try:
            return zone_named(task.timezone_id)
        except UnknownZoneError as error:
            raise TaskParameterError(f"the run's time zone: {error}") from error


def _check_form(
    spec: TaskTypeSpec, params: Mapping[str, object], parameters: Mapping[str, str]
) -> None:
    """Refuse a task by the check that lint and import make, so that they agree."""
    faults = spec.faults_in(params, parameters.__contains__)
    if found := [str(each) for each in faults if not each.is_missing]:
        raise TaskParameterError("\n".join(found))


def _added_folders(named: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of a search path that the other one lacks, in their order."""
    before = environment.get("PATH", _DEFAULT_PATH).split(os.pathsep)
    return tuple(
        each
        for each in named.get("PATH", "").split(os.pathsep)
        if each.startswith("/") and each not in before
    )


def _passwords(task: ClaimedTask) -> Iterator[str]:
    for source in (task.datasource, *task.datasources):
        if source is not None:
            yield from passwords_of(source)


def seen_by_tasks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the daemon's environment that tasks get, always with a search path."""
    seen = {
        name: value
        for name, value in environment.items()
        if name in _SEEN_BY_TASKS or name.startswith("LC_")
    }
    # Without SHELL, bash reads the password file each time it starts. The value is cron's.
    return {"PATH": _DEFAULT_PATH, "LANG": "C.UTF-8", "SHELL": "/bin/sh", **seen}


@lru_cache(maxsize=100)
def _system_parameters(moment: datetime, zone: ZoneInfo) -> Mapping[str, str]:
    """Return the same for all attempts of a moment, which many that were claimed together have."""
    return system_parameters(moment=moment, zone=zone)


def _properties(place: str, stored: object) -> tuple[Property, ...]:
    try:
        return parse_properties(stored)
    except ParameterError as error:
        raise TaskParameterError(f"{place}: {error}") from error


def _start_params(stored: str | None) -> dict[str, str]:
    try:
        given = start_document(stored)
    except BadCommandError as error:
        raise TaskParameterError(str(error)) from error
    each = _properties(ParamKey.START_PARAMS, [{"prop": k, "value": v} for k, v in given.items()])
    return {start.prop: start.value for start in each}


def _declared(context: TaskContext, launch: Launch, header: str) -> outputs.Declared | None:
    """Return the values that the task may put out; None, and no further cost, for most."""
    task, local = context.task, context.local
    types = {each.prop: each.type for each in local if each.direct is Direct.OUT}
    if not types:
        return None
    names_bytes = sum(len(name.encode("utf-8", "replace")) for name in types)
    if len(types) > outputs.MAX_VALUES or names_bytes > outputs.MAX_BYTES:
        raise TaskParameterError(
            f"params.localParams declares {len(types):,} OUT parameters, whose names have"
            f" {names_bytes:,} bytes; {outputs.MAX_VALUES:,} and {outputs.MAX_BYTES:,} are allowed"
        )
    # A script that prints its parameters must not put them out by that: the header is left out.
    log_from = len(header.encode("utf-8", "replace")) if launch.prints_outputs else None
    file = f"{task.execute_path}/{_OUTPUT_FILE}"
    marked = frozenset(each.prop for each in local if each.direct is Direct.OUT and each.secret)
    defaults = {
        each.prop: context.substitute(each.value)
        for each in local
        if each.direct is Direct.OUT and each.value
    }
    return outputs.Declared(
        types=types, file=file, log_from=log_from, marked=marked, defaults=defaults
    )


def _parameters_file(
    spec: TaskTypeSpec, parameters: Mapping[str, str], directory: str, account: Account | None
) -> dict[str, str]:
    """Write the effective parameters as a JSON object; return the variable that names the file."""
    is_empty = all(name.startswith("system.") for name in parameters)
    if spec.skips_parameters_file and is_empty:
        return {}
    path = f"{directory}/{PARAMETERS_FILE}"
    write_file(path, json.dumps(parameters), account)
    return {"ORCAFLOW_PARAMS": path}


def _variables(
    spec: TaskTypeSpec, parameters: Mapping[str, str]
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the variables of a script's parameters, and lines about those that have none."""
    if not spec.scripts or spec.kind is not TaskKind.PROCESS:
        return {}, ()
    found = variables_of(parameters)
    left_out = list(found.left_out.items())
    noted = left_out[:_NOTED_LEFT_OUT]
    notes = [f"parameter {name[:80]!r} has no variable: {why}" for name, why in noted]
    more = len(left_out) - _NOTED_LEFT_OUT
    return found.given, (*notes, *([f"nor have {more} more"] if more > 0 else ()))


def _with_program(launch: Launch, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments with the program's absolute path: the wrapper's builtins have names."""
    program = find_program(launch.argv[0], environment.get("PATH", os.defpath))
    if program is None:
        raise TaskParameterError(f"there is no program {launch.argv[0]} on this worker")
    return (program, *launch.argv[1:])
