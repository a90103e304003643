"""The program behind SPARK tasks: runs spark-submit, follows its application, and ends it on TERM.

The main thread only waits: for the thread that follows the application (`spark_follow`), or for a
signal. On TERM it ends spark-submit and every application that carries the attempt's tag, and
exits when the manager has confirmed that. If it is killed first, at the end of the grace period,
the workers' sweep does the rest.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from typing import Final

from worker.runners.job import FAILED, Job, read_job
from worker.runners.spark_ending import end
from worker.runners.spark_follow import Follower, GivenUpError
from worker.runners.spark_process import Submission
from worker.runners.spark_reporting import say
from worker.runners.spark_watch import Watch
from worker.spark.managers.base import ApplicationManager
from worker.spark.managers.choice import manager_of, own_user
from worker.spark.managers.local import LocalManager
from worker.spark.managers.rest import HASTY, PATIENT, Limits
from worker.spark.managers.settings import ManagerSettings
from worker.spark.progress.facts_file import FactsFile

_ENDED: Final = 0
"""The news of the thread that follows the application; that of a signal is its number."""
_MOST_NEWS: Final = 64
_TROUBLE_SECONDS: Final = 60.0
"""The time to insist on ends when this program itself has failed; the sweep goes on after it."""


def main() -> int:
    job = read_job()
    # The kernel may give a signal to any thread, and Python would then run a handler only when this
    # one wakes up; the pipe is written at once.
    news, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda _signum, _frame: None)
    stopping = threading.Event()
    submission = Submission(job.document)
    facts = FactsFile(os.environ.get("ORCAFLOW_SPARK_FACTS"))
    watch = Watch(_manager(job, PATIENT), lambda text: say(job, text), user=job.document["user"])
    follower = Follower(job, watch, submission, facts, stopping)
    codes: list[int] = []

    def follow() -> None:
        try:
            code = follower.run()
        except GivenUpError:
            # Not over before the program is: spark-submit dies along with this thread.
            threading.Event().wait()
            return
        except BaseException as error:  # noqa: BLE001  # The thread's only way to tell of it.
            code = job.fail(error)
            if submission.was_started:
                _end(job, follower, submission, limit_seconds=_TROUBLE_SECONDS)
        codes.append(code)
        os.write(tell, bytes([_ENDED]))

    threading.Thread(target=follow, name="follow", daemon=True).start()
    select.select([news], [], [])
    # A stop ends spark-submit as well, and the other thread may be the first to tell of that.
    number = next((each for each in os.read(news, _MOST_NEWS) if each != _ENDED), _ENDED)
    if number == _ENDED:
        (code,) = codes
    else:
        stopping.set()
        # As if killed, without the confirmation: the row then shows that it is missing.
        code = 128 + (number if _end(job, follower, submission) else signal.SIGKILL)
    submission.forget_properties()
    facts.flush()
    sys.stdout.flush()
    # The other thread may hang in a request, and must not keep the program.
    os._exit(code)


def _end(
    job: Job, follower: Follower, submission: Submission, *, limit_seconds: float = float("inf")
) -> bool:
    """End all that is the attempt's; True if that was confirmed.

    It takes another connection, because the first one may be waiting.
    """
    manager = _manager(job, HASTY, before=follower.manager)
    watch = Watch(manager, lambda text: say(job, text), follower.foreign, user=job.document["user"])
    try:
        return end(
            watch,
            follower.tags,
            submission,
            lambda text: say(job, text),
            late_seconds=follower.late_seconds,
            limit_seconds=limit_seconds,
            may_be_ours=follower.may_be_ours,
        )
    except Exception as error:  # noqa: BLE001  # There is nobody left to catch it.
        job.fail(error)
        return False


def _manager(
    job: Job, limits: Limits, before: ApplicationManager | None = None
) -> ApplicationManager:
    document = job.document
    found = manager_of(
        document["master"],
        ManagerSettings.from_document(document["managers"]),
        user=own_user(),
        namespace=document["namespace"],
        limits=limits,
        before=before,
    )
    # Without one only a driver of our own is let through to here, and that is all that is watched.
    return LocalManager() if found is None else found


if __name__ == "__main__":
    sys.exit(main() or FAILED)
