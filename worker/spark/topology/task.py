"""Runs a topology: a task that starts its queries, obeys people, and reports.

A thin shell around `life`, which decides. Spark's threads run the batches; this one asks the worker
what people want, looks how the queries stand, and tells the worker. A watch (`watch`) has it ask at
once when that has changed. All that outlives the task is
in the folder of the topology, which all workers share: checkpoints, dead letters, figures, and
what the checkpoints depend on (`common.topology.succession`).

It begins with a beat, in a file and to the worker, before anything slow, and ends in Storm's order:
spouts off, the batch done and committed, queries stopped, sources closed, the last report.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol

from common.errors import SchedulerError
from common.model.failures import FailureReason
from common.model.topologies import ComponentError, Report, Wanted
from common.topology.checking import InvalidTopologyError, checked
from common.topology.components import DEFAULT, Spout
from common.topology.config import FAILURES, TIMEOUT, setting
from common.topology.declaration import Topology
from common.topology.succession import heritage, obstacles
from common.topology.windows import Windows
from common.topology_loading import loaded
from orcaflow import topology_orders
from worker.spark.diagnosis.failures import WorkFailedError, is_late_python
from worker.spark.streaming.documents import replace as replace_file
from worker.spark.topology.checkpoints import CURE, HERITAGE, Running, missing
from worker.spark.topology.figures import (
    ACKED,
    EMITTED,
    ERROR,
    FAILED,
    LOAD,
    TRANSFERRED,
    Tally,
)
from worker.spark.topology.life import Standing, Step, next_step, switched_off
from worker.spark.topology.queries import TopologyQueries
from worker.spark.topology.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from worker.spark.session.job import Job

_REST_SECONDS: Final = 0.2
_TELL_SECONDS: Final = 0.5
_KEEP_SECONDS: Final = 10.0
_SHOWN_ERRORS: Final = 50
SCRATCH: Final = "topology"
FIGURES: Final = "figures.json"
BEAT: Final = "beat.json"
_OF_CALLS: Final = "An error occurred while calling "
_ENDED: Final = "Python worker exited unexpectedly"
_ENDED_ITSELF: Final = (
    "a process of its components has ended by itself in the middle of a batch: a component has"
    " ended it (as by os._exit), has crashed it, or has taken more memory than there was"
)
_OF_CHECKPOINT: Final = re.compile(
    r"STATE_STORE|RocksDB|streaming\.state\.|\.changelog|Incomplete log file|BATCH_METADATA"
    r"|/(offsets|commits)/\d|HDFSMetadataLog|OffsetSeqLog|CommitLog"
)
_OF_COMPONENT: Final = re.compile(r"ComponentFailedError: (.+)")


class Conversation(Protocol):
    """The task's end of the conversation with people, by its worker."""

    def work(self) -> topology_orders.Work: ...

    def tell(self, report: Report) -> Wanted | None:
        """Tell how far the task has come; None if nobody hears it just now."""
        ...


class WorkerConversation:
    """The conversation by the worker's socket. `AttemptEndedError` if this attempt has to end."""

    def work(self) -> topology_orders.Work:
        return topology_orders.work()

    def tell(self, report: Report) -> Wanted | None:
        try:
            return topology_orders.tell(report)
        except topology_orders.WorkerAwayError:
            return None

    def watch(self, number: int) -> int | None:
        """Wait for other orders than those of this number; None if the worker is away."""
        try:
            return topology_orders.watch(number)
        except topology_orders.WorkerAwayError:
            return None


def run(spark: SparkSession, job: Job) -> int:
    """Run the topology that the worker names; 0 once people have killed it."""
    conversation = WorkerConversation()
    work = conversation.work()
    try:
        task = TopologyTask(
            spark,
            work,
            conversation,
            scratch=job.reason_file.parent / SCRATCH,
            say=job.say,
        )
        with Watch(conversation.watch, work.wanted.number, task.ask_soon):
            task.run()
    except InvalidTopologyError as error:
        raise WorkFailedError("; ".join(error.mistakes), FailureReason.CONFIGURATION) from error
    return 0


