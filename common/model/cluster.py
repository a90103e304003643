"""Daemons as the registry knows them, and their readable texts in ZooKeeper.

Pure. A daemon is (address, incarnation): two starts at one address are two daemons. Texts and
names are those of contract §4.3 to §4.5; addresses are `host:port` where the original
had a bare IP, since several daemons may share a host.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from enum import Enum

from common.model.workers import WorkerStatus

_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_DATABASE_AWAY = "databaseAway"
_MOST_AWAY_TEXT = 1_000


class NodeKind(Enum):
    """The parent znode under which a daemon registers."""

    MASTER = "masters"
    WORKER = "workers"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Node:
    """One start of a daemon: `address` is `host:port`, `incarnation` the czxid of its znode."""

    address: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A daemon's heartbeat: seven comma-separated fields (contract §4.3).

    `cpu` and `memory` are shares from 0 to 1, `load` is the one-minute load average; the times are
    aware and printed in the zone that they carry. A worker's has its `status` behind these, and a
    master's the seconds for which it has not reached the database, while it does not.
    """

    host: str
    pid: int
    cpu: float
    memory: float
    load: float
    created: datetime
    beaten: datetime
    status: WorkerStatus | None = None
    database_away: int | None = None

    def text(self) -> str:
        """The znode's data; numbers are rounded half up to two decimals."""
        fields = (
            f"{self.host},{self.pid},{_two(self.cpu)},{_two(self.memory)},{_two(self.load)},"
            f"{self.created:{_TIME_FORMAT}},{self.beaten:{_TIME_FORMAT}}"
        )
        if self.status is not None:
            return f"{fields},{self.status.text()}"
        if self.database_away is not None:
            return f"{fields},{json.dumps({_DATABASE_AWAY: self.database_away})}"
        return fields

    @classmethod
    def parse(cls, text: str, *, zone: tzinfo) -> Heartbeat | None:
        """Read a znode's data, its times as of `zone`.

        None for anything but seven fields, and perhaps an object of JSON. One that can't be read,
        as a later version may write it, is passed over.
        """
        fields = text.split(",", 7)
        more = fields[7] if len(fields) == 8 else None
        if len(fields) < 7 or (more is not None and not more.startswith("{")):
            return None
        try:
            return cls(
                host=fields[0],
                pid=int(fields[1]),
                cpu=float(fields[2]),
                memory=float(fields[3]),
                load=float(fields[4]),
                created=datetime.strptime(fields[5], _TIME_FORMAT).replace(tzinfo=zone),
                beaten=datetime.strptime(fields[6], _TIME_FORMAT).replace(tzinfo=zone),
                status=None if more is None else WorkerStatus.read(more),
                database_away=None if more is None else _seconds_away(more),
            )
        except ValueError:
            return None


def _seconds_away(text: str) -> int | None:
    if len(text) > _MOST_AWAY_TEXT:
        return None
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return None
    seconds = written.get(_DATABASE_AWAY) if isinstance(written, dict) else None
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        return None
    return seconds


def _two(number: float) -> str:
    return str(Decimal(number).quantize(Decimal("0.01"), ROUND_HALF_UP))


def ip_number(address: str) -> int:
    """Return the unsigned 32-bit number of a dotted address, first octet most significant."""
    return int(ipaddress.IPv4Address(address.strip()))


