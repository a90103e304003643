"""`workerbeats/<topology>/<address>`: the heartbeats of workers that run topologies, as Storm's.

For people: nothing is decided by them. They are ephemeral, and written without waiting, since they
are on the way of a task's reports.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from common.registry.protocol import RegistryUnavailableError
from common.registry.session import Session

FOLDER: Final = "workerbeats"


class ZookeeperWorkerBeats:
    """The heartbeats on ZooKeeper."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = Lock()
        self._kept: dict[str, bytes] = {}
        """The beats that are not taken back, by their paths."""

    def put_soon(self, topology: str, address: str, text: str) -> None:
        """Write a beat; if it is lost, the next one is there soon."""
        path = self._session.path(FOLDER, topology, address)
        with self._lock:
            self._kept[path] = text.encode()

        def answered(request: Any) -> None:
            if isinstance(request.exception, NoNodeError):
                self._create(path)

        with suppress(RegistryUnavailableError), self._session.asking() as client:
            client.set_async(path, text.encode()).rawlink(answered)

    def remove_soon(self, topology: str, address: str) -> None:
        """Take a beat back; repeated until it is sure, as long as the session lasts."""
        path = self._session.path(FOLDER, topology, address)
        with self._lock:
            self._kept.pop(path, None)
        self._session.take_back(path)
        # The last one takes the folder along; where others are, ZooKeeper refuses.
        self._session.delete_soon([self._session.path(FOLDER, topology)])

    def beats(self, topology: str) -> dict[str, str]:
        """Return the beats of a topology by the addresses of its workers."""
        folder = self._session.path(FOLDER, topology)
        found = {}
        with self._session.asking() as client:
            try:
                names = sorted(self._session.answer(client.get_children_async(folder)))
            except NoNodeError:
                return {}
            asked = {name: client.get_async(f"{folder}/{name}") for name in names}
            for name, pending in asked.items():
                with suppress(NoNodeError):
                    text, _ = self._session.answer(pending)
                    found[name] = text.decode("utf-8", "replace")
        return found

    def _create(self, path: str) -> None:
        """Create a beat that is not there, on kazoo's thread."""
        with self._lock:
            text = self._kept.get(path)
        if text is None:
            return

        def answered(_: Any) -> None:
            with self._lock:
                is_kept = path in self._kept
            if not is_kept:
                self._session.take_back(path)  # It was taken back before it was there.

        with suppress(RegistryUnavailableError), self._session.asking() as client:
            client.create_async(path, text, ephemeral=True, makepath=True).rawlink(answered)
