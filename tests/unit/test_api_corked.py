"""Answers are sent in one piece."""

from __future__ import annotations

import asyncio
from typing import cast

from api.corked import CorkedTransport


class _Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def write(self, text: bytes) -> None:
        self.seen.append(text)

    def close(self) -> None:
        self.seen.append(b"(closed)")

    def is_closing(self) -> bool:
        return b"(closed)" in self.seen


def _seen(*texts: bytes, close: bool = False, turns: int = 1) -> list[list[bytes]]:
    """Return what is there after the writing, and after each turn of the loop."""

    async def written() -> list[list[bytes]]:
        wire = _Wire()
        corked = CorkedTransport(cast("asyncio.Transport", wire), asyncio.get_running_loop())
        for text in texts:
            corked.write(text)
        if close:
            corked.close()
            assert corked.is_closing()
        found = [list(wire.seen)]
        for _ in range(turns):
            await asyncio.sleep(0)
            found.append(list(wire.seen))
        return found

    return asyncio.run(written())


def test_a_head_and_its_body_are_sent_together_in_the_next_turn() -> None:
    assert _seen(b"head", b"body", turns=2) == [[], [b"headbody"], [b"headbody"]]


def test_nothing_is_lost_when_the_connection_is_closed() -> None:
    assert _seen(b"head", b"body", close=True) == [[b"headbody", b"(closed)"]] * 2


def test_a_large_text_is_not_held() -> None:
    large = b"x" * 70_000
    assert _seen(b"head", large, b"tail") == [[b"head" + large], [b"head" + large, b"tail"]]
