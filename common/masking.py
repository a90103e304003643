"""Secrets kept out of logs, screens and error messages: one rule for all of them.

Pure. Two things are secret: the value of anything whose *name* sounds secret (`is_secret`), be it a
parameter, a field, a setting or a parameter of a URL; and *known* values, which a caller passes
because it has put them somewhere. Three functions mask texts, each more than the one before:

* `mask_text`, for the output of tasks and for people: known values, passwords in URLs;
* `mask_setting`, for command lines and settings: also `name=value` and `--name value`;
* `mask_message`, for the daemons' logs: also `name: value`, `"name": "value"` and HTTP headers.

`mask_value` masks a JSON document by its keys, by the names of the properties in it and by
`mask_text`, and `mask_json` a text that holds one; `printable` keeps a text on one line.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

MASK: Final = "******"
SHORT_MASK: Final = "***"
"""The mask in settings and in the daemons' logs."""
SHORTEST_MASKED: Final = 4
"""Shorter values are masked by their names alone: replacing "1" everywhere would hide the rest."""

_SEPARATOR = r"[\W_]?"
_SECRET_NAME = re.compile(
    rf"passw|pass{_SEPARATOR}(?:word|wd|phrase)"
    r"|(?<!by)(?<!com)(?<!sur)(?<!tres)(?<!over)(?<!under)pass(?![\w.-])"
    r"|pwd|(?<![a-z0-9])pw(?![a-z0-9])"
    r"|secret(?!ar)|token(?!i[sz])|credential"
    rf"|(?:access|api|private|encryption|signing|shared|ssh){_SEPARATOR}key(?!word|board)"
    r"|account\.key|(?<![a-z0-9])psk(?![a-z0-9])|(?<![\w.])sig(?![\w.-])|x-amz-signature"
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
_HARMLESS = re.compile(r"[^@=:-]*+")
"""Texts in which no pattern can find anything."""
_URL_PARAMETER = re.compile(r"[?&;](?P<name>[\w.-]++)=")
_URL_VALUE = re.compile(r"\{[^}\s]*\}|[^\s&;\"]+")
_ASSIGNED = re.compile(rf"{_NAME}\s*=\s*")
_OPTION = re.compile(r"(?<![\w-])--?(?P<name>[\w.-]++)[ \t]+(?![\s-])")
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
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text
    )


def mask_text(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask known secrets, plain or printable, and the passwords of URLs (`user:…@`, `&pwd=…`)."""
    # Longer ones first: one that begins with another would else be shown from there on.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_MASKED:
            text = text.replace(secret, mask).replace(printable(secret), mask)
    if "@" in text:
        text = _URL_USER.sub(lambda found: f"{found['keep'] or found['oracle']}{mask}", text)
    return _mask_named(_URL_PARAMETER, _URL_VALUE, text, mask) if "=" in text else text


def mask_setting(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask as `mask_text` does, and the values of secret names in `name=value`."""
    text = _mask_options(mask_text(text, secrets, mask=mask), mask)
    return _mask_named(_ASSIGNED, _VALUE, text, mask) if "=" in text else text


def mask_message(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask as `mask_setting` does, and values in JSON, in HTTP headers and after a colon."""
    if not secrets and _HARMLESS.fullmatch(text):
        return text  # Most fields are a word or a number.
    text = _mask_options(mask_text(text, secrets, mask=mask), mask)
    if ":" not in text and "=" not in text:
        return text  # No pattern fits without either.
    text = _HEADER.sub(rf"\g<keep>{mask}", text)
    return _mask_named(_SAID, _VALUE, text, mask)


def shown_reason(reason: str | None) -> str | None:
    """Return a stored reason as people may see it: drivers and programs write passwords into it."""
    return None if reason is None else mask_message(reason, mask=MASK)


def mask_value(value: Any, secrets: Iterable[str] = (), *, name: str = "") -> Any:
    """Mask a JSON value: whole if `name`, its key or its property is secret, else in part.

    A property is an object with a name at `prop` and a value at `value`. JSON in a text is masked
    like JSON outside of it.
    """
    known = tuple(secrets)
    match value:
        case str() | int() | float() if name and is_secret(name) and not isinstance(value, bool):
            return MASK if value != "" else value
        case str():
            return _mask_nested(value, known)
        case list():
            return [mask_value(item, known, name=name) for item in value]
        case dict():
            return {
                key: mask_value(item, known, name=_said(value, str(key), name))
                for key, item in value.items()
            }
        case _:
            return value


def mask_json(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask a text that holds JSON, which stays as it is without a secret; any other as a message.

    Values of secret names are masked wherever else they stand in it.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return mask_message(text, secrets, mask=MASK)
    masked = mask_value(value, (*secrets, *_secrets_of(value, "")))
    return text if masked == value else json.dumps(masked, ensure_ascii=False)


def secrets_in_json(text: str) -> tuple[str, ...]:
    """Return the values of secret names in a text that holds JSON, and in the texts of that."""
    return tuple(dict.fromkeys(_secrets_of(_nested(text), "")))


def replace_secrets(
    value: Any,
    secret: Callable[[str, object], object],
    text: Callable[[str, str], str],
    *,
    name: str = "",
) -> Any:
    """Return a JSON value with each secret replaced by `secret`, and other texts by `text`.

    Both are given the name by which a value is judged, as `mask_value` judges it.
    """
    match value:
        case str() | int() | float() if name and is_secret(name) and not isinstance(value, bool):
            return secret(name, value)
        case str():
            inner = _nested(value)
            if isinstance(inner, dict | list):
                replaced = replace_secrets(inner, secret, text)
                return value if replaced == inner else json.dumps(replaced, ensure_ascii=False)
            return text(name, value)
        case list():
            # A definition may have half a million names of tasks, which hold nothing to be masked.
            hides = bool(name) and is_secret(name)
            return [
                item
                if not hides and isinstance(item, str) and _HARMLESS.fullmatch(item)
                else replace_secrets(item, secret, text, name=name)
                for item in value
            ]
        case dict():
            return {
                key: replace_secrets(item, secret, text, name=_said(value, str(key), name))
                for key, item in value.items()
            }
        case _:
            return value


def _secrets_of(value: Any, name: str) -> Iterator[str]:
    match value:
        case str() | int() | float() if name and is_secret(name) and not isinstance(value, bool):
            if value != "":
                yield str(value)
        case str():
            yield from _secrets_of(_nested(value), "")
        case list():
            for item in value:
                yield from _secrets_of(item, name)
        case dict():
            for key, item in value.items():
                yield from _secrets_of(item, _said(value, str(key), name))


def _said(holder: Mapping[Any, Any], key: str, name: str) -> str:
    """Return the name by which the value at a key is to be judged: its property's, or the key.

    Everything in an object of a secret name is secret, as in `credentials`.
    """
    if is_secret(name):
        return name
    prop = holder.get("prop")
    return prop if key == "value" and isinstance(prop, str) else key


def _nested(text: str) -> Any:
    """Return the JSON object or list that a text holds; None if it holds none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _mask_nested(text: str, secrets: tuple[str, ...]) -> str:
    inner = _nested(text)
    if isinstance(inner, dict | list) and (masked := mask_value(inner, secrets)) != inner:
        return json.dumps(masked, ensure_ascii=False)
    return mask_text(text, secrets)


def _mask_options(text: str, mask: str) -> str:
    return _mask_named(_OPTION, _VALUE, text, mask) if "-" in text else text


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
