"""The spouts of Orcaflow's own: lists, rates, files, datasets, topics of Kafka.

A spout can be read again by places, so what it holds has to stay: lines are appended to files and
never changed, segments of datasets are added. Standard library only, but for what a spout reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.topology.components import Outputs, Spout

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE: Final = 10_000


class ListSpout(Spout):
    """Emits what it was given, in so many partitions, and then nothing more. For tests."""

    def __init__(
        self, records: Iterable[Sequence[Any]], outputs: Outputs, *, partitions: int = 1
    ) -> None:
        self.outputs = outputs  # type: ignore[misc]  # Each object has its own.
        self._records = [tuple(each) for each in records]
        self._partitions = partitions

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        count = self._partitions
        return {str(each): len(self._records[each::count]) for each in range(count)}

    def read(self, partition: str, start: int, end: int) -> Iterable[tuple[Any, ...]]:
        return self._records[int(partition) :: self._partitions][start:end]


class RateSpout(Spout):
    """Emits the numbers from 0 on: so many a second, or all that fit into a batch.

    Partition p of n has p, p + n, p + 2n, … Without `rows_per_second` there are always more, up to
    `total` in all partitions together.
    """

    outputs = ("value long",)

    def __init__(
        self, rows_per_second: int | None = None, *, partitions: int = 1, total: int | None = None
    ) -> None:
        self._rate = rows_per_second
        self._partitions = partitions
        self._total = total
        self._begun: tuple[float, Mapping[str, int]] | None = None

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        if self._begun is None:
            self._begun = time.monotonic(), dict(begun)
        since, at_first = self._begun
        found = {}
        for place in range(self._partitions):
            name = str(place)
            end = begun.get(name, 0) + (1 << 40)
            if self._rate is not None:
                passed = (time.monotonic() - since) * self._rate / self._partitions
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


class FileSpout(Spout):
    """Emits the lines of the files of a folder, each file a partition, and what comes behind them.

    Lines are appended to files, and files are added; what was a line stays one. The last line of a
    file is emitted once it ends with a line feed. Lines are UTF-8.
    """

    outputs = ("line", "file")

    def __init__(self, folder: str, pattern: str = "*") -> None:
        self._folder = folder
        self._pattern = pattern
        self._known: dict[str, tuple[int, int]] = {}
        """The lines of each file that were counted, and the bytes that these have."""

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        folder = Path(self._folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {self._folder}")
        files = sorted(each for each in folder.glob(self._pattern) if each.is_file())
        return {each.name: self._count(each) for each in files}

    def read(self, partition: str, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        with (Path(self._folder) / partition).open("rb") as file:
            lines, place = self._known.get(partition, (0, 0))
            if lines > start:
                lines, place = 0, 0
            file.seek(place)
            for _ in range(start - lines):
                file.readline()
            for _ in range(end - start):
                line = file.readline()
                yield line.rstrip(b"\r\n").decode("utf-8", "replace"), partition
            # The next piece is nearly always the one behind this.
            self._known[partition] = (end, file.tell())

    def _count(self, path: Path) -> int:
        lines, place = self._known.get(path.name, (0, 0))
        with path.open("rb") as file:
            file.seek(place)
            for line in file:
                if line.endswith(b"\n"):
                    lines, place = lines + 1, place + len(line)
        self._known[path.name] = (lines, place)
        return lines
