"""The allow list of consumer properties: names, forms of values, and Kafka's Java names.

Pure. Properties can make the client library run code, read files and send them to addresses, so a
property that is not listed here never reaches a client. Specifications are checked when they are
submitted, and `common.kafka_topic` checks the properties again when it creates a client.

    `TUNING`      allowed for authors, with or without a connection
    `PLACE`       brokers and log-in: given by the author or by a connection
    `CONNECTION`  certificates, keys and addresses: allowed only in a connection
    `NO_EFFECT`   accepted and dropped, because tasks set it themselves or it means nothing here

A *connection* is a data source of type KAFKA, created by an administrator.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from common.cloud_keys import CLOUD_KEYS
from common.destinations import Destinations, destinations, is_host_name

SERVERS: Final = "bootstrap.servers"
ROUTE: Final = frozenset(
    {
        *(SERVERS, "security.protocol", "sasl.mechanism", "sasl.mechanisms", "isolation.level"),
        *("client.id", "client.rack", "max.poll.records"),
    }
)
"""Properties that must not change if a masked secret is to be kept. They are shown in clear."""
_LONGEST: Final = 4096
_LONGEST_PEM: Final = 65_536
_MOST_SERVERS: Final = 100
_DENIED: Final[Destinations] = destinations(allowed=(), denied=CLOUD_KEYS)


class FormError(ValueError):
    """A value does not have the form of its property. The text does not repeat the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number in a range. `other` is one more number, and its replacement for the client."""

    least: int
    most: int
    other: tuple[int, int] | None = None

    def read(self, text: str) -> str:
        number = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
        if number is not None and self.other is not None and number == self.other[0]:
            return str(self.other[1])
        if number is None or not self.least <= number <= self.most:
            raise FormError(f"must be a whole number from {self.least} to {self.most}")
        return str(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of `words`, in upper or lower case; the client gets the spelling in `words`."""

    words: tuple[str, ...]

    def read(self, text: str) -> str:
        found = [each for each in self.words if each.lower() == text.lower()]
        if not found:
            raise FormError(f"must be {' or '.join(self.words)}")
        return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text without control characters. `pattern` restricts it; `about` is the error for that."""

    longest: int = _LONGEST
    pattern: str = ""
    about: str = ""

    def read(self, text: str) -> str:
        if len(text) > self.longest:
            raise FormError(f"must not be longer than {self.longest} characters")
        # Control characters, surrogates, and line and paragraph separators.
        if any(unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} for each in text):
            raise FormError("must not hold control characters")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise FormError(self.about)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """A list of brokers: host or host:port, separated by commas."""

    def read(self, text: str) -> str:
        if not text.strip():
            raise FormError("must name a broker, as in broker:9092")
        listed = [each.strip() for each in text.split(",")]
        if len(text) > _LONGEST or len(listed) > _MOST_SERVERS:
            raise FormError(f"must not name more than {_MOST_SERVERS} brokers")
        for each in listed:
            _check_server(each)
        return ",".join(listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """Certificates or a key as PEM text: the text itself, never a path."""

    def read(self, text: str) -> str:
        body = text.replace("\r\n", "\n").strip()
        if len(body) > _LONGEST_PEM:
            raise FormError(f"must not be longer than {_LONGEST_PEM} characters")
        if not body.startswith("-----BEGIN ") or "-----END " not in body:
            raise FormError("must be PEM text that begins with -----BEGIN, and no path of a file")
        if not all(each == "\n" or " " <= each <= "~" for each in body):
            raise FormError("must be PEM text of printable ASCII characters")
        return body + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """An https:// address without a user."""

    def read(self, text: str) -> str:
        Text().read(text)
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise FormError("must be a URL that begins with https://") from None
        if parts.scheme != "https" or "@" in parts.netloc or " " in text:
            raise FormError("must be a URL that begins with https://, without a user")
        _check_server(f"[{host}]" if ":" in host else host)
        if port == 0:
            raise FormError("must not name the port 0")
        return text


