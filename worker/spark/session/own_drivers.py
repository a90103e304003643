"""Gives a script the classic session of its task, in whatever way the script creates one.

In the forked process of a warm task. PySpark's own classes do the work. What they would do to the
JVM as a whole is limited to the task: `stop` ends the task's session, `cancelAllJobs` cancels the
task's jobs, and the default session of the JVM stays. After `spark.stop()` the next context gets a
new session. Each further session is reported to the Spark host, which closes it if this process
dies.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from common.model.failures import FailureReason
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.jvm import doors
from worker.spark.session import own_streams
from worker.spark.session.driver_needs import WITHOUT_EFFECT, is_of_a_session
from worker.spark.session.own_sessions import CLOSED, DRIVER
from worker.spark.session.sessions import Place
from worker.spark.session.shared_driver import SharedDriver, context_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

_CURE: Final = 'give the task "profile": "classic": it gets a driver of its own then'
_OF_THE_WHOLE_JVM: Final = (
    "addArchive",
    "addFile",
    "addJar",
    "addPyFile",
    "cancelJobGroup",
    "cancelJobGroupAndFutureJobs",
    "cancelJobsWithTag",
    "cancelJobsWithTagAndFutureJobs",
    "setCheckpointDir",
    "setSystemProperty",
)
"""Methods of a context that would change it, or end jobs, for all tasks of the server."""
_SETTLE_MS: Final = 500
_MASTER: Final = "spark.master"
_NAME: Final = "spark.app.name"
_BUILDER: Final = SparkSession.Builder


class OwnDrivers:
    """The classic sessions of one task, of which `first` is open from the start."""

    def __init__(
        self, place: Place, *, directory: Path, conf: Mapping[str, str], name: str, reports: int
    ) -> None:
        """`conf` and `name` are the settings of each session and the name of the application.

        `reports` is a descriptor that takes further sessions and the end, in lines.
        """
        os.set_blocking(reports, False)
        self._reports = reports
        self._pid = os.getpid()
        self._place = place
        self._directory = directory
        self._conf = dict(conf)
        self._name = name
        self._closed_all = True
        self._driver: SharedDriver | None = None
        self._first_context: SparkContext | None = None
        self._is_created = False
        """The script has created a context or a session; until then it finds the first one."""
        for each in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_API_MODE"):
            os.environ.pop(each, None)
        if place.python:
            os.environ["PYSPARK_PYTHON"] = place.python
        self._report(DRIVER)
        self._take_over()
        self._open(place)
        self.first = SparkSession.builder.getOrCreate()
        self._first_context = self.first.sparkContext
        self._is_created = False

    def close(self) -> None:
        """Close what is open, and report to the host if that has worked for sure.

        A process that the script has forked leaves the sessions of its parent alone.
        """
        if os.getpid() != self._pid:
            return
        context = SparkContext._active_spark_context  # noqa: SLF001
        if context is not None and (scratch := getattr(context, "_temp_dir", None)):
            shutil.rmtree(scratch, ignore_errors=True)
        self.end()
        if self._closed_all:
            self._report(CLOSED)

    def end(self) -> None:
        """Close the session that is open, as `stop` of its context does."""
        driver, self._driver = self._driver, None
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        if driver is None:
            return
        try:
            is_closed = driver.close()
        except Exception:  # noqa: BLE001  # Whatever it was, the host closes the session.
            is_closed = False
        if not is_closed:
            self._closed_all = False

    def settle(self) -> None:
        """Wait a moment until the server's pages show what has happened."""
        if self._driver is not None and os.getpid() == self._pid:
            context_of(self._driver.session).listenerBus().waitUntilEmpty(_SETTLE_MS)

    def _open(self, place: Place) -> SharedDriver:
        driver = SharedDriver(place, directory=self._directory)
        self._driver = driver
        SparkContext._gateway = driver.gateway  # noqa: SLF001
        SparkContext._jvm = driver.gateway.jvm  # noqa: SLF001
        session: Any = driver.session
        for key, value in self._conf.items():
            session.conf().set(key, value)
        if self._name:
            settings_of(session).setConfString(_NAME, self._name)
        return driver

    def _current(self) -> SharedDriver:
        """Return the driver that is open; open another one after `stop`."""
        if self._driver is None:
            place = self._place.beside(str(uuid.uuid4()))
            self._report(place.session_id)
            return self._open(place)
        return self._driver

    def _take_over(self) -> None:
        self._take_over_contexts()
        self._take_over_sessions()
        own_streams.take_over(lambda: None if self._driver is None else self._driver.folder)

    def _take_over_contexts(self) -> None:
        own = self
        ensure_initialized = SparkContext._ensure_initialized.__func__  # type: ignore[attr-defined]  # noqa: SLF001
        init, clear_tags, tags = (
            SparkContext.__init__,
            SparkContext.clearJobTags,
            SparkContext.getJobTags,
        )

        def ensured(
            cls: type[SparkContext],
            instance: SparkContext | None = None,
            gateway: Any = None,
            conf: SparkConf | None = None,
        ) -> None:
            own._current()
            ensure_initialized(cls, instance, gateway, conf)

        def initialize_context(_context: SparkContext, _conf: Any) -> Any:
            java = own._current().context()
            java.__class__ = _context_class(type(java), own)
            return java

        def new(cls: type[SparkContext], *_args: Any, **_named: Any) -> SparkContext:
            active = SparkContext._active_spark_context  # noqa: SLF001
            adopted = own._adoptable(active)
            return object.__new__(cls) if adopted is None else adopted

        def initialized(context: SparkContext, *args: Any, **named: Any) -> None:
            if own._adoptable(context) is None:
                init(context, *args, **named)
                own._describe(context, {_NAME: own._name})
                if own._place.python:
                    context.pythonExec = own._place.python
            else:
                own._is_created = True
            if own._first_context is not None:
                own._apply_to(context, *args, **named)

        def clear_job_tags(context: SparkContext) -> None:
            clear_tags(context)
            own._current().tag_jobs()

        def job_tags(context: SparkContext) -> set[str]:
            return {*tags(context)} - {own._current().tag}

        context: Any = SparkContext
        context._ensure_initialized = classmethod(ensured)  # noqa: SLF001
        context._initialize_context = initialize_context  # noqa: SLF001
        context.__new__ = new
        context.__init__ = initialized
        context.clearJobTags = clear_job_tags
        context.getJobTags = job_tags
        context.cancelAllJobs = lambda _context: own._current().cancel_jobs()
        context.setLogLevel = lambda _context, _level: None
        get_conf = SparkContext.getConf

        def conf_of(context: Any) -> SparkConf:
            found: SparkConf = get_conf(context)
            # What `_describe` has set; the server has others.
            return found.setAppName(context.appName).setMaster(context.master)

        context.getConf = conf_of
        conf: Any = SparkConf
        get_all = SparkConf.getAll
        # Scripts print all settings, and this one is a secret of the server.
        conf.getAll = lambda conf: [each for each in get_all(conf) if each[0] != doors.PAGE_KEY]
        for name in _OF_THE_WHOLE_JVM:
            if hasattr(context, name):
                setattr(context, name, _refusing(name))

    def _take_over_sessions(self) -> None:
        own = self
        get_class = SparkSession._get_j_spark_session_class  # noqa: SLF001
        get_or_create = _BUILDER.getOrCreate

        def got_or_created(builder: Any) -> SparkSession:
            options = builder._options  # noqa: SLF001
            # A context that was stopped has no settings to compare with; a new one is checked.
            if own._adoptable(own._first_context) is not None:
                own._check(options)
                own._is_created = True
            session = get_or_create(builder)
            own._describe(session.sparkContext, options)
            return session

        new_session = SparkSession.newSession

        def new(session: SparkSession) -> SparkSession:
            made: Any = new_session(session)
            java = made._jsparkSession  # noqa: SLF001
            own._current().equip(java)
            return made  # type: ignore[no-any-return]

        session: Any = SparkSession
        session.newSession = new
        session._get_j_spark_session_class = staticmethod(  # noqa: SLF001
            lambda jvm: _SessionClass(lambda: get_class(jvm))
        )
        builder: Any = _BUILDER
        builder.getOrCreate = got_or_created

    def _adoptable(self, context: SparkContext | None) -> SparkContext | None:
        """Return the context that the task started with, until a script has created its own."""
        if self._is_created or context is None or context is not self._first_context:
            return None
        return context if context._jsc is not None else None  # noqa: SLF001

    def _apply_to(self, context: SparkContext, *args: Any, **named: Any) -> None:
        """Apply the settings of `SparkContext(conf=conf)` to the task's session."""
        conf = named.get("conf") or next((a for a in args if hasattr(a, "getAll")), None)
        wanted = {} if conf is None else dict(conf.getAll())
        texts = [*(each if isinstance(each, str) else None for each in args[:2]), None, None]
        for key, name, text in ((_MASTER, "master", texts[0]), (_NAME, "appName", texts[1])):
            if given := named.get(name, text):
                wanted[key] = given
        self._describe(context, wanted)
        self._check(wanted, context)
        now = dict(context.getConf().getAll())
        session: Any = self._current().session
        for key, value in wanted.items():
            if now.get(key) != value and is_of_a_session(key):
                session.conf().set(key, value)

    def _check(self, wanted: Mapping[str, Any], context: SparkContext | None = None) -> None:
        """Raise `WorkFailedError` for a setting that only a new JVM could have."""
        context = context or self._first_context
        assert context is not None
        now = {*context.getConf().getAll(), *SparkConf().getAll()}
        for key, value in wanted.items():
            if (key, str(value)) in now or key in WITHOUT_EFFECT or key == _MASTER:
                continue
            if key.startswith("spark.") and not is_of_a_session(key):
                text = f"{key} is a setting of a whole Spark driver, which this task shares"
                raise WorkFailedError(text, FailureReason.UNSUPPORTED, hint=_CURE)

    def _describe(self, context: SparkContext, wanted: Mapping[str, Any]) -> None:
        """Let a context show the name and the local master that the script has given it."""
        if wanted.get(_NAME):
            context.appName = str(wanted[_NAME])
        if doors.is_local(str(wanted.get(_MASTER, ""))):
            context.master = str(wanted[_MASTER])

    def _report(self, word: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._reports, f"{word}\n".encode())


