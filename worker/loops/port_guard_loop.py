"""Ends tasks that connect to the TCP ports of another tenant's Spark driver.

A driver listens at TCP ports for Py4J, for its executors, for Spark Connect and for its pages. All
of them require a secret, but only after they have accepted a connection. A connection that sends
nothing costs the driver a thread or a descriptor for as long as it lasts, so a few thousand of them
stop its work. The kernel lets any account of the computer connect, and not every worker may set
firewall rules. So this loop reads the kernel's table of sockets about twice a second, and ends the
attempts whose programs are connected to such a port as another account. It also ends the Spark
server of that account if the server's JVM has the connection.

It runs only on workers in mode `tenant`. It does not read the table as long as all tasks since the
start of the worker have had the same account, or no Spark driver runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from common.clock import Clock
from common.port_holders import account_name, holders_of
from common.ports import Listener
from common.socket_table import Row, rows
from worker.processes.attempt_processes import Seen, lives, parent_of, seen_now
from worker.processes.foreign_connections import Foreign, foreign_connections, is_on_loopback
from worker.processes.socket_owners import SocketOwners

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(seconds=0.5)
_REST_PER_LOOK: Final = 5
_JAVA: Final = "java"
_PYTHON_TASK: Final = "PYTHON"


class Attempts(Protocol):
    """The running attempts of a worker, as `Supervisor` knows them."""

    def uids(self) -> Collection[int]:
        """Return their accounts."""
        ...

    def facts_files(self) -> Mapping[int, Path]:
        """Return the facts file of each attempt that may have a Spark driver."""
        ...


class Hosts(Protocol):
    """The Spark hosts of a worker, as `HostLoop` knows them."""

    def pids(self) -> Collection[int]:
        """Return the pids of the hosts that run."""
        ...

    def known_accounts(self) -> Collection[int]:
        """Return the accounts of tenants that have had a host."""
        ...


class PortGuardLoop:
    """Looks for foreign connections to Spark drivers, and ends the programs that have them."""

    name = "port-guard"

    def __init__(self, home: Path, attempts: Attempts, hosts: Hosts, *, clock: Clock) -> None:
        """Drivers are children of the hosts, or belong to attempts with a facts file."""
        self._home = home
        self._attempts = attempts
        self._hosts = hosts
        self._clock = clock
        self._seen_accounts = set(hosts.known_accounts())
        self._lasting: set[int] = set()
        """Hidden sockets that the end of all attempts of their account has not closed."""

    def run_once(self) -> timedelta:
        """End the programs that are connected to a driver of another tenant."""
        # An ended attempt may have left processes, so its account counts from then on.
        self._seen_accounts.update(self._attempts.uids())
        if len(self._seen_accounts) < 2:
            return _INTERVAL
        hosts = self._hosts.pids()
        if not (hosts or self._attempts.facts_files()):
            return _INTERVAL
        began = self._clock.monotonic()
        connections = foreign_connections(rows(), SocketOwners(self._home).is_tenant)
        took = timedelta(seconds=self._clock.monotonic() - began)
        try:
            for found in connections:
                owners = SocketOwners(self._home)
                if _is_of_driver(found.listener, owners, hosts):
                    self._end(found, owners, hosts)
        except OSError as error:
            log.warning("ports of Spark drivers were not checked", extra={"error": str(error)})
        # Tasks can make the table long, and must not keep the worker busy with it.
        return max(_INTERVAL, _REST_PER_LOOK * took)

    def _end(self, found: Foreign, owners: SocketOwners, hosts: Collection[int]) -> None:
        """End the attempts, left processes and Spark servers that have these connections."""
        port, victim = found.listener.port, account_name(found.listener.uid)
        driver = f"the port {port} of a Spark driver of account {victim}"
        held = holders_of([_socket(each) for each in found.clients])
        processes = _seen({pid for pids in held.values() for pid in pids})
        while owners.end_attempt_of(processes, f"was connected to {driver}"):
            pass
        owners.kill_left([each for each in processes if lives(each)])
        # Code of a task also runs in the server of its account, which belongs to no attempt.
        owners.kill_servers([each for each in processes if _is_server(each.pid, hosts)])
        hidden = {each.inode: each.uid for each in found.clients if each.inode not in held}
        for uid in sorted(set(hidden.values())):
            inodes = {inode for inode in hidden if hidden[inode] == uid} - self._lasting
            reason = f"its account hid a connection to {driver}"
            owners.end_account(uid, reason, until=partial(_are_closed, inodes))
            if not owners.has_attempt_of(uid):
                self._lasting |= inodes
        self._lasting = _inodes(self._lasting)
        if owners.task_ids or owners.pids:
            log.warning(
                "tasks were connected to the Spark driver of another account, and were ended",
                extra={
                    "port": port,
                    "account": victim,
                    "connections": len(found.clients),
                    "task_instance_ids": owners.task_ids,
                    "processes": owners.pids,
                },
            )


def _is_of_driver(listener: Row, owners: SocketOwners, hosts: Collection[int]) -> bool:
    """Return True if a listener belongs to a Spark driver of this worker."""
    for pid in holders_of([_socket(listener)]).get(listener.inode, ()):
        is_java = _program(pid).startswith(_JAVA)
        # The Python of a driver listens at the loopback address. A port at another address may be
        # a service that its author offers to others.
        if not (is_java or is_on_loopback(listener)):
            continue
        if parent_of(pid) in hosts:
            return True
        for record in owners.recorded(_seen([pid])):
            # A PYTHON task may create a driver too, but its Python may be any program.
            if record.facts_file and (is_java or record.task_type != _PYTHON_TASK):
                return True
    return False


def _is_server(pid: int, hosts: Collection[int]) -> bool:
    """Return True if a process is the JVM of a server that a host has started."""
    return _program(pid).startswith(_JAVA) and parent_of(pid) in hosts


def _are_closed(inodes: Collection[int]) -> bool:
    return not _inodes(inodes)


def _inodes(among: Collection[int]) -> set[int]:
    """Return those of these sockets that are open."""
    return {row.inode for row in rows() if row.inode in among} if among else set()


def _socket(row: Row) -> Listener:
    return Listener(uid=row.uid, inode=row.inode)


def _seen(pids: Iterable[int]) -> list[Seen]:
    return [each for each in map(seen_now, pids) if each is not None]


def _program(pid: int) -> str:
    """Return the name of the file that a process runs; "" if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe").rpartition("/")[2]  # noqa: PTH115  # As in `ports`.
    except OSError:
        return ""
