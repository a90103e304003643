"""The Connect servers that should run, and the assignment of sessions to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.spark.host.pool import (
    DrainServer,
    GiveSession,
    Limits,
    Refuse,
    ServerSeen,
    ServerState,
    StartServer,
    StopServer,
    Waiting,
    decide,
)

LIMITS = Limits(revision="r1", max_sessions=2, max_servers=2, idle_timeout=600.0, max_age=3_600.0)
READY = ServerSeen(
    key=1,
    profile="default",
    revision="r1",
    state=ServerState.READY,
    started_at=0.0,
    idle_since=0.0,
)
STARTING = replace(READY, state=ServerState.STARTING)


def tasks(count: int, profile: str = "default") -> list[Waiting]:
    return [Waiting(key=100 + number, profile=profile) for number in range(count)]


def decided(
    servers: list[ServerSeen], waiting: list[Waiting], limits: Limits = LIMITS, now: float = 10.0
) -> list[object]:
    return list(decide(servers, waiting, {"default": limits}, now=now))


def test_the_first_task_of_a_profile_starts_its_server() -> None:
    assert decided([], tasks(1)) == [StartServer("default")]


def test_nothing_is_started_twice_for_those_who_wait_for_the_same_server() -> None:
    assert decided([STARTING], tasks(2)) == []


def test_more_tasks_than_one_server_carries_start_the_second() -> None:
    assert decided([STARTING], tasks(3)) == [StartServer("default")]


def test_when_all_servers_are_full_tasks_wait() -> None:
    full = [replace(READY, key=key, sessions=2) for key in (1, 2)]
    assert decided(full, tasks(1)) == []


def test_tasks_go_to_the_server_with_the_fewest_sessions() -> None:
    servers = [replace(READY, key=1, sessions=1), replace(READY, key=2)]
    assert decided(servers, tasks(2)) == [GiveSession(100, 2), GiveSession(101, 1)]


def test_a_task_whose_profile_is_unknown_is_told_which_there_are() -> None:
    [refused] = decided([], tasks(1, "big"))
    assert isinstance(refused, Refuse)
    assert "'big'" in refused.why
    assert "default, classic, connect" in refused.why


def test_a_server_is_stopped_when_it_was_idle_long_enough() -> None:
    assert decided([READY], [], now=599.0) == []
    assert decided([READY], [], now=600.0) == [StopServer(1, "idle")]


def test_a_server_with_a_session_is_not_idle_however_old_that_is() -> None:
    assert decided([replace(READY, sessions=1)], [], now=3_000.0) == []


def test_a_kept_profile_has_its_server_before_anybody_asks_and_never_loses_the_last() -> None:
    kept = replace(LIMITS, kept=True)
    assert decided([], [], kept) == [StartServer("default")]
    assert decided([READY], [], kept, now=2_000.0) == []
    two = [READY, replace(READY, key=2)]
    assert decided(two, [], kept, now=2_000.0) == [StopServer(1, "idle")]


WORN_OUT = [
    pytest.param({"revision": "r0"}, "changed", id="the profile has changed"),
    pytest.param({"started_at": -3_600.0}, "old", id="age"),
    pytest.param({"memory_bytes": 3 << 30}, "3072 MB", id="memory"),
    pytest.param({"failures": 2}, "health checks", id="health"),
    pytest.param({"pythons": 500}, "Pythons", id="Pythons"),
]


@pytest.mark.parametrize(("worn", "why"), WORN_OUT)
def test_a_worn_out_server_gets_no_session_and_another_takes_its_place(
    worn: dict[str, object], why: str
) -> None:
    server = replace(READY, sessions=1, given=1, **worn)  # type: ignore[arg-type]
    limits = replace(LIMITS, max_memory_bytes=2 << 30)
    drain, start = decided([server], tasks(1), limits)
    assert isinstance(drain, DrainServer)
    assert why in drain.why
    assert start == StartServer("default")


STRICT = replace(LIMITS, max_memory_bytes=1, max_age=1.0)
"""No server could satisfy that."""


def test_a_server_beyond_its_limits_from_the_start_is_kept_until_it_has_given_a_session() -> None:
    large = replace(READY, memory_bytes=1 << 30)
    assert decided([large], [], replace(STRICT, kept=True)) == []
    give, drain = decided([large], tasks(1), STRICT)
    assert give == GiveSession(100, 1)
    assert isinstance(drain, DrainServer)


def test_all_who_wait_get_a_session_of_a_server_that_is_beyond_its_limits_by_then() -> None:
    give, another, drain = decided([replace(READY, memory_bytes=2)], tasks(2), STRICT)
    assert (give, another) == (GiveSession(100, 1), GiveSession(101, 1))
    assert isinstance(drain, DrainServer)


def test_a_drained_server_is_stopped_after_its_last_session() -> None:
    drained = replace(READY, state=ServerState.DRAINING, sessions=1)
    assert decided([drained], []) == []
    assert decided([replace(drained, sessions=0)], []) == [StopServer(1, "drained")]


def test_a_server_whose_profile_is_gone_is_drained_and_stopped() -> None:
    lost = replace(READY, profile="old")
    drain, stop = decide([lost], [], {}, now=1.0)
    assert isinstance(drain, DrainServer)
    assert stop == StopServer(1, "drained")


states = st.sampled_from(list(ServerState))
servers_seen = st.lists(
    st.builds(
        ServerSeen,
        key=st.integers(1, 99),
        profile=st.sampled_from(["default", "other"]),
        revision=st.sampled_from(["r1", "r0"]),
        state=states,
        started_at=st.floats(0, 5_000),
        idle_since=st.floats(0, 5_000),
        sessions=st.integers(0, 2),
        given=st.integers(0, 3),
        failures=st.integers(0, 3),
    ),
    max_size=5,
    unique_by=lambda server: server.key,
)


@given(
    servers=servers_seen,
    waiting=st.lists(st.sampled_from(["default", "other", "none"]), max_size=8),
    now=st.floats(5_000, 9_000),
)
def test_whatever_is_seen_no_server_gets_too_much_and_done_decisions_are_not_made_again(
    servers: list[ServerSeen], waiting: list[str], now: float
) -> None:
    profiles = {"default": LIMITS, "other": replace(LIMITS, kept=True)}
    asked = [Waiting(key=100 + number, profile=name) for number, name in enumerate(waiting)]
    decisions = decide(servers, asked, profiles, now=now)
    after = {server.key: server for server in servers}
    left = {task.key: task for task in asked}
    for number, decision in enumerate(decisions):
        match decision:
            case GiveSession(key, server):
                assert after[server].state is ServerState.READY
                assert after[server].profile == left.pop(key).profile
                had_before = after[server]
                after[server] = replace(
                    had_before, sessions=had_before.sessions + 1, given=had_before.given + 1
                )
                assert after[server].sessions <= LIMITS.max_sessions
            case StartServer(profile):
                fresh = replace(STARTING, key=1_000 + number, profile=profile, started_at=now)
                after[fresh.key] = fresh
            case DrainServer(server, _):
                after[server] = replace(after[server], state=ServerState.DRAINING)
            case StopServer(server, _):
                assert after[server].sessions == 0
                del after[server]
            case Refuse(key, _):
                assert left.pop(key).profile not in profiles
    for name in profiles:
        alive = [
            server
            for server in after.values()
            if server.profile == name and server.state is not ServerState.DRAINING
        ]
        had = [s for s in servers if s.profile == name and s.state is not ServerState.DRAINING]
        assert len(alive) <= max(LIMITS.max_servers, len(had))
    assert decide(list(after.values()), list(left.values()), profiles, now=now) == []
