"""The subject of pages about drafts and proposals: a definition, or the new one of a project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypedDict

from fastapi import Response

from api.console.table import Serve, Visit
from common.store.people.rights import Thing
from operations.definitions import definition_detail
from operations.projects import project_detail
from operations.session import Session


class Whose(TypedDict, total=False):
    """The arguments by which operations find a subject."""

    definition: int
    project: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A definition, or a project whose definition is to be made; `things` begins its paths."""

    thing: Thing
    things: str
    id: int

    @property
    def is_new(self) -> bool:
        return self.thing is Thing.PROJECT

    @property
    def place(self) -> str:
        return f"/{self.things}/{self.id}"

    @property
    def whose(self) -> Whose:
        return {"project": self.id} if self.is_new else {"definition": self.id}

    def name(self, session: Session) -> str:
        """Return the name of the definition, or of the project."""
        if self.is_new:
            return project_detail(session, self.id).view.name
        return definition_detail(session, self.id, with_tag=False).row.name


ServeOne: TypeAlias = Callable[[Visit, Subject], Response]
KINDS: Final = ((Thing.DEFINITION, "definitions"), (Thing.PROJECT, "projects"))


def about(thing: Thing, things: str, serve: ServeOne) -> Serve:
    """Return the page that serves the subject whose number is in its path."""
    return partial(_serve, thing, things, serve)


def _serve(thing: Thing, things: str, serve: ServeOne, visit: Visit) -> Response:
    return serve(visit, Subject(thing=thing, things=things, id=visit.id))
