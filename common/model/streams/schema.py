"""Reads `dataSchema` of a stream's specification, also from a legacy `parser.parseSpec`.

Pure. Everything is read leniently into values of `common.model.streams.spec`, and every mistake is
noted with its place. Used by `common.model.streams.reading`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from common.model.streams.expressions import ExpressionTextError, read_expression
from common.model.streams.fields import Fields, shown, whole_number
from common.model.streams.filters import read_filter
from common.model.streams.formats import read_timestamp
from common.model.streams.partitions import Partition, read_partition
from common.model.streams.periods import Granularity, PeriodError, read_granularity
from common.model.streams.spec import (
    ColumnType,
    DataSchema,
    Dimension,
    Dimensions,
    Filter,
    Metric,
    TimestampSpec,
    Transform,
)

TIME_COLUMN: Final = "__time"
_MAX_DATASET: Final = 255
_UNSAFE: Final = re.compile(r"[/\x00-\x1f\x7f]")

_NUMBERS: Final = ("long", "double", "float")
_SIMPLE: Final = frozenset(f"{each}{what}" for each in _NUMBERS for what in ("Sum", "Min", "Max"))
_TIMED: Final = frozenset(
    f"{each}{what}" for each in (*_NUMBERS, "string") for what in ("First", "Last")
)
_HLL: Final = "HLLSketchBuild"
_HYPER: Final = "hyperUnique"
_THETA: Final = "thetaSketch"
_QUANTILES: Final = "quantilesDoublesSketch"
METRIC_TYPES: Final = (
    *("count", *sorted(_SIMPLE), *sorted(_TIMED)),
    *(_HLL, _HYPER, _THETA, _QUANTILES),
)
_LG_HYPER: Final = 11
"""The logarithm of the 2,048 registers that Druid's hyperUnique has."""
_MOST_KLL: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSchema:
    """The schema, and the `parseSpec` that stands for an input format in legacy ones."""

    schema: DataSchema
    parse_spec: Fields | None


def read_schema(fields: Fields) -> ReadSchema:
    """Read the object `dataSchema`."""
    legacy = _parse_spec(fields)
    dataset = _dataset(fields)
    metrics = fields.items("metricsSpec", _metric)
    timestamp, dimensions = _time_and_dimensions(fields, legacy, metrics)
    segment, query, rollup = _granularities(fields)
    transforms, condition = _transforms(fields)
    _check_names(fields, dimensions, metrics)
    fields.ignore("projections")
    fields.close()
    schema = DataSchema(
        dataset=dataset,
        timestamp=timestamp,
        dimensions=dimensions,
        metrics=metrics,
        segment_granularity=segment,
        query_granularity=query,
        rollup=rollup,
        transforms=transforms,
        filter=condition,
    )
    return ReadSchema(schema=schema, parse_spec=legacy)


def fault_of_dataset(name: str) -> str | None:
    """Return the reason for which a dataset can't have this name, None if it can.

    The name becomes a folder, and a part of paths of the API.
    """
    if not name.strip():
        return "must not be empty"
    if name.startswith("."):
        return "must not begin with a dot"
    if _UNSAFE.search(name):
        return "must not hold a slash, a line break or another control character"
    if len(name.encode()) > _MAX_DATASET:
        return f"must be at most {_MAX_DATASET} bytes long"
    return None


def _dataset(fields: Fields) -> str:
    name = fields.name("dataSource")
    fault = fault_of_dataset(name) if name else None
    if fault:
        fields.wrong("dataSource", fault)
    return name


def _parse_spec(fields: Fields) -> Fields | None:
    parser = fields.child("parser")
    if parser is None:
        return None
    parser.one_of("type", ("string",), default="string")
    parser.ignore("encoding")
    parse_spec = parser.required("parseSpec")
    parser.close()
    return parse_spec


def _time_and_dimensions(
    fields: Fields, legacy: Fields | None, metrics: tuple[Metric, ...]
) -> tuple[TimestampSpec, Dimensions]:
    """Read the parts that a `parseSpec` has too.

    Druid shows them in both places after it has read a `parser`, with the names of the metrics as
    further exclusions. So they may be in both places if they mean the same.
    """
    if legacy is None:
        return _timestamp(fields), _dimensions(fields)
    timestamp, dimensions = _timestamp(legacy), _dimensions(legacy)
    if "timestampSpec" in fields:
        beside = _timestamp(fields)
        if "timestampSpec" in legacy and beside != timestamp:
            fields.differs("timestampSpec", legacy.at("timestampSpec"))
        timestamp = beside
    if "dimensionsSpec" in fields:
        given = _dimensions(fields)
        silent = {timestamp.column, *(each.name for each in metrics)}
        silent |= {each.field for each in metrics if each.field}
        is_same = _discovering(given, silent) == _discovering(dimensions, silent)
        if "dimensionsSpec" in legacy and not is_same:
            fields.differs("dimensionsSpec", legacy.at("dimensionsSpec"))
        dimensions = given
    return timestamp, dimensions


