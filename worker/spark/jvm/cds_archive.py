"""An archive of Spark's classes as the JVM wants them in memory (class data sharing).

A JVM that maps it starts in half the time. It is made once for an installation and a Java, by a JVM
that has run what tasks and servers usually run (`worker/spark/jvm/cds_training.py`), in the
background of whoever needed it first, or by

    python -m worker.spark.jvm.cds_archive

The JVM refuses an archive unless its class path begins with that of the archive, jar by jar, and
archives no class of a signed jar and none while the path has a folder in it. So there are copies
of the signed jars without their signatures, first in the class path, and folders come last. An
archive that does not fit, or isn't there, costs time and nothing else. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.spark.jvm import caches

_FORMAT = 1
"""Of what an archive is made of; another number makes all archives anew."""
_FILE: Final = "classes.jsa"
_LIBRARY: Final = "jars"
_LEAST_BYTES = 20_000_000
_KEPT = 3
_ROOT = Path(__file__).resolve().parents[3]
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)", re.IGNORECASE)
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_NICE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive and what has to be first in the class path of a JVM that uses it."""

    file: Path
    first_jars: tuple[str, ...]

    def flags(self) -> list[str]:
        """For the JVM. It goes on without the archive if that is not to its liking, silently."""
        return [f"-XX:SharedArchiveFile={self.file}", "-Xshare:auto", "-Xlog:cds*=off"]


def find(home: str, java: str) -> Archive | None:
    """The archive of an installation for a Java; None if it has not been made yet."""
    key = key_of(home, java)
    for place in caches.folders(home):
        file = place / key / _FILE
        try:
            if file.stat().st_size < _LEAST_BYTES:
                continue
        except OSError:
            continue
        if all(caches.is_trusted(each, home) for each in (place, file.parent, file)):
            return Archive(file=file, first_jars=_first_jars(file.parent))
    return None


def class_path(
    home: str, given: Sequence[str], found: Archive | None, environment: Mapping[str, str]
) -> tuple[str, ...] | None:
    """The class path as the archive needs it, None if it can't be had: its own jars come first.

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
    """A name that changes with the installation, its jars, and the Java."""
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
    """All jars with their sizes and times."""
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


def _first_jars(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(str(each) for each in (folder / _LIBRARY).iterdir()))
    except OSError:
        return ()


# Making one.


class CannotBuildError(Exception):
    """No archive could be made; the text says why. Everything works without it, but slower."""


def build(home: str, java: str, *, log: Path | None = None) -> Archive | None:
    """Make the archive, if there is none; None if somebody else is just making it.

    Takes half a minute and a core. Raises `CannotBuildError`.
    """
    place = caches.folder(home)
    if place is None:
        tried = ", ".join(str(each) for each in caches.folders(home))
        raise CannotBuildError(f"none of these can be written to: {tried}")
    key = key_of(home, java)
    with (place / f"{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        found = find(home, java)
        if found is None:
            _make(home, java, place / key, log)
            found = find(home, java)
        _forget_old(place, key)
    if found is None:
        raise CannotBuildError(f"what was made in {place} is no archive")
    return found


def build_in_background(home: str, java: str) -> None:
    """Have a process make the archive that this one does not wait for, and that outlives it."""
    if find(home, java) is not None or caches.folder(home) is None:
        return
    # Of its caller's environment only what says where things are: it is no part of any attempt.
    names = ("PATH", "HOME", "LANG", "JAVA_HOME", "SPARK_CONF_DIR", "ORCAFLOW_HOME")
    builder = [
        sys.executable,
        "-P",
        "-m",
        "worker.spark.jvm.cds_archive",
        "--home",
        home,
        "--java",
        java,
    ]
    # The shell is gone at once, so the builder is nobody's child: neither a driver that counts its
    # children nor one that never waits for them shall find it.
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


def _make(home: str, java: str, folder: Path, log: Path | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / _LIBRARY).mkdir(parents=True)
    copy_unsigned(Path(home, "jars"), folder / _LIBRARY)
    fresh = folder / f"{_FILE}.new"
    wanted = Archive(file=fresh, first_jars=_first_jars(folder))
    from worker.spark.jvm import cds_training

    try:
        cds_training.run(home, java, wanted, log=log)
        if not fresh.exists() or fresh.stat().st_size < _LEAST_BYTES:
            raise CannotBuildError("the JVM that was to write it has written none")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    fresh.chmod(0o444)
    fresh.rename(folder / _FILE)


def copy_unsigned(jars: Path, target: Path) -> None:
    """Copy the signed jars without their signatures."""
    for jar in sorted(jars.glob("*.jar")):
        with zipfile.ZipFile(jar) as source:
            entries = source.infolist()
            if not any(_SIGNATURE.fullmatch(entry.filename) for entry in entries):
                continue
            with zipfile.ZipFile(target / jar.name, "w", zipfile.ZIP_DEFLATED) as copy:
                for entry in entries:
                    if _SIGNATURE.fullmatch(entry.filename):
                        continue
                    content = source.read(entry)
                    if entry.filename == "META-INF/MANIFEST.MF":
                        # Behind its main part it has the digest of each file.
                        content = re.split(rb"\r?\n\r?\n", content)[0] + b"\n\n"
                    copy.writestr(zipfile.ZipInfo(entry.filename, _ZIP_EPOCH), content)


def _forget_old(place: Path, key: str) -> None:
    """Remove what an earlier Spark or Java has left, but for the last few."""
    made = sorted(place.glob(f"*/{_FILE}"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in made[_KEPT:]:
        if each.parent.name != key:
            shutil.rmtree(each.parent, ignore_errors=True)
            each.parent.with_suffix(".lock").unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Make the archive of an installation, if there is none."""
    from worker.spark.jvm.installation import home_of_spark
    from worker.spark.jvm.java_command import NoSparkError, java_of

    parser = argparse.ArgumentParser(
        prog="python -m worker.spark.jvm.cds_archive",
        description="Make the archive of Spark's classes that lets drivers and servers start fast.",
    )
    parser.add_argument("--home", default="", help="the installation of Spark")
    parser.add_argument("--java", default="", help="the java program that will use it")
    parser.add_argument("--log", type=Path, help="a file for what the JVM says")
    options = parser.parse_args(arguments)
    os.nice(_NICE)
    try:
        home = options.home or home_of_spark("", os.environ)
        found = build(home, options.java or java_of(os.environ), log=options.log)
    except (CannotBuildError, NoSparkError, OSError) as error:
        sys.stderr.write(f"no archive of Spark's classes was made: {error}\n")
        return 1
    where = "somebody else is just making it" if found is None else str(found.file)
    sys.stdout.write(f"{where}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
