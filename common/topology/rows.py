"""Tables of Arrow as the rows of a stream, whose columns are its fields. Pure; needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from common.topology.components import EmitError, Stream
from common.topology.types import TYPES

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_type(type_name: str) -> pa.DataType:
    """Return the type of Arrow that a field of this type has."""
    import pyarrow as pa

    return {
        "string": pa.string(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
    }[TYPES[type_name].spark]


def checked_rows(
    rows: Any, component: str, name: str, streams: Mapping[str, Stream]
) -> pa.RecordBatch | pa.Table:
    """Return the columns of a stream, in order and of its types; `EmitError` if they are not."""
    import pyarrow as pa

    stream = streams.get(name)
    if stream is None:
        known = ", ".join(streams) or "none"
        raise EmitError(f"{component}: it declares no stream {name!r:.120}; it declares {known}")
    if stream.direct:
        raise EmitError(f"{component}: the stream {name!r} is direct; whole tables name no task")
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        raise EmitError(f"{component}: an Arrow bolt emits tables of Arrow, not {rows!r:.80}")
    if list(rows.schema.names) != list(stream.fields):
        raise EmitError(
            f"{component}: columns {', '.join(rows.schema.names)} emitted on {name!r}, which has"
            f" {', '.join(stream.fields)}"
        )
    wanted = pa.schema(
        [(field, arrow_type(each)) for field, each in zip(stream.fields, stream.types, strict=True)]
    )
    try:
        return rows if rows.schema.equals(wanted) else rows.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EmitError(f"{component}: rows emitted on {name!r}: {error!s:.300}") from error
