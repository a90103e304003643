"""The destinations with the longest delays over a sliding window, of the flights of `airports`.

One stateful bolt keeps, for each destination, the delays of the last hours of its own events. The
next one keeps the mean of each destination by hour, and emits the first few whenever they change.
"""

from collections import deque
from datetime import datetime, timedelta

from airports import parsed

from orcaflow.spouts import FileSpout
from orcaflow.topology import Bolt, Sink, StatefulBolt, TopologyBuilder

WINDOW = timedelta(hours=6)
FIRST = 3


class Read(Bolt):
    outputs = ("hour", "dest", "delay long")

    def process(self, record, emit):
        try:
            _, _, dest, delay = parsed(record["line"])
        except ValueError:
            return
        emit(record["line"].partition(",")[0], dest, delay)


class Mean(StatefulBolt):
    """The mean delay of a destination over the window that ends with each hour."""

    outputs = ("hour", "dest", "mean double")

    def initial(self):
        return deque()

    def process(self, record, state, emit):
        state.append((record["hour"], record["delay"]))
        begin = datetime.fromisoformat(record["hour"]) - WINDOW
        while datetime.fromisoformat(state[0][0]) <= begin:
            state.popleft()
        emit(record["hour"], record["dest"], sum(delay for _, delay in state) / len(state))
        return state


class Top(StatefulBolt):
    """The destinations with the highest means of an hour."""

    outputs = ("hour", "first")

    def initial(self):
        return ({}, "")

    def process(self, record, state, emit):
        means, before = state
        means[record["dest"]] = record["mean"]
        first = sorted(means, key=lambda dest: (-means[dest], dest))[:FIRST]
        told = ", ".join(f"{dest} {means[dest]:+.1f}" for dest in first)
        if told != before:
            emit(record["hour"], told)
        return (means, told)


class Print(Sink):
    def write(self, records, batch):
        for hour, first in {record["hour"]: record["first"] for record in records}.items():
            print(f"{hour}  {first}")


def made(events, sink=None):
    """Return the topology that reads the files of a folder, whose lines are in order of time."""
    builder = TopologyBuilder("top-airports")
    builder.set_spout("events", FileSpout(events, "*.csv"))
    builder.set_bolt("read", Read()).local_or_shuffle_grouping("events")
    builder.set_bolt("mean", Mean(), tasks=2).fields_grouping("read", "dest")
    builder.set_bolt("top", Top(), tasks=2).fields_grouping("mean", "hour")
    builder.set_bolt("print", sink or Print()).global_grouping("top")
    return builder.create_topology()
