"""The names of what lies in a store of logs; they tell all that is known of a log. Pure.

    <url>/<cluster>/<process instance>/<task instance>/<start>-<length>-<digest>[.last]

A log is kept as blocks, each whole or not there. The one that still grows is replaced by a longer
one; the name of the last one of an ended log says so. Two that begin at one place are the traces of
a writer that was killed in between: the last one counts, else the longer one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BLOCK_BYTES: Final = 4 * 1024 * 1024

_NAME: Final = re.compile(r"([0-9]{15})-([0-9]{1,8})-([0-9a-f]{32})(\.last)?")


@dataclass(frozen=True, slots=True)
class Block:
    """Some bytes of a log; `is_last`: the log has ended with them."""

    start: int
    length: int
    digest: str
    is_last: bool = False

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.start + self.length

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.start:015d}-{self.length}-{self.digest}{'.last' if self.is_last else ''}"


def block_of(body: bytes, *, start: int, is_last: bool) -> Block:
    """Return the block that holds these bytes."""
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    return Block(start, len(body), digest, is_last)


def read_name(name: str) -> Block | None:
    """Return the block of a name; None if it is no block's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    start, length, digest, last = found.groups()
    return Block(int(start), int(length), digest, last is not None)


def readable(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks that make up a log, from its beginning without a gap."""
    best: dict[int, Block] = {}
    for each in blocks:
        other = best.get(each.start)
        if other is None or (each.is_last, each.length) > (other.is_last, other.length):
            best[each.start] = each
    chain: list[Block] = []
    end = 0
    while (found := best.get(end)) is not None:
        chain.append(found)
        end = found.end
        if found.is_last or not found.length:
            break
    return chain
