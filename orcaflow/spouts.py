"""The spouts of Orcaflow's own: lists, rates, files.

A spout can be read again by places, so what it holds has to stay: lines are appended to files and
never changed. Standard library only, but for what a spout reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from common.topology.components import Outputs, Spout

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE: Final = 10_000
_BLOCK_BYTES: Final = 1 << 20


class ListSpout(Spout):
    """Emits what it was given, in so many partitions, and then nothing more. For tests."""

    def __init__(
        self, records: Iterable[Sequence[Any]], outputs: Outputs, *, partitions: int = 1
    ) -> None:
        self.outputs = outputs  # type: ignore[misc]  # Each object has its own.
        self._records = [tuple(each) for each in records]
        self._partitions = _positive("partitions", partitions)

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        count = self._partitions
        return {str(each): len(self._records[each::count]) for each in range(count)}

    def read(self, partition: str, start: int, end: int) -> Iterable[tuple[Any, ...]]:
        return self._records[int(partition) :: self._partitions][start:end]


class RateSpout(Spout):
    """Emits the numbers from 0 on: so many a second, or all that fit into a batch.

    Partition p of n has p, p + n, p + 2n, … Without `rows_per_second` there are always more, up to
    `total` in all partitions together. The measure goes on while the topology is inactive, and what
    has come together is emitted then.
    """

    outputs = ("value long",)

    def __init__(
        self,
        rows_per_second: int | None = None,
        *,
        partitions: int = 1,
        total: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if rows_per_second is not None:
            _positive("rows_per_second", rows_per_second)
        if total is not None and total < 0:
            raise ValueError(f"total must be 0 or more, not {total}")
        self._rate = rows_per_second
        self._partitions = _positive("partitions", partitions)
        self._total = total
        self._clock = clock
        self._begun: tuple[float, Mapping[str, int]] | None = None

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        if self._begun is None:
            self._begun = self._clock(), dict(begun)
        since, at_first = self._begun
        found = {}
        for place in range(self._partitions):
            name = str(place)
            end = begun.get(name, 0) + (1 << 40)
            if self._rate is not None:
                passed = (self._clock() - since) * self._rate / self._partitions
                end = at_first.get(name, 0) + int(passed)
            if self._total is not None:
                share = -(-(self._total - place) // self._partitions)
                end = min(end, max(share, 0))
            found[name] = end
        return found

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        place, step = int(partition), self._partitions
        for begin in range(start, end, _AT_ONCE):
            stop = min(begin + _AT_ONCE, end)
            numbers = pa.array(range(place + begin * step, place + stop * step, step), pa.int64())
            yield pa.RecordBatch.from_arrays([numbers], names=["value"])

    def close(self) -> None:
        self._begun = None  # Who goes on later has another measure.


class FileSpout(Spout):
    """Emits the lines of the files of a folder, each file a partition, and what comes behind them.

    Lines are appended to files, and files are added; what was a line stays one. The last line of a
    file is emitted once it ends with a line feed. Lines are UTF-8; other bytes become U+FFFD.

    `pattern` may lead into folders below (`**/*.log`), and `file` is the path in the folder. Files
    whose names begin with a point are left out: who writes a file in one go writes it under such a
    name, and renames it.

    A file that has lost lines is a trouble: the topology stands still until it has them again. One
    that is removed is forgotten, but it must not come back under its name with other lines.
    """

    outputs = ("line", "file")

    def __init__(self, folder: str, pattern: str = "*") -> None:
        self._folder = folder
        self._pattern = pattern
        self._known: dict[str, tuple[int, int]] = {}
        """Some of the first lines of each file, counted, and the bytes that these have."""

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        folder = Path(self._folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {self._folder}")
        found = {}
        for path in sorted(folder.glob(self._pattern)):
            if path.name.startswith(".") or not path.is_file():
                continue
            name = _in_utf_8(path.relative_to(folder))
            count = found[name] = self._count(name, path)
            if count < begun.get(name, 0):
                raise OSError(
                    f"{path} has {count} lines, and {begun[name]} of it have been read: lines are"
                    " appended, and new files have new names; bring back what it had, or remove it"
                )
        return found

    def read(self, partition: str, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        path = Path(self._folder) / partition
        with path.open("rb") as file:
            lines, place = self._known.get(partition, (0, 0))
            if lines > start:
                lines, place = 0, 0
            file.seek(place)
            for number in range(lines, end):
                line = file.readline()
                if not line.endswith(b"\n"):
                    raise OSError(f"line {number + 1} of {path} is gone, which was there before")
                if number >= start:
                    text = line[:-1].removesuffix(b"\r").decode("utf-8", "replace")
                    yield text, partition
            # The next piece is nearly always the one behind this.
            self._known[partition] = (end, file.tell())

    def _count(self, name: str, path: Path) -> int:
        lines, place = self._known.get(name, (0, 0))
        if path.stat().st_size < place:
            lines, place = 0, 0
        with path.open("rb") as file:
            file.seek(place)
            at = place
            # By blocks: a line without an end may be longer than memory.
            while block := file.read(_BLOCK_BYTES):
                if more := block.count(b"\n"):
                    lines, place = lines + more, at + block.rindex(b"\n") + 1
                at += len(block)
        self._known[name] = (lines, place)
        return lines


def _in_utf_8(path: PurePath) -> str:
    """Return the name of a file as a partition's; `OSError` if it can be none."""
    try:
        path.as_posix().encode()
    except UnicodeEncodeError:
        raise OSError(f"the name of the file {path.as_posix()!r} is not UTF-8: rename it") from None
    return path.as_posix()


def _positive(name: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{name} must be 1 or more, not {number}")
    return number
