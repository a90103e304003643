"""Finds the archive of Spark's classes as the JVM wants them in memory (class data sharing).

A JVM that maps it starts in half the time. The JVM refuses an archive unless its class path begins
with that of the archive, jar by jar, and archives no class of a signed jar and none while the path
has a folder in it. So there are copies of the signed jars without their signatures, first in the
class path, and folders come last. An archive that does not fit, or isn't there, costs time and
nothing else. `worker/spark/jvm/cds_building.py` makes archives. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common import caches

_FORMAT = 2
"""The version of the archives' contents; another number has all archives made anew."""
FILE: Final = "classes.jsa"
LIBRARY: Final = "jars"
LEAST_BYTES: Final = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive and what has to be first in the class path of a JVM that uses it."""

    file: Path
    first_jars: tuple[str, ...]

    def flags(self) -> list[str]:
        """Return the JVM's options. It silently goes on without an archive that does not fit."""
        return [f"-XX:SharedArchiveFile={self.file}", "-Xshare:auto", "-Xlog:cds*=off"]


def find(home: str, java: str) -> Archive | None:
    """Return the archive of an installation for a Java; None if it has not been made yet."""
    key = key_of(home, java)
    for place in caches.folders(home):
        file = place / key / FILE
        try:
            if file.stat().st_size < LEAST_BYTES:
                continue
        except OSError:
            continue
        if all(caches.is_trusted(each, home) for each in (place, file.parent, file)):
            return Archive(file=file, first_jars=first_jars(file.parent))
    return None


def class_path(
    home: str, given: Sequence[str], found: Archive | None, environment: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return the class path as the archive needs it, its own jars first; None if it can't be had.

    Spark's own folders of settings go to the end: what they hold is in no jar.
    """
    if found is None:
        return None
    names = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
    settings = {environment[name].rstrip("/") for name in names if environment.get(name)}
    moved = [each for each in given if each.rstrip("/") in settings]
    kept = [each for each in given if each.rstrip("/") not in settings]
    jars = f"{home}/jars/"
    if not kept or not kept[0].startswith(jars):
        return None  # An author's own classes come before Spark's.
    return (*found.first_jars, *kept, *moved)


def key_of(home: str, java: str) -> str:
    """Return a name that changes with the installation, its jars, and the Java."""
    real = Path(java).resolve()
    runtime = real.parent.parent
    about = [
        _FORMAT,
        str(Path(home).absolute()),
        jars_of(home),
        str(real),
        [_stamp(runtime / name) for name in ("release", "lib/server/libjvm.so")],
        [_stamp(runtime / "lib/server" / name) for name in ("classes.jsa", "classes_nocoops.jsa")],
    ]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


def jars_of(home: str) -> list[tuple[str, int, int]]:
    """Return all jars with their sizes and times."""
    try:
        with os.scandir(f"{home}/jars") as entries:
            found = [(each.name, each.stat()) for each in entries]
    except OSError:
        return []
    return sorted((name, about.st_size, about.st_mtime_ns) for name, about in found)


def _stamp(path: Path) -> list[int]:
    try:
        about = path.stat()
    except OSError:
        return []
    return [about.st_size, about.st_mtime_ns]


def first_jars(folder: Path) -> tuple[str, ...]:
    """Return the jars that have to come first in a class path, of the archive in a folder."""
    try:
        return tuple(sorted(str(each) for each in (folder / LIBRARY).iterdir()))
    except OSError:
        return ()
