"""The Python of a task's own: unpacked from an archive, or made from a list of requirements.

    python -P environments.py JOB.json

As a program it continues with a classic task, or with the script of a PYTHON task, in that Python.
The process of a warm task calls `python_for`.
Runs in the task's own process, as the task's account: standard library and modules of ours that
need nothing more.

An environment is named by what it is made of, stays in the cache of its account, and is shared by
all tasks that want the same. One process makes it while others wait for its lock. It is made where
it stays, since programs in it begin with its path, and counts once it has its mark; what has none
was left behind by somebody who died, and is made anew. What the task's Python could import before,
pyspark above all, it still can, unless the environment has its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

_ROOT = str(Path(__file__).resolve().parents[3])
if __name__ == "__main__" and _ROOT not in sys.path:
    # At the end: what the author has installed comes first.
    sys.path.append(_ROOT)

from common.model.failures import FailureReason  # noqa: E402
from worker.spark.diagnosis.failures import WorkFailedError  # noqa: E402
from worker.spark.session import work  # noqa: E402
from worker.spark.session.job import Job  # noqa: E402

_CLASSIC = str(Path(__file__).resolve().parent / "classic.py")
_FACTS: Final = "ORCAFLOW_SPARK_FACTS"
_CONNECTIONS: Final = "ORCAFLOW_DATASOURCES"
_MARK: Final = ".complete"
_UNUSED_DAYS: Final = 30
_LENT: Final = "orcaflow_lent.pth"
_PIP: Final = (
    "--disable-pip-version-check", "--no-input", "--progress-bar", "off",
    "--retries", "2", "--timeout", "15", "--no-warn-script-location",
)  # fmt: skip
_UNREACHABLE: Final = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "Max retries exceeded",
    "Connection broken",
)
_ASKED: Final = (
    "import sysconfig; print(sysconfig.get_path('purelib'));"
    "print(sysconfig.get_config_var('SOABI'))"
)
_OWN_MODULES: Final = ("site-packages", "dist-packages")


def main() -> int:
    """Continue with a classic task, or with a script, in the Python that the job asks for."""
    path = Path(sys.argv[1])
    job = Job.of(
        json.loads(path.read_text(encoding="utf-8")), reason_file=path.with_suffix(".reason")
    )
    try:
        python = python_for(job)
        if not _needs_spark(job):
            become_script(python, path, job)
        become_driver(python, path)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        path.unlink(missing_ok=True)
        return work.failed(job, error)


def become_driver(python: str, job: Path) -> NoReturn:
    """Become the driver of a classic task, in that Python; its UDFs get the same."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["PYSPARK_PYTHON"] = python
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(python, [python, "-P", "-u", _CLASSIC, str(job)])  # noqa: S606


def become_script(python: str, path: Path, job: Job) -> NoReturn:
    """Become a script in that Python. The job's file is left with the connections it needs.

    The worker removes the file when the attempt has ended.
    """
    os.environ.pop(_FACTS, None)
    if connections := job.document["connections"]:
        path.write_text(json.dumps(connections), encoding="utf-8")
        os.environ[_CONNECTIONS] = str(path)
    else:
        path.unlink()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(python, [python, "-u", job.script, *job.arguments])  # noqa: S606


def python_for(job: Job) -> str:
    """The path of the Python in a job's environment, which is made if it isn't there yet.

    Raises `WorkFailedError`.
    """
    wanted: Mapping[str, Any] = job.document["environment"]
    folder = Path(wanted["root"])
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if wanted.get("archive"):
            return _of_archive(folder, Path(wanted["archive"]), job)
        return _of_requirements(folder, tuple(wanted["requirements"]), job)
    except OSError as error:
        raise WorkFailedError(
            f"the task's environment can't be kept in {folder}: {error.strerror or error}",
            FailureReason.CONFIGURATION,
        ) from error


def _needs_spark(job: Job) -> bool:
    """Return True if the environment has to have pyspark."""
    return not job.document["environment"].get("without_spark")


def _of_archive(folder: Path, archive: Path, job: Job) -> str:
    try:
        about = archive.stat()
    except OSError as error:
        raise WorkFailedError(
            f"params.environment.archive: {archive} can't be read: {error.strerror}",
            FailureReason.CONFIGURATION,
        ) from None
    # Not by its content: reading some gigabytes each time would take longer than all else.
    stamp = [str(archive.resolve()), about.st_size, about.st_mtime_ns, about.st_ino]
    place = folder / _named("archive", stamp, job)
    with _making(folder, place) as is_there:
        if not is_there:
            _say(f"unpacks {archive.name} to {place}")
            _unpack(archive, place)
            _finish(place, job)
    return str(_python_in(place))


def _of_requirements(folder: Path, requirements: tuple[str, ...], job: Job) -> str:
    place = folder / _named("venv", [*requirements], job)
    with _making(folder, place) as is_there:
        if not is_there:
            _say(job.shown(f"makes an environment with {', '.join(requirements)} in {place}"))
            started = time.monotonic()
            _make(place, requirements, job)
            _say(f"made it in {time.monotonic() - started:.1f} s; it is kept for other tasks")
    return str(_python_in(place))


def _named(kind: str, parts: list[Any], job: Job) -> str:
    """A name for all that the environment comes of."""
    # What was made without Spark was not checked for it.
    kind = kind if _needs_spark(job) else f"plain-{kind}"
    whole = [*parts, sys.version, sys.executable, _lent()]
    return f"{kind}-{hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:24]}"


