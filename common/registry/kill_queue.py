"""`tasks_kill`: requests to workers to kill attempts, named as in contract §4.5."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from common.model.cluster import KillEntry
from common.registry.name_set import NameSet
from common.registry.session import Session

FOLDER = "tasks_kill"


class ZookeeperKillQueue:
    """The kill queue on ZooKeeper."""

    def __init__(self, session: Session) -> None:
        self._names = NameSet(session, FOLDER)

    def ask(self, entries: Sequence[KillEntry]) -> None:
        """Put requests in; one that is there already is left as it is."""
        self._names.add([entry.name for entry in entries])

    def asked(self, address: str) -> tuple[KillEntry, ...]:
        """The requests to the worker at exactly this address, by task instance id."""
        mine = [entry for entry in self._entries() if entry.address == address]
        return tuple(sorted(mine, key=lambda entry: entry.task_instance_id))

    def elsewhere(self, address: str) -> tuple[KillEntry, ...]:
        """The requests to workers at all other addresses, by task instance id."""
        others = [entry for entry in self._entries() if entry.address != address]
        return tuple(sorted(others, key=lambda entry: entry.task_instance_id))

    def remove(self, entries: Sequence[KillEntry]) -> None:
        """Take requests out once they have been met, or need not be."""
        self._names.remove([entry.name for entry in entries])

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after requests may have been added."""
        self._names.watch(changed)

    def _entries(self) -> Iterator[KillEntry]:
        entries = (KillEntry.parse(name) for name in self._names.names())
        return (entry for entry in entries if entry is not None)
