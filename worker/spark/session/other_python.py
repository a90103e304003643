"""Goes on with a warm task in another Python than the one that the Spark host forks.

    PYTHON elsewhere.py DESCRIPTOR

A profile or a task may want an interpreter with packages of its own. Its process is the one that
was forked: it only loads another program. What it has to know, the session's token among it, is
handed over in a file that has no name. Run as a program by its path, so it imports the standard
library alone before it has put the way to ours at the end of the path, behind all of the author's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from worker.spark.session.warm import Place
    from worker.spark.session.work import Job


def go_on(interpreter: str, place: Place, job: Job, *, closed: int) -> NoReturn:
    """Become that interpreter, and do the job there. Raises `OSError` if there is none."""
    from dataclasses import asdict

    document = {
        "place": asdict(place),
        "job": dict(job.document),
        "reason_file": str(job.reason_file),
        "closed": closed,
    }
    handed = os.memfd_create("orcaflow-task", 0)
    with os.fdopen(os.dup(handed), "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.set_inheritable(closed, True)
    sys.stdout.flush()
    sys.stderr.flush()
    argv = [interpreter, "-P", "-u", str(Path(__file__).resolve()), str(handed)]
    os.execv(interpreter, argv)  # noqa: S606


def main() -> int:
    handed = int(sys.argv[1])
    size = os.fstat(handed).st_size
    document = json.loads(os.pread(handed, size, 0))
    os.close(handed)
    sys.path.append(str(Path(__file__).resolve().parents[3]))

    from worker.spark.session import warm, work

    job = work.Job.of(document["job"], reason_file=Path(document["reason_file"]))
    return warm.do_job(warm.Place(**document["place"]), job, closed=document["closed"])


if __name__ == "__main__":
    sys.exit(main())
