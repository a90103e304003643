"""Fits a table into the width of a terminal: shortens its cells and, at last, leaves columns out.

States, ids and numbers are never cut, so one long name can't push them out of sight. Steps, each
only as far as it is needed: headings and long texts are cut with an ellipsis, times lose their year
and seconds, columns are left out from the right. Knows no rows, only the text of cells.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GAP: Final = 2
_ELLIPSIS: Final = "…"
_COMFORTABLE: Final = 12
_NARROW: Final = 10
_NARROWEST_HEADING: Final = 3
_TIME: Final = re.compile(r"\d{4}-(\d\d-\d\d \d\d:\d\d):\d\d")
# Columns of words that are read as a whole, or not at all.
_WHOLE: Final = frozenset(
    {
        *("state", "status", "outcome", "release_state", "instance_state", "health", "becomes"),
        *("kind", "attempt", "version", "known_by", "clock"),
    }
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The cells that fit, headings first, and the names of the columns that were left out."""

    cells: list[list[str]]
    left_out: tuple[str, ...]


def fit(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Fitted:
    """Fit cells, the first line of which are headings, into so many signs of a terminal."""
    shown = list(range(len(names)))
    while True:
        columns = [[line[index] for line in cells] for index in shown]
        fitted = _shortened([names[index] for index in shown], columns, width)
        if fitted is not None:
            left_out = tuple(name for index, name in enumerate(names) if index not in shown)
            return Fitted([list(line) for line in zip(*fitted, strict=True)], left_out)
        if len(shown) == 1:
            only = [cut(cell, width) for cell in columns[0]]
            return Fitted([[cell] for cell in only], tuple(names[1:]))
        del shown[_least(names, shown)]


def cell_width(text: str) -> int:
    """The signs of a terminal that a text takes: two for a wide one, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in ("W", "F"))
        for each in text
    )


def padded(text: str, width: int) -> str:
    """The text with blanks behind it, up to the width."""
    return text + " " * (width - cell_width(text))


def cut(text: str, width: int) -> str:
    """The beginning of a text that fits, with an ellipsis if anything is missing."""
    if cell_width(text) <= width:
        return text
    kept = text
    while kept and cell_width(kept) > width - 1:
        kept = kept[:-1]
    return kept + _ELLIPSIS if width > 0 else ""


def _least(names: Sequence[str], shown: Sequence[int]) -> int:
    """Return the place of the column to leave out: the last one that is no state."""
    for place in range(len(shown) - 1, 0, -1):
        if names[shown[place]] not in _WHOLE:
            return place
    return len(shown) - 1


def _shortened(
    names: Sequence[str], columns: Sequence[Sequence[str]], width: int
) -> list[list[str]] | None:
    """Return the columns cut to the width, or None if they can't be."""
    room = width - GAP * (len(columns) - 1)
    is_text = [
        name not in _WHOLE
        and any(not _is_number(cell) and not _TIME.fullmatch(cell) for cell in column[1:])
        for name, column in zip(names, columns, strict=True)
    ]
    for narrowest, short_times in (
        (_COMFORTABLE, False),
        (_COMFORTABLE, True),
        (_NARROW, True),
    ):
        made = (
            [[_short_time(cell) for cell in column] for column in columns]
            if short_times
            else columns
        )
        least = [
            _least_width(column, narrowest if text else None)
            for column, text in zip(made, is_text, strict=True)
        ]
        if sum(least) <= room:
            widths = _grown(least, [max(map(cell_width, column)) for column in made], room)
            return [
                [cut(cell, wide) for cell in column]
                for column, wide in zip(made, widths, strict=True)
            ]
    return None


def _least_width(column: Sequence[str], narrowest: int | None) -> int:
    """Return the width to which a column may be cut; None cuts no more than its heading."""
    heading = min(cell_width(column[0]), _NARROWEST_HEADING)
    content = max((cell_width(cell) for cell in column[1:]), default=0)
    return max(heading, content if narrowest is None else min(content, narrowest))


def _grown(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Give the room that is left to the narrowest columns first, until it or their need ends."""
    widths = list(least)
    left = room - sum(widths)
    while left > 0:
        growing = [place for place, wide in enumerate(widths) if wide < natural[place]]
        if not growing:
            break
        smallest = min(growing, key=lambda place: widths[place])
        widths[smallest] += 1
        left -= 1
    return widths


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(".", "", 1).isdecimal()


def _short_time(cell: str) -> str:
    found = _TIME.fullmatch(cell)
    return cell if found is None else found[1]
