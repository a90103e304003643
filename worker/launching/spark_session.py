"""Chooses a task's Spark session, and writes the job that its process is given.

A *warm* task has a session of its own in a server that its worker keeps for the task's profile; a
*classic* one has a driver of its own, made as its profile says, with the task's `master` and `conf`
besides. Classic is a task that asks for it (`profile: classic`), or that names no profile and asks
for something that only a driver of its own can have; the log then says why. A profile that was
named on purpose is never replaced: there the same is a mistake. Nothing here imports pyspark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from common.model.task_type import TaskTypeSpec, ValueFaultError, read_settings
from common.params.values import ParameterValueError
from common.spark_config import CLASSIC, CONNECT, DEFAULT, WITHOUT_A_TABLE, SparkProfile
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import CONF, check_session_setting, not_in_session
from worker.launching.keys import driver_needs as needs_of_settings
from worker.launching.lineage import lineage_conf
from worker.launching.shipped import shipped_files
from worker.launching.spark_datasource import spark_datasources
from worker.launching.spark_environment import TaskEnvironment, task_environment
from worker.launching.spark_installation import spark_environment, spark_home
from worker.launching.spark_memory import Memory
from worker.spark.host import folders
from worker.spark.managers import tags
from worker.spark.session import driver_needs, parameters, sharing
from worker.workspace import Account, read_script

FACTS_VARIABLE: Final = "ORCAFLOW_SPARK_FACTS"
"""Names the file in which an attempt says what it knows of its application."""

_FACTS_FILE = "spark-facts.json"
_SPARK = Path(__file__).resolve().parent.parent / "spark"
_TASK_PROXY = str(_SPARK / "host" / "task_proxy.py")
_CLASSIC_DRIVER = str(_SPARK / "session" / "classic.py")
_ENVIRONMENTS = str(_SPARK / "session" / "environments.py")

CLASSIC_CONF: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
"""Settings of a driver of its own. A user's own value of any of these wins."""