Form: TypeAlias = Whole | Choice | Text | Servers | Pem | Url

_FLAG: Final = Choice(words=("true", "false"))
_BUFFER: Final = Whole(least=0, most=100_000_000, other=(-1, 0))
_NAMES_OF_TLS: Final = Text(
    longest=1000, pattern=r"[A-Za-z0-9_:+!@=.-]+", about="must be a list of names with : in between"
)

TUNING: Final[Mapping[str, Form]] = {
    "client.id": Text(longest=255),
    "client.rack": Text(longest=255),
    "isolation.level": Choice(words=("read_committed", "read_uncommitted")),
    "check.crcs": _FLAG,
    "allow.auto.create.topics": _FLAG,
    "enable.metrics.push": _FLAG,
    "fetch.wait.max.ms": Whole(least=0, most=300_000),
    "fetch.min.bytes": Whole(least=1, most=100_000_000),
    "fetch.max.bytes": Whole(least=0, most=2_147_483_135),
    "message.max.bytes": Whole(least=1000, most=1_000_000_000),
    "fetch.message.max.bytes": Whole(least=1, most=1_000_000_000),
    "fetch.error.backoff.ms": Whole(least=0, most=300_000),
    "fetch.queue.backoff.ms": Whole(least=0, most=300_000),
    "queued.min.messages": Whole(least=1, most=10_000_000),
    "queued.max.messages.kbytes": Whole(least=1, most=2_097_151),
    "socket.timeout.ms": Whole(least=10, most=300_000),
    "socket.connection.setup.timeout.ms": Whole(least=1000, most=2_147_483_647),
    "socket.keepalive.enable": _FLAG,
    "socket.nagle.disable": _FLAG,
    "socket.send.buffer.bytes": _BUFFER,
    "socket.receive.buffer.bytes": _BUFFER,
    "socket.max.fails": Whole(least=0, most=1_000_000),
    "connections.max.idle.ms": Whole(least=0, most=2_147_483_647, other=(-1, 0)),
    "reconnect.backoff.ms": Whole(least=0, most=3_600_000),
    "reconnect.backoff.max.ms": Whole(least=0, most=3_600_000),
    "retry.backoff.ms": Whole(least=1, most=300_000),
    "retry.backoff.max.ms": Whole(least=1, most=300_000),
    "metadata.max.age.ms": Whole(least=1, most=86_400_000),
    "metadata.recovery.strategy": Choice(words=("none", "rebootstrap")),
    "metadata.recovery.rebootstrap.trigger.ms": Whole(least=0, most=2_147_483_647),
    "topic.metadata.refresh.interval.ms": Whole(least=-1, most=3_600_000),
    "topic.metadata.refresh.fast.interval.ms": Whole(least=1, most=60_000),
    "topic.metadata.refresh.sparse": _FLAG,
    "topic.metadata.propagation.max.ms": Whole(least=0, most=3_600_000),
    "broker.address.ttl": Whole(least=0, most=86_400_000),
    "broker.address.family": Choice(words=("any", "v4", "v6")),
    "client.dns.lookup": Choice(
        words=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
    ),
}
PLACE: Final[Mapping[str, Form]] = {
    SERVERS: Servers(),
    "security.protocol": Choice(words=("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
    "sasl.mechanism": Choice(words=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    "sasl.username": Text(),
    "sasl.password": Text(),
    # "https" is the client's default. Only a connection may turn off the check of host names.
    "ssl.endpoint.identification.algorithm": Choice(words=("https",)),
}
CONNECTION: Final[Mapping[str, Form]] = {
    "ssl.ca.pem": Pem(),
    "ssl.certificate.pem": Pem(),
    "ssl.key.pem": Pem(),
    "ssl.key.password": Text(),
    "ssl.cipher.suites": _NAMES_OF_TLS,
    "ssl.curves.list": _NAMES_OF_TLS,
    "ssl.sigalgs.list": _NAMES_OF_TLS,
    "ssl.endpoint.identification.algorithm": Choice(words=("https", "none")),
    "enable.ssl.certificate.verification": _FLAG,
    "https.ca.pem": Pem(),
    "sasl.mechanism": Choice(words=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
    "sasl.oauthbearer.method": Choice(words=("oidc",)),
    "sasl.oauthbearer.client.id": Text(),
    "sasl.oauthbearer.client.secret": Text(),
    "sasl.oauthbearer.scope": Text(),
    "sasl.oauthbearer.extensions": Text(),
    "sasl.oauthbearer.token.endpoint.url": Url(),
}
FROM_AUTHORS: Final[Mapping[str, Form]] = {**TUNING, **PLACE}
FROM_CONNECTIONS: Final[Mapping[str, Form]] = {**TUNING, **PLACE, **CONNECTION}

JAVA_NAMES: Final[Mapping[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""The client's names by the names in the Java client, and by an alias."""

JAAS: Final = "sasl.jaas.config"
"""A log-in in Java's form; `common.model.streams.consumer` reads the user and password in it."""

NO_EFFECT: Final = frozenset(
    {
        # Tasks set these themselves.
        *("group.id", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
        *("auto.offset.reset", "auto.commit.interval.ms", "key.deserializer", "value.deserializer"),
        # Consumers form no group.
        *("group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms"),
        *("session.timeout.ms", "max.poll.interval.ms", "max.poll.records"),
        *("partition.assignment.strategy", "exclude.internal.topics"),
        *("group.protocol.type", "share.acknowledgement.mode", "share.acquire.mode"),
        # Limits of Java's threads and metrics, which do not exist in the client.
        *("default.api.timeout.ms", "request.timeout.ms", "socket.connection.setup.timeout.max.ms"),
        *("auto.include.jmx.reporter", "metrics.num.samples", "metrics.recording.level"),
        "metrics.sample.window.ms",
        # Names of Java components; the client has built-in ones.
        *("ssl.protocol", "ssl.trustmanager.algorithm", "ssl.keymanager.algorithm"),
        "ssl.secure.random.implementation",
        # The timing of token renewals in Java.
        *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"),
        *("sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds"),
        *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter"),
        *("sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms"),
    }
)
_SHOWN_NAME: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)
_IN_CONNECTION: Final = (
    "have an administrator put certificates and keys as PEM text, and addresses, into a connection"
    " (`orcaflow datasource create NAME --type kafka`), and give its NAME as ioConfig.connection"
)
_REASONS: Final = (
    # The first match counts.
    (r".*kerberos.*", "the client has no Kerberos", "use SCRAM, or OAUTHBEARER by a connection"),
    (r"plugin\..*", "it loads a library into the process", "remove it"),
    (r"(debug|log.*|statistics\..*)", "it makes the client write", "remove it"),
    (
        r".*(callback|interceptor|provider|reporter|_cb\b|\.class(es)?\b|\.factory).*",
        "it names code, which is not loaded",
        "remove it",
    ),
    (r"ssl\.engine\..*", "it names code, which is not loaded", "remove it"),
    (
        r"ssl\.enabled\.protocols",
        "the client negotiates the newest protocol that it has in common with the broker",
        "remove it",
    ),
    (
        r"(ssl|https|enable\.ssl)\..*|.*(oauthbearer|endpoint|keystore|truststore|keytab).*",
        "it names a file, a key or an address",
        _IN_CONNECTION,
    ),
    (
        r".*\.(location|file|path|dir|url|pem)s?",
        "it names a file, a key or an address",
        _IN_CONNECTION,
    ),
)


def shown_name(name: str) -> str:
    """Return the name of a property in a form that is safe in messages."""
    return name if _SHOWN_NAME.fullmatch(name) else ascii(name[:60])


def client_name(name: str) -> str:
    """Return the client's name for a property."""
    return JAVA_NAMES.get(name, name)


def form_of(name: str, *, in_connection: bool) -> Form | None:
    """Return the form of a property's value; None if the property is not allowed here."""
    known = FROM_CONNECTIONS if in_connection else FROM_AUTHORS
    return known.get(client_name(name))


def refusal_of(name: str, *, in_connection: bool = False) -> str:
    """Return the reason why a property is not allowed, and the remedy."""
    if not in_connection and client_name(name) in CONNECTION:
        return f"is not allowed: it names a file, a key or an address; {_IN_CONNECTION}"
    if in_connection and re.fullmatch(r".*\.location|.*(keystore|truststore)\..*", name):
        return (
            "is not allowed: no daemon reads a file that is named here; give PEM text as"
            " ssl.ca.pem, ssl.certificate.pem or ssl.key.pem"
        )
    for pattern, reason, cure in _REASONS:
        if re.fullmatch(pattern, name) and not (in_connection and cure is _IN_CONNECTION):
            return f"is not allowed: {reason}; {cure}"
    known = FROM_CONNECTIONS if in_connection else FROM_AUTHORS
    near = difflib.get_close_matches(name[:100], [*known, *JAVA_NAMES], n=1, cutoff=0.8)
    cure = f"did you mean {near[0]}?" if near else "remove it (docs/streams.md lists those allowed)"
    return f"is not a property that a consumer may have here; {cure}"


def read_value(name: str, text: str, *, in_connection: bool = False) -> str:
    """Return a value in the client's form; `FormError` for a refused name or value."""
    form = form_of(name, in_connection=in_connection)
    if form is None:
        raise FormError(refusal_of(name, in_connection=in_connection))
    return form.read(text)


def conflicts(given: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield properties that the client would refuse in this combination, with the reason.

    `given` has the client's names; None is an unknown value.
    """
    protocol, mechanism = given.get("security.protocol", ""), given.get("sasl.mechanism", "")
    if protocol is not None and protocol.startswith("sasl"):
        if mechanism == "":
            yield "sasl.mechanism", f"is missing; security.protocol {protocol} needs it"
        elif mechanism == "OAUTHBEARER":
            for name in ("method", "client.id", "client.secret", "token.endpoint.url"):
                if given.get(f"sasl.oauthbearer.{name}", "") == "":
                    yield f"sasl.oauthbearer.{name}", "is missing; OAUTHBEARER needs it"
        else:
            for name in ("sasl.username", "sasl.password"):
                if given.get(name, "") == "":
                    yield name, f"is missing; security.protocol {protocol} needs it"
    shortest, longest = given.get("reconnect.backoff.ms", "100"), "reconnect.backoff.max.ms"
    most = given.get(longest, "10000")
    if shortest is not None and most is not None and int(most) < int(shortest):
        yield longest, f"must be reconnect.backoff.ms ({shortest}) or more"
    largest, most = given.get("message.max.bytes", "1000000"), given.get("fetch.max.bytes")
    if largest is not None and most is not None and int(most) < int(largest):
        yield "fetch.max.bytes", f"must be message.max.bytes ({largest}) or more"
    if bool(given.get("ssl.key.pem", "")) != bool(given.get("ssl.certificate.pem", "")):
        yield "ssl.certificate.pem", "and ssl.key.pem need one another"


def _check_server(text: str) -> None:
    """Check one broker; the `FormError` does not repeat the address."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]{2,45}\]|[^\[\]:/@\s]{1,253})(?::([0-9]{1,5}))?", text)
    if match is None or (match[2] is not None and not 0 < int(match[2]) < 65_536):
        raise FormError("must be a list of host:port, as broker-1:9092,broker-2:9092")
    host = match[1].strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # Resolvers also accept 0xa9fea9fe and 2852039166 as addresses.
        last = host.rstrip(".").rpartition(".")[2].lower()
        if match[1].startswith("[") or not is_host_name(host) or re.fullmatch(r"0x\w*", last):
            raise FormError("must name hosts or addresses, as broker-1:9092") from None
        return
    if _DENIED.is_denied(host):
        raise FormError("must not name an address at which clouds give keys away")
    if ipaddress.ip_address(host).is_multicast or ipaddress.ip_address(host).is_unspecified:
        raise FormError("must not name an address that no single host has")
