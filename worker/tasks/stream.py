"""STREAM: reads a topic of Kafka into a dataset, as the task of a supervisor, or a range of it.

The task has a Spark driver of its own on its worker, or a session in a server of its `profile`; in
the worker's own Python, for what runs there is Orcaflow's program and not its author's. It asks its
worker what to read, by the socket for datasets, so neither a command line nor a file of the job has
a secret of the stream's. With `spec`, `from` and `to` it needs no supervisor: it reads that range,
publishes it and ends. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from common.model.streams.bounded import (
    SPEC as RANGE_SPEC,
)
from common.model.streams.bounded import (
    keys_without_effect,
    mistake_between,
    read_bound,
    read_range_spec,
)
from common.model.streams.reading import Rules
from common.model.streams.spec import EnvironmentSecret
from common.model.task_type import (
    LOCAL_PARAMS,
    Fault,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
    ValueFaultError,
    is_absent,
    is_open,
)
from common.spark_config import CLASSIC
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import CONF, session_faults

_SUPERVISOR: Final = Key(
    name="supervisor", about="The supervisor, whose submission made the definition."
)
_RANGE_SPEC: Final = Key(
    name=RANGE_SPEC,
    shape=Shape.ANY,
    about="Instead of a supervisor: a specification like its own, of whose topic a range is read.",
    check=lambda value: _check_with(_read_open_spec, value),
)
_FROM: Final = Key(
    name="from",
    shape=Shape.ANY,
    about="The begin of the range: offsets by partition, a time, earliest or latest.",
    check=lambda value: _check_with(read_bound, value),
)
_TO: Final = Key(
    name="to",
    shape=Shape.ANY,
    about="The end of the range, which is not read, likewise.",
    check=lambda value: _check_with(read_bound, value),
)
_PROFILE: Final = Key(
    name="profile",
    about="The worker's Spark profile whose servers it shares; else a driver of its own.",
)
_CORES: Final = Key(
    name="cores",
    shape=Shape.NUMBER,
    about="The threads that read and write at the same time.",
    default=2,
    highest=64,
)
_MEMORY: Final = Key(
    name="driverMemory",
    shape=Shape.SIZE,
    about="The Java heap of a driver of its own; Spark takes no less than 472M.",
    default="512M",
)
_NO_DRIVER: Final = "belongs to a driver of its own, without a profile"


def _read_open_spec(value: Any) -> object:
    """Read a specification that may still contain parameters."""
    return read_range_spec(value, rules=Rules(is_open=is_open))


def _check_with(read: Callable[[Any], object], value: object) -> None:
    if not is_absent(value):
        read(value)


def _faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    yield from session_faults(params)
    yield from _range_faults(params)
    profile = params.get(_PROFILE.name)
    if _is_shared(profile) and not is_open(profile) and not is_absent(params.get(_MEMORY.name)):
        yield Fault(key=_MEMORY.name, problem=_NO_DRIVER)
    try:
        start, end = read_bound(params.get(_FROM.name)), read_bound(params.get(_TO.name))
    except ValueFaultError:
        return  # Told of elsewhere, or open.
    if mistake := mistake_between(start, end):
        yield Fault(key=_TO.name, problem=mistake)


def _warnings(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the keys of a specification that have no effect."""
    spec = params.get(_RANGE_SPEC.name)
    if not isinstance(spec, Mapping):
        return
    try:
        found = keys_without_effect(spec, rules=Rules(is_open=is_open))
    except ValueFaultError:
        return  # Reported as a fault.
    if found:
        yield Fault(
            key=_RANGE_SPEC.name, problem=f"has keys without effect here: {', '.join(found)}"
        )


def _is_shared(profile: object) -> bool:
    """Return True if a task with this profile has a session in a server that others share."""
    return not is_absent(profile) and str(profile).strip() != CLASSIC


