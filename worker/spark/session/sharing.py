"""The rules by which tasks get sessions that share the code which Spark generates.

Spark writes and compiles Java for each query, which is most of the work of a small one. A Connect
server does that anew for each session, as each is *isolated*: executors load its classes apart, for
it may bring some (`ArtifactManager` in Spark's source). Few tasks do. Sessions that aren't isolated
share that code, and nothing else: views, settings, functions, UDFs' Pythons are their own. But
additions (artifacts; ADD JAR and the like in SQL) of one would be visible to all of them
(`JobArtifactSet.getActiveOrDefault`). So their servers refuse additions: tasks that make some, as
far as can be seen beforehand, get other servers of their profile, where each session is isolated;
the error tells the rest how to get one. Rules alone, of the standard library, for daemon, host and
tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

ISOLATED: Final = "spark.sql.artifact.isolation.enabled"
"""Spark's own key; a profile or a task may say "true"."""
OWN_LOADER: Final = "spark.sql.artifact.isolation.alwaysApplyClassloader"
"""Spark's key for a class loader of each session, which shared code cannot have."""

_SUFFIX = "/isolated"
# What stands right before it may belong to no word, but to the message that it comes in. Everything
# has its bounds and can be read in one way alone, so that no text takes long.
_COMMENT = r"(?:/\*(?:(?!\*/).){0,80}\*/|--[^\n]{0,80}\n)"
_STATEMENT = (
    rf"(?:add|using)(?=[\s/-])\s{{0,80}}(?:{_COMMENT}\s{{0,80}}){{0,5}}(?:jar|file|archive)s?\b"
    r"|execute\s{1,80}immediate\b"
)
_CLOSED_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_REST_OF_LINE = re.compile(r"--[^\n]*")
_GAP = re.compile(r"\s+")
_BRINGING_STATEMENT = re.compile(_STATEMENT, re.IGNORECASE | re.DOTALL)
_BRINGING_SCRIPT = re.compile(rf"addArtifact|{_STATEMENT}", re.IGNORECASE | re.DOTALL)


def is_isolated(conf: Mapping[str, str]) -> bool:
    """True if the settings of a profile or a task ask for isolation."""
    return conf.get(ISOLATED, "").strip().lower() == "true"


def may_share(master: str, conf: Mapping[str, str]) -> bool:
    """True if the sessions of a profile may share, by its master and its settings.

    Executors elsewhere have one Python for the UDFs of all sessions that aren't isolated.
    """
    return master.startswith("local") and not is_isolated(conf)


def isolated(profile: str) -> str:
    """The name that the servers of a profile have whose sessions are isolated."""
    return f"{profile}{_SUFFIX}"


def is_profile(name: str) -> bool:
    """True if a name is a profile's own."""
    return not name.endswith(_SUFFIX)


def statement_brings(text: str) -> bool:
    """True if SQL may bring something. A word in a string or a comment may be mistaken for it."""
    return any(_BRINGING_STATEMENT.search(each) for each in (text, _without_comments(text)))


def script_brings(texts: Iterable[str]) -> bool:
    """True if a script, or SQL, may bring something; what it imports can't be seen here."""
    return any(
        _BRINGING_SCRIPT.search(each) for text in texts for each in (text, _without_comments(text))
    )


def _without_comments(text: str) -> str:
    """The same with one space for each longer gap. What looks like a comment may be a string's."""
    last = text.rfind("*/") + 2  # Behind that none is closed; looking for its end would take long.
    text = _CLOSED_COMMENT.sub(" ", text[:last]) + text[last:] if last > 1 else text
    return _GAP.sub(" ", _REST_OF_LINE.sub(" ", text))
