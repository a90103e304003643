"""Finds the secrets in a JSON text, and puts *tokens* in their places. Pure.

A secret is the value of a name that sounds secret, by the rule of `common.masking`, in an object,
a property (`{"prop": name, "value": …}`) or a list, and of a property marked `"secret": true`, also
where a text within the document holds JSON again. Its copies within the other parameters of the
document are secret too.

Only the characters of a secret are replaced; the document is never parsed and dumped. So opening it
returns the same text to the letter, numbers and white space included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from common.masking import SHORTEST_MASKED, is_secret

TOKEN: Final = re.compile(
    r"""(?P<open>\\*")?sealed:(?P<key>[0-9a-f]{8}):(?P<text>[\w-]+)(?P<end>[.#])(?P<close>\\*")?"""
)
"""An encrypted piece of a document. A token with the end `#` replaces a number, quotes included."""
MARK: Final = "sealed:"
"""The first characters of every token."""

DOCUMENT_BEGINS: Final = frozenset("{[ \n\t\r")
"""The possible first characters of a JSON document."""

Span: TypeAlias = tuple[int, int, int]
"""The start and end of a secret, and -1, or the depth of a number in nested texts."""

HINTS: Final = (
    *("pass", "pw", "secret", "token", "credential", "key", "psk", "sig"),
    *("authorization", "cookie", "digest"),
)
"""One of these is in every name that is secret."""
_PIECE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([{}\[\],:])|([^\s{}\[\],:"]+)', re.DOTALL)
_CHARACTER: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
_NOT_SECRET: Final = re.compile(
    r"(?:\s*(?:[$!]\{[^{}]*\}|\$\[[^\[\]]*\]|\$ENV\{\w+\}))+\s*|\*+|aes256gcm:[0-9a-f]{8}:[\w+/=]+"
)
"""Placeholders, references, masks, and the encrypted values of data sources."""
_NUMBER: Final = re.compile(r"-?[0-9]")
_DEEPEST: Final = 4
_LONGEST: Final = 4 * 1024 * 1024


def may_hold_secrets(text: str) -> bool:
    """Return False if no name in a text can be secret: a cheap check before all others."""
    lower = text.lower()
    return any(hint in lower for hint in HINTS)


def sealed(text: str, token: Callable[[str], str]) -> str:
    """Return a JSON text with a token in the place of each secret; `token` makes one of a piece."""
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


def unsealed(text: str, reveal: Callable[[str, str], str | None]) -> str:
    """Replace tokens by their pieces; a token stays where `reveal` returns None."""

    def put(found: re.Match[str]) -> str:
        piece = reveal(found["key"], found["text"])
        if piece is None:
            return found[0]
        if found["end"] == "#":
            return piece
        return f"{found['open'] or ''}{piece}{found['close'] or ''}"

    return TOKEN.sub(put, text)


def secret_spans(text: str) -> list[Span]:
    """Return the places of the secrets in a JSON text, in order; none for any other text."""
    if len(text) > _LONGEST or text.lstrip()[:1] not in ("{", "["):
        return []
    return _spans(text, 0)


@dataclass(slots=True)
class _Holder:
    """An object or a list that is being read, and the name by which its values are judged."""

    is_object: bool
    name: str
    key: str | None = None
    prop: str | None = None
    value: _Text | None = None
    """The text at the key `value`, which is judged when the whole object is known."""
    texts: list[_Text] = field(default_factory=list)
    has_secret: bool = False
    is_marked: bool = False
    """It has `"secret": true`, as an output that repeats a secret."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A text or a number with its place, without its quotes."""

    begin: int
    end: int
    source: str
    is_number: bool


@dataclass(slots=True)
class _Found:
    secrets: list[_Text] = field(default_factory=list)
    inner: list[Span] = field(default_factory=list)
    parameters: list[_Text] = field(default_factory=list)
    """Values of properties and neighbours of secrets, in which a secret may be repeated."""


def _spans(text: str, depth: int) -> list[Span]:
    found = _Found()
    holders: list[_Holder] = []
    for piece in _PIECE.finditer(text):
        mark = piece[2]
        top = holders[-1] if holders else None
        if mark is None:
            _read(piece, top, found, depth)
        elif mark in "{[":
            holders.append(_Holder(is_object=mark == "{", name=_name_in(top)))
        elif mark in "}]":
            if not holders:
                return []
            _close(holders.pop(), found, depth)
        elif mark == "," and top is not None and top.is_object:
            top.key = None
    return _in_order([*_own(found, depth), *found.inner])


