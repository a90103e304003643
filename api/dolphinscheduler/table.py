"""A route of DolphinScheduler's API, as the tables of the modules beside this one have it.

The path of the later dialects has `{word}` where 2.0 says process and 3.3 says workflow. A path
without it is shared by both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import Status
from api.policy import Who
from common.model.rights import Action
from common.store.people.rights import Thing


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A route: its method and path in the dialects that have it, and the right that it takes.

    `takes` says what `operations` checks, for the test that calls every route in every role;
    `thing` is the object that it is about. `refused` is the status of an order that the state of
    its object does not allow.
    """

    serve: Callable[[Call], Any]
    takes: Who | Action
    later: tuple[str, str] | None = None
    classic: tuple[str, str] | None = None
    thing: Thing | None = None
    refused: Status = Status.INTERNAL
