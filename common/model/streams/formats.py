"""Reads input formats and formats of timestamps.

Pure. A format is `json`, `csv`, `tsv`, or `kafka` around one of them. Patterns of timestamps are
Joda's (`joda`). Used by `schema` and `reading`.
"""

from __future__ import annotations

from typing import Final

from common.model.streams.fields import Fields, shown
from common.model.streams.joda import PatternError, TimeReader, reader_of
from common.model.streams.spec import InputFormat, KafkaFormat, TextFormat, TimestampSpec

TEXT_FORMATS: Final = ("json", "csv", "tsv")
_NAMED_TIMES: Final = frozenset({"iso", "posix", "millis", "micro", "nano", "ruby", "auto"})
_NOTHING: Final = TextFormat(type="json")


def read_format(fields: Fields) -> InputFormat:
    """Read an `inputFormat`."""
    type_ = fields.name("type")
    if type_ == "kafka":
        return _kafka(fields)
    if not type_:
        return _NOTHING
    if type_ and type_ not in TEXT_FORMATS:
        known = ", ".join((*TEXT_FORMATS, "kafka"))
        fields.wrong("type", f"{shown(type_)} is unknown; known are {known}")
        return _NOTHING
    return _text(fields, type_)


def read_parse_spec(fields: Fields) -> TextFormat:
    """Read the format of a legacy `parseSpec`; its other parts were read with the schema."""
    type_ = fields.one_of("format", TEXT_FORMATS, default="json")
    return _text(fields, type_)


def read_timestamp(fields: Fields) -> TimestampSpec:
    """Read a `timestampSpec`."""
    column = fields.text("column", default="timestamp") or "timestamp"
    format_ = fields.text("format", default="auto")
    reader: TimeReader | None = None
    if format_.lower() in _NAMED_TIMES:
        format_ = format_.lower()
    else:
        try:
            reader = reader_of(format_)
        except PatternError as error:
            fields.wrong("format", f"{shown(format_)} can't be used: {error}")
    missing = fields.moment("missingValue")
    fields.close()
    return TimestampSpec(column=column, format=format_, reader=reader, missing_value=missing)


def _text(fields: Fields, type_: str) -> TextFormat:
    columns: tuple[str, ...] = ()
    delimiter = ""
    list_delimiter: str | None = None
    if type_ in {"csv", "tsv"}:
        columns = fields.texts("columns")
        if not columns:
            fields.wrong("columns", "are needed: records of a stream have no header line")
        if len(set(columns)) < len(columns):
            fields.wrong("columns", "name a column twice")
        delimiter = "," if type_ == "csv" else "\t"
        if type_ == "tsv":
            delimiter = fields.text("delimiter", default="\t") or "\t"
        list_delimiter = fields.text("listDelimiter") or None
        for key in ("findColumnsFromHeader", "hasHeaderRow"):
            if fields.flag(key, default=False):
                fields.wrong(key, "records of a stream have no header line; name the columns")
        fields.whole("skipHeaderRows", default=0, most=0)
        fields.ignore("tryParseNumbers")
    else:
        _flatten(fields)
        fields.ignore("featureSpec", "keepNullColumns", "assumeNewlineDelimited")
        fields.ignore("useJsonNodeReader", "keepNullValues")
    fields.close()
    return TextFormat(
        type=type_ or "json", columns=columns, delimiter=delimiter, list_delimiter=list_delimiter
    )


def _flatten(fields: Fields) -> None:
    """Accept a `flattenSpec` that only says what is so anyway: root fields are columns."""
    spec = fields.child("flattenSpec")
    if spec is None:
        return
    if not spec.flag("useFieldDiscovery", default=True):
        spec.wrong("useFieldDiscovery", "can't be switched off; declare dimensions instead")
    for index, each in enumerate(spec.list("fields")):
        if not (isinstance(each, str) or (isinstance(each, dict) and each.get("type") == "root")):
            place = f"fields[{index}]"
            spec.wrong(place, "only root fields are read; use a transform for nested ones")
    spec.close()


def _kafka(fields: Fields) -> KafkaFormat:
    value = fields.required("valueFormat")
    key = fields.child("keyFormat")
    header = fields.child("headerFormat")
    encoding: str | None = None
    if header is not None:
        header.one_of("type", ("string",), default="string")
        encoding = header.text("encoding", default="UTF-8")
        if encoding.upper() not in {"UTF-8", "US-ASCII", "ISO-8859-1"}:
            header.wrong("encoding", "must be UTF-8, US-ASCII or ISO-8859-1")
        header.close()
    read = KafkaFormat(
        value=_inner(value),
        key=None if key is None else _inner(key),
        header_encoding=encoding,
        header_prefix=fields.text("headerColumnPrefix", default="kafka.header."),
        key_column=fields.text("keyColumnName", default="kafka.key"),
        timestamp_column=fields.text("timestampColumnName", default="kafka.timestamp"),
        topic_column=fields.text("topicColumnName", default="kafka.topic"),
    )
    fields.ignore("partitionColumnName", "offsetColumnName")
    fields.close()
    return read


def _inner(fields: Fields) -> TextFormat:
    if fields.raw("type") == "kafka":
        fields.wrong("type", "can't be kafka again")
        return _NOTHING
    read = read_format(fields)
    return read if isinstance(read, TextFormat) else _NOTHING
