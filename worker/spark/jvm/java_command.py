"""The command that starts a JVM of Spark's: `java` itself, without the scripts around it.

`spark-submit` is two shells and a JVM that prints the command of the JVM that is wanted. What that
one prints depends on the installation and on few settings, so it is asked once and remembered;
nothing of it is known here. The class path is put into an order that a class-data archive can be
used with (`worker/spark/jvm/cds_archive.py`). Settings go into a file that this account alone can
read, never into argv. Standard library only; it starts the launcher, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from common import caches
from common.masking import is_secret
from common.model.retry_policy import megabytes_in
from worker.spark.jvm import cds_archive, properties
from worker.spark.jvm.installation import home_of_spark, scratch_option

PYTHON_DRIVER: Final = ("pyspark-shell",)
"""The arguments of SparkSubmit for a driver whose code is in this Python process."""

_LOG_CONFIGURATION = Path(__file__).resolve().with_name("log4j2.properties")
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER = "org.apache.spark.launcher.Main"
_LAUNCHER_SECONDS = 60
_SCRIPT_SECONDS = 60.0
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
# The only settings that the launcher looks at.
_FOR_LAUNCHER = (
    "spark.driver.memory",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    *_JAVA_OPTIONS,
)
_FILES_FOR_LAUNCHER = ("spark-defaults.conf", "java-opts")
_VARIABLES_FOR_LAUNCHER = (
    "HADOOP_CONF_DIR",
    "JAVA_HOME",
    "LD_LIBRARY_PATH",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_DRIVER_MEMORY",
    "SPARK_MEM",
    "SPARK_PREPEND_CLASSES",
    "SPARK_SCALA_VERSION",
    "SPARK_SUBMIT_OPTS",
    "YARN_CONF_DIR",
)
# C2 compiles what a start-up, or the planning of a small query, runs often, and by that keeps a
# core busy that the work needs: the compilers take half of the time of a server's first tasks. So
# it waits until a method has run twenty times as often as it would else, or ten times for a loop:
# still only milliseconds of a long job. Whoever sets these options differently wins, for theirs
# come later.
LATE_C2 = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# The collector that takes least of the time, as long as the heap is small: its pauses grow with it.
_BATCH_GC = "-XX:+UseParallelGC"
_SMALL_HEAP_MB = 4 * 1024
_CHOSEN_GC = re.compile(r"-XX:\+Use\w*GC\b")
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
# What `spark-submit` does too: it may set anything for what is started.
_SOURCE_SPARK_ENV = 'set -a; . "$1" >&2; set +a; exec env -0'


class NoSparkError(Exception):
    """There is no Spark, or no Java, that could be started; the text says what to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command of a JVM."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it, not only what is to be added."""
    archive: Path | None
    """The class-data archive that it uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The command of any JVM of an installation, up to the main class, as the launcher says it."""

    java: str
    class_path: tuple[str, ...]
    options: tuple[str, ...]
    variables: Mapping[str, str]
    """The variables that it adds to the environment."""


def command(
    application: Sequence[str],
    *,
    conf: Mapping[str, str],
    properties_file: Path,
    home: str = "",
    environment: Mapping[str, str] | None = None,
    archived: Callable[[str, str], cds_archive.Archive | None] = cds_archive.find,
    quick: bool = False,
    scratch: Path | None = None,
) -> Command:
    """The command that has `SparkSubmit` run an application with these settings.

    They are put into `properties_file`, a new one, which may go when the JVM has begun to speak.
    `archived` says what archive of classes a home and a Java have. `quick` is for a JVM that
    somebody waits for, and reads the log of. `scratch` is a folder for its temporary files, which
    would else stay in the system's. Raises `NoSparkError`, or `OSError` for the file.
    """
    surroundings = dict(os.environ if environment is None else environment)
    home = home or home_of_spark("", surroundings)
    if not home:
        raise NoSparkError("there is no Spark: install pyspark, or set SPARK_HOME")
    surroundings = _with_spark_env(home, surroundings)
    template = template_of(home, conf, surroundings)
    options = [*([scratch_option(scratch)] if scratch else []), *LATE_C2, *template.options]
    if quick:
        options += [*_of_heap(options, surroundings), *_of_log(options, surroundings)]
    found = archived(home, template.java)
    path = cds_archive.class_path(home, template.class_path, found, surroundings)
    if found is not None and path is not None:
        options += found.flags()
    if any(key in conf for key in _JAVA_OPTIONS):
        options = [_beside(properties_file, options)]
    _write(properties_file, conf)
    argv = (
        template.java,
        "-cp",
        os.pathsep.join(path or template.class_path),
        *options,
        _SUBMIT,
        "--properties-file",
        str(properties_file),
        "--load-spark-defaults",
        *application,
    )
    return Command(
        argv=argv,
        environment={**surroundings, **template.variables},
        archive=found.file if found is not None and path is not None else None,
    )


