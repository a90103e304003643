"""Does to a real cluster what a plan says, a thread for each lane, and waits until it is at rest.

A thin shell: what is done stands in `plan`, what is right in `checker`. Errors of a start during the
faults are part of the history, since a server may be away; those of the last starts are not.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import psutil

from common.embedded.addresses import recorded_postgres, recorded_zookeeper
from common.embedded.process import let_end
from common.errors import SchedulerError
from common.process_identity import is_alive
from operations.daemons import DaemonWaitsError, Kind
from tests.faults.checker import violations
from tests.faults.evidence import address, gathered
from tests.faults.people import People
from tests.faults.plan import POSTGRES, REQUESTS, ZOOKEEPER, Action, Deed, Plan
from tests.faults.workload import POOL, POOL_SIZE, workload
from tests.system.cluster import PrivateCluster

REST_SECONDS = 240.0
"""The longest that the cluster may take to come to rest after the faults."""
SLOTS = 6


class Chaos:
    """A cluster under faults. The cluster is started with the first plan."""

    def __init__(self, cluster: PrivateCluster, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._say = say
        self._began = time.monotonic()
        self.definitions = workload(str(cluster.home / "lines"))
        self.done: Counter[str] = Counter()
        """The faults and requests that were carried out, by name."""
        self.rest_seconds = 0.0
        """The time from the end of the faults to the rest."""
        self._dead: set[str] = set()
        self._ports: dict[str, tuple[Kind, int]] = {}

    def start(self, masters: int, workers: int) -> None:
        """Start everything, and type the definitions."""
        self._cluster.start(masters=masters, workers=workers, slots=SLOTS)
        for kind, word in ((Kind.MASTER, "master"), (Kind.WORKER, "worker")):
            for number, port in enumerate(sorted(self._cluster.ports(kind))):
                self._ports[f"{word}-{number}"] = kind, port
        self.people = People(self._cluster.dsn)
        self.people.define(self.definitions, POOL, POOL_SIZE)

    def play(self, plan: Plan) -> None:
        """Carry the plan out; all servers and all daemons that are not lost run when it returns."""
        self._began = time.monotonic()
        lanes = [
            threading.Thread(target=self._lane, args=(plan.lane(target),), name=target)
            for target in plan.targets
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        self.heal()

    def settle(self) -> list[str]:
        """Wait until nothing is wrong any more; return the violations that stay."""
        began = time.monotonic()
        while found := self.violations():
            if time.monotonic() - began > REST_SECONDS:
                break
            time.sleep(0.5)
        self.rest_seconds = time.monotonic() - began
        return found

    def violations(self) -> list[str]:
        """Return what is wrong now."""
        config = self._cluster.daemons.config
        workers = [address(config, *each) for each in self._ports.values()]
        facts = gathered(
            config, self._cluster.dsn, self.people, self._cluster.home / "lines", workers
        )
        return violations(facts, self.definitions)

    # Lanes

    def _lane(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            pause = self._began + action.at - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            try:
                outcome = self._do(action)
            except (SchedulerError, OSError, AssertionError, psutil.Error) as error:
                outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            about = f", for {action.lasts:.1f} s" if action.lasts else ""
            self._note(f"{action.target:9} {action.deed}{about}{outcome and ': ' + outcome}")
            self.done[action.deed] += 1

    def _do(self, action: Action) -> str:
        if action.deed in REQUESTS:
            return self.people.ask(action)
        if action.target == POSTGRES:
            return self._postgres(action)
        if action.target == ZOOKEEPER:
            return self._zookeeper(action)
        return self._daemon(action)

    def _daemon(self, action: Action) -> str:
        kind, port = self._ports[action.target]
        pid = self._cluster.pid(kind, port)
        if pid is None:
            self._start(action.target)
            return "it did not run, and was started"
        if action.deed is Deed.FREEZE:
            _frozen([pid], action.lasts)
            return ""
        if action.deed is Deed.RESTART:
            with suppress(SchedulerError):
                self._cluster.daemons.stop_one(kind, port)
        else:
            self._cluster.kill(kind, port)
        if action.deed is Deed.STAY_DEAD:
            self._dead.add(action.target)
            return ""
        time.sleep(action.lasts)
        self._start(action.target)
        return ""

    def _start(self, target: str) -> None:
        # One that waits for a server begins by itself.
        with suppress(DaemonWaitsError):
            self._cluster.start_again(*self._ports[target])

    def _postgres(self, action: Action) -> str:
        server = recorded_postgres(self._cluster.home)
        assert server is not None
        if not is_alive(server.pid, server.start_time):
            self._cluster.daemons.start_postgres()
            return "it did not run, and was started"
        postmaster = psutil.Process(server.pid)
        match action.deed:
            case Deed.FREEZE:
                _frozen([each.pid for each in (postmaster, *postmaster.children())], action.lasts)
                return ""
            case Deed.KILL_BACKEND:
                backends = [
                    each for each in postmaster.children() if "127.0.0.1" in "".join(each.cmdline())
                ]
                if not backends:
                    return "there is none"
                backends[int(action.pick * len(backends))].kill()
                return ""
            case Deed.KILL:
                # Else a master would start it again before the fault is over.
                let_end(self._cluster.home, POSTGRES)
                postmaster.kill()
            case _:
                at_once = action.deed is Deed.STOP_AT_ONCE
                self._cluster.daemons.stop_one(POSTGRES, None, now=at_once)
        time.sleep(action.lasts)
        self._cluster.daemons.start_postgres()
        return ""

    def _zookeeper(self, action: Action) -> str:
        server = recorded_zookeeper(self._cluster.home)
        assert server is not None
        if not is_alive(server.pid, server.start_time):
            self._cluster.daemons.start_zookeeper()
            return "it did not run, and was started"
        if action.deed is Deed.FREEZE:
            _frozen([server.pid], action.lasts)
            return ""
        let_end(self._cluster.home, "zookeeper")
        os.kill(server.pid, signal.SIGKILL)
        time.sleep(action.lasts)
        if action.deed is Deed.WIPE:
            shutil.rmtree(self._cluster.home / "zookeeper" / "version-2", ignore_errors=True)
        self._cluster.daemons.start_zookeeper()
        return ""

    # The end

    def revive(self) -> None:
        """Start even the daemons that were lost for good."""
        self._dead.clear()
        self.heal()

    def heal(self) -> None:
        """Start whatever does not run and is not lost for good."""
        self._cluster.daemons.start_postgres()
        self._cluster.daemons.start_zookeeper()
        for target in self._ports:
            if target not in self._dead:
                self._start(target)
        self._note("the faults are over, and everything runs again")

    def _note(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:7.2f} s  {text}")


def _frozen(pids: list[int], seconds: float) -> None:
    """Stop processes for so long; those that end meanwhile are no matter."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in reversed(pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
