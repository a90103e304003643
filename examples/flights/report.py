"""Writes the report of a day from its checked results: `report.md` and the chart `delays.png`.

It reads `results.json` alone, so it says nothing that the quality checks have not seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATE, EARLY, MUTED, INK = "#d1495b", "#2e86ab", "#c9ced6", "#22303c"


def main() -> None:
    params = json.loads(Path(os.environ["ORCAFLOW_PARAMS"]).read_text(encoding="utf-8"))
    day = date.fromisoformat(params["day"])
    flights = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights")
    folder = flights / f"day={day}"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))

    # Set before matplotlib is imported: its font cache belongs to the data, not to a home.
    os.environ.setdefault("MPLCONFIGDIR", str(flights / "matplotlib"))
    unfinished = folder / f".delays.png.{os.getpid()}"
    draw(results, day, unfinished)
    unfinished.replace(folder / "delays.png")

    unfinished = folder / f".report.md.{os.getpid()}"
    unfinished.write_text("\n".join(markdown(results, day)) + "\n", encoding="utf-8")
    unfinished.replace(folder / "report.md")
    print(f"the report of {day} is {folder / 'report.md'}")


def in_words(day: date) -> str:
    return f"{day:%A}, {day.day} {day:%B %Y}"


def markdown(results: dict[str, Any], day: date) -> Iterator[str]:
    landed, joined, whole = results["landed"], results["joined"], results["whole_day"]
    rejected = results["rejected"]["flights"]
    late = 100 * whole["late"] / whole["flights"]
    yield f"# Flights from New York on {in_words(day)}"
    yield ""
    yield (
        f"Of {landed['flights']} scheduled flights {whole['flights']} arrived where they were "
        f"bound, {whole['late']} of them ({late:.1f} %) at least 15 minutes late; "
        f"{rejected['cancelled']} were cancelled and {rejected['diverted']} diverted. "
        f"They left {minutes(whole['mean_departure_delay'])} and arrived "
        f"{minutes(whole['mean_arrival_delay'])} on average."
    )
    yield ""
    if results["cleaned"]["weather"]:
        yield f"The weather of their hour is known for {joined['with_weather']} flights."
    else:
        yield "No weather was recorded on this day."
    yield ""
    yield "![Delays by hour and by carrier](delays.png)"
    yield from table(
        "By carrier",
        ["carrier", "airline", "flights", "late", "known seats", "mean departure", "mean arrival"],
        [
            [
                row["carrier"],
                row["airline"] or "–",
                row["flights"],
                row["late"],
                row["known_seats"],
                signed(row["mean_departure_delay"]),
                signed(row["mean_arrival_delay"]),
            ]
            for row in results["carriers"]
        ],
        text_columns=2,
    )
    yield from table(
        "By hour of scheduled departure",
        ["hour", "flights", "late", "in rain", "mean departure", "mean arrival", "wind, mph"],
        [
            [
                f"{row['hour']:02}:00",
                row["flights"],
                row["late"],
                row["in_rain"],
                signed(row["mean_departure_delay"]),
                signed(row["mean_arrival_delay"]),
                "–" if row["mean_wind_mph"] is None else f"{row['mean_wind_mph']:.2f}",
            ]
            for row in results["hours"]
        ],
        text_columns=1,
    )
    yield from table(
        "Routes that arrived latest",
        ["from", "to", "airport", "flights", "late", "mean arrival"],
        [
            [
                row["origin"],
                row["dest"],
                row["destination"] or "–",
                row["flights"],
                row["late"],
                signed(row["mean_arrival_delay"]),
            ]
            for row in results["worst_routes"]
        ],
        text_columns=3,
    )
    yield ""
    yield "Delays are minutes; early is negative. A flight is late from 15 minutes on."


def table(
    title: str, heads: list[str], rows: list[list[Any]], *, text_columns: int
) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield f"| {' | '.join(heads)} |"
    rules = ["---"] * text_columns + ["--:"] * (len(heads) - text_columns)
    yield f"|{'|'.join(rules)}|"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def signed(mean: float) -> str:
    return f"{mean:+.2f}"


def minutes(mean: float) -> str:
    return f"{abs(mean):.2f} minutes {'early' if mean < 0 else 'late'}"


def draw(results: dict[str, Any], day: date, path: Path) -> None:
    from matplotlib import rc
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rc("axes", edgecolor=MUTED, labelcolor=INK, axisbelow=True)
    rc("text", color=INK)
    rc("xtick", color=INK)
    rc("ytick", color=INK)
    whole = results["whole_day"]
    figure = Figure(figsize=(10, 9.5), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12))
    FigureCanvasAgg(figure)  # Draws into memory; no display is asked for.
    by_hour, by_carrier = figure.subplots(2, 1, height_ratios=(1, 1.15))
    figure.suptitle(f"Flights from New York on {in_words(day)}", fontsize=16, weight="bold")
    by_hour.set_title(
        f"{whole['flights']} flights arrived, {whole['late']} of them at least 15 minutes late;"
        f" the mean arrival delay was {whole['mean_arrival_delay']:+.1f} minutes",
        fontsize=10.5,
        pad=34,
    )
    draw_hours(by_hour, results["hours"])
    draw_carriers(by_carrier, results["carriers"])
    figure.savefig(path, format="png", dpi=110, facecolor="white")


def draw_hours(axes: Axes, hours: list[dict[str, Any]]) -> None:
    at = [row["hour"] for row in hours]
    counts = axes.twinx()
    counts.bar(at, [row["flights"] for row in hours], width=0.86, color=MUTED, alpha=0.55)
    counts.set_ylabel("flights (bars)")
    counts.set_ylim(0, 1.4 * max(row["flights"] for row in hours))
    counts.spines[["top", "left"]].set_visible(False)
    axes.set_zorder(counts.get_zorder() + 1)  # The lines belong before the bars.
    axes.patch.set_visible(False)
    axes.axhline(0, color=INK, linewidth=0.8)
    for column, color, label in (
        ("mean_departure_delay", EARLY, "on departure"),
        ("mean_arrival_delay", LATE, "on arrival"),
    ):
        axes.plot(at, [row[column] for row in hours], "o-", color=color, label=label, lw=2.2, ms=5)
    axes.set_xticks(at, [f"{hour:02}" for hour in at])
    axes.set_xlabel("hour of scheduled departure, local time")
    axes.set_ylabel("mean delay, minutes")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def draw_carriers(axes: Axes, carriers: list[dict[str, Any]]) -> None:
    rows = sorted(carriers, key=lambda row: (row["mean_arrival_delay"], row["carrier"]))
    delays = [row["mean_arrival_delay"] for row in rows]
    bars = axes.barh(
        [f"{row['airline'] or row['carrier']}  ({row['flights']})" for row in rows],
        delays,
        color=[LATE if delay > 0 else EARLY for delay in delays],
        height=0.72,
    )
    axes.bar_label(bars, [f"{delay:+.1f}" for delay in delays], padding=4, fontsize=9)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.margins(x=0.1, y=0.01)
    axes.grid(axis="x", color=MUTED, linewidth=0.6)
    axes.set_xlabel("mean arrival delay, minutes; early is negative (flights in parentheses)")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


if __name__ == "__main__":
    main()