class _SessionClass:
    """The class of sessions in the JVM, for one task: the JVM's default session is not its own."""

    def __init__(self, find: Callable[[], Any]) -> None:
        """`find` returns the class. The gateway may be closed when PySpark only clears sessions."""
        self._find = find

    def __call__(self, *args: Any) -> Any:
        return self._find()(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)

    def getDefaultSession(self) -> Any:  # noqa: N802  # Spark's name.
        return self._find().getActiveSession()

    def setDefaultSession(self, _session: Any) -> None:  # noqa: N802
        """Leave the default session as it is."""

    def clearDefaultSession(self) -> None:  # noqa: N802
        """Leave the default session as it is."""

    def clearActiveSession(self) -> None:  # noqa: N802
        """Leave the active session: its gateway is closed by now."""


def _context_class(java: type, own: OwnDrivers) -> type:
    """Return a class of Java contexts whose `stop` ends the task's session alone."""
    return type("TaskContext", (java,), {"stop": lambda _context: own.end()})


def _refusing(name: str) -> Any:
    def refuse(_context: SparkContext, *_args: Any, **_named: Any) -> None:
        text = f"{name} would change the Spark driver that this task shares"
        raise WorkFailedError(text, FailureReason.UNSUPPORTED, hint=_CURE)

    return refuse
