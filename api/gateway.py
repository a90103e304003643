"""The Python gateway of the api-server: py4j's protocol at a port of its own, off by default.

The token of a connection is a user's API token, asked for anew at each call, and so is every right.
"""

from __future__ import annotations

import logging
import socket
import uuid

from api.asking import RequestSession
from api.turns import Turns
from common.clock import SystemClock
from common.config import Config
from common.errors import SchedulerError, ServiceUnreachableError
from common.model.rights import Principal
from common.py4j.responder import Responder
from common.py4j.wire import Value
from common.store.connect import Engine, is_transient
from operations.errors import UsageError
from operations.python_gateway.methods import Argument, Caller
from operations.python_gateway.stored import StoredGateway
from operations.tokens import principal_of

log = logging.getLogger(__name__)


def responder(config: Config, engine: Engine, taken: socket.socket, turns: Turns) -> Responder:
    """Build the gateway for a socket that listens; it is not started."""

    def enter(token: str, address: str) -> _Entry | None:
        request = uuid.uuid4().hex
        who = principal_of(engine, token, address=address, request=request)
        return None if who is None else _Entry(config, engine, who, turns)

    return Responder(taken, enter, clock=SystemClock())


class _Entry:
    """The entry point of one call. What nobody foresaw is logged, and named by its id alone."""

    def __init__(self, config: Config, engine: Engine, who: Principal, turns: Turns) -> None:
        self._who = who
        self._turns = turns
        self._caller = Caller(StoredGateway(RequestSession(config, engine, who)))

    def call(self, method: str, arguments: list[Argument]) -> Value:
        """Carry a method out."""
        try:
            with self._turns.waited_turn(self._who.user_id):
                return self._caller.call(method, arguments)
        except UsageError as error:
            raise UsageError(error.field, f"{error.field}: {error.message}") from error
        except SchedulerError:
            raise
        except Exception as error:
            if is_transient(error) or "57014" in str(error):
                raise ServiceUnreachableError("the database did not answer in time") from error
            name = self._who.request
            log.exception("gateway call failed", extra={"request_id": name, "method": method})
            raise SchedulerError(f"the call failed: see {name} in the log") from error
