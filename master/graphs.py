"""Process graphs that this master has read, kept because many runs share one definition."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

from common.dag import Dag, select
from common.model.definitions import ProcessGraph, read_process_json
from common.model.states import TaskDependType
from common.task_types import known_task_types

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class GraphCache:
    """Reads definition JSON, and selections of it, at most once while they are in use.

    Used by the command loop and by the run worker; a race between them costs a second reading and
    nothing else, since what is kept never changes.
    """

    def __init__(self, *, size: int = 256) -> None:
        self._size = size
        self._graphs: OrderedDict[str, ProcessGraph] = OrderedDict()
        self._selections: OrderedDict[tuple[str, tuple[str, ...], TaskDependType], Dag] = (
            OrderedDict()
        )

    def graph(self, text: str) -> ProcessGraph:
        """The graph of `process_definition_json`; raises `InvalidDefinitionError`."""
        known = self._graphs.get(text)
        if known is None:
            known = read_process_json(text, task_types=known_task_types())
            _keep(self._graphs, text, known, self._size)
        return known

    def selection(self, text: str, start: tuple[str, ...], mode: TaskDependType) -> Dag:
        """The part of the graph's DAG that a command selects."""
        key = (text, start, mode)
        known = self._selections.get(key)
        if known is None:
            known = select(self.graph(text).dag, start, mode)
            _keep(self._selections, key, known, self._size)
        return known


def _keep(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value, size: int) -> None:
    kept[key] = value
    while len(kept) > size:
        kept.popitem(last=False)
