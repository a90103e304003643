"""Reads the JSON specification of a Kafka supervisor, with every mistake at once.

Pure. Keys, shapes and defaults are Druid's. The parts are below `spec`, at the top, or in both
places, as Druid itself shows a specification; then those below `spec` count, as in Druid.
`read_spec` returns the specification and the places of keys that are accepted without effect, which
the answer to a submission lists. Secrets are never in a mistake.

    dataSchema     rows                   `common.model.streams.schema`
    ioConfig       the stream, its tasks  here
    tuningConfig   limits, patience       here
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from common.errors import InvalidSpecError
from common.model.streams.consumer import read_properties
from common.model.streams.fields import Fields, Findings, shown
from common.model.streams.formats import read_format, read_parse_spec
from common.model.streams.partitions import TopicPartition
from common.model.streams.properties import SERVERS, shown_name
from common.model.streams.schema import partitions_of, read_schema
from common.model.streams.spec import (
    AlertRule,
    Bounds,
    EnvironmentSecret,
    IdleRule,
    InputFormat,
    IoConfig,
    ScalingRule,
    SupervisorSpec,
    TextFormat,
    Tombstone,
    TuningConfig,
)
from common.model.streams.topic_patterns import PatternError, read_pattern

MAX_TEXT: Final = 1_048_576
MAX_TASKS: Final = 10_000

_PROVIDER: Final = "druid.dynamic.config.provider"
_TYPES: Final = ("kafka", "NoopSupervisorSpec")
_KAFKA: Final = ("kafka",)
_PARTS: Final = ("dataSchema", "ioConfig", "tuningConfig")
_ONE_TOPIC: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])+")
"""A pattern without signs that match more than themselves. It means the topic alone."""
_SECOND: Final = timedelta(seconds=1)
_OFTENEST_FETCH: Final = timedelta(seconds=5)
_IO_IGNORED: Final = (
    "multiTopic",
    "configOverrides",
    "emitTimeLagMetrics",
    "serverPriorityToReplicas",
    "lagAggregator",
    "skipOffsetGaps",
)
_TUNING_IGNORED: Final = (
    "workerThreads",
    "chatAsync",
    "chatThreads",
    "chatRetries",
    "httpTimeout",
    "maxRowsInMemory",
    "maxBytesInMemory",
    "skipBytesInMemoryOverheadCheck",
    "intermediatePersistPeriod",
    "maxPendingPersists",
    "numPersistThreads",
    "indexSpec",
    "indexSpecForIntermediatePersists",
    "appendableIndexSpec",
    "segmentWriteOutMediumFactory",
    "basePersistDirectory",
    "buildV9Directly",
    "handoffConditionTimeout",
    "maxColumnsToMerge",
    "releaseLocksOnHandoff",
    "recordBufferSize",
    "recordBufferOfferTimeout",
    "recordBufferFullWait",
    "skipSequenceNumberAvailabilityCheck",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpec:
    """A good specification, and the places of its keys that change nothing here."""

    spec: SupervisorSpec | Tombstone
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that differ between the readers of a specification.

    `variables` are the environment variables that properties may name; with None the check is left
    to `librdkafka_properties`.
    `is_open` returns True for a text with parts that are not known yet.
    """

    variables: Collection[str] | None = None
    is_open: Callable[[str], bool] = lambda _: False


def read_spec(document: str | Mapping[str, Any], *, rules: Rules | None = None) -> ReadSpec:
    """Read a specification; `InvalidSpecError.mistakes` name every mistake with its place."""
    findings = Findings()
    rules = rules or Rules()
    top = Fields(_parsed(document), "", findings)
    type_ = top.one_of("type", _TYPES, default="kafka") if "type" in top else top.name("type")
    spec: SupervisorSpec | Tombstone
    spec = _tombstone(top) if type_ == "NoopSupervisorSpec" else _kafka(top, rules)
    top.close()
    if findings.mistakes:
        raise InvalidSpecError(tuple(dict.fromkeys(findings.mistakes)))
    return ReadSpec(spec=spec, ignored=findings.ignored_once())