class TopologyTask:
    """One topology from the start of its task to its end."""

    def __init__(
        self,
        spark: SparkSession,
        work: topology_orders.Work,
        conversation: Conversation,
        *,
        scratch: Path,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`scratch` is made, and is this process's own. `clock`: seconds that only go forward."""
        self.spark = spark
        """The session; another one after a rebalance to other cores."""
        self._work = work
        self._conversation = conversation
        self._scratch = scratch
        self._say = say
        self._clock = clock
        self._wanted = work.wanted
        self._standing = Standing(applied=work.wanted)
        self._declared: Topology | None = None
        self._queries: TopologyQueries | None = None
        self._windows = Windows(self._kept_figures(), begun=time.time())
        self._began = datetime.now(UTC)
        # An attempt that is refused must not have the next one believe that nothing was ever done.
        self._batch = -1 if work.report is None else work.report.batch
        self._batches: SimpleQueue[tuple[str, float, tuple[int, Tally] | None]] = SimpleQueue()
        self._batch_begun: dict[str, float] = {}
        self._errors: deque[ComponentError] = deque(maxlen=_SHOWN_ERRORS)
        self._trouble = ""
        self._reported_at = self._kept_at = float("-inf")
        self._reported: tuple[object, ...] = ()
        self._is_to_ask = Event()
        self._last_failure: BaseException | None = None
        self._failed_query = ""
        self._refused_version = 0

    def run(self) -> None:
        """Run until people kill it; whatever ends it otherwise is raised."""
        self._beat()
        self._report_progress()
        if self._wanted.killed:
            # A former attempt was lost on its way to the end: nothing emits, nothing is to be kept.
            self._remove()
            return
        self._check_checkpoints()
        self._begin()
        self._say(f"topology {self._work.name}, version {self._work.version}")
        try:
            while True:
                self._look()
                step = next_step(
                    self._standing,
                    self._wanted,
                    self._clock(),
                    most_failures=int(setting(FAILURES, self._topology().config)),
                )
                if step is Step.END:
                    break
                self._carry_out(step)
                self._report_progress()
                if step is Step.NOTHING:
                    self._is_to_ask.wait(_REST_SECONDS)
        except BaseException:
            self._stop()
            with suppress(OSError):  # The folder may be why it ends.
                self._keep_figures()
            raise
        self._stop()
        self._remove()

    def ask_soon(self) -> None:
        """Have the task ask at once what people want; called by any thread."""
        self._is_to_ask.set()

    def _begin(self) -> None:
        """Take up what a former attempt has run: whatever is wanted since then is to be done."""
        kept = Running.kept(self._work.folder)
        if kept is not None:
            newest, self._work = (
                self._work,
                replace(self._work, version=kept.version, code=kept.code),
            )
            is_stale = newest.version != kept.version
            self._standing = Standing(applied=kept.wanted, stale=is_stale)
        self._declared = self._load(self._work)
        self._recore()

    def _remove(self) -> None:
        """Remove all that outlives an attempt; if it is lost meanwhile, the next one ends it."""
        shutil.rmtree(self._work.folder, ignore_errors=True)
        self._say("killed: its checkpoints are gone")

    def _carry_out(self, step: Step) -> None:
        now = self._clock()
        match step:
            case Step.SWITCH_ON:
                self._pause(paused=False)
                self._standing = replace(self._standing, emitting=True, applied=self._wanted)
                self._say("active: the spouts emit")
            case Step.SWITCH_OFF:
                self._pause(paused=True)
                self._standing = switched_off(self._standing, self._wanted, now)
                if self._standing.drain_since is None and not self._standing.stale:
                    self._standing = replace(self._standing, applied=self._wanted)
                self._say("the spouts emit nothing any more")
            case Step.START:
                self._start()
            case Step.RESHAPE | Step.RENEW:
                self._stop()
                if step is Step.RENEW:
                    self._renew()
                applied = self._wanted
                if step is Step.RENEW:
                    # A rebalance that is on its way has to wait for the batch that was begun.
                    applied = self._wanted.shaped_as(self._standing.applied)
                self._standing = Standing(applied=applied, emitting=False)
                self._recore()
                self._start()
            case Step.GIVE_UP:
                self._give_up()
            case Step.NOTHING:
                if self._is_obeyed():
                    self._standing = replace(self._standing, applied=self._wanted)

    def _is_obeyed(self) -> bool:
        """Return True if nothing of what is wanted is to be done any more."""
        return (
            self._standing.running
            and self._standing.drain_since is None
            and not self._standing.stale
            and self._standing.emitting is self._wanted.active
        )

    # ---- queries

    def _topology(self) -> Topology:
        """Return the topology as it is to run: as declared, with what rebalances have set."""
        assert self._declared is not None
        wanted = self._standing.applied
        return replace(
            self._declared,
            parts=tuple(
                replace(
                    part,
                    executors=min(
                        wanted.executors.get(part.id, part.executors),
                        wanted.tasks.get(part.id, part.tasks),
                    ),
                    tasks=wanted.tasks.get(part.id, part.tasks),
                )
                for part in self._declared.parts
            ),
        )

    def _start(self) -> None:
        topology = checked(self._topology())
        self._stop()
        queries = TopologyQueries(
            self.spark, topology, folder=self._work.folder, scratch=self._scratch
        )
        queries.begun = lambda query, _: self._batches.put((query, self._clock(), None))
        queries.committed = lambda query, *done: self._batches.put((query, self._clock(), done))
        is_off = self._wanted.killed or self._standing.drain_since is not None
        emitting = self._wanted.active and not is_off
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._queries = queries
        queries.pause(paused=not emitting)
        self._standing = replace(
            self._standing, running=True, emitting=emitting, busy=True, failed_at=None
        )
        # Before the first batch: one that is committed without them would count as lost, or be done
        # by others than those that have begun it.
        Running(
            version=self._work.version, code=self._work.code, wanted=self._standing.applied
        ).keep(self._work.folder)
        replace_file(self._work.folder / HERITAGE, heritage(topology))
        try:
            queries.start()
        except Exception as error:  # noqa: BLE001  # Spark raises anything.
            self._failed("", error)
            return
        names = ", ".join(each.name for each in queries.running)
        self._say(f"running: {len(queries.running)} queries ({names})")

    def _pause(self, *, paused: bool) -> None:
        if self._queries is not None:
            self._queries.pause(paused=paused)

    def _stop(self) -> None:
        queries, self._queries = self._queries, None
        if queries is not None:
            queries.stop()
        self._standing = replace(self._standing, running=False)
        self._take_batches()
        self._batch_begun.clear()

    def _take_batches(self) -> None:
        """Take note of batches that were begun and committed, which their queries' threads tell."""
        while not self._batches.empty():
            query, moment, done = self._batches.get()
            if done is None:
                self._batch_begun[query] = moment
            else:
                self._committed(query, *done)

    def _committed(self, query: str, number: int, done: Tally) -> None:
        self._batch_begun.pop(query, None)
        self._batch = max(self._batch, number)
        now = time.time()
        self._windows.add(
            {
                key: count
                for key, count in done.items()
                if key[0] not in {ERROR, LOAD} and count > 0
            },
            now,
        )
        for (what, component, text), count in done.items():
            if what == ERROR and count > 0:
                task, _, told = text.partition(" ")
                self._note(component, int(task), told)
        if query == self._failed_query:
            self._last_failure, self._failed_query = None, ""
            self._standing = replace(self._standing, failures=0, late=0)

    def _note(self, component: str, task: int, told: str) -> None:
        self._errors.append(
            ComponentError(component=component, task=task, time=datetime.now(UTC), error=told)
        )

    def _failed(self, query: str, error: BaseException) -> None:
        """Take note of a batch that failed; all queries are started again together."""
        self._stop()
        self._failed_query = query
        told = reason_of(error)
        self._standing = self._standing.failed(self._clock(), is_late=is_late_python(error))
        self._last_failure = error
        self._trouble = told
        component, _, _ = told.partition(",")
        ids = {part.id for part in self._topology().parts}
        self._note(component if component in ids else "", 0, told)
        failures = self._standing.failures
        self._say(f"a batch has failed; {failures} failures in a row count: {told}")
        for part in self._topology().parts:
            if isinstance(part.component, Spout):
                self._windows.add({(FAILED, part.id, "default"): 1}, time.time())

    def _give_up(self) -> None:
        error = self._last_failure
        told = self._trouble or "a batch failed again and again"
        raise WorkFailedError(
            f"a batch has failed {self._standing.failures} times: {told}",
            FailureReason.PYTHON_ERROR,
        ) from error

    # ---- versions and shapes

    def _load(self, work: topology_orders.Work) -> Topology:
        """Load a version of the code; `InvalidTopologyError`."""
        folder = self._scratch / "code" / str(work.version)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = loaded(work.code, folder)
        self._import_from(folder)
        return found

    def _import_from(self, folder: Path) -> None:
        """Have Spark's processes for Python import from a folder too.

        Those that it has already keep to theirs: another environment is another set of processes.
        """
        self.spark.sparkContext.environment["PYTHONPATH"] = str(folder)

    def _renew(self) -> None:
        """Go on with the newest version, if it can take over; else say why not, and stay."""
        work = self._conversation.work()
        try:
            later = self._load(work)
        except InvalidTopologyError as error:
            self._stay(work, error.mistakes)
            return
        self._declared = later
        try:
            blockers = tuple(
                obstacles(
                    json.loads((self._work.folder / HERITAGE).read_text(encoding="utf-8")),
                    heritage(checked(self._topology())),
                )
            )
        except InvalidTopologyError as error:
            blockers = error.mistakes
        if blockers:
            self._stay(work, blockers)
            return
        self._work, self._trouble = work, ""
        self._say(f"version {work.version} goes on from the checkpoints")

    def _stay(self, work: topology_orders.Work, mistakes: tuple[str, ...]) -> None:
        self._refused_version = work.version
        self._trouble = (
            f"version {work.version} can't take over from version {self._work.version}:"
            f" {'; '.join(mistakes)}; kill the topology and submit it anew, or submit what fits"
        )
        self._say(self._trouble)
        self._declared = self._load(self._work)

    def _recore(self) -> None:
        """Have another number of cores, if it is wanted."""
        cores = self._standing.applied.cores
        if cores is None or cores == self.spark.sparkContext.defaultParallelism:
            return
        from pyspark.sql import SparkSession

        conf: dict[str, Any] = dict(self.spark.sparkContext.getConf().getAll())
        self.spark.stop()
        for name in ("spark.app.id", "spark.driver.port", "spark.app.startTime"):
            conf.pop(name, None)
        conf["spark.master"] = f"local[{cores}]"
        environment = self.spark.sparkContext.environment
        self.spark = SparkSession.builder.config(map=conf).getOrCreate()
        self.spark.sparkContext.environment.update(environment)

    def _check_checkpoints(self) -> None:
        """Refuse to begin anew where batches were committed, and their places are gone."""
        report = self._work.report
        if report is None or report.batch < 0:
            return
        found = [*missing(self._work.folder)]
        if found:
            raise WorkFailedError(
                f"the checkpoints of topology {self._work.name} are gone from {self._work.folder}"
                f" ({', '.join(found)} missing): {CURE}",
                FailureReason.DATA_ERROR,
            )

    # ---- looking and telling

    def _look(self) -> None:
        queries = self._queries
        if queries is None or not self._standing.running:
            return
        self._take_batches()
        failure = queries.failure()
        if failure is None:
            failure = self._overdue()
        if failure is not None:
            self._failed(*failure)
            return
        # A query that rests has told of its last batch by now.
        busy = queries.is_busy()
        acked: Tally = Counter()
        for each in queries.running:
            for spout, count in each.acked().items():
                acked[EMITTED, spout, DEFAULT] += count
                acked[ACKED, spout, DEFAULT] += count
                acked[TRANSFERRED, spout, DEFAULT] += count * each.query.copies_of(spout)
        if any(acked.values()):
            self._windows.add(acked, time.time())
            if not self._refused_version:
                self._trouble = ""
        self._standing = replace(self._standing, busy=busy)

    def _overdue(self) -> tuple[str, BaseException] | None:
        limit = int(setting(TIMEOUT, self._topology().config))
        now = self._clock()
        for query, begun in list(self._batch_begun.items()):
            if now - begun > limit:
                return query, TimeoutError(f"a batch of query {query} took longer than {limit} s")
        return None

    def _report_progress(self) -> None:
        """Tell twice a second, and at once what people wait for; hear what they want."""
        now = self._clock()
        standing = self._standing
        weighty = (standing.state, standing.running, standing.applied.number, self._trouble)
        is_due = self._is_to_ask.is_set() or weighty != self._reported
        if not is_due and now < self._reported_at + _TELL_SECONDS:
            return
        self._is_to_ask.clear()
        self._reported, self._reported_at = weighty, now
        self._beat()
        if now >= self._kept_at + _KEEP_SECONDS:
            self._kept_at = now
            self._keep_figures()
        wanted = self._conversation.tell(self.report())
        if wanted is None:
            return
        if wanted.number != self._wanted.number:
            self._hear(wanted)

    def _hear(self, wanted: Wanted) -> None:
        """Take note of what people want now."""
        self._wanted = wanted
        version = self._conversation.work().version
        is_stale = version not in (self._work.version, self._refused_version)
        self._standing = replace(self._standing, stale=is_stale)

    def report(self) -> Report:
        """Return how far the task has come."""
        lag: dict[str, int] = {}
        trouble = self._trouble
        for each in self._queries.running if self._queries is not None else ():
            for spout in each.query.spouts:
                place = self._queries.place(each.name, spout) if self._queries else None
                if place is not None:
                    lag[spout] = max(lag.get(spout, 0), place.lag)
                    trouble = trouble or (f"{spout}: {place.trouble}" if place.trouble else "")
        parts = () if self._declared is None else self._topology().parts
        return Report(
            state=self._standing.state,
            obeyed=self._standing.applied.number if self._standing.running else -1,
            version=self._work.version,
            began=self._began,
            batch=self._batch,
            cores=self.spark.sparkContext.defaultParallelism,
            lag=lag,
            components=self._windows.components(parts, time.time()),
            errors=tuple(self._errors),
            trouble=trouble[:2_000],
            failures=self._standing.failures,
        )

    def _beat(self) -> None:
        """Leave a sign of life in a file, with progress."""
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {
            "time": time.time(),
            "pid": os.getpid(),
            "topology": self._work.name,
            "version": self._work.version,
            "state": self._standing.state.value,
            "batch": self._batch,
        }
        replace_file(self._scratch / BEAT, document)

    def _kept_figures(self) -> Mapping[str, Any] | None:
        try:
            found = json.loads((self._work.folder / FIGURES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None  # They are for people; without them it counts from zero.
        return found if isinstance(found, dict) else None

    def _keep_figures(self) -> None:
        if self._work.folder.is_dir():
            replace_file(self._work.folder / FIGURES, self._windows.document(time.time()))


def reason_of(error: BaseException) -> str:
    """Return an error of a query as people should read it."""
    text = str(error)
    found = _OF_COMPONENT.search(text)
    if found is not None:
        return found[1].strip()
    if isinstance(error, SchedulerError | TimeoutError):
        return text
    if _ENDED in text:
        return _ENDED_ITSELF
    lines = [line.removeprefix(": ") for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(_OF_CALLS)]
    told = (own[0] if own else type(error).__name__)[:1_000]
    if _OF_CHECKPOINT.search(text):
        return f"{told}; its checkpoint is damaged or away: {CURE}"
    return told
