"""The program that queries brokers for offsets, with minimal privileges.

`master.loops.broker_process` runs this script by its path with `-I`, an empty environment and the
time limit of a query in seconds as the argument. A socket on standard input connects the two. The
script imports the client, drops its privileges (`common.least_rights`) and reports the result. Each
message carries the socket of one query, and a fork of this process answers it. Queries are
therefore isolated from each other, the kernel kills a fork that takes too long, and a crash of the
client affects only its fork.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.append(str(ROOT))

import confluent_kafka
import tenacity

from common.kafka_topic import StreamAwayError, Topic
from common.least_rights import give_up_rights
from common.model.streams.consumer import ClientProperties, ConsumerPropertyError

_MOST_REQUEST_BYTES = 4 * 1024 * 1024
_AGE_SECONDS = 600
"""The age at which a new process replaces this one, to see files that were replaced since."""
_MOST_MEMORY_BYTES = 4 * 1024**3
_LIBRARIES = (Path(os.__file__).parent, Path(confluent_kafka.__file__).parents[1])


def answer(request: bytes) -> dict[str, object]:
    """Return the offsets of a topic, or of all topics of a pattern; or the reason for a failure."""
    try:
        asked = json.loads(request)
        properties = ClientProperties.of(asked["properties"])
        # Without a log, because standard error is discarded.
        has_pattern = bool(asked.get("pattern"))
        with Topic(asked["topic"], properties, has_log=False, has_pattern=has_pattern) as topic:
            partitions = topic.partitions()
            first, last = topic.first(partitions), topic.last(partitions)
            troubles = topic.troubles
    except (StreamAwayError, ConsumerPropertyError) as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001  # The answer says so.
        # The text of the error may quote a secret.
        return {"refused": f"the client failed: {type(error).__name__}"}
    return {
        "earliest": {str(each): first[each] for each in first if each in last},
        "latest": {str(each): last[each] for each in last if each in first},
        "troubles": troubles,
    }


def serve(control: socket.socket, seconds: int) -> None:
    """Fork for each query, until the master closes the socket or this process is too old.

    The kernel kills a fork that takes more than `seconds`.
    """
    born = time.monotonic()
    while (left := born + _AGE_SECONDS - time.monotonic()) > 0:
        control.settimeout(left)
        message, files, _, _ = socket.recv_fds(control, 16, 1)
        if not message or not files:
            return
        if os.fork() == 0:
            # The fork must not return into the loop of its parent.
            try:
                control.close()
                # The client may hang in native code, where no Python signal handler runs.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(seconds)
                _answer_one(socket.socket(fileno=files[0]))
            finally:
                os._exit(0)
        for each in files:
            os.close(each)


def _answer_one(asking: socket.socket) -> None:
    pieces, size = [], 0
    while piece := asking.recv(65_536):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_REQUEST_BYTES:
            return
    asking.sendall(json.dumps(answer(b"".join(pieces))).encode())


def main() -> int:
    """Serve on standard input."""
    control = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Forks don't become zombies.
    tenacity.Retrying()
    done = give_up_rights(libraries=_LIBRARIES, most_memory_bytes=_MOST_MEMORY_BYTES)
    gc.freeze()
    control.send(json.dumps(done).encode())
    with suppress(TimeoutError):
        serve(control, int(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
