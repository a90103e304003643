"""Reports an attempt's applications: in its facts while they run, and the cause of a failure.

Nothing here decides how an attempt ended; it says as exactly as can be found out why.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from common.masking import printable
from common.model.failures import FailureReason
from common.model.spark import Usage
from worker.runners.job import Job
from worker.runners.own_page import OwnPage
from worker.runners.spark_outcome import Outcome
from worker.runners.spark_process import Submission
from worker.spark.diagnosis.failures import Explained, explain_log
from worker.spark.managers.base import (
    Application,
    ApplicationManager,
    AppState,
    Ask,
    ManagerError,
    ManagerRefusedError,
)
from worker.spark.managers.driver_page import Reading, read
from worker.spark.progress.facts_file import FactsFile
from worker.spark.progress.tally import Tally

_PROGRESS_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 20.0
"""The time that YARN's log aggregation may take."""
_LOG_PAUSE_SECONDS: Final = 1.0
_SENTENCE_CHARS: Final = 300
_TIME = re.compile(r"\A\[[^\]]{0,60}\] ?")
"""YARN's moment of a diagnosis, which changes with each report of the same cause."""
_THREAD: Final = 'Exception in thread "main" '
_AS_IN_A_LOG: Final = f"{_THREAD}org.apache.spark.SparkException: "
_OF_A_PROGRAM: Final = "User class threw exception:"
"""As YARN begins it."""


class Reporting:
    """Keeps the facts, and the log, up to what is known."""

    def __init__(self, job: Job, facts: FactsFile, submission: Submission) -> None:
        self._job = job
        self._facts = facts
        self._submission = submission
        self._applications: dict[str, Application] = {}
        self._reading = Reading()
        self._tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self._begun = time.monotonic()
        self._progress_at = 0.0

    @property
    def applications(self) -> Sequence[Application]:
        """As they were seen last, those that were seen last first."""
        return [*reversed(self._applications.values())]

    def see_all(self, seen: Sequence[Application] | None) -> bool:
        """Record the applications seen; return True if any of them is live."""
        for each in seen or ():
            self.see(each)
        return any(not each.state.is_final for each in seen or ())

    def see(self, application: Application) -> None:
        """Note an application as its manager shows it."""
        before = self._applications.get(application.id)
        if before == application:
            return
        self._applications[application.id] = application
        facts = self._facts.current
        self._facts.update(
            application_ids=self._with(application.id),
            ui_link=application.ui or facts.ui_link,
            history_link=application.history or facts.history_link,
        )
        if before is None or (before.state, before.ui) != (application.state, application.ui):
            link = f": {application.ui}" if application.ui else ""
            say(self._job, f"application {application.id} is {application.state.value}{link}")
        self._see_waiting(application)

    def _see_waiting(self, application: Application) -> None:
        is_waiting = application.state is AppState.WAITING
        waiting = waiting_text(application.diagnostics) if is_waiting else ""
        progress = self._facts.current.progress
        if waiting != progress.waiting:
            self._facts.update(progress=replace(progress, waiting=waiting), waited=True)
            if waiting:
                say(self._job, f"application {application.id} waits: {waiting}")

    def see_page(self, page: OwnPage) -> None:
        """Note the application that a driver of our own shows."""
        app_id = page.application_id
        if app_id not in self._facts.current.application_ids:
            self._facts.update(application_ids=self._with(app_id), ui_link=page.link)
            wanted = f", with the token in {self._submission.token_file}"
            link = page.link + (wanted if self._submission.page_token else "")
            say(self._job, f"application {app_id}: {link}")

    def progress(self, ask: Ask | None, app_id: str) -> bool:
        """Tell how far an application has come, now and then; False if it gave no answer."""
        now = time.monotonic()
        if ask is None or now < self._progress_at:
            return True
        self._progress_at = now + _PROGRESS_SECONDS
        try:
            self._reading = read(ask, app_id, self._tallies[app_id])
        except ManagerError:
            # It is only to be shown; a driver that computes hard, or ends, may not answer.
            return False
        self._facts.update(progress=self._reading.progress)
        return True

    def end(self, ended: Outcome, log: str, diagnostics: str) -> str:
        """Tell how it ended; why it failed, "" if it didn't."""
        cpu_seconds, peak_bytes = self._submission.usage()
        usage = Usage(
            run_seconds=round(time.monotonic() - self._begun, 3),
            cpu_seconds=round(cpu_seconds + self._reading.cpu_seconds, 3),
            peak_memory_bytes=peak_bytes,
            core_seconds=round(self._reading.core_seconds, 3),
        )
        reason, sentence = self._explained(ended, log, diagnostics)
        progress = self._facts.current.progress.ended(well=ended.failure is None)
        self._facts.update(usage=usage, failure=reason, progress=progress)
        self._facts.flush()
        return sentence

    def _explained(
        self, ended: Outcome, log: str, diagnostics: str
    ) -> tuple[FailureReason | None, str]:
        if ended.failure is None:
            return None, ""
        found = None
        if ended.failure is not FailureReason.KILLED:
            found = _explanation(log, self._reading.failed_stage, diagnostics)
        words = [ended.sentence, " ".join(diagnostics.split())[:_SENTENCE_CHARS]]
        if found is not None:
            words.insert(0, found.one_line)
        reason = ended.failure if found is None else found.reason
        return reason, "; ".join(dict.fromkeys(filter(None, words)))

    def _with(self, app_id: str) -> tuple[str, ...]:
        known = self._facts.current.application_ids
        if app_id in known:
            return known
        # spark-submit has long read its settings by now.
        self._submission.forget_properties()
        return (*known, app_id)


