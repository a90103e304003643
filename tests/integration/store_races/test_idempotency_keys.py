"""Concurrent requests with one Idempotency-Key, and the same key from two users."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from sqlalchemy import Engine

from common.model.rights import DATABASE, Principal
from operations.repeating import Once, first_answer, keep_answer
from tests.integration.store_races.racing import until_blocked_or

ADA = replace(DATABASE, user_id=2, user_name="ada")
BOB = replace(DATABASE, user_id=3, user_name="bob")


def once(key: str) -> Once:
    return Once(key=key, request_sha256="0" * 64)


def answer(made: Engine, principal: Principal, key: str, makes: int) -> int:
    """Handle a request that creates object `makes`; return the first answer if it is repeated."""
    with made.begin() as db:
        known = first_answer(db, principal, once(key))
        if known is not None:
            return known
        keep_answer(db, principal, once(key), makes)
        return makes


def test_a_repetition_waits_for_the_first_request_and_returns_its_answer(
    here: Engine, there: Engine
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with here.begin() as first:
            assert first_answer(first, ADA, once("repeated")) is None
            second = pool.submit(answer, there, ADA, "repeated", 8)
            until_blocked_or(here, "there", second.done)
            # Without the lock the repeated request would have created 8 already.
            assert not second.done()
            keep_answer(first, ADA, once("repeated"), 7)
        assert second.result(timeout=30) == 7


def test_a_key_of_another_user_is_another_key(here: Engine, there: Engine) -> None:
    with ThreadPoolExecutor(1) as pool:
        with here.begin() as first:
            assert first_answer(first, ADA, once("shared")) is None
            keep_answer(first, ADA, once("shared"), 7)
            of_bob = pool.submit(answer, there, BOB, "shared", 8)
            # Ada's open transaction does not block Bob's request.
            assert wait([of_bob], timeout=30).done
            assert of_bob.result() == 8
        assert [answer(here, each, "shared", 9) for each in (ADA, BOB)] == [7, 8]
