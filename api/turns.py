"""Shares the server's processor between users, by the processor time that their requests take.

All requests share the interpreter's lock, and the size of what a request reads decides how long it
computes. The server can't know that in advance, so it measures it. A request needs a *turn*, and
the turns of a user are charged with the processor time of their threads while they last. A user who
has spent little has a few turns at a time. A user who has spent much has one, and waits for it
while other users are active. A new route needs no entry anywhere.

`api.heavy` limits the work that is known to be long. Plain reads of `api.lane` need no turn.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from fastapi import Request

from api.problems import TooManyError
from common.clock import Clock, processor_seconds

Result = TypeVar("Result")

TURNS_OF_A_USER: Final = 4
"""The turns at a time of a user who has spent little: fewer than the database's connections."""
_LONG_TURNS: Final = 2
"""The turns at a time of all users together who have spent much."""
_FREE_SECONDS: Final = 0.02
"""The part of each request that is not charged. `api.pace` limits short requests."""
_MUCH_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 4.0
"""A user who has spent this much waits while other users are active."""
_COUNTED_SECONDS: Final = 20.0
"""The limit of what is charged, so that one long request does not refuse the next for minutes."""
_SHARE: Final = 0.5
"""The processor seconds per second that are forgiven."""
_ACTIVE_SECONDS: Final = 10.0
MOST_WAITING: Final = 500
"""The requests of a user that wait. They hold a connection and no thread."""
LONGEST_WAIT_SECONDS: Final = 4.0
_CHECK_SECONDS: Final = 1.0
_RESERVED: Final = "has_reserved_turn"
_MANY_ACCOUNTS: Final = 1000


class NoTurnError(BaseException):
    """The request has to wait for a turn outside of its thread (`in_turns`).

    It is not an `Exception`, so that no handler answers it.
    """

    def __init__(self, user_id: int) -> None:
        super().__init__(user_id)
        self.user_id: Final = user_id


def turns_at_a_time(spent: float, *, is_shared: bool) -> int:
    """Return the number of turns of a user who has spent these processor seconds.

    `is_shared` is True if other users are active.
    """
    if spent < _MUCH_SECONDS:
        return TURNS_OF_A_USER
    return 0 if is_shared and spent >= _MOST_SECONDS else 1


def seconds_to_wait(spent: float) -> float:
    """Return the seconds until a user may have a turn, while other users are active."""
    return max(0.0, spent - _MOST_SECONDS) / _SHARE


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn in progress, with the processor time of its thread that is counted already."""

    thread: int
    counted: float
    free: float = _FREE_SECONDS


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits; `wake` may be called by any thread."""

    wake: Callable[[], object]
    until: float
    is_admitted: bool = False


@dataclass(slots=True)
class _Account:
    """The processor seconds of a user until `at`, with the turns and the queue of the user."""

    spent: float = 0.0
    at: float = 0.0
    active_at: float = -math.inf
    turns: list[_Turn] = field(default_factory=list)
    reserved: int = 0
    waiting: deque[_Waiter] = field(default_factory=deque)

    @property
    def running(self) -> int:
        """The turns that are held or reserved."""
        return len(self.turns) + self.reserved


class _Here(threading.local):
    """The turn of this thread."""

    held: tuple[Turns, _Account, _Turn] | None = None


_HERE: Final = _Here()


