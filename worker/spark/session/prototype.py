"""Sessions that share generated code: how a server comes to give them, and what they can't do.

`worker/spark/session/sharing.py` says why, and who gets one. A server has a *prototype*, a session
that was told not to be isolated, and tasks get clones of it. Spark settles what a session is when
it first does something for it, so only a clone, which has its settings from the start, can be
anything else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from pyspark.sql.connect.client import SparkConnectClient as Client
from pyspark.sql.connect.proto import base_pb2

from common.model.failures import FailureReason
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.session.sessions import Place, open_session
from worker.spark.session.sharing import ISOLATED, OWN_LOADER, statement_brings

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_CLONE_SECONDS = 60.0
_SQL = "sql_command"
_REFUSED = "this session shares generated code with its neighbours, so it can bring no {what}"
_CURE = f'give the task "conf": {{"{ISOLATED}": "true"}}: it gets an isolated session then'


def prepare(session: SparkSession) -> None:
    """Make a session a prototype; it may be one already."""
    for key in (ISOLATED, OWN_LOADER):
        session.conf.set(key, "false")


def open_clone(place: Place) -> SparkSession:
    """The session at a place, cloned off the prototype if there is one.

    If the server has lost the prototype, or can't clone, it makes an isolated session when it first
    hears of it: that is only slower.
    """
    session = open_session(place)
    if place.prototype:
        with contextlib.suppress(grpc.RpcError, AttributeError):
            _clone(session, place.prototype)
    return session


def guard() -> None:
    """See to it that this process brings nothing into its server."""
    execute, iterate = Client.execute_command, Client.execute_command_as_iterator

    def execute_command(client: Client, command: Any, *args: Any, **others: Any) -> Any:
        _refuse_bringing(command)
        return execute(client, command, *args, **others)

    def as_iterator(client: Client, command: Any, *args: Any, **others: Any) -> Any:
        _refuse_bringing(command)
        return iterate(client, command, *args, **others)

    def add_artifacts(_client: Client, *_paths: str, **_others: Any) -> None:
        raise _refusal("artifacts")

    Client.execute_command = execute_command  # type: ignore[method-assign,assignment]
    Client.execute_command_as_iterator = as_iterator  # type: ignore[method-assign,assignment]
    Client.add_artifacts = add_artifacts  # type: ignore[method-assign,assignment]


def _refuse_bringing(command: Any) -> None:
    if command.WhichOneof("command_type") == _SQL:
        text = command.sql_command.SerializeToString().decode("utf-8", "replace")
        if statement_brings(text):
            raise _refusal("jars, files or archives by SQL")


def _refusal(what: str) -> WorkFailedError:
    return WorkFailedError(_REFUSED.format(what=what), FailureReason.UNSUPPORTED, hint=_CURE)


def _clone(session: SparkSession, prototype: str) -> None:
    """Have the server make this session off another one. Raises `grpc.RpcError`.

    PySpark's own way makes a further channel. `AttributeError` says that it is older than cloning.
    """
    client = session.client
    request = base_pb2.CloneSessionRequest(
        session_id=prototype, new_session_id=session.session_id, client_type="python"
    )
    request.user_context.user_id = client._user_id or ""  # noqa: SLF001
    client._stub.CloneSession(  # noqa: SLF001
        request,
        metadata=client._builder.metadata(),  # noqa: SLF001
        timeout=_CLONE_SECONDS,
    )