def _read(piece: re.Match[str], top: _Holder | None, found: _Found, depth: int) -> None:
    is_text = piece[1] is not None
    if top is None:
        return
    if top.is_object and top.key is None:
        if is_text:
            top.key = _decoded(piece[1])
        return
    source = piece[1] if is_text else piece[3]
    if not is_text and not _NUMBER.match(source):
        top.is_marked |= top.is_object and top.key == "secret" and source == "true"
        return
    begin = piece.start(1) if is_text else piece.start(3)
    said = _Text(begin, begin + len(source), source, not is_text)
    if top.is_object and top.key == "prop" and is_text:
        top.prop = _decoded(source)
    if top.is_object and top.key == "value":
        top.value = said
    else:
        _judge(said, _name_in(top), top, found, depth)


def _close(holder: _Holder, found: _Found, depth: int) -> None:
    """Judge the value of a property by its name, now that both are known."""
    if holder.value is not None:
        if holder.prop is not None:
            found.parameters.append(holder.value)
        holder.key = "value"
        is_marked = holder.is_marked and holder.prop is not None
        name = "secret" if is_marked else _name_in(holder)
        _judge(holder.value, name, holder, found, depth)
    if holder.is_object and holder.has_secret:
        found.parameters += holder.texts


def _judge(said: _Text, name: str, holder: _Holder, found: _Found, depth: int) -> None:
    if is_secret(name):
        is_plain = _NOT_SECRET.fullmatch(said.source) or TOKEN.fullmatch(said.source)
        if said.source and not is_plain:
            found.secrets.append(said)
            holder.has_secret = True
    elif not said.is_number:
        holder.texts.append(said)
        found.inner += _within(said, depth)


def _within(said: _Text, depth: int) -> Iterator[Span]:
    """Return the secrets of the JSON that a text holds, as places in the text around it."""
    if said.source.lstrip("\\nrt \n\t")[:1] not in ("{", "[") or depth >= _DEEPEST:
        return
    if not any(hint in said.source.lower() for hint in HINTS):
        return
    places = [said.begin + each.start() for each in _CHARACTER.finditer(said.source)]
    inner = _decoded(said.source)
    if inner is None or len(inner) != len(places):
        return
    places.append(said.end)
    for begin, end, number in _spans(inner, depth + 1):
        yield places[begin], places[end], number


def _own(found: _Found, depth: int) -> Iterator[Span]:
    """Return the secrets of this level, and their copies in parameters."""
    known = {id(each) for each in found.secrets}
    for each in found.secrets:
        yield each.begin, each.end, depth if each.is_number else -1
    copied = {each.source for each in found.secrets if len(each.source) >= SHORTEST_MASKED}
    if not copied:
        return
    longest_first = sorted(copied, key=lambda each: (-len(each), each))
    copies = re.compile("|".join(map(re.escape, longest_first)))
    for each in found.parameters:
        if id(each) in known or each.is_number:
            continue
        # An escape must not be cut in two.
        borders = {place.start() for place in _CHARACTER.finditer(each.source)} | {len(each.source)}
        for copy in copies.finditer(each.source):
            if borders.issuperset(copy.span()):
                yield each.begin + copy.start(), each.begin + copy.end(), -1


def _in_order(spans: list[Span]) -> list[Span]:
    """Sort the places, and drop overlapping ones."""
    kept: list[Span] = []
    for each in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or each[0] >= kept[-1][1]:
            kept.append(each)
    return kept


def _name_in(holder: _Holder | None) -> str:
    """Return the name by which a value in a holder is judged: that of a secret holder, or a key."""
    if holder is None:
        return ""
    if not holder.is_object or is_secret(holder.name):
        return holder.name
    if holder.key == "value" and holder.prop is not None:
        return holder.prop
    return holder.key or ""


def _decoded(source: str) -> str | None:
    try:
        decoded: str = json.loads(f'"{source}"', strict=False)
    except ValueError:
        return None
    return decoded


def key_of(text: str) -> str | None:
    """Return the id of the key of an encrypted secret in a text; None if it has none."""
    found = TOKEN.search(text) if MARK in text else None
    return None if found is None else found["key"]
