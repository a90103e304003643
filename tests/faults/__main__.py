"""`bin/chaos`: faults on a private cluster for a few minutes, and a verdict about what is left."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.driver import Chaos
from tests.faults.evidence import counted, processes
from tests.faults.plan import SESSION_SECONDS, plan
from tests.faults.workload import workload
from tests.system.cluster import private_cluster, until

_ABOUT = """\
Starts a private cluster (PostgreSQL, ZooKeeper, masters, workers) in a folder of its own, and lets a
seed draw what happens to it: kill -9, SIGSTOP and graceful restarts of every daemon and both servers,
daemons that never come back, a ZooKeeper that loses its data, and people who run, stop, pause, resume
and rerun definitions with retries, pools, sub processes, branches and serial execution. Then it waits
for rest, and judges by rows, by lines that the tasks have written, and by /proc alone.
"""
_JUDGED = """\
What must hold at the end: as many instances as acknowledged commands; every instance is final, and its
state follows from its tasks; no attempt was begun twice, or before its turn; one valid success a task,
whose process has come to its end; nothing was killed that nobody stopped; no process, queue entry,
claim, kill, pool slot or command is left.

Exit codes: 0 nothing is broken, 1 something is (the violations are printed, and the home with rows,
logs and lines is kept), 2 a bad argument. The plan of a seed is always the same; the moments at which
its faults meet the cluster's work are not, so a violation need not come back at once.

  bin/chaos --minutes 5 --seed 17
  bin/chaos --minutes 5 --seed 1 --seeds 20      twenty seeds, one after the other, a cluster for each
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    seeds = range(options.seed, options.seed + options.seeds)
    broken = [seed for seed in seeds if not _is_well(seed, options)]
    if options.seeds > 1:
        _say(f"{options.seeds} seeds, {len(broken)} with violations {broken or ''}".rstrip())
    return 1 if broken else 0


def _is_well(seed: int, options: argparse.Namespace) -> bool:
    """Run a seed and tell about it; False if an invariant is broken."""
    home = Path(tempfile.mkdtemp(prefix=f"orcaflow-chaos-{seed}-")).resolve()
    history = (home / "history.txt").open("w", encoding="utf-8", buffering=1)

    def tell(text: str) -> None:
        history.write(text + "\n")
        if options.verbose:
            _say(text)

    planned = plan(
        seed,
        options.minutes * 60,
        tuple(workload("")),
        masters=options.masters,
        workers=options.workers,
    )
    _say(
        f"seed {seed}: {options.minutes:g} minutes, {len(planned.actions)} faults and requests,"
        f" {options.masters} masters, {options.workers} workers, in {home}"
    )
    began = time.monotonic()
    with private_cluster(
        home,
        ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS),
        WORKER__KILL_GRACE_SECONDS="2",
    ) as cluster:
        chaos = Chaos(cluster, tell)
        chaos.start(options.masters, options.workers)
        chaos.play(planned)
        found = chaos.settle()
        figures = counted(cluster.dsn)
    found += _left(home)
    _say(f"  done: {', '.join(f'{n} × {name}' for name, n in sorted(chaos.done.items()))}")
    _say(f"  seen: {', '.join(f'{n} {name}' for name, n in figures.items())}")
    for violation in found:
        tell(f"VIOLATION {violation}")
        if not options.verbose:
            _say(f"  VIOLATION {violation}")
    history.close()
    _say(
        f"seed {seed}: {f'{len(found)} violations' if found else 'nothing is broken'}; at rest"
        f" {chaos.rest_seconds:.1f} s after the faults, {time.monotonic() - began:.0f} s in all"
    )
    if found or options.keep:
        _say(f"  kept: {home} (history.txt, lines, logs/, postgres/)")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return not found


def _left(home: Path) -> list[str]:
    """Return the processes of any kind that outlive their cluster's end."""
    try:
        until(lambda: not processes(home), within=30)
    except AssertionError:
        return [f"leftovers: process {pid} outlives its cluster" for pid in processes(home)]
    return []


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="chaos",
        description=_ABOUT,
        epilog=_JUDGED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5, help="time of the faults (5)")
    parser.add_argument("--seed", type=int, help="the plan, or the first one (drawn)")
    parser.add_argument("--seeds", type=int, default=1, help="so many, one after the other (1)")
    parser.add_argument("--masters", type=int, default=2, help="(2)")
    parser.add_argument("--workers", type=int, default=3, help="(3)")
    parser.add_argument("--keep", action="store_true", help="keep the home of a good run, too")
    parser.add_argument("--verbose", action="store_true", help="print each fault as it is done")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or min(options.seeds, options.masters, options.workers) < 1:
        parser.error("--minutes, --seeds, --masters and --workers must be more than 0")
    if options.seed is None:
        options.seed = random.randrange(1_000_000)
    return options


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
