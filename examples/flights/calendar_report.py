"""Puts the results of a range of days together: a table, a report and a calendar picture.

    python calendar_report.py 2013-01-01 2013-01-31 [--data DIRECTORY]

It reads the `results.json` of each day and nothing else, so it says nothing that the quality checks
of the day have not seen, and it never computes a day itself. What it writes stands in a folder
named after the range; doing it again, after some days were run again, puts the new in the place of
the old. A day that should be there and is not is named, is drawn as a gap, is in no sum, and makes
the exit code 1. The data directory is ORCAFLOW_DATA_DIR where a worker runs this as a task.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

Row = dict[str, Any]

MOST_DAYS = 366
SUMS = ("flights", "late", "departure_minutes", "arrival_minutes")
COUNTS = ("scheduled", "cancelled", "diverted", "unusable")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

INK, BLACK, MUTED, PAPER = "#22303c", "#14110f", "#ccd1d7", "#f6f7f9"
# From light to dark in one direction, so that neither colour-blindness nor grey print hides it.
COLOURS = "YlOrBr"


def main() -> int:
    first, last, data = asked()
    flights = data / "flights"
    results, missing = read(flights, first, last)
    folder = flights / f"{first}_{last}"
    if not results:
        print(f"none of the days {first} to {last} has results in {flights}", file=sys.stderr)
        print(f"  - {missing[0]}", file=sys.stderr)
        return 1
    summary = summed_up(results, missing, first, last)

    # Set before matplotlib is imported: its font cache belongs to the data, not to a home.
    os.environ.setdefault("MPLCONFIGDIR", str(flights / "matplotlib"))
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / "results.json", lambda path: write(path, json.dumps(summary, indent=2) + "\n"))
    replace(folder / "days.csv", lambda path: write(path, as_csv(summary)))
    replace(folder / "calendar.png", lambda path: draw(summary, path))
    replace(
        folder / "report.md", lambda path: write(path, "\n".join(markdown(summary, missing)) + "\n")
    )
    print(f"the report of {first} to {last} is {folder / 'report.md'}")
    print(f"its calendar is {folder / 'calendar.png'}")
    if missing:
        sys.stdout.flush()
        number = len(results) + len(missing)
        print(f"{len(missing)} of {number} days are missing in it:", file=sys.stderr)
        for sentence in missing:
            print(f"  - {sentence}", file=sys.stderr)
        dates = ",".join(summary["missing"])
        print(f"to run them: orcaflow complement flights --dates {dates} --wait", file=sys.stderr)
        return 1
    return 0


def asked() -> tuple[date, date, Path]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("first", help="the first day, as 2013-01-01")
    parser.add_argument("last", help="the last day, which belongs to the range")
    parser.add_argument("--data", type=Path, help="the data directory; else ORCAFLOW_DATA_DIR")
    options = parser.parse_args()
    first, last = (the_day(parser, text) for text in (options.first, options.last))
    if last < first:
        parser.error(f"the range ends on {last}, before it starts on {first}")
    if (last - first).days >= MOST_DAYS:
        parser.error(f"{first} to {last} are more than {MOST_DAYS} days")
    data = options.data or os.environ.get("ORCAFLOW_DATA_DIR")
    if not data:
        parser.error("name the data directory with --data, or set ORCAFLOW_DATA_DIR")
    return first, last, Path(data).resolve()


def the_day(parser: argparse.ArgumentParser, text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        parser.error(f"a day is written as 2013-01-31, not {text!r}")
    return day


def read(flights: Path, first: date, last: date) -> tuple[dict[date, Row], list[str]]:
    """The results by day, and a sentence for each day of the range that has none of use."""
    results, missing = {}, []
    for day in days_of(first, last):
        try:
            results[day] = checked(flights / f"day={day}" / "results.json", day)
        except UnusableResultsError as unusable:
            missing.append(f"{day}: {unusable}")
    return results, missing


def days_of(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=number) for number in range((last - first).days + 1))


class UnusableResultsError(Exception):
    """A day has no results that may be added to others'; says why."""


