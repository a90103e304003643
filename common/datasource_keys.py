"""The passwords of data sources at rest: encrypted in `connection_params` by a key of the cluster.

Each value whose name sounds secret, and the password within a URL, is stored as
`aes256gcm:<id of the key>:<nonce, text and tag in base 64>`. The key is a file that its owner alone
may read, and that every host with a worker needs a copy of. Its lines are `<id> <key in base 64>`:
the first encrypts, all decrypt. Rows in clear, as typed by hand, are read as they stand. The
library is imported when a value is encrypted or decrypted for the first time, and only here.

The same keys encrypt secret parameters (`common.parameter_keys`). Each value is authenticated
together with the name of its use, so it can't be decrypted for another use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from common.errors import SchedulerError
from common.masking import replace_secrets

if TYPE_CHECKING:
    from common.config import Config

FILE_NAME: Final = "datasource.key"
URL_PASSWORD: Final = "urlPassword"  # noqa: S105  # The name of a key.
"""The key of `connection_params` that holds the password of its `url`, once it is encrypted."""

_KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_ID_CHARS: Final = 8
_MOST_FILE_BYTES: Final = 64 * 1024
_ABOUT: Final = b"orcaflow data source"
_FOR_PARAMETERS: Final = "# encrypts secret parameters too"
_SEALED = re.compile(r"aes256gcm:([0-9a-f]{8}):([A-Za-z0-9+/=]+)")


class DatasourceKeyError(SchedulerError):
    """A password can't be encrypted or decrypted; the text names cause and cure, and no secret."""


def is_sealed(connection_params: str) -> bool:
    """True if a row has a value that is encrypted."""
    return _SEALED.search(connection_params) is not None


def key_file(config: Config) -> Path:
    """Return the key file by the settings in force."""
    return Path(config.datasource_key_file or config.home / FILE_NAME)


class DatasourceKeys:
    """The keys in the key file. The file is read for each use: another host's may be copied in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exist(self) -> bool:
        """True if there is a key file."""
        return os.path.lexists(self.path)

    def make(self, *, for_parameters: bool = False) -> None:
        """Make a key file with a new key, unless there is one."""
        if not self.exist():
            self._write([_new_key()], is_new=True, for_parameters=for_parameters)

    def add(self) -> None:
        """Encrypt with a new key from now on; the others remain, for what they have encrypted."""
        keys = [_new_key(), *self.read()]
        self._write(keys, is_new=False, for_parameters=self.are_for_parameters())

    def are_for_parameters(self) -> bool:
        """Return whether the key file allows the encryption of secret parameters.

        Key files of former versions don't, because those versions can't decrypt parameters.
        """
        try:
            return _FOR_PARAMETERS in self._lines()
        except DatasourceKeyError:
            return False

    def begin_parameters(self) -> None:
        """Mark the key file, so that secret parameters are encrypted from now on."""
        if not self.are_for_parameters():
            self._write(self.read(), is_new=False, for_parameters=True)

    def sealed(self, connection_params: str) -> str:
        """Encrypt the passwords of a row by the first key; those that it has encrypted stay.

        A row that can't be read stays as it is.
        """
        document = _object(connection_params)
        if document is None:
            return connection_params
        keys = self.read()

        def seal(_: str, value: object) -> object:
            text = str(value)
            known = _SEALED.fullmatch(text)
            if not text or (known is not None and known[1] == key_id(keys[0])):
                return value
            return _seal(text if known is None else self._opened(text, keys), keys[0])

        changed = replace_secrets(_apart(document), seal, lambda _, text: text)
        if changed == document:
            return connection_params
        return json.dumps(changed, ensure_ascii=False)

    def opened(self, connection_params: str) -> str:
        """Decrypt the passwords of a row, and put that of a URL back into it."""
        if not is_sealed(connection_params):
            return connection_params
        document = _object(connection_params)
        if document is None:
            return connection_params
        keys = self.read()

        def open_(_: str, value: object) -> object:
            text = str(value)
            return self._opened(text, keys) if _SEALED.fullmatch(text) else value

        opened = replace_secrets(document, open_, lambda _, text: text)
        return json.dumps(_together(opened), ensure_ascii=False)

    def _opened(self, sealed: str, keys: list[bytes]) -> str:
        found = _SEALED.fullmatch(sealed)
        key = next((each for each in keys if found and key_id(each) == found[1]), None)
        if found is None or key is None:
            wanted = "" if found is None else f" {found[1]}"
            raise DatasourceKeyError(
                f"a password was encrypted with the key{wanted}, which {self.path} does not hold"
                f" ({', '.join(map(key_id, keys))}): {_CURE}"
            )
        try:
            opened = decrypted(base64.b64decode(found[2], validate=True), key, about=_ABOUT)
        except (binascii.Error, ValueError):
            opened = None
        if opened is None:
            raise DatasourceKeyError(
                "an encrypted password was changed in its row, or cut off: give it anew by"
                " `orcaflow datasource create NAME --replace`"
            )
        return opened

    def read(self) -> list[bytes]:
        """Read the keys, the encrypting one first; `DatasourceKeyError` names the remedy."""
        lines = self._lines()
        keys = [_key(line) for line in lines if line.strip() and not line.startswith("#")]
        if not keys or None in keys:
            raise DatasourceKeyError(
                f"the key file {self.path} is damaged: its lines must be an id and a key: {_CURE}"
            )
        return [each for each in keys if each is not None]

    def _lines(self) -> list[str]:
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise DatasourceKeyError(
                f"passwords of data sources are encrypted, and there is no key file {self.path}:"
                f" {_CURE}"
            ) from None
        except OSError as error:
            raise DatasourceKeyError(
                f"the key file {self.path} can't be read ({error.strerror}): let this account own"
                " it, or name another by datasource_key_file"
            ) from None
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
                raise DatasourceKeyError(
                    f"the key file {self.path} must be a file that its owner alone may read:"
                    f" chmod 600 {self.path}"
                )
            return os.read(file, _MOST_FILE_BYTES).decode("ascii", "replace").split("\n")
        finally:
            os.close(file)

    def _write(self, keys: list[bytes], *, is_new: bool, for_parameters: bool) -> None:
        """Write the file whole; if it is new, another's that was made meanwhile stays."""
        lines = [f"{key_id(key)} {base64.b64encode(key).decode()}\n" for key in keys]
        if for_parameters:
            lines.insert(0, f"{_FOR_PARAMETERS}\n")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        aside.unlink(missing_ok=True)
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            try:
                os.write(file, "".join(lines).encode())
                os.fsync(file)
            finally:
                os.close(file)
            if not is_new:
                aside.replace(self.path)
                return
            try:
                os.link(aside, self.path)
            except FileExistsError:
                return
        finally:
            aside.unlink(missing_ok=True)