def _range_faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong between the keys of a range."""
    bounds = [key.name for key in (_FROM, _TO) if not is_absent(params.get(key.name))]
    has_spec = not is_absent(params.get(_RANGE_SPEC.name))
    if not is_absent(params.get(_SUPERVISOR.name)):
        for name in bounds if not has_spec else ():
            if not is_open(params[name]):
                yield Fault(key=name, problem="belongs to params.spec; a supervisor has its own")
        return
    for key in (_RANGE_SPEC, _FROM, _TO) if has_spec or bounds else ():
        if is_absent(params.get(key.name)):
            yield Fault(key=key.name, problem="is missing: a range has spec, from and to")


SPEC: Final = TaskTypeSpec(
    name="STREAM",
    about="Reads a topic of Kafka into a dataset, for a supervisor, or a range of it by itself.",
    kind=TaskKind.SESSION,
    keys=(
        _SUPERVISOR,
        _RANGE_SPEC,
        _FROM,
        _TO,
        _PROFILE,
        _CORES,
        _MEMORY,
        CONF,
        LOCAL_PARAMS,
    ),
    needs=((_SUPERVISOR.name, _RANGE_SPEC.name),),
    alternatives=((_SUPERVISOR.name, _RANGE_SPEC.name),),
    faults=_faults,
    warnings=_warnings,
    names_are_its_own=False,
    session_work="worker.spark.streaming.task",
)
_OF_RANGES: Final = "worker.spark.streaming.bounded"


class StreamTask:
    """Runs the program for streams, in a driver of its own or in a session of a profile."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching.own_program import launch_in_server, launch_with_driver, memory_of

        document = _range(context)
        if not document and not context.text(_SUPERVISOR.name).strip():
            raise TaskParameterError(
                "params.supervisor is missing: `orcaflow stream submit` makes definitions with it;"
                " a task of its own has params.spec, from and to"
            )
        spec = replace(SPEC, session_work=_OF_RANGES) if document else SPEC
        cores = context.number(_CORES)
        conf = {"spark.sql.shuffle.partitions": str(cores)}
        if _is_shared(context.substitute(context.text(_PROFILE.name))):
            if not is_absent(context.params.get(_MEMORY.name)):
                raise TaskParameterError(f"params.{_MEMORY.name} {_NO_DRIVER}")
            return launch_in_server(context, spec, {**document, "cores": cores}, conf=conf)
        return launch_with_driver(
            context,
            spec,
            {**document, "cores": cores},
            cores=cores,
            memory=memory_of(context, _MEMORY),
            conf=conf,
        )


def _range(context: TaskContext) -> dict[str, Any]:
    """Return the range that is read without a supervisor, with its parameters; else nothing."""
    names = (_RANGE_SPEC.name, _FROM.name, _TO.name)
    values = {name: _substituted(context, context.params.get(name)) for name in names}
    given = {name: value for name, value in values.items() if not is_absent(value)}
    if _RANGE_SPEC.name in given and not is_absent(context.params.get(_SUPERVISOR.name)):
        raise TaskParameterError(
            "params.supervisor and params.spec are both given; which one is meant?"
        )
    for fault in _range_faults({**context.params, **values}):
        raise TaskParameterError(str(fault))
    if not given:
        return {}
    if _RANGE_SPEC.name not in given:
        # A parameter that nobody has given a value stands here.
        raise TaskParameterError(f"params.{next(iter(given))} belongs to params.spec")
    environment = context.settings.stream_environment
    with fault_at(_RANGE_SPEC.name):
        # Variables that this worker lacks are refused, even if the setting lists them.
        spec = read_range_spec(given[_RANGE_SPEC.name], rules=Rules(variables=environment.keys()))
    bounds = {}
    for name in (_FROM.name, _TO.name):
        with fault_at(name):
            bounds[name] = read_bound(given[name])
    with fault_at(_TO.name):
        if mistake := mistake_between(bounds[_FROM.name], bounds[_TO.name]):
            raise ValueFaultError(mistake)
    secrets = {
        each.variable: environment[each.variable]
        for each in spec.io.consumer.values()
        if isinstance(each, EnvironmentSecret)
    }
    return {**given, "secrets": secrets} if secrets else given


def _substituted(context: TaskContext, value: Any) -> Any:
    """Put parameters and time placeholders into every text of a value, but not into keys."""
    if isinstance(value, str):
        return context.substitute(value)
    if isinstance(value, list):
        return [_substituted(context, each) for each in value]
    if isinstance(value, Mapping):
        return {key: _substituted(context, each) for key, each in value.items()}
    return value


TASK_TYPE: Final = StreamTask
