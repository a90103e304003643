"""Pages of Spark's UI of running attempts, which the attempt's worker fetches.

A page of Spark must not act for the user who opens it, so a browser shows it without an origin and
sends no cookie for its files. The right to it is a *pass* in the path instead: it names an attempt
and a session of a log-in, ends with the session and after an hour, and opens nothing else. The
rights are read at each request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from common.clock import Clock
from common.errors import NotAllowedError, NotFoundError, ServiceUnreachableError
from common.log_access import key_file, read_key, token
from common.model.rights import Principal
from common.page_access import (
    FIRST_PAGE,
    MOST_BYTES,
    PATH,
    PATIENCE,
    PREFIX,
    PageQuestion,
    are_arguments,
    is_page,
)
from common.store.cluster import cluster_token
from common.store.connect import Engine
from common.store.people.rights import sees_every_project
from common.tls import worker_client_context
from operations.errors import ForbiddenError
from operations.log_ins import own_key, principal_with_key
from operations.session import Session
from operations.tasks import find_task
from operations.worker_calls import WorkerCallError, call

GOOD_FOR: Final = timedelta(hours=1)

_PASS: Final = re.compile(
    r"([0-9]{1,10})\.([0-9]{1,10})\.([0-9a-f]{16})\.([0-9]{1,12})\.([0-9a-f]{64})"
)
_OK: Final = 200
_LEADS: Final = 302
_FORBIDDEN: Final = 403
_EXTRA_SECONDS: Final = 2.0
"""The time of the worker's own work for a page."""
_ENDED: Final = "this link to Spark's UI has ended; open it again on the page of the task"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPage:
    """A page as its driver has sent it, or the place of another page."""

    media_type: str
    body: bytes
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A right to the pages of one attempt, as its text says."""

    task: int
    user: int
    session_key: str
    text: str

    @property
    def base(self) -> str:
        """The prefix of the paths of its pages."""
        return f"{PREFIX}/{self.text}"


def link_to(session: Session, task_instance_id: int, *, clock: Clock) -> str:
    """Return the path of the first page, with a new pass for the session.

    `NotFoundError` if the attempt is missing or foreign, `NotAllowedError` if it is over.
    """
    task = find_task(session, task_instance_id)
    key = own_key(session.principal)
    if key is None:
        raise ForbiddenError("Spark's UI is shown to people who have logged in, and not by a token")
    if task.end_time is not None or not task.ui_link:
        raise NotAllowedError(f"Spark runs nothing for task instance {task_instance_id} now")
    until = int((clock.now() + GOOD_FOR).timestamp())
    said = f"{task_instance_id}.{session.principal.user_id}.{key}.{until}"
    return f"{PREFIX}/{said}.{_signature(session, said)}/{FIRST_PAGE}"


def read_pass(session: Session, text: str, *, clock: Clock) -> Pass:
    """Read a pass; `ForbiddenError` if the signature is wrong or the time is over.

    The principal of this session is not used.
    """
    found = _PASS.fullmatch(text)
    if found is None:
        raise ForbiddenError(_ENDED)
    task, user, key, until, signature = found.groups()
    expected = _signature(session, f"{task}.{user}.{key}.{until}")
    if not hmac.compare_digest(expected, signature) or clock.now().timestamp() > int(until):
        raise ForbiddenError(_ENDED)
    return Pass(task=int(task), user=int(user), session_key=key, text=text)


def holder_of(engine: Engine, allowed: Pass) -> Principal:
    """Return the principal of a pass; `ForbiddenError` if the session has ended."""
    principal = principal_with_key(engine, allowed.user, allowed.session_key)
    if principal is None:
        raise ForbiddenError(_ENDED)
    return principal


def fetch(session: Session, allowed: Pass, path: str, arguments: str, *, clock: Clock) -> SparkPage:
    """Have the attempt's worker fetch a page, for the principal of the pass.

    `NotFoundError` for a missing or foreign attempt and for a page that is not listed,
    `ForbiddenError` for the pages of a shared server without the right to see every project.
    """
    task = find_task(session, allowed.task)
    if not (is_page(path) and are_arguments(arguments)):
        raise NotFoundError("this page of Spark's UI is not shown here")
    if task.end_time is not None or task.host is None:
        raise NotAllowedError(f"Spark runs nothing for task instance {task.id} now")
    with session.engine.connect() as db:
        sees_shared = sees_every_project(db, session.principal)
    question = PageQuestion(
        task=task.id,
        path=path,
        arguments=arguments,
        base=allowed.base,
        sees_shared=sees_shared,
    )
    try:
        answered = call(
            task.host,
            f"{PATH}?{question.query()}",
            allowed=token(
                read_key(key_file(session.config)),
                cluster=cluster_token(session.engine),
                question=question,
                now=clock.now().timestamp(),
            ),
            most=MOST_BYTES,
            seconds=PATIENCE.total_seconds() + _EXTRA_SECONDS,
            tls=worker_client_context(session.config),
        )
    except WorkerCallError as error:
        raise ServiceUnreachableError(str(error)) from error
    place = answered.headers.get("Location", "")
    if answered.status == _LEADS and _is_place(place, allowed):
        return SparkPage(media_type="", body=b"", place=place)
    if answered.status == _FORBIDDEN:
        raise ForbiddenError(answered.reason)
    if answered.status != _OK or len(answered.body) > MOST_BYTES:
        raise NotFoundError(answered.reason)
    return SparkPage(media_type=answered.headers.get("Content-Type", ""), body=answered.body)


def _is_place(place: str, allowed: Pass) -> bool:
    path, _, arguments = place.partition("?")
    page = path.removeprefix(f"{allowed.base}/")
    return page != path and is_page(page) and are_arguments(arguments)


def _signature(session: Session, said: str) -> str:
    key, cluster = read_key(key_file(session.config)), cluster_token(session.engine)
    text = f"Orcaflow-Spark-UI\n{cluster}\n{said}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
