"""The notes on disk about each live attempt, by which a later incarnation goes on with it.

One small file an attempt, named by its id, in a directory of the worker's own that no task can
write. The first line says what runs; the attempt's wrapper, which inherits the open file, adds its
pid before the task starts and the exit code after it ended. For a program without a wrapper the
shim does so, as soon as it has started it. So a result outlives the daemon, and a
crash between starting a process and noting it is no gap. A record is removed after the end has been
written to the tables. What an attempt puts out and when its time is out stand there too.

That a kill was wanted, or that the time was out, is a file beside the record: TERM may end the
attempt when no daemon is left. If `socket_owners` ended the attempt, another file
holds the reason.

A wrapper of another account has a file of its own for its notes: its account can take the open file
from it and write what it likes, and a record names files that the worker opens and removes.

The file of a record whose wrapper is surely gone is emptied and kept, under another name, for a
record to come: where an ext4 has no journal, to make a file takes ten times as long as to rename
one, while others were removed lately (`worker.workspace.keep_apart` says why).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from worker.processes.outputs import Declared
from worker.processes.quality_report import quality_log
from worker.processes.results import is_full

_LIMIT_BYTES = 1_000_000
_LARGEST_PID = 2**22
_LARGEST_EXIT_CODE = 255
_MOST_SPARE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An attempt as a former incarnation left it. `pid` is None if it never came to run."""

    task_instance_id: int
    task_type: str
    execute_path: str
    log_path: str
    complement: bool = False
    outputs: Declared | None = None
    job_file: Path | None = None
    facts_file: Path | None = None
    keeps_children: bool = False
    cgroup: Path | None = None
    memory_mb: int = 0
    times_out_at: datetime | None = None
    timeout: timedelta | None = None
    secret_names: tuple[str, ...] = ()
    """The parameters that their author marked as secret. The record holds no values."""
    notes_apart: bool = False
    """The wrapper runs as another account, and has a file of its own for its notes."""
    pid: int | None = None
    by_shim: bool = False
    """A shim has started it, which reaps it once its exit is noted."""
    exit_code: int | None = None
    kill_wanted: bool = False
    timed_out: bool = False
    """It was told to end since its time was out."""
    ended_for: str | None = None
    """The reason for which `worker.processes.socket_owners` ended it."""

    @property
    def quality_of(self) -> Path | None:
        """The log beside which the attempt reports the results of rules on data, if it does."""
        return quality_log(self.task_type, self.log_path)