def waiting_text(diagnostics: str) -> str:
    """Return the cause for which an application waits, in one line and without its time."""
    return _TIME.sub("", " ".join(printable(diagnostics).split()))[:_SENTENCE_CHARS].strip()


def fetched_log(
    job: Job,
    manager: ApplicationManager,
    application: Application,
    pause: Callable[[float], None],
) -> str:
    """Copy the end of the log of a driver elsewhere into the attempt's own, and return it.

    A log that is being moved is requested again for a while, with pauses.
    """
    log = ""
    begun = time.monotonic()
    while True:
        try:
            log = manager.log(application)
        except ManagerError as error:
            is_late = time.monotonic() - begun > _LOG_SECONDS
            if is_late or isinstance(error, ManagerRefusedError):
                say(job, f"the driver's log could not be read from {manager.name}: {error}")
                break
            pause(_LOG_PAUSE_SECONDS)
        else:
            break
    if log.strip():
        say(job, f"the end of the driver's log, from {manager.name}:")
        job.say(log.expandtabs(4).rstrip("\n"))
        say(job, "the end of the driver's log ends here")
    elif application.ui or application.history:
        say(job, f"the driver's log may be at {application.history or application.ui}")
    return log


def say(job: Job, text: str) -> None:
    """Say what Orcaflow does, in the log."""
    job.say(f"[orcaflow] {text}")


def _explanation(log: str, failed_stage: str, diagnostics: str) -> Explained | None:
    """The best of what a driver's log, its page and its manager say."""
    stage = f"{_AS_IN_A_LOG}{failed_stage}" if failed_stage else ""
    _, is_of_a_program, error = diagnostics.partition(_OF_A_PROGRAM)
    why = f"{_THREAD}{error.lstrip()}" if is_of_a_program else f"{_AS_IN_A_LOG}{diagnostics}"
    try:
        found = explain_log(log) or explain_log(stage)
        if found is None:
            found = explain_log(why)
            # What it says itself is no explanation of it.
            return None if found is None or found.reason is FailureReason.EXIT_CODE else found
    except Exception:  # noqa: BLE001  # Whatever anybody printed must not change how it ended.
        return None
    return found
