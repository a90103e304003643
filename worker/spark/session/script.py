"""Runs the author's script as `__main__`, with names put into it.

Runs in the task's own process. It knows no Spark: `spark` and `params` are names like any other.
Functions of the script are sent to Spark's workers by value, as those of any `__main__` are.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orcaflow.task  # noqa: F401  # A script finds it even in an interpreter without Orcaflow.
from common.model.failures import FailureReason
from worker.spark.diagnosis.failures import WorkFailedError

_HIDDEN = frozenset({"common", "worker", "master", "sql", "tests"})
_OWN_FOLDER = str(Path(__file__).resolve().parent)
_ROOT = str(Path(__file__).resolve().parents[3])


def compiled(path: str) -> types.CodeType:
    """The script's code. Raises `SyntaxError`, `ValueError` (a NUL) or `OSError`."""
    source = Path(path).read_bytes()
    return compile(source, path, "exec", dont_inherit=True)


def run(
    code: types.CodeType, *, path: str, arguments: Sequence[str], names: Mapping[str, Any]
) -> None:
    """Run it. Raises what the script raises, and `WorkFailedError` for an exit code but 0."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, **names)
    # For `orcaflow.task`: what the script does with these names is its own business.
    module.__dict__["__orcaflow__"] = dict(names)
    sys.modules["__main__"] = module
    sys.argv[:] = [path, *arguments]
    # As for any script. The folder of the program that runs it is not for it.
    others = [each for each in sys.path if each != _OWN_FOLDER]
    sys.path[:] = [str(Path(path).resolve().parent), *others]
    with _own_modules_hidden():
        try:
            exec(code, module.__dict__)  # noqa: S102  # Running the script is what this is for.
        except SystemExit as end:
            _check(end)


@contextlib.contextmanager
def _own_modules_hidden() -> Iterator[None]:
    """While the script runs, `import common` is its own `common.py`, not a package of ours.

    Only `orcaflow` stays: `orcaflow.task` is for scripts.
    """
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_hidden(name)}
    path = [*sys.path]
    sys.path[:] = [each for each in sys.path if each == path[0] or not _is_checkout(each)]
    try:
        yield
    finally:
        sys.modules.update(hidden)


def _is_hidden(name: str) -> bool:
    return name.partition(".")[0] in _HIDDEN


def _is_checkout(folder: str) -> bool:
    # In an installation our packages stand among everybody's, which the script needs.
    return folder == _ROOT and not _ROOT.endswith(("site-packages", "dist-packages"))


def _check(end: SystemExit) -> None:
    """Raise for an exit but 0: `sys.exit` was given nothing, a number, or words to say."""
    if end.code is None:
        return
    code = end.code & 0xFF if isinstance(end.code, int) else 1
    sentence = f"the script ended itself with exit code {code}"
    if not isinstance(end.code, int):
        sentence = str(end.code)
    if code:
        raise WorkFailedError(sentence, FailureReason.EXIT_CODE, exit_code=code) from None
