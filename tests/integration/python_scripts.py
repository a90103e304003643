"""Python scripts whose output and exit code depend on nothing but Python."""

from __future__ import annotations

CIRCUMSTANCES = """
import builtins, json, os, resource, signal, sys, threading
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
limits = open("/proc/self/limits").read().splitlines()
facts = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "executable": [sys.executable, sys.prefix, sys.base_prefix],
    "flags": str(sys.flags),
    "options": [sys.warnoptions, sys._xoptions, sys.getswitchinterval(), sys.getrecursionlimit()],
    "main": sorted(globals()),
    "of main": [__name__, __file__, __doc__, __package__, __spec__, __cached__, __annotations__],
    "loader": [type(__loader__).__name__, __loader__.name, __loader__.path],
    "builtins": __builtins__ is builtins,
    "is main": sys.modules["__main__"].__dict__ is globals(),
    "streams": [
        [type(each).__name__, each.name, each.mode, each.encoding, each.errors, each.line_buffering,
         each.write_through, each.isatty(), type(each.buffer).__name__]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "same stream": os.path.samestat(os.fstat(1), os.fstat(2)),
    "nothing to read": sys.stdin.read(),
    "command line": open("/proc/self/cmdline", "rb").read().decode().strip("\\0").split("\\0"),
    "name": status["Name"],
    "signals": {key: status[key] for key in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")},
    "handlers": [str(signal.getsignal(each)) for each in signal.valid_signals()
                 if each not in (signal.SIGKILL, signal.SIGSTOP)],
    "threads": [threading.active_count(), threading.current_thread().name, len(os.listdir("/proc/self/task"))],
    "main thread": threading.main_thread().native_id == os.getpid(),
    "files": [each for each in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + each)],
    "umask": status["Umask"],
    "limits": [line for line in limits if not line.startswith("Max file locks")],
    "account": [status["Uid"], status["Gid"], sorted(status["Groups"].split())],
    "capabilities": [status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")],
    "directory": os.getcwd(),
    "niceness": os.nice(0),
    "affinity": sorted(os.sched_getaffinity(0)),
    "cgroup": open("/proc/self/cgroup").read(),
    "dumpable": os.stat("/proc/self/environ").st_uid == os.geteuid(),
    "environment": sorted(os.environ.items()),
    "of its children": sorted(os.popen("env -0").read().split("\\0")),
}
print(json.dumps(facts, indent=0))
"""
"""Everything that a process can ask about itself, and that differs from no other run."""

