"""TLS of our own daemons: the certificate that one shows, and what their clients trust.

Certificate and name are always checked; there is no way to leave that out.
"""

from __future__ import annotations

import ssl
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.errors import ConfigurationError

if TYPE_CHECKING:
    from common.config import Config, WorkerConfig

_OTHERS: Final = 0o077


def server_context(certificate: str, key: str, *, part: str) -> ssl.SSLContext:
    """Return what a daemon speaks TLS with; `ConfigurationError` names the cure.

    `part` is the section of the two settings, `tls_cert_file` and `tls_key_file`.
    """
    if not certificate or not key:
        raise ConfigurationError(
            f"{part}.tls_cert_file and {part}.tls_key_file go together: set both"
        )
    try:
        if stat.S_IMODE(Path(key).stat().st_mode) & _OTHERS:
            raise ConfigurationError(
                f"others may read the key {key} ({part}.tls_key_file); close it: chmod 600 {key}"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key with a passphrase is refused; nobody is there to type it.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{part}.tls_cert_file {certificate} and {part}.tls_key_file {key} are no certificate"
            f" and its key, in PEM and without a passphrase ({type(error).__name__}:"
            f" {getattr(error, 'strerror', None) or error})"
        ) from error
    return context


def worker_server_context(settings: WorkerConfig) -> ssl.SSLContext | None:
    """Return what a worker's port speaks TLS with, None if it does not."""
    if not settings.tls:
        if settings.tls_cert_file or settings.tls_key_file or settings.tls_ca_file:
            raise ConfigurationError(
                "files for TLS are named and worker.tls is false; set it to true"
            )
        return None
    return server_context(settings.tls_cert_file, settings.tls_key_file, part="worker")


def worker_client_context(config: Config) -> ssl.SSLContext | None:
    """Return what the ports of workers are checked by, None if they speak no TLS.

    Context and files are read once for all questions of a process, until the file changes.
    """
    settings = config.worker
    if not settings.tls:
        return None
    path = settings.tls_ca_file
    try:
        changed_at = Path(path).stat().st_mtime_ns if path else 0
        return _trusting(path, changed_at)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"worker.tls_ca_file {path} has no certificates in PEM ({type(error).__name__})"
        ) from error


@lru_cache(maxsize=4)
def _trusting(path: str, changed_at: int) -> ssl.SSLContext:
    del changed_at
    context = ssl.create_default_context()
    if path:
        context.load_verify_locations(path)
    return context
