"""Pieces of a task's log, and a log read as text by them, wherever it is.

A *source* hands out pieces: some bytes from an offset on, with the size that the log has then. The
file of this computer, a worker, the last words in the tables and a server of the API are sources.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

PIECE_BYTES: Final = 65_536
TAIL_BYTES: Final = 200_000
_FOLLOWING_WAIT_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a log, its size then, and the offset of the first of the bytes.

    The offset is behind the one that was asked for where the bytes between are out of reach.
    """

    body: bytes
    size: int
    start: int


class LogSource(Protocol):
    """A log by its offsets."""

    def piece(self, start: int, most: int, wait_seconds: int = 0) -> Piece:
        """Return at most so many bytes from an offset on; none there are an empty piece.

        With `wait_seconds` a source may take so long until there is something.
        """
        ...


class Log:
    """A log as text, read piece by piece from wherever its writer has got to."""

    def __init__(self, source: LogSource, *, waits: bool = False) -> None:
        """`waits`: `read` may take a second until there is something."""
        self._source: Final = source
        self._wait_seconds = _FOLLOWING_WAIT_SECONDS if waits else 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at = 0
        self._left_out = 0

    def read(self) -> str:
        """Return the text added since the last call, up to some size; "" if there is none."""
        return self._text(self._next(self._wait_seconds))

    def rest(self) -> Iterator[str]:
        """Yield everything up to the end, in pieces."""
        while (piece := self._next(0)).body:
            yield self._text(piece)
        yield self._decoder.decode(b"", final=True)

    def skip_to_last(self, lines: int) -> None:
        """Continue at the last lines, of which at most a fifth of a megabyte is kept."""
        found = last_piece(self._source, lines)
        # What is out of reach before them is told as one line more.
        is_all = found.start > 0 and len(found.body.splitlines()) < lines
        self._at = 0 if is_all and self._source.piece(0, 0).start == found.start else found.start

    def _next(self, wait_seconds: int) -> Piece:
        piece = self._source.piece(self._at, PIECE_BYTES, wait_seconds)
        # A log that grew too long is cut: what was read stands, and it goes on behind the cut.
        self._left_out = max(0, piece.start - self._at)
        self._at = min(max(self._at, piece.start), piece.size) + len(piece.body)
        return piece

    def _text(self, piece: Piece) -> str:
        note = ""
        if self._left_out:
            note = f"[orcaflow] … {self._left_out} bytes before this are out of reach …\n"
        return note + self._decoder.decode(piece.body)


def last_piece(source: LogSource, lines: int) -> Piece:
    """Return the last lines, of which at most a fifth of a megabyte is kept."""
    size = source.piece(0, 0).size
    start = max(0, size - TAIL_BYTES)
    tail = b""
    while len(tail) < TAIL_BYTES and start + len(tail) < size:
        piece = source.piece(start + len(tail), PIECE_BYTES)
        if not piece.body:
            break
        start = max(start, piece.start) if not tail else start
        tail += piece.body
    kept = b"".join(tail.splitlines(keepends=True)[-lines:]) if lines > 0 else b""
    return Piece(kept, size, start + len(tail) - len(kept))
