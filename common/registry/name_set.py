"""A folder of persistent znodes that consist of their names, with change notifications.

The folder's own znode is the *change-notification znode*: adding names writes it in the same
transaction, which fires the watches on it. So a watch costs the same however many names there are,
and removing names fires none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from common.registry.protocol import RegistryUnavailableError
from common.registry.session import Session, WatchKind

# Names in one request: far below the megabyte that a server takes.
_AT_ONCE = 500


class _Outcome(Enum):
    CREATED = "created"
    EXISTED = "existed"
    NO_FOLDER = "no folder"


class NameSet:
    """The names in one folder. Adding and removing are pipelined and idempotent."""

    def __init__(self, session: Session, folder: str) -> None:
        self._session = session
        self._folder = session.path(folder)
        self._changes_znode = self._folder

    def add(self, names: Sequence[str]) -> None:
        """Add names and notify watchers; a name that exists already is left as it is."""
        for first in range(0, len(names), _AT_ONCE):
            self._add(names[first : first + _AT_ONCE])

    def add_soon(self, names: Sequence[str], *, done: Callable[[bool], None]) -> None:
        """Add new names in one transaction without waiting; `done` learns whether all are there."""
        if len(names) > _AT_ONCE:
            done(False)
            return

        def answered(request: Any) -> None:
            done(request.exception is None and _outcome(request.value) is _Outcome.CREATED)

        try:
            with self._session.asking() as client:
                self._creation(client, names).rawlink(answered)
        except RegistryUnavailableError:
            done(False)

    def remove(self, names: Sequence[str]) -> None:
        """Remove names; a missing one is no error."""
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
        """Return all names, in no order."""
        with self._session.asking() as client:
            try:
                return list(self._session.answer(client.get_children_async(self._folder)))
            except NoNodeError:
                return []

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after names may have been added."""
        self._session.watch(self._changes_znode, WatchKind.NODE, changed)

    def path(self, name: str) -> str:
        """Return the path of a name."""
        return f"{self._folder}/{name}"

    def _add(self, names: Sequence[str]) -> None:
        with self._session.asking() as client:
            # Mostly all are new: then one transaction is enough, which is several times faster.
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
        """Create missing names one by one; return those that failed for want of the folder."""
        pending = [(name, self._creation(client, [name])) for name in names]
        outcomes = [(name, self._answered(request)) for name, request in pending]
        return [name for name, outcome in outcomes if outcome is _Outcome.NO_FOLDER]

    def _creation(self, client: KazooClient, names: Sequence[str]) -> Any:
        # One name goes as a transaction too: kazoo answers a plain `create` through another thread.
        transaction = client.transaction()
        for name in names:
            transaction.create(self.path(name), name.encode())
        transaction.set_data(self._changes_znode, b"")
        return transaction.commit_async()

    def _answered(self, request: Any) -> _Outcome:
        outcome = _outcome(self._session.answer(request))
        if isinstance(outcome, KazooException):
            raise outcome
        return outcome


def _outcome(results: Sequence[Any]) -> _Outcome | KazooException:
    """Read a transaction's answer."""
    if any(isinstance(result, NoNodeError) for result in results):
        return _Outcome.NO_FOLDER
    if any(isinstance(result, NodeExistsError) for result in results):
        return _Outcome.EXISTED
    for result in results:
        if isinstance(result, KazooException):
            return result
    return _Outcome.CREATED
