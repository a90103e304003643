"""Masks known secrets in what a task prints, in its log, after it has been written.

A task writes to its log directly (`worker.task_log`), so secrets are overwritten in place, byte for
byte: nothing moves, and the task goes on appending. What is known to be secret is given: the values
of parameters with secret names or marked as secret, the passwords of data sources, and the values
that connect the attempt to its worker, plain and in the forms in which programs print them. Values
of fewer than four characters are not masked, because that would hide half of the log. A log is read
in steps, and a secret across the border of two steps is found. The outputs of a task
(`worker.processes.outputs`) are read from the log first, and masked at the end.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from common.masking import SHORTEST_MASKED, encodings, quotations, secrets_in
from worker import task_log
from worker.secret_search import SecretSearch
from worker.task_log import Cut
from worker.workspace import is_own_file

PARAMETERS_FILE: Final = "params.json"
"""An attempt's parameters, in its directory."""

_MOST_READ_BYTES: Final = 10_000_000
_STEP_BYTES: Final = 256 * 1024
_LONGEST_BYTES: Final = 16 * 1024
"""Of a longer secret, its beginning is masked."""
_MOST_BYTES: Final = 1024 * 1024
"""Of all secrets of an attempt together, in all spellings."""
_FORMS: Final = 20
"""The approximate size of all forms of a secret together, in multiples of its size."""
_FEW_SECRETS: Final = 50
_NO_LINE_END: Final = re.compile(rb"[^\r\n]")
_MARKER: Final = b"{setValue("
_LOOK_BACK_BYTES: Final = 66 * 1024
_MOST_SPARED: Final = 10_000


