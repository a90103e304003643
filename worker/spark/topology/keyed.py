"""A stateful bolt as a stateful processor of Spark, one state for each key.

A key's records of a batch come packed (`stages.PackStage`), and what it emits goes out packed, so a
key costs one row in, one row out, and two requests to the state store, however many records it has.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from common.topology.components import FORGET, Record, StatefulBolt, Stream
from common.topology.emitting import Emitter
from worker.spark.topology.figures import EXECUTED, MICROS, TASK, TaskTally
from worker.spark.topology.program import Pickled, Program
from worker.spark.topology.stages import (
    RAISED,
    ComponentFailedError,
    Guard,
    KeyDone,
    batch_number,
    failed_at,
    partition_number,
)

OUT: Final = "_done"
_FIRST: Final = itemgetter(0, 1)
_EDGE: Final = itemgetter(2)


def has_timers(bolt: StatefulBolt) -> bool:
    """Return True if a bolt wakes keys."""
    return type(bolt).due is not StatefulBolt.due


class KeyedProcessor(StatefulProcessor):
    """Runs one stateful bolt in one partition of one batch."""

    def __init__(self, program: Pickled, component: str) -> None:
        self._program = program
        self._component = component

    def init(self, handle: StatefulProcessorHandle) -> None:
        # Spark calls this in the driver too, to learn of the states, where no program is.
        self._handle = handle
        self._state = handle.getValueState("state", "state binary, due bigint")

    @cached_property
    def _work(self) -> _Work:
        return _Work(self._program.value, self._component, self._state, self._handle)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        packed = [each for row in rows for each in pickle.loads(row[-1])]  # noqa: S301
        yield _row(self._work.take(tuple(key), packed))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        done = self._work.wake(tuple(key), expiredTimerInfo.getExpiryTimeInMs(), now)
        if done is not None:
            yield _row(done)

    def close(self) -> None:
        if "_work" in self.__dict__:
            self._work.close()


def _row(done: KeyDone) -> Row:
    return Row(**{OUT: pickle.dumps(done)})


class _Work:
    """The work of one task of a stateful bolt in one batch."""

    def __init__(self, program: Program, component: str, state: Any, handle: Any) -> None:
        part = program.part(component)
        assert isinstance(part.component, StatefulBolt)
        self._bolt = part.component
        self._name = component
        self._state = state
        self._handle = handle
        self._has_timers = has_timers(self._bolt)
        self._task = partition_number()
        self._edges = {
            edge.number: (edge, program.stream_of(edge))
            for edge in program.query.edges_to(component)
        }
        self._emit = _Kept(component, program.streams(component))
        self._tally = TaskTally(component, self._task)
        self._guard = Guard(program, part, self._task, batch_number(), self._tally)

    def take(self, key: tuple[Any, ...], packed: list[tuple[Any, ...]]) -> KeyDone:
        """Have the bolt take the records of a key, and keep its state; `ComponentFailedError`."""
        try:
            return self._take(key, packed)
        except ComponentFailedError:
            raise
        except RAISED as error:
            raise self._failed(error) from error

    def _take(self, key: tuple[Any, ...], packed: list[tuple[Any, ...]]) -> KeyDone:
        begun = time.perf_counter_ns()
        # As they were emitted by each task: they may come from several batches of Arrow.
        packed.sort(key=_FIRST)
        change = self._change()
        for number, found in groupby(packed, _EDGE):
            edge, stream = self._edges[number]
            taken, name = edge.taken.component, edge.taken.stream
            records = [
                Record(values, stream.fields, taken, name, emitter)
                for emitter, _, _, values in found
            ]
            self._guard.each(records, change.process, self._emit, f"{taken}:{name}")
            self._tally.add(EXECUTED, f"{taken}:{name}", len(records))
        self._tally.add(TASK, str(self._task), len(packed))
        change.keep()
        self._tally.add(MICROS, "", (time.perf_counter_ns() - begun) // 1_000)
        return self._done(key, len(packed))

    def wake(self, key: tuple[Any, ...], due: int, now: int) -> KeyDone | None:
        """Have the bolt do what is due at a key; None if nothing is any more."""
        try:
            change = self._change()
            if change.is_new or change.due != due:
                return None  # The key was forgotten, or is to be woken at another time, since.
            change.wake(key, datetime.fromtimestamp(now / 1_000, UTC))
            change.keep()
        except RAISED as error:
            raise self._failed(error) from error
        return self._done(key, 0)

    def close(self) -> None:
        """Keep the dead letters of the batch."""
        self._guard.close()

    def _change(self) -> _Change:
        due = self._bolt.due if self._has_timers else None
        store = _Store(self._state, self._handle)
        return _Change(self._bolt, store, self._emit, due, undoes=not self._guard.is_strict)

    def _failed(self, error: BaseException) -> ComponentFailedError:
        return failed_at(self._name, self._task, error)

    def _done(self, key: tuple[Any, ...], records: int) -> KeyDone:
        counts, self._tally.counts = self._tally.counts, Counter()
        return KeyDone(key, records, self._emit.taken(), counts)


@dataclass(frozen=True, slots=True)
class _Store:
    """The state and the timers of the key that Spark is at, in its state store."""

    state: Any
    timers: Any


class _Change:
    """The change of one key's state in a batch. `next_due` tells when a state is to be woken.

    `undoes`: a record that fails leaves the state as it was, whatever the bolt has done to it.
    """

    def __init__(
        self,
        bolt: StatefulBolt,
        store: _Store,
        emit: _Kept,
        next_due: Callable[[Any], datetime | None] | None,
        *,
        undoes: bool,
    ) -> None:
        self._bolt = bolt
        self._store = store
        self._emit = emit
        self._next_due = next_due
        self._undoes = undoes
        found = store.state.get()
        self.is_new = found is None
        self.due: int | None = None if found is None else found[1]
        self._timer = self.due
        self.state = bolt.initial() if found is None else pickle.loads(found[0])  # noqa: S301

    def process(self, record: Record) -> None:
        """Have the bolt take a record."""
        if self.state is FORGET:
            self.state = self._bolt.initial()
        if not self._undoes or isinstance(self.state, _UNCHANGING):
            self.state = self._bolt.process(record, self.state, self._emit)
            return
        before = _pickled(self.state)
        try:
            self.state = self._bolt.process(record, self.state, self._emit)
        except BaseException:
            self.state = pickle.loads(before)  # noqa: S301  # Our own, of just now.
            raise

    def wake(self, key: tuple[Any, ...], now: datetime) -> None:
        """Have the bolt do what is due."""
        self.state = self._bolt.wake(key, self.state, now, self._emit)
        self._timer = None  # It is gone.

    def keep(self) -> None:
        """Store the state, and set the timer."""
        forgotten = self.state is FORGET
        due = None if forgotten or self._next_due is None else self._next_due(self.state)
        moment = None if due is None else int(due.timestamp() * 1_000)
        if moment != self._timer:
            if self._timer is not None:
                self._store.timers.deleteTimer(self._timer)
            if moment is not None:
                self._store.timers.registerTimer(moment)
        if not forgotten:
            self._store.state.update((_pickled(self.state), moment))
        elif not self.is_new:
            self._store.state.clear()


_UNCHANGING: Final = (int, float, str, bytes, type(None))


def _pickled(state: Any) -> bytes:
    try:
        return pickle.dumps(state)
    except Exception as error:
        raise TypeError(f"a state of type {type(state).__name__} can't be kept: {error}") from error


class _Kept(Emitter):
    """Keeps what a key emits, for `stages.UnpackStage`, which knows the way."""

    def __init__(self, component: str, streams: dict[str, Stream]) -> None:
        super().__init__(component, streams)
        self._kept: list[tuple[tuple[Any, ...], str, int | None]] = []

    def mark(self) -> dict[str, int]:
        """Return where it stands, as `Outbox.mark` does."""
        return {"": len(self._kept)}

    def take_back(self, mark: dict[str, int]) -> None:
        """Drop what was emitted since."""
        if mark:
            del self._kept[mark[""] :]

    def taken(self) -> list[tuple[tuple[Any, ...], str, int | None]]:
        """Return what was kept, and keep nothing."""
        kept, self._kept = self._kept, []
        return kept

    def _send(self, values: tuple[Any, ...], stream: str, task: int | None) -> Sequence[int]:
        self._kept.append((values, stream, task))
        return ()
