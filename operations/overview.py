"""Objects that need a person now, in the projects that the principal may see.

The console's overview, `orcaflow overview` and `/api/v1/overview` show this one answer. They report
that all is well only if it is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.clock import SystemClock
from common.model.concerns import Concern, ConcernKind
from common.model.topology_verdicts import Verdict
from common.store.people import concerns as store
from common.store.people.topologies import topologies
from operations.session import Session, operation
from operations.topology_views import TopologyLine, line_of

_clock = SystemClock()
_ORDER = {kind: place for place, kind in enumerate(ConcernKind)}
_BAD = (Verdict.TIMED_OUT.value, Verdict.DISALLOWED.value)


@operation
def overview(session: Session, *, limit: int) -> list[Concern]:
    """The concerns by kind, the newest first, `limit` of each kind at most; [] if all is well."""
    now = _clock.now()
    with session.engine.connect() as db:
        found = store.concerns(db, session.principal, now=now, limit=limit)
        lines = [
            line_of(view)
            for view in topologies(db, session.principal)
            if not view.wanted.killed and not view.starting
        ]
    found += _troubled(lines)[:limit]
    return sorted(found, key=lambda each: _ORDER[each.kind])


def _troubled(lines: Sequence[TopologyLine]) -> list[Concern]:
    return [
        Concern(
            kind=ConcernKind.TROUBLED_TOPOLOGY,
            name=line.name,
            project=line.project,
            since=line.updated,
            reason=line.reason or line.verdict,
        )
        for line in lines
        if line.reason or line.verdict in _BAD
    ]
