"""Makes kazoo's clients, and ends them and the sessions of ZooKeeper that they leave behind."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from common.registry.config import RegistryConfig
from common.registry.connection import PollingHandler, reason_of, tls_options

log = logging.getLogger(__name__)

_QUIET: Final = logging.getLogger(f"{__name__}.kazoo")
"""For a client that only ends a session: kazoo warns if that is over already."""
_QUIET.setLevel(logging.ERROR)


def make_client(
    config: RegistryConfig,
    *,
    key: tuple[int, bytes] | None = None,
    logger: logging.Logger | None = None,
) -> KazooClient:
    """Make a client, which opens a session or continues the one with this key."""
    timeout = config.session_timeout.total_seconds()
    user = config.digest
    return KazooClient(
        hosts=config.hosts,
        timeout=timeout,
        client_id=key,
        auth_data=[("digest", user)] if user else None,
        default_acl=CREATOR_ALL_ACL if user else None,
        handler=PollingHandler(config.account),
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=min(0.5, timeout / 10)),
        logger=logger,
        **tls_options(config.tls),
    )


def end_session(config: RegistryConfig, key: tuple[int, bytes], *, patience: timedelta) -> None:
    """Continue a session and close it, on a separate thread.

    ZooKeeper then removes all that the session holds. A session that has expired stays so.
    """

    def end() -> None:
        client = make_client(config, key=key, logger=_QUIET)
        try:
            client.start(timeout=patience.total_seconds())
        except (KazooException, KazooTimeoutError, OSError) as error:
            # ZooKeeper ends the session itself when its timeout is over.
            log.debug("former session was not ended", extra={"reason": reason_of(error)})
        _close(client)

    threading.Thread(target=end, name="registry-end", daemon=True).start()


def end_client(client: KazooClient) -> threading.Thread:
    """Close a client on a separate thread, because kazoo waits for open connection attempts."""
    ending = threading.Thread(target=_close, args=(client,), name="registry-end", daemon=True)
    ending.start()
    return ending


def _close(client: KazooClient) -> None:
    try:
        client.stop()
        client.close()
    except (KazooException, KazooTimeoutError, OSError, AttributeError) as error:
        # kazoo fails on its sockets if it is closed while it connects. The server then expires the
        # session after the timeout.
        log.debug("session could not be closed", extra={"reason": reason_of(error)})
