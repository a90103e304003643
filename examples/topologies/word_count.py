"""The first topology of everybody: the words of the lines of some files, counted.

    orcaflow topology submit examples/topologies/word_count.py:topology

reads the files of the folder `WORDS` below, and what is appended to them.
"""

from orcaflow.spouts import FileSpout
from orcaflow.topology import Bolt, Sink, StatefulBolt, TopologyBuilder

WORDS = "/tmp/words"  # noqa: S108  # An example's.


class Split(Bolt):
    outputs = ("word",)

    def process(self, record, emit):
        for word in record["line"].lower().split():
            emit(word.strip(".,;:!?\"'()"))


class Count(StatefulBolt):
    outputs = ("word", "count long")

    def initial(self):
        return 0

    def process(self, record, state, emit):
        emit(record["word"], state + 1)
        return state + 1


class Print(Sink):
    """Prints into the log of the topology: `orcaflow topology logs words -f`."""

    def write(self, records, batch):
        for record in records:
            print(f"{record['count']:7,} {record['word']}")


def topology():
    builder = TopologyBuilder("words")
    builder.set_spout("lines", FileSpout(WORDS), tasks=2)
    builder.set_bolt("split", Split(), tasks=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), tasks=2).fields_grouping("split", "word")
    builder.set_bolt("print", Print(), tasks=1).global_grouping("count")
    return builder.create_topology()
