"""Contexts: the api-servers that commands may be sent to, and the one that they are sent to.

Adds the word *context*: a name for a server and the file that holds a token for it. They stand in
`contexts.json` below ORCAFLOW_HOME; tokens are never in it, nor on a command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from common.errors import ConfigurationError, NotFoundError
from operations.errors import UsageError

LOCAL: Final = "local"
"""The name that stands for no server: the database of the settings."""

_MAX_TOKEN: Final = 1_000
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An api-server, and the file with the token for it."""

    url: str
    token_file: str
    ca_file: str = ""
    """The file with the certificates that the server's is checked by; else the system's."""

    def token(self) -> str:
        """Read the token; `ConfigurationError` if others may read its file, or it holds none."""
        path = Path(self.token_file).expanduser()
        try:
            mode = path.stat().st_mode
            text = path.read_text(encoding="utf-8")[: _MAX_TOKEN + 1].strip()
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(
                f"{path}: the token can't be read: {cause}; `orcaflow token create` makes one"
            ) from None
        if mode & _OTHERS:
            raise ConfigurationError(
                f"{path}: others may read the token; keep them from it: chmod 600 {path}"
            )
        if not text or len(text) > _MAX_TOKEN or not text.isascii() or not text.isprintable():
            raise ConfigurationError(
                f"{path}: holds no token; `orcaflow token create` makes one, which begins with of_"
            )
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The server and the project of commands. Without a server, commands use the database."""

    server: Server | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All contexts by name, and the name of the context in use; None means the database.

    `projects` holds the projects of contexts, including `local`.
    """

    servers: Mapping[str, Server]
    current: str | None
    projects: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_use(self) -> Context:
        """The context of commands that name no server."""
        name = LOCAL if self.current is None else self.current
        server = None if self.current is None else self.servers[self.current]
        return Context(server=server, project=self.projects.get(name))


def home_file() -> Path:
    """The file of the contexts."""
    home = os.environ.get("ORCAFLOW_HOME") or "~/.orcaflow"
    return Path(home).expanduser() / "contexts.json"


def read_contexts() -> Contexts:
    """Read the contexts; without a file there are none."""
    path = home_file()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts(servers={}, current=None)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: can't be read: {error}") from None
    try:
        written = json.loads(text)
        servers = {
            str(name): Server(
                url=str(each["url"]),
                token_file=str(each["token_file"]),
                ca_file=str(each.get("ca_file", "")),
            )
            for name, each in written["contexts"].items()
        }
        current = written["current"]
        projects = {str(name): str(each) for name, each in written.get("projects", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigurationError(
            f"{path}: is no file of contexts; remove it, and add them again"
        ) from None
    if current is not None and current not in servers:
        raise ConfigurationError(
            f"{path}: the context in use, {current!r:.100}, is not in it; remove the file, and add"
            " the contexts again"
        )
    return Contexts(servers=servers, current=current, projects=projects)


def add_context(name: str, server: Server, *, project: str | None = None) -> None:
    """Add or change a context. Without `project`, an existing context keeps its project."""
    if not name or name == LOCAL or not name.isprintable() or len(name) > 100:
        raise UsageError("name", f"{name!r:.120} is no name for a context")
    known = read_contexts()
    added = replace(known, servers={**known.servers, name: server})
    _write(_with_project(added, name, project))


def use_context(name: str, *, project: str | None = None) -> None:
    """Send later commands to the server of this context; `local` means the database.

    Without `project`, the context keeps its project; an empty name removes it.
    """
    known = read_contexts()
    if name != LOCAL:
        _named(known, name)
    used = replace(known, current=None if name == LOCAL else name)
    _write(_with_project(used, name, project))


def _with_project(known: Contexts, name: str, project: str | None) -> Contexts:
    if project is None:
        return known
    rest = {key: each for key, each in known.projects.items() if key != name}
    return replace(known, projects={**rest, name: project} if project else rest)


def remove_context(name: str) -> None:
    """Remove a context; if it was in use, the database is from then on."""
    known = read_contexts()
    _named(known, name)
    rest = {key: server for key, server in known.servers.items() if key != name}
    current = None if known.current == name else known.current
    _write(_with_project(replace(known, servers=rest, current=current), name, ""))


def _named(known: Contexts, name: str) -> Server:
    try:
        return known.servers[name]
    except KeyError:
        raise NotFoundError(
            f"there is no context {name!r:.120}; see `orcaflow context list`"
        ) from None


def _write(contexts: Contexts) -> None:
    path = home_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {
        "current": contexts.current,
        "contexts": {
            name: {"url": each.url, "token_file": each.token_file, "ca_file": each.ca_file}
            for name, each in contexts.servers.items()
        },
        "projects": dict(contexts.projects),
    }
    # Beside it and then in its place: a full disk leaves the former file as it was.
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.touch(mode=0o600)
    beside.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)