_DEFAULT_MEMORY = "1g"
_SCRIPT = "worker.spark.session.script"
"""The work of an author's script, which expects what `spark-submit` gives."""
_CHARS_SEEN = 200_000
"""Of a script, when it is looked through for what it brings."""
_SAME_MEMORY = (
    "has no more memory than the attempt before, since it names its profile: its server's memory"
    " is what the profile says"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The session that a task gets."""

    profile: str
    """`classic`, or the name of the profile whose server it uses."""
    made_as: SparkProfile
    """The profile that the server, or the driver, is made of."""
    master: str = ""
    """Of a driver of its own."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Of the session; of a classic one, all there is."""
    notes: tuple[str, ...] = ()
    connects: bool = False
    """A script gets a session of Spark Connect too, because the task names `connect`."""

    @property
    def is_classic(self) -> bool:
        return self.profile == CLASSIC


def launch_with_session(
    context: TaskContext,
    spec: TaskTypeSpec,
    document: Mapping[str, object],
    *,
    prints_outputs: bool,
    choice: Choice | None = None,
) -> Launch:
    """Have the task's process do the type's work; `document` has the keys of that work's own.

    `choice` is a session that the task's author has no choice about.
    """
    py_files = shipped_files(context, "pyFiles")
    archives = shipped_files(context, "archives")
    sources = spark_datasources(
        context.params, {each.id: each for each in context.task.datasources}
    )
    environment = task_environment(context)
    choice = choice or choose(context, shipped=(*py_files, *archives))
    gets_classic = spec.session_work == _SCRIPT and not choice.connects
    if gets_classic:
        choice = _with_driver(context, choice, document, shipped=(*py_files, *archives))
    executors_on = choice.master or choice.made_as.master
    if environment is not None:
        archives += environment.shipped(executors_on)
        choice = replace(choice, conf={**environment.conf(executors_on), **choice.conf})
    tag = context.settings.tags.of(context.task.id)
    tagging = tags.conf(tag, choice.master) if choice.is_classic else {}
    name = f"{context.task.process_name} {context.task.name}"
    job = {
        "kind": spec.session_work,
        "name": tags.named(name, tag, choice.master),
        "tag": tag,
        "profile": choice.profile,
        "master": choice.master,
        "conf": {**lineage_conf(context), **choice.conf, **tagging},
        "params": _params(context),
        "outputs": {name: each.name for name, each in context.outputs.items()},
        "secrets": [*context.secrets, *(text for each in sources for text in each.secrets)],
        "datasources": {each.name: dict(each.options) for each in sources},
        "py_files": py_files,
        "archives": archives,
        "classic": gets_classic,
        **({} if environment is None else {"environment": environment.document(context)}),
        **document,
    }
    brings = bool(py_files or archives) or sharing.script_brings(_texts(document, context.account))
    path = context.write(f"spark_{context.app_id}.json", json.dumps(job))
    facts = context.directory / _FACTS_FILE
    return Launch(
        argv=_argv(context, choice, _servers(choice, brings), path, environment),
        environment={FACTS_VARIABLE: str(facts), **_environment(context, choice)},
        prints_outputs=prints_outputs,
        job_file=path,
        notes=choice.notes,
        facts_file=facts,
        asks_host=not choice.is_classic,
    )


def choose(context: TaskContext, *, shipped: Iterable[str] = ()) -> Choice:
    """Return the session for a task; `TaskParameterError` if it can't have what it asks for."""
    spark = context.settings.spark
    named = context.substitute(context.text("profile")).strip()
    profile = named or spark.default_profile
    if not spark.is_known(profile):
        known = ", ".join([*sorted(spark.profiles), *WITHOUT_A_TABLE])
        raise TaskParameterError(
            f"params.profile: this worker knows no Spark profile {profile[:40]!r}; it has {known};"
            " profiles stand in worker.toml as [spark.profiles.NAME]"
        )
    conf = session_conf(context)
    master = context.substitute(context.text("master")).strip() or conf.pop("spark.master", "")
    if profile == CLASSIC:
        return _classic(context, DEFAULT, master, conf)
    connects = profile == CONNECT
    if connects:
        profile = DEFAULT
    needs = needs_of_settings(master, conf, shipped)
    if needs and named:
        raise TaskParameterError(f"{needs[0]} {not_in_session(named)}")
    if needs:
        note = f"takes a driver of its own (profile classic), since {needs[0]} needs one"
    elif not context.settings.spark_socket:
        note = "takes a driver of its own (profile classic), since this worker keeps no sessions"
    elif _memory_factor(context) > 1 and not named:
        note = "takes a driver of its own (profile classic), since an earlier attempt had too"
        note += " little memory"
    else:
        notes = (_SAME_MEMORY,) if _memory_factor(context) > 1 else ()
        return Choice(
            profile=profile,
            made_as=spark.profiles[profile],
            conf=conf,
            notes=notes,
            connects=connects,
        )
    return _classic(context, profile, master, conf, note)


def _with_driver(
    context: TaskContext,
    choice: Choice,
    document: Mapping[str, object],
    *,
    shipped: Collection[str],
) -> Choice:
    """Return the choice for a script; a driver of its own if it needs one, and the log says why.

    In the JVM of a warm server it would change what other tasks share. A driver starts before the
    script, with the settings that the script gives.
    """
    texts = [*_texts(document, context.account)]
    if choice.is_classic:
        own = Memory(context).raised_settings(_settings_in(texts))
        return replace(choice, conf={**choice.conf, **own})
    need = "what pyFiles and archives bring" if shipped else ""
    if not need and sharing.is_isolated(choice.conf):
        need = sharing.ISOLATED
    if not need:
        need = next(filter(None, map(driver_needs.needs_driver, texts)), "")
    if not need:
        return choice
    note = f"takes a driver of its own (profile classic), since {need} needs one"
    return _classic(context, choice.profile, "", {**choice.conf, **_settings_in(texts)}, note)


def _settings_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings of a driver that scripts give and that a task may have."""
    given = dict(pair for text in texts for pair in driver_needs.driver_settings(text).items())
    return {key: value for key, value in given.items() if _is_allowed(key, value)}


def _is_allowed(key: str, value: str) -> bool:
    try:
        check_session_setting(key, value)
    except ValueFaultError:
        return False
    return True


def session_conf(context: TaskContext) -> dict[str, str]:
    """Return the settings in `conf`, with parameters put into their values."""
    with fault_at(CONF.name):
        given = read_settings(context.params.get(CONF.name))
        conf = {key: context.substitute(value) for key, value in given.items()}
        for key, value in conf.items():
            check_session_setting(key, value)
    return conf


def _classic(
    context: TaskContext, profile: str, master: str, conf: Mapping[str, str], note: str = ""
) -> Choice:
    """Return a driver made as the profile's server is, with what the task says besides."""
    made_as = context.settings.spark.profiles.get(profile, SparkProfile())
    master = master or made_as.master
    whole = {
        **CLASSIC_CONF,
        "spark.driver.memory": made_as.driver_memory,
        **({"spark.jars": made_as.jars} if made_as.jars else {}),
        **({"spark.jars.packages": made_as.packages} if made_as.packages else {}),
        **made_as.conf,
        **conf,
    }
    if _memory_factor(context) > 1 and not master.startswith("local"):
        whole.setdefault("spark.executor.memory", _DEFAULT_MEMORY)
    memory = Memory(context)
    return Choice(
        profile=CLASSIC,
        made_as=made_as,
        master=master,
        conf=memory.raised_settings(whole),
        notes=(*([note] if note else []), *memory.notes()),
    )


def _memory_factor(context: TaskContext) -> float:
    return context.task.memory_factor


def _argv(
    context: TaskContext,
    choice: Choice,
    servers: str,
    job: Path,
    environment: TaskEnvironment | None,
) -> tuple[str, ...]:
    if choice.is_classic:
        program = _CLASSIC_DRIVER if environment is None else _ENVIRONMENTS
        # -P keeps the program's own folder, whose modules are ours, from being searched.
        return _python(context, choice), "-P", "-u", program, str(job)
    # The worker's own interpreter: what is asked for runs in that of the Spark host.
    proxy = (sys.executable, "-I", "-S", _TASK_PROXY)
    socket = folders.socket_for(context.settings.spark_socket, context.account)
    return *proxy, socket, "task", servers, str(job)


def _servers(choice: Choice, brings: bool) -> str:
    """Return the servers that may give the session: any of the profile's, or its isolated ones."""
    made_as = choice.made_as
    if not (brings or sharing.is_isolated(choice.conf)):
        return choice.profile
    is_elsewhere = sharing.may_share(made_as.master, made_as.conf)
    return sharing.isolated(choice.profile) if is_elsewhere else choice.profile


def _texts(document: object, account: Account | None) -> Iterator[str]:
    """Yield all that a kind's document says, and what stands in its script."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, Mapping):
        for key, value in document.items():
            yield from _texts(value, account)
            if key == "script" and value:
                # Who can't read it is told so by the task itself.
                yield read_script(Path(str(value)), account, limit_chars=_CHARS_SEEN)
    elif isinstance(document, list | tuple):
        for each in document:
            yield from _texts(each, account)


def _python(context: TaskContext, choice: Choice) -> str:
    python = choice.made_as.python or context.settings.python or sys.executable
    return context.program(python, "worker.python")


def _environment(context: TaskContext, choice: Choice) -> dict[str, str]:
    if not choice.is_classic:
        return {}
    python = _python(context, choice)
    return {
        **spark_environment(context, spark_home(context)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


def _params(context: TaskContext) -> dict[str, dict[str, str]]:
    try:
        return parameters.in_job(context.parameters, context.types)
    except ParameterValueError as error:
        raise TaskParameterError(str(error)) from error
