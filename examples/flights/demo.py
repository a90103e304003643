"""The whole story in one command: a private cluster, a complement of flights, every figure checked.

Called by `bin/demo`. It starts a standalone cluster on free ports, imports the definitions, puts
the pipeline on its cron, runs three past days of it (with `--month` the 31 days of January) as one
complement, two at a time, and lets a calendar report be made of them. At the end the results of
each day and of the range are compared with figures that `expected` computes a second time, with
plain Python, from the raw files. Whatever happens, it stops what it started.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from expected import compare, expected_of_days, expected_of_range
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ZONE = "America/New_York"
FIRST = date(2013, 1, 1)
LAST, LAST_OF_MONTH = date(2013, 1, 3), date(2013, 1, 31)
PARALLEL = 2
# Every night at three the day before. The data end with 2013, and so does the schedule's window.
CRON, WINDOW = "0 0 3 * * ? *", ("2013-01-02", "2014-01-01")

console = Console(highlight=False)


def main() -> int:
    """0 only if every figure of every day and of the range was right."""
    parser = argparse.ArgumentParser(prog="bin/demo", description=__doc__)
    parser.add_argument("--home", default="", help="where the private cluster lives")
    parser.add_argument("--slots", type=int, default=3, help="tasks at the same time")
    parser.add_argument("--month", action="store_true", help="31 days instead of three")
    parser.add_argument(
        "--classic", action="store_true", help="a Spark driver for each task, no warm sessions"
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="show the runs in the console at the end, until Enter or Ctrl-C",
    )
    options = parser.parse_args()
    home = Path(options.home) if options.home else ROOT / "out" / "demo"
    last = LAST_OF_MONTH if options.month else LAST
    span = f"{FIRST}_{last}"
    begun = time.monotonic()
    without = () if options.open else ("--without", "api-server")
    served = cluster(home, slots=options.slots, classic=options.classic, without=without)
    with served as environment:
        definitions = [str(HERE / name) for name in ("flights.json", "flights_calendar.json")]
        orcaflow(environment, "definition", "import", *definitions)
        put_on_cron(environment)
        dates = ("--from", str(FIRST), "--to", str(last))
        at_once = ("--parallel", str(PARALLEL))
        wrong = [
            *show(environment, "complement", "flights", *dates, *at_once, "--wait"),
            *show(
                *(environment, "run", "flights-calendar", "--wait"),
                *("--param", f"first={FIRST}", "--param", f"last={last}"),
            ),
        ]
        flights = home / "data" / "flights"
        wrong += [*report_days(flights, last), *report_range(flights / span, last)]
        seconds = time.monotonic() - begun
        code = report(wrong, seconds, flights, span)
        if options.open:
            open_console(environment)
    return code


def report(wrong: list[str], seconds: float, flights: Path, span: str) -> int:
    """Print the verdict, and where the pictures are; the exit code."""
    if wrong:
        console.print("\n[bold red]Something is wrong:[/]")
        for sentence in wrong:
            console.print(f"  - {sentence}", markup=False)
        return 1
    console.print(f"\n[bold green]All figures are right.[/] The whole demo took {seconds:.0f} s.")
    # A path that is wrapped could not be copied.
    for made, path in (
        ("A chart of each day", flights / "day=*" / "delays.png"),
        ("All of them as a calendar", flights / span / "calendar.png"),
    ):
        console.print(f"{made}: {path}", markup=False, soft_wrap=True)
    return 0


def open_console(environment: dict[str, str]) -> None:
    """Open the console, logged in, at what has just run; it is there until somebody has enough."""
    show(environment, "console")
    console.print("The overview shows these runs under “Ended last”. Enter or Ctrl-C ends it all.")
    with suppress(EOFError, KeyboardInterrupt):
        input()


def put_on_cron(environment: dict[str, str]) -> None:
    """Make the schedule, unless an earlier demo has: the home is kept."""
    if not json.loads(orcaflow(environment, "schedule", "list", "flights", "-o", "json")):
        line = ("--cron", CRON, "--zone", ZONE, "--from", WINDOW[0], "--to", WINDOW[1])
        show(environment, "schedule", "create", "flights", *line, "--online")
    show(environment, "schedule", "preview", "flights", "--after", str(FIRST), "--count", "3")


@contextmanager
def cluster(
    home: Path, *, slots: int, classic: bool, without: tuple[str, ...]
) -> Iterator[dict[str, str]]:
    """A standalone cluster of its own; the environment in which the command line speaks to it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ORCAFLOW_")}
    environment = kept | {
        "ORCAFLOW_HOME": str(home),
        # So that what is shown is New York's time, wherever the demo runs.
        "ORCAFLOW_TIME_ZONE": ZONE,
        # The one switch between warm sessions and drivers of the tasks' own.
        "ORCAFLOW_SPARK__DEFAULT_PROFILE": "classic" if classic else "default",
    }
    console.print(f"Starting a private cluster below {home} …", markup=False)
    try:
        where = ("--free-ports", *without)
        start = ("server", "start", "standalone-server", *where, "--slots", str(slots))
        console.print(orcaflow(environment, *start).rstrip(), style="dim", markup=False)
        yield environment
    finally:
        orcaflow(environment, "server", "stop", "standalone-server", check=False)


