"""Decides which Connect servers there should be, and which server a waiting task gets.

Pure: it is given what the Spark host sees and the time, and returns decisions. It starts nothing
and asks no clock. Times are seconds of the monotonic clock.

Words: a *server* is one Spark Connect server, made for one *profile*; a *session* is a task's own
session in it. To *drain* a server is to give it no further session and to stop it after the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from common.spark_config import WITHOUT_A_TABLE
from worker.spark.session import sharing

_FAILURES_BEFORE_DRAIN = 2
_MOST_PYTHONS = 500
"""A Java machine keeps a thread for each Python that it ever started for a session's UDFs."""


class ServerState(Enum):
    """The stage of a server's life; one that has ended is none any more."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a profile's servers. `revision` is that of those that are started now."""

    revision: str
    max_sessions: int
    max_servers: int
    idle_timeout: float
    max_age: float
    max_memory_bytes: int = 0
    """0 is no limit."""
    kept: bool = False
    """One server is kept ready, used or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSeen:
    """A server as the host sees it now."""

    key: int
    profile: str
    revision: str
    state: ServerState
    started_at: float
    idle_since: float
    """The end of its last session, or the time it became ready; means nothing while it has any."""
    sessions: int = 0
    given: int = 0
    """Sessions that it has given so far, over or not."""
    memory_bytes: int = 0
    failures: int = 0
    """Health checks in a row that it has failed."""
    pythons: int = 0
    """Pythons that it has started so far; it keeps a thread for most of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A task that needs a session, in the order of their coming."""

    key: int
    profile: str


@dataclass(frozen=True, slots=True)
class StartServer:
    """Start a server for a profile."""

    profile: str


@dataclass(frozen=True, slots=True)
class GiveSession:
    """Start a waiting task with a session in this server."""

    waiting: int
    server: int


@dataclass(frozen=True, slots=True)
class DrainServer:
    """Give this server no further session."""

    server: int
    why: str


@dataclass(frozen=True, slots=True)
class StopServer:
    """End this server: it has no session."""

    server: int
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell a waiting task that it can't have a session."""

    waiting: int
    why: str


Decision: TypeAlias = StartServer | GiveSession | DrainServer | StopServer | Refuse


def decide(
    servers: Sequence[ServerSeen],
    waiting: Sequence[Waiting],
    profiles: Mapping[str, Limits],
    *,
    now: float,
) -> list[Decision]:
    """Return the decisions for now. Asked again after they were carried out, it returns none."""
    current = {server.key: server for server in servers}
    decisions: list[Decision] = [*_drain(current, profiles, now)]
    starting: dict[str, int] = {}
    for each in waiting:
        limits = profiles.get(each.profile)
        if limits is None:
            decisions.append(Refuse(each.key, _unknown(each.profile, profiles)))
            continue
        roomiest = _roomiest(current.values(), each.profile, limits)
        if roomiest is not None:
            decisions.append(GiveSession(each.key, roomiest.key))
            current[roomiest.key] = replace(
                roomiest, sessions=roomiest.sessions + 1, given=roomiest.given + 1
            )
        else:
            starting[each.profile] = starting.get(each.profile, 0) + 1
    # A first session has counted only now.
    decisions += _drain(current, profiles, now)
    for profile, limits in profiles.items():
        own = [s for s in current.values() if s.profile == profile]
        alive = [s for s in own if s.state is not ServerState.DRAINING]
        coming = sum(s.state is ServerState.STARTING for s in alive)
        needed = -(-starting.get(profile, 0) // limits.max_sessions)
        if limits.kept and not alive:
            needed = max(needed, 1)
        room = limits.max_servers - len(alive)
        decisions += [StartServer(profile)] * max(0, min(needed - coming, room))
        # One that is kept isn't idle as long as it is the last.
        spare = len(alive) - (1 if limits.kept else 0)
        for server in own:
            if server.sessions or server.state is ServerState.STARTING:
                continue
            if server.state is ServerState.DRAINING:
                decisions.append(StopServer(server.key, "drained"))
            elif spare > 0 and now - server.idle_since >= limits.idle_timeout:
                spare -= 1
                decisions.append(StopServer(server.key, "idle"))
    gone = (s for s in current.values() if s.profile not in profiles)
    decisions += [
        StopServer(s.key, "drained")
        for s in gone
        if not s.sessions and s.state is ServerState.DRAINING
    ]
    return decisions


def _drain(
    current: dict[int, ServerSeen], profiles: Mapping[str, Limits], now: float
) -> Iterator[DrainServer]:
    """Drain those of `current` that are worn out, there too."""
    for server in list(current.values()):
        why = _worn_out(server, profiles.get(server.profile), now)
        if why and server.state is not ServerState.DRAINING:
            current[server.key] = replace(server, state=ServerState.DRAINING)
            yield DrainServer(server.key, why)


def _worn_out(server: ServerSeen, limits: Limits | None, now: float) -> str:
    """Return the cause for which a server should be replaced; "" if there is none."""
    if limits is None:
        return "its profile is gone"
    if server.revision != limits.revision:
        return "its profile has changed"
    if server.state is ServerState.STARTING:
        return ""
    if server.failures >= _FAILURES_BEFORE_DRAIN:
        return f"it failed {server.failures} health checks in a row"
    if server.pythons >= _MOST_PYTHONS:
        return f"it has started {server.pythons} Pythons"
    if not server.given:
        # The next one would be no better: limits that none can keep to would start one for ever.
        return ""
    if now - server.started_at >= limits.max_age:
        return "it is old"
    if limits.max_memory_bytes and server.memory_bytes > limits.max_memory_bytes:
        return f"it uses {server.memory_bytes >> 20} MB"
    return ""


def _roomiest(servers: Iterable[ServerSeen], profile: str, limits: Limits) -> ServerSeen | None:
    fitting = [
        server
        for server in servers
        if server.profile == profile
        and server.state is ServerState.READY
        and server.sessions < limits.max_sessions
    ]
    return min(fitting, key=lambda server: (server.sessions, server.key), default=None)


def _unknown(profile: str, profiles: Mapping[str, Limits]) -> str:
    known = ", ".join(sorted(filter(sharing.is_profile, profiles))) or "none"
    others = ", ".join(WITHOUT_A_TABLE)
    return (
        f"this worker knows no Spark profile {profile[:40]!r}; it has {known}, {others};"
        " profiles stand in worker.toml as [spark.profiles.NAME]"
    )