@contextlib.contextmanager
def _making(folder: Path, place: Path) -> Iterator[bool]:
    """Hold the lock of an environment; yield True if it exists, else it has to be made now."""
    with (folder / f"{place.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waits for another task that makes the same environment")
            fcntl.flock(lock, fcntl.LOCK_EX)
        mark = place / _MARK
        if mark.exists():
            mark.touch()
            yield True
            return
        _remove_unused(folder)
        shutil.rmtree(place, ignore_errors=True)
        try:
            yield False
            mark.touch()
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise


def _remove_unused(folder: Path) -> None:
    """Environments pile up where requirements change; those that nobody used for long go."""
    oldest = time.time() - _UNUSED_DAYS * 86_400
    for mark in folder.glob(f"*/{_MARK}"):
        place = mark.parent
        with contextlib.suppress(OSError), (folder / f"{place.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if mark.stat().st_mtime < oldest:
                mark.unlink()
                shutil.rmtree(place, ignore_errors=True)


def _make(place: Path, requirements: tuple[str, ...], job: Job) -> None:
    has_pip = _runs([sys.executable, "-I", "-c", "import pip"])
    options = ["--system-site-packages", *(["--without-pip"] if has_pip else [])]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "venv", *options, str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WorkFailedError(
            f"the task's environment could not be made: {_last_line(done.stdout + done.stderr)}",
            FailureReason.CONFIGURATION,
            hint=f"`{sys.executable} -m venv` has to work on this worker",
        )
    _finish(place, job)
    _install(place, requirements, job)


def _install(place: Path, requirements: tuple[str, ...], job: Job) -> None:
    # A requirement may hold a password, which argv would show to every account.
    listed = place / "requirements.txt"
    listed.touch(mode=0o600)
    listed.write_text("".join(f"{each}\n" for each in requirements), encoding="utf-8")
    argv = [str(_python_in(place)), "-I", "-m", "pip", "install", *_PIP, "-r", str(listed)]
    said: list[str] = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        for line in pip.stdout or ():
            said.append(job.shown(line))
            sys.stdout.write(f"{said[-1]}\n")
            sys.stdout.flush()
    listed.unlink()
    if pip.returncode == 0:
        return
    is_unreachable = any(word in line for line in said for word in _UNREACHABLE)
    errors = [line.strip() for line in said if line.startswith("ERROR:")]
    if is_unreachable:
        raise WorkFailedError(
            "the task's environment could not be made: pip can't reach the index of packages",
            FailureReason.SUBMIT_FAILED,
            hint="is this worker offline? A packed environment can be given as"
            " params.environment.archive",
        )
    cause = errors[0].removeprefix("ERROR:").strip() if errors else f"exit code {pip.returncode}"
    raise WorkFailedError(
        f"the task's environment could not be made: pip: {cause}", FailureReason.CONFIGURATION
    )


def _unpack(archive: Path, place: Path) -> None:
    place.mkdir(mode=0o700)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(place)  # noqa: S202  # It keeps inside of the folder by itself.
            for program in (place / "bin").glob("*"):
                program.chmod(0o755)
            return
        # Links may lead anywhere, as to the Python of a system; names may not.
        safely: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
        with tarfile.open(archive) as bundle:
            bundle.extractall(place, **safely)  # noqa: S202
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError) as error:
        raise WorkFailedError(
            f"params.environment.archive: {archive.name} can't be unpacked: {error}",
            FailureReason.CONFIGURATION,
            hint="it has to be made by venv-pack or conda-pack, as .tar.gz, .tar or .zip",
        ) from error
    unpack = place / "bin" / "conda-unpack"
    if unpack.exists():
        _runs([str(_python_in(place)), str(unpack)])


def _python_in(place: Path) -> Path:
    for name in ("python", "python3"):
        path = place / "bin" / name
        if path.exists():
            return path
    raise WorkFailedError(
        "params.environment.archive has no bin/python that runs on this worker",
        FailureReason.CONFIGURATION,
        hint="pack the environment by venv-pack or conda-pack",
    )


def _finish(place: Path, job: Job) -> None:
    """Lend it the packages of this Python, if it is of the same kind, and check for pyspark."""
    python = str(_python_in(place))
    asked = subprocess.run(
        [python, "-I", "-c", _ASKED],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise WorkFailedError(
            f"the Python of the task's environment does not run: {_last_line(asked.stderr)}",
            FailureReason.CONFIGURATION,
        )
    folder, kind, *_ = [*asked.stdout.splitlines(), "", ""]
    if kind == str(sysconfig.get_config_var("SOABI")):
        Path(folder, _LENT).write_text("".join(f"{each}\n" for each in _lent()), encoding="utf-8")
    if _needs_spark(job) and not _runs([python, "-I", "-c", "import pyspark"]):
        raise WorkFailedError(
            "the task's environment has no pyspark, and can't use this worker's",
            FailureReason.CONFIGURATION,
            hint="put pyspark[connect] into it, of this worker's version",
        )


def _lent() -> list[str]:
    """The folders of packages that this Python imports from."""
    return [each for each in sys.path if each.endswith(_OWN_MODULES)]


def _runs(argv: list[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"


def _say(text: str) -> None:
    sys.stdout.write(f"[orcaflow] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
