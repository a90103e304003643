"""The whole story in one command: a private cluster, three days of flights, every figure checked.

Called by `bin/demo`. It starts a standalone cluster on free ports, imports the definition, inserts
one row into `t_ds_command` for each day, as any program could, and shows what becomes of them. At
the end the results of each day are compared with figures that `expected` computes a second time,
with plain Python, from the raw files. Whatever happens, it stops what it started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg2
from expected import compare, expected
from rich.console import Console
from rich.live import Live
from rich.table import Table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NEW_YORK = ZoneInfo("America/New_York")
DAYS = (date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3))
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 1_200

MARKS = {0: "·", 1: "▶", 6: "✗", 7: "✓", 8: "↻", 9: "■"}
ENDED = {3: "PAUSE", 5: "STOP", 6: "FAILURE", 7: "SUCCESS"}

console = Console(highlight=False)


def main() -> int:
    """0 only if every figure of every day was right."""
    parser = argparse.ArgumentParser(prog="bin/demo", description=__doc__)
    parser.add_argument("--home", default="", help="where the private cluster lives")
    parser.add_argument("--slots", type=int, default=3, help="tasks at the same time")
    options = parser.parse_args()
    home = Path(options.home) if options.home else ROOT / "out" / "demo"
    begun = time.monotonic()
    with cluster(home, slots=options.slots) as environment:
        orcaflow(environment, "definition", "import", str(HERE / "flights.json"))
        dsn = orcaflow(environment, "config", "get", "database.dsn").strip()
        connection = psycopg2.connect(dsn)
        try:
            connection.autocommit = True
            runs = submit(connection)
            watch(connection, runs)
            wrong = [*failures(connection, runs), *report(home, runs)]
        finally:
            connection.close()
    seconds = time.monotonic() - begun
    if wrong:
        console.print("\n[bold red]Something is wrong:[/]")
        for sentence in wrong:
            console.print(f"  - {sentence}", markup=False)
        return 1
    console.print(f"\n[bold green]All figures are right.[/] The whole demo took {seconds:.0f} s.")
    console.print(
        f"A chart of each day: {home / 'data' / 'flights'}/day=*/delays.png", markup=False
    )
    return 0


@contextmanager
def cluster(home: Path, *, slots: int) -> Iterator[dict[str, str]]:
    """A standalone cluster of its own; the environment in which the command line speaks to it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ORCAFLOW_")}
    environment = kept | {
        "ORCAFLOW_HOME": str(home),
        # So that a day given as a date is that day in New York, wherever the demo runs.
        "ORCAFLOW_TIME_ZONE": NEW_YORK.key,
    }
    console.print(f"Starting a private cluster below {home} …", markup=False)
    try:
        start = ("server", "start", "standalone-server", "--free-ports", "--slots", str(slots))
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


@dataclass(slots=True)
class Run:
    """One day on its way. `process_instance_id` is unknown until a master has taken its command.

    The home is kept, so earlier demos left instances of the same day: those up to `after`.
    """

    day: date
    command_id: int
    after: int
    process_instance_id: int | None = None
    state: int | None = None


def submit(connection: Any) -> list[Run]:
    """One command row a day; the day is the row's `schedule_time`."""
    runs = []
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM t_ds_process_instance")
        (after,) = cursor.fetchone()
        for day in DAYS:
            cursor.execute(
                "INSERT INTO t_ds_command (command_type, process_definition_id, command_param,"
                " schedule_time, executor_id) VALUES (0, (SELECT id FROM t_ds_process_definition"
                " WHERE name = 'flights'), '{}', %s, 1) RETURNING id",
                (at_midnight(day),),
            )
            (command_id,) = cursor.fetchone()
            runs.append(Run(day=day, command_id=command_id, after=after))
    console.print(f"Inserted {len(runs)} rows into t_ds_command: one process instance a day.\n")
    return runs


def at_midnight(day: date) -> datetime:
    """The moment that stands for the day, in New York."""
    return datetime(day.year, day.month, day.day, tzinfo=NEW_YORK)


