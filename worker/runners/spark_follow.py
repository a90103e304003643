"""Follows one submission: the applications before it, its own application, and that one's end.

Before a submission the manager is asked for applications of earlier attempts. One of an attempt
whose worker was lost is followed instead of a submission, if its driver runs in the cluster. All
others are ended first, those with the attempt's own tag among them. While the manager does not
answer, nothing is submitted. The main thread may stop this one at any point, and then ends the
applications itself (`spark_ending`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from worker.runners.job import Job, JobError
from worker.runners.own_page import OwnPage
from worker.runners.spark_ending import Killer, end
from worker.runners.spark_outcome import (
    Outcome,
    Verdict,
    exit_code,
    outcome,
    place_of,
    verdict_of,
    with_applications,
)
from worker.runners.spark_process import Submission, checksum
from worker.runners.spark_reporting import Reporting, fetched_log, say
from worker.runners.spark_watch import Watch
from worker.spark.managers.base import (
    Application,
    ApplicationManager,
    AppState,
)
from worker.spark.managers.tags import parse
from worker.spark.progress.facts_file import FactsFile

_LOOK_SECONDS: Final = 0.5
_FOLLOW_SECONDS: Final = 1.0
_STRAYS_SECONDS: Final = 5.0
_SETTLE_SECONDS: Final = 20.0
_ONE_LAST_LOOK_SECONDS: Final = 6.0
_LATE_SECONDS: Final = {True: 30.0, False: 5.0}
"""The time in which an application shows up after spark-submit ended, well or not."""
_END_LATE_SECONDS: Final = {True: 3.0, False: 0.5}
"""The same after a kill: a driver of our own leaves nothing behind that is under way for long."""
_GONE_SECONDS: Final = 15.0
_TERMINATE_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 16.0
"""The time in which spark-submit reports the end of a driver in a standalone cluster."""
_END_OTHERS_SECONDS: Final = 60.0


class GivenUpError(Exception):
    """The attempt is being ended by the main thread; do nothing more."""


class Follower:
    """Drives one submission, on a thread of its own."""

    def __init__(
        self,
        job: Job,
        watch: Watch,
        submission: Submission,
        facts: FactsFile,
        stopping: threading.Event,
    ) -> None:
        document: Mapping[str, Any] = job.document
        self._job = job
        self._watch = watch
        self._submission = submission
        self._reporting = Reporting(job, facts, submission)
        self._stopping = stopping
        self._tag: str = document["tag"]
        self._lost: list[str] = document["attach_tags"]
        self._ended: list[str] = document["end_tags"]
        self._must_ask: bool = document["must_ask"]
        """True if nothing may be submitted before the manager has answered."""
        self._is_local: bool = document["ruler"] == "local"
        self._in_cluster: bool = document["in_cluster"]
        """True if the driver runs elsewhere, and is one with its application for its manager."""
        self._driver_class: str = document["driver_class"]
        """The program of a driver elsewhere whose manager knows no more of it than that, or ""."""
        is_elsewhere = self._in_cluster or bool(self._driver_class)
        self._place = place_of(document["ruler"], in_cluster=is_elsewhere)
        self._nameless: frozenset[str] = frozenset()
        self._page = OwnPage(self._tag, lambda: submission.page_token)
        self._strays_at = 0.0
        self._was_refound = False

    @property
    def manager(self) -> ApplicationManager:
        return self._watch.manager

    @property
    def tags(self) -> list[str]:
        """Of all that is this attempt's to end."""
        return [self._tag, *self._lost]

    @property
    def foreign(self) -> frozenset[str]:
        """The ids of applications with a tag of this attempt that are not its own."""
        return self._watch.foreign

    @property
    def late_seconds(self) -> float:
        """The time in which an application may still show up after spark-submit has ended."""
        return 0.0 if self._is_local else _END_LATE_SECONDS[self._place.in_cluster]

    def may_be_ours(self, manager: ApplicationManager) -> frozenset[str]:
        """Drivers that came after our submission had begun, and of which no more is known.

        spark-submit prints the id of its driver, but a log is no source of ids: a program's
        arguments stand there too.
        """
        if not self._driver_class:
            return frozenset()
        return frozenset(each.id for each in self._may_be_ours(manager) if not each.state.is_final)

    def _may_be_ours(self, manager: ApplicationManager) -> list[Application]:
        return [
            each
            for each in manager.nameless()
            if each.name == self._driver_class and each.id not in self._nameless
        ]

    def run(self) -> int:
        """See it through; the exit code of this program."""
        for path in self._job.document["resources"]:
            self._say(f"{Path(path).name}: {checksum(Path(path))}")
        found = self._earlier()
        if found is None and not self._submission.start():
            raise GivenUpError
        code: int | None
        if found is not None or self._in_cluster:
            application, verdict = self._follow_in_cluster(found)
            code = None if found is not None else self._code()
        elif self._driver_class:
            code, application, verdict = self._follow_standalone()
        else:
            code, application, verdict = self._follow_driver()
        ended = outcome(self._place, code, verdict, manager=self._watch.manager.name)
        return self._conclude(ended, code, application)

    # Before anything is submitted.

    def _earlier(self) -> Application | None:
        """The application to follow instead of a submission, if a lost attempt left one."""
        # Not before a driver of our own that comes after nothing: it can't be a second one.
        is_needed = self._in_cluster or bool(self._driver_class or self._lost or self._ended)
        if self._is_local or not (is_needed or self._must_ask):
            return None
        begun = time.monotonic()
        while True:
            seen = self._watch.find([*self.tags, *self._ended])
            if seen is None:
                if not is_needed:
                    return None
                if not self._must_ask and time.monotonic() - begun > _ONE_LAST_LOOK_SECONDS:
                    self._say("it is submitted all the same: nothing of it runs elsewhere")
                    return None
                self._pause(_LOOK_SECONDS)
                continue
            ours = [each for each in seen if not set(self._lost).isdisjoint(each.tags)]
            live = [each for each in seen if not each.state.is_final]
            unwanted = [each for each in live if each not in ours or not self._in_cluster]
            if unwanted:
                self._say("what is left of earlier attempts is ended first")
                self._end_others(unwanted)
                continue
            # An attempt has one runner, once. What bears its own tag before that has submitted
            # anything is another's: of a database that was restored since, or of a tenant's making.
            self._nameless = frozenset(each.id for each in self._watch.manager.nameless())
            self._watch.foreign = frozenset(each.id for each in seen if each not in ours)
            return self._found(ours) if self._in_cluster else None

    def _found(self, ours: Sequence[Application]) -> Application | None:
        """Of the applications of the attempts that this one makes up for, the one to follow."""
        live = [each for each in ours if not each.state.is_final]
        if live:
            kept, *others = sorted(live, key=lambda each: each.state is AppState.WAITING)
            self._end_others(others)
            self._reattach(kept)
            return kept
        for each in ours:
            if each.state is not AppState.KILLED:
                self._reattach(each)
                return each
            self._say(f"{each.id} of an earlier attempt was killed: it is submitted anew")
        return None

    def _reattach(self, application: Application) -> None:
        owner = parse(next(tag for tag in self._lost if tag in application.tags))
        attempt = "" if owner is None else f" of task instance {owner.task_instance_id}"
        self._was_refound = True
        self._say(
            f"re-attached to application {application.id}{attempt}, which is"
            f" {application.state.value}; nothing is submitted"
        )

    def _end_others(self, others: Sequence[Application]) -> None:
        """Kill applications, and wait until they are over."""
        killer = Killer(self._watch)
        ids = {each.id for each in others}
        said_at = time.monotonic()
        while ids:
            seen = self._watch.find([*self.tags, *self._ended])
            if seen is not None:
                if not killer.has_work([each for each in seen if each.id in ids]):
                    return
                if time.monotonic() - said_at > _END_OTHERS_SECONDS:
                    said_at = time.monotonic()
                    self._say(f"still waiting for the end of {', '.join(sorted(ids))}")
            self._pause(_LOOK_SECONDS)

    # A driver that runs in the cluster.

    def _follow_in_cluster(
        self, application: Application | None
    ) -> tuple[Application | None, Verdict]:
        """Follow it to its end; without an application if there never was one."""
        gone_at: float | None = None
        late_from: float | None = None
        while True:
            if application is not None:
                self._reporting.see(application)
                if application.state.is_final:
                    return application, verdict_of(application.state)
                self._reporting.progress(self._watch.manager.ask(application), application.id)
            self._end_strays(application)
            self._pause(_LOOK_SECONDS if application is None else _FOLLOW_SECONDS)
            code = self._submission.wait(0)
            seen = self._watch.find(self.tags if self._was_refound else [self._tag])
            if seen is None:
                # Only times at which there was an answer count.
                gone_at = late_from = None
                continue
            now = time.monotonic()
            if application is not None:
                again = next((each for each in seen if each.id == application.id), None)
                if again is not None:
                    application, gone_at = again, None
                    continue
                gone_at = now if gone_at is None else gone_at
                if now - gone_at > _GONE_SECONDS:
                    self._say(f"{application.id} is gone, says {self._watch.manager.name}")
                    return application, Verdict.GONE
            elif seen:
                application = min(seen, key=lambda each: each.state.is_final)
            elif code is not None:
                late_from = now if late_from is None else late_from
                if now - late_from > _LATE_SECONDS[code == 0]:
                    return None, Verdict.NEVER_SEEN

    def _end_strays(self, application: Application | None) -> None:
        """End what a lost attempt's spark-submit brought into being after we had looked for it."""
        now = time.monotonic()
        if self._was_refound or not self._lost or now < self._strays_at:
            return
        self._strays_at = now + _STRAYS_SECONDS
        for each in self._watch.find(self._lost) or ():
            is_other = application is None or each.id != application.id
            if is_other and not each.state.is_final:
                self._watch.say_once(f"{each.id} of a lost attempt showed up late: it is ended")
                self._watch.kill(each)

    # A driver in a standalone cluster, which its Master lists apart from its application.

    def _follow_standalone(self) -> tuple[int | None, Application | None, Verdict]:
        """Follow it to the end that the Master reports.

        spark-submit ends with 0 even if the driver fails, and polls only every ten seconds.
        """
        driver: Application | None = None
        missing_since: float | None = None
        while driver is None or not driver.state.is_final:
            self._pause(0)
            code = self._submission.wait(_LOOK_SECONDS)
            seen = self._watch.find([self._tag])
            self._end_strays(None)
            if seen is None:
                # Only times at which there was an answer count.
                missing_since = None
                continue
            found = self._driver_in(seen, code)
            self._reporting.see_all([*seen, *([found] if found and found not in seen else [])])
            for each in self._reporting.applications:
                self._reporting.progress(self._watch.manager.ask(each), each.id)
            if found is not None:
                driver, missing_since = found, None
                continue
            now = time.monotonic()
            missing_since = now if missing_since is None else missing_since
            missed = now - missing_since
            if driver is not None and missed > _GONE_SECONDS:
                self._say(f"{driver.id} is gone, says {self._watch.manager.name}")
                return code, driver, Verdict.GONE
            if driver is None and code is not None and missed > _LATE_SECONDS[code == 0]:
                several = self._may_be_ours(self._watch.manager)
                if several:
                    ids = ", ".join(each.id for each in several)
                    self._say(
                        f"each of {ids} may be this attempt's driver, and no Worker's log of"
                        " them could be read"
                    )
                return code, None, Verdict.UNKNOWN if several else Verdict.NEVER_SEEN
        self._settle()
        apps = [each.state for each in self._reporting.applications if not each.is_driver]
        return code, driver, with_applications(verdict_of(driver.state), apps[:1])

    def _driver_in(self, seen: Sequence[Application], code: int | None) -> Application | None:
        """Return the attempt's driver: the driver with its tag, or else the only candidate."""
        tagged = [each for each in seen if each.is_driver]
        if tagged:
            return min(tagged, key=lambda each: each.state.is_final)
        if code is None:
            return None
        # Without a Worker's log the candidates are the drivers that came since the submission. The
        # id that spark-submit printed selects one. A program's argument may look like an id, but
        # no kill and no log depends on it, only this attempt's own outcome. Without a printed id a
        # single candidate counts, because a spark-submit that exits with 0 has seen a driver end.
        came = self._may_be_ours(self._watch.manager)
        printed = self._submission.printed()
        ours = [each for each in came if each.id in printed] or (came if code == 0 else [])
        return replace(ours[0], tags=(self._tag,)) if len(ours) == 1 else None

    # A driver that is a process of ours.

    def _follow_driver(self) -> tuple[int, Application | None, Verdict]:
        """Follow it to its end; its exit code, its application and the verdict that counts."""
        look_at = 0.0
        while (code := self._submission.wait(_LOOK_SECONDS)) is None:
            self._check()
            now = time.monotonic()
            if now >= look_at and not self._is_local:
                live = self._reporting.see_all(self._watch.find([self._tag]))
                look_at = now + (_FOLLOW_SECONDS if live else 0.0)
            if self._page.find():
                self._reporting.see_page(self._page)
                if not self._reporting.progress(self._page.ask, self._page.application_id):
                    self._page.forget()
            for each in self._reporting.applications:
                self._reporting.progress(self._watch.manager.ask(each), each.id)
            self._end_strays(None)
        application = self._settle()
        if application is None:
            # Without a sure answer nobody can say that there was none.
            unsure = self._is_local or bool(self._page.application_id) or not self._watch.is_sure
            return code, None, Verdict.UNKNOWN if unsure else Verdict.NEVER_SEEN
        return code, application, verdict_of(application.state)

    def _settle(self) -> Application | None:
        """Return the manager's last word, once the driver is gone and all that it had is over."""
        if self._is_local:
            return None
        begun = time.monotonic()
        while True:
            seen = self._watch.find([self._tag])
            live = self._reporting.see_all(seen)
            if seen is not None and not live:
                break
            waited = time.monotonic() - begun
            if seen is None and waited > _ONE_LAST_LOOK_SECONDS:
                self._say("how the application ended is not known: its driver's end counts")
                break
            if live and waited > _SETTLE_SECONDS:
                self._say("its driver is gone, but an application still runs: it is ended")
                end(
                    self._watch,
                    [self._tag],
                    self._submission,
                    self._say,
                    late_seconds=0.0,
                    limit_seconds=_END_OTHERS_SECONDS,
                )
                break
            self._pause(0.2)
        return next(iter(self._reporting.applications), None)

    # The end.

    def _code(self) -> int | None:
        """spark-submit's exit code in cluster mode, where it has no part in the work any more."""
        code = self._submission.wait(_ONE_LAST_LOOK_SECONDS)
        if code is None:
            self._submission.terminate()
        return code

    def _conclude(self, ended: Outcome, code: int | None, application: Application | None) -> int:
        log = ""
        if ended.failure is not None:
            if application is not None and self._place.in_cluster:
                log = fetched_log(self._job, self._watch.manager, application, self._pause)
            if not log and self._submission.is_running():
                # Without a log the driver could not be started, and spark-submit prints the cause.
                self._submission.wait(_REPORT_SECONDS)
            log = log or self._submission.printed()
        # It would only continue to poll the Master.
        self._submission.terminate()
        self._submission.wait(_TERMINATE_SECONDS)
        why = self._reporting.end(
            ended, log, "" if application is None else application.diagnostics
        )
        if why:
            self._job.fail(JobError(why))
        return exit_code(code, ended)

    def _say(self, text: str) -> None:
        say(self._job, text)

    def _pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self._stopping.is_set():
            raise GivenUpError
