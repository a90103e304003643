"""The shim: starts attempts as its own children, and knows their exits when the daemon is gone.

    python -S -E -m worker.processes.shim MARK

A small process between a worker's daemon and its attempts, as container runtimes have one. Its
standard input is the link to the daemon (`worker/processes/shim_link.py`), a socket that keeps
messages apart. A child of the shim needs no wrapper that waits for its end. Of each child the shim
writes the pid and the exit into the attempt's record, and tells the daemon, in this order; it reaps
no child before the daemon has said so, who may still signal the group of that pid.

The end of the link is the end of the daemon, and of nothing else: the shim goes on noting exits,
reaps at once what it has noted, and ends with its last child. If the shim is killed, its children
become the daemon's own, which has the kernel give it all orphans. Nobody has to trust the shim to
live; only if both are killed is an exit unknown. MARK is what the worker's own bear, or 0.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import resource
import select
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Final

from worker.processes import spawning

ALIVE, STARTED, REFUSED, ENDED = b"a", b"s", b"-", b"x"
"""The words of the shim. Behind each stand a pid and a number, as in `ANSWER`."""
ASK, START, REAP = b"?", b"s", b"r"
"""The words of the daemon: nothing; `HEAD`, texts and two files; pids, as in an array of `i`."""
ANSWER: Final = struct.Struct("=cii")
"""Word, pid, and an exit code (negative for a signal) or the number of an error."""
HEAD: Final = struct.Struct("=cQI")
"""Word, mark (0 for none), the count of arguments. Behind it: directory, arguments, variables."""
MOST_BYTES: Final = 64 * 1024

_MOST_CHILDREN: Final = 400
"""Each takes two descriptors, of which a process has 1,024 by default."""
_RLIMIT_LOCKS: Final = 10
_OUT_OF_MEMORY_SCORE: Final = b"300"
_SIGNALLED: Final = 128
_FILES: Final = 2


class _Child:
    """A started program, with the open record of its attempt."""

    def __init__(self, pid: int, record: int) -> None:
        self.pid = pid
        self.record = record
        self.has_ended = False


class _Shim:
    def __init__(self, link: socket.socket, mark: int) -> None:
        self._link = link
        self._is_linked = True
        self._mark = mark
        self._nothing = os.open(os.devnull, os.O_RDONLY)
        self._children: dict[int, _Child] = {}
        self._by_pidfd: dict[int, _Child] = {}
        self._hang_up = select.poll()
        self._hang_up.register(link, 0)
        self._poll = select.epoll()
        self._poll.register(link, select.EPOLLIN)

    def serve(self) -> None:
        """Return when the daemon and all children have ended."""
        while self._is_linked or self._children:
            for file, _ in self._poll.poll():
                if file == self._link.fileno():
                    self._take()
                elif file in self._by_pidfd:
                    self._on_exit(file)

    def _take(self) -> None:
        """Take a message; the end of the link is one too."""
        try:
            frame, rights, flags, _ = self._link.recvmsg(
                MOST_BYTES, socket.CMSG_SPACE(4 * _FILES), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return  # The daemon has left words of ours unread; its own may follow.
        files = array.array("i")
        for _, _, content in rights:
            files.frombytes(content)
        if frame[:1] == START:
            try:
                if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC) or len(files) != _FILES:
                    self._say(REFUSED, 0, errno.EMFILE)
                else:
                    self._start(frame, *files)
            finally:
                for file in files:
                    os.close(file)
        elif frame[:1] == ASK:
            self._say(ALIVE, 0, 0)
        elif frame[:1] == REAP:
            for pid in array.array("i", frame[1:]):
                if (child := self._children.get(pid)) is not None:
                    self._reap(child)
        else:
            self._unlink()

    def _start(self, frame: bytes, record: int, log: int) -> None:
        _, mark, count = HEAD.unpack_from(frame)
        directory, *texts = frame[HEAD.size :].split(b"\0")
        if self._is_alone():
            return  # The next incarnation may have given the attempt up by now.
        if len(self._children) >= _MOST_CHILDREN:
            self._say(REFUSED, 0, errno.EMFILE)
            return
        try:
            pid = self._spawn(directory, texts[:count], texts[count:], log=log, mark=mark)
        except OSError as error:
            self._say(REFUSED, 0, error.errno or errno.EIO)
            return
        child = self._children[pid] = _Child(pid, os.dup(record))
        pidfd = os.pidfd_open(pid)
        self._by_pidfd[pidfd] = child
        _note(record, b"child %d\n" % pid)
        self._say(STARTED, pid, 0)
        self._poll.register(pidfd, select.EPOLLIN)

    def _is_alone(self) -> bool:
        """Return whether the daemon has gone, of whose words some may be left."""
        return any(events & select.POLLHUP for _, events in self._hang_up.poll(0))

    def _spawn(
        self,
        directory: bytes,
        arguments: Sequence[bytes],
        variables: Sequence[bytes],
        *,
        log: int,
        mark: int,
    ) -> int:
        if mark:
            # Inherited before the program begins; above it stays ours, to be taken back.
            resource.setrlimit(_RLIMIT_LOCKS, (mark, self._mark))
        try:
            pid = spawning.spawn(
                arguments, variables, files=(self._nothing, log, log), directory=directory
            )
        finally:
            if mark:
                resource.setrlimit(_RLIMIT_LOCKS, (self._mark, self._mark))
        if mark:
            with contextlib.suppress(OSError):
                resource.prlimit(pid, _RLIMIT_LOCKS, (mark, mark))
        return pid

    def _on_exit(self, pidfd: int) -> None:
        child = self._by_pidfd.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        child.has_ended = True
        by_itself = ended.si_code == os.CLD_EXITED
        code = ended.si_status if by_itself else _SIGNALLED + ended.si_status
        _note(child.record, b"exit %d\n" % code)
        self._say(ENDED, child.pid, ended.si_status if by_itself else -ended.si_status)
        if not self._is_linked:
            self._reap(child)

    def _reap(self, child: _Child) -> None:
        os.waitpid(child.pid, 0)
        os.close(child.record)
        del self._children[child.pid]

    def _unlink(self) -> None:
        """Go on without the daemon."""
        self._is_linked = False
        self._poll.unregister(self._link)
        for child in [each for each in self._children.values() if each.has_ended]:
            self._reap(child)

    def _say(self, word: bytes, pid: int, number: int) -> None:
        if self._is_linked:
            # A daemon that has died is noticed by the end of its own words.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._link.send(ANSWER.pack(word, pid, number))


def _note(record: int, line: bytes) -> None:
    """Write a line into a record; on a full disk it stays unknown, as a wrapper's would."""
    with contextlib.suppress(OSError):
        os.write(record, line)


def main() -> int:
    """Serve until the daemon and all children have ended."""
    link, mark = socket.socket(fileno=os.dup(0)), int(sys.argv[1])
    if mark:
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))
    # The kernel is told to take a task before a daemon when memory runs out. Tasks inherit it.
    with contextlib.suppress(OSError):
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(file, _OUT_OF_MEMORY_SCORE)
        os.close(file)
    link.send(ANSWER.pack(ALIVE, 0, 0))
    _Shim(link, mark).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
