"""The life of a warm task, in the process that the Spark host has forked for it.

Opens a session of its own in a Connect server, does the work of the job
(`worker/spark/session/work.py`), and closes the session. If it dies on the way, the host closes the
session for it. A *probe* is the host's own short business with a server, in such a process too:
here, to see that it is well.
"""

from __future__ import annotations

import os
import sys

from worker.spark.session import other_python, progress_connect, prototype, work
from worker.spark.session.own_sessions import CLOSED, INTERPRETER, OwnSessions
from worker.spark.session.sessions import Place, open_session

__all__ = ["Place", "do_job", "do_task", "greet", "warm_up"]


def do_task(place: Place, job_path: str, *, closed: int) -> int:
    """Do a job; the exit code. `closed` is a descriptor that hears of the task's sessions."""
    job = work.Job.read(job_path)
    try:
        interpreter = _interpreter(place, job)
        if interpreter:
            if place.python:
                # The host has it started for UDFs too, and ends it with the session.
                os.write(closed, f"{INTERPRETER} {interpreter}\n".encode())
            else:
                place = place.for_udfs_by(interpreter)
            other_python.go_on(interpreter, place, job, closed=closed)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        _never_opened(closed)
        return work.failed(job, error)
    return do_job(place, job, closed=closed)


def do_job(place: Place, job: work.Job, *, closed: int) -> int:
    """Do a job that has been read, in the interpreter that it is meant for."""
    try:
        code = work.compiled(job)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the process.
        _never_opened(closed)
        return work.failed(job, error)
    try:
        own = OwnSessions(place, told=closed)
        facts = work.facts()
        facts.update(
            application_ids=(place.application_id,) if place.application_id else (),
            ui_link=place.ui_link,
        )
        progress = progress_connect.register(own.first, facts, ui_link=place.ui_link)
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


def greet(place: Place) -> str:
    """See that a server answers, by its prototype if it has one; the id of its application."""
    spark = open_session(place.beside(place.prototype) if place.prototype else place)
    try:
        if place.prototype:
            prototype.prepare(spark)  # Each time: a server may lose it.
        return spark.conf.get("spark.app.id") or ""
    finally:
        if not place.prototype:
            spark.stop()


def warm_up(place: Place) -> int:
    """Have a server load and compile what nearly every task needs."""
    spark = prototype.open_clone(place)
    try:
        spark.range(1000).selectExpr("sum(id)").collect()
    finally:
        spark.stop()
    return 0


def _interpreter(place: Place, job: work.Job) -> str:
    """The Python that a task wants instead of the one that was forked; "" if it wants none."""
    if job.document.get("environment"):
        # It may have to be made first, and most tasks need none.
        from worker.spark.session import environments

        return environments.python_for(job)
    wanted = place.interpreter
    return "" if wanted in ("", sys.executable) else wanted


def _equip(own: OwnSessions, job: work.Job) -> None:
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
