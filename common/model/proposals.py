"""The life of a proposal: a definition's document that somebody else is asked to put in force."""

from __future__ import annotations

from enum import IntEnum


class ProposalState(IntEnum):
    """The state of a proposal; the values are those of `t_ds_definition_proposal.state`."""

    WAITING = 0
    APPROVED = 1
    REJECTED = 2
    WITHDRAWN = 3
    REPLACED = 4
    """Its author has proposed something else for the definition."""