class Records:
    """The directory with the records of one worker address."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # As text: to put a path together by `Path` takes longer than what is done with it.
        self._directory = str(directory)
        # The attempts of which there may be files beside the record: to remove one that is not
        # there takes as long as to remove one that is.
        self._accompanied = {
            int(number)
            for number, dot, _ in (path.name.partition(".") for path in directory.iterdir())
            if dot and _is_number(number)
        }
        self._spare = [str(path) for path in directory.glob("spare.*")][:_MOST_SPARE]
        self._next_spare = 0

    def begin(self, record: Record) -> int:
        """Make the record; the file descriptor is the wrapper's to write to."""
        path = self._path(record.task_instance_id)
        self._remove_beside(record.task_instance_id)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
        file = self._take_spare(path)
        if file is None:
            file = os.open(path, flags, 0o600)
        try:
            os.write(file, json.dumps(_about(record)).encode() + b"\n")
            if not record.notes_apart:
                return file
            self._accompanied.add(record.task_instance_id)
            # Made afresh: somebody may still have the file of an attempt with the same id.
            apart = os.open(self._notes(record.task_instance_id), flags | os.O_EXCL, 0o600)
        except OSError:
            os.close(file)
            _remove(path)
            raise
        os.close(file)
        return apart

    def note_kill(self, task_instance_id: int) -> None:
        """Note that a kill of the attempt is wanted; where there is no room, that stays unknown."""
        self._note(self._kill(task_instance_id), task_instance_id)

    def note_timeout(self, task_instance_id: int) -> None:
        """Note that the attempt's time is out; where there is no room, that stays unknown."""
        self._note(self._timeout(task_instance_id), task_instance_id)

    def note_end(self, task_instance_id: int, reason: str) -> None:
        """Note the reason for which another program than the worker ends the attempt."""
        path = Path(self._end(task_instance_id))
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
                # Root may note it for a worker of another account.
                owner = Path(self._directory).stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                file.write(reason)

    def forget_end(self, task_instance_id: int) -> None:
        """Remove such a note: the attempt was not ended."""
        _remove(self._end(task_instance_id))

    def ended_for(self, task_instance_id: int) -> str | None:
        """Return the reason for which another program ended the attempt; None if none did."""
        try:
            reason = Path(self._end(task_instance_id)).read_text("utf-8")
        except (OSError, ValueError):
            return None
        self._accompanied.add(task_instance_id)
        return reason or None

    def remove(self, task_instance_id: int, *, is_spare: bool = False) -> None:
        """Forget the attempt; one that has no record is fine.

        `is_spare`: nobody has the file of its record open any more, so that another may have it.
        """
        path = self._path(task_instance_id)
        if not (is_spare and self._keep_spare(path)):
            _remove(path)
        self._remove_beside(task_instance_id)

    def _keep_spare(self, path: str) -> bool:
        """Keep the file for a record to come; False if there are enough, or it can't be had."""
        if len(self._spare) >= _MOST_SPARE:
            return False
        self._next_spare += 1
        spare = f"{self._directory}/spare.{os.getpid()}.{self._next_spare}"
        try:
            # First of all, so that no crash leaves words of this attempt to another one.
            os.truncate(path, 0)
            os.rename(path, spare)  # noqa: PTH104  # See `_directory`.
        except OSError:
            return False
        self._spare.append(spare)
        return True

    def _take_spare(self, path: str) -> int | None:
        """Put a kept file in the place of a record, and open it; None if there is none."""
        if not self._spare:
            return None
        spare = self._spare.pop()
        flags = os.O_WRONLY | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
        try:
            file = os.open(spare, flags)
        except OSError:
            return None
        try:
            os.rename(spare, path)  # noqa: PTH104  # See `_directory`.
        except OSError:
            os.close(file)
            return None
        return file

    def read(self, task_instance_id: int) -> Record | None:
        """The record; None if there is none, or it was cut off before its first line was whole."""
        try:
            with Path(self._path(task_instance_id)).open("rb") as file:
                lines = file.read(_LIMIT_BYTES).split(b"\n")
            about = json.loads(lines[0])
            notes_apart = about.get("notes_apart") is True
            if notes_apart:
                with Path(self._notes(task_instance_id)).open("rb") as file:
                    lines = [b"", *file.read(_LIMIT_BYTES).split(b"\n")]
            of_wrapper = _number(lines, b"pid ", lowest=1, highest=_LARGEST_PID)
            of_shim = _number(lines, b"child ", lowest=1, highest=_LARGEST_PID)
            outputs, job_file = about.get("outputs"), about.get("job_file")
            facts_file, cgroup = about.get("facts_file"), about.get("cgroup")
            times_out_at, timeout = about.get("times_out_at", 0), about.get("timeout")
            return Record(
                task_instance_id=task_instance_id,
                task_type=str(about["task_type"]),
                execute_path=str(about["execute_path"]),
                log_path=str(about["log_path"]),
                complement=about.get("complement") is True,
                outputs=Declared.from_json(outputs) if outputs else None,
                job_file=None if job_file is None else Path(job_file),
                facts_file=None if facts_file is None else Path(facts_file),
                keeps_children=about.get("keeps_children") is True,
                cgroup=None if cgroup is None else Path(cgroup),
                memory_mb=int(about.get("memory_mb", 0)),
                times_out_at=datetime.fromtimestamp(times_out_at, UTC) if timeout else None,
                timeout=timedelta(seconds=timeout) if timeout else None,
                secret_names=tuple(map(str, about.get("secret_names", ()))),
                notes_apart=notes_apart,
                pid=of_wrapper if of_shim is None else of_shim,
                by_shim=of_shim is not None,
                exit_code=_number(lines, b"exit ", lowest=0, highest=_LARGEST_EXIT_CODE),
                kill_wanted=Path(self._kill(task_instance_id)).exists(),
                timed_out=Path(self._timeout(task_instance_id)).exists(),
                ended_for=self.ended_for(task_instance_id),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None

    def have_room(self) -> bool:
        """Return whether the records' volume has room, so that what a wrapper noted did fit."""
        return not is_full(os.statvfs(self._directory))

    def ids(self) -> tuple[int, ...]:
        """The attempts that have a record, in order."""
        return tuple(sorted(self._ids()))

    def _ids(self) -> Iterator[int]:
        for path in Path(self._directory).iterdir():
            if _is_number(path.name):
                yield int(path.name)

    def _note(self, path: str, task_instance_id: int) -> None:
        self._accompanied.add(task_instance_id)
        with contextlib.suppress(OSError):
            Path(path).touch(mode=0o600)

    def _remove_beside(self, task_instance_id: int) -> None:
        if task_instance_id in self._accompanied:
            _remove(self._kill(task_instance_id))
            _remove(self._timeout(task_instance_id))
            _remove(self._end(task_instance_id))
            _remove(self._notes(task_instance_id))
            self._accompanied.remove(task_instance_id)

    def _path(self, task_instance_id: int) -> str:
        return f"{self._directory}/{task_instance_id:d}"

    def _kill(self, task_instance_id: int) -> str:
        return f"{self._directory}/{task_instance_id:d}.kill"

    def _timeout(self, task_instance_id: int) -> str:
        return f"{self._directory}/{task_instance_id:d}.timeout"

    def _end(self, task_instance_id: int) -> str:
        return f"{self._directory}/{task_instance_id:d}.end"

    def _notes(self, task_instance_id: int) -> str:
        return f"{self._directory}/{task_instance_id:d}.notes"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108  # See `_directory`.


def _about(record: Record) -> dict[str, object]:
    about: dict[str, object] = {
        "task_type": record.task_type,
        "execute_path": record.execute_path,
        "log_path": record.log_path,
    }
    if record.complement:
        about["complement"] = True
    if record.outputs is not None:
        about["outputs"] = record.outputs.to_json()
    if record.job_file is not None:
        about["job_file"] = str(record.job_file)
    if record.facts_file is not None:
        about["facts_file"] = str(record.facts_file)
    if record.keeps_children:
        about["keeps_children"] = True
    if record.cgroup is not None:
        about["cgroup"] = str(record.cgroup)
    if record.memory_mb:
        about["memory_mb"] = record.memory_mb
    if record.timeout is not None and record.times_out_at is not None:
        about["times_out_at"] = record.times_out_at.timestamp()
        about["timeout"] = record.timeout.total_seconds()
    if record.secret_names:
        about["secret_names"] = record.secret_names
    if record.notes_apart:
        about["notes_apart"] = True
    return about


def _number(lines: list[bytes], key: bytes, *, lowest: int, highest: int) -> int | None:
    """The last whole line counts; a line without its end was cut off by a full disk or a crash."""
    found = None
    for line in lines[1:-1]:
        digits = line[len(key) :]
        if line.startswith(key) and digits.isdigit() and len(digits) <= len(str(highest)):
            number = int(digits)
            found = number if lowest <= number <= highest else found
    return found
