"""Finds the secrets in a JSON text and replaces them by *tokens* (`common.sealed_tokens`). Pure.

`common.masking` decides what is secret and visits the document. Everything that a front end masks
is therefore encrypted at rest: values of secret names, properties marked `"secret": true`, consumer
properties, options in command lines, and passwords in URLs, also in JSON texts inside the document.
Copies of a secret in other parameters of the document are encrypted as well.

Only the characters of a secret are replaced; the document is never written anew from its parsed
form. Decryption therefore restores the exact text, including numbers and white space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self, TypeAlias

from common.masking import SHORTEST_MASKED, is_open, places_in_text, replace_secrets
from common.sealed_tokens import TOKEN, may_hold_secrets

Span: TypeAlias = tuple[int, int, int]
"""The start and end of a secret, and the nesting depth of a number, or -1 for a text."""

_PIECE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([{}\[\],:])|([^\s{}\[\],:"]+)', re.DOTALL)
_CHARACTER: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
_STORED: Final = re.compile(r"\*+|aes256gcm:[0-9a-f]{8}:[\w+/=]+")
"""Masks, and the encrypted values of data sources."""
_NUMBER: Final = re.compile(r"-?[0-9]")
_DEEPEST: Final = 8
_LONGEST: Final = 16 * 1024 * 1024


def sealed(text: str, token: Callable[[str], str]) -> str:
    """Return a JSON text with each secret replaced by the token that `token` returns for it."""
    spans = secret_spans(text)
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for begin, end, depth in spans:
        made = token(text[begin:end])
        if depth >= 0:
            quote = "\\" * (2**depth - 1) + '"'
            made = f"{quote}{made[:-1]}#{quote}"
        parts += text[at:begin], made
        at = end
    return "".join([*parts, text[at:]])


def secret_spans(text: str) -> list[Span]:
    """Return the places of the secrets in a JSON text, in order; empty for any other text."""
    if len(text) > _LONGEST or text.lstrip()[:1] not in ("{", "["):
        return []
    search = _Search()
    try:
        document = search.read(_Source(text))
        if document is None:
            return []
        search.visit(document)
    except RecursionError:
        return []  # Every front end refuses documents of this depth.
    return _in_order([*search.spans, *search.copies()])


class _Source:
    """A JSON text. For a nested text, `places` maps its characters to the outermost text."""

    __slots__ = ("depth", "places", "text")

    def __init__(self, text: str, places: Sequence[int] | None = None, depth: int = 0) -> None:
        self.text, self.places, self.depth = text, places, depth

    def place(self, at: int) -> int:
        """Return the place of a character in the outermost text."""
        return at if self.places is None else self.places[at]


class _Text(str):
    """A decoded text of a document, with the place of its source between the quotes."""

    __slots__ = ("begin", "end", "source")

    source: _Source
    begin: int
    end: int

    @classmethod
    def at(cls, decoded: str, source: _Source, begin: int, end: int) -> Self:
        made = cls(decoded)
        made.source, made.begin, made.end = source, begin, end
        return made

    def places(self) -> list[int] | None:
        """Return the places of the characters and of the end; None if the counts don't match."""
        written = self.source.text[self.begin : self.end]
        starts = [self.begin + each.start() for each in _CHARACTER.finditer(written)]
        if len(starts) != len(self):
            return None
        return [self.source.place(each) for each in (*starts, self.end)]


class _Number(float):
    """A number of a document with its place."""

    __slots__ = ("begin", "end", "source")

    source: _Source
    begin: int
    end: int

    @classmethod
    def at(cls, written: str, source: _Source, begin: int) -> Self:
        made = cls(written)
        made.source, made.begin, made.end = source, begin, begin + len(written)
        return made