def maskable(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the secrets that a log is searched for, each once; no more than a bounded size."""
    found: dict[str, None] = {}
    size = 0
    # Short ones first: a few long ones must not leave them out.
    for secret in sorted(set(secrets), key=lambda each: (len(each), each)):
        size += _FORMS * min(len(secret), _LONGEST_BYTES)
        if len(secret) >= SHORTEST_MASKED and size <= _MOST_BYTES:
            found[secret[:_LONGEST_BYTES]] = None
    return tuple(found)


def secrets_left_in(
    directory: str, names: Collection[str] = (), job_file: Path | None = None
) -> tuple[str, ...]:
    """Return the secrets that a worker finds again in an attempt's files after its restart.

    These are the values of parameters that are named in `names` or sound secret, and the passwords
    in the job file, where a PYTHON task finds its data sources. They are written nowhere but for
    the attempt itself, which may have changed its files.
    """
    parameters = _read_object(Path(directory, PARAMETERS_FILE))
    texts = {str(name): str(value) for name, value in parameters.items()}
    found = [*secrets_in(texts), *(texts[name] for name in names if name in texts)]
    if job_file is not None:
        found += _passwords_in(_read_object(job_file))
    return maskable(found)


def _passwords_in(connections: Mapping[str, Any]) -> Iterator[str]:
    """Yield the passwords of connections, or of those that a job will leave in its file."""
    later = connections.get("connections")
    for each in (*connections.values(), *(later.values() if isinstance(later, dict) else ())):
        if isinstance(each, dict) and isinstance(password := each.get("password"), str):
            yield password


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file that an attempt may have changed; else an empty one."""
    try:
        # Neither a link out of the directory nor a pipe that nobody writes to.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        found = json.loads(os.pread(file, _MOST_READ_BYTES, 0)) if is_own_file(file) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(file)
    return found if isinstance(found, dict) else {}


class LogMask:
    """The masking of one attempt's log: its secrets, and the place up to which they are masked."""

    def __init__(self, secrets: Iterable[str], *, spares_outputs: bool, begin: int = 0) -> None:
        """`spares_outputs` defers secrets in lines with an output until `finish` is called.

        Masking starts at the offset `begin`.
        """
        self.secrets = maskable(secrets)
        self._spares = spares_outputs
        self._spared: list[tuple[int, int]] = []
        self._begin = self._done = begin
        # No form of a secret is shorter than the secret.
        self._shortest_bytes = min((len(_bytes(each)) for each in self.secrets), default=0)

    # Built at first use, because every attempt has a secret, but most of them print little.
    @cached_property
    def _search(self) -> SecretSearch:
        return SecretSearch(
            (_bytes(form) for each in self.secrets for form in quotations(each)),
            (_bytes(form) for each in self.secrets for form in encodings(each)),
        )

    @property
    def _overlap(self) -> int:
        return max(0, self._search.longest_bytes - 1)

    @property
    def is_quick(self) -> bool:
        """True if a small part of a log is masked within milliseconds.

        To prepare the search for thousands of secrets takes a second.
        """
        return len(self.secrets) <= _FEW_SECRETS or "_search" in self.__dict__

    def is_in(self, text: str) -> bool:
        """Return whether a text contains one of the secrets, in any form."""
        return bool(self.secrets) and bool(self._search.spans(_bytes(text)))

    @property
    def settled(self) -> int:
        """The offset before which nothing will be masked any more; not while it masks."""
        if not self.is_quick:
            return 0
        spared = min((start for start, _ in self._spared), default=self._done)
        return max(0, min(self._done - self._overlap, spared))

    def left_bytes(self, log: int) -> int:
        """Return the size of the part that is not masked yet; 0 is none.

        It is more than 0 for a log that was emptied.
        """
        end = os.fstat(log).st_size
        return end - self._done if end >= self._done else max(end, 1)

    def mask(self, log: int, *, limit: int | None = None) -> None:
        """Mask what was added, or the part before `limit`. The log must be open for reading."""
        for _ in self._steps(log, limit=limit):
            pass

    def _steps(self, log: int, *, limit: int | None = None) -> Iterator[None]:
        """Mask as `mask` does, one step at a time. No more than a step of the log is in memory."""
        end = os.fstat(log).st_size
        if self._done > end:
            # Somebody has emptied it.
            self._restart(0)
        end = end if limit is None else min(end, limit)
        if end - self._begin < self._shortest_bytes:
            self._done = max(self._done, end)
            return
        while self._done < end:
            start = max(0, self._done - self._overlap)
            block = os.pread(log, _STEP_BYTES + self._done - start, start)
            if not block:
                break
            block = block[: end - start]
            self._mask_block(log, block, start)
            self._done = start + len(block)
            yield

    def cut(self, log: int, *, limit_bytes: int, before: Cut | None) -> Cut | None:
        """Cut the log as `task_log.cut` does, and mask it; no part of a secret is left at the cut.

        It is cut first, so that no more is read than stays.
        """
        steps = self.cut_in_steps(log, limit_bytes=limit_bytes, before=before)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                cut: Cut | None = end.value
                return cut

    def cut_in_steps(
        self, log: int, *, limit_bytes: int, before: Cut | None
    ) -> Generator[None, None, Cut | None]:
        """Cut and mask the log as `cut` does, one step of masking at a time."""
        if not task_log.is_too_long(log, limit_bytes):
            yield from self._steps(log)
            return before
        if before is None:
            # The head may end within a secret.
            yield from self._steps(log, limit=limit_bytes // 2 + self._overlap)
        cut = task_log.cut(
            log,
            limit_bytes=limit_bytes,
            before=before,
            margin=self._overlap,
            mask=self._mask_border,
        )
        if cut is not None:
            self._restart(min(self._done, cut.head_end))
        yield from self._steps(log)
        return cut

    def finish(self, log: int, spans: Iterable[tuple[int, int]] = ()) -> None:
        """Mask what was spared, and these places, once the outputs have been read."""
        places = sorted({*self._spared, *spans})
        if places:
            writer = _writer(log)
            try:
                for start, end in places:
                    os.pwrite(writer, b"*" * (end - start), start)
            finally:
                os.close(writer)
        self._spared.clear()

    def _restart(self, position: int) -> None:
        self._done = position
        self._begin = min(self._begin, position)
        self._spared = [each for each in self._spared if each[1] <= position]

    def _mask_block(self, log: int, block: bytes, start: int) -> None:
        spans = [
            (begin, end)
            for begin, end in self._search.spans(block)
            if not self._is_spared(log, block, start, begin, end)
        ]
        if not spans:
            return
        first, last = spans[0][0], spans[-1][1]
        masked = bytearray(block[first:last])
        for begin, end in spans:
            masked[begin - first : end - first] = _stars(block[begin:end])
        writer = _writer(log)
        try:
            os.pwrite(writer, masked, start + first)
        finally:
            os.close(writer)

    def _mask_border(self, block: bytes, border: int) -> bytes:
        """Mask the secrets across a border, which would be cut in two there."""
        masked = bytearray(block)
        for begin, end in self._search.spans(block[: border + self._overlap]):
            if begin < border < end:
                masked[begin:end] = _stars(block[begin:end])
        return bytes(masked)

    def _is_spared(self, log: int, block: bytes, start: int, begin: int, end: int) -> bool:
        if not self._spares or len(self._spared) >= _MOST_SPARED:
            return False
        line = block.rfind(b"\n", 0, begin) + 1
        before = block[line:begin]
        if not line and start:
            reach = min(start, _LOOK_BACK_BYTES)
            before = os.pread(log, reach + begin, start - reach)
            before = before[before.rfind(b"\n") + 1 :]
        if _MARKER not in before:
            return False
        if (start + begin, start + end) not in self._spared[-10:]:
            self._spared.append((start + begin, start + end))
        return True


def _stars(text: bytes) -> bytes:
    """Return the same number of stars; line ends are kept, so that the lines of a log remain."""
    return _NO_LINE_END.sub(b"*", text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


def _writer(log: int) -> int:
    """Open the log once more: what is written to one for appending goes to its end."""
    return os.open(f"/proc/self/fd/{log}", os.O_WRONLY | os.O_CLOEXEC)
