"""`python -m tests.parity`: compare PYSPARK tasks with `spark-submit`, or record the latter again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from psycopg2.extensions import parse_dsn

from tests.parity import expected, submitting, tasks
from tests.parity.differences import DIFFERENCES, verdict
from tests.parity.outcomes import Outcome, difference_shown, kind_of_difference
from tests.parity.scripts import Script, scripts
from tests.system.cluster import PrivateCluster, private_cluster

_ABOUT = """\
check   runs each script by spark-submit and by a PYSPARK task of a private cluster, and compares
        lines, files and exit codes; exit code 1 if a difference is not recorded in differences.py,
        or a recorded one no longer exists
record  runs spark-submit alone, and writes expected.json
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("work", choices=("check", "record"))
    parser.add_argument("names", nargs="*", default=["*"], help="patterns: views/*, udfs/raises")
    parser.add_argument("--recorded", action="store_true", help="compare with expected.json")
    parser.add_argument("--missing", action="store_true", help="record what is not recorded yet")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--keep", type=Path, help="a new folder for logs and files")
    parser.add_argument("--table", type=Path, help="a file for the differences as JSON")
    given = parser.parse_intermixed_args()
    chosen = scripts(given.names)
    if not chosen:
        parser.error("no script has such a name")
    if given.recorded:
        chosen = tuple(script for script in chosen if not script.package)
    with tempfile.TemporaryDirectory(prefix="orcaflow-parity-") as temporary:
        folder: Path = given.keep or Path(temporary)
        if given.work == "record":
            return _record(chosen, folder, given.at_once, only_missing=given.missing)
        return _check(chosen, folder, given)


def _record(chosen: Sequence[Script], folder: Path, at_once: int, *, only_missing: bool) -> int:
    known = {script.name for script in scripts()}
    found = {name: each for name, each in expected.read().items() if name in known}
    plain = [
        script
        for script in chosen
        if not script.package and not (only_missing and script.name in found)
    ]
    with ThreadPoolExecutor(at_once) as pool:
        for name, future in _submit(pool, plain, folder).items():
            found[name] = future.result()
            # Each at its turn: a run takes long, and may be interrupted.
            expected.write(found)
    print(f"recorded: {len(plain)} of {len(found)}")
    return 0


def _check(chosen: Sequence[Script], folder: Path, given: argparse.Namespace) -> int:
    with private_cluster(folder / "home", **tasks.SETTINGS) as cluster:
        # One task after the other: sessions of one server share a catalog and cached tables.
        cluster.start(slots=1)
        url = _jdbc(cluster)
        with ThreadPoolExecutor(given.at_once) as pool:
            plain = () if given.recorded else chosen
            submitted = _submit(pool, plain, folder / "submit", url)
            by_task = tasks.run(cluster, chosen, postgresql=url)
            by_submit = _results(submitted) if submitted else expected.read()
    return _report(chosen, by_submit, by_task, given)


def _jdbc(cluster: PrivateCluster) -> str:
    address = parse_dsn(cluster.dsn)
    return (
        f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
        f"?user={address['user']}&password={address.get('password', '')}"
    )


def _submit(
    pool: ThreadPoolExecutor, chosen: Sequence[Script], folder: Path, postgresql: str = ""
) -> dict[str, Future[Outcome]]:
    return {
        script.name: pool.submit(
            submitting.run, script, folder / script.name, postgresql=postgresql
        )
        for script in chosen
    }


def _results(submitted: Mapping[str, Future[Outcome]]) -> dict[str, Outcome]:
    """Return the outcomes, and report the scripts with a package that cannot be downloaded."""
    found = {}
    for name, future in submitted.items():
        try:
            found[name] = future.result()
        except submitting.UnresolvedError as error:
            print(f"left out  {name}: {error}")
    return found


def _report(
    chosen: Sequence[Script],
    by_submit: Mapping[str, Outcome],
    by_task: Mapping[str, tasks.TaskOutcome],
    given: argparse.Namespace,
) -> int:
    faults = 0
    table: dict[str, object] = {}
    topics: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    for script in chosen:
        ours = by_task[script.name]
        theirs = by_submit.get(script.name)
        topics[script.topic] += 1
        if theirs is None:
            if not script.package:
                print(f"FAULT  {script.name}: it is not recorded")
                faults += 1
            continue
        kind = kind_of_difference(theirs, ours.outcome, is_refusal=ours.is_refusal)
        fault = verdict(script.name, kind)
        if kind is not None:
            differing[script.topic] += 1
            table[script.name] = {"kind": kind.value, "reason": ours.reason}
        if fault:
            faults += 1
            print(f"FAULT  {script.name}: {fault}; {ours.reason}")
            print(difference_shown(theirs, ours.outcome))
        elif kind is not None:
            print(f"known  {script.name}: {kind}: {DIFFERENCES[script.name].reason}")
    for topic, number in topics.items():
        print(f"{topic:16} {number:4} scripts, {differing[topic]:4} differ")
    print(f"{len(chosen)} scripts, {differing.total()} differ, {faults} faults")
    if given.table:
        given.table.write_text(json.dumps(table, indent=1, ensure_ascii=False), encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