class _Search:
    """The secrets found in a document and in the documents nested in it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._secrets: dict[int, str] = {}
        """The secrets by the identity of their values in `_documents`."""
        self._documents: list[Any] = []
        self._inside: set[int] = set()
        """The identities of the texts that contain documents."""

    def read(self, source: _Source) -> Any:
        """Return a document with the places of its texts and numbers; None for any other text.

        Raises `RecursionError` for a document that is nested too deep.
        """
        try:
            json.loads(source.text)
        except ValueError:
            return None
        document = _placed(source)
        self._documents.append(document)
        return document

    def visit(self, document: Any) -> None:
        """Find the secrets by the rules of `common.masking`."""
        replace_secrets(document, self._secret, self._text, nested=self._nested)

    def copies(self) -> Iterator[Span]:
        """Yield the copies of secrets in parameters and in values next to secrets."""
        known = {each for each in self._secrets.values() if len(each) >= SHORTEST_MASKED}
        if not known:
            return
        longest_first = sorted(known, key=lambda each: (-len(each), each))
        pattern = re.compile("|".join(map(re.escape, longest_first)))
        for text in self._parameters():
            found = list(pattern.finditer(text))
            places = text.places() if found else None
            if places is not None:
                yield from ((places[each.start()], places[each.end()], -1) for each in found)

    def _secret(self, _name: str, value: object) -> object:
        if isinstance(value, _Number):
            source = value.source
            self._secrets[id(value)] = source.text[value.begin : value.end]
            self._add(source.place(value.begin), source.place(value.end), source.depth)
        elif isinstance(value, _Text) and _is_plain(value):
            self._secrets[id(value)] = str(value)
            self._add(value.source.place(value.begin), value.source.place(value.end))
        return value

    def _text(self, name: str, value: str) -> str:
        found = places_in_text(name, value)
        places = value.places() if found and isinstance(value, _Text) else None
        if places is not None:
            for begin, end in found:
                if _is_plain(value[begin:end]):
                    self._add(places[begin], places[end])
        return value

    def _nested(self, value: str) -> Any:
        is_document = value.lstrip()[:1] in ("{", "[") and may_hold_secrets(value)
        if not is_document or not isinstance(value, _Text) or value.source.depth >= _DEEPEST:
            return None
        places = value.places()
        if places is None:
            return None
        document = self.read(_Source(str(value), places, value.source.depth + 1))
        if document is not None:
            self._inside.add(id(value))
        return document

    def _add(self, begin: int, end: int, depth: int = -1) -> None:
        self.spans.append((begin, end, depth))

    def _parameters(self) -> Iterator[_Text]:
        """Yield values of properties and values next to secrets, which may repeat a secret."""
        waiting = list(self._documents)
        while waiting:
            holder = waiting.pop()
            items = list(holder.values() if isinstance(holder, dict) else holder)
            waiting += [each for each in items if isinstance(each, dict | list)]
            if not isinstance(holder, dict):
                continue
            # A marked start-up value is a property among the other values.
            own = [each.get("value") if isinstance(each, dict) else each for each in items]
            if not any(id(each) in self._secrets for each in own):
                items = [holder.get("value")] if isinstance(holder.get("prop"), str) else []
            for each in items:
                is_known = id(each) in self._secrets or id(each) in self._inside
                if isinstance(each, _Text) and not is_known:
                    yield each


def _is_plain(value: str) -> bool:
    """Return True unless a value is empty, consists of placeholders, or is masked or encrypted."""
    closed = _STORED.fullmatch(value) or TOKEN.fullmatch(value)
    return value != "" and not closed and not is_open(value)


def _placed(source: _Source) -> Any:
    """Read a document that is known to be JSON.

    A repeated key gets a list of its values, so that all of them are checked. Of the keys `prop`,
    `secret` and `type` the last value counts.
    """
    top: list[Any] = []
    holders: list[Any] = [top]
    keys: list[str | None] = [None]
    for piece in _PIECE.finditer(source.text):
        mark = piece[2]
        holder = holders[-1]
        if mark is None:
            if isinstance(holder, dict) and keys[-1] is None:
                keys[-1] = _decoded(piece[1])
            else:
                _put(holder, keys[-1], _leaf(piece, source))
        elif mark in "{[":
            made: Any = {} if mark == "{" else []
            _put(holder, keys[-1], made)
            holders.append(made)
            keys.append(None)
        elif mark in "}]":
            holders.pop()
            keys.pop()
        elif mark == ",":
            keys[-1] = None
    return top[0]


def _put(holder: Any, key: str | None, value: Any) -> None:
    if isinstance(holder, list):
        holder.append(value)
    elif key is not None:
        is_value = key not in ("prop", "secret", "type")
        holder[key] = [holder[key], value] if is_value and key in holder else value


def _leaf(piece: re.Match[str], source: _Source) -> Any:
    if piece[1] is not None:
        return _Text.at(_decoded(piece[1]), source, piece.start(1), piece.end(1))
    written = piece[3]
    if _NUMBER.match(written):
        return _Number.at(written, source, piece.start(3))
    return {"true": True, "false": False}.get(written)


def _in_order(spans: list[Span]) -> list[Span]:
    """Sort the places, and drop places that overlap an earlier one."""
    kept: list[Span] = []
    for each in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or each[0] >= kept[-1][1]:
            kept.append(each)
    return kept


def _decoded(source: str) -> str:
    decoded: str = json.loads(f'"{source}"') if "\\" in source else source
    return decoded