ANY_WORKER = "-1"
_YIELDS = "c"
_CHOSEN = "="


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A submitted task instance in `tasks_queue`; its sort key is its place in the queue.

    The name is `<instance priority>_<instance id>_<task priority>_<task id>_<hosts>`
    (contract §4.4). `hosts` is `-1`, or the numbers of the group's addresses joined by commas.
    A task bound to a worker group carries the group's id as a sixth part, because workers that
    share a host differ by the groups they were started with, which no address can tell. One that
    *yields*, as the tasks of complements do, goes after all of the same instance priority that
    don't, and says so in a seventh part, `c`; the sixth is 0 then if it is bound to no group.
    A task for which a master has chosen a `worker` has `=` and that one's address as its hosts, and
    no group.

    Another program's name may have four parts, or zeros before a number. It is `written`, and the
    entry equals the one that a master would name; whoever takes it out has to name it as it is.
    """

    process_priority: int
    process_instance_id: int
    task_priority: int
    task_instance_id: int
    hosts: str = ANY_WORKER
    worker_group_id: int = -1
    yields: bool = False
    worker: str = ""
    written: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The znode's name and data."""
        if self.written:
            return self.written
        hosts = f"{_CHOSEN}{_escaped(self.worker)}" if self.worker else self.hosts
        name = (
            f"{self.process_priority}_{self.process_instance_id}"
            f"_{self.task_priority}_{self.task_instance_id}_{hosts}"
        )
        if self.yields:
            return f"{name}_{max(0, self.worker_group_id)}_{_YIELDS}"
        return f"{name}_{self.worker_group_id}" if self.worker_group_id > 0 else name

    @property
    def is_for_any(self) -> bool:
        """True if any worker may claim it, and nobody goes first: only such are hinted at."""
        return self.worker_group_id <= 0 and not self.yields and not self.worker

    @property
    def sort_key(self) -> tuple[int, bool, int, int, int]:
        """The order of claims: smaller first."""
        return (
            self.process_priority,
            self.yields,
            self.process_instance_id,
            self.task_priority,
            self.task_instance_id,
        )

    @classmethod
    def parse(cls, name: str) -> QueueEntry | None:
        """Read a znode's name; None for a name that no master wrote."""
        parts = name.split("_")
        yields = len(parts) == 7 and parts[6] == _YIELDS
        if yields:
            parts.pop()
        if not 4 <= len(parts) <= 6:
            return None
        numbers_as_text = parts[:4] + parts[5:]
        if not all(part.isascii() and part.isdecimal() for part in numbers_as_text):
            return None
        try:
            numbers = [int(part) for part in numbers_as_text]
        except ValueError:
            # Python refuses to read numbers of thousands of digits.
            return None
        hosts = parts[4] if len(parts) > 4 else ANY_WORKER
        worker = _unescaped(hosts.removeprefix(_CHOSEN)) if hosts.startswith(_CHOSEN) else ""
        entry = cls(
            process_priority=numbers[0],
            process_instance_id=numbers[1],
            task_priority=numbers[2],
            task_instance_id=numbers[3],
            hosts=ANY_WORKER if worker else hosts,
            worker_group_id=_group(numbers[4:], yields=yields),
            yields=yields,
            worker=worker,
        )
        return entry if entry.name == name else replace(entry, written=name)

    def suits(
        self,
        *,
        group_ids: Iterable[int],
        ip: int | None,
        address: str = "",
        is_reserved: bool = False,
    ) -> bool:
        """Return True if a worker of these groups and this address may claim it.

        A reserved worker takes only tasks of its groups. An entry for a chosen worker does not
        contain the group, so the claim of the row checks the group.
        """
        if self.worker:
            return self.worker == address
        if self.worker_group_id > 0 and self.worker_group_id in group_ids:
            return True
        if self.hosts == ANY_WORKER:
            return self.worker_group_id <= 0 and not is_reserved
        return ip is not None and str(ip) in self.hosts.split(",")


def _escaped(address: str) -> str:
    # The low line divides the parts of a name, and is allowed in names of hosts.
    return address.replace("%", "%25").replace("_", "%5F")


def _unescaped(written: str) -> str:
    return written.replace("%5F", "_").replace("%25", "%")


def _group(written: Sequence[int], *, yields: bool) -> int:
    # A yielding task of no group has a 0 there, since a part follows; who else writes 0 means it,
    # and the name has to come out as it was read.
    if not written or (yields and written[0] == 0):
        return -1
    return written[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillEntry:
    """A request in `tasks_kill`: `<worker address>-<task instance id>` (contract §4.5)."""

    address: str
    task_instance_id: int
    written: str = field(default="", compare=False)
    """The name, if another program wrote it with zeros before the number."""

    @property
    def name(self) -> str:
        """The znode's name and data."""
        return self.written or f"{self.address}-{self.task_instance_id}"

    @classmethod
    def parse(cls, name: str) -> KillEntry | None:
        """Read a znode's name. The last dash divides, since host names have dashes too (T81)."""
        address, dash, task = name.rpartition("-")
        if not dash or not address or not task.isdecimal():
            return None
        try:
            entry = cls(address=address, task_instance_id=int(task))
        except ValueError:
            # Python refuses to read numbers of thousands of digits.
            return None
        return entry if entry.name == name else replace(entry, written=name)
