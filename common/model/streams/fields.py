"""Reads one JSON object key by key, and collects every mistake with its place.

Pure. `Fields` knows which keys were asked for: any other is a mistake with a suggestion, because a
misspelt key would silently mean its default. As in Druid, null is as good as absent, also for keys
that are not known, and numbers and truth values may be texts. Values of `secret` objects are never
shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from common.model.streams.periods import FOREVER, PeriodError, read_duration

MAX_WHOLE: Final = 2**63 - 1
_SHOWN: Final = 60
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_INDEX: Final = re.compile(r"\[[0-9]+\]")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Mistakes of a document, and the keys of it that change nothing here."""

    mistakes: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def ignored_once(self) -> tuple[str, ...]:
        """Return the place of each key without effect; `[*]` stands for several items of a list."""
        groups: dict[str, list[str]] = {}
        for place in dict.fromkeys(self.ignored):
            groups.setdefault(_INDEX.sub("[*]", place), []).append(place)
        return tuple(found[0] if len(found) == 1 else general for general, found in groups.items())


class Fields:
    """One object of a document at `place`; a default is returned wherever a value is wrong."""

    def __init__(self, value: Any, place: str, findings: Findings) -> None:
        self.place = place
        self.findings = findings
        self._known: set[str] = set()
        self._values: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            self._values = value
        else:
            self._add(place, f"must be an object, not {shown(value)}")
            # What would be missing in it is no mistake of its own.
            self.findings = Findings()

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def at(self, key: str) -> str:
        """The place of a key, as mistakes name it."""
        return f"{self.place}.{key}" if self.place else key

    def wrong(self, key: str, text: str) -> None:
        """Note a mistake at a key."""
        self._add(self.at(key), text)

    def differs(self, key: str, other: str) -> None:
        """Note that a key means something else than another place of the document."""
        self.wrong(key, f"differs from {other}; keep one of the two")

    def raw(self, key: str) -> Any:
        """Return the value as it stands, None if there is none."""
        self._known.add(key)
        return self._values.get(key)

    def text(self, key: str, *, default: str = "") -> str:
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        self.wrong(key, f"must be a text, not {shown(value)}")
        return default

    def name(self, key: str) -> str:
        """Return a text that must be there and must not be empty."""
        value = self.raw(key)
        if value is None:
            self.wrong(key, "is missing")
        elif not isinstance(value, str):
            self.wrong(key, f"must be a text, not {shown(value)}")
        elif not value:
            self.wrong(key, "must not be empty")
        else:
            return value
        return ""

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if value in {"true", "false"}:
            return bool(value == "true")
        self.wrong(key, f"must be true or false, not {shown(value)}")
        return default

    def whole(self, key: str, *, default: int, least: int = 0, most: int = MAX_WHOLE) -> int:
        """Return a whole number within its bounds."""
        value = self.raw(key)
        if value is None:
            return default
        number = whole_number(value)
        if number is None:
            self.wrong(key, f"must be a whole number, not {shown(value)}")
            return default
        if not least <= number <= most:
            bounds = f"{least} or more" if most == MAX_WHOLE else f"from {least} to {most}"
            self.wrong(key, f"must be {bounds}, not {number}")
            return default
        return number

    def share(self, key: str, *, default: float) -> float:
        """Return a number from 0 to 1."""
        value = self.raw(key)
        if value is None:
            return default
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else -1
        if not 0 <= number <= 1:
            self.wrong(key, f"must be a number from 0 to 1, not {shown(value)}")
            return default
        return float(number)

    def duration(
        self, key: str, *, default: _Value, least: timedelta = timedelta()
    ) -> timedelta | _Value:
        """Return a fixed length.

        Return None for `FOREVER` if the default is None: the key is an optional limit, and no time
        reaches that one.
        """
        text = self.raw(key)
        if text is None:
            return default
        if not isinstance(text, str):
            self.wrong(key, f"must be a text such as PT1H, not {shown(text)}")
            return default
        try:
            length = read_duration(text)
        except PeriodError as error:
            self.wrong(key, f"{shown(text)} is no duration: {error}")
            return default
        if length < least:
            seconds = f"{least.total_seconds():g}"
            self.wrong(key, f"must be PT{seconds}S or longer, not {shown(text)}")
            return default
        return default if default is None and length >= FOREVER else length

    def milliseconds(self, key: str, *, default: timedelta, least: int = 0) -> timedelta:
        """Return a length that is written as a number of milliseconds."""
        number = self.whole(
            key, default=default // timedelta(milliseconds=1), least=least, most=10**13
        )
        return timedelta(milliseconds=number)

    def moment(self, key: str) -> datetime | None:
        """Return a time in UTC; one without a zone is in UTC."""
        text = self.raw(key)
        if text is None:
            return None
        try:
            read = datetime.fromisoformat(text)
            return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            self.wrong(key, f"must be a time such as 2026-11-20T04:00:00Z, not {shown(text)}")
            return None

    def one_of(self, key: str, choices: Iterable[str], *, default: str) -> str:
        value = self.text(key, default=default)
        allowed = tuple(choices)
        if value in allowed:
            return value
        self.wrong(key, f"must be {' or '.join(allowed)}, not {shown(value)}")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty if there is none."""
        found = []
        for index, value in enumerate(self.list(key)):
            if isinstance(value, str) and value:
                found.append(value)
            else:
                self._add(f"{self.at(key)}[{index}]", f"must be a name, not {shown(value)}")
        return tuple(found)

    def list(self, key: str) -> tuple[Any, ...]:
        value = self.raw(key)
        if value is None:
            return ()
        if isinstance(value, list):
            return tuple(value)
        self.wrong(key, f"must be a list, not {shown(value)}")
        return ()

    def child(self, key: str) -> Fields | None:
        """Return the object at a key, None if there is none."""
        value = self.raw(key)
        return None if value is None else Fields(value, self.at(key), self.findings)

    def required(self, key: str) -> Fields:
        """Return the object at a key; an absent one is a mistake, and reads as empty."""
        value = self.raw(key)
        if value is None:
            self.wrong(key, "is missing")
            return Fields({}, self.at(key), Findings())
        return Fields(value, self.at(key), self.findings)

    def items(self, key: str, read: Callable[[Fields], _Value | None]) -> tuple[_Value, ...]:
        """Read a list of objects, each by `read`, which returns None for a wrong one."""
        places = (
            Fields(value, f"{self.at(key)}[{index}]", self.findings)
            for index, value in enumerate(self.list(key))
        )
        return tuple(each for each in map(read, places) if each is not None)

    def ignore(self, *keys: str) -> None:
        """Accept keys that change nothing here, and list each one with a value.

        An empty list or object does not count, because Druid shows it for a key that was not given.
        """
        self._known.update(keys)
        self.findings.ignored.extend(
            self.at(key) for key in keys if key in self and self._values[key] not in ([], {})
        )

    def ignore_rest(self) -> None:
        """Accept all keys that are not read yet; they change nothing here."""
        self.findings.ignored.extend(
            self.at(shown(key)[1:-1])
            for key, value in self._values.items()
            if key not in self._known and value not in (None, [], {})
        )
        self._known.update(map(str, self._values))

    def close(self) -> None:
        """Report every key that has a value and is not read; called once all are read."""
        for key, value in self._values.items():
            if key in self._known or value is None:
                continue
            near = difflib.get_close_matches(str(key)[:100], sorted(self._known), n=1)
            advice = f"; did you mean {near[0]}?" if near else ""
            self._add(self.at(shown(key)[1:-1]), f"is not a known key{advice}")

    def _add(self, place: str, text: str) -> None:
        self.findings.mistakes.append(f"{place or 'the specification'}: {text}")


def whole_number(value: Any) -> int | None:
    """Return a whole number, also of a text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    return None


def shown(value: Any) -> str:
    """A value as a mistake may show it: objects and lists by their kind, texts shortened."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]}…'"
