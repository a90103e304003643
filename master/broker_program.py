"""The program that queries brokers for offsets, with minimal privileges.

`master.loops.broker_process` runs this script by its path with `-I`, an empty environment and the
time limit of a query in seconds as the argument. A socket on standard input connects the two. The
script imports the client, drops its privileges permanently and reports the result. Each message
carries the socket of one query, and a fork of this process answers it. Queries are therefore
isolated from each other, the kernel kills a fork that takes too long, and a crash of the client
affects only its fork.

Privileges: root becomes `nobody`, all capabilities are dropped, and executed programs can't gain
any. If the kernel has Landlock, the process can read only libraries, certificates, the files for
name resolution, `/etc/localtime`, `/dev/urandom` and `/dev/null`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import socket
import struct
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
from common.model.streams.consumer import ClientProperties, ConsumerPropertyError

_MOST_REQUEST_BYTES = 4 * 1024 * 1024
_AGE_SECONDS = 600
"""The age at which a new process replaces this one, to see files that were replaced since."""
_MOST_MEMORY_BYTES = 4 * 1024**3
_MOST_FILES = 256
NOBODY = 65_534

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_FIRST_VERSION_RIGHTS = (1 << 13) - 1
_EXECUTE, _READ_FILE, _READ_DIR = 1, 1 << 2, 1 << 3
_READABLE = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/ca-certificates", "/etc/ssl"),
    *("/usr/local/share/ca-certificates", "/etc/pki", "/etc/ca-certificates"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/localtime", "/dev/urandom", "/dev/null"),
)

_libc = ctypes.CDLL(None, use_errno=True)


def give_up_rights() -> dict[str, object]:
    """Drop all privileges that the client does not need; return the resulting state."""
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MOST_FILES),
        (resource.RLIMIT_AS, _MOST_MEMORY_BYTES),
    ):
        hard = resource.getrlimit(limit)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (least, least))
    if os.geteuid() == 0:
        for capability in range(64):
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # It fails beyond the last one.
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()))
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    return {"uid": os.geteuid(), "landlock": _close_files()}


def _close_files() -> int:
    """Restrict file access to `_READABLE` and libraries; return Landlock's version, or 0."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return 0
    rights = _FIRST_VERSION_RIGHTS
    for since, right in ((2, 13), (3, 14), (5, 15)):
        rights |= (version >= since) << right
    # File rights, network rights (none restricted), and signals and sockets of other processes.
    attributes = struct.pack("=QQQ", rights, 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(_LANDLOCK_CREATE, attributes, size, 0))
    libraries = (Path(os.__file__).parent, Path(confluent_kafka.__file__).parents[1])
    for path in (*_READABLE, *map(str, libraries)):
        try:
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = _READ_FILE | ((_EXECUTE | _READ_DIR) if Path(path).is_dir() else 0)
        rule = struct.pack("=Qi", allowed, file)
        _checked(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0))
        os.close(file)
    _checked(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)
    return int(version)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def answer(request: bytes) -> dict[str, object]:
    """Return the offsets of a topic, or the reason for the failure."""
    try:
        asked = json.loads(request)
        properties = ClientProperties.of(asked["properties"])
        # Without a log, because standard error is discarded.
        with Topic(asked["topic"], properties, has_log=False) as topic:
            partitions = topic.partitions()
            first, last = topic.first(partitions), topic.last(partitions)
    except (StreamAwayError, ConsumerPropertyError) as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001  # The answer says so.
        # The text of the error may quote a secret.
        return {"refused": f"the client failed: {type(error).__name__}"}
    return {"earliest": first, "latest": last}


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
    done = give_up_rights()
    gc.freeze()
    control.send(json.dumps(done).encode())
    with suppress(TimeoutError):
        serve(control, int(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