def checked(path: Path, day: date) -> Row:
    """The results of that day, if they are whole and agree with themselves."""
    try:
        results: Row = json.loads(path.read_text(encoding="utf-8"))
        found = [results["day"], results["landed"]["flights"], *sums_of(results["whole_day"])]
        parts = {name: added_up(results[name]) for name in ("hours", "carriers")}
        rejected = sum(results["rejected"]["flights"].values())
    except FileNotFoundError:
        begun = path.parent.exists()
        why = "the day has not passed its checks" if begun else "the day has never been run"
        raise UnusableResultsError(f"{why} ({path} is not there)") from None
    except (OSError, ValueError) as error:
        raise UnusableResultsError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UnusableResultsError(
            f"{path} is not what this pipeline writes ({error}); run the day again"
        ) from error
    named, landed, *sums = found
    if named != day.isoformat():
        raise UnusableResultsError(f"{path} holds the results of {named}")
    for name, added in parts.items():
        if added != sums:
            raise UnusableResultsError(f"in {path} {name} add up to {added}, but the day to {sums}")
    if landed != sums[0] + rejected:
        raise UnusableResultsError(
            f"in {path} {sums[0]} flights and {rejected} rejected ones do not make {landed}"
        )
    return results


def sums_of(row: Row) -> list[int]:
    return [int(row[name]) for name in SUMS]


def added_up(rows: Iterable[Row]) -> list[int]:
    """The sums of several groups; whole numbers, so that their order does not matter."""
    return [sum(column) for column in zip([0] * len(SUMS), *map(sums_of, rows), strict=True)]


def summed_up(results: dict[date, Row], missing: list[str], first: date, last: date) -> Row:
    """The figures of the range, as README.md defines them; what `results.json` holds."""
    days = [
        {
            "day": day.isoformat(),
            "scheduled": found["landed"]["flights"],
            "cancelled": found["rejected"]["flights"]["cancelled"],
            "diverted": found["rejected"]["flights"]["diverted"],
            "unusable": found["rejected"]["flights"]["malformed"]
            + found["rejected"]["flights"]["duplicate"],
        }
        | with_means(sums_of(found["whole_day"]))
        for day, found in results.items()
    ]
    counts = {count: sum(row[count] for row in days) for count in COUNTS}
    return {
        "first": first.isoformat(),
        "last": last.isoformat(),
        "missing": [sentence.partition(":")[0] for sentence in missing],
        "whole": counts | with_means(added_up(days)),
        "days": days,
        "hours": groups(results.values(), "hours", "hour"),
        "carriers": groups(results.values(), "carriers", "carrier", "airline"),
    }


def groups(results: Iterable[Row], name: str, *columns: str) -> list[Row]:
    """The hours or carriers of all days, those of the same key added up, in order of the key."""
    found: dict[Any, list[Row]] = {}
    for row in (row for each in results for row in each[name]):
        found.setdefault(row[columns[0]], []).append(row)
    return [
        {column: rows[0][column] for column in columns} | with_means(added_up(rows))
        for _, rows in sorted(found.items())
    ]


def with_means(sums: list[int]) -> Row:
    row: Row = dict(zip(SUMS, sums, strict=True))
    return row | {
        "mean_departure_delay": mean(row["departure_minutes"], row["flights"]),
        "mean_arrival_delay": mean(row["arrival_minutes"], row["flights"]),
    }


def mean(total: int, count: int) -> float:
    """To two places, half away from zero. The checks let no group without a flight pass."""
    quotient = (Decimal(total) / count).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    # Adding 0 turns a negative zero, which two places can leave behind, into a plain one.
    return float(quotient) + 0.0


