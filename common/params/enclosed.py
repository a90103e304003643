"""Finds `${…}` and `$[…]` in a text and puts values in their place.

One pass with a stack of its own, so that neither the length of a text nor the depth of its nesting
can exhaust the interpreter's stack or cost more than linear time. What an enclosed text means is
the caller's business.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

ValueOf: TypeAlias = Callable[[str], str | None]
"""The value of an enclosed text, or `None` to leave it as it is."""


@dataclass(frozen=True, slots=True)
class Brackets:
    """A pair of brackets which, behind a `$`, encloses something to replace."""

    opening: str
    closing: str
    tokens: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        opening, closing = re.escape(self.opening), re.escape(self.closing)
        # The group makes `split` return the brackets along with what lies between them.
        object.__setattr__(self, "tokens", re.compile(rf"(\$?{opening}|{closing})"))


BRACES = Brackets("{", "}")
SQUARES = Brackets("[", "]")

_PLAIN = 0


def replace_enclosed(text: str, brackets: Brackets, value_of: ValueOf) -> str:
    """The text with every enclosed part that has a value replaced by it.

    Inner parts come first. Each part is judged by itself: one without a value stays, with what was
    replaced inside it, and then everything around it stays too, because a name or a form that
    still holds such a part means nothing. Plain brackets inside a part must balance; a part that
    is never closed stays, and hinders nothing inside or behind it.
    """
    opening, closing = brackets.opening, brackets.closing
    marker = "$" + opening
    first, last = text.find(marker), text.rfind(closing)
    if first < 0 or last < first:
        return text
    pieces: list[str] = [text[:first]]
    # Where in `pieces` each open part begins, outermost first, or that the bracket is a plain one.
    begins: list[int] = []
    # So many of them, counted from the outermost, hold a part without a value. They are never
    # joined, which keeps the time linear: a part is either joined once or replaced by its value.
    hopeless = 0
    for token in brackets.tokens.split(text[first : last + 1]):
        if token == closing and begins:
            begin = begins.pop()
            if len(begins) < hopeless:
                hopeless = len(begins)
            elif begin != _PLAIN:
                value = value_of("".join(pieces[begin:]))
                if value is not None:
                    pieces[begin - 1 :] = [value]  # The marker goes with its part.
                    continue
                hopeless = len(begins)
        elif token == marker:
            begins.append(len(pieces) + 1)
        elif token == opening and begins:
            begins.append(_PLAIN)
        if token:
            pieces.append(token)
    pieces.append(text[last + 1 :])
    return "".join(pieces)
