"""A folder of persistent znodes whose names say everything, and a bell.

The *bell* is the folder's own znode: whoever adds names writes it in the same transaction, and
watchers hear of that. So a watch costs the same however many names there are, and taking names out
wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from common.registry.session import Session, WatchKind

# Names in one request: far below the megabyte that a server takes.
_AT_ONCE = 500


class _Outcome(Enum):
    CREATED = "created"
    EXISTED = "existed"
    NO_FOLDER = "no folder"


class NameSet:
    """The names in one folder. Adding and taking out are pipelined and can be repeated."""

    def __init__(self, session: Session, folder: str) -> None:
        self._session = session
        self._folder = session.path(folder)

    def add(self, names: Sequence[str]) -> None:
        """Put names in and ring; a name that is there already is left as it is."""
        for first in range(0, len(names), _AT_ONCE):
            self._add(names[first : first + _AT_ONCE])

    def remove(self, names: Sequence[str]) -> None:
        """Take names out; one that is not there is no error."""
        for first in range(0, len(names), _AT_ONCE):
            with self._session.asking() as client:
                pending = [
                    client.delete_async(self.path(name)) for name in names[first : first + _AT_ONCE]
                ]
                for request in pending:
                    try:
                        self._session.answer(request)
                    except NoNodeError:
                        continue

    def names(self) -> list[str]:
        """All names, in no order."""
        with self._session.asking() as client:
            try:
                return list(self._session.answer(client.get_children_async(self._folder)))
            except NoNodeError:
                return []

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after names may have been added."""
        self._session.watch(self._folder, WatchKind.NODE, changed)

    def path(self, name: str) -> str:
        """Where a name stands."""
        return f"{self._folder}/{name}"

    def _add(self, names: Sequence[str]) -> None:
        with self._session.asking() as client:
            # As a rule all are new: then one transaction does it, which is several times faster.
            if self._answered(self._creation(client, names)) is _Outcome.CREATED:
                return
            missing = self._create_each(client, names)
            if missing:
                # The folder was never there, or was wiped.
                self._session.answer(client.ensure_path_async(self._folder))
                missing = self._create_each(client, missing)
        if missing:
            raise self._session.unavailable(f"{self._folder} is being wiped")

    def _create_each(self, client: KazooClient, names: Sequence[str]) -> list[str]:
        """Create what is not there, ringing for each; the names that had no folder to go to."""
        pending = [(name, self._creation(client, [name])) for name in names]
        outcomes = [(name, self._answered(request)) for name, request in pending]
        return [name for name, outcome in outcomes if outcome is _Outcome.NO_FOLDER]

    def _creation(self, client: KazooClient, names: Sequence[str]) -> Any:
        # One name goes as a transaction too: kazoo answers a plain `create` through another thread.
        transaction = client.transaction()
        for name in names:
            transaction.create(self.path(name), name.encode())
        transaction.set_data(self._folder, b"")
        return transaction.commit_async()

    def _answered(self, request: Any) -> _Outcome:
        results = self._session.answer(request)
        if any(isinstance(result, NoNodeError) for result in results):
            return _Outcome.NO_FOLDER
        if any(isinstance(result, NodeExistsError) for result in results):
            return _Outcome.EXISTED
        for result in results:
            if isinstance(result, KazooException):
                raise result
        return _Outcome.CREATED
