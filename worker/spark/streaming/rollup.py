"""Aggregates rows: within a batch, and again over the batches of a sequence.

*Partials* are what a batch leaves: rows by chunk, time and dimensions, with states of metrics that
can be aggregated further. `finished` turns them into the columns of a dataset. Without rollup a row
stays a row.

    count, Sum, Min, Max    a number
    First, Last             the value with its time
    sketches                the sketch, which Spark writes as Apache DataSketches do: HLL, theta,
                            and KLL for quantiles
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from common.errors import InvalidSpecError
from common.model.streams.schema import TIME_COLUMN
from common.model.streams.spec import DataSchema, Metric
from worker.spark.streaming.rows import RowState, input_type

CHUNK: Final = "chunk"
_ROW: Final = ("partition", "offset")
_HLL: Final = frozenset({"HLLSketchBuild", "hyperUnique"})
_THETA: Final = "thetaSketch"
_QUANTILES: Final = "quantilesDoublesSketch"
_SKETCHES: Final = _HLL | {_THETA, _QUANTILES}
_EXTREMES: Final[Mapping[str, Callable[[Column], Column]]] = {
    "Min": f.min,
    "Max": f.max,
    "First": f.min,
    "Last": f.max,
}


def partials(rows: DataFrame, schema: DataSchema) -> DataFrame:
    """Return the kept rows, aggregated as far as the schema wants it."""
    kept = rows.where(f.col("state") == int(RowState.KEPT))
    metrics = [_first(each).alias(f"m:{each.name}") for each in schema.metrics]
    keys = [CHUNK, "time", *_dimensions(rows)]
    if not schema.rollup:
        # A sketch of one row is an aggregate too; a record's place keeps rows apart.
        keys += _ROW
    if not metrics:
        wanted = kept.select(*map(quoted, keys))
        return wanted.distinct() if schema.rollup else wanted
    return kept.groupBy(*map(quoted, keys)).agg(*metrics)


def merged(partials_: DataFrame, schema: DataSchema) -> DataFrame:
    """Return partials of several batches as those of one."""
    if not schema.rollup:
        return partials_
    keys = [CHUNK, "time", *_dimensions(partials_)]
    metrics = [_again(each).alias(f"m:{each.name}") for each in schema.metrics]
    if not metrics:
        return partials_.select(*map(quoted, keys)).distinct()
    return partials_.groupBy(*map(quoted, keys)).agg(*metrics)


def finished(partials_: DataFrame, schema: DataSchema, *, keep: Sequence[str] = ()) -> DataFrame:
    """Return the columns of the dataset, time, dimensions and metrics, behind those to keep."""
    return partials_.select(
        *keep,
        f.timestamp_micros("time").alias(TIME_COLUMN),
        *(f.col(quoted(each)).alias(each[2:]) for each in _dimensions(partials_)),
        *(_last(each).alias(each.name) for each in schema.metrics),
    )


def totals(schema: DataSchema) -> list[Column]:
    """Return what each metric of partials comes to over all of them; of a sketch, its estimate."""
    return [_estimate(each, _again(each)) for each in schema.metrics]


def quoted(name: str) -> str:
    """Return a column's name as Spark reads it, whatever letters it has."""
    return f"`{name.replace('`', '``')}`"


def _dimensions(frame: DataFrame) -> list[str]:
    return [each for each in frame.columns if each.startswith("d:")]


def _first(metric: Metric) -> Column:
    """Return the aggregate of rows."""
    if metric.type == "count":
        return f.count(f.lit(1))
    value = f.col(quoted(f"m:{metric.name}"))
    if metric.type in _SKETCHES:
        return _sketch(metric)(value)
    if metric.type.endswith(("First", "Last")):
        at = f.col(quoted(f"t:{metric.name}")) if metric.time_column else f.col("micros")
        # Of equal times the least or the greatest value counts, so that replicas agree.
        placed = f.when(
            value.isNotNull() & at.isNotNull(), f.struct(at.alias("t"), value.alias("v"))
        )
        return _extreme(metric)(placed)
    if metric.type.endswith("Sum"):
        return _sum(metric, value)
    return _extreme(metric)(value)


def _again(metric: Metric) -> Column:
    """Return the aggregate of aggregates."""
    value = f.col(quoted(f"m:{metric.name}"))
    if metric.type == "count":
        return f.sum(value)
    if metric.type in _HLL:
        return f.hll_union_agg(value, f.lit(True))
    if metric.type == _THETA:
        return _theta("theta_union_agg", metric)(value)
    if metric.type == _QUANTILES:
        return _quantiles("kll_merge_agg_double", metric)(value)
    return _sum(metric, value) if metric.type.endswith("Sum") else _extreme(metric)(value)


def _estimate(metric: Metric, sketch: Column) -> Column:
    if metric.type in _HLL:
        return f.hll_sketch_estimate(sketch)
    if metric.type == _THETA:
        return f.theta_sketch_estimate(sketch)
    if metric.type == _QUANTILES:
        return f.kll_sketch_get_n_double(sketch)
    return sketch


def _last(metric: Metric) -> Column:
    """Return the value that a dataset holds."""
    value = f.col(quoted(f"m:{metric.name}"))
    if metric.type.endswith(("First", "Last")):
        return value["v"]
    return value.cast("float") if metric.type == "floatSum" else value


def _sum(metric: Metric, value: Column) -> Column:
    # A sum that no long holds is missing; an error would stop the stream for ever.
    return f.try_sum(value) if input_type(metric) == "bigint" else f.sum(value.cast("double"))


def _extreme(metric: Metric) -> Callable[[Column], Column]:
    return next(how for ending, how in _EXTREMES.items() if metric.type.endswith(ending))


def _sketch(metric: Metric) -> Callable[[Column], Column]:
    if metric.type == _THETA:
        return _theta("theta_sketch_agg", metric)
    if metric.type == _QUANTILES:
        return _quantiles("kll_sketch_agg_double", metric)
    return partial(f.hll_sketch_agg, lgConfigK=metric.size)


def _theta(name: str, metric: Metric) -> Callable[[Column], Column]:
    # Spark takes the logarithm of the number of entries.
    return partial(_later(name, metric), lgNomEntries=(metric.size or 1).bit_length() - 1)


def _quantiles(name: str, metric: Metric) -> Callable[[Column], Column]:
    return partial(_later(name, metric), k=metric.size)


def _later(name: str, metric: Metric) -> Callable[..., Column]:
    function: Callable[..., Column] | None = getattr(f, name, None)
    if function is None:
        raise InvalidSpecError(
            (f"metricsSpec: {metric.type} {metric.name!r} needs Spark 4.1 or later",)
        )
    return function
