"""Checks the figures of a day against each other and the raw file, then writes `results.json`.

The tasks before it count what they read and what they wrote; here the counts must fit together, so
that a file cut short, doubled or left over from another run ends the process with a message that
names all that is wrong. `results.json` exists only while the checks hold. It never opens Parquet:
plain Python is enough, and an independent reader of the raw file is part of the check.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def main() -> None:
    params = json.loads(Path(os.environ["ORCAFLOW_PARAMS"]).read_text(encoding="utf-8"))
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")
    results = folder / "results.json"
    try:
        figures = Figures(folder / "figures")
        mistakes = list(figures.mistakes(day))
    except MissingFiguresError as missing:
        mistakes = [str(missing)]
    if mistakes:
        results.unlink(missing_ok=True)
        listed = "".join(f"\n  - {mistake}" for mistake in mistakes)
        sys.exit(f"the quality checks of {day} failed:{listed}")

    unfinished = results.with_name(f".results.json.{os.getpid()}")
    unfinished.write_text(json.dumps(figures.results(day), indent=2) + "\n", encoding="utf-8")
    unfinished.replace(results)
    print(f"all quality checks of {day} passed; the results are in {results}")


class MissingFiguresError(Exception):
    """A task before this one has not left what the checks need; nothing can be checked."""


class Figures:
    """What the tasks of a day have counted, as the Spark tasks wrote it: rows of JSON lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.land = self._counts("land")
        self.flights = self._counts("clean_flights")
        self.weather = self._counts("clean_weather")
        self.join = self._counts("join")
        self.carriers = self._rows("by_carrier")
        self.hours = self._rows("by_hour")
        self.routes = self._rows("worst_routes")

    def mistakes(self, day: date) -> Iterator[str]:
        """One sentence for each check that does not hold."""
        flights, weather, joined = self.flights, self.weather, self.join
        raw = flights_in_raw_file(Path(self.land["raw_flights"]), day)
        lost = flights["landed"] - sum(
            flights[verdict] for verdict in ("malformed", "duplicate", "cancelled", "diverted")
        )
        lost_weather = weather["landed"] - sum(
            weather[verdict] for verdict in ("malformed", "implausible", "duplicate")
        )
        with_weather = joined["with_weather"]
        equal = [
            ("flights landed", self.land["flights"], "in the raw file", raw),
            ("flights read for cleaning", flights["landed"], "landed", self.land["flights"]),
            ("flights cleaned", flights["cleaned"], "landed and not rejected", lost),
            ("weather rows read for cleaning", weather["landed"], "landed", self.land["weather"]),
            ("weather rows cleaned", weather["cleaned"], "landed and not rejected", lost_weather),
            ("flights joined", joined["flights"], "cleaned", flights["cleaned"]),
        ]
        for table, rows in (("by carrier", self.carriers), ("by hour", self.hours)):
            equal.append((f"flights {table}", total(rows, "flights"), "joined", joined["flights"]))
        for column in ("late", "departure_minutes", "arrival_minutes"):
            name = column.replace("_", " ")
            one, other = total(self.carriers, column), total(self.hours, column)
            equal.append((f"{name} by carrier in all", one, f"{name} by hour in all", other))
        for what, count, of, wanted in equal:
            if count != wanted:
                yield f"{what}: {count}, but {of}: {wanted}"

        if not joined["flights"]:
            yield "no flight is left to be reported"
        spoilt = flights["malformed"] + flights["duplicate"]
        if spoilt * 100 > flights["landed"]:
            yield f"{spoilt} of {flights['landed']} landed flights are malformed or duplicates"
        if weather["cleaned"] and with_weather * 2 < joined["flights"]:
            yield f"only {with_weather} of {joined['flights']} joined flights found their weather"
        named = [(f"carrier {row['carrier']}", row) for row in self.carriers]
        named += [(f"hour {row['hour']}", row) for row in self.hours]
        named += [(f"route {row['origin']} to {row['dest']}", row) for row in self.routes]
        for name, row in named:
            if not 0 <= row["late"] <= row["flights"]:
                yield f"{name}: {row['late']} late flights of {row['flights']}"
            if not -120 <= row["arrival_minutes"] / row["flights"] <= 24 * 60:
                yield f"{name}: a mean arrival delay of {mean(row, 'arrival_minutes')} minutes"

    def results(self, day: date) -> Row:
        """The figures of the day as README.md defines them."""
        flights, weather = self.flights, self.weather
        whole = {
            column: total(self.carriers, column)
            for column in ("flights", "late", "departure_minutes", "arrival_minutes")
        }
        return {
            "day": day.isoformat(),
            "landed": {"flights": self.land["flights"], "weather": self.land["weather"]},
            "rejected": {
                "flights": pick(flights, "malformed", "duplicate", "cancelled", "diverted"),
                "weather": pick(weather, "malformed", "implausible", "duplicate"),
            },
            "cleaned": {"flights": flights["cleaned"], "weather": weather["cleaned"]},
            "joined": pick(self.join, "flights", "with_weather", "with_plane", "with_destination"),
            "whole_day": pick(whole, "flights", "late") | delays(whole),
            "carriers": [
                pick(row, "carrier", "airline", "flights", "late", "known_seats") | delays(row)
                for row in sorted(self.carriers, key=lambda row: str(row["carrier"]))
            ],
            "hours": [
                pick(row, "hour", "flights", "late", "in_rain")
                | delays(row)
                | {"mean_wind_mph": mean(row, "wind_hundredths_mph", "with_wind", unit=100)}
                for row in sorted(self.hours, key=lambda row: int(row["hour"]))
            ],
            "worst_routes": [
                pick(row, "origin", "dest", "destination", "flights", "late")
                | {"mean_arrival_delay": mean(row, "arrival_minutes")}
                for row in self.routes
            ],
        }

    def _counts(self, task: str) -> Row:
        rows = self._rows(task)
        if len(rows) != 1:
            raise MissingFiguresError(f"the task {task} has left {len(rows)} rows of counts, not 1")
        return rows[0]

    def _rows(self, task: str) -> list[Row]:
        written = self._folder / task
        if not (written / "_SUCCESS").exists():  # Spark writes it last.
            raise MissingFiguresError(f"the task {task} has left no finished figures in {written}")
        parts = sorted(written.glob("part-*.json"))
        lines = [line for part in parts for line in part.read_text("utf-8").splitlines()]
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError as broken:
            raise MissingFiguresError(
                f"the figures of the task {task} in {written} cannot be read: {broken}"
            ) from broken


def flights_in_raw_file(path: Path, day: date) -> int:
    if not path.is_file():
        raise MissingFiguresError(f"the raw file {path}, from which the day was landed, is gone")
    start = f"{day.year},{day.month},{day.day},".encode()
    with path.open("rb") as lines:
        return sum(line.startswith(start) for line in lines)


def total(rows: list[Row], column: str) -> int:
    return sum(int(row[column]) for row in rows)


def pick(row: Row, *columns: str) -> Row:
    return {column: row[column] for column in columns}


def delays(row: Row) -> Row:
    """The sums, which may be added up over days, and their means, which may not."""
    return pick(row, "departure_minutes", "arrival_minutes") | {
        "mean_departure_delay": mean(row, "departure_minutes"),
        "mean_arrival_delay": mean(row, "arrival_minutes"),
    }


def mean(row: Row, column: str, count: str = "flights", *, unit: int = 1) -> float | None:
    """The sum by the count, to two places, half away from zero; None when nothing was counted."""
    if not row[count]:
        return None
    quotient = Decimal(row[column]) / (Decimal(row[count]) * unit)
    # Adding 0 turns a negative zero, which two places can leave behind, into a plain one.
    return float(quotient.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)) + 0.0


if __name__ == "__main__":
    main()
