"""Chooses the server of a command, and refuses commands that no server carries out.

Every command stands in one of three tables: those done over HTTP, those that need neither a
database nor a server, and those for the database's own computer, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError
from operations.errors import UsageError
from orcaflow.cli.projects import OF_PROJECTS

if TYPE_CHECKING:
    from operations.session import Session
    from orcaflow.remote.contexts import Context, Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The options of the program that choose a server; without a URL the context in use does."""

    url: str | None
    token_file: str | None
    ca_file: str | None = None


OVER_HTTP: Final = frozenset(
    {
        *(
            "overview",
            "run",
            "server list",
            "task list",
            "task why",
            "command list",
            "command show",
        ),
        *("task log", "task force-success", "task render", "instance delete"),
        *("definition list", "definition export", "definition online", "definition offline"),
        *("definition set", "definition delete", "definition import", "definition show"),
        *("definition versions", "definition diff", "definition restore"),
        *("definition propose", "definition proposals", "definition approve", "definition reject"),
        *("definition withdraw", "definition share", "definition unshare", "definition shares"),
        *("datasource create", "datasource list", "datasource test", "datasource remove"),
        *("instance list", "instance why", "instance stop", "instance pause", "instance resume"),
        *("instance rerun", "instance recover", "instance watch", "instance show"),
        *("instance execute", "instance diff"),
        *("user create", "user list", "user disable", "user enable", "user grant", "user set"),
        *(
            "user password",
            "user link",
            "user unlink",
            "token create",
            "token list",
            "token revoke",
        ),
        *("project create", "project list", "project show", "project edit", "project delete"),
        *("tenant create", "tenant list", "tenant delete", "alert list", "audit list"),
        *("worker disable", "worker enable", "worker lazy", "worker list", "worker strategy"),
        "worker set-strategy",
        *(
            "locks list",
            "dataset list",
            "dataset show",
            "dataset segments",
            "dataset files",
            "dataset query",
        ),
        *("dataset share", "dataset unshare", "dataset shares"),
        *("stream submit", "stream list", "stream status", "stream lag", "stream history"),
        *("stream suspend", "stream resume", "stream reset", "stream handoff"),
        "stream terminate",
        *("topology submit", "topology list", "topology status", "topology graph"),
        *("topology activate", "topology deactivate", "topology kill", "topology rebalance"),
        *("topology logs", "topology errors", "topology history"),
        *("worker-group create", "worker-group list", "worker-group show", "worker-group delete"),
        *("environment create", "environment list", "environment show", "environment set"),
        "environment delete",
        *(
            f"{kind} {verb}"
            for kind in ("tenant", "datasource", "environment", "pool", "worker-group")
            for verb in ("grant", "revoke", "grants")
        ),
        "grants",
        *("pool create", "pool list", "pool show", "pool resize", "pool remove"),
        *("schedule create", "schedule list", "schedule show", "schedule edit"),
        *("schedule online", "schedule offline", "schedule delete", "schedule preview"),
        *("schedule fires", "schedule simulate"),
        *("complement run", "complement wait", "complement list", "complement show"),
        *("complement pause", "complement resume", "complement cancel", "complement retry"),
    }
)
"""Commands whose operations have routes."""

ANYWHERE: Final = frozenset(
    {
        *("context add", "context use", "context list", "context remove"),
        *("version", "config show", "config get", "definition lint", "definition schema"),
        *("definition convert", "db reader-sql"),
    }
)
"""Commands that ask no database: they do the same with a server and without."""

_NO_ROUTE: Final = "its operations have no route yet"
_OWNER: Final = "only the owner of the database does this"
_COMPUTER: Final = "it is about the daemons and the files of this computer"

OF_COMPUTER: Final = frozenset(
    {"doctor", "server start", "server stop", "server restart", "server status"}
)
"""Commands about this computer. A context leaves them alone, since its daemons are to start all the
same; they are refused if a server is named with the command itself."""

LOCAL_ONLY: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("db upgrade", "db check", "db schema", "purge", "datasource encrypt", "console"),
            "secrets encrypt",
        ),
        _OWNER,
    ),
    **dict.fromkeys(sorted(OF_COMPUTER), _COMPUTER),
}
"""Commands that a server does not carry out, each with the reason."""


@contextmanager
def carried_out(chosen: Chosen | None, command: str, project: str | None = None) -> Iterator[None]:
    """Send the operations of the command to the chosen server, if there is one.

    The operations are limited to `project`, or else to the project of the context in use. An empty
    `project` removes that limit.
    """
    context = None if command in ANYWHERE else _context(command, chosen)
    if context is not None:
        if context.server is not None:
            _check(command)
        if project is None and command in OF_PROJECTS:
            project = context.project
    if (context is None or context.server is None) and not project:
        yield
        return
    from operations.session import MAKER, PROJECT

    made = None if context is None or context.server is None else _maker(context.server)
    maker = MAKER.get() if made is None else made
    before, project_before = MAKER.set(maker), PROJECT.set(project or None)
    try:
        yield
    finally:
        PROJECT.reset(project_before)
        MAKER.reset(before)


def _maker(server: Server) -> Callable[[], Session]:
    from orcaflow.remote.session import RemoteSession

    return lambda: RemoteSession(server)


def _context(command: str, chosen: Chosen | None) -> Context | None:
    """Return the server and the project of a command; None for the database without a project."""
    if chosen is not None and (chosen.url is not None or chosen.token_file is not None):
        if chosen.url is None or chosen.token_file is None:
            raise UsageError(
                "server", "a server and a token's file go together: --server URL --token-file FILE"
            )
        from orcaflow.remote.contexts import Context, Server

        return Context(
            server=Server(
                url=chosen.url, token_file=chosen.token_file, ca_file=chosen.ca_file or ""
            )
        )
    if chosen is not None and chosen.ca_file is not None:
        raise UsageError("ca-file", "it goes together with --server URL and --token-file FILE")
    if command in OF_COMPUTER or not _has_contexts():
        return None
    from orcaflow.remote.contexts import read_contexts

    return read_contexts().in_use


def _has_contexts() -> bool:
    """True if there is a file of contexts. Most have none, and are spared the imports."""
    home = os.environ.get("ORCAFLOW_HOME") or "~/.orcaflow"
    return Path(home).expanduser().joinpath("contexts.json").exists()


def _check(command: str) -> None:
    cure = (
        "give it on a computer that reaches the database, without --server"
        " (orcaflow context use local)"
    )
    if command not in OVER_HTTP:
        reason = LOCAL_ONLY.get(command, _NO_ROUTE)
        raise NotAllowedError(f"`orcaflow {command}` is not done by a server: {reason}; {cure}")
