"""Reads and renews the golden table of Quartz lines and their fire times.

The table is `tests/golden/quartz.txt`. Its first part was computed by hand, and is never
written by a program; `python -m tests.reference.golden` renews the second by the reference.
"""

# ruff: noqa: DTZ001 - wall times are what a line means, before any zone applies.
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from tests.reference.quartz import Quartz

TABLE = Path(__file__).parents[1] / "golden" / "quartz.txt"
DERIVED = "# Derived by the reference"
_FIRES = 4
_BEGIN = datetime(2020, 1, 1)
_LONG = datetime(2100, 1, 1)
_END = datetime(9999, 12, 31, 23, 59, 59)


@dataclass(frozen=True, slots=True)
class Row:
    """The first fires of a line from a wall time on, that one included; `ends` if no more follow."""

    line: str
    since: datetime
    fires: tuple[datetime, ...]
    ends: bool
    by_hand: bool


def rows() -> list[Row]:
    found: list[Row] = []
    by_hand = True
    for text in TABLE.read_text(encoding="utf-8").splitlines():
        by_hand = by_hand and not text.startswith(DERIVED)
        if not text or text.startswith("#"):
            continue
        line, since, fires = (cell.strip() for cell in text.split("|"))
        times = [time.strip() for time in fires.split(",")]
        ends = times[-1] == "end"
        found.append(
            Row(
                line,
                datetime.fromisoformat(since),
                tuple(datetime.fromisoformat(time) for time in times if time != "end"),
                ends,
                by_hand,
            )
        )
    return found


def derived(line: str, since: datetime, *, until: datetime = _END) -> Iterator[datetime]:
    """The fires of the reference, one year at a time, so that the first ones come at once."""
    quartz = Quartz(line)
    while since <= until:
        last = datetime(since.year, 12, 31, 23, 59, 59)
        yield from quartz.walls(since, min(last, until))
        if since.year == _END.year:
            return
        since = last + timedelta(seconds=1)


_TIMES = (
    *("0 0 0", "0 0 3", "0 30 2", "15 45 23", "59 59 23", "0 0 */6", "0 */20 8-10", "*/30 0 12"),
    *("0 0 22-2", "0 5/25 9", "10,50 1 1", "0 0 9-17/4", "30 0/15 7,19", "* 59 23", "45-15/10 3 4"),
)
_DAYS = (
    *("* * ?", "? * *", "? * MON-FRI", "1 * ?", "L * ?", "LW * ?", "L-3 * ?", "15W * ?", "1W * ?"),
    *("? * 6L", "? * SUNL", "? * 2#1", "? * FRI#3", "? * 4#5", "? * L", "? * FRI-MON", "? * 7-2/2"),
    *("1,15 * ?", "28-3 * ?", "*/10 * ?", "31 * ?", "30W * ?", "L-30 * ?", "1/5 NOV-FEB ?"),
    *("10-20/3 */4 ?", "29 2 ?", "? FEB 2#5", "L 2 ?", "? JAN,JUL 1,7", "L-1W 3/3 ?", "31W * ?"),
    *("1,LW,15 * ?", "4 JUL ?", "? SEP 2#1", "25-5/4 12 ?", "? 11 5#4"),
)
_YEARS = ("", " *", " 2025", " 2024-2026", " 2024/3", " 2023,2028", " 2020-2040/4")
_SINCE = (
    "2023-02-11 00:00:00",
    "2024-02-28 23:30:15",
    "2025-12-30 12:00:00",
    "2027-06-15 05:05:05",
)


def derived_lines() -> list[tuple[str, datetime]]:
    """Each kind of time with each kind of day once, years and beginnings taking turns."""
    lines: list[tuple[str, datetime]] = []
    turn = 0
    for time in _TIMES:
        for day in _DAYS:
            turn += 1
            line = f"{time} {day}{_YEARS[turn % len(_YEARS)]}"
            # 29 February of odd years is no line: it never fires.
            if next(derived(line, _BEGIN, until=_LONG), None) is not None:
                lines.append((line, datetime.fromisoformat(_SINCE[turn // 3 % len(_SINCE)])))
    return lines


def _written(line: str, since: datetime) -> str:
    fires = list(islice(derived(line, since, until=since.replace(year=since.year + 150)), _FIRES))
    cells = [f"{fire}" for fire in fires]
    years = line.split()[6:]
    if len(fires) < _FIRES and years and not years[0].endswith(("*", "/3")):
        cells.append("end")
    return f"{line} | {since} | {', '.join(cells)}"


def renew() -> None:
    by_hand, _, _ = TABLE.read_text(encoding="utf-8").partition(DERIVED)
    kept = [
        f"{DERIVED} (`python -m tests.reference.golden` renews what follows).",
        *(_written(line, since) for line, since in derived_lines()),
    ]
    TABLE.write_text(by_hand + "\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    renew()
