"""Topologies for the code of their authors: components, groupings and the builder.

    from orcaflow.topology import Bolt, Spout, StatefulBolt, TopologyBuilder

`docs/topologies.md` tells how they are declared and tried out.
"""

from __future__ import annotations

from common.topology.checking import InvalidTopologyError
from common.topology.components import (
    DEFAULT,
    Batch,
    Bolt,
    Emit,
    EmitError,
    Record,
    Sink,
    Spout,
    StatefulBolt,
    Stream,
)
from common.topology.declaration import Topology, TopologyBuilder
from common.topology.groupings import Chooser
from common.topology.trial import On, Trial
from operations.topology_files import topology_of

__all__ = [
    "DEFAULT",
    "Batch",
    "Bolt",
    "Chooser",
    "Emit",
    "EmitError",
    "InvalidTopologyError",
    "On",
    "Record",
    "Sink",
    "Spout",
    "StatefulBolt",
    "Stream",
    "Topology",
    "TopologyBuilder",
    "Trial",
    "topology_of",
]
