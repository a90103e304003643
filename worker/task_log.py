"""The lines that Orcaflow itself writes into a task's log, and the limit to the log's size.

A task writes to its log file directly, so that neither its output nor its life depends on the
daemon; hence the size is looked at from time to time, and the middle of a log that grew too large
is cut out. Secrets never appear in lines of Orcaflow's; in what
the task prints they are masked by `worker.log_masking`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from common.masking import (
    MASK,
    SHORTEST_MASKED,
    is_secret,
    mask_setting,
    mask_text,
    printable,
    secrets_in,
)
from common.store.worker.ports import ClaimedTask

_PREFIX = "[orcaflow]"
_SHOWN_VALUE_CHARS = 200
_SHOWN_COMMAND_CHARS = 2_000
_MOST_KEPT_OF_THE_END = 1024 * 1024


def header(
    task: ClaimedTask,
    argv: Sequence[str],
    parameters: Mapping[str, str],
    secrets: Sequence[str] | None = None,
) -> str:
    """Return the first lines of a log: the attempt, its command and its parameters.

    Without `secrets`, only the values of secret names are masked.
    """
    secrets = secrets_in(parameters) if secrets is None else secrets
    what = f"task {printable(task.name)} ({printable(task.task_type)}), attempt {task.attempt}"
    where = f"process instance {task.process_instance_id} {printable(task.process_name)}"
    lines = [f"{_PREFIX} {what}; task instance {task.id} of {where}"]
    if argv:
        command = mask_setting(" ".join(map(printable, argv)), secrets)
        lines.append(f"{_PREFIX} runs {_cut(command, _SHOWN_COMMAND_CHARS)}")
    declared = _declared(parameters, secrets)
    if declared:
        lines.append(f"{_PREFIX} parameters {', '.join(declared)}")
    return "\n".join(lines) + "\n"


def line(text: str) -> str:
    """A line about what Orcaflow did to the attempt; the last line of a log says how it ended."""
    return f"{_PREFIX} {mask_text(printable(text))}\n"


def write(log: int, text: str) -> None:
    """Append to a log, whole; `OSError` if the volume is full."""
    _append(log, text.encode("utf-8", errors="replace"))


def write_line(log: int, text: str) -> None:
    """Append a line of ours, on a line of its own even if the task has not ended its last one."""
    begin = "" if ends_with_newline(log) else "\n"
    write(log, begin + line(text))


def ends_with_newline(log: int) -> bool:
    """True if a line of ours would start on a line of its own. The log must be open for reading."""
    size = os.fstat(log).st_size
    return size == 0 or os.pread(log, 1, size - 1) == b"\n"


def is_too_long(log: int, limit_bytes: int) -> bool:
    """True if a log has outgrown its limit."""
    return os.fstat(log).st_size > limit_bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """The part taken out of a log so far: the end of the head, its size, the marker's length."""

    head_end: int
    taken: int
    marker: int


def cut(
    log: int,
    *,
    limit_bytes: int,
    before: Cut | None,
    margin: int = 0,
    mask: Callable[[bytes, int], bytes] = lambda block, _: block,
) -> Cut | None:
    """Take the middle out of a log that is longer than the limit; all that was taken out so far.

    The first half of the limit stays, and of the end a quarter or a mebibyte, whichever is less:
    the log may grow a while before it is cut again, and little is copied. What the task writes at
    this very moment may get lost; it would have been among what is cut a moment later anyway. The
    log must be open for reading and appending. `mask` is given the end with a `margin` before it,
    and the margin's length, to mask secrets that the cut would part.
    """
    size = os.fstat(log).st_size
    if size <= limit_bytes:
        return before
    kept = min(limit_bytes // 4, _MOST_KEPT_OF_THE_END)
    head_end = before.head_end if before else _line_start_before(log, limit_bytes // 2)
    start = max(head_end, size - kept - margin)
    border = size - kept - start
    tail = mask(os.pread(log, size - start, start), border)[border:]
    # Begin with a whole line, unless the end is one single line.
    tail = tail[tail.find(b"\n") + 1 :] or tail
    taken = size - head_end - len(tail)
    if before:
        taken += before.taken - before.marker
    os.ftruncate(log, head_end)
    marker = f"{_PREFIX} … {taken} bytes were cut, since a log may have {limit_bytes} …\n".encode()
    _append(log, marker + tail)
    return Cut(head_end, taken, len(marker))


def _append(log: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(log, rest) :]


def _line_start_before(log: int, position: int) -> int:
    start = max(0, position - 4096)
    last = os.pread(log, position - start, start).rfind(b"\n")
    return position if last < 0 else start + last + 1


def _declared(parameters: Mapping[str, str], secrets: Sequence[str]) -> list[str]:
    """Return the parameters as texts without secrets."""
    given = {name: value for name, value in parameters.items() if not name.startswith("system.")}
    shown = [name for name in given if not is_secret(name)]
    # All values are searched together: there may be thousands of them, and of secrets.
    values = "\n".join(printable(given[name]) for name in shown)
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST_MASKED}, key=_order):
        values = values.replace(printable(secret), MASK)
    texts = dict(zip(shown, values.split("\n"), strict=True)) if shown else {}
    return [
        f"{printable(name)}="
        + (_cut(mask_setting(texts[name]), _SHOWN_VALUE_CHARS) if name in texts else MASK)
        for name in given
    ]


def _order(secret: str) -> tuple[int, str]:
    # Longer ones first: otherwise the rest of a secret that starts with another one would be shown.
    return -len(secret), secret


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
