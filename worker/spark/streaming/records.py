"""Opens records of a topic: values, keys and headers become fields by name, all of them texts.

A record is one object of JSON, or one line of `csv`, `tsv` or `regex`; anything else is unreadable,
and so are text that is no UTF-8 and a second object or line behind the first. Numbers and nested
parts of JSON are the text that Spark writes of them: 1.5 for 1.50. In lines an empty text is a
missing one. Of short objects the source may have read the fields already (`json_fields`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from common.model.streams.spec import InputFormat, KafkaFormat, TextFormat
from worker.spark.streaming.json_fields import is_readable
from worker.spark.streaming.nested import value_at

Columns: TypeAlias = dict[str, Column]

RECORD: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)
"""The columns of records; `timestamp` is in milliseconds since 1970."""
FIELDS: Final = "fields"
"""One more column, if there are `source_fields`: their texts, null if the value is to be parsed."""

_ANY_FIELDS: Final = MapType(StringType(), StringType())
_ANY_VALUES: Final = "map<string,variant>"
_ABSENT: Final = "__absent"
_CSV: Final = {"quote": '"', "escape": '"', "mode": "PERMISSIVE", "maxColumns": "20000"}
_MOST_FIELDS: Final = 10_000
"""The most fields of a line; Spark would end the query at a line with more than its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsing:
    """Columns that parse records; the same ones do for every batch, since they know no frame.

    `steps` are added to those of `RECORD`, each step to the ones before it. `readable` is false for
    what can't be parsed, `absent` true for a record without a value that stands for no row.
    `discovered` returns the text of a field as a dimension that is discovered, null in records in
    which Druid does not discover the field. `all_fields` is a map of such fields, None if only some
    fields are read.
    """

    steps: tuple[Columns, ...]
    readable: Column
    absent: Column
    field: Callable[[str], Column]
    discovered: Callable[[str], Column]
    all_fields: Column | None


def parsing(format_: InputFormat, names: Sequence[str] | None) -> Parsing:
    """Return what parses records; `names` are the fields that are needed, None for all."""
    if isinstance(format_, TextFormat):
        value = _Text(format_, names, "__value", read=bool(source_fields(format_, names)))
        first, *others = value.steps(f.col("value"))
        return Parsing(
            # Noted beside it, so that no plan carries the value any further for that.
            steps=({**first, _ABSENT: f.col("value").isNull()}, *others),
            readable=value.readable,
            absent=f.col(_ABSENT),
            field=value.field,
            discovered=value.discovered,
            all_fields=value.all_fields,
        )
    return _with_kafka(format_, names)


