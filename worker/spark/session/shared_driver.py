"""A classic session for one task in the JVM of a warm server, which several tasks share.

The server is started as a driver of PySpark, so Python programs reach it through Py4J. Each task
gets a separate gateway with a random secret, and a session with a private catalog, cache and
warehouse folder: what `spark-submit` would give it. The threads of the gateway belong to a user of
Hadoop's with the account's name, for which Hadoop keeps separate file systems. So a relative path
is one below the task's folder.

Threads that serve a gateway inherit the job tag, the active session and the user of the thread that
started the gateway, and get the tag as their name. So everything that a task runs can be found. A
session counts as closed once no thread has its name and no job has its tag.

A *base* is a session with the state that its sessions share: the catalog and the cache. Bases are
used again, one task after the other, because Spark registers each with the context for good.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from py4j.protocol import Py4JJavaError

from worker.spark.diagnosis.failures import explain
from worker.spark.jvm.own_connections import check_connections
from worker.spark.session.sessions import Place, tag_of
from worker.spark.session.sharing import ISOLATED, OWN_LOADER

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_IMPORTS: Final = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""The names that PySpark expects in a gateway (`pyspark/java_gateway.py:launch_gateway`)."""

_CONTEXT: Final = "org.apache.spark.SparkContext"
_SESSION: Final = "org.apache.spark.sql.classic.SparkSession"
_STATE: Final = "org.apache.spark.sql.internal.SharedState"
_SERVER: Final = "org.apache.spark.api.python.Py4JServer"
_USERS: Final = "org.apache.hadoop.security.UserGroupInformation"
_FILES: Final = "org.apache.hadoop.fs.FileSystem"
_CATALOG: Final = "spark.sql.catalogImplementation"
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_STREAMS_PAGE: Final = "spark.sql.streaming.ui.enabled"
_STOP_TIMEOUT: Final = "spark.sql.streaming.stopTimeout"
_STOP_WITHIN: Final = "1s"
_SQL_PAGE: Final = "SQL"
_IN_MEMORY: Final = "in-memory"
_BASES: Final = "orcaflow.bases"
_LAZY: Final = "orcaflow.lazy"
_LAZY_FIELD: Final = "bitmap$0"
"""The field in which Scala notes the lazy values that an object has computed."""
_CAUSE_CHARS: Final = 250
_CLOSE_SECONDS: Final = 12.0
_OWN_CLOSE_SECONDS: Final = 2.0
"""Of a task that closes its session itself; the host has more time."""
_FIRST_REST_SECONDS: Final = 0.002
_REST_SECONDS: Final = 0.1
_CURRENT_THREAD: Final = "c\nz:java.lang.Thread\ncurrentThread\ne\n"
_REFERENCE: Final = "yr"
"""The start of an answer with a reference: `y` for success, `r` for its kind."""


class NoContextError(Exception):
    """The server's Spark context could not be created."""


def start_context(place: Place) -> None:
    """Create the context of a server that has none yet, and the session that others start from.

    Raises `NoContextError`.
    """
    with _opened(place) as gateway:
        jvm = gateway.jvm
        try:
            _class(jvm, _CONTEXT).getOrCreate()
            first = _module(jvm, _SESSION).builder().getOrCreate()
            first.sharedState().statusStore()
            first.sessionState()
        except Py4JJavaError as error:
            raise NoContextError(_first_cause(error) or explain(error).sentence) from error
        known = _known(jvm)
        known.put(_BASES, jvm.java.util.concurrent.ConcurrentLinkedQueue())
        with contextlib.suppress(Py4JJavaError):  # Another Spark's: then no base is used again.
            field = _class(jvm, "java.lang.Class").forName(_STATE).getDeclaredField(_LAZY_FIELD)
            field.setAccessible(True)
            known.put(_LAZY, field)


def _first_cause(error: Py4JJavaError) -> str:
    """Return the text of the exception that led to another one; "" if there is only one."""
    thrown = error.java_exception
    text = ""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
        text = " ".join(str(thrown.toString()).split())[:_CAUSE_CHARS]
    return text


