"""Secrets kept out of logs, screens and error messages: one rule for all of them.

Pure. Two things are secret: the value of anything whose *name* sounds secret (`is_secret`), be it a
parameter, a field, a setting or a parameter of a URL; and *known* values, which a caller passes
because it has put them somewhere. Three functions mask texts, each more than the one before:

* `mask_text`, for the output of tasks and for people: known values, passwords in URLs;
* `mask_setting`, for command lines and settings: also `name=value` and `--name value`;
* `mask_message`, for the daemons' logs: also `name: value`, `"name": "value"` and HTTP headers.

`mask_value` masks a JSON document and `mask_json` a text that contains one; every front end shows
documents through them. This module declares the fields that can hold a secret: values of secret
names, values of properties (objects with a name at `prop` and a value at `value`) that have a
secret name or are marked `"secret": true`, all values in `consumerProperties` except those of known
harmless names, option values in command lines (`OPTION_KEYS`), and passwords of URLs in any text. A
value that consists of placeholders is filled in by the run and is not a secret. `printable` keeps a
text on one line.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "******"
SHORT_MASK: Final = "***"
"""The mask in settings and in the daemons' logs."""
SHORTEST_MASKED: Final = 4
"""Shorter values are masked by their names alone: replacing "1" everywhere would hide the rest."""

OPTION_KEYS: Final = frozenset({"others", "mainArgs"})
"""Keys of command lines, in which `name=value` and `--name value` are also masked."""
CONSUMER_PROPERTIES: Final = "consumerProperties"
_PROVIDER_FIELDS: Final = {
    "default": frozenset({"type"}),
    "mapString": frozenset({"type"}),
    "environment": frozenset({"type", "variable"}),
}
"""The fields without a secret in a provider of a property, by the type of the provider."""
_PLACEHOLDERS = re.compile(
    r"(?:\s*(?:[$!]\{[^{}]*\}|\$\[[^\[\]]*\]|\$ENV\{ORCAFLOW_SECRET_\w+\}))+\s*"
)

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


_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_NO_WORD = re.compile(r"[^\w./:=@%+,-]", re.ASCII)
_URL_SAFE = str.maketrans("+/", "-_")


