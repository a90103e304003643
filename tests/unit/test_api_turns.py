"""The turns of users at the processor, by clocks that are set by hand."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from datetime import timedelta

import pytest

from api.problems import TooManyError
from api.turns import (
    LONGEST_WAIT_SECONDS,
    MOST_WAITING,
    TURNS_OF_A_USER,
    NoTurnError,
    Turns,
    aside,
    turns_at_a_time,
)
from tests.simulation.virtual_clock import VirtualClock

AMY, PAT, REX, ADA = 1, 2, 3, 4


class Server:
    """Turns, their clock, and the processor time of all threads."""

    def __init__(self, *, longest_wait_seconds: float = LONGEST_WAIT_SECONDS) -> None:
        self.clock = VirtualClock()
        self.processor = 0.0
        self.turns = Turns(
            clock=self.clock,
            processor=lambda _thread: self.processor,
            longest_wait_seconds=longest_wait_seconds,
        )

    def work(self, user: int, seconds: float) -> None:
        with self.turns.turn(user):
            self.processor += seconds

    def number_let_through(self, user: int, *, tries: int = 10) -> int:
        """Return the number of turns that the user gets at a time."""
        with ExitStack() as stack:
            for number in range(tries):
                try:
                    stack.enter_context(self.turns.turn(user))
                except NoTurnError:
                    return number
        return tries

    def move(self, seconds: float) -> None:
        self.clock.move_to(timedelta(seconds=self.clock.monotonic() + seconds))


def test_a_user_has_a_few_turns_and_others_have_theirs() -> None:
    server = Server()
    with ExitStack() as stack:
        for _ in range(TURNS_OF_A_USER):
            stack.enter_context(server.turns.turn(AMY))
        assert server.number_let_through(AMY) == 0
        assert server.number_let_through(PAT) == TURNS_OF_A_USER
    assert server.number_let_through(AMY) == TURNS_OF_A_USER


def test_short_requests_are_not_charged() -> None:
    server = Server()
    for _ in range(1000):
        server.work(AMY, 0.015)
    assert server.number_let_through(AMY) == TURNS_OF_A_USER


def test_a_long_request_counts_while_it_runs() -> None:
    server = Server()
    with server.turns.turn(AMY):
        assert server.number_let_through(AMY) == TURNS_OF_A_USER - 1
        server.processor += 1
        assert server.number_let_through(AMY) == 0
        assert server.number_let_through(PAT) == TURNS_OF_A_USER
    assert server.number_let_through(AMY) == 1


def test_a_user_who_has_spent_the_share_waits_only_while_others_are_active() -> None:
    server = Server()
    server.work(AMY, 6)
    assert server.number_let_through(AMY) == 1
    server.work(PAT, 0.001)
    assert server.number_let_through(AMY) == 0
    assert server.number_let_through(PAT) == TURNS_OF_A_USER
    server.move(3)  # Of 6 seconds 4.5 are left.
    assert server.number_let_through(AMY) == 0
    server.move(2)
    assert server.number_let_through(AMY) == 1
    server.move(20)
    assert server.number_let_through(AMY) == TURNS_OF_A_USER


def test_one_request_of_minutes_does_not_refuse_the_next_for_as_long() -> None:
    server = Server()
    server.work(AMY, 600)
    server.move(33)
    server.work(PAT, 0.001)
    assert server.number_let_through(AMY) == 1


def test_users_of_long_requests_share_two_turns() -> None:
    server = Server()
    for user in (AMY, PAT, REX):
        server.work(user, 1)
    with server.turns.turn(AMY), server.turns.turn(PAT):
        assert server.number_let_through(REX) == 0
        assert server.number_let_through(ADA) == TURNS_OF_A_USER
    assert server.number_let_through(REX) == 1


@pytest.mark.parametrize(
    ("spent", "alone", "shared"), [(0.0, 4, 4), (0.4, 4, 4), (0.6, 1, 1), (3.9, 1, 1), (4.1, 1, 0)]
)
def test_turns_become_fewer_with_what_is_spent(spent: float, alone: int, shared: int) -> None:
    assert turns_at_a_time(spent, is_shared=False) == alone
    assert turns_at_a_time(spent, is_shared=True) == shared


def test_a_thread_that_waits_gives_its_turn_away_meanwhile() -> None:
    server = Server()
    with ExitStack() as stack:
        for _ in range(TURNS_OF_A_USER):
            stack.enter_context(server.turns.turn(AMY))
        with aside():
            assert server.number_let_through(AMY) == 1
            server.processor += 5  # Of another request of the same thread.
        assert server.number_let_through(AMY) == 0


def test_outside_of_a_turn_there_is_nothing_to_give_away() -> None:
    with aside():
        pass


def test_users_wait_in_turn_and_who_has_spent_least_comes_first() -> None:
    server = Server()
    order: list[str] = []

    async def wait(user: int, name: str) -> None:
        await server.turns.reserve(user, lambda: False)
        with server.turns.turn(user, is_reserved=True):
            order.append(name)

    async def serve() -> None:
        server.work(PAT, 1)
        server.work(AMY, 3)
        with server.turns.turn(PAT), ExitStack() as first:
            first.enter_context(server.turns.turn(AMY))
            waiting = [
                asyncio.create_task(wait(user, name))
                for user, name in ((AMY, "amy 1"), (AMY, "amy 2"), (PAT, "pat 1"))
            ]
            await asyncio.sleep(0)
            with pytest.raises(NoTurnError):  # A new request doesn't overtake.
                server.work(AMY, 0)
            assert order == []
        await asyncio.gather(*waiting)

    asyncio.run(serve())
    assert sorted(order) == ["amy 1", "amy 2", "pat 1"]
    assert order.index("amy 1") < order.index("amy 2")
    assert server.number_let_through(PAT) == 1


def test_a_wait_ends_with_a_refusal_if_the_queue_is_full_or_the_client_is_gone() -> None:
    server = Server()

    async def serve() -> None:
        server.work(AMY, 10)
        server.work(PAT, 0.001)
        with pytest.raises(TooManyError) as refused:
            await server.turns.reserve(AMY, lambda: True)
        assert refused.value.retry_after == 12  # (10 - 4) / 0.5
        waiting = [
            asyncio.create_task(server.turns.reserve(AMY, lambda: False))
            for _ in range(MOST_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyError):
            await server.turns.reserve(AMY, lambda: False)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(serve())
    server.move(60)
    assert server.number_let_through(AMY) == TURNS_OF_A_USER


def test_a_request_without_a_client_does_not_use_the_turn_that_it_waited_for() -> None:
    server = Server()
    is_over = False

    async def serve() -> None:
        nonlocal is_over
        server.work(AMY, 1)
        with server.turns.turn(AMY):
            waiting = asyncio.create_task(server.turns.reserve(AMY, lambda: is_over))
            await asyncio.sleep(0)
            is_over = True
        with pytest.raises(TooManyError):
            await waiting

    asyncio.run(serve())
    assert server.number_let_through(AMY) == 1


def test_a_turn_that_a_cancelled_request_has_waited_for_is_given_to_the_next() -> None:
    server = Server()

    async def serve() -> None:
        server.work(AMY, 1)
        with server.turns.turn(AMY):
            first, second = (
                asyncio.create_task(server.turns.reserve(AMY, lambda: False)) for _ in range(2)
            )
            await asyncio.sleep(0)
        first.cancel()  # It has the turn, and has not noticed yet.
        await second
        server.turns.release(AMY)
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(serve())
    assert server.number_let_through(AMY) == 1


def test_a_thread_waits_for_its_turn() -> None:
    server = Server()
    served = threading.Event()

    def call() -> None:
        with server.turns.waited_turn(AMY):
            served.set()

    server.work(AMY, 1)
    with server.turns.turn(AMY):
        waiting = threading.Thread(target=call)
        waiting.start()
        while not server.turns._waiting:
            served.wait(0.001)
        assert not served.is_set()
    waiting.join()
    assert served.is_set()
    assert server.number_let_through(AMY) == 1


def test_a_thread_is_refused_after_the_longest_wait() -> None:
    server = Server(longest_wait_seconds=0)
    server.work(AMY, 10)
    with server.turns.waited_turn(AMY):
        pass
    server.work(PAT, 0.001)
    with pytest.raises(TooManyError), server.turns.waited_turn(AMY):
        pass
    server.move(100)
    assert server.number_let_through(AMY) == TURNS_OF_A_USER
