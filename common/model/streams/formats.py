"""Reads input formats and formats of timestamps.

Pure. A format is `json`, `csv`, `tsv`, `regex`, or `kafka` around one of them. Paths into JSON are
read by `paths`, expressions by `regexes`, and patterns of timestamps, which are Joda's, by `joda`.
Used by `schema` and `reading`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from common.model.streams.fields import Fields, shown
from common.model.streams.joda import PatternError, TimeReader, reader_of
from common.model.streams.paths import Path, PathError, read_jq, read_json_path, read_tree
from common.model.streams.regexes import RegexError, read_regex
from common.model.streams.spec import (
    InputFormat,
    KafkaFormat,
    NestedField,
    TextFormat,
    TimestampSpec,
)

TEXT_FORMATS: Final = ("json", "csv", "tsv", "regex")
FIELD_TYPES: Final = ("root", "path", "jq", "tree")
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
    return TimestampSpec(column=column, format=format_, pattern=reader, missing_value=missing)


def _text(fields: Fields, type_: str) -> TextFormat:
    match type_:
        case "regex":
            read = _regex(fields)
        case "csv" | "tsv":
            read = _separated(fields, type_)
        case _:
            read = _json(fields)
            fields.ignore("featureSpec", "keepNullColumns", "assumeNewlineDelimited")
            fields.ignore("useJsonNodeReader", "keepNullValues")
    # There are no multi-value dimensions: a list stays one text.
    fields.ignore("listDelimiter")
    fields.close()
    return read


def _separated(fields: Fields, type_: str) -> TextFormat:
    columns = _columns(fields)
    if not columns:
        fields.wrong("columns", "are needed: records of a stream have no header line")
    delimiter = ","
    if type_ == "tsv":
        delimiter = fields.text("delimiter", default="\t") or "\t"
    for key in ("findColumnsFromHeader", "hasHeaderRow"):
        if fields.flag(key, default=False):
            fields.wrong(key, "records of a stream have no header line; name the columns")
    fields.whole("skipHeaderRows", default=0, most=0)
    fields.ignore("tryParseNumbers")
    return TextFormat(
        type=type_,
        columns=columns,
        delimiter=delimiter,
        list_delimiter=fields.text("listDelimiter") or None,
    )


def _columns(fields: Fields) -> tuple[str, ...]:
    columns = fields.texts("columns")
    if len(set(columns)) < len(columns):
        fields.wrong("columns", "name a column twice")
    return columns


def _regex(fields: Fields) -> TextFormat:
    """Read an expression. Its groups are the columns; without names they are counted from 1."""
    columns, pattern = _columns(fields), fields.name("pattern")
    groups = len(columns)
    if pattern:
        try:
            groups = read_regex(pattern)
        except RegexError as error:
            fields.wrong("pattern", f"{shown(pattern)} can't be used: {error}")
        if not groups:
            fields.wrong("pattern", "has no groups; each column is a group in parentheses")
        elif len(columns) > groups:
            fields.wrong("columns", f"are {len(columns)}, and the pattern has {groups} groups")
    return TextFormat(
        type="regex",
        columns=columns or tuple(f"column_{number + 1}" for number in range(groups)),
        pattern=pattern,
    )


def _json(fields: Fields) -> TextFormat:
    spec = fields.child("flattenSpec")
    if spec is None:
        return TextFormat(type="json")
    takes_roots = spec.flag("useFieldDiscovery", default=True)
    nested = []
    for index, each in enumerate(spec.list("fields")):
        if isinstance(each, str) and each:
            nested.append(NestedField(name=each, path=(each,)))
            continue
        found = _nested(Fields(each, f"{spec.at('fields')}[{index}]", spec.findings))
        if found is not None:
            nested.append(found)
    counts = Counter(each.name for each in nested)
    for name in sorted(each for each, count in counts.items() if count > 1):
        spec.wrong("fields", f"name {shown(name)} twice")
    spec.close()
    return TextFormat(type="json", nested=tuple(nested), takes_roots=takes_roots)


def _nested(fields: Fields) -> NestedField | None:
    type_ = fields.one_of("type", FIELD_TYPES, default="root")
    name = fields.name("name")
    key = "nodes" if type_ == "tree" else "expr"
    path: Path = ()
    try:
        match type_:
            case "path":
                path = read_json_path(fields.name(key)) if key in fields else ()
            case "jq":
                path = read_jq(fields.name(key)) if key in fields else ()
            case "tree":
                path = read_tree(fields.texts(key)) if key in fields else ()
            case _:
                path = (fields.text(key) or name,)
    except PathError as error:
        fields.wrong(key, f"can't be used: {error}")
        return None
    if not path:
        fields.wrong(key, "is missing")
    fields.close()
    return NestedField(name=name, path=path) if name and path else None


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
    read_key = None if key is None else _inner(key)
    if key is not None and read_key is not None and _flattens(read_key):
        key.wrong("flattenSpec", "is not read in keys; the first field of a key is its column")
    read = KafkaFormat(
        value=_inner(value),
        key=read_key,
        header_encoding=encoding,
        header_prefix=fields.text("headerColumnPrefix", default="kafka.header."),
        key_column=fields.text("keyColumnName", default="kafka.key"),
        timestamp_column=fields.text("timestampColumnName", default="kafka.timestamp"),
        topic_column=fields.text("topicColumnName", default="kafka.topic"),
    )
    fields.ignore("partitionColumnName", "offsetColumnName", "headerLabelPrefix")
    fields.close()
    return read


def _flattens(format_: TextFormat) -> bool:
    """Return True if a record has other fields by this format than without its `flattenSpec`."""
    moved = any(each.path != (each.name,) for each in format_.nested)
    return moved or not format_.takes_roots


def _inner(fields: Fields) -> TextFormat:
    if fields.raw("type") == "kafka":
        fields.wrong("type", "can't be kafka again")
        return _NOTHING
    read = read_format(fields)
    return read if isinstance(read, TextFormat) else _NOTHING
