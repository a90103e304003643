"""Living daemons as documents: the fields of `orcaflow server list -o json`."""

from __future__ import annotations

from operations.members import MemberHealth


def member_row(found: MemberHealth) -> dict[str, object]:
    """A member with its last heartbeat and its offer; fields of one that can't be read are null."""
    member, beat, offer = found.member, found.member.beat, found.offer
    return {
        "kind": member.kind.name.lower(),
        "address": member.address,
        "incarnation": member.incarnation,
        "pid": beat and beat.pid,
        "cpu": beat and beat.cpu,
        "memory": beat and beat.memory,
        "load": beat and beat.load,
        "since": beat and beat.created,
        "beaten": beat and beat.beaten,
        "health": found.health,
        "reason": found.reason,
        "database_away": beat and beat.database_away,
        "groups": offer and list(offer.groups),
        "reserved": offer and offer.is_reserved,
        "slots": offer and offer.slots,
        "version": offer and offer.version,
    }
