"""Kafka itself as one process, broker and controller in one (KRaft): its jars, its start, its kill.

Maven fetches the jars of `pom.xml` once, into the account's cache. Before each use they are compared
with `jars.sha256`: others are an error. Where they can't be had, the tests are left out and say so
in one line; with `ORCAFLOW_KAFKA=required` they fail instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from common.ports import LOOPBACK, free_port

USER: Final = "reader"
PASSWORD: Final = "hunter2-sasl"  # Of a broker that lives for a test.

_HERE: Final = Path(__file__).parent
_DIGESTS: Final = _HERE / "jars.sha256"
_IS_REQUIRED: Final = os.environ.get("ORCAFLOW_KAFKA") == "required"
_FETCH_SECONDS: Final = 240
_START_SECONDS: Final = 120.0
_CLUSTER: Final = "orcaflow-tests-0000000"
_JAVA: Final = (
    "java",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.apache.logging.log4j.level=ERROR",
)
_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listeners=PLAIN://{host}:{plain},SECURE://{host}:{secure},CONTROLLER://{host}:{controller}
advertised.listeners=PLAIN://{host}:{plain},SECURE://{host}:{secure}
listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/keystore.pem
log.dirs={folder}/log
log.retention.check.interval.ms=200
log.initial.task.delay.ms=200
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class UnavailableError(Exception):
    """Kafka can't be had here; the text says why."""


class Kafka:
    """A cluster of one node, in a folder of its own."""

    def __init__(self, libraries: Path, folder: Path) -> None:
        plain = free_port()
        secure = free_port((plain,))
        controller = free_port((plain, secure))
        self._folder = folder
        self._java = (*_JAVA, "-cp", f"{libraries}/*")
        self._settings = folder / "server.properties"
        self._settings.write_text(
            _PROPERTIES.format(
                host=LOOPBACK,
                plain=plain,
                secure=secure,
                controller=controller,
                folder=folder,
                user=USER,
                password=PASSWORD,
            )
        )
        self.certificate = folder / "certificate.pem"
        _certify(self.certificate, folder / "keystore.pem")
        self.servers = f"{LOOPBACK}:{plain}"
        self.secure_servers = f"{LOOPBACK}:{secure}"
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            (
                *(*self._java, "kafka.tools.StorageTool", "format"),
                *("--cluster-id", _CLUSTER, "--config", str(self._settings)),
            ),
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        """Start it; it answers on return."""
        assert self._process is None
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                (*self._java, "kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                if self.admin().list_topics(timeout=1).brokers:
                    return
            except KafkaException as error:
                said = (self._folder / "server.log").read_text(errors="replace")[-2_000:]
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"Kafka does not answer: {error}\n{said}") from error

    def kill(self) -> None:
        """Kill it (-9), wherever it is."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic; the settings' names have _ for dots."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()

    def produce(self, topic: str, values: Sequence[bytes], partition: int = 0, **more: Any) -> None:
        """Append records to a partition; all are acknowledged on return."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all"})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(60) == 0


@contextmanager
def a_kafka(folder: Path) -> Iterator[Kafka]:
    """The broker of a module of tests, which are left out without one."""
    try:
        libraries = _libraries()
    except UnavailableError as error:
        if _IS_REQUIRED:
            pytest.fail(str(error))
        pytest.skip(str(error))
    kafka = Kafka(libraries, folder)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.kill()


def _libraries() -> Path:
    """Return the folder with the jars, which are those that `jars.sha256` names and no others."""
    digests = _digests()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orcaflow"
    # Other jars have another folder.
    named = hashlib.sha256(_DIGESTS.read_bytes()).hexdigest()[:16]
    place = cache / f"kafka-{named}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="kafka-fetched-") as made:
            fetched = Path(made, "jars")
            _fetch(fetched, Path(made, "repository"))
            _compare(fetched, digests)
            try:
                fetched.rename(place)
            except OSError:
                # Another run has been faster.
                assert place.is_dir()
    _compare(place, digests)
    return place


def _digests() -> dict[str, str]:
    lines = [line.split() for line in _DIGESTS.read_text(encoding="ascii").splitlines()]
    return {name: digest for digest, name in lines}


def _compare(folder: Path, digests: dict[str, str]) -> None:
    found = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()}
    wrong = sorted(name for name in {*found, *digests} if found.get(name) != digests.get(name))
    assert not wrong, f"not those of {_DIGESTS.name}: {', '.join(wrong)} in {folder}; remove it"


def _fetch(folder: Path, repository: Path) -> None:
    left_out = "so nothing is tested with Kafka itself"
    if shutil.which("mvn") is None:
        raise UnavailableError(f"no Maven, {left_out}; apt-get install maven")
    command = (
        *("mvn", "-B", "-q", "-f", str(_HERE / "pom.xml"), f"-Dmaven.repo.local={repository}"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
    )
    try:
        ran = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(
            f"Maven has not fetched Kafka within {_FETCH_SECONDS} s, {left_out}"
        ) from None
    if ran.returncode:
        said = next((line for line in ran.stdout.splitlines() if "ERROR" in line), "")
        raise UnavailableError(f"Maven can't fetch Kafka, {left_out}: {said[:300]}")


def _certify(certificate: Path, keystore: Path) -> None:
    """Make a certificate that vouches for itself, and a file of it and its key."""
    key = keystore.with_name("key.pem")
    subprocess.run(
        (
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{LOOPBACK}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ),
        check=True,
        capture_output=True,
    )
    keystore.write_text(key.read_text() + certificate.read_text())
