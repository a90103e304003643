"""Becomes another program, which the kernel kills as soon as this one's parent dies.

`python -I -S spark_child.py PARENT PROGRAM [ARGUMENT…]`. A spark-submit that outlived its runner
could bring an application into the world that nobody follows. Standard library only; the setting
survives becoming another program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, argv = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before that was set.
        sys.exit(1)
    try:
        os.execv(argv[0], argv)  # noqa: S606  # That no shell reads it is what is wanted.
    except OSError as error:
        sys.exit(f"{argv[0]} can't be run: {error.strerror}")


if __name__ == "__main__":
    main()