def orcaflow(environment: dict[str, str], *arguments: str, check: bool = True) -> str:
    """What the command line prints; its error and exit code are this program's if it fails."""
    command = (sys.executable, "-m", "orcaflow", *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        sys.stderr.write(done.stderr or done.stdout)
        raise SystemExit(done.returncode)
    return done.stdout


def show(environment: dict[str, str], *arguments: str) -> list[str]:
    """Run a command in front of the user, its progress included; a sentence if it failed."""
    line = f"$ orcaflow {shlex.join(arguments)}"
    console.print(f"\n{line}", style="bold", markup=False, soft_wrap=True)
    command = (sys.executable, "-m", "orcaflow", *arguments)
    code = subprocess.run(command, env=environment, check=False).returncode
    return [f"orcaflow {shlex.join(arguments)}: exit code {code}"] if code else []


def report_days(flights: Path, last: date) -> list[str]:
    """Print the results of each day beside the figures computed again; what differs."""
    table = Table(title="Flights from New York: Orcaflow's figures and plain Python's", box=None)
    for heading in ("day", "landed", "kept", "late", "delay, min", "worst route", "chart", "check"):
        table.add_column(heading, justify="right" if heading != "worst route" else "left")
    wrong = []
    days = [FIRST + timedelta(days=number) for number in range((last - FIRST).days + 1)]
    for day, wanted in expected_of_days(days).items():
        folder = flights / f"day={day}"
        actual = results_in(folder)
        if isinstance(actual, str):
            wrong.append(f"{day} has no results: {actual}")
            continue
        differences = compare(actual, wanted)
        wrong += [f"{day}: {difference}" for difference in differences]
        has_chart = is_picture(folder / "delays.png")
        if not has_chart:
            wrong.append(f"{day} has no chart at {folder / 'delays.png'}")
        whole, worst = actual["whole_day"], actual["worst_routes"][0]
        table.add_row(
            day.isoformat(),
            str(actual["landed"]["flights"]),
            str(whole["flights"]),
            str(whole["late"]),
            f"{whole['mean_arrival_delay']:+.2f}",
            f"{worst['origin']} → {worst['dest']} {worst['mean_arrival_delay']:+.1f}",
            "PNG" if has_chart else "missing",
            "all equal" if not differences else f"{len(differences)} differ",
        )
    console.print()
    console.print(table)
    return wrong


def report_range(folder: Path, last: date) -> list[str]:
    """The same for the calendar report of all these days."""
    actual = results_in(folder)
    if isinstance(actual, str):
        return [f"there is no report of the range: {actual}"]
    differences = compare(actual, expected_of_range(FIRST, last))
    wrong = [f"{FIRST} to {last}: {difference}" for difference in differences]
    if not is_picture(folder / "calendar.png"):
        wrong.append(f"there is no calendar at {folder / 'calendar.png'}")
    whole = actual["whole"]
    console.print(
        f"\n{len(actual['days'])} days together: {whole['flights']:,} flights,"
        f" {whole['late']:,} late, {whole['mean_arrival_delay']:+.2f} minutes on average:"
        f" {'all equal' if not differences else f'{len(differences)} figures differ'}."
    )
    return wrong


def results_in(folder: Path) -> dict[str, Any] | str:
    """Its `results.json`, or why there is none."""
    try:
        results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return str(error)
    return results


def is_picture(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(b"\x89PNG")


if __name__ == "__main__":
    sys.exit(main())
