"""Keeps a worker's Spark hosts there: starts them when they are needed, and says what is wanted.

A worker has one host for its own account, and in mode `tenant`, run by root, one for each tenant
instead, which runs as that tenant's account with all of its servers and forks. A host
(`worker/spark/host/__main__.py`) outlives the daemon, so a daemon that starts may find one at work;
then it only says who follows it now. No host is started before a task or a profile in
`spark.prewarm` asks for one: who runs no Spark pays nothing. No thread of its own: a service calls
`run_once`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue

from common.spark_config import SparkConfig, SparkProfile
from worker import tenants
from worker.loops.followed_host import AGAIN, IDLE, FollowedHost
from worker.spark.host import folders
from worker.spark.host.connect_server import ServerPlan
from worker.spark.host.forking import room_for_marker
from worker.spark.host.pool import Limits
from worker.spark.host.preload import ENVIRONMENT
from worker.spark.jvm.cds_building import build_in_background
from worker.spark.jvm.java_command import NoSparkError, java_of
from worker.spark.session import sharing
from worker.workspace import Account

log = logging.getLogger(__name__)

_WAREHOUSE = "spark.sql.warehouse.dir"


class HostLoop:
    """The daemon's end of its Spark hosts."""

    name = "spark-host"

    def __init__(
        self,
        config: SparkConfig,
        *,
        home: Path,
        port: int,
        python: str,
        spark_home: str,
        environment: Mapping[str, str],
        data_dir: Path,
        for_tenants: bool = False,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`environment`: the part of the daemon's that tasks may see. `wake` ends a rest.

        `for_tenants`: tasks run as other accounts, each with a host of its own. Has the leftovers
        of hosts that were killed removed. Raises `OSError` if the folders can't be made.
        """
        self._config = config
        self._home = home
        self._port = port
        self._python = python
        self._spark_home = spark_home
        self._environment = environment
        self._data_dir = data_dir
        self._for_tenants = for_tenants
        self._wake = wake
        self._clock = clock
        self._folder = folders.own_folder(home, port)
        self._asked: SimpleQueue[Account | None] = SimpleQueue()
        self._hosts: dict[int | None, FollowedHost] = {}
        """By the tenant's account; None is the worker's own."""
        self._again_at: dict[int | None, float] = {}
        """The time of the next try for those that could not start."""
        if for_tenants:
            self._open_to_tenants()
        own = self._hosts[None] = self._host(None)
        for host in self._hosts.values():
            host.sweep()
        if config.prewarmed() and not for_tenants:
            own.want()

    @property
    def address(self) -> str:
        """The socket that task proxies of the worker's own account go to."""
        return str(self._folder / folders.SOCKET)

    def pids(self) -> frozenset[int]:
        """Return the pids of the hosts that are followed; any thread may call this."""
        found = (each.pid for each in tuple(self._hosts.values()))
        return frozenset(pid for pid in found if pid is not None)

    def known_accounts(self) -> list[int]:
        """Return the tenants' accounts that have had a host."""
        return folders.uids(self._folder)

    def want(self, account: Account | None = None) -> None:
        """A task of this account is about to ask its host; called on any thread, never waits."""
        host = self._hosts.get(None if account is None else account.uid)
        if host is None:
            self._asked.put(account)
            self._wake()
            return
        was_wanted = host.is_wanted
        host.want()
        if not was_wanted or not host.is_followed:
            # Asked for again: one that was just given up as over is made anew.
            self._asked.put(account)
            self._wake()

    def run_once(self) -> timedelta:
        """See that the hosts are there that are wanted; how long to rest."""
        self._take_requests()
        now = self._clock()
        rests = []
        for uid, host in list(self._hosts.items()):
            rest = timedelta(seconds=self._again_at.get(uid, now) - now)
            if rest <= timedelta():
                rest = host.run_once()
                self._again_at.pop(uid, None)
                if rest >= AGAIN:
                    self._again_at[uid] = now + rest.total_seconds()
            rests.append(rest)
            if uid is not None and host.is_over:
                del self._hosts[uid]
        return min(rests, default=IDLE)

    def stop_host(self) -> None:
        """End the hosts and all that they keep warm: no task of this worker runs any more."""
        for host in self._hosts.values():
            host.stop()

    def close(self) -> None:
        """Leave the hosts to themselves; each ends when its last task has."""
        for host in self._hosts.values():
            host.close()

    def _take_requests(self) -> None:
        while True:
            try:
                account = self._asked.get_nowait()
            except Empty:
                return
            uid = None if account is None else account.uid
            self._again_at.pop(uid, None)
            if uid not in self._hosts:
                try:
                    self._hosts[uid] = self._host(account)
                    self._have_archive()
                except OSError as error:
                    # Its tasks give up waiting for it, and say so; the next one asks again.
                    log.warning("spark host can't have its folders", extra={"error": str(error)})
                    continue
            self._hosts[uid].want()

    def _have_archive(self) -> None:
        """Have the archive of Spark's classes made once for all tenants: they can only read it."""
        if self._spark_home:
            with suppress(NoSparkError):  # Their tasks say so, too.
                build_in_background(self._spark_home, java_of(self._environment))

    def _open_to_tenants(self) -> None:
        """Have the ways to the tenants' folders, and find the hosts that are at work there."""
        folders.open_to_others(self._folder.parent)
        folders.open_to_others(self._data_dir)
        tenants.open_own_data(self._data_dir)
        folders.make_folder(self._folder, folders.PASSABLE)
        for uid in folders.uids(self._folder):
            account = tenants.account_with(uid)
            if account is not None:
                self._hosts[uid] = self._host(account)

    def _data_of(self, account: Account | None) -> Path:
        """Return the folder for what the tables of an account's sessions hold."""
        return self._data_dir if account is None else tenants.own_data(self._data_dir, account)

    def _host(self, account: Account | None) -> FollowedHost:
        profiles = wanted(
            self._config,
            python=self._python,
            data_dir=self._data_of(account),
            keeps=not self._for_tenants,
        )
        return FollowedHost(
            folder=(
                self._folder
                if account is None
                else folders.tenant_folder(self._folder, account.uid)
            ),
            mode=folders.PASSABLE if account is None and self._for_tenants else folders.PRIVATE,
            argv=(
                self._python,
                "-P",
                "-m",
                "worker.spark.host",
                *("--home", str(self._home), "--port", str(self._port)),
                *("--spark-home", self._spark_home),
                *(() if account is None else ("--for-tenant",)),
            ),
            environment={
                **self._environment,
                **({} if account is None else account.variables()),
                "SPARK_HOME": self._spark_home,
                "PYTHONPATH": os.pathsep.join(_own_path()),
                **ENVIRONMENT,
                **room_for_marker(),
            },
            document=json.dumps({"profiles": profiles}),
            account=account,
            clock=self._clock,
        )


def wanted(
    config: SparkConfig, *, python: str, data_dir: Path, keeps: bool = True
) -> dict[str, object]:
    """Return the plan and limits of each profile, and of its servers with isolated sessions.

    `keeps`: the profiles in `spark.prewarm` have a server ready all the time.
    """
    told: dict[str, object] = {}
    for name, profile in config.profiles.items():
        plan = _plan(name, profile, python, data_dir)
        limits = _limits(profile, plan.revision, kept=keeps and name in config.prewarmed())
        told[name] = {"plan": asdict(plan), "limits": asdict(limits)}
        if plan.shares:
            name = sharing.isolated(name)
            plan = _revised(replace(plan, profile=name, shares=False))
            limits = replace(limits, revision=plan.revision, kept=False)
            told[name] = {"plan": asdict(plan), "limits": asdict(limits)}
    return told


def _own_path() -> list[str]:
    """Return the path to this program's packages, for another interpreter."""
    return [str(Path(__file__).resolve().parents[2])]


def _plan(name: str, profile: SparkProfile, python: str, data_dir: Path) -> ServerPlan:
    plan = ServerPlan(
        profile=name,
        revision="",
        master=profile.master,
        # Else tables would lie in the server's own directory, and go with it.
        conf={_WAREHOUSE: str(data_dir / "spark-warehouse"), **profile.conf},
        keeps_warehouse=_WAREHOUSE in profile.conf,
        jars=profile.jars,
        packages=profile.packages,
        driver_memory=profile.driver_memory,
        python=profile.python or python,
        start_timeout=profile.start_timeout_seconds,
        shares=sharing.may_share(profile.master, profile.conf),
    )
    return _revised(plan)


def _limits(profile: SparkProfile, revision: str, *, kept: bool) -> Limits:
    return Limits(
        revision=revision,
        max_sessions=profile.max_sessions,
        max_servers=profile.max_servers,
        idle_timeout=profile.idle_timeout_seconds,
        max_age=profile.max_age_seconds,
        max_memory_bytes=profile.max_memory_mb << 20,
        kept=kept,
    )


def _revised(plan: ServerPlan) -> ServerPlan:
    """With a revision, which changes with everything that a server is started with."""
    document = json.dumps(asdict(replace(plan, revision="")), sort_keys=True)
    return replace(plan, revision=hashlib.sha256(document.encode()).hexdigest()[:16])
