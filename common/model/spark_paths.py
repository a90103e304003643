"""The names of files as Spark takes them: paths, patterns and URIs. Pure.

Spark reads names with a scheme, such as `hdfs:/u/a.zip` and `s3a://b/a.zip`. `local:/opt/a.jar` is
a file that exists on every node. `file:/opt/a.jar` is the path `/opt/a.jar`. A path may be a
*pattern* with the wildcards of Hadoop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from common.model.task_type import ValueFaultError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_WILDCARD: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPath:
    """A name without its alias; `path` is empty for schemes other than `file` and `local`."""

    scheme: str
    path: str

    @property
    def is_path(self) -> bool:
        """True for a file on the reading host, with or without `file:`."""
        return self.scheme in ("", "file")

    @property
    def is_pattern(self) -> bool:
        return self.is_path and _WILDCARD.search(self.path) is not None


def scheme_of(name: str) -> str:
    """Return the scheme of a URI in lower case; "" for a path."""
    found = _SCHEME.match(name)
    return found[1].lower() if found else ""


def read_spark_path(name: str) -> SparkPath:
    """Return the parts of a name without alias; `ValueFaultError` if it names another host."""
    scheme = scheme_of(name)
    if scheme not in ("file", "local"):
        return SparkPath(scheme=scheme, path="" if scheme else name)
    rest = name[len(scheme) + 1 :]
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        if host or not slash:
            raise ValueFaultError(
                f"{name[:80]!r} names the host {host[:80]!r}; write {scheme}:/path or {scheme}:///path"
            )
        rest = f"/{below}"
    return SparkPath(scheme=scheme, path=unquote(rest))


def needs_spark(name: str) -> bool:
    """Return whether only a dedicated driver can fetch a file, as for URIs and `local:`."""
    return scheme_of(name) not in ("", "file")