SCRIPTS = {
    "circumstances": CIRCUMSTANCES,
    "nothing": "pass",
    "several streams": "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nos.write(1, b'c')\nprint('d')",
    "a shell": "import subprocess\nprint('a', end=' ')\nsubprocess.run('echo b; exec cat', shell=True)",
    "an exit code": "import sys\nsys.exit(3)",
    "exit codes that are none": "import sys\nsys.exit(-1)",
    "a large exit code": "import sys\nsys.exit(2**70)",
    "true is one": "raise SystemExit(True)",
    "no exit code": "raise SystemExit",
    "last words": "import sys\nprint('a')\nsys.exit('last words')",
    "a list as exit code": "import sys\nsys.exit([1, 'a'])",
    "the system's exit": "import os\nos._exit(9)",
    "a traceback": "def f():\n    1 / 0\n\n\nprint('a')\nf()",
    "a chain of causes": (
        "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('b') from error"
    ),
    "a group": "raise ExceptionGroup('a', [ValueError('b'), TypeError('c')])",
    "no syntax": "print('a'\nprint('b')",
    "an indent": "if True:\nprint('b')",
    "a doubtful escape": "print(len('\\d'))",
    "an import that fails": "import no_such_module",
    "an interrupt": "raise KeyboardInterrupt",
    "a hook": "import sys\nsys.excepthook = lambda *error: print('hook', error[0])\n1 / 0",
    "a hook that fails": "import sys\nsys.excepthook = lambda *_: {}['a']\n1 / 0",
    "a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(7)\n1 / 0",
    "a deep recursion": "def f():\n    f()\ntry:\n    f()\nexcept RecursionError:\n    print('deep')",
    "callbacks": (
        "import atexit, weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\n"
        "atexit.register(print, 'first')\natexit.register(lambda: 1 / 0)\natexit.register(print, 'last')"
    ),
    "a callback that exits": "import atexit, sys\natexit.register(lambda: sys.exit(4))",
    "threads": (
        "import threading, time\ndef f():\n    threading.main_thread().join()\n    print('thread')\n"
        "threading.Thread(target=f).start()\nprint('main')"
    ),
    "a thread that fails": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()",
    "daemon threads": (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "class A:\n    def __del__(self):\n        print('gone')\na = A()\nprint('main')"
    ),
    "a pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "print(list(ThreadPoolExecutor(2).map(abs, [-1, -2])))"
    ),
    "finalizers": (
        "class A:\n    def __init__(self, name):\n        self.name = name\n"
        "    def __del__(self):\n        print('gone', self.name)\n"
        "a = A('global')\n_c = A('private')\n"
        "def f(held=A('default')): pass\nimport json\njson.kept = A('of another module')\nprint('end')"
    ),
    "finalizers of cycles": (
        "class A:\n    def __init__(self, name):\n        self.name = name\n"
        "    def __del__(self):\n        print('gone', self.name)\n"
        "a = A('global')\nb = A('cycle')\nb.itself = b\n_c = A('private')\n"
        "def f(held=A('default')): pass\nprint('end')"
    ),
    "a generator": (
        "def g():\n    try:\n        yield\n    finally:\n        print('closed')\n"
        "d = g()\nnext(d)\nprint('end')"
    ),
    "a generator that others hold": (
        "import json\ndef g():\n    try:\n        yield\n    finally:\n        print('closed')\n"
        "json.g = g()\nnext(json.g)\nprint('end')"
    ),
    "files that nobody closes": (
        "import json, os, sys, textwrap\n"
        "def held():\n    file = open('d', 'w')\n    file.write('d')\n    yield file\n"
        "a = open('a', 'w')\na.write('a')\nb = open('b', 'wb')\nb.write(b'b')\n"
        "json.c = open('c', 'w')\njson.c.write('c')\nd = held()\nnext(d)\n"
        "sys.stdout = open('e', 'w')\nprint('e')\n"
        "if os.fork() == 0:\n    sys.exit()\nos.wait()\n"
    ),
    "streams that are closed": "import sys\nprint('a')\nsys.stdout.close()",
    "pickles": (
        "import pickle\nclass A:\n    pass\ndef f(): return 1\n"
        "print(pickle.loads(pickle.dumps(f))(), type(pickle.loads(pickle.dumps(A()))).__module__)"
    ),
    "processes": (
        "import multiprocessing\ndef f(x): return x * x\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn'):\n"
        "        with multiprocessing.get_context(method).Pool(1) as pool:\n"
        "            print(method, pool.map(f, [2, 3]))"
    ),
    "types of annotations": (
        "import dataclasses, typing\nx: int = 1\n@dataclasses.dataclass\nclass A:\n    a: 'B'\n"
        "class B: pass\nprint(typing.get_type_hints(A), __annotations__)"
    ),
    "a log": "import logging\nlogging.basicConfig()\nlogging.warning('a')\nprint(logging.root.manager.loggerDict)",
    "time of a log": (
        "import logging\nlogging.basicConfig(format='%(relativeCreated)d')\n"
        "record = logging.makeLogRecord({})\nprint(record.relativeCreated < 20_000)"
    ),
    "warnings": "import warnings\nwarnings.warn('a', DeprecationWarning)\nwarnings.warn('b', UserWarning)",
    "the helper": (
        "from orcaflow.task import output, params\nprint(params['system.biz.date'], output.__module__)"
    ),
    "modules of the worker": "import sys\nprint({'worker', 'common', 'orcaflow'} & {*sys.modules})",
    "another encoding": "# coding: latin-1\nprint(len('\u00e4'))",
    "windows lines": "print('a')\r\nprint('b')\r\n",
    "its source": "import inspect\ndef f(): pass\nprint(inspect.getsource(f), __file__ == inspect.getfile(f))",
    "a signal of its own": (
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('told'))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)"
    ),
    "no memory": "bytearray(2**60)",
}
"""Scripts whose output and exit code depend on nothing but Python."""
