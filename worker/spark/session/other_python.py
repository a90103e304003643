"""Goes on with a warm task in another Python than the one that the Spark host forks.

    PYTHON other_python.py DESCRIPTOR

A profile or a task may want an interpreter with packages of its own. Its process is the one that
was forked, which only loads this program (`worker/spark/session/warm.py`). The place, the session's
token in it, and the job are handed over in a file that has no name. Run as a program by its path,
so it imports the standard library alone before it has put the way to ours at the end of the path,
behind all of the author's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> int:
    handed = int(sys.argv[1])
    size = os.fstat(handed).st_size
    document = json.loads(os.pread(handed, size, 0))
    os.close(handed)
    sys.path.append(str(Path(__file__).resolve().parents[3]))

    from worker.spark.session import warm
    from worker.spark.session.job import Job

    job = Job.of(document["job"], reason_file=Path(document["reason_file"]))
    return warm.do_job(warm.Place(**document["place"]), job, closed=document["closed"])


if __name__ == "__main__":
    sys.exit(main())