def watch(connection: Any, runs: list[Run]) -> None:
    """Show the runs until they have ended: live on a terminal, else a line for each change."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    told: set[tuple[date, str, int, int]] = set()
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while time.monotonic() < deadline:
            tasks = {run.day: tasks_of(connection, run) for run in runs}
            if console.is_terminal:
                live.update(picture(runs, tasks))
            else:
                tell(tasks, told)
            if all(run.state in ENDED for run in runs):
                return
            # A demo looks as a person would; what runs the tasks is event-driven.
            time.sleep(LOOK_SECONDS)
    raise SystemExit(f"not done after {PATIENCE_SECONDS} s; see the logs of the cluster")


def tasks_of(connection: Any, run: Run) -> list[tuple[str, int, int, float]]:
    """Name, state, attempt and seconds of each task; brings the run's own state up to date."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, state FROM t_ds_process_instance WHERE schedule_time = %s AND id > %s",
            (at_midnight(run.day), run.after),
        )
        row = cursor.fetchone()
        if row is None:
            cursor.execute(
                "SELECT message FROM t_ds_error_command WHERE command_id = %s", (run.command_id,)
            )
            refused = cursor.fetchone()
            if refused is not None:
                raise SystemExit(f"the command of {run.day} was refused: {refused[0]}")
            return []
        run.process_instance_id, run.state = row
        cursor.execute(
            "SELECT name, state, attempt,"
            " extract(epoch FROM coalesce(end_time, now()) - start_time)::float"
            " FROM t_ds_task_instance WHERE process_instance_id = %s AND flag = 1 ORDER BY id",
            (run.process_instance_id,),
        )
        return list(cursor.fetchall())


def picture(runs: list[Run], tasks: dict[date, list[tuple[str, int, int, float]]]) -> Table:
    """One line a day: its tasks with their states and seconds."""
    table = Table(box=None, padding=(0, 1))
    table.add_column("day")
    table.add_column("state")
    table.add_column("tasks")
    for run in runs:
        shown = "  ".join(
            f"{MARKS.get(state, '?')} {name} {seconds:.0f}s" if state else f"· {name}"
            for name, state, _, seconds in tasks[run.day]
        )
        state = "WAITING" if run.state is None else ENDED.get(run.state, "RUNNING")
        table.add_row(run.day.isoformat(), state, shown)
    return table


def tell(
    tasks: dict[date, list[tuple[str, int, int, float]]], told: set[tuple[date, str, int, int]]
) -> None:
    """A line for each task that has changed."""
    for day, of_day in tasks.items():
        for name, state, attempt, seconds in of_day:
            if (day, name, state, attempt) in told or state == 0:
                continue
            told.add((day, name, state, attempt))
            took = f"  {seconds:.1f}s" if state != 1 else ""
            console.print(f"{day}  {MARKS.get(state, '?')} {name}{took}", markup=False)


def failures(connection: Any, runs: list[Run]) -> list[str]:
    """A sentence for each run that did not succeed, with what its tasks said last."""
    sentences = []
    with connection.cursor() as cursor:
        for run in runs:
            if run.state == 7:
                continue
            cursor.execute(
                "SELECT name, reason, log_path FROM t_ds_task_instance"
                " WHERE process_instance_id = %s AND flag = 1 AND state NOT IN (0, 1, 7)",
                (run.process_instance_id,),
            )
            for name, reason, log_path in cursor.fetchall():
                sentences.append(f"{run.day}: {name} failed ({reason}); its log: {log_path}")
            sentences.append(f"{run.day} ended {ENDED.get(run.state or 0, 'not at all')}")
    return sentences


def report(home: Path, runs: list[Run]) -> list[str]:
    """Print the results of each day beside the figures computed again; what differs."""
    table = Table(title="Flights from New York: Orcaflow's figures and plain Python's", box=None)
    for heading in ("day", "landed", "kept", "late", "delay, min", "worst route", "chart", "check"):
        table.add_column(heading, justify="right" if heading != "worst route" else "left")
    wrong = []
    for run in runs:
        folder = home / "data" / "flights" / f"day={run.day.isoformat()}"
        try:
            actual = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            wrong.append(f"{run.day} has no results: {error}")
            continue
        differences = compare(actual, expected(run.day))
        wrong += [f"{run.day}: {difference}" for difference in differences]
        chart = folder / "delays.png"
        has_chart = chart.is_file() and chart.read_bytes().startswith(b"\x89PNG")
        if not has_chart:
            wrong.append(f"{run.day} has no chart at {chart}")
        whole, worst = actual["whole_day"], actual["worst_routes"][0]
        table.add_row(
            run.day.isoformat(),
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


if __name__ == "__main__":
    sys.exit(main())
