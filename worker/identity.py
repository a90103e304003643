"""The worker's identity at the moment, for every loop that has to name itself in the tables."""

from __future__ import annotations

from common.model.cluster import Node


class Identity:
    """The worker's node; None before it has joined and between one incarnation and the next.

    One loop, the heartbeat, changes it; the others read it once a pass.
    """

    def __init__(self) -> None:
        self._node: Node | None = None

    @property
    def node(self) -> Node | None:
        """The incarnation that holds this worker's attempts."""
        return self._node

    def become(self, node: Node | None) -> None:
        """Be another incarnation, or none."""
        self._node = node
