"""Makes the archive of Spark's classes for an installation and a Java, once.

It is written by a JVM that has run what tasks and servers usually run
(`worker/spark/jvm/cds_training.py`), in the background of whoever needed it first, or by

    python -m worker.spark.jvm.cds_building
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from common import caches
from worker.processes.marks import helper_line
from worker.spark.jvm import cds_training
from worker.spark.jvm.cds_archive import (
    FILE,
    LEAST_BYTES,
    LIBRARY,
    Archive,
    find,
    first_jars,
    key_of,
)
from worker.spark.jvm.installation import home_of_spark
from worker.spark.jvm.java_command import NoSparkError, java_of

_KEPT = 3
_ROOT = Path(__file__).resolve().parents[3]
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)", re.IGNORECASE)
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_NICE = 10


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
    """Have a process make the archive that this one does not wait for, and that outlives it.

    In an attempt that could not be outlived nothing is begun: its end would wait for the builder,
    and then kill it. The worker makes the archive for its first warm session.
    """
    if find(home, java) is not None or caches.folder(home) is None:
        return
    # Of its caller's environment only what says where things are: it is no part of any attempt.
    names = ("PATH", "HOME", "LANG", "JAVA_HOME", "SPARK_CONF_DIR", "ORCAFLOW_HOME")
    builder = [
        sys.executable,
        "-P",
        "-m",
        "worker.spark.jvm.cds_building",
        "--home",
        home,
        "--java",
        java,
    ]
    # The shell is gone at once, so the builder is nobody's child: neither a driver that counts its
    # children nor one that never waits for them shall find it.
    subprocess.run(
        # A daemon that becomes its parent by that reaps helpers, by their mark.
        ["/bin/sh", "-c", f'{helper_line()}"$@" &', "sh", *builder],
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
    (folder / LIBRARY).mkdir(parents=True)
    copy_unsigned(Path(home, "jars"), folder / LIBRARY)
    fresh = folder / f"{FILE}.new"
    wanted = Archive(file=fresh, first_jars=first_jars(folder))
    try:
        cds_training.run(home, java, wanted, log=log)
        if not fresh.exists() or fresh.stat().st_size < LEAST_BYTES:
            raise CannotBuildError("the JVM that was to write it has written none")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    fresh.chmod(0o444)
    fresh.rename(folder / FILE)


def copy_unsigned(jars: Path, target: Path) -> None:
    """Copy the signed jars of a folder without their signatures."""
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
    made = sorted(place.glob(f"*/{FILE}"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in made[_KEPT:]:
        if each.parent.name != key:
            shutil.rmtree(each.parent, ignore_errors=True)
            each.parent.with_suffix(".lock").unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Make the archive of an installation, if there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.spark.jvm.cds_building",
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
