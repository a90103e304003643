"""Takes apart what Spark says: the texts of its errors, and the logs of its drivers.

Pure. An error's text comes with stack traces of Java, plans, links of causes, and errors within
errors; what a person wants to read is a few lines of it, and of these one is the *headline*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_HEADLINE_CHARS = 600
_LONGEST_LINES = 40
_TRACE: Final = "Traceback (most recent call last):"

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:\.[A-Z0-9_]+)*)\]")
_STATE = re.compile(r"\bSQLSTATE: ([0-9A-Z]{5})\b")
_JAVA_STATE = re.compile(r";?\s*\bSQLSTATE: [0-9A-Z]{5}\b.*", re.DOTALL)
_PLAN = re.compile(r"(SQLSTATE: [0-9A-Z]{5}(?:; line \d+ pos \d+)?);\n.*", re.DOTALL)
_CALL = re.compile(r"\AAn error occurred while calling \S+?\.?\s*(?:Trace:)?\n:?\s*")
_CLASS = re.compile(r"\A\(?((?:[a-z_][\w]*\.)+[A-Z][\w$]*)(?:\): |\) |: |\Z)")
_DETAILS = re.compile(r"RPC that terminated with:\n(?:.*\n)*?\s*details = \"(.+)\"$", re.MULTILINE)
"""Of an error of gRPC's own, whose first line says nothing."""
_FAILURE = re.compile(
    r"(?:most recent failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): |"
    r"Most recent failure reason: )",
)
_FRAME = re.compile(r'  File "([^"]+)", line (\d+), in (.+)')
_LIBRARY_FILE = re.compile(r"/(pyspark|py4j)(\.zip)?/|/pyspark\.zip/|py4j-[\d.]+-src\.zip|<frozen ")
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(?:: .*|\Z)")
_LOGGED = re.compile(
    r"(?:\d{2,4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d\S* )(TRACE|DEBUG|INFO|WARN|ERROR|FATAL) "
)
_REFLECTED = re.compile(
    r"\Ajava\.lang\.reflect\.InvocationTargetException\b.*?^Caused by: ", re.DOTALL | re.MULTILINE
)
"""The error of a caller of `main`, such as a Worker's, and not the program's."""
_JAVA_STACK = re.compile(r"\s+at \S.*|\s+\.\.\. \d+ (?:more|common frames omitted)")


def condition(text: str) -> str:
    """The first of Spark's conditions in a text, such as `PATH_NOT_FOUND`."""
    found = _CONDITION.search(text)
    return found[1] if found else ""


def state(text: str) -> str:
    """The first SQLSTATE in a text."""
    found = _STATE.search(text)
    return found[1] if found else ""


def headline(text: str) -> str:
    """Return what went wrong in one line; of an error within an error the inner one."""
    text = unwrapped(text)
    details = _DETAILS.search(text)
    if details is not None:
        return _cut(details[1])
    python = python_error(text)
    if python:
        return _cut(python)
    for line in text.splitlines():
        if line.strip() and not _JAVA_STACK.fullmatch(line):
            return _cut(_JAVA_STATE.sub("", line.strip()).rstrip(" ;"))
    return ""


def first_line(text: str) -> str:
    """The first line that isn't empty, cut if it is very long."""
    return next((_cut(line.strip()) for line in text.splitlines() if line.strip()), "")


def unwrapped(text: str) -> str:
    """The text without the words in which errors of others are reported."""
    text = _CALL.sub("", text.strip())
    failures = list(_FAILURE.finditer(text.partition("\nDriver stacktrace:")[0]))
    if failures:
        text = text[failures[-1].end() :]
    return _without_class(text).strip()


def root_cause(text: str) -> str:
    """Return the last of Java's links of causes, "" if there is none."""
    causes = re.findall(r"^Caused by: (.+)", text, re.MULTILINE)
    return _JAVA_STATE.sub("", _without_class(causes[-1])).strip(" .") if causes else ""