def source_fields(format_: InputFormat, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the fields that the source may read of values by itself; none if it is to read none.

    `names` are those that are needed, None for all.
    """
    of_value = format_.value if isinstance(format_, KafkaFormat) else format_
    if of_value.type != "json" or names is None:
        return ()
    roots = _roots(of_value, names)
    return roots if all(map(is_readable, roots)) else ()


def texts_type(names: Iterable[str]) -> StructType:
    """Return the type of a struct with a text for each of these fields."""
    return StructType([StructField(name, StringType()) for name in names])


def with_steps(frame: DataFrame, steps: Iterable[Columns]) -> DataFrame:
    """Return the frame with the columns of each step, which see those of the steps before it."""
    for columns in steps:
        frame = frame.withColumns(columns)
    return frame


def _with_kafka(format_: KafkaFormat, names: Sequence[str] | None) -> Parsing:
    value = _Text(format_.value, names, "__value", read=bool(source_fields(format_, names)))
    steps = value.steps(f.col("value"))
    readable = f.col("value").isNull() | value.readable
    beside = {
        format_.timestamp_column: f.col("timestamp").cast("string"),
        format_.topic_column: f.col("topic"),
    }
    if format_.key is not None:
        key = _Text(format_.key, None, "__key")
        steps += key.steps(f.col("key"))
        readable &= f.col("key").isNull() | key.readable
        beside[format_.key_column] = key.first
    prefix = format_.header_prefix if format_.header_encoding else None

    def decoded(header: Column) -> Column:
        if format_.header_encoding == "ISO-8859-1":
            return f.decode(header, "ISO-8859-1")
        return f.try_validate_utf8(header.cast("string"))

    def with_others(of_value: Column, name: str) -> Column:
        found = [of_value]
        if name in beside:
            found.append(beside[name])
        elif prefix is not None and name.startswith(prefix):
            wanted = name.removeprefix(prefix)
            first = f.get(f.filter("headers", lambda each: each["key"] == wanted), f.lit(0))
            found.append(decoded(first["value"]))
        return f.coalesce(*found)

    fields = value.all_fields
    if fields is not None:
        own = f.create_map(*(part for name in beside for part in (f.lit(name), beside[name])))
        maps = [own]
        if prefix is not None:
            # Of headers with one name the first counts, and the last of a map wins.
            entries = f.transform(
                f.reverse("headers"),
                lambda each: f.struct(f.concat(f.lit(prefix), each["key"]), decoded(each["value"])),
            )
            maps.append(f.coalesce(f.map_from_entries(entries), _no_fields()))
        fields = f.map_concat(*maps, f.coalesce(fields, _no_fields()))
    return Parsing(
        steps=tuple(steps),
        readable=readable,
        absent=f.lit(False),
        field=lambda name: with_others(value.field(name), name),
        discovered=lambda name: with_others(value.discovered(name), name),
        all_fields=fields,
    )


def _roots(format_: TextFormat, names: Sequence[str]) -> tuple[str, ...]:
    """Return the fields at the root of JSON that these fields are read of."""
    paths = {each.name: each.path for each in format_.nested}
    found = {
        str(paths[name][0]) if name in paths else name
        for name in names
        if name in paths or format_.takes_roots
    }
    return tuple(sorted(found))


class _Text:
    """One text format at work, in a column that nothing else uses."""

    def __init__(
        self,
        format_: TextFormat,
        names: Sequence[str] | None,
        column: str,
        *,
        read: bool = False,
    ) -> None:
        """`read`: the source has read the fields of some records already."""
        self._format = format_
        self._names = names
        if names is not None and format_.type == "json":
            self._names = _roots(format_, names)
        self._paths = {each.name: each.path for each in format_.nested}
        self._expression = rf"\A(?:{format_.pattern})\z"
        self._column = column
        self._nested = f"{column}_nested"
        self._read = read

    def steps(self, source: Column) -> list[Columns]:
        """Return the steps to the parsed column, which is null where it is unreadable."""
        written = f.try_validate_utf8(source.cast("string"))
        if self._format.type == "json":
            return self._json(written)
        # One line break may end the line; another one within would begin a second line.
        line = f.regexp_replace(written, r"\r?\n$", "")
        if self._format.type == "regex":
            is_record = f.regexp_like(line, f.lit(self._expression))
            return [{self._column: f.when(~f.contains(line, f.lit("\n")) & is_record, line)}]
        if self._format.type == "tsv":
            split = f.split(line, rf"\Q{self._format.delimiter}\E", -1)
            is_one_line = ~f.contains(line, f.lit("\n"))
            return [{self._column: f.when(is_one_line, split)}]
        schema = StructType([StructField(f"c{n}", StringType()) for n in range(self._width)])
        options = {**_CSV, "sep": self._format.delimiter}
        is_one_line = ~f.contains(line, f.lit("\n")) | f.contains(line, f.lit('"'))
        delimiters = f.length(line) - f.length(f.replace(line, f.lit(self._format.delimiter)))
        is_short = (f.length(line) < _MOST_FIELDS) | (delimiters < _MOST_FIELDS)
        parsed = f.from_csv(line, schema.simpleString(), options)
        return [{self._column: f.when((line != "") & is_one_line & is_short, parsed)}]

    def _json(self, written: Column) -> list[Columns]:
        fields: DataType = _ANY_FIELDS
        if self._names is not None:
            # A struct needs a field, and a record of which none is needed is a row all the same.
            fields = texts_type(self._names or ("__time",))
        # In brackets, since Spark reads the first value of a text and ignores what comes behind it.
        wrapped = f.concat(f.lit("["), written, f.lit("]"))
        parsed = f.from_json(wrapped, ArrayType(fields), {"mode": "PERMISSIVE"})
        is_one = f.size(self._column) == 1
        only = f.get(f.col(self._column), f.lit(0))
        if self._names is None:
            nested = _nested_names(f.col(self._column), written)
            return [
                {self._column: parsed},
                {self._column: f.when(is_one, only)},
                {self._nested: nested},
            ]
        if not self._read:
            return [{self._column: parsed}, {self._column: f.when(is_one, only)}]
        is_read = f.col(FIELDS).isNotNull()
        return [
            {self._column: f.when(~is_read, parsed)},
            {self._column: f.when(is_read, f.col(FIELDS)).when(is_one, only)},
        ]

    @property
    def _width(self) -> int:
        return len(self._format.columns)

    @property
    def readable(self) -> Column:
        return f.col(self._column).isNotNull()

    def field(self, name: str) -> Column:
        """Return a field's text, null if there is none."""
        if self._format.type == "json":
            return self._json_field(name)
        if name not in self._format.columns:
            return _no_text()
        return self._at(self._format.columns.index(name))

    def _json_field(self, name: str) -> Column:
        path = self._paths.get(name)
        if path is not None:
            return value_at(f.col(self._column)[path[0]], path[1:])
        return f.col(self._column)[name] if self._format.takes_roots else _no_text()

    def discovered(self, name: str) -> Column:
        """Return a field's text, null where Druid does not make a dimension of its value."""
        found = self.field(name)
        if self._format.type != "json" or name in self._paths:
            return found
        return f.when(~self._is_nested(f.lit(name)), found)

    def _is_nested(self, name: Column) -> Column:
        return f.coalesce(f.array_contains(f.col(self._nested), name), f.lit(False))

    @property
    def first(self) -> Column:
        """The first field, whatever its name."""
        if self._format.type == "json":
            return f.get(f.map_values(self._column), f.lit(0))
        return self._at(0)

    @property
    def all_fields(self) -> Column | None:
        if self._names is not None:
            return None
        if self._format.type == "json":
            return self._all_of_json()
        names = [f.lit(name) for name in self._format.columns]
        return f.map_from_arrays(f.array(*names), f.array(*map(self._at, range(self._width))))

    def _all_of_json(self) -> Column:
        roots = _no_fields()
        if self._format.takes_roots:
            roots = f.map_filter(
                self._column, lambda name, text: text.isNotNull() & ~self._is_nested(name)
            )
        if not self._paths:
            return roots
        pairs = (part for name in self._paths for part in (f.lit(name), self._json_field(name)))
        nested = f.map_filter(f.create_map(*pairs), lambda _, value: value.isNotNull())
        hidden = f.map_filter(roots, lambda name, _: ~name.isin(*self._paths))
        return f.map_concat(hidden, nested)

    def _at(self, index: int) -> Column:
        column = f.col(self._column)
        if self._format.type == "regex":
            group = f.regexp_extract(column, self._expression, index + 1)
            return f.nullif(group, f.lit(""))
        if self._format.type == "tsv":
            return f.nullif(f.get(column, f.lit(index)), f.lit(""))
        return column[f"c{index}"]


def _nested_names(fields: Column, written: Column) -> Column:
    """Return the fields with an object, or with a list that has an object or a list in it.

    The texts of such values look the same as a text with JSON in it. So the record is parsed again,
    with types, if any of its texts starts with a bracket. Otherwise the column is null.
    """
    typed = f.from_json(written, _ANY_VALUES)
    # Types can't be read if an object within the record has a key twice. Then the texts decide.
    by_texts = f.map_keys(f.map_filter(fields, lambda _, text: _looks_nested(text)))
    by_types = f.map_keys(f.map_filter(typed, lambda _, value: _is_nested(value)))
    return f.when(f.exists(f.map_values(fields), _looks_nested), f.coalesce(by_types, by_texts))


def _looks_nested(text: Column) -> Column:
    return f.startswith(text, f.lit("{")) | f.startswith(text, f.lit("["))


def _is_nested(value: Column) -> Column:
    items = f.try_variant_get(value, "$", "array<variant>")
    holds_parts = f.exists(items, lambda item: _is_kind(item, "OBJECT") | _is_kind(item, "ARRAY"))
    return f.coalesce(_is_kind(value, "OBJECT") | holds_parts, f.lit(False))


def _is_kind(value: Column, kind: str) -> Column:
    return f.coalesce(f.startswith(f.schema_of_variant(value), f.lit(kind)), f.lit(False))


def _no_text() -> Column:
    return f.lit(None).cast("string")


def _no_fields() -> Column:
    return f.create_map().cast(_ANY_FIELDS)
