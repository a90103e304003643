"""Starts the JVM of a private driver, and ties this Python process to it.

Runs in the task's own process. The JVM belongs to its process group and session, so a kill of the
attempt ends both; it reads a pipe from here, so it ends when this process does, however it ends.
While the JVM starts, Python has time for its imports.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

_INFO = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_LOOK_SECONDS = 0.005
_END_SECONDS = 10.0


class JvmEndedError(Exception):
    """The JVM has ended before it said where it listens."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"Spark's JVM ended with exit code {exit_code} while it started")
        self.exit_code = exit_code


class Started:
    """A JVM that has been started and perhaps doesn't speak yet."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self._directory = directory
        self._gateway: Any = None

    def gateway(self) -> Any:
        """The way into the JVM, once it speaks. Raises `JvmEndedError`."""
        if self._gateway is None:
            try:
                port, secret = self._connection()
            finally:
                shutil.rmtree(self._directory, ignore_errors=True)
            from pyspark.java_gateway import launch_gateway

            from worker.spark.jvm.own_connections import check_connections

            check_connections()
            # It is how PySpark is told of a JVM; nobody who is started later needs to know.
            os.environ.update({_PORT: str(port), _SECRET: secret})
            try:
                self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
            finally:
                del os.environ[_PORT], os.environ[_SECRET]
        return self._gateway

    def context(self) -> SparkContext:
        """A context with the settings that the JVM was started with."""
        gateway = self.gateway()
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
        threading.Thread(target=_reflect, args=(gateway,), name="reflect", daemon=True).start()
        return SparkContext.getOrCreate(SparkConf())

    def ended(self, *, wait_seconds: float) -> int | None:
        """Its exit code, if it ends by itself within this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(wait_seconds)
        return None

    def close(self, *, wait_seconds: float = _END_SECONDS) -> int:
        """Have it end, wait for that, and else kill it; its exit code."""
        shutil.rmtree(self._directory, ignore_errors=True)
        # Threads of py4j may release objects there; a broken call is logged with its traceback.
        logging.getLogger().addFilter(_is_not_of_py4j)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        code = self.ended(wait_seconds=wait_seconds)
        if code is None:
            self.process.kill()
            code = self.process.wait()
        return code

    def _connection(self) -> tuple[int, str]:
        from pyspark.serializers import UTF8Deserializer, read_int

        path = self._directory / "connection"
        while not path.exists():
            code = self.process.poll()
            if code is not None:
                raise JvmEndedError(code)
            time.sleep(_LOOK_SECONDS)
        with path.open("rb") as file:
            port = read_int(file)  # type: ignore[no-untyped-call]
            return port, UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _reflect(gateway: Any) -> None:
    """Have Scala's reflection begin, beside the context: the session that comes then wants it."""
    with contextlib.suppress(Exception):  # Then the session does it itself.
        package = gateway.jvm.java.lang.Class.forName("scala.reflect.runtime.package$")
        package.getField("MODULE$").get(None).universe()


def start(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str | None = None,
    log: IO[bytes] | None = None,
) -> Started:
    """Start a JVM. Raises `OSError`."""
    # It holds the secret of the gateway for a moment; the JVM renames a whole file into it.
    directory = Path(tempfile.mkdtemp(prefix="spark-driver-"))
    try:
        process = subprocess.Popen(
            argv,
            env={**environment, _INFO: str(directory / "connection")},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return Started(process, directory)