_CURE: Final = (
    "copy the file from the host where data sources are made (mode 0600), or name it by the setting"
    " datasource_key_file; if it is lost, remove those data sources and make them again"
)


def _new_key() -> bytes:
    return os.urandom(_KEY_BYTES)


def key_id(key: bytes) -> str:
    """Return the id of a key, a part of its hash."""
    return hashlib.sha256(key).hexdigest()[:_ID_CHARS]


def _key(line: str) -> bytes | None:
    """Return the key of a line of the file; None if the line is damaged."""
    known, _, text = line.strip().partition(" ")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _KEY_BYTES and key_id(key) == known else None


def encrypted(text: str, key: bytes, *, about: bytes, nonce: bytes) -> bytes:
    """Encrypt a text. A key must never use the same nonce for two different texts."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    content: bytes = AESGCM(key).encrypt(nonce, text.encode("utf-8", "surrogatepass"), about)
    return nonce + content


def decrypted(content: bytes, key: bytes, *, about: bytes) -> str | None:
    """Decrypt a text; None if the key or the use is a different one, or the content was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce, rest = content[:NONCE_BYTES], content[NONCE_BYTES:]
    try:
        opened: bytes = AESGCM(key).decrypt(nonce, rest, about)
        return opened.decode("utf-8", "surrogatepass")
    except (InvalidTag, ValueError):
        return None


def _seal(text: str, key: bytes) -> str:
    content = encrypted(text, key, about=_ABOUT, nonce=os.urandom(NONCE_BYTES))
    return f"aes256gcm:{key_id(key)}:{base64.b64encode(content).decode()}"


# The functions below import their modules, because few processes read data sources.


def _object(connection_params: str) -> dict[str, Any] | None:
    from common.model.connection_params import ConnectionParamsError, read_connection_params

    try:
        return read_connection_params(connection_params)
    except ConnectionParamsError:
        return None


def _apart(document: dict[str, Any]) -> dict[str, Any]:
    """Take the password out of the URL, if it has one."""
    from common.model.datasource_urls import split_url, with_netloc

    url = document.get("url")
    try:
        parts = split_url(url) if isinstance(url, str) else None
        password = unquote(parts.password or "") if parts else ""
    except ValueError:
        return document
    if not password or parts is None:
        return document
    before, _, host = parts.netloc.rpartition("@")
    rest = with_netloc(str(url), f"{before.partition(':')[0]}@{host}")
    return document | {"url": rest, URL_PASSWORD: password}


def _together(document: dict[str, Any]) -> dict[str, Any]:
    """Put the password back into the URL."""
    from common.model.datasource_urls import split_url, with_netloc

    password = document.get(URL_PASSWORD)
    if not isinstance(password, str) or not isinstance(document.get("url"), str):
        return document
    rest = {key: value for key, value in document.items() if key != URL_PASSWORD}
    before, _, host = split_url(rest["url"]).netloc.rpartition("@")
    return rest | {"url": with_netloc(rest["url"], f"{before}:{quote(password, safe='')}@{host}")}
