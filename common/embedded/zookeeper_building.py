"""Makes the archive of ZooKeeper's classes for this installation and this Java, once.

    python -m common.embedded.zookeeper_building

It is written by a server of its own, in a folder that is removed, when that ends after a client has
been served. Whoever finds another one at it leaves it to that.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Final

from common import caches
from common.embedded.zookeeper import EmbeddedZookeeper, find_java, jars_of_zookeeper
from common.embedded.zookeeper_classes import LEAST_BYTES, find, installation_of, name_of
from common.errors import SchedulerError

_KEPT: Final = 3
_PATIENCE: Final = timedelta(minutes=3)


def build() -> Path | None:
    """Make the archive, if there is none; None if it can't be had or another process is at it."""
    java, jars = find_java(), jars_of_zookeeper()
    place = caches.folder(installation_of(jars))
    if place is None:
        return None
    with (place / "zookeeper.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        found = find(java, jars)
        if found is None:
            found = _make(place, place / name_of(java, jars))
            _forget_old(place)
        return found


def _make(place: Path, file: Path) -> Path | None:
    with tempfile.TemporaryDirectory(prefix=".zookeeper-", dir=place) as folder:
        fresh = Path(folder, file.name)
        server = EmbeddedZookeeper(
            Path(folder, "home"),
            start_within=_PATIENCE,
            stop_within=_PATIENCE,
            jvm_options=(f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:cds*=off"),
        )
        try:
            # A start ends with the session of a client.
            server.start()
        finally:
            server.stop()
        if not fresh.exists() or fresh.stat().st_size < LEAST_BYTES:
            return None
        fresh.chmod(0o444)
        return fresh.rename(file)


def _forget_old(place: Path) -> None:
    """Remove what earlier jars or another Java have left, but for the last few."""
    made = sorted(place.glob("zookeeper-*.jsa"), key=lambda each: each.stat().st_mtime)
    for each in made[:-_KEPT]:
        each.unlink(missing_ok=True)


def main() -> int:
    """Make the archive, and print its place."""
    try:
        made = build()
    except (SchedulerError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{made or 'none was made'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