def _discovering(dimensions: Dimensions, silent: Collection[str]) -> Dimensions:
    """Return dimensions without the exclusions of columns that are never discovered."""
    never = {TIME_COLUMN, *silent, *(each.name for each in dimensions.declared)}
    lower = {each.lower() for each in never}
    excluded = frozenset(each.lower() for each in dimensions.excluded) - lower
    return replace(dimensions, excluded=excluded)


def _timestamp(place: Fields) -> TimestampSpec:
    spec = place.child("timestampSpec")
    return TimestampSpec() if spec is None else read_timestamp(spec)


def _dimensions(place: Fields) -> Dimensions:
    spec = place.child("dimensionsSpec")
    if spec is None:
        return Dimensions(declared=(), excluded=frozenset(), discovers=True)
    declared = []
    for index, value in enumerate(spec.list("dimensions")):
        at = f"{spec.at('dimensions')}[{index}]"
        if isinstance(value, str) and value:
            declared.append(Dimension(name=value))
        else:
            declared.append(_dimension(Fields(value, at, spec.findings)))
    excluded = frozenset(spec.texts("dimensionExclusions"))
    includes_all = spec.flag("includeAllDimensions", default=False)
    if spec.flag("useSchemaDiscovery", default=False):
        spec.wrong(
            "useSchemaDiscovery",
            "typed discovery is not supported; declare dimensions with their types, or leave the"
            " key out: then all fields but nested ones are discovered as texts",
        )
    if declared and excluded and not includes_all:
        # Druid's own rule: exclusions are for discovered columns alone.
        excluded = frozenset()
        spec.findings.ignored.append(spec.at("dimensionExclusions"))
    spec.ignore("spatialDimensions", "forceSegmentSortByTime")
    spec.close()
    return Dimensions(
        declared=tuple(declared), excluded=excluded, discovers=includes_all or not declared
    )


def _dimension(fields: Fields) -> Dimension:
    name = fields.name("name")
    types = [each.value for each in ColumnType]
    type_ = fields.one_of("type", types, default=ColumnType.STRING.value)
    fields.ignore("multiValueHandling", "createBitmapIndex", "formatVersion")
    fields.close()
    return Dimension(name=name, type=ColumnType(type_))


def _metric(fields: Fields) -> Metric | None:
    type_ = fields.name("type")
    name = fields.name("name")
    if type_ and type_ not in METRIC_TYPES:
        fields.wrong("type", f"{shown(type_)} is unknown; known are {', '.join(METRIC_TYPES)}")
        return None
    field = None if type_ in {"count", ""} else fields.name("fieldName")
    size: int | None = None
    target: str | None = None
    time_column: str | None = None
    if type_ == _HLL:
        size = fields.whole("lgK", default=12, least=4, most=21)
        target = fields.one_of("tgtHllType", ("HLL_4", "HLL_6", "HLL_8"), default="HLL_4")
        fields.ignore("round", "shouldFinalize", "stringEncoding")
    elif type_ == _THETA:
        size = fields.whole("size", default=16_384, least=16, most=2**26)
        if size & (size - 1):
            fields.wrong("size", f"must be a power of two, not {size}")
        if fields.flag("isInputThetaSketch", default=False):
            fields.wrong("isInputThetaSketch", "finished sketches are not read; give raw values")
        fields.ignore("shouldFinalize", "errorBoundsStdDev")
    elif type_ == _HYPER:
        size = _LG_HYPER
        if fields.flag("isInputHyperUnique", default=False):
            fields.wrong("isInputHyperUnique", "finished sketches are not read; give raw values")
        fields.ignore("round")
    elif type_ == _QUANTILES:
        # A KLL sketch of twice the size is at least as exact as Druid's.
        exactness = fields.whole("k", default=128, least=2, most=2**15)
        if exactness & (exactness - 1):
            fields.wrong("k", f"must be a power of two, not {exactness}")
        size = max(8, min(_MOST_KLL, 2 * exactness))
        fields.ignore("maxStreamLength", "shouldFinalize")
    elif type_ in _TIMED:
        time_column = fields.text("timeColumn") or None
        fields.ignore("maxStringBytes")
    if "expression" in fields:
        fields.wrong("expression", "is not supported in a metric; use transformSpec")
        fields.raw("expression")
    fields.close()
    return Metric(
        name=name, type=type_, field=field, size=size, target=target, time_column=time_column
    )