def _parsed(document: str | Mapping[str, Any]) -> Any:
    if not isinstance(document, str):
        return document
    if len(document) > MAX_TEXT:
        raise InvalidSpecError((f"the specification is longer than {MAX_TEXT} characters",))
    try:
        return json.loads(document, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidSpecError(("the specification is nested too deeply",)) from None
    except json.JSONDecodeError as error:
        # The text may hold secrets, so only the position is told.
        place = f"{error.msg} at line {error.lineno}"
        raise InvalidSpecError((f"the specification is no JSON: {place}",)) from None
    except ValueError:
        raise InvalidSpecError(("the specification holds a number that is no JSON",)) from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _tombstone(top: Fields) -> Tombstone:
    named = top.texts("dataSources")
    name = top.text("id") or (named[0] if named else "")
    if not name:
        top.wrong("id", "is missing")
    top.ignore("spec", "source", "suspended")
    return Tombstone(id=name)


def _kafka(top: Fields, rules: Rules) -> SupervisorSpec:
    parts = top
    if "spec" in top:
        parts = top.required("spec")
        for key in _PARTS:
            # Druid shows every part twice, so an equal copy is not listed as without effect.
            if top.raw(key) != parts.raw(key):
                top.ignore(key)
    read = read_schema(parts.required("dataSchema"))
    io = _io(parts.required("ioConfig"), parse_spec=read.parse_spec, rules=rules)
    tuning_fields = parts.child("tuningConfig")
    tuning = TuningConfig() if tuning_fields is None else _tuning(tuning_fields)
    priority = _priority(top, parts)
    name = top.text("id", default=read.schema.dataset)
    if read.schema.dataset and name != read.schema.dataset:
        top.wrong("id", "must be the name of dataSchema.dataSource, or be left out")
    spec = SupervisorSpec(
        schema=read.schema,
        io=io,
        tuning=tuning,
        suspended=top.flag("suspended", default=False),
        priority=priority,
    )
    if parts is not top:
        parts.ignore("type", "suspended")
        parts.close()
    return spec


def _priority(top: Fields, parts: Fields) -> int | None:
    """Read `context`, of which the priority of locks alone has an effect."""
    context = top.child("context") if "context" in top else parts.child("context")
    if "context" in top and parts is not top:
        parts.ignore("context")
    if context is None:
        return None
    priority = context.whole("priority", default=75, most=100)
    context.ignore_rest()
    return priority


def _io(fields: Fields, *, parse_spec: Fields | None, rules: Rules) -> IoConfig:
    fields.one_of("type", _KAFKA, default="kafka")
    scaling = _scaling(fields)
    task_count = fields.whole("taskCount", default=_first_count(scaling), least=1, most=MAX_TASKS)
    late_period = fields.duration("lateMessageRejectionPeriod", default=None)
    late_start = fields.moment("lateMessageRejectionStartDateTime")
    if late_period is not None and late_start is not None:
        fields.wrong(
            "lateMessageRejectionStartDateTime",
            "stands beside lateMessageRejectionPeriod; keep one of the two",
        )
    stop_tasks = fields.whole("stopTaskCount", default=0, least=1) or None
    topic, has_pattern = _topic(fields)
    bounds = _bounds(fields, topic=topic, has_pattern=has_pattern)
    read = IoConfig(
        topic=topic,
        has_pattern=has_pattern,
        consumer=_consumer(fields, rules),
        connection=fields.name("connection") if "connection" in fields else "",
        input_format=_input_format(fields, parse_spec),
        replicas=fields.whole("replicas", default=1, least=1, most=100),
        task_count=task_count,
        task_duration=fields.duration("taskDuration", default=timedelta(hours=1), least=_SECOND),
        start_delay=fields.duration("startDelay", default=timedelta(seconds=5)),
        period=fields.duration("period", default=timedelta(seconds=30)),
        use_earliest_offset=_earliest(fields),
        completion_timeout=fields.duration(
            "completionTimeout", default=timedelta(minutes=30), least=_SECOND
        ),
        late_period=late_period,
        late_start=late_start,
        early_period=fields.duration("earlyMessageRejectionPeriod", default=None),
        poll_timeout=fields.milliseconds(
            "pollTimeout", default=timedelta(milliseconds=100), least=1
        ),
        stop_task_count=stop_tasks,
        idle=_idle(fields),
        scaling=scaling,
        bounds=bounds,
        alerts=_alerts(fields),
    )
    fields.ignore(*_IO_IGNORED)
    fields.close()
    return read


def _topic(fields: Fields) -> tuple[str, bool]:
    """Read the topic, or a pattern of topics (True). Druid shows either one as `stream` too."""
    if "topicPattern" in fields:
        topic, has_pattern = _pattern(fields)
    elif "topic" not in fields and "stream" in fields:
        return fields.name("stream"), False
    else:
        topic, has_pattern = fields.name("topic"), False
    if fields.raw("stream") not in (topic, fields.raw("topicPattern")):
        fields.ignore("stream")
    return topic, has_pattern


def _pattern(fields: Fields) -> tuple[str, bool]:
    """Read `topicPattern`; a pattern that means one topic alone is that topic."""
    pattern = fields.name("topicPattern")
    if "topic" in fields:
        fields.wrong("topicPattern", "is given beside topic; keep one of the two")
    fields.raw("topic")
    if _ONE_TOPIC.fullmatch(pattern):
        return pattern.replace("\\", ""), False
    if pattern:
        try:
            read_pattern(pattern)
        except PatternError as error:
            fields.wrong("topicPattern", f"{shown(pattern)}: {error}")
    return pattern, True


def _consumer(fields: Fields, rules: Rules) -> dict[str, str | EnvironmentSecret]:
    properties = fields.raw("consumerProperties")
    has_connection = "connection" in fields
    if properties is None:
        if not has_connection:
            fields.wrong("consumerProperties", f"is missing; it must hold {SERVERS}")
        return {}
    if not isinstance(properties, Mapping):
        fields.wrong("consumerProperties", "must be an object")
        return {}
    properties = _provided(fields, properties, rules)
    read = read_properties(
        properties,
        has_connection=has_connection,
        variables=rules.variables,
        is_open=rules.is_open,
    )
    place = fields.at("consumerProperties")
    fields.findings.ignored.extend(f"{place}.{name}" for name in read.ignored)
    for name, problem in read.mistakes:
        fields.wrong(f"consumerProperties.{name}", problem)
    if not has_connection and SERVERS not in properties:
        fields.wrong("consumerProperties", f"must hold {SERVERS}, as in broker:9092")
    return read.found


def _provided(fields: Fields, properties: Mapping[str, Any], rules: Rules) -> Mapping[str, Any]:
    """Put the properties of Druid's dynamic provider in its place."""
    if properties.get(_PROVIDER) is None:
        return {name: each for name, each in properties.items() if name != _PROVIDER}
    found: dict[str, Any] = {}
    match properties[_PROVIDER]:
        case {"type": "environment", "variables": Mapping() as variables}:
            # A masked name of a variable is open, as a masked value is.
            found = {
                name: each
                if isinstance(each, str) and rules.is_open(each)
                else {"type": "environment", "variable": each}
                for name, each in variables.items()
            }
        case {"type": "mapString", "config": Mapping() as config}:
            found = dict(config)
        case _:
            fields.wrong(
                f"consumerProperties.{_PROVIDER}",
                "must be of type environment with variables, or of type mapString with config",
            )
    for name in found:
        if name in properties:
            fields.wrong(
                f"consumerProperties.{_PROVIDER}.{shown_name(str(name))}",
                "is given beside the provider too; keep one of the two",
            )
    return {**{name: each for name, each in properties.items() if name != _PROVIDER}, **found}


def _input_format(fields: Fields, parse_spec: Fields | None) -> InputFormat:
    written = fields.child("inputFormat")
    if parse_spec is not None:
        legacy = read_parse_spec(parse_spec)
        if written is not None and read_format(written) != legacy:
            fields.differs("inputFormat", parse_spec.place)
        return legacy
    if written is None:
        fields.wrong("inputFormat", 'is missing; write {"type": "json"}, for example')
        return TextFormat(type="json")
    return read_format(written)


def _earliest(fields: Fields) -> bool:
    """Read `useEarliestOffset`, also by the name that Druid's other streams have for it."""
    other = fields.flag("useEarliestSequenceNumber", default=False)
    read = fields.flag("useEarliestOffset", default=other)
    if read != other:
        fields.ignore("useEarliestSequenceNumber")
    return read


def _idle(fields: Fields) -> IdleRule:
    config = fields.child("idleConfig")
    if config is None:
        return IdleRule()
    rule = IdleRule(
        enabled=config.flag("enabled", default=False),
        inactive_after=config.milliseconds(
            "inactiveAfterMillis", default=IdleRule().inactive_after, least=1
        ),
    )
    config.close()
    return rule


def _alerts(fields: Fields) -> AlertRule:
    """Read the limits for alerts, which Druid has no key for."""
    config = fields.child("alertConfig")
    if config is None:
        return AlertRule()
    rule = AlertRule(
        lag=config.whole("lag", default=0, least=1) or None,
        lag_for=config.duration("lagPeriod", default=AlertRule().lag_for),
        unhealthy=config.flag("unhealthy", default=True),
        task_failures=config.whole("taskFailures", default=AlertRule().task_failures),
    )
    if "lagPeriod" in config and "lag" not in config:
        config.wrong("lag", "is missing; a period alone limits nothing")
    config.close()
    return rule


def _bounds(fields: Fields, *, topic: str, has_pattern: bool) -> Bounds | None:
    config = fields.child("boundedStreamConfig")
    if config is None:
        return None
    starts = partitions_of(config, "startSequenceNumbers")
    ends = partitions_of(config, "endSequenceNumbers")
    if starts and ends and set(starts) != set(ends):
        config.wrong("endSequenceNumbers", "must name the partitions of startSequenceNumbers")
    for partition in sorted(starts):
        if partition in ends and ends[partition] < starts[partition]:
            config.wrong("endSequenceNumbers", f"partition {partition} would end before its start")
    for partition in sorted(starts):
        if isinstance(partition, TopicPartition) is not has_pattern:
            form = "topic:number" if has_pattern else "number"
            config.wrong("startSequenceNumbers", f"{partition} must be a {form} of {topic!r}")
            break
    config.close()
    return Bounds(starts=starts, ends=ends)


def _scaling(fields: Fields) -> ScalingRule | None:
    config = fields.child("autoScalerConfig")
    if config is None:
        return None
    config.one_of("autoScalerStrategy", ("lagBased",), default="lagBased")
    enabled = config.flag("enableTaskAutoScaler", default=False)
    least = config.whole("taskCountMin", default=1, least=1, most=MAX_TASKS)
    most = config.whole("taskCountMax", default=max(1, least), least=1, most=MAX_TASKS)
    if enabled and ("taskCountMin" not in config or "taskCountMax" not in config):
        config.wrong("taskCountMax", "is needed, and so is taskCountMin")
    if most < least:
        config.wrong("taskCountMax", f"must be taskCountMin ({least}) or more, not {most}")
    start = config.whole("taskCountStart", default=least, least=1, most=MAX_TASKS)
    if "taskCountStart" in config and not least <= start <= max(least, most):
        config.wrong("taskCountStart", f"must be from {least} to {most}, not {start}")
    rule = ScalingRule(
        enabled=enabled,
        least=least,
        most=most,
        start=start,
        cool_down=config.milliseconds(
            "minTriggerScaleActionFrequencyMillis", default=timedelta(minutes=10)
        ),
        collect_every=config.milliseconds(
            "lagCollectionIntervalMillis", default=timedelta(seconds=30), least=1
        ),
        collect_for=config.milliseconds(
            "lagCollectionRangeMillis", default=timedelta(minutes=10), least=1
        ),
        start_delay=config.milliseconds(
            "scaleActionStartDelayMillis", default=timedelta(minutes=5)
        ),
        act_every=config.milliseconds(
            "scaleActionPeriodMillis", default=timedelta(minutes=1), least=1
        ),
        out_threshold=config.whole("scaleOutThreshold", default=6_000_000),
        out_share=config.share("triggerScaleOutFractionThreshold", default=0.3),
        out_step=config.whole("scaleOutStep", default=2, least=1),
        in_threshold=config.whole("scaleInThreshold", default=1_000_000),
        in_share=config.share("triggerScaleInFractionThreshold", default=0.9),
        in_step=config.whole("scaleInStep", default=1, least=1),
    )
    config.ignore("stopTaskCountRatio", "lagAggregate")
    config.close()
    return rule


def _first_count(scaling: ScalingRule | None) -> int:
    return 1 if scaling is None or not scaling.enabled else scaling.start


def _tuning(fields: Fields) -> TuningConfig:
    fields.one_of("type", _KAFKA, default="kafka")
    fatal = fields.flag("reportParseExceptions", default=False)
    most_wrong = fields.whole("maxParseExceptions", default=2**31 - 1, most=2**31 - 1)
    read = TuningConfig(
        shutdown_timeout=fields.duration("shutdownTimeout", default=timedelta(seconds=80)),
        offset_fetch_period=max(
            _OFTENEST_FETCH, fields.duration("offsetFetchPeriod", default=timedelta(seconds=30))
        ),
        repartition_transition=fields.duration(
            "repartitionTransitionDuration", default=timedelta(minutes=2)
        ),
        max_rows_per_segment=fields.whole("maxRowsPerSegment", default=5_000_000, least=1),
        max_total_rows=fields.whole("maxTotalRows", default=0, least=1) or None,
        intermediate_handoff_period=fields.duration(
            "intermediateHandoffPeriod", default=None, least=_SECOND
        ),
        reset_offset_automatically=fields.flag("resetOffsetAutomatically", default=False),
        # The first error is fatal then, as with a limit of none.
        max_parse_exceptions=0 if fatal else most_wrong,
        max_saved_parse_exceptions=fields.whole("maxSavedParseExceptions", default=0, most=100_000),
        log_parse_exceptions=fields.flag("logParseExceptions", default=False),
    )
    fields.ignore(*_TUNING_IGNORED)
    fields.close()
    return read
