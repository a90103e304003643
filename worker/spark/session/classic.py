"""The life of a classic task: a private driver, the work of the job in it, and the driver's end.

    python -P classic.py JOB.json

Run as a program by its path, in an interpreter that has pyspark and perhaps nothing else of
Orcaflow's: standard library, pyspark and `worker.spark` only. The JVM is started first, from an
archive of its classes where there is one (`worker/spark/jvm/cds_archive.py`); Python does its
imports meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import threading
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

_STARTED = time.monotonic()
_ROOT = str(Path(__file__).resolve().parents[3])
if __name__ == "__main__" and _ROOT not in sys.path:
    # At the end: what the author has installed comes first.
    sys.path.append(_ROOT)

from common.model.failures import FailureReason  # noqa: E402
from worker.spark.diagnosis.failures import Explained, WorkFailedError, explain, explain_log  # noqa: E402
from worker.spark.jvm import (  # noqa: E402
    cds_building,
    doors,
    gateway,
    java_command,
)
from worker.spark.jvm import properties as spark_properties  # noqa: E402
from worker.spark.jvm.installation import defaults_of, home_of_spark  # noqa: E402
from worker.spark.jvm.python_sockets import SocketFolder  # noqa: E402
from worker.spark.progress import classic_progress  # noqa: E402
from worker.spark.progress.meter import Meter  # noqa: E402
from worker.spark.session import work  # noqa: E402
from worker.spark.session.job import Job  # noqa: E402

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOG_BYTES = 64_000
_STDERR = 2
_STOP_SECONDS = 15.0
_DYING_SECONDS = 2.0
_OUT_OF_MEMORY_CODES = frozenset({3, 52})
"""Of a JVM that was told to end if its heap is full, and of an executor's end for it."""