class SharedDriver:
    """The part of a shared JVM that belongs to one task."""

    def __init__(self, place: Place, *, directory: Path) -> None:
        """Open a gateway and a session, whose relative paths are below `directory`."""
        self.place = place
        self.tag = tag_of(place.session_id)
        self._opener = _connected(place.gateway_port, place.gateway_secret)
        jvm = self._opener.jvm
        context = _class(jvm, _CONTEXT).getOrCreate()
        context.addJobTag(self.tag)
        context.setInterruptOnCancel(True)
        # Files of another default system have folders of the account's there, not this one.
        is_here = _class(jvm, _FILES).getDefaultUri(context.hadoopConfiguration()).getScheme()
        self.folder = directory if is_here == "file" else None
        # A probe finds these there if this process dies.
        known = _known(jvm)
        _open_session(jvm, known, context, place, self.folder)
        users = _class(jvm, _USERS)
        user = None
        if self.folder is None or users.isSecurityEnabled():
            server = _class(jvm, _SERVER)(context.conf())
        else:
            user = users.createRemoteUser(users.getCurrentUser().getUserName())
            known.put(f"{self.tag}.user", user)
            # A new server listens in a thread of its own, before it is started.
            server = user.doAs(_creation(jvm, _SERVER, context.conf()))
        known.put(f"{self.tag}.server", server)
        server.start()
        self.gateway = _connected(server.getListeningPort(), server.secret(), name=self.tag)
        self.session: JavaObject = _class(self.gateway.jvm, _SESSION).getActiveSession().get()
        if user is not None:
            files = _class(self.gateway.jvm, _FILES)
            path = _class(self.gateway.jvm, "org.apache.hadoop.fs.Path")(f"file:{directory}")
            files.getLocal(context_of(self.session).hadoopConfiguration()).setWorkingDirectory(path)
        for each in _IMPORTS:
            java_import(self.gateway.jvm, each)

    def context(self) -> JavaObject:
        """Return a new Java context of PySpark for the server's one context."""
        jvm: Any = self.gateway.jvm
        made: JavaObject = jvm.JavaSparkContext(context_of(self.session))
        return made

    def equip(self, further: Any) -> None:
        """Give a session that was made from this one the settings that it would not take over."""
        warehouse = settings_of(self.session).warehousePath()
        settings_of(further).setConfString(_WAREHOUSE, warehouse)

    def tag_jobs(self) -> None:
        """Give the jobs of this thread the task's tag, which a script may have cleared."""
        context_of(self.session).addJobTag(self.tag)

    def cancel_jobs(self) -> None:
        """Cancel the jobs of this task alone."""
        context_of(self.session).cancelJobsWithTag(self.tag)

    def close(self) -> bool:
        """Close the session and the gateway; True if the server runs nothing for it any more."""
        # Its connections are closed by the JVM: one that waits for a callback can't be closed here.
        # What Py4J logs about that is no news to the author.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        try:
            return _close(self._opener, (self.place,), within=_OWN_CLOSE_SECONDS)
        finally:
            self._opener.close()


def context_of(session: Any) -> Any:
    """Return the context of a session."""
    return session.sparkContext()


def settings_of(session: Any) -> Any:
    """Return the settings of a session, of which this way changes also those of a whole driver."""
    return session.sessionState().conf()


def close_drivers(place: Place, others: Collection[str] = ()) -> bool:
    """Close the sessions of a task that is gone.

    Return True once the server runs nothing for them, and False if that takes too long.
    """
    with _opened(place) as gateway:
        places = (place, *map(place.beside, others))
        return _close(gateway, places, within=_CLOSE_SECONDS)


def _close(gateway: ClientServer, places: Collection[Place], *, within: float) -> bool:
    limit = time.monotonic() + within
    rest = _FIRST_REST_SECONDS
    left = list(places)
    while left := [each for each in left if not _is_closed(gateway, tag_of(each.session_id))]:
        if time.monotonic() >= limit:
            return False
        time.sleep(rest)
        rest = min(2 * rest, _REST_SECONDS)
    return True


def _is_closed(gateway: ClientServer, tag: str) -> bool:
    """Close a session if it is open; return True if the server runs nothing for it."""
    jvm = gateway.jvm
    known = _known(jvm)
    context = _class(jvm, _CONTEXT).getOrCreate()
    server = known.remove(f"{tag}.server")
    if server is not None:
        server.shutdown()
    session = known.get(f"{tag}.session")
    if session is not None:
        for query in _queries(session, is_alone=known.get(f"{tag}.base") is not None):
            with contextlib.suppress(Exception):  # PySpark makes other errors of Py4J's.
                # A batch function that never returns must not keep this request waiting.
                settings_of(query.sparkSession()).setConfString(_STOP_TIMEOUT, _STOP_WITHIN)
                query.stop()
    # In this order: a thread that has ended starts no job after its jobs were cancelled.
    has_thread = _has_thread(jvm, tag)
    context.cancelJobsWithTag(tag)
    if has_thread or _has_job(context, tag):
        return False
    if session is not None:
        _forget(jvm, known, tag)
    return True


def _queries(session: Any, *, is_alone: bool) -> list[Any]:
    """Return the streams of a session, and of those made from it if they have a state alone."""
    if not is_alone:
        return list(session.streams().active())
    found = session.sharedState().activeStreamingQueries().elements()
    queries = []
    while found.hasMoreElements():
        queries.append(found.nextElement())
    return queries


def _has_job(context: Any, tag: str) -> bool:
    tracker = context.statusTracker()
    active = set(tracker.getActiveJobIds())
    return bool(active) and not active.isdisjoint(tracker.getJobIdsForTag(tag))


