"""The ZooKeeper session that all requests of a server share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.shared_registry import SharedRegistry
from common.clock import Clock
from common.config import Config, ZookeeperConfig
from common.registry.config import RegistryConfig
from common.registry.protocol import RegistryUnavailableError
from tests.simulation.virtual_clock import VirtualClock

HERE = Config(zookeeper=ZookeeperConfig(hosts="127.0.0.1:1"))
ELSEWHERE = Config(zookeeper=ZookeeperConfig(hosts="127.0.0.1:2"))


class Opened:
    """A registry that knows if it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Opener:
    """Opens registries, or none while ZooKeeper is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.tries = 0
        self.made: list[Opened] = []

    def __call__(self, config: RegistryConfig, clock: Clock) -> Any:
        self.tries += 1
        if self.is_away:
            raise RegistryUnavailableError("away")
        self.made.append(Opened())
        return self.made[-1]


def test_one_session_is_lent_to_all_who_ask_until_the_server_ends() -> None:
    opener = Opener()
    shared = SharedRegistry(clock=VirtualClock(), open_=opener)
    with shared.lent(HERE) as first:
        pass
    with shared.lent(HERE) as second, shared.lent(HERE) as third:
        assert first is second is third
    assert opener.tries == 1
    with shared.lent(ELSEWHERE) as other:
        assert other is not first
    assert [each.is_closed for each in opener.made] == [True, False]
    shared.close()
    assert [each.is_closed for each in opener.made] == [True, True]


def test_while_zookeeper_is_away_one_request_tries_at_a_time_and_not_too_often() -> None:
    opener, clock = Opener(), VirtualClock()
    shared = SharedRegistry(clock=clock, open_=opener)
    opener.is_away = True
    for tries in (1, 1, 1):
        with pytest.raises(RegistryUnavailableError), shared.lent(HERE):
            pass
        assert opener.tries == tries
    clock.move_to(timedelta(seconds=2))
    opener.is_away = False
    with (
        shared.lent(HERE),
        pytest.raises(RegistryUnavailableError, match="another request"),
        shared.lent(HERE, patience=timedelta()),
    ):
        pass
    assert opener.tries == 2


def test_a_session_that_fails_is_lent_to_one_alone_until_it_answers_again() -> None:
    opener, clock = Opener(), VirtualClock()
    shared = SharedRegistry(clock=clock, open_=opener)
    with shared.lent(HERE):
        pass
    with pytest.raises(RegistryUnavailableError, match="broken"), shared.lent(HERE):
        raise RegistryUnavailableError("the connection is broken")
    with (
        shared.lent(HERE),
        pytest.raises(RegistryUnavailableError, match="another request"),
        shared.lent(HERE, patience=timedelta()),
    ):
        pass
    with shared.lent(HERE), shared.lent(HERE):
        pass
    assert opener.tries == 1
