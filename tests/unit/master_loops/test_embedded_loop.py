"""The loop that starts an embedded server again: its pauses, without a server."""

from __future__ import annotations

from common.errors import SchedulerError
from master.loops.embedded_loop import EmbeddedLoop
from tests.simulation.virtual_clock import VirtualClock


class Server:
    """A server that runs or is dead."""

    def __init__(self) -> None:
        self.is_dead = False
        self.is_broken = False
        self.starts = 0

    def revive(self) -> bool:
        if not self.is_dead:
            return False
        self.starts += 1
        if self.is_broken:
            raise SchedulerError("its port is taken")
        self.is_dead = False
        return True


class Place:
    """A loop, its server and its clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = Server()
        self.loop = EmbeddedLoop(self.server, title="ZooKeeper", clock=self.clock)

    def let_pass(self, seconds: float) -> None:
        """Run the loop for a time, with its rests."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.move_to(self.clock.elapsed + self.loop.run_once())


def test_a_dead_server_is_started_at_the_next_pass_and_a_living_one_is_left_alone() -> None:
    place = Place()
    place.let_pass(10)
    assert place.server.starts == 0
    place.server.is_dead = True
    place.loop.run_once()
    assert (place.server.starts, place.server.is_dead) == (1, False)


def test_starts_that_fail_are_tried_again_with_pauses_up_to_a_minute() -> None:
    place = Place()
    place.server.is_dead = place.server.is_broken = True
    place.let_pass(1)
    assert place.server.starts == 1
    place.let_pass(60)
    assert place.server.starts == 5  # After 2, 4, 8 and 16 seconds.
    place.let_pass(600)
    assert 13 <= place.server.starts <= 15


def test_a_server_that_dies_again_and_again_is_started_with_pauses() -> None:
    place = Place()
    for _ in range(20):
        place.server.is_dead = True
        place.let_pass(3)
    assert place.server.starts <= 6


def test_the_pause_is_short_again_after_a_minute_of_life() -> None:
    place = Place()
    for _ in range(3):
        place.server.is_dead = True
        place.let_pass(20)
    place.let_pass(120)
    for _ in range(2):
        before = place.server.starts
        place.server.is_dead = True
        place.let_pass(5)
        assert place.server.starts == before + 1