class Turns:
    """The turns of one server. Any thread may use it."""

    def __init__(
        self,
        *,
        clock: Clock,
        processor: Callable[[int], float] = processor_seconds,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        """`processor` returns the processor time of a thread of this process."""
        self._clock = clock
        self._processor = processor
        self._longest_wait = longest_wait_seconds
        self._lock = threading.Lock()
        self._accounts: dict[int, _Account] = {}
        self._waiting = 0

    @contextmanager
    def turn(self, user_id: int, *, is_reserved: bool = False) -> Iterator[None]:
        """Hold a turn in this thread; `NoTurnError` if the user has to wait for one.

        With `is_reserved` it is the turn that `reserve` has waited for.
        """
        thread = threading.get_ident()
        held = _Turn(thread, self._processor(thread))
        with self._lock:
            account = self._account_of(user_id)
            if is_reserved:
                account.reserved -= 1
            elif account.waiting or not self._may_begin(account):
                raise NoTurnError(user_id)
            account.turns.append(held)
        _HERE.held = (self, account, held)
        try:
            yield
        finally:
            _HERE.held = None
            self.leave(account, held)

    @contextmanager
    def waited_turn(self, user_id: int) -> Iterator[None]:
        """Wait in this thread, and hold a turn; `TooManyError` after the longest wait."""
        try:
            with self.turn(user_id):
                yield
            return
        except NoTurnError:
            pass
        event = threading.Event()
        waiter = self._enqueue(user_id, event.set)
        try:
            while (pause := self._pause_of(user_id, waiter, is_over=False)) is not None:
                event.wait(pause)
        except BaseException:
            self._dequeue(user_id, waiter)
            raise
        with self.turn(user_id, is_reserved=True):
            yield

    async def reserve(self, user_id: int, is_over: Callable[[], bool]) -> None:
        """Wait until a turn is reserved for the user; `TooManyError` after the longest wait.

        The wait also ends once `is_over` returns True: the client no longer waits.
        """
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        waiter = self._enqueue(user_id, lambda: loop.call_soon_threadsafe(event.set))
        try:
            while (pause := self._pause_of(user_id, waiter, is_over=is_over())) is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), pause)
            if is_over():
                raise self._refusal_of(user_id)
        except BaseException:
            self._dequeue(user_id, waiter)
            raise

    def release(self, user_id: int) -> None:
        """Release a reserved turn that was not used."""
        with self._lock:
            self._accounts[user_id].reserved -= 1
            self._admit()

    def _enqueue(self, user_id: int, wake: Callable[[], object]) -> _Waiter:
        with self._lock:
            account = self._account_of(user_id)
            if len(account.waiting) >= MOST_WAITING:
                raise self._refusal(account)
            waiter = _Waiter(wake, self._clock.monotonic() + self._longest_wait)
            account.waiting.append(waiter)
            self._waiting += 1
        return waiter

    def _dequeue(self, user_id: int, waiter: _Waiter) -> None:
        with self._lock:
            account = self._accounts[user_id]
            if waiter.is_admitted:
                account.reserved -= 1
            else:
                account.waiting.remove(waiter)
                self._waiting -= 1
            self._admit()

    def _pause_of(self, user_id: int, waiter: _Waiter, *, is_over: bool) -> float | None:
        """Return the seconds until the next check; None if the waiter has a turn."""
        with self._lock:
            self._admit()
            if waiter.is_admitted:
                return None
            account = self._accounts[user_id]
            left = waiter.until - self._clock.monotonic()
            if is_over or left <= 0:
                raise self._refusal(account)
            return min(left, max(seconds_to_wait(account.spent), _CHECK_SECONDS))

    def _refusal_of(self, user_id: int) -> TooManyError:
        with self._lock:
            return self._refusal(self._accounts[user_id])

    def _refusal(self, account: _Account) -> TooManyError:
        self._settle(account)
        return TooManyError(
            "your requests exceed your share of the server's processor; send fewer at a time, and"
            " try again",
            retry_after=max(1, math.ceil(seconds_to_wait(account.spent))),
        )

    def leave(self, account: _Account, held: _Turn) -> None:
        """Charge a turn, and release it."""
        with self._lock:
            self._settle(account)
            account.turns.remove(held)
            self._admit()

    def rejoin(self, account: _Account, held: _Turn) -> None:
        """Take a turn that was left, without a wait; what its thread did meanwhile is free."""
        with self._lock:
            held.counted = self._processor(held.thread)
            account.turns.append(held)

    def _admit(self) -> None:
        """Reserve turns for waiters; the users who have spent least come first."""
        if not self._waiting:
            return
        queued = [each for each in self._accounts.values() if each.waiting]
        for account in queued:
            self._settle(account)
        for account in sorted(queued, key=lambda each: each.spent):
            while account.waiting and self._may_begin(account):
                waiter = account.waiting.popleft()
                self._waiting -= 1
                waiter.is_admitted = True
                account.reserved += 1
                with suppress(RuntimeError):  # The loop of the waiter is closed.
                    waiter.wake()

    def _may_begin(self, account: _Account) -> bool:
        self._settle(account)
        if account.spent < _MUCH_SECONDS:
            return account.running < TURNS_OF_A_USER
        now = self._clock.monotonic()
        others = [each for each in self._accounts.values() if each is not account]
        is_shared = any(now - each.active_at < _ACTIVE_SECONDS for each in others)
        if account.running >= turns_at_a_time(account.spent, is_shared=is_shared):
            return False
        running = [each for each in others if each.running]
        for each in running:
            self._settle(each)
        return sum(each.running for each in running if each.spent >= _MUCH_SECONDS) < _LONG_TURNS

    def _settle(self, account: _Account) -> None:
        """Count the processor time of the turns in progress, and forgive what is due."""
        now = self._clock.monotonic()
        account.spent = max(0.0, account.spent - (now - account.at) * _SHARE)
        account.at = now
        for each in account.turns:
            total = self._processor(each.thread)
            taken = total - each.counted
            free = min(each.free, taken)
            each.counted, each.free = total, each.free - free
            account.spent += taken - free
        account.spent = min(account.spent, _COUNTED_SECONDS)

    def _account_of(self, user_id: int) -> _Account:
        """Return the account of a user who is active now."""
        now = self._clock.monotonic()
        account = self._accounts.get(user_id)
        if account is None:
            if len(self._accounts) >= _MANY_ACCOUNTS:
                self._forget(now)
            account = self._accounts[user_id] = _Account(at=now)
        account.active_at = now
        return account

    def _forget(self, now: float) -> None:
        longest = _COUNTED_SECONDS / _SHARE
        self._accounts = {
            user: each
            for user, each in self._accounts.items()
            if each.running or each.waiting or now - each.active_at < longest
        }


@contextmanager
def aside() -> Iterator[None]:
    """Release the turn of this thread while it waits; other requests of the user may use it."""
    held, _HERE.held = _HERE.held, None
    if held is None:
        yield
        return
    turns, account, turn = held
    turns.leave(account, turn)
    try:
        yield
    finally:
        turns.rejoin(account, turn)
        _HERE.held = held


def turn_of(request: Request, user_id: int) -> AbstractContextManager[None]:
    """Hold a turn for a request of a user; `NoTurnError` if the request has to wait for one."""
    turns: Turns = request.app.state.turns
    is_reserved = request.scope["state"].pop(_RESERVED, False)
    return turns.turn(user_id, is_reserved=is_reserved)


async def in_turns(request: Request, serve: Callable[[], Awaitable[Result]]) -> Result:
    """Serve a request whose work holds turns (`turn_of`), and serve it again after each wait.

    `TooManyError` if the wait takes too long. What `serve` does before a turn must be repeatable.
    """
    turns: Turns = request.app.state.turns
    state = request.scope["state"]
    user_id = None
    try:
        while True:
            try:
                return await serve()
            except NoTurnError as error:
                user_id = error.user_id
            state["more_seconds"] = LONGEST_WAIT_SECONDS
            await turns.reserve(user_id, lambda: bool(state.get("is_over")))
            state[_RESERVED] = True
    finally:
        if user_id is not None and state.pop(_RESERVED, False):
            turns.release(user_id)
