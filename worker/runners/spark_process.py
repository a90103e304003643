"""spark-submit as a child process: its arguments, its life, and the end of its output.

It writes straight into the attempt's log, which is this program's own standard output. It belongs
to the attempt's process group and ends with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from common.model.retry_policy import MemoryRetry, megabytes_in
from worker.runners.job import JobError
from worker.spark.jvm import doors, properties
from worker.spark.jvm.installation import defaults_of

_CHILD: Final = str(Path(__file__).with_name("spark_child.py"))
_TAIL_BYTES: Final = 512 * 1024
_NOT_FOR_CHILDREN: Final = ("PYTHONPATH", "ORCAFLOW_SPARK_FACTS")
_DEFAULT_HEAP: Final = "1g"


class Submission:
    """One run of spark-submit, or none: it is started at most once, and never after a stop."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._properties = Path(document["properties"])
        self._lock = Lock()
        self._may_start = True
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.ended_at: float | None = None
        """By the monotonic clock."""
        self.page_token = ""
        """The token for the driver's pages; "" if they want none."""

    @property
    def token_file(self) -> Path:
        """The file with that token, for people."""
        return self._properties.with_suffix(".token")

    @property
    def was_started(self) -> bool:
        return self._process is not None

    def start(self) -> bool:
        """Start it; False if it must not be any more."""
        document = self._document
        environment = {
            **{name: each for name, each in os.environ.items() if name not in _NOT_FOR_CHILDREN},
            **document["environment"],
        }
        self._write_properties(environment)
        with self._lock:
            if not self._may_start:
                return False
            self._log_start = _log_size()
            argv = (sys.executable, "-I", "-S", _CHILD, str(os.getpid()), *document["argv"])
            self._process = subprocess.Popen(argv, env=environment)
        return True

    def never_start(self) -> None:
        """Refuse every later submission."""
        with self._lock:
            self._may_start = False

    def wait(self, seconds: float) -> int | None:
        """Its exit code, negative for a signal; None if it still runs, or never did."""
        process = self._process
        if process is None:
            return None
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        if self.ended_at is None:
            self.ended_at = time.monotonic()
            self.forget_properties()
        return code

    def is_running(self) -> bool:
        return self._process is not None and self.wait(0) is None

    def terminate(self) -> None:
        self._signal(lambda process: process.terminate())

    def kill(self) -> None:
        self._signal(lambda process: process.kill())

    def forget_properties(self) -> None:
        """Remove the file with settings, which may hold passwords, once nobody has to read it."""
        with contextlib.suppress(OSError):
            self._properties.unlink(missing_ok=True)

    def usage(self) -> tuple[float, int]:
        """Seconds that it has computed, and the most memory that one of its processes took."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024

    def printed(self) -> str:
        """The end of what it has printed, "" if the log can't be read."""
        try:
            size = _log_size()
            start = max(self._log_start, size - _TAIL_BYTES)
            return os.pread(1, size - start, start).decode("utf-8", "replace")
        except OSError:
            return ""

    def _signal(self, send: Callable[[subprocess.Popen[bytes]], None]) -> None:
        if self._process is not None:
            send(self._process)

    def _write_properties(self, environment: Mapping[str, str]) -> None:
        """Our settings after those of the installation, which Spark would not read besides."""
        conf: Mapping[str, str] = self._document["conf"]
        home = environment.get("SPARK_HOME", "")
        defaults = defaults_of(home, environment)
        known = properties.read(defaults)
        raised = _raised(self._document["memory"], known)
        fallbacks: Mapping[str, str] = self._document["fallbacks"]
        lacking = {key: value for key, value in fallbacks.items() if key not in known}
        guard, self.page_token = doors.guard(home, self._document["master"], {**known, **conf})
        text = f"{defaults}\n{properties.rendered({**lacking, **guard, **raised, **conf})}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with open(os.open(self._properties, flags, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123  # Of a descriptor.
                file.write(text)
            if self.page_token:
                doors.write_token(self.token_file, self.page_token)
        except OSError as error:
            raise JobError(f"{error.filename} can't be written: {error.strerror}") from None


def checksum(path: Path) -> str:
    """A file's size and SHA-256, for people who ask later what it was that ran."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return f"{file.tell():,} bytes, sha256 {digest}"
    except OSError as error:
        raise JobError(f"{path} can't be read: {error.strerror}") from None


def _log_size() -> int:
    about = os.fstat(1)
    return about.st_size if stat.S_ISREG(about.st_mode) else 0


def _raised(memory: Mapping[str, Any] | None, defaults: Mapping[str, str]) -> dict[str, str]:
    """More of the memory that only the installation says, or nobody."""
    if memory is None:
        return {}
    policy = MemoryRetry(ceiling_mb=memory["ceiling_mb"])
    raised = {}
    for key, is_needed in memory["keys"].items():
        size = defaults.get(key) or (_DEFAULT_HEAP if is_needed else "")
        megabytes = megabytes_in(size)
        if megabytes is not None:
            raised[key] = f"{policy.megabytes(megabytes, memory['factor'])}m"
    return raised
