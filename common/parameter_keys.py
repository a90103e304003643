"""Secret parameters at rest: encrypted in their rows with the key of the cluster.

Definitions, runs, attempts, schedules, complements, commands and stream specifications are JSON
documents. `common.store.sealed_rows` uses this module to encrypt their secrets when it writes a row
and to decrypt them when it reads one. `common.datasource_keys` reads the key file.

The nonce is derived from the encrypted piece. Equal pieces therefore have equal tokens, and rows
can be compared. A host without the key file neither encrypts nor decrypts: it passes tokens
through, and a worker with the key decrypts them. With a key file that lacks the line for
parameters, a host decrypts but does not encrypt.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from common.datasource_keys import (
    NONCE_BYTES,
    DatasourceKeyError,
    DatasourceKeys,
    decrypted,
    encrypted,
    key_file,
    key_id,
)
from common.errors import NotAllowedError
from common.sealed_tokens import DOCUMENT_BEGINS, MARK, TOKEN, may_hold_secrets, unsealed

if TYPE_CHECKING:
    from common.config import Config

_ABOUT: Final = b"orcaflow parameter"
_LOOKED_AT_SECONDS: Final = 1.0
"""The interval between checks of the key file. A missing file is checked for at each use."""
_MOST_REMEMBERED: Final = 512
_LONGEST_REMEMBERED: Final = 16 * 1024


class Whole(str):
    """A text to encrypt as a whole, such as a draft, which may be invalid JSON."""

    __slots__ = ()


class AsItIs(str):
    """A text to store without encryption."""

    __slots__ = ()


class ParameterKeys:
    """The encryption of secrets in documents. All threads of a process may share one object."""

    def __init__(self, keys: DatasourceKeys, *, refuses_unknown: bool = False) -> None:
        """`refuses_unknown`: texts come from users; tokens with an unknown key are refused."""
        self._refuses = refuses_unknown
        self._keys = keys
        self._lock = threading.Lock()
        self._read_of: tuple[int, ...] | None = None
        self._known: list[bytes] = []
        self._good_until = 0.0
        self._seals = False
        self._remembered: OrderedDict[str, str] = OrderedDict()

    @property
    def of_datasources(self) -> DatasourceKeys:
        """The same keys, for the passwords of data sources."""
        return self._keys

    def sealed(self, text: str) -> str:
        """Encrypt the secrets of a text, if the key file allows it for parameters."""
        if type(text) is AsItIs:
            return str(text)
        is_document, is_marked = text[:1] in DOCUMENT_BEGINS, MARK in text
        if type(text) is not Whole and not is_document and not is_marked:
            return text
        keys = self._current()
        if type(text) is Whole and keys and self._seals:
            return _token(str(text), keys[0]) if text else ""
        if is_marked:
            text = _guarded(text, keys)
            self._refuse_unknown(text, keys)
        if not is_document or not keys or not self._seals:
            return str(text)
        # Each run of a definition writes the same texts, so results are cached.
        known = self._remembered.get(text)
        if known is not None:
            return known
        made = text
        if is_marked or may_hold_secrets(text):
            # Imported here, because most processes write no document with a secret.
            from common.sealing import sealed

            made = sealed(text, lambda piece: _token(piece, keys[0]))
        if len(text) <= _LONGEST_REMEMBERED:
            with self._lock:
                self._remembered[text] = made
                if len(self._remembered) > _MOST_REMEMBERED:
                    self._remembered.popitem(last=False)
        return made

    def opened(self, text: str) -> str:
        """Decrypt the secrets of a text; a token stays if its key is missing."""
        if MARK not in text:
            return text
        keys = self._current()
        return unsealed(text, lambda name, token: _revealed(name, token, keys)) if keys else text

    def resealed(self, text: str) -> str:
        """Encrypt a stored text with the first key, even if an older key encrypted it."""
        return self.sealed(self.opened(text))

    def trouble(self, text: str) -> str | None:
        """Return the reason why a secret in a text was not decrypted; None if all are decrypted."""
        found = TOKEN.search(text) if MARK in text else None
        if found is None:
            return None
        try:
            here = ", ".join(map(key_id, self._keys.read()))
        except DatasourceKeyError as error:
            return f"a secret parameter is encrypted: {error}"
        return (
            f"a secret parameter is encrypted with the key {found['key']}, which {self._keys.path}"
            f" does not hold ({here}): copy the file from the host on which it was encrypted"
        )

    def _refuse_unknown(self, text: str, keys: list[bytes]) -> None:
        """Refuse a token of an unknown key in user input, since its owner can't be checked."""
        if not self._refuses:
            return
        known = set(map(key_id, keys))
        if any(found["key"] not in known for found in TOKEN.finditer(text)):
            raise NotAllowedError(self.trouble(text) or "")

    def _current(self) -> list[bytes]:
        """Return the keys and reload a changed file; empty if the file can't be read."""
        now = time.monotonic()
        if now < self._good_until:
            return self._known
        try:
            about = self._keys.path.stat()
        except OSError:
            return []
        read_of = (about.st_ino, about.st_mtime_ns, about.st_size, about.st_mode)
        if read_of == self._read_of:
            self._good_until = now + _LOOKED_AT_SECONDS
            return self._known
        try:
            known, seals = self._keys.read(), self._keys.are_for_parameters()
        except DatasourceKeyError:
            return []
        with self._lock:
            self._known, self._seals, self._read_of = known, seals, read_of
            self._remembered.clear()
        return known


def parameter_keys(config: Config, *, refuses_unknown: bool = False) -> ParameterKeys:
    """Return the keys for secret parameters from the settings."""
    return ParameterKeys(DatasourceKeys(key_file(config)), refuses_unknown=refuses_unknown)


def _token(piece: str, key: bytes) -> str:
    # Derived, so that equal pieces are equal in the tables. Different pieces get different nonces.
    digest = hmac.digest(key, _ABOUT + b"\0" + piece.encode("utf-8", "surrogatepass"), "sha256")
    content = encrypted(piece, key, about=_ABOUT, nonce=digest[:NONCE_BYTES])
    text = base64.urlsafe_b64encode(content).decode().rstrip("=")
    return f"{MARK}{key_id(key)}:{text}."


def _revealed(name: str, token: str, keys: list[bytes]) -> str | None:
    key = next((each for each in keys if key_id(each) == name), None)
    if key is None:
        return None
    try:
        content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        return None
    return decrypted(content, key, about=_ABOUT)


def _guarded(text: str, keys: list[bytes]) -> str:
    """Encrypt valid tokens in user input, so that reading can't reveal another user's secret."""

    if MARK not in text:
        return text
    parts: list[str] = []
    at = 0
    for found in TOKEN.finditer(text):
        if _revealed(found["key"], found["text"], keys) is None:
            continue
        begin = found.end("open") if found["open"] else found.start()
        end = found.start("close") if found["close"] else found.end()
        parts += text[at:begin], _token(text[begin:end], keys[0])
        at = end
    return "".join([*parts, text[at:]])