def python_error(text: str) -> str:
    """The last error of a Python traceback in a text and where it was, "" if there is none."""
    _, found, rest = text.rpartition(_TRACE)
    if not found:
        return ""
    place = ""
    for line in rest.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is not None and not _LIBRARY_FILE.search(frame[1]):
            name = frame[3].removeprefix("<").removesuffix(">")
            place = f", in {name} at line {frame[2]} of {frame[1].rpartition('/')[2]}"
        if line and not line.startswith(" "):
            return f"{line.strip()}{place}"
    return ""


def shortened(text: str) -> str:
    """The text for a person: no stack of Java's, no plan, no frames of libraries."""
    text = _PLAN.sub(r"\1", _CALL.sub("", text)).partition("\nDriver stacktrace:")[0]
    text = text.partition("\n\nJVM stacktrace:")[0]
    lines = [line for line in _own_frames(text.splitlines()) if not _JAVA_STACK.fullmatch(line)]
    while lines and not lines[-1].strip():
        lines.pop()
    left_out = len(lines) - _LONGEST_LINES
    if left_out > 0:
        half = _LONGEST_LINES // 2
        lines[half:-half] = [f"… {left_out} more lines …"]
    return "\n".join(lines).strip("\n")


def last_error(log: str) -> str:
    """The error that a driver has ended with, as far as its log shows it: from its class on."""
    lines = log.splitlines()
    found = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        if line == _TRACE:
            number, error = _of_traceback(lines, number + 1)
            found = error or found
            continue
        _, thrown, error = line.partition('Exception in thread "main" ')
        if thrown:
            end = _end_of_block(lines, number + 1)
            found = "\n".join([error, *lines[number + 1 : end]])
            number = end
            continue
        number += 1
    return _REFLECTED.sub("", found)


def serious(log: str) -> str:
    """Return the errors of a log, without news and warnings, with the lines that belong to them."""
    kept = []
    is_kept = True
    for line in log.splitlines():
        level = _LOGGED.match(line)
        if level is not None:
            is_kept = level[1] in ("ERROR", "FATAL")
        if is_kept:
            kept.append(line)
    return "\n".join(kept)


def is_of_python(error: str) -> bool:
    """True if `last_error` came from a Python traceback: it names a class of Python's."""
    name = error.partition(":")[0].strip()
    return bool(re.fullmatch(r"(?:[a-z_][\w]*\.)*[A-Z]\w*", name)) and not re.match(
        r"(java|javax|scala|org|io|com|net)\.", name
    )


def _of_traceback(lines: list[str], number: int) -> tuple[int, str]:
    """The error behind the frames that begin here, and where the search goes on."""
    while number < len(lines) and (lines[number].startswith(" ") or not lines[number].strip()):
        number += 1
    if number == len(lines) or not _ERROR_LINE.match(lines[number]):
        return number, ""
    end = _end_of_block(lines, number + 1)
    return end, "\n".join(lines[number:end])


def _end_of_block(lines: list[str], number: int) -> int:
    """Return the line where something else begins. A traceback in an error's text belongs to it."""
    while number < len(lines) and not _LOGGED.match(lines[number]):
        if lines[number] == _TRACE and not lines[number - 1].endswith("Python worker:"):
            break
        number += 1
    return number


def _own_frames(lines: list[str]) -> Iterator[str]:
    """Without frames of Spark's own Python, which stand before the author's."""
    is_left_out = False
    for line in lines:
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            is_left_out = bool(_LIBRARY_FILE.search(frame[1]))
        elif not line.startswith("    "):
            is_left_out = False
        if not is_left_out:
            yield line


def _without_class(text: str) -> str:
    """Without the class of an error, which says nothing where Spark has words for it."""
    found = _CLASS.match(text)
    while found is not None and text[found.end() :].strip() and not _is_telling(found[1]):
        text = text[found.end() :]
        found = _CLASS.match(text)
    return text


def _is_telling(name: str) -> bool:
    """True if the name of a class is worth reading before its message."""
    return not name.rpartition(".")[2].startswith(("Spark", "Py4J")) and not name.endswith(
        (".RuntimeException", ".PythonException", ".AnalysisException", ".ParseException")
    )


def _cut(line: str) -> str:
    return line if len(line) <= _HEADLINE_CHARS else f"{line[: _HEADLINE_CHARS - 1]}…"