def _of_heap(options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The collector for a small heap, unless somebody has chosen one."""
    elsewhere = (environment.get(name, "") for name in _JAVA_VARIABLES)
    if any(_CHOSEN_GC.search(text) for text in (*options, *elsewhere)):
        return []
    sizes = [megabytes_in(each.removeprefix("-Xmx")) for each in options if each[:4] == "-Xmx"]
    is_small = bool(sizes) and sizes[-1] is not None and sizes[-1] <= _SMALL_HEAP_MB
    return [_BATCH_GC] if is_small else []


def _of_log(options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the options that make the log short, unless somebody has configured it."""
    folders = [environment.get(name, "") for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR")]
    chosen = any(folder and any(Path(folder).glob("log4j*")) for folder in folders)
    if chosen or any("log4j" in option for option in options):
        return []
    return [f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}"]


def options_file(properties_file: Path) -> Path:
    """The file beside that of the settings that options of the JVM may stand in."""
    return properties_file.with_suffix(".jvm")


def java_of(environment: Mapping[str, str]) -> str:
    """The Java that Spark's scripts would start. Raises `NoSparkError`."""
    home = environment.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    if not found or not os.access(found, os.X_OK):
        where = f"{home}/bin (JAVA_HOME)" if home else "PATH"
        raise NoSparkError(f"there is no java in {where}: install Java 17 or 21, or set JAVA_HOME")
    return found


def template_of(home: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> Template:
    """Return the launcher's answer, from the cache if it is there. Raises `NoSparkError`."""
    asked = {key: conf[key] for key in _FOR_LAUNCHER if key in conf}
    if any(is_secret(asked.get(key, "")) for key in _JAVA_OPTIONS):
        return _ask(home, asked, environment)  # That is kept on no disk.
    folder = caches.folder(home)
    if folder is None:
        return _ask(home, asked, environment)
    path = folder / f"launch-{_digest(home, asked, environment)}.json"
    known = _read(path, home)
    if known is None:
        known = _ask(home, asked, environment)
        caches.put(path, json.dumps(asdict(known)), private=True)
    return known


def _ask(home: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> Template:
    """Have Spark's own launcher print the command."""
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory, "launcher.properties")
        _write(settings, conf)
        argv = [
            java_of(environment),
            "-Xmx128m",
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{home}/jars/*",
            _LAUNCHER,
            _SUBMIT,
            "--properties-file",
            str(settings),
            "--load-spark-defaults",
            *PYTHON_DRIVER,
        ]
        try:
            done = subprocess.run(
                argv,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LAUNCHER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSparkError(f"the Java of {home} can't be started: {error}") from error
    words = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    try:
        return _parsed(words)
    except ValueError as error:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[0] if said else f"exit code {done.returncode}"
        raise NoSparkError(f"Spark's launcher in {home} doesn't say how to start it: {why}") from (
            error
        )


def _parsed(words: Sequence[str]) -> Template:
    """Read `[env, NAME=VALUE…,] java, -cp, PATH, option…, main class, …`; else `ValueError`."""
    begin = next((n for n, word in enumerate(words) if word.strip()), 0)
    rest = list(words[begin:])
    variables = {}
    if rest and rest[0].strip() == "env":
        rest.pop(0)
        while "=" in rest[0]:
            name, _, value = rest.pop(0).partition("=")
            variables[name] = value
    main = rest.index(_SUBMIT)
    at = rest.index("-cp")
    class_path = tuple(each for each in rest[at + 1].split(os.pathsep) if each)
    return Template(
        java=rest[0].strip(),
        class_path=class_path,
        options=(*rest[1:at], *rest[at + 2 : main]),
        variables=variables,
    )


def _with_spark_env(home: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as the scripts of the installation would have it."""
    surroundings = {"SPARK_CONF_DIR": f"{home}/conf", **environment, "SPARK_HOME": home}
    # This alone selects the classic one of two Sparks that share their class names.
    surroundings["SPARK_CONNECT_MODE"] = "0"
    script = Path(surroundings["SPARK_CONF_DIR"], "spark-env.sh")
    if script.is_file():
        try:
            done = subprocess.run(
                ["bash", "-c", _SOURCE_SPARK_ENV, "bash", str(script)],
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_SCRIPT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            took = f"{script} takes longer than {_SCRIPT_SECONDS:g} seconds"
            raise NoSparkError(f"{took}: it should only set variables") from error
        pairs = (each.partition("=") for each in os.fsdecode(done.stdout).split("\0") if each)
        surroundings = {name: value for name, _, value in pairs} or surroundings
        surroundings.setdefault("SPARK_CONF_DIR", str(script.parent))
    # The launcher looks for the folders of a build if nobody names one.
    surroundings.setdefault("SPARK_SCALA_VERSION", _scala_version(home))
    return surroundings


def _scala_version(home: str) -> str:
    names = (name for name, *_ in cds_archive.jars_of(home))
    found = (re.fullmatch(r"spark-core_([0-9.]+)-.*\.jar", name) for name in names)
    return next((each[1] for each in found if each is not None), "2.13")


def _digest(home: str, conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    known = [
        home,
        java_of(environment),
        sorted(conf.items()),
        [environment.get(name) for name in _VARIABLES_FOR_LAUNCHER],
        [_stamp(Path(environment["SPARK_CONF_DIR"], name)) for name in _FILES_FOR_LAUNCHER],
        cds_archive.jars_of(home),
    ]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]


def _stamp(path: Path) -> list[int]:
    try:
        about = path.stat()
    except OSError:
        return []
    return [about.st_size, about.st_mtime_ns]


def _read(path: Path, home: str) -> Template | None:
    try:
        found = json.loads(caches.read(path, home))
        return Template(
            java=found["java"],
            class_path=tuple(found["class_path"]),
            options=tuple(found["options"]),
            variables=found["variables"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _beside(properties_file: Path, options: Sequence[str]) -> str:
    """The argument that has the JVM read its options from a file, as they may hold a password."""
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in options)
    path = options_file(properties_file)
    _write_text(path, "".join(f'"{each}"\n' for each in quoted))
    return f"@{path}"


def _write(path: Path, conf: Mapping[str, str]) -> None:
    _write_text(path, properties.rendered(conf))


def _write_text(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)
