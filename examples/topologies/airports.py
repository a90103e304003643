"""Flights that leave New York, as lines of CSV: `hour,origin,dest,carrier,delay`.

Two branches stand behind one spout. One counts the flights and sums up the minutes of delay of each
airport and day, exactly once. The other sends flights that left late to the desk of their airport,
by a grouping of its own, and lines that can't be read into a stream of dead letters.
"""

import json
from pathlib import Path

from orcaflow.spouts import FileSpout
from orcaflow.topology import Bolt, Sink, StatefulBolt, TopologyBuilder

DESKS = ("EWR", "JFK", "LGA")
LATE = 60


def parsed(line):
    """Return day, origin, destination and minutes of delay; `ValueError` for what is no flight."""
    hour, origin, dest, _, delay = line.split(",")
    return hour[:10], origin, dest, int(delay or 0)


class Parse(Bolt):
    outputs = ("day", "origin", "delay long")

    def process(self, record, emit):
        try:
            day, origin, _, delay = parsed(record["line"])
        except ValueError:
            return  # `Watch` keeps it.
        emit(day, origin, delay)


class Watch(Bolt):
    outputs = {  # noqa: RUF012  # As an author writes it.
        "late": ("origin", "dest", "delay long"),
        "broken": ("line", "why"),
    }

    def process(self, record, emit):
        try:
            _, origin, dest, delay = parsed(record["line"])
        except ValueError as error:
            emit(record["line"], str(error), stream="broken")
            return
        if delay >= LATE:
            emit(origin, dest, delay, stream="late")


class ByDay(StatefulBolt):
    """Counts the flights and sums up the delays of an airport on a day."""

    outputs = ("origin", "day", "flights long", "minutes long")

    def initial(self):
        return (0, 0)

    def process(self, record, state, emit):
        flights, minutes = state[0] + 1, state[1] + record["delay"]
        emit(record["origin"], record["day"], flights, minutes)
        return (flights, minutes)


class ToDesk:
    """Each airport has a desk, a task of its own; others share the last one."""

    def choose(self, record, tasks):
        known = record["origin"] in DESKS
        return (min(DESKS.index(record["origin"]) if known else tasks, tasks - 1),)


class Keep(Sink):
    """Keeps the share of each batch and task in a file, so one that comes again is there once."""

    def __init__(self, folder, name):
        self.folder = folder
        self.name = name

    def write(self, records, batch):
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}-{batch.query}-{batch.number}-{batch.task}.json"
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps([list(record.values) for record in self.last(records)]))
        beside.replace(file)

    def last(self, records):
        return records


class KeepLast(Keep):
    """Keeps the last record of each airport and day alone."""

    def last(self, records):
        return {(record["origin"], record["day"]): record for record in records}.values()


def made(events, results, *, pending=50_000):
    """Return the topology that reads the files of one folder and writes into another."""
    builder = TopologyBuilder("airports", config={"topology.max.spout.pending": pending})
    builder.set_spout("events", FileSpout(events, "*.csv"), tasks=4)
    builder.set_bolt("parse", Parse(), 2, tasks=2).shuffle_grouping("events")
    builder.set_bolt("by_day", ByDay(), 2, tasks=2).fields_grouping("parse", ["origin", "day"])
    keep = builder.set_bolt("keep", KeepLast(results, "days"), tasks=2)
    keep.fields_grouping("by_day", ["origin", "day"])
    builder.set_bolt("watch", Watch(), tasks=2).shuffle_grouping("events")
    desks = builder.set_bolt("desks", Keep(results, "late"), tasks=len(DESKS))
    desks.custom_grouping("watch", ToDesk(), "late")
    broken = builder.set_bolt("broken", Keep(results, "broken"))
    broken.global_grouping("watch", "broken")
    return builder.create_topology()
