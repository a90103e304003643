"""Characters that make a text look different from what programs read. Pure.

A shell ends lines at `\\n` alone, and Python at `\\n` and `\\r`. Browsers, terminals and
`str.splitlines` break lines at more characters. Format characters, such as marks of the writing
direction, are invisible or change the order of other characters. See Unicode's report TR36.
"""

from __future__ import annotations

import re
from typing import Final

_MIXED: Final = re.compile(
    r"[A-Za-z][\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f][A-Za-z]"
)
"""Letters of the Latin alphabet next to letters of Greek or Cyrillic, which look like them."""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as a shell reads them, with hidden characters as escapes."""
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    return [visible(each) for each in lines]


def visible(line: str) -> str:
    """Replace hidden characters by escapes such as `<U+2028>`."""
    return "".join(_code(each) if _is_hidden(each) else each for each in line)


def oddities(text: str) -> tuple[str, ...]:
    """Describe what makes a text look different from what programs read."""
    hidden = sorted({each for each in text if each != "\n" and _is_hidden(each)})
    found = [f"characters that are not shown: {', '.join(map(_code, hidden))}"] if hidden else []
    if mixed := _MIXED.search(text):
        found.append(f"letters of two alphabets within a word: {mixed[0]!r}")
    return tuple(found)


def _is_hidden(character: str) -> bool:
    return character != "\t" and not character.isprintable()


def _code(character: str) -> str:
    return f"<U+{ord(character):04X}>"
