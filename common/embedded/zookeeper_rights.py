"""The credential of the embedded ZooKeeper, and the rights by which it keeps everybody else out.

A home has one *credential*, `user:password`, in a 0600 file; whoever asks for it first draws it,
server or client, so that daemons which were started before their server know it too. The server
holds it as a hash. All nodes belong to it, the root too: a client without it may connect, and
neither read nor write anything.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.embedded.process import ServerStartError
from common.errors import ConfigurationError
from common.ports import listener_account

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_USER = "orcaflow"
_SUPER = "super"


def digest_file(home: Path) -> Path:
    return home / "zookeeper.digest"


def digest_of(home: Path) -> str:
    """The credential of a home; it is drawn if there is none yet."""
    file = digest_file(home)
    try:
        if not file.exists():
            _draw(file)
        credential = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the credential for ZooKeeper in {file} can't be read: {error}; use the account that "
            f"the cluster belongs to"
        ) from error
    if not all(credential.partition(":")):
        raise ConfigurationError(
            f"{file} does not hold user:password; remove it, and restart ZooKeeper and the daemons"
        )
    return credential


def super_digest(home: Path) -> str:
    """The hash by which the server knows whom to obey in everything: whoever starts it."""
    hashed = hashlib.sha1(_super(home).encode(), usedforsecurity=False).digest()
    return f"{_SUPER}:{base64.b64encode(hashed).decode()}"


def claim(home: Path, hosts: str, digest: str) -> None:
    """Give all nodes of a running server to a credential, unless they are its own already.

    Those of former versions were everybody's, and those of a credential that is lost nobody's.
    """
    from kazoo.exceptions import NoAuthError
    from kazoo.security import make_digest_acl

    acl = make_digest_acl(*digest.split(":", 1), all=True)
    with closing(as_super(home, hosts)) as client:
        try:
            if client.get_acls("/")[0] != [acl]:
                for path in _nodes(client):
                    # The root last: it says that all is done.
                    _set(client, path, acl)
        except NoAuthError:
            raise ServerStartError(
                f"the embedded ZooKeeper at {hosts} knows another credential than that in "
                f"{digest_file(home)}; stop it (`stop zookeeper`) and start it again"
            ) from None
        finally:
            client.stop()


def as_super(home: Path, hosts: str) -> KazooClient:
    """A connected client that the server obeys in everything; the caller stops and closes it."""
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError

    from common.registry.connection import PollingHandler

    port = int(hosts.rpartition(":")[2])
    if listener_account(port) not in (None, os.geteuid()):
        raise ServerStartError(f"the program at port {port} is not the embedded ZooKeeper")
    # Below that kazoo logs every request, and with it the credential.
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    # Its handler checks each connection, also if the server ends meanwhile.
    handler = PollingHandler(account=os.geteuid())
    client = KazooClient(hosts=hosts, auth_data=[("digest", _super(home))], handler=handler)
    try:
        client.start(timeout=15)
    except KazooTimeoutError as error:
        client.close()
        raise ServerStartError(f"the embedded ZooKeeper at {hosts} opens no session") from error
    return client


def _super(home: Path) -> str:
    return f"{_SUPER}:{digest_of(home).partition(':')[2]}"


def _nodes(client: KazooClient) -> list[str]:
    """All nodes, each behind its children."""
    from kazoo.exceptions import NoNodeError

    found = []
    waiting = ["/"]
    while waiting:
        asked = [(path, client.get_children_async(path)) for path in waiting]
        found += waiting
        waiting = []
        for path, answer in asked:
            try:
                waiting += [f"{path.rstrip('/')}/{name}" for name in answer.get()]
            except NoNodeError:
                continue  # It has gone meanwhile.
    return found[::-1]


def _set(client: KazooClient, path: str, acl: Any) -> None:
    from kazoo.exceptions import NoNodeError

    try:
        client.set_acls(path, [acl])
    except NoNodeError:
        return  # As above.


def _draw(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as output:
            output.write(f"{_USER}:{secrets.token_urlsafe(24)}\n")
        try:
            # Not in the place of one that somebody else has drawn at the same moment.
            os.link(draft, file)
        except FileExistsError:
            return
    finally:
        draft.unlink()
