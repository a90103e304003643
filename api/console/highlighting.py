"""Scripts in pieces, each with its part of speech, as Pygments finds it. Pure.

Colour means state in the console, so that parts of speech differ by weight and shade alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

_LANGUAGES: Final = {
    "SHELL": "bash",
    "PYTHON": "python",
    "PYSPARK": "python",
    "SQL": "sql",
    "SPARK_SQL": "sql",
}
_LONGEST: Final = 200_000
"""In characters; what is longer is shown as it is."""


def highlighted(script: str, task_type: str) -> list[tuple[str, str]]:
    """Return the pieces of a script: each with a class, or "", and its text."""
    language = _LANGUAGES.get(task_type.upper())
    if language is None or len(script) > _LONGEST:
        return [("", script)]
    # Some lexers know a comment by the end of its line.
    words = groupby(_words(f"{script}\n", language), key=lambda each: each[0])
    found = [(kind, "".join(text for _, text in some)) for kind, some in words]
    kind, text = found.pop()
    return [*found, (kind, text.removesuffix("\n"))]


def _words(script: str, language: str) -> Iterator[tuple[str, str]]:
    # Here, since the server can begin without.
    from pygments.lexers import get_lexer_by_name
    from pygments.token import Comment, Keyword, String

    kinds = ((Comment, "comment"), (Keyword, "keyword"), (String, "string"))
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    for token, text in lexer.get_tokens(script):
        yield next((name for kind, name in kinds if token in kind), ""), text