def main() -> int:
    """Do the job that the first argument names; the exit code."""
    job = Job.read(sys.argv[1])
    try:
        code = work.compiled(job)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        return work.failed(job, error)
    # It holds what Java keeps in files, and what it unpacks of its libraries.
    scratch = job.reason_file.with_suffix(".tmp")
    try:
        return _drive(job, code, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _token_file(job).unlink(missing_ok=True)


def _drive(job: Job, code: CodeType | None, scratch: Path) -> int:
    """Do the job in a driver of its own; the exit code."""
    properties = job.reason_file.with_suffix(".spark")
    log_begin = _log_end()
    with contextlib.ExitStack() as stack:
        try:
            scratch.mkdir(mode=0o700, exist_ok=True)
            sockets = stack.enter_context(SocketFolder(scratch))
            driver = _start(job, properties, scratch, sockets)
        except (java_command.NoSparkError, OSError) as error:
            return work.failed(job, WorkFailedError(str(error), FailureReason.CONFIGURATION))
        return _drive_started(job, code, driver, properties, log_begin)


def _drive_started(
    job: Job, code: CodeType | None, driver: gateway.Started, properties: Path, log_begin: int
) -> int:
    """Do the job in this driver and end it; the exit code."""
    try:
        try:
            context = _context(driver, log_begin)
        finally:
            properties.unlink(missing_ok=True)
            java_command.options_file(properties).unlink(missing_ok=True)
        progress = classic_progress.ClassicProgress(context, work.facts(), Meter(_STARTED))
        spark = _session()
    except Exception as error:  # noqa: BLE001  # As above.
        driver.close(wait_seconds=_STOP_SECONDS)
        return work.failed(job, _of_start(error))
    try:
        return work.run(spark, job, code, explain=lambda error: _explained(error, driver))
    finally:
        _end(spark, driver, progress)


def _end(
    spark: SparkSession, driver: gateway.Started, progress: classic_progress.ClassicProgress
) -> None:
    """Stop the application, so that its manager hears of it, and the JVM."""
    if work.facts().current.failure is FailureReason.OUT_OF_MEMORY and progress.is_local:
        # It would take minutes over its farewell, which nobody waits for.
        driver.process.kill()
        driver.process.wait()

    def stop() -> None:
        progress.close()
        with contextlib.suppress(Exception):  # The author may have stopped it, or the JVM died.
            spark.stop()

    # A sick JVM may never answer.
    stopping = threading.Thread(target=stop, name="stop", daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    driver.close()
    progress.report_usage()
    work.facts().flush()


def _start(job: Job, properties: Path, scratch: Path, sockets: SocketFolder) -> gateway.Started:
    conf = {**job.conf}
    if job.master:
        conf["spark.master"] = job.master
    if job.name:
        conf["spark.app.name"] = job.name
    is_local = doors.is_local(master := conf.get("spark.master", "local"))
    # Nor is this computer looked up under its own name for a local one, which takes a while.
    home = home_of_spark("", os.environ)
    said = {**spark_properties.read(defaults_of(home, os.environ)), **conf}
    guard, token = doors.guard(home, master, said)
    conf = {**doors.settings(master), **guard, **sockets.settings(master), **conf}
    if token:
        doors.write_token(_token_file(job), token)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    command = java_command.command(
        (
            *(("--py-files", ",".join(job.py_files)) if job.py_files else ()),
            *(("--archives", ",".join(job.archives)) if job.archives else ()),
            *java_command.PYTHON_DRIVER,
        ),
        conf=conf,
        properties_file=properties,
        home=home,
        quick=True,
        scratch=scratch,
    )
    if command.archive is None:
        cds_building.build_in_background(command.environment["SPARK_HOME"], command.argv[0])
    environment = dict(command.environment)
    if is_local:
        environment = {**doors.variables(master), **environment}
        _use_own_pyspark(environment)
    return gateway.start(command.argv, environment=environment)


def _token_file(job: Job) -> Path:
    """Return the file with the token for the driver's pages, for people."""
    return job.reason_file.with_suffix(".token")


def _use_own_pyspark(environment: dict[str, str]) -> None:
    """Have Pythons for UDFs import the installed pyspark and not its zip, which takes a second.

    Spark puts the zip of `SPARK_HOME` first into their path if its JVM knows that. It needs it for
    nothing else in a driver that has no executors elsewhere.
    """
    spec = find_spec("pyspark")
    folders = [] if spec is None else [*(spec.submodule_search_locations or ())]
    same_python = environment.get("PYSPARK_PYTHON") == sys.executable
    if same_python and environment["SPARK_HOME"].rstrip("/") in folders:
        del environment["SPARK_HOME"]


def _context(driver: gateway.Started, log_begin: int) -> SparkContext:
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    import pyspark.sql  # noqa: F401  # It takes no time while the JVM starts.

    try:
        return driver.context()
    except gateway.JvmEndedError as error:
        found = explain_log(_log_since(log_begin))
        raise WorkFailedError(
            found.sentence if found else f"{error}; what it said stands above",
            found.reason if found else FailureReason.SUBMIT_FAILED,
            hint=found.hint if found else "",
        ) from error


def _explained(error: BaseException, driver: gateway.Started) -> Explained:
    """Explain an error; if the JVM is gone, its end explains all the others."""
    found = explain(error)
    is_of_link = isinstance(error, ConnectionError) or type(error).__module__.startswith("py4j")
    code = driver.ended(wait_seconds=_DYING_SECONDS if is_of_link else 0.0)
    if code is None or isinstance(error, WorkFailedError):
        return found
    if code in _OUT_OF_MEMORY_CODES:
        sentence = "Java ran out of memory in the driver"
        hint = "give it more: spark.driver.memory"
        return Explained(reason=FailureReason.OUT_OF_MEMORY, sentence=sentence, hint=hint)
    if code < 0:
        sentence = f"the driver's JVM was killed by signal {-code}"
        hint = "by somebody, or by the system for want of memory"
        return Explained(reason=FailureReason.KILLED, sentence=sentence, hint=hint)
    if is_of_link:
        sentence = f"the driver's JVM ended with exit code {code}"
        return Explained(reason=FailureReason.SERVER_LOST, sentence=sentence)
    return found


def _of_start(error: Exception) -> Exception:
    """An error of the start: what is no fault of the author's Python says so."""
    explained: Explained = explain(error)
    if explained.reason is not FailureReason.PYTHON_ERROR:
        return error
    return WorkFailedError(explained.sentence, FailureReason.SUBMIT_FAILED, hint=explained.hint)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _log_end() -> int:
    """Return the size of the task's log, -1 if the output goes elsewhere."""
    about = os.fstat(_STDERR)
    return about.st_size if stat.S_ISREG(about.st_mode) else -1


def _log_since(begin: int) -> str:
    """Return the log since then, as far as this process may read it."""
    if begin < 0:
        return ""
    try:
        end = os.fstat(_STDERR).st_size
        said = os.pread(_STDERR, _LOG_BYTES, max(begin, end - _LOG_BYTES))
    except OSError:
        return ""
    return said.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
