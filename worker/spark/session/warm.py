"""The life of a warm task, in the process that the Spark host has forked for it.

Opens a session of its own in a Connect server, does the work of the job
(`worker/spark/session/work.py`), and closes the session. If it dies on the way, the host closes the
session for it. A task that wants another Python goes on in that one
(`worker/spark/session/other_python.py`). The host's probes of a server are here too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import CodeType
from typing import NoReturn

from worker.spark.jvm import doors
from worker.spark.progress import connect_progress
from worker.spark.progress.meter import Meter
from worker.spark.session import prototype, shared_driver, work
from worker.spark.session.job import Job
from worker.spark.session.own_sessions import CLOSED, INTERPRETER, OwnSessions
from worker.spark.session.sessions import Place, open_session, tag_of

_OTHER_PYTHON = str(Path(__file__).resolve().with_name("other_python.py"))

__all__ = ["Place", "do_job", "do_task", "greet", "warm_up"]


def do_task(place: Place, job_path: str, *, closed: int) -> int:
    """Do a job; the exit code. `closed` is a descriptor that hears of the task's sessions."""
    job = Job.read(job_path)
    try:
        interpreter = _interpreter(place, job)
        if interpreter:
            if place.python:
                # The host has it started for UDFs too, and ends it with the session.
                os.write(closed, f"{INTERPRETER} {interpreter}\n".encode())
            else:
                place = place.for_udfs_by(interpreter)
            _become(interpreter, place, job, closed=closed)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        _never_opened(closed)
        return work.failed(job, error)
    return do_job(place, job, closed=closed)


def do_job(place: Place, job: Job, *, closed: int) -> int:
    """Do a job that has been read, in the interpreter that it is meant for."""
    try:
        code = work.compiled(job)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        _never_opened(closed)
        return work.failed(job, error)
    if job.is_classic and place.gateway_port:
        return _do_in_driver(place, job, code, closed=closed)
    return _do_by_connect(place, job, code, closed=closed)


def _do_in_driver(place: Place, job: Job, code: CodeType | None, *, closed: int) -> int:
    """Do a job in a classic session of the server's JVM."""
    # Most servers have tasks of one kind only.
    from worker.spark.session.own_drivers import OwnDrivers

    facts = work.facts()
    facts.update(
        application_ids=(place.application_id,) if place.application_id else (),
        ui_link=place.ui_link,
    )
    try:
        own = OwnDrivers(place, directory=Path.cwd(), conf=job.conf, name=job.name, reports=closed)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        return work.failed(job, error)
    progress = connect_progress.ServerProgress(
        tag_of(place.session_id),
        facts,
        Meter(),
        ui_link=place.ui_link,
        headers=doors.headers(place.page_token),
        before_last=own.settle,
    )
    try:
        return work.run(own.first, job, code)
    finally:
        progress.close()
        own.close()


def _do_by_connect(place: Place, job: Job, code: CodeType | None, *, closed: int) -> int:
    """Do a job in a session of Connect."""
    try:
        own = OwnSessions(place, reports=closed)
        facts = work.facts()
        facts.update(
            application_ids=(place.application_id,) if place.application_id else (),
            ui_link=place.ui_link,
        )
        progress = connect_progress.register(
            own.first,
            facts,
            ui_link=place.ui_link,
            headers=doors.headers(place.page_token),
        )
        try:
            _equip(own, job)
        except Exception:
            own.close()
            raise
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        return work.failed(job, error)
    try:
        return work.run(own.first, job, code)  # type: ignore[arg-type]  # Connect's, by contract alike.
    finally:
        progress.close()
        own.close()


def greet(place: Place, check: Callable[[], None]) -> str:
    """See that a server answers, by its prototype if it has one; the id of its application.

    A server that has just started gets its context first. Raises `NoContextError` if it can't.
    `check` raises an error if the token of Connect may not be sent to the server's port.
    """
    if not place.application_id:
        shared_driver.start_context(place)
    check()
    spark = open_session(place.beside(place.prototype) if place.prototype else place)
    try:
        if place.prototype:
            prototype.prepare(spark)  # Each time: a server may lose it.
        return spark.conf.get("spark.app.id") or ""
    finally:
        if not place.prototype:
            spark.stop()


def warm_up(place: Place, further: Place) -> int:
    """Have a server load and compile what nearly every task needs, in two sessions of it."""
    spark = prototype.open_clone(place)
    try:
        spark.range(1000).selectExpr("sum(id)").collect()
    finally:
        spark.stop()
    _warm_up_driver(further)
    return 0


def _warm_up_driver(place: Place) -> None:
    from worker.spark.session.own_drivers import OwnDrivers

    _, reports = os.pipe()
    with tempfile.TemporaryDirectory(prefix="spark-warm-") as folder:
        own = OwnDrivers(place, directory=Path(folder), conf={}, name="", reports=reports)
        try:
            own.first.range(1000).selectExpr("sum(id)").collect()
        finally:
            own.close()


def _become(interpreter: str, place: Place, job: Job, *, closed: int) -> NoReturn:
    """Become that interpreter, and do the job there. Raises `OSError` if there is none."""
    document = {
        "place": asdict(place),
        "job": dict(job.document),
        "reason_file": str(job.reason_file),
        "closed": closed,
    }
    handed = os.memfd_create("orcaflow-task", 0)
    with os.fdopen(os.dup(handed), "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.set_inheritable(closed, True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(interpreter, [interpreter, "-P", "-u", _OTHER_PYTHON, str(handed)])  # noqa: S606


def _interpreter(place: Place, job: Job) -> str:
    """The Python that a task wants instead of the one that was forked; "" if it wants none."""
    if job.document.get("environment"):
        # It may have to be made first, and most tasks need none.
        from worker.spark.session import environments

        return environments.python_for(job)
    wanted = place.interpreter
    return "" if wanted in ("", sys.executable) else wanted


def _equip(own: OwnSessions, job: Job) -> None:
    """Give the session what the job asks for besides."""
    spark = own.first
    for key, value in job.conf.items():
        spark.conf.set(key, value)
    if job.tag:
        spark.addTag(job.tag)
    if job.py_files:
        spark.addArtifacts(*job.py_files, pyfile=True)
    if job.archives:
        spark.addArtifacts(*job.archives, archive=True)


def _never_opened(closed: int) -> None:
    os.write(closed, f"{CLOSED}\n".encode())
