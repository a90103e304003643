"""Lints definitions in a separate process, which ends with its request and frees its memory.

`python -m api.lint_apart` is that process. Its input is a line of JSON with the options, and then
the definitions; its output is the answer of the route as JSON. A thread could not be stopped and
would hold the interpreter's lock: linting 7 MB takes 12 seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from api.heavy import LONG_SECONDS
from operations.definition_files import DefinitionDocument, InvalidFilesError, Mistake
from operations.documents.definitions import lint_document
from operations.errors import UsageError
from operations.linting import read_content

_SMALL: Final = 32_768
"""The size in bytes up to which linting takes less time than starting a process."""
_SECONDS: Final = int(LONG_SECONDS)
_MOST_MEMORY: Final = 2 * 2**30
_MOST_MISTAKES: Final = 1000
_CHECK_SECONDS: Final = 0.1
_NICE: Final = 5


def lint(
    content: bytes,
    *,
    resources: Path,
    name: str | None,
    mapped: Sequence[str],
    strict: bool | None,
    is_over: Callable[[], bool],
) -> dict[str, Any]:
    """Check definitions, and return the document that `orcaflow definition lint -o json` prints.

    `UsageError` if an option is wrong, or if the check takes too long or too much memory. The
    process is killed once `is_over` returns True: the client no longer waits.
    """
    options = {
        "resources": str(resources),
        "name": name,
        "mapped": list(mapped),
        "strict": strict,
    }
    if len(content) <= _SMALL:
        return _found(options, content)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answer:
        given.write(json.dumps(options).encode() + b"\n" + content)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "api.lint_apart"],
            stdin=given,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).resolve().parents[1],
        )
        try:
            code = _end_of(process, is_over)
        finally:
            process.kill()
            process.wait()
        if code != 0:
            raise UsageError(
                None,
                f"these definitions take more than {_SECONDS} s or {_MOST_MEMORY >> 30} GiB to"
                " check; send fewer at a time",
            )
        answer.seek(0)
        found: dict[str, Any] = json.load(answer)
    if "usage" in found:
        raise UsageError(found["field"], found["usage"])
    return found


def _end_of(process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> int | None:
    """Wait for the process and return its exit code; None if it has to be killed."""
    for _ in range(round(_SECONDS / _CHECK_SECONDS)):
        try:
            return process.wait(_CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            if is_over():
                return None
    return None


def _found(options: dict[str, Any], content: bytes) -> dict[str, Any]:
    documents: list[DefinitionDocument] = []
    mistakes: tuple[Mistake, ...] = ()
    try:
        documents = read_content(
            content,
            resources=Path(options["resources"]),
            name=options["name"],
            mapped=options["mapped"],
            strict=options["strict"],
        )
    except InvalidFilesError as error:
        mistakes = error.found[:_MOST_MISTAKES]
    return lint_document(documents, mistakes)


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICE)
    options = json.loads(sys.stdin.buffer.readline())
    try:
        found = _found(options, sys.stdin.buffer.read())
    except UsageError as error:
        found = {"usage": error.message, "field": error.field}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
