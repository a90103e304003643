"""Reads what an attempt has put out for those downstream, after it has ended.

A task puts out a parameter by printing `${setValue(name=value)}` or `#{setValue(name=value)}`
anywhere in a line, or by adding a JSON object in a line of its own to the file that
`ORCAFLOW_OUTPUT` names; of equal names the later one counts, and the file before the log. Only
names declared `direct: OUT` are kept. Without an output of the task a name has its declared value,
if that is not empty. The attempt's record has everything that is needed, so that the outputs are
the same after a restart of the daemon. A log may be huge: it is read in steps, each as short as
starting a process, and never more than a step of it is in memory. Nothing here trusts the file,
which the task could have made into anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from common.errors import SchedulerError
from common.masking import is_secret
from common.params import DataType, Property, properties_json
from worker.workspace import is_own_file

VARIABLE: Final = "ORCAFLOW_OUTPUT"
"""Names the file, for every task."""

MAX_VALUES: Final = 1_000
MAX_BYTES: Final = 64 * 1024
"""Of all names and values together, as UTF-8."""

_MAX_FILE_BYTES = 1024 * 1024
_STEP_BYTES = 1024 * 1024
_MARKER = b"{setValue("
_CLOSE = b")}"
_LONGEST_BYTES = MAX_BYTES + 1024
_NAMED_DROPPED = 10
_SHOWN_CHARS = 80
_MOST_SECRET_SPANS = 100_000


class OutputError(SchedulerError):
    """The outputs can't be taken. The attempt fails with the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declared outputs of an attempt. `log_from` is None if its log isn't to be read."""

    types: Mapping[str, DataType]
    file: str
    log_from: int | None
    marked: frozenset[str] = frozenset()
    """The names of outputs that the author marked as secret."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """The declared values, which outputs have that the task does not put out itself."""

    def to_json(self) -> dict[str, object]:
        """As it stands in the attempt's record."""
        types = {name: each.name for name, each in self.types.items()}
        marked = {"marked": sorted(self.marked)} if self.marked else {}
        defaults = {"defaults": dict(self.defaults)} if self.defaults else {}
        return {
            "types": types,
            "file": self.file,
            "log_from": self.log_from,
            **marked,
            **defaults,
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Declared:
        """Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        log_from = document["log_from"]
        return Declared(
            types={str(name): DataType[each] for name, each in document["types"].items()},
            file=str(document["file"]),
            log_from=None if log_from is None else int(log_from),
            marked=frozenset(map(str, document.get("marked", ()))),
            defaults={str(k): str(v) for k, v in document.get("defaults", {}).items()},
        )


class OutputReader:
    """Reads one attempt's outputs, step by step; whoever steps it owns the log's descriptor.

    It reads the log up to its size at creation. An output for which `holds_secret` returns True is
    marked as secret, so it is masked when it is shown and in the logs of tasks that receive it.
    """

    def __init__(
        self,
        declared: Declared,
        log: int,
        *,
        holds_secret: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._declared = declared
        self._holds_secret = holds_secret
        self._log = log
        self._position = declared.log_from or 0
        # A process that got away could write for ever.
        self._end = os.fstat(log).st_size
        self._log_is_read = declared.log_from is None
        self._carried = b""
        self._seen: dict[str, None] = {}
        self._kept: dict[str, str] = {}
        self._defaults: list[str] = []
        self._secret_spans: dict[tuple[int, int], None] = {}

    def step(self) -> bool:
        """Read a little more; True when all is read. `OutputError` if it can't be taken."""
        if not self._log_is_read:
            self._log_is_read = self._read_log()
            return False
        self._read_file()
        self._put_defaults()
        self._check_size()
        return True

    def read_all(self) -> None:
        """Read everything now."""
        while not self.step():
            pass

    @property
    def secret_spans(self) -> tuple[tuple[int, int], ...]:
        """The places in the log of values that were put out by a name that sounds secret."""
        return tuple(self._secret_spans)

    def var_pool(self) -> str | None:
        """Return the outputs as the tables hold them; None if there are none."""
        if not self._kept:
            return None
        return properties_json(
            Property(
                prop=name,
                type=self._declared.types[name],
                value=value,
                secret=name in self._declared.marked or self._holds_secret(value),
            )
            for name, value in sorted(self._kept.items())
        )

    def summary(self) -> str | None:
        """Return the line for the log: names only, since a value may be a secret."""
        parts = []
        if put_out := sorted(self._kept.keys() - set(self._defaults)):
            parts.append(f"puts out {', '.join(put_out)}")
        if self._defaults:
            parts.append(f"leaves the declared value to {', '.join(sorted(self._defaults))}")
        dropped = sorted(name for name in self._seen if name not in self._declared.types)
        if dropped:
            more = f" and {len(dropped) - _NAMED_DROPPED} more" if dropped[_NAMED_DROPPED:] else ""
            names = ", ".join(_shown(name) for name in dropped[:_NAMED_DROPPED])
            parts.append(f"drops {names}{more}: not declared as OUT parameters")
        return "; ".join(parts) or None

    def _put(self, name: str, value: str) -> None:
        if name not in self._seen:
            if len(self._seen) == MAX_VALUES:
                raise OutputError(f"it puts out more than {MAX_VALUES:,} parameters")
            self._seen[name] = None
        if name in self._declared.types:
            self._kept[name] = value

    def _put_defaults(self) -> None:
        for name, value in self._declared.defaults.items():
            if name not in self._kept:
                self._kept[name] = value
                self._defaults.append(name)

    def _check_size(self) -> None:
        size = sum(
            len(text.encode("utf-8", "replace")) for each in self._kept.items() for text in each
        )
        if size > MAX_BYTES:
            raise OutputError(
                f"it puts out {size:,} bytes of parameters; all together may have {MAX_BYTES:,}"
            )

    # The log.

    def _read_log(self) -> bool:
        step = min(_STEP_BYTES, max(0, self._end - self._position))
        read = os.pread(self._log, step, self._position)
        self._position += len(read)
        self._carried = self._scan(self._carried + read, is_end=not read)
        return not read

    def _scan(self, text: bytes, *, is_end: bool) -> bytes:
        """Take what is whole; the rest, in which something may begin that goes on behind it."""
        position = 0
        while (found := text.find(_MARKER, position)) >= 0:
            begin = found + len(_MARKER)
            if found == 0 or text[found - 1 : found] not in (b"$", b"#"):
                position = begin
                continue
            line_end = text.find(b"\n", begin, begin + _LONGEST_BYTES)
            bound = begin + _LONGEST_BYTES if line_end < 0 else line_end
            close = text.find(_CLOSE, begin, bound)
            if close >= 0:
                self._take_printed(text[begin:close], self._position - len(text) + begin)
                position = close + len(_CLOSE)
            elif line_end >= 0:
                position = line_end
            elif len(text) - begin >= _LONGEST_BYTES:
                raise OutputError(
                    f"it prints a parameter that is longer than {MAX_BYTES:,} bytes, or a line"
                    " with setValue( and without )}"
                )
            else:
                return b"" if is_end else text[found - 1 :]
        # A marker may be cut in two by the end of what was read.
        return text[max(position, len(text) - len(_MARKER)) :]

    def _take_printed(self, text: bytes, position: int) -> None:
        name, equals, value = text.decode("utf-8", "replace").partition("=")
        if equals and name.strip():
            is_hidden = is_secret(name.strip()) or name.strip() in self._declared.marked
            if is_hidden and len(self._secret_spans) < _MOST_SECRET_SPANS:
                begin = position + text.index(b"=") + 1
                self._secret_spans[begin, position + len(text)] = None
            self._put(name.strip(), value)

    # The file.

    def _read_file(self) -> None:
        for number, line in enumerate(self._file_bytes().split(b"\n"), start=1):
            if line.strip():
                for name, value in self._decoded(line, number).items():
                    self._put(name, value)

    def _file_bytes(self) -> bytes:
        path = self._declared.file
        try:
            # Neither a link out of the directory nor a pipe that nobody writes to.
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise OutputError(f"{VARIABLE}: {path} can't be read: {error.strerror}") from error
        try:
            if not is_own_file(file):
                raise OutputError(f"{VARIABLE}: {path} is no ordinary file of the attempt's own")
            size = os.fstat(file).st_size
            if size > _MAX_FILE_BYTES:
                raise OutputError(
                    f"{VARIABLE}: {path} has {size:,} bytes; it may have"
                    f" {_MAX_FILE_BYTES:,}, and its values {MAX_BYTES:,}"
                )
            return os.pread(file, _MAX_FILE_BYTES, 0)
        finally:
            os.close(file)

    def _decoded(self, line: bytes, number: int) -> dict[str, str]:
        place = f"{VARIABLE}: {self._declared.file}, line {number}"
        try:
            document = json.loads(line, parse_float=Decimal, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise OutputError(f"{place}: not valid JSON: {error}") from error
        if not isinstance(document, dict):
            raise OutputError(f'{place}: must be a JSON object such as {{"name": "value"}}')
        return {name: _text(value) for name, value in document.items()}


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


def _text(value: object) -> str:
    """Text as it is, numbers as they were written, everything else as JSON."""
    match value:
        case str():
            return value
        case None:
            return ""
        case Decimal():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, default=float)


def _shown(name: str) -> str:
    return name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}…"
