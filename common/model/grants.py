"""The kinds of shared objects that a project may use only with a grant.

Adds the word *grant*: a row of `t_ds_grant` that allows the tasks of one project to name one
tenant, data source, environment, pool or worker group. Pure. `common.store.grants` builds the
conditions; `operations.grants` creates and revokes grants.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class GrantKind(IntEnum):
    """The kinds of granted objects; the values are stored in `t_ds_grant.object_type`."""

    TENANT = 1
    DATASOURCE = 2
    ENVIRONMENT = 3
    POOL = 4
    WORKER_GROUP = 5

    @property
    def word(self) -> str:
        """The name of the kind in commands, URLs and the audit."""
        return _WORDS[self]

    @property
    def title(self) -> str:
        """The name of the kind in a sentence."""
        return _TITLES[self]


_WORDS: Final = {
    GrantKind.TENANT: "tenant",
    GrantKind.DATASOURCE: "datasource",
    GrantKind.ENVIRONMENT: "environment",
    GrantKind.POOL: "pool",
    GrantKind.WORKER_GROUP: "worker-group",
}
_TITLES: Final = {
    GrantKind.TENANT: "tenant",
    GrantKind.DATASOURCE: "data source",
    GrantKind.ENVIRONMENT: "environment",
    GrantKind.POOL: "pool",
    GrantKind.WORKER_GROUP: "worker group",
}
KINDS: Final = {kind.word: kind for kind in GrantKind}
"""The kinds by their words."""


class GrantedObject(NamedTuple):
    """An object that a project may use: its kind and its number.

    The number is the id of the row or, for an environment, the code that tasks name.
    """

    kind: GrantKind
    number: int


def missing(kind: GrantKind, given: str | int, *, project: str | None = None) -> str:
    """Return the message for an object that is missing or not granted to the project.

    The message is the same in both cases, so it does not reveal the objects of others.
    """
    named = repr(given) if isinstance(given, str) else str(given)
    whose = "the project" if project is None else f"project {project!r:.100}"
    return f"{whose} has no {kind.title} {named:.200}"


def cure(kind: GrantKind, given: str | int, *, project: str | None = None) -> str:
    """Return the advice with the command that grants the object."""
    target = "PROJECT" if project is None else project
    return (
        "an administrator can grant it with"
        f" `orcaflow {kind.word} grant {_quoted(str(given))} --project {_quoted(target)}`"
    )


def _quoted(text: str) -> str:
    # An author may have written the text. It is only shown, so `shlex` is not needed.
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    return text[:200] if plain.isalnum() else repr(text[:200])
