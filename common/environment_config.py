"""The config of an environment: lines `export NAME=value`, as a shell would read them. Pure.

Adds the word *environment*: variables under a name, which the tasks that name it are started with.
DolphinScheduler pastes the text into scripts. Here it is read instead, so that the variables reach
every type of task, no text is run by a shell, and none stands in an argument. Beside `export` there
may be comments and empty lines. A value is a word as in `sh`, with quotes, backslashes, `$NAME` and
`${NAME}`; whatever would run a program is a fault.

Values of names that sound secret (`common.masking`) are replaced in place by `rewritten`, to be
masked or encrypted; what stands around them stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from common.errors import SchedulerError
from common.masking import MASK, is_secret

MAX_CONFIG_LENGTH: Final = 65_536
RESERVED: Final = "ORCAFLOW_"
"""The beginning of the names of variables that every task has from its worker."""

_EXPORT: Final = re.compile(r"export[ \t]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE: Final = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_BLANK: Final = " \t"
_OF_SHELL: Final = frozenset("&|<>()~")
"""Characters that mean something to a shell without quotes, and nothing here."""
_PROGRAM: Final = "` would run a program, which nothing here does"


class EnvironmentConfigError(SchedulerError):
    """A config can't be read; the text names the line, and no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One variable: `parts` are texts that are meant as they stand, and names to be looked up.

    `start` and `end` are the place of the value in the config, with its quotes.
    """

    name: str
    parts: tuple[tuple[str, bool], ...]
    start: int
    end: int


def assignments(config: str) -> tuple[Assignment, ...]:
    """Read the variables in their order; `EnvironmentConfigError` for any other line."""
    return tuple(_Reader(config).read())


def variables(config: str, base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with their values; `base` are those that they may refer to.

    A later line may refer to an earlier one. A name that is not known is empty, as in a shell.
    """
    found: dict[str, str] = {}
    for each in assignments(config):
        found[each.name] = "".join(
            found.get(text, base.get(text, "")) if is_name else text for text, is_name in each.parts
        )
    return found


def rewritten(config: str, change: Callable[[str, str], str]) -> str:
    """Return the config with each value of a secret name as `change(name, value)` has it.

    Values are given and taken as they are written, with their quotes.
    """
    text, done = [], 0
    for each in assignments(config):
        if is_secret(each.name) and each.start < each.end:
            value = config[each.start : each.end]
            text += [config[done : each.start], change(each.name, value)]
            done = each.end
    return "".join([*text, config[done:]])


def masked(config: str) -> str:
    """Return the config with a mask in the place of each secret; whole if it can't be read."""
    try:
        return rewritten(config, lambda _name, _value: MASK)
    except EnvironmentConfigError:
        return MASK


def unmasked(config: str, former: str) -> str:
    """Put the former value of a variable into the place of its mask."""
    try:
        known = {each.name: former[each.start : each.end] for each in assignments(former)}
    except EnvironmentConfigError:
        known = {}
    return rewritten(config, lambda name, value: known.get(name, value) if value == MASK else value)


def changed_secrets(config: str, change: Callable[[str], str]) -> str:
    """Return the config with its secrets encrypted, or decrypted, by keys for JSON objects."""

    def changed(name: str, value: str) -> str:
        made: str = json.loads(change(json.dumps({name: value})))[name]
        return made

    return rewritten(config, changed)


class _Reader:
    """Reads a config from its beginning to its end."""

    def __init__(self, config: str) -> None:
        self._text = config
        self._at = 0

    def read(self) -> list[Assignment]:
        if len(self._text) > MAX_CONFIG_LENGTH:
            raise EnvironmentConfigError(f"is longer than {MAX_CONFIG_LENGTH:,} characters")
        if "\0" in self._text:
            raise EnvironmentConfigError("has a NUL character")
        found: list[Assignment] = []
        while self._skip_to_line():
            export = _EXPORT.match(self._text, self._at)
            if export is None:
                raise self._fault("only lines like export NAME=value have an effect here")
            self._at = export.end()
            while self._skip_blanks():
                found.append(self._assignment())
        return found

    def _skip_to_line(self) -> bool:
        """Go to the next line that says something; False at the end."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character in " \t\r\n;":
                self._at += 1
            else:
                return True
        return False

    def _skip_blanks(self) -> bool:
        """Go to the next variable of the line; False at its end."""
        while self._at < len(self._text) and self._text[self._at] in _BLANK:
            self._at += 1
        return self._at < len(self._text) and self._text[self._at] not in "\r\n;#"

    def _assignment(self) -> Assignment:
        name = _NAME.match(self._text, self._at)
        if name is None or not self._text.startswith("=", name.end()):
            raise self._fault("after export comes NAME=value")
        if name[0].startswith(RESERVED):
            raise self._fault(f"names that begin with {RESERVED} are the worker's own")
        self._at = start = name.end() + 1
        parts: list[tuple[str, bool]] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in " \t\r\n;":
                break
            if character == "'":
                end = self._text.find("'", self._at + 1)
                if end < 0:
                    raise self._fault("a quote is never closed")
                parts.append((self._text[self._at + 1 : end], False))
                self._at = end + 1
            elif character == '"':
                self._quoted(parts)
            elif character == "\\":
                follower = self._text[self._at + 1 : self._at + 2]
                parts.append(("" if follower == "\n" else follower, False))
                self._at += 2
            elif character == "$":
                self._reference(parts)
            # The mask stands for what it hides.
            elif self._text.startswith(MASK, self._at):
                parts.append((MASK, False))
                self._at += len(MASK)
            elif character == "`":
                raise self._fault(_PROGRAM)
            elif character in _OF_SHELL:
                raise self._fault(f"{character} needs quotes: no text is run by a shell here")
            else:
                parts.append((character, False))
                self._at += 1
        return Assignment(name=name[0], parts=tuple(parts), start=start, end=self._at)

    def _quoted(self, parts: list[tuple[str, bool]]) -> None:
        self._at += 1
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == '"':
                self._at += 1
                return
            if character == "$":
                self._reference(parts)
                continue
            if character == "`":
                raise self._fault(_PROGRAM)
            if character == "\\" and self._text[self._at + 1 : self._at + 2] in tuple('$`"\\\n'):
                self._at += 1
                character = self._text[self._at].replace("\n", "")
            parts.append((character, False))
            self._at += 1
        raise self._fault("a quote is never closed")

    def _reference(self, parts: list[tuple[str, bool]]) -> None:
        found = _REFERENCE.match(self._text, self._at)
        if found is not None:
            parts.append((found[1] or found[2], True))
            self._at = found.end()
            return
        if self._text[self._at + 1 : self._at + 2] in tuple("({'\"0123456789@*#?-$!"):
            raise self._fault("after $ comes the name of a variable, as $NAME or ${NAME}")
        parts.append(("$", False))
        self._at += 1

    def _fault(self, problem: str) -> EnvironmentConfigError:
        line = self._text.count("\n", 0, self._at) + 1
        return EnvironmentConfigError(f"line {line}: {problem}")