def _granularities(fields: Fields) -> tuple[Granularity, Granularity, bool]:
    spec = fields.child("granularitySpec")
    if spec is None:
        return read_granularity("DAY"), read_granularity("NONE"), True
    spec.one_of("type", ("uniform",), default="uniform")
    segment = _granularity(spec, "segmentGranularity", "DAY")
    query = _granularity(spec, "queryGranularity", "NONE")
    if segment.name in {"NONE", "ALL"}:
        spec.wrong("segmentGranularity", f"must cut time into chunks; {segment.name} does not")
    elif query.rough_length > segment.rough_length:
        spec.wrong(
            "queryGranularity",
            f"{query.name} is coarser than the segmentGranularity {segment.name}",
        )
    rollup = spec.flag("rollup", default=True)
    # They bound batches; a stream takes whatever its message times allow.
    spec.ignore("intervals")
    spec.close()
    return segment, query, rollup


def _granularity(spec: Fields, key: str, default: str) -> Granularity:
    value = spec.raw(key)
    if value is not None:
        try:
            return read_granularity(value)
        except PeriodError as error:
            spec.wrong(key, f"{shown(value)} is no granularity: {error}")
    return read_granularity(default)


def _transforms(fields: Fields) -> tuple[tuple[Transform, ...], Filter | None]:
    spec = fields.child("transformSpec")
    if spec is None:
        return (), None
    transforms = spec.items("transforms", _transform)
    names = [each.name for each in transforms]
    for name in _repeated(names):
        spec.wrong("transforms", f"{shown(name)} is computed twice")
    condition = spec.child("filter")
    spec.close()
    return transforms, None if condition is None else read_filter(condition)


def _transform(fields: Fields) -> Transform | None:
    fields.one_of("type", ("expression",), default="expression")
    name, text = fields.name("name"), fields.name("expression")
    fields.close()
    if not text:
        return None
    try:
        return Transform(name=name, expression=read_expression(text))
    except ExpressionTextError as error:
        fields.wrong("expression", f"{shown(text)} is no expression: {error}")
        return None


def _check_names(fields: Fields, dimensions: Dimensions, metrics: tuple[Metric, ...]) -> None:
    """Note columns that two parts of the schema would write."""
    columns = [each.name for each in dimensions.declared]
    # Spark tells columns apart by their letters and not by their case.
    for name in _repeated([TIME_COLUMN, *columns]):
        fields.wrong("dimensionsSpec", f"{shown(name)} is named twice, or is the column of time")
    for name in _repeated([TIME_COLUMN, *columns, *(each.name for each in metrics)]):
        if name not in _repeated([TIME_COLUMN, *columns]):
            fields.wrong("metricsSpec", f"{shown(name)} is named twice, or is a dimension or time")


def _repeated(names: Iterable[str]) -> tuple[str, ...]:
    seen: set[str] = set()
    found: list[str] = []
    for name in names:
        if name and name.lower() in seen and name not in found:
            found.append(name)
        seen.add(name.lower())
    return tuple(found)


def partitions_of(fields: Fields, key: str) -> dict[Partition, int]:
    """Read offsets by partition: a plain object, or one in Druid's wrapping."""
    written: Any = fields.raw(key)
    if isinstance(written, dict):
        for wrapping in ("partitionSequenceNumberMap", "partitionOffsetMap"):
            written = written.get(wrapping, written) if isinstance(written, dict) else written
    if not isinstance(written, dict) or not written:
        fields.wrong(key, "must be an object with an offset for each partition")
        return {}
    found: dict[Partition, int] = {}
    for name, value in written.items():
        partition, offset = _partition(name), whole_number(value)
        if partition is None or offset is None or offset < 0:
            fields.wrong(key, f"{shown(name)}: {shown(value)} is no partition and offset")
        else:
            found[partition] = offset
    return found


def _partition(name: object) -> Partition | None:
    try:
        return read_partition(name)
    except ValueError:
        return None
