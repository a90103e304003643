"""Secrets kept out of logs, screens and error messages: one rule for all of them.

Pure. Two things are secret: the value of anything whose *name* sounds secret (`is_secret`), be it a
parameter, a field, a setting or a parameter of a URL; and *known* values, which a caller passes
because it has put them somewhere. Three functions mask texts, each more than the one before:

* `mask_text`, for the output of tasks and for people: known values, passwords in URLs;
* `mask_setting`, for command lines and settings: also `name=value`;
* `mask_message`, for the daemons' logs: also `name: value`, `"name": "value"` and HTTP headers.

`mask_value` masks a JSON document by its keys and by `mask_text`; `printable` keeps a text on one
line.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

MASK: Final = "******"
SHORT_MASK: Final = "***"
"""The mask in settings and in the daemons' logs."""
_SHORTEST_MASKED: Final = 4
"""Shorter values are masked by their names alone: replacing "1" everywhere would hide the rest."""

_SEPARATOR = r"[\W_]?"
_SECRET_NAME = re.compile(
    rf"passw|pass{_SEPARATOR}(?:word|wd|phrase)"
    r"|(?<!by)(?<!com)(?<!sur)(?<!tres)(?<!over)(?<!under)pass(?![\w.-])"
    r"|pwd|(?<![a-z0-9])pw(?![a-z0-9])"
    r"|secret(?!ar)|token(?!i[sz])|credential"
    rf"|(?:access|api|private|encryption|signing|shared|ssh){_SEPARATOR}key(?!word|board)"
    r"|account\.key"
    r"|(?:authorization|cookie)(?![\w.-])"
    rf"|(?<![\w.-])digest(?![\w.-])|zookeeper{_SEPARATOR}digest",
    re.IGNORECASE,
)
"""The part of a name that makes it secret.

Words that merely contain another are excluded: `bypass`, `secretary`, `tokenizer`. `key` alone is
the name of a column more often than of a secret.
"""

# Names start where a word starts and are never given back, so that a long word costs one look.
_NAME = r"(?<![\w.-])(?P<name>[\w.-]++)"
_VALUE = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\\+\"(?:[^\"\\])*\\+\""
    r"|(?:(?:Bearer|Basic|Digest|Token)\s+)?[\"']?[^\s,;&]+",
    re.IGNORECASE,
)
_URL_USER = re.compile(
    # The password may hold an unescaped @. With a slash in it, it must not look like a port.
    r"(?P<keep>://[^\s:/\[]*+:)(?:[^\s/]+|(?!\d+[/?#,;])[^\s\"'/]*/[^\s\"']{0,200})(?=@)"
    r"|(?P<oracle>jdbc:oracle:\w{1,20}:[^\s/@]{1,200}/)[^\s@]{1,200}(?=@)",
    re.IGNORECASE,
)
_URL_PARAMETER = re.compile(r"[?&;](?P<name>[\w.-]++)=")
_URL_VALUE = re.compile(r"\{[^}\s]*\}|[^\s&;\"]+")
_ASSIGNED = re.compile(rf"{_NAME}\s*=\s*")
_SAID = re.compile(rf"{_NAME}\\*[\"']?\s*[=:]\s*")
_HEADER = re.compile(
    r"(?P<keep>(?<![\w.-])(?:(?:proxy-)?authorization|(?:set-)?cookie)\s*:\s*)[^\r\n]+",
    re.IGNORECASE,
)


@lru_cache(maxsize=2_000)
def is_secret(name: str) -> bool:
    """True if the name sounds as if its value must not be shown."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of secret names, longer ones first."""
    found = {value for name, value in parameters.items() if value and is_secret(name)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return each secret plain, URL-encoded and in base 64, as servers repeat what they got."""
    return tuple(
        spelling
        for secret in secrets
        for spelling in (
            secret,
            quote(secret, safe=""),
            b64encode(secret.encode(errors="replace")).decode(),
        )
    )


def printable(text: str) -> str:
    """Escape control characters and line ends, which could forge lines or command a terminal."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text
    )


def mask_text(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask known secrets, plain or printable, and the passwords of URLs (`user:…@`, `&pwd=…`)."""
    # Longer ones first: one that begins with another would else be shown from there on.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_MASKED:
            text = text.replace(secret, mask).replace(printable(secret), mask)
    if "@" in text:
        text = _URL_USER.sub(lambda found: f"{found['keep'] or found['oracle']}{mask}", text)
    return _mask_named(_URL_PARAMETER, _URL_VALUE, text, mask) if "=" in text else text


def mask_setting(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask as `mask_text` does, and the values of secret names in `name=value`."""
    text = mask_text(text, secrets, mask=mask)
    return _mask_named(_ASSIGNED, _VALUE, text, mask) if "=" in text else text


def mask_message(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask as `mask_setting` does, and values in JSON, in HTTP headers and after a colon."""
    text = mask_text(text, secrets, mask=mask)
    if ":" not in text and "=" not in text:
        return text  # No pattern fits without either; most fields are a word or a number.
    text = _HEADER.sub(rf"\g<keep>{mask}", text)
    return _mask_named(_SAID, _VALUE, text, mask)


def mask_value(value: Any, secrets: Iterable[str] = (), *, name: str = "") -> Any:
    """Mask the strings of a JSON value: whole if `name` or their key is secret, else in part."""
    match value:
        case str():
            return MASK if name and value and is_secret(name) else mask_text(value, secrets)
        case list():
            return [mask_value(item, secrets) for item in value]
        case dict():
            return {key: mask_value(item, secrets, name=str(key)) for key, item in value.items()}
        case _:
            return value


def _mask_named(names: re.Pattern[str], values: re.Pattern[str], text: str, mask: str) -> str:
    """Mask each value that stands behind a secret name."""
    parts: list[str] = []
    done = at = 0
    while found := names.search(text, at):
        at = found.end()
        # A value is looked for behind secret names alone: that of another may be one itself.
        if is_secret(found["name"]) and (value := values.match(text, at)):
            parts += text[done:at], mask
            done = at = value.end()
    return "".join([*parts, text[done:]])