def _has_thread(jvm: Any, name: str) -> bool:
    """Return True if a thread of the JVM has this name, which contains a random number."""
    # One text of all of them: each request for one takes as long as this. Releases of Java write
    # a thread in different ways.
    return name in _class(jvm, "java.lang.Thread").getAllStackTraces().keySet().toString()


def _open_session(jvm: Any, known: Any, context: Any, place: Place, folder: Path | None) -> None:
    """Have this thread use a new session; its catalog is private unless there is a metastore."""
    tag = tag_of(place.session_id)
    if context.conf().get(_CATALOG, _IN_MEMORY) != _IN_MEMORY:
        session = _module(jvm, _SESSION).builder().getOrCreate().newSession()
    else:
        base = known.get(_BASES).poll() or _new_base(jvm, context)
        known.put(f"{tag}.base", base)
        warehouse = "" if folder is None or place.keeps_warehouse else _warehouse(folder)
        if warehouse:
            base.sharedState().conf().set(_WAREHOUSE, warehouse)
        session = base.newSession()
        if warehouse:
            settings_of(session).setConfString(_WAREHOUSE, warehouse)
    if place.prototype:
        settings = settings_of(session)
        for key in (ISOLATED, OWN_LOADER):
            settings.setConfString(key, "false")
    known.put(f"{tag}.session", session)
    _class(jvm, _SESSION).setActiveSession(session)


def _warehouse(folder: Path) -> str:
    return f"file:{folder}/spark-warehouse"


def _new_base(jvm: Any, context: Any) -> Any:
    """Create a session whose state no other base has, and which the context does not follow.

    The first state of the context records the queries of all sessions for the pages.
    """
    base = _class(jvm, _SESSION)(context, jvm.java.util.HashMap())
    state = base.sharedState()
    state.conf().set(_STREAMS_PAGE, "false")
    listener = state.statusStore().listener()
    if listener.isDefined():
        context.removeSparkListener(listener.get())
    if context.ui().isDefined():
        pages = context.ui().get()
        tabs = pages.getTabs()
        own = [tabs.apply(n) for n in range(tabs.size())]
        for tab in [each for each in own if each.prefix() == _SQL_PAGE][1:]:
            pages.detachTab(tab)
    return base


def _forget(jvm: Any, known: Any, tag: str) -> None:
    """Remove what a closed session has left, and give its base to the next task."""
    known.remove(f"{tag}.session")
    user = known.remove(f"{tag}.user")
    if user is not None:
        _class(jvm, _FILES).closeAllForUGI(user)
    base, lazy = known.remove(f"{tag}.base"), known.get(_LAZY)
    if base is None:
        return
    state = base.sharedState()
    state.cacheManager().clearCache()
    if lazy is not None:
        # Its catalogs are created again when they are needed.
        lazy.setByte(state, 0)
        known.get(_BASES).add(base)


def _creation(jvm: Any, name: str, argument: Any) -> Any:
    """Return an action of Java that creates an object from one argument of its own class."""
    invoke, classes = "java.lang.invoke", _class(jvm, "java.lang.Class")
    nothing = _class(jvm, "java.lang.Void").TYPE
    kind = _class(jvm, f"{invoke}.MethodType").methodType(nothing, argument.getClass())
    lookup = _class(jvm, f"{invoke}.MethodHandles").publicLookup()
    handle = lookup.findConstructor(classes.forName(name), kind).bindTo(argument)
    action = classes.forName("java.security.PrivilegedAction")
    return _class(jvm, f"{invoke}.MethodHandleProxies").asInterfaceInstance(action, handle)


def _known(jvm: Any) -> Any:
    """Return the map in the JVM that keeps objects by name for the next connection.

    Spark shows system properties on a page, but only those that are texts.
    """
    return _class(jvm, "java.lang.System").getProperties()


def _class(jvm: Any, name: str) -> Any:
    """Return a class of the JVM. One request finds it; each part of the name would take one."""
    return getattr(jvm, name)


def _module(jvm: Any, name: str) -> Any:
    """Return the companion object of a class of Scala."""
    return getattr(_class(jvm, f"{name}$"), "MODULE$")


def _connected(port: int, secret: str, *, name: str = "") -> ClientServer:
    """Return a gateway; `name` is for the threads of the JVM that serve it."""
    check_connections()
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    if name:
        client: Any = gateway._gateway_client  # noqa: SLF001
        connect = client._create_new_connection  # noqa: SLF001

        def named() -> Any:
            connection = connect()
            answer = connection.send_command(_CURRENT_THREAD)
            if answer.startswith(_REFERENCE):
                thread = answer.removeprefix(_REFERENCE)
                connection.send_command(f"c\n{thread}\nsetName\ns{name}\ne\n")
            return connection

        client._create_new_connection = named  # noqa: SLF001
    return gateway


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[ClientServer]:
    gateway = _connected(place.gateway_port, place.gateway_secret)
    try:
        yield gateway
    finally:
        gateway.close()
