"""The current incarnation of this master, for loops that name an owner or need trust."""

from __future__ import annotations

from common.model.cluster import Node
from common.registry.protocol import Membership, Standing


class Identity:
    """The master's node; None between the loss of one incarnation and the next.

    One loop, the heartbeat, changes it; the others read it once a pass.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._node: Node | None = None

    @property
    def node(self) -> Node | None:
        """The incarnation that owns this master's runs."""
        return self._node

    def become(self, node: Node | None) -> None:
        """Switch to another incarnation, or to none."""
        self._node = node

    def trusted(self) -> Node | None:
        """Return the node if it may take new work now."""
        node = self._node
        return node if self._membership.standing_of(node) is Standing.TRUSTED else None
