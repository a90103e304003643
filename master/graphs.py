"""Process graphs that this master has read, kept because many runs share one definition."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from threading import Lock

from common.dag import Dag, select
from common.model.definitions import ProcessGraph, read_process_json
from common.model.states import TaskDependType
from common.task_types import known_task_types

_Selection = tuple[tuple[str, ...], TaskDependType]


class GraphCache:
    """Keeps the graphs used last, with the selections made of each.

    `size_characters` bounds the definitions' texts, of which a graph is a small multiple. The
    command loop and the run worker share one cache; what they are given never changes.
    """

    def __init__(self, *, size_characters: int = 20_000_000) -> None:
        self._room = size_characters
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._lock = Lock()
        # One text is asked for several times in a row: it is hashed, all of it, for the first.
        self._last: tuple[str, _Kept] | None = None

    def graph(self, text: str) -> ProcessGraph:
        """Return the graph of `process_definition_json`; raises `InvalidDefinitionError`."""
        return self._find(text).graph

    def selection(self, text: str, start: tuple[str, ...], mode: TaskDependType) -> Dag:
        """Return the part of the graph's DAG that a command selects."""
        return self._find(text).selection(start, mode)

    def _find(self, text: str) -> _Kept:
        last = self._last
        if last is not None and last[0] is text:
            return last[1]
        found = self._look_up(text)
        self._last = text, found
        return found

    def _look_up(self, text: str) -> _Kept:
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        # Outside the lock: a large definition takes a while, and reading one twice does no harm.
        made = _Kept(read_process_json(text, task_types=known_task_types()), len(text))
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._room -= made.characters
            while self._room < 0 and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._room += oldest.characters
        return made


class _Kept:
    """A graph, with the selection that nearly every run shares: all of it."""

    def __init__(self, graph: ProcessGraph, characters: int) -> None:
        self.graph = graph
        self.characters = characters
        self._selections: dict[_Selection, Dag] = {}

    def selection(self, start: tuple[str, ...], mode: TaskDependType) -> Dag:
        known = self._selections.get((start, mode))
        if known is None:
            known = select(self.graph.dag, start, mode)
            if not start:
                self._selections[start, mode] = known
        return known
