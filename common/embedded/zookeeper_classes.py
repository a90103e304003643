"""Finds the archive of ZooKeeper's classes as the JVM wants them in memory (class data sharing).

A JVM that maps it starts with half of the processor time and takes a third less memory. It refuses
one that was written by another Java or with other jars, and goes on without it, silently: an
archive that does not fit, or isn't there, costs time and nothing else. With one that was cut off it
ends at once; then the server is started without, and the archive removed.
`common.embedded.zookeeper_building` makes it, once for an installation and a Java, in the
background of a start that found none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common import caches

LEAST_BYTES: Final = 1_000_000
"""The least size of an archive that was written to its end."""
_FORMAT: Final = "1"
"""The version of the archives' contents; another one has all archives made anew."""
_NICE: Final = "10"
_ROOT: Final = Path(__file__).resolve().parents[2]


def flags(archive: Path | None) -> list[str]:
    """Return the JVM's options for this archive; for none, those for Java's own classes alone."""
    if archive is None:
        return ["-Xshare:auto"]
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"]


def find(java: Path, jars: Sequence[Path]) -> Path | None:
    """Return the archive for this Java and these jars; None if it has not been made yet."""
    home = installation_of(jars)
    for place in caches.folders(home):
        file = place / name_of(java, jars)
        try:
            if file.stat().st_size < LEAST_BYTES:
                continue
        except OSError:
            continue
        if caches.is_trusted(place, home) and caches.is_trusted(file, home):
            return file
    return None


def installation_of(jars: Sequence[Path]) -> str:
    """Return the folder of PySpark, which the jars are in."""
    return str(jars[0].parent.parent)


def name_of(java: Path, jars: Sequence[Path]) -> str:
    """Return a file name that changes with the Java and with the jars."""
    runtime = java.resolve().parent.parent
    about = [_FORMAT, str(runtime)]
    for file in (runtime / "release", *jars):
        try:
            found = file.stat()
        except OSError:
            continue
        about.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    return f"zookeeper-{hashlib.sha256(chr(10).join(about).encode()).hexdigest()[:16]}.jsa"


def build_in_background(jars: Sequence[Path]) -> None:
    """Have a process make the archive that this one does not wait for, and that outlives it."""
    if caches.folder(installation_of(jars)) is None:
        return
    names = ("PATH", "HOME", "LANG", "JAVA_HOME", "ORCAFLOW_HOME", "XDG_CACHE_HOME")
    builder = ["nice", "-n", _NICE, sys.executable, "-P"]
    builder += ["-m", "common.embedded.zookeeper_building"]
    # The shell is gone at once, so the builder is nobody's child.
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *builder],
        check=False,
        env={
            **{name: os.environ[name] for name in names if name in os.environ},
            "PYTHONPATH": str(_ROOT),
        },
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
