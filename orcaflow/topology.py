"""Topologies for the code of their authors: components, groupings and the builder.

    from orcaflow.topology import Bolt, Spout, StatefulBolt, TopologyBuilder

`docs/topologies.md` tells how they are declared and tried out.
"""

from __future__ import annotations

from common.topology.checking import InvalidTopologyError
from common.topology.components import (
    DEFAULT,
    FORGET,
    ArrowBolt,
    Batch,
    Bolt,
    Emit,
    EmitError,
    EmitRows,
    Record,
    Rows,
    Sink,
    Spout,
    StatefulBolt,
    Stream,
)
from common.topology.declaration import Topology, TopologyBuilder
from common.topology.groupings import Chooser
from common.topology.trial import On, Trial
from common.topology_files import topology_of

__all__ = [
    "DEFAULT",
    "FORGET",
    "ArrowBolt",
    "Batch",
    "Bolt",
    "Chooser",
    "Emit",
    "EmitError",
    "EmitRows",
    "InvalidTopologyError",
    "On",
    "Record",
    "Rows",
    "Sink",
    "Spout",
    "StatefulBolt",
    "Stream",
    "Topology",
    "TopologyBuilder",
    "Trial",
    "topology_of",
]