@lru_cache(maxsize=2_000)
def is_secret(name: str) -> bool:
    """True if the name sounds as if its value must not be shown."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of secret names, longer ones first."""
    found = {value for name, value in parameters.items() if value and is_secret(name)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return each secret in all forms in which programs print it."""
    return tuple(
        dict.fromkeys(
            form
            for secret in secrets
            for form in (
                *quotations(secret),
                b64encode(secret.encode(errors="replace")).decode(),
                *encodings(secret),
            )
        )
    )


def quotations(secret: str) -> tuple[str, ...]:
    """Return a secret in plain form, as in URLs, JSON and HTML, and as shells and Python quote it.

    Hexadecimal is left out: programs print hashes in it, but hardly ever the hashed text.
    """
    # Imported here, because it brings all names of characters and most processes mask no log.
    import html

    in_urls = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    return tuple(
        dict.fromkeys(
            (
                secret,
                *in_urls,
                # Some programs write %2f for %2F.
                *(_ESCAPE.sub(lambda found: found[0].lower(), each) for each in in_urls),
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
                repr(secret)[1:-1],
                html.escape(secret),
                html.escape(secret, quote=False),
                # `set -x` of bash, shlex.quote of Python, and printf %q.
                secret.replace("'", "'\\''"),
                secret.replace("'", "'\"'\"'"),
                _NO_WORD.sub(r"\\\g<0>", secret),
            )
        )
    )


def encodings(secret: str) -> tuple[str, ...]:
    """Return the forms of a secret in base 64 within a longer text.

    Three bytes become four characters, so a secret has a form for each of three offsets. Each form
    is cut to the characters that depend on the secret alone. A text before it, such as `user:`, or
    after it, such as the line end of `echo secret | base64`, changes the other characters.
    """
    raw = secret.encode(errors="replace")
    found: list[str] = []
    for lead in range(3):
        first, end = -(-8 * lead // 6), 8 * (lead + len(raw)) // 6
        core = b64encode(b"\0" * lead + raw)[first:end].decode()
        found += [core, core.translate(_URL_SAFE)]
    return tuple(dict.fromkeys(each for each in found if len(each) >= SHORTEST_MASKED))


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
    text = _with_mask(text, _users(text), mask)
    return _with_mask(text, _url_parameters(text), mask)


def mask_setting(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask as `mask_text` does, and the values of secret names in `name=value`."""
    text = mask_text(text, secrets, mask=mask)
    text = _with_mask(text, _options(text), mask)
    return _with_mask(text, _assigned(text), mask)


def mask_message(text: str, secrets: Iterable[str] = (), *, mask: str = MASK) -> str:
    """Mask as `mask_setting` does, and values in JSON, in HTTP headers and after a colon."""
    if not secrets and _HARMLESS.fullmatch(text):
        return text  # Most fields are a word or a number.
    text = mask_text(text, secrets, mask=mask)
    text = _with_mask(text, _options(text), mask)
    if ":" not in text and "=" not in text:
        return text  # No pattern fits without either.
    text = _HEADER.sub(rf"\g<keep>{mask}", text)
    return _with_mask(text, _named(_SAID, _VALUE, text), mask)


def places_in_text(name: str, text: str) -> list[tuple[int, int]]:
    """Return the start and end of each secret that `mask_value` masks within a text.

    They can overlap, because each pattern searches the whole text.
    """
    found = [*_users(text), *_url_parameters(text)]
    if name in OPTION_KEYS:
        found += [*_options(text), *_assigned(text)]
    return found


def shown_reason(reason: str | None) -> str | None:
    """Return a stored reason as people may see it: drivers and programs write passwords into it."""
    return None if reason is None else mask_message(reason, mask=MASK)


def mask_value(value: Any, secrets: Iterable[str] = (), *, name: str = "") -> Any:
    """Mask a JSON value: whole if `name`, its key or its property is secret, else in part.

    JSON inside a text is masked like other JSON.
    """
    known = tuple(secrets)

    def text(name: str, given: str) -> str:
        mask = mask_setting if name in OPTION_KEYS else mask_text
        return mask(given, known)

    return replace_secrets(value, _masked, text, name=name, reads_all=bool(known))


def _masked(_name: str, value: object) -> object:
    return value if value == "" or (isinstance(value, str) and is_open(value)) else MASK


def mask_json(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask a text that holds JSON, which stays as it is without a secret; any other as a message.

    Values of secret names are masked wherever else they stand in it.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return mask_message(text, secrets, mask=MASK)
    masked = mask_value(value, (*secrets, *secrets_in_value(value)))
    return text if masked == value else json.dumps(masked, ensure_ascii=False)


def is_open(value: str) -> bool:
    """Return True if a value consists of placeholders and references, which hold no secret."""
    return _PLACEHOLDERS.fullmatch(value) is not None


def secrets_in_json(text: str) -> tuple[str, ...]:
    """Return the values of secret names in a text that holds JSON, and in the texts of that."""
    try:
        return secrets_in_value(_nested(text))
    except RecursionError:
        return ()


def secrets_in_value(value: Any) -> tuple[str, ...]:
    """Return the values that are secret as a whole in a JSON value and in JSON texts inside it."""
    found: dict[str, None] = {}

    def keep(_name: str, secret: object) -> object:
        if secret != "" and not (isinstance(secret, str) and is_open(secret)):
            found[str(secret)] = None
        return secret

    replace_secrets(value, keep, lambda _name, text: text)
    return tuple(found)


def holds_mask(value: Any) -> bool:
    """Return True if any text of a JSON value contains a mask."""
    match value:
        case str():
            return MASK in value
        case list():
            return any(map(holds_mask, value))
        case dict():
            return any(map(holds_mask, value.values()))
        case _:
            return False


def restored(value: Any, former: Any) -> Any:
    """Return a JSON value in which masks are replaced by the former values of the same fields."""
    match value, former:
        case dict(), dict():
            return {key: restored(item, former.get(key)) for key, item in value.items()}
        case list(), list() if len(value) == len(former):
            return [restored(item, known) for item, known in zip(value, former, strict=True)]
        case str(), None:
            return value
        case str(), _ if MASK in value:
            shown = (MASK, mask_value(former), mask_setting(str(former), mask=MASK))
            return former if value in shown else value
        case _:
            return value


def replace_secrets(
    value: Any,
    secret: Callable[[str, object], object],
    text: Callable[[str, str], str],
    *,
    name: str = "",
    reads_all: bool = False,
    nested: Callable[[str], Any] | None = None,
) -> Any:
    """Return a JSON value with each secret replaced by `secret`, and other texts by `text`.

    No other function walks through documents to find secrets: `mask_value` uses it to mask them,
    and `common.sealing` to encrypt them.

    Both functions receive the name that decides whether a value is secret. Without `reads_all`,
    single words in lists are not passed to `text`: a definition may have half a million names of
    tasks. `nested` reads the JSON object or list in a text, and returns None for any other text.
    """
    read = nested or _nested

    def inner(item: Any, name: str) -> Any:
        return replace_secrets(item, secret, text, name=name, reads_all=reads_all, nested=read)

    match value:
        case str() | int() | float() if name and is_secret(name) and not isinstance(value, bool):
            return secret(name, value)
        case str():
            try:
                found = read(value)
                if isinstance(found, dict | list):
                    replaced = inner(found, name)
                    if replaced == found:
                        return value
                    return json.dumps(replaced, ensure_ascii=False)
            except RecursionError:
                return secret(name, value)  # Too deep to be searched for secrets.
            return text(name, value)
        case list():
            skips = not reads_all and not (name and is_secret(name))
            return [
                item
                if skips and isinstance(item, str) and _HARMLESS.fullmatch(item)
                else inner(item, name)
                for item in value
            ]
        case dict() if name == CONSUMER_PROPERTIES:
            return {
                key: _replaced_property(str(key), item, secret, inner)
                for key, item in value.items()
            }
        case dict():
            return {key: inner(item, _said(value, str(key), name)) for key, item in value.items()}
        case _:
            return value


def _replaced_property(
    name: str,
    value: Any,
    secret: Callable[[str, object], object],
    other: Callable[[Any, str], Any],
) -> Any:
    """Replace the secrets of one property of a Kafka consumer; pass other values to `other`.

    A property may be an object that names a provider of the value. The type of the provider and the
    name of an environment variable are not secret.
    """
    match value:
        case dict():
            shown = _PROVIDER_FIELDS.get(str(value.get("type")), frozenset())
            return {
                key: item
                if key in shown
                else _replaced_property(f"{name}.{key}", item, secret, other)
                for key, item in value.items()
            }
        case list():
            return [_replaced_property(name, item, secret, other) for item in value]
        case str() if name not in _shown_consumer_properties():
            return secret(name, value)
        case _:
            return other(value, name)


@cache
def _shown_consumer_properties() -> frozenset[str]:
    """Return the properties of a Kafka consumer that hold no secret; any other may hold one."""
    # Imported here, because few documents have such properties, and every process masks documents.
    from common.model.streams.properties import NO_EFFECT, ROUTE, TUNING

    return ROUTE | TUNING.keys() | NO_EFFECT


def _said(holder: Mapping[Any, Any], key: str, name: str) -> str:
    """Return the name by which the value at a key is to be judged: its property's, or the key.

    Everything in an object of a secret name is secret, as in `credentials`.
    """
    if is_secret(name):
        return name
    prop = holder.get("prop")
    if key != "value" or not isinstance(prop, str):
        return key
    return f"{prop}_secret" if holder.get("secret") is True and not is_secret(prop) else prop


def _nested(text: str) -> Any:
    """Return the JSON object or list in a text; None for any other text.

    Raises `RecursionError` if the text is nested too deep.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _users(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of passwords before the hosts of URLs."""
    if "@" not in text:
        return
    for found in _URL_USER.finditer(text):
        begin = found.start() + len(found["keep"] or found["oracle"])
        if not is_open(text[begin : found.end()]):
            yield begin, found.end()


def _url_parameters(text: str) -> Iterator[tuple[int, int]]:
    return _named(_URL_PARAMETER, _URL_VALUE, text) if "=" in text else iter(())


def _options(text: str) -> Iterator[tuple[int, int]]:
    return _named(_OPTION, _VALUE, text) if "-" in text else iter(())


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    return _named(_ASSIGNED, _VALUE, text) if "=" in text else iter(())


def _named(names: re.Pattern[str], values: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield the place of each value that follows a secret name."""
    at = 0
    while found := names.search(text, at):
        at = found.end()
        # A value is looked for behind secret names alone: that of another may be one itself.
        if is_secret(found["name"]) and (value := values.match(text, at)):
            at = value.end()
            if not is_open(value[0]):
                yield value.span()


def _with_mask(text: str, places: Iterable[tuple[int, int]], mask: str) -> str:
    parts: list[str] = []
    done = 0
    for begin, end in places:
        parts += text[done:begin], mask
        done = end
    return "".join([*parts, text[done:]]) if parts else text
