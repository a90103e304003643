"""One pass of a warden: ends lost attempts of this host, in the place of a worker that is gone.

`python -m worker.warden_pass --home DIR --host NAME --port N --daemon PID`. It exits with 0 when
nothing is left to watch over: another daemon has the worker's place, or no attempt that the worker
has left has a process. While PostgreSQL is out of reach nothing can be failed over there; but if it
is another host's, this host may be the one that is cut off, and after `PATIENCE` the worker's
attempts are ended.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # The imports leave no garbage, and looking for it takes a sixth of their time.
    gc.disable()

import argparse
import logging
import sys
from datetime import timedelta
from pathlib import Path

from common import config as configuration
from common.clock import SystemClock
from common.config import Config
from common.errors import SchedulerError, ServiceUnreachableError
from common.runtime import log as logs
from common.runtime.daemon import engine_of
from common.runtime.pid_file import pid_file, running_pid
from common.store.worker.tasks import PostgresTaskStore
from worker.processes.attempt_processes import belonging, kill_exactly, scan
from worker.processes.lost_attempts import end_lost
from worker.processes.records import Records

log = logging.getLogger(__name__)

NAME = "worker-warden"
WORKER = "worker-server"
DONE, AGAIN = 0, 1
PATIENCE = timedelta(seconds=40)


def main(arguments: list[str] | None = None) -> int:
    """Make one pass; 1 if there is more to do."""
    parser = argparse.ArgumentParser(prog=NAME, description="Ends what a lost worker left running.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--daemon", type=int, required=True, help="the pid of the daemon watched")
    options = parser.parse_args(arguments)
    try:
        config = configuration.load(overrides={"home": str(options.home)})
        logs.configure(home=config.home, name=NAME, port=options.port, level=config.log_level)
        return one_pass(config, host=options.host, port=options.port, daemon=options.daemon)
    except SchedulerError as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        return AGAIN


def one_pass(config: Config, *, host: str, port: int, daemon: int) -> int:
    """Do what the daemon at this port would do about lost attempts, if it could."""
    now = SystemClock().monotonic()
    unreached = config.home / "run" / f"{NAME}-{port}.unreached"
    there = running_pid(pid_file(config.home, WORKER, port))
    if there not in (None, daemon):
        unreached.unlink(missing_ok=True)
        return DONE
    left = _left(config.home, port)
    try:
        ended = _end_lost(config, host=host, port=port)
    except ServiceUnreachableError:
        if not left:
            return DONE
        if config.database.url and now - _since(unreached, now) >= PATIENCE.total_seconds():
            _kill(config.home, port)
        return AGAIN
    unreached.unlink(missing_ok=True)
    # What was ended just now is looked for once more, so that its row tells that it is gone.
    return AGAIN if left or ended else DONE


def _end_lost(config: Config, *, host: str, port: int) -> int:
    """Like `end_lost`; unreachable too if the embedded server does not run, so has no address."""
    engine = engine_of(config, application_name=f"{NAME}-{port}")
    try:
        return end_lost(PostgresTaskStore(engine), host)
    finally:
        engine.dispose()


def _left(home: Path, port: int) -> bool:
    """Return whether an attempt that the worker has a record of has a process."""
    paths = _paths(home, port)
    return bool(paths) and bool(belonging(scan(), paths=paths, sessions={}))


def _kill(home: Path, port: int) -> None:
    log.error("attempts are killed: PostgreSQL is out of reach of this host")
    found = belonging(scan(), paths=_paths(home, port), sessions={})
    for processes in found.values():
        for each in processes:
            kill_exactly(each)


def _paths(home: Path, port: int) -> dict[str, int]:
    folder = home / "tasks" / "records" / str(port)
    if not folder.is_dir():
        return {}
    records = Records(folder)
    found = [records.read(task_id) for task_id in records.ids()]
    return {each.execute_path: each.task_instance_id for each in found if each is not None}


def _since(unreached: Path, now: float) -> float:
    """Return when PostgreSQL was out of reach for the first time, and remember that."""
    try:
        return min(now, float(unreached.read_text("ascii")))
    except (OSError, ValueError):
        unreached.write_text(f"{now}\n", encoding="ascii")
        return now


if __name__ == "__main__":
    gc.freeze()  # Later collections pass over what the imports have made, which stays.
    gc.enable()
    sys.exit(main())
