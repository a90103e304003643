"""Prints rows as a table or as JSON, and text that steers no terminal.

Adds the word *row*: a mapping of field names, which are the documented names of the JSON. With
`-o json` standard output holds one JSON document and nothing else; text for people goes to standard
error. Times are shown in the zone of the cluster, which a table names in the heading of its first
column of times, and states by name; on a terminal its lines fit (`orcaflow.cli.fitting`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated

import typer

from operations.texts import duration

Row = Mapping[str, object]


class Format(StrEnum):
    """The forms in which rows are printed."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("-o", "--output", help="How to print: for people, or as JSON.")
]

_SGR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
# Not printable for Python, and yet a part of writing: joiners of scripts and emoji, wide blanks.
_HARMLESS = frozenset("\u200c\u200d\u00a0\u3000\t")


def escaped(text: str, *, keep: str = "") -> str:
    """The text with every sign that could steer a terminal, or reverse it, made visible.

    `keep` names control characters that are meant, a line feed for one.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in _HARMLESS or character in keep
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def escaped_log(text: str) -> str:
    """A piece of a log, whose colours are kept; they end with each line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("".join(_escaped_but_colours(line)) for line in lines)


def _escaped_but_colours(line: str) -> Iterable[str]:
    end = 0
    for colour in _SGR.finditer(line):
        yield escaped(line[end : colour.start()])
        yield colour.group()
        end = colour.end()
    yield escaped(line[end:])
    if end:
        yield "\x1b[0m"


def say(text: str) -> None:
    """Print a message for people, which is no part of the result, on standard error."""
    sys.stderr.write(escaped(text, keep="\n") + "\n")


def write(text: str) -> None:
    """Put a line of the result on standard output, as it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_rows(
    rows: Sequence[Row],
    *,
    form: Format,
    columns: Sequence[str],
    zone: tzinfo | None = None,
    none: str = "nothing",
) -> None:
    """All fields of each row as JSON, or these columns as a table; `none` is said of no rows."""
    if form is Format.JSON:
        print_json(list(rows))
    elif rows:
        write_table(rows, columns, zone=zone)
    else:
        say(none)


def print_json(document: object) -> None:
    """One document, ASCII only, so that no name in it can steer a terminal."""
    write(json.dumps(document, ensure_ascii=True, indent=2, default=_json))


def print_fields(row: Row, *, zone: tzinfo | None = None) -> None:
    """One row for people: a line for each field that has a value."""
    width = max((len(name) for name in row), default=0)
    for name, value in row.items():
        if value is not None and value != "":
            write(f"{name:<{width}}  {moment(value, zone)}")


def write_table(rows: Sequence[Row], columns: Sequence[str], *, zone: tzinfo | None = None) -> None:
    """Print a table that fits the terminal; a pipe gets everything."""
    write(table(rows, columns, zone=zone, width=terminal_width()))


def terminal_width() -> int | None:
    """The signs of a line of the terminal; None for a pipe or a file.

    `COLUMNS` says nothing about those: libraries export it to all programs that they start.
    """
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def table(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    zone: tzinfo | None = None,
    width: int | None = None,
) -> str:
    """Aligned columns under their names, in lines of this width; without one nothing is cut off."""
    heads = [column.upper().replace("_", " ") for column in columns]
    lines = [[shown(row.get(column), zone) for column in columns] for row in rows]
    cells = [_with_zone(heads, rows, columns, zone), *lines]
    if width is not None:
        return _fitted(columns, cells, [heads, *lines], width)
    widths = [max(len(line[index]) for line in cells) for index in range(len(cells[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{wide}}" for cell, wide in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _with_zone(
    heads: Sequence[str], rows: Sequence[Row], columns: Sequence[str], zone: tzinfo | None
) -> list[str]:
    """Return the headings; the first column of times names their zone."""
    for place, column in enumerate(columns):
        moments = [value for row in rows if isinstance(value := row.get(column), datetime)]
        if moments:
            return [
                *heads[:place],
                f"{heads[place]} ({zone_name(moments[0], zone)})",
                *heads[place + 1 :],
            ]
    return list(heads)


def _fitted(
    columns: Sequence[str], cells: list[list[str]], without_zone: list[list[str]], width: int
) -> str:
    """Return lines of this width; the zone in the headings is the first to go."""
    from orcaflow.cli.fitting import cell_width, fit, padded

    whole = sum(max(map(cell_width, column)) for column in zip(*cells, strict=True))
    fits = whole + 2 * (len(columns) - 1) <= width
    lines = fit(columns, cells if fits else without_zone, width).cells
    widths = [max(map(cell_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(padded, line, widths)).rstrip() for line in lines)


def shown(value: object, zone: tzinfo | None = None) -> str:
    """A value as a person reads it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(zone):%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return duration(value)
        case list() | tuple():
            return ", ".join(shown(item, zone) for item in value)
        case _:
            return escaped(str(value))


def moment(value: object, zone: tzinfo | None = None) -> str:
    """A value as a person reads it outside of a table; a time names its zone."""
    text = shown(value, zone)
    return f"{text} {zone_name(value, zone)}" if isinstance(value, datetime) else text


def zone_name(at: datetime, zone: tzinfo | None) -> str:
    """The name of a zone in the tz database; else the one that this time has in it."""
    key: str | None = getattr(zone, "key", None)
    return key or at.astimezone(zone).tzname() or "UTC"


def _json(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case _:
            return str(value)