def replace(path: Path, write_to: Callable[[Path], None]) -> None:
    """Put what is written in the file's place at once: a reader sees the old or the new one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_to(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def as_csv(summary: Row) -> str:
    """A line for each day of the range; that of a missing one has a date and nothing more."""
    columns = [*summary["days"][0]]
    rows = [*summary["days"], *({"day": day} for day in summary["missing"])]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: str(row["day"])))
    return text.getvalue()


def markdown(summary: Row, missing: list[str]) -> Iterator[str]:
    whole, days = summary["whole"], summary["days"]
    number = len(days) + len(missing)
    latest = max(days, key=lambda row: (row["mean_departure_delay"], row["day"]))
    yield f"# Flights from New York, {in_words(summary['first'])} to {in_words(summary['last'])}"
    yield ""
    yield (
        f"Of {whole['scheduled']:,} scheduled flights {whole['flights']:,} arrived where they were "
        f"bound, {whole['late']:,} of them ({percent(whole)} %) at least 15 minutes late; "
        f"{whole['cancelled']:,} were cancelled and {whole['diverted']:,} diverted. They left "
        f"{minutes(whole['mean_departure_delay'])} and arrived "
        f"{minutes(whole['mean_arrival_delay'])} on average. The worst day was "
        f"{in_words(latest['day'])}: {minutes(latest['mean_departure_delay'])} on departure."
    )
    yield ""
    if missing:
        yield f"**{len(missing)} of {number} days are missing**, and count nowhere here:"
        yield ""
        yield from (f"- {sentence}" for sentence in missing)
    else:
        yield f"All {number} days are there."
    yield ""
    yield "![The delays of each day and hour](calendar.png)"
    figures = ["flights", "late", "late, %", "mean departure", "mean arrival"]
    by_day = {row["day"]: row for row in days}
    rows = []
    for day in days_of(date.fromisoformat(summary["first"]), date.fromisoformat(summary["last"])):
        row = by_day.get(day.isoformat())
        counts = ["missing", "–", "–", *["–"] * len(figures)]
        if row is not None:
            counts = [row["scheduled"], row["cancelled"], row["diverted"], *cells(row)]
        rows.append([day.isoformat(), f"{day:%a}", *counts])
    yield from table(
        "By day", ["day", "", "scheduled", "cancelled", "diverted", *figures], rows, texts=2
    )
    yield from table(
        "By carrier",
        ["carrier", "airline", *figures],
        [[row["carrier"], row["airline"] or "–", *cells(row)] for row in summary["carriers"]],
        texts=2,
    )
    yield from table(
        "By hour of scheduled departure",
        ["hour", *figures],
        [[f"{row['hour']:02}:00", *cells(row)] for row in summary["hours"]],
        texts=1,
    )
    yield ""
    yield (
        "`flights` are those that arrived where they were bound. Delays are minutes; early is "
        "negative. A flight is late from 15 minutes on. The same figures: `results.json`; the "
        "days: `days.csv`."
    )


def in_words(text: str) -> str:
    day = date.fromisoformat(text)
    return f"{day.day} {day:%B %Y}"


def cells(row: Row) -> list[str]:
    means = (row["mean_departure_delay"], row["mean_arrival_delay"])
    return [
        str(row["flights"]),
        str(row["late"]),
        percent(row),
        *(f"{mean:+.2f}" for mean in means),
    ]


def percent(row: Row) -> str:
    return f"{100 * row['late'] / row['flights']:.1f}"


def minutes(mean: float) -> str:
    return f"{abs(mean):.2f} minutes {'early' if mean < 0 else 'late'}"


def table(title: str, heads: list[str], rows: list[list[Any]], *, texts: int) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join(['---'] * texts + ['--:'] * (len(heads) - texts))}|"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def draw(summary: Row, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    first, last = (date.fromisoformat(summary[end]) for end in ("first", "last"))
    days, hours, whole = summary["days"], summary["hours"], summary["whole"]
    weeks = (last - monday_of(first)).days // 7 + 1
    tall = 0.95 * weeks + 0.85
    figure = Figure(figsize=(11, tall + 3.1), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    FigureCanvasAgg(figure)  # Draws into memory; no display is asked for.
    figure.suptitle(
        f"Flights from New York, {in_words(summary['first'])} to {in_words(summary['last'])}",
        fontsize=16,
        weight="bold",
        color=INK,
    )
    calendar, strip = figure.subplots(2, 1, height_ratios=(tall, 1.25))
    shown = [row["mean_departure_delay"] for row in (*days, *hours)]
    # Bent a little, so that one day of snow does not make all the others look alike.
    scale = PowerNorm(0.85, min(0.0, *shown), max(10 * math.ceil(max(shown) / 10), 10))
    colours = ScalarMappable(scale, COLOURS)
    calendar.set_title(
        f"{whole['scheduled']:,} flights were scheduled, {whole['cancelled']:,} of them cancelled;"
        f" the mean delay on departure was {whole['mean_departure_delay']:+.1f} minutes",
        fontsize=10.5,
        color=INK,
        pad=26,
    )
    draw_days(calendar, {row["day"]: row for row in days}, first, last, colours)
    draw_hours(strip, hours, colours)
    legend = figure.colorbar(
        colours, ax=[calendar, strip], location="bottom", fraction=0.035, aspect=60, pad=0.02
    )
    legend.set_label("mean delay on departure, minutes: the darker, the later", color=INK)
    legend.ax.tick_params(colors=INK)
    legend.outline.set_visible(False)
    figure.savefig(path, format="png", dpi=110, facecolor="white")


def draw_days(
    axes: Axes, by_day: dict[str, Row], first: date, last: date, colours: ScalarMappable
) -> None:
    """A row for each week, Monday to Sunday; a day without results is hatched and says so."""
    monday = monday_of(first)
    for day in days_of(first, last):
        week, weekday = divmod((day - monday).days, 7)
        row = by_day.get(day.isoformat())
        name = f"{day.day} {day:%b}" if day.day == 1 or day == first else str(day.day)
        if row is None:
            cell(axes, weekday, week, PAPER, hatch="///")
            ink = INK
            lines = [("no results", 9.5, 0.56)]
        else:
            ink = cell(axes, weekday, week, colours.to_rgba(row["mean_departure_delay"]))
            lines = [
                (f"{row['mean_departure_delay']:+.1f}", 15, 0.47),
                (f"{row['flights']} arrived", 8, 0.72),
                (f"{row['cancelled']} cancelled" if row["cancelled"] else "", 8, 0.88),
            ]
        axes.text(weekday + 0.06, week + 0.08, name, color=ink, fontsize=9, va="top", weight="bold")
        for text, size, down in lines:
            axes.text(
                weekday + 0.5, week + down, text, color=ink, fontsize=size, ha="center", va="center"
            )
    weeks = (last - monday).days // 7 + 1
    axes.set_xlim(0, 7)
    axes.set_ylim(weeks, 0)
    axes.set_xticks([place + 0.5 for place in range(7)], WEEKDAYS)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    bare(axes)


def draw_hours(axes: Axes, hours: list[Row], colours: ScalarMappable) -> None:
    """One cell for each hour of scheduled departure, over all days of the range."""
    by_hour = {row["hour"]: row for row in hours}
    earliest, latest = min(by_hour), max(by_hour)
    for hour in range(earliest, latest + 1):
        row = by_hour.get(hour)
        if row is None:
            cell(axes, hour, 0, PAPER)
            continue
        ink = cell(axes, hour, 0, colours.to_rgba(row["mean_departure_delay"]))
        for text, size, down in (
            (f"{row['mean_departure_delay']:+.1f}", 10, 0.42),
            (f"{row['flights']:,}", 7.5, 0.76),
        ):
            axes.text(hour + 0.5, down, text, color=ink, fontsize=size, ha="center", va="center")
    axes.set_xlim(earliest, latest + 1)
    axes.set_ylim(1, 0)
    at = range(earliest, latest + 1)
    axes.set_xticks([hour + 0.5 for hour in at], [f"{hour:02}" for hour in at])
    axes.set_yticks([])
    axes.set_title(
        "By hour of scheduled departure, local time, over all these days (below: flights)",
        fontsize=10.5,
        color=INK,
    )
    bare(axes)


def cell(axes: Axes, left: float, top: float, colour: Any, *, hatch: str | None = None) -> str:
    """Draw one; the ink in which its text can be read."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    gap = 0.025
    axes.add_patch(
        Rectangle(
            (left + gap, top + gap),
            1 - 2 * gap,
            1 - 2 * gap,
            facecolor=colour,
            edgecolor=MUTED if hatch else "none",
            hatch=hatch,
            linewidth=0,
        )
    )
    # The luminance as a screen makes it; at this one black and white contrast equally well.
    red, green, blue = (part**2.2 for part in to_rgb(colour))
    return BLACK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "white"


def bare(axes: Axes) -> None:
    axes.tick_params(length=0, colors=INK, labelsize=10)
    axes.spines[:].set_visible(False)


def monday_of(day: date) -> date:
    return day - timedelta(days=day.weekday())


if __name__ == "__main__":
    sys.exit(main())
