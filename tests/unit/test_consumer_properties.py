"""The allow list of consumer properties, at submission and when a client is created."""

from __future__ import annotations

from typing import Any

import pytest

from common.errors import InvalidSpecError
from common.kafka_topic import StreamAwayError, Topic
from common.model.streams import properties as listed
from common.model.streams.consumer import (
    ClientProperties,
    ConsumerPropertyError,
    connection_properties,
    librdkafka_properties,
    read_properties,
)
from common.model.streams.properties import Whole
from common.model.streams.reading import Rules, read_spec
from common.model.streams.spec import EnvironmentSecret, SupervisorSpec
from orcaflow.spouts import KafkaSpout
from tests.reference.java_consumer import HOSTILE, JAVA, PASSED, WITHOUT_EFFECT
from tests.unit.stream_specs import SMALL, changed

IO = "spec.ioConfig"
SECRET = "hunter2"
SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
LOG_IN = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": SECRET,
}


def with_properties(given: dict[str, Any]) -> dict[str, Any]:
    return changed(SMALL, f"{IO}.consumerProperties", given)


def mistakes(given: dict[str, Any], rules: Rules | None = None) -> tuple[str, ...]:
    try:
        read_spec(with_properties(given), rules=rules)
    except InvalidSpecError as error:
        found = error.mistakes
    else:
        return ()
    assert SECRET not in " ".join(found)
    return found


def make_client(given: ClientProperties) -> None:
    Topic("events", given, has_log=False).close()


def fitting(name: str) -> dict[str, str]:
    """Return the other properties that a property of Java's consumer needs."""
    if name == "bootstrap.servers":
        return {}
    if name == "sasl.jaas.config":
        return {**SERVERS, "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}
    if name in ("sasl.mechanism", "security.protocol"):
        return {**SERVERS, **LOG_IN}
    return dict(SERVERS)


@pytest.mark.parametrize("name", JAVA)
def test_each_property_of_java_s_consumer_works_or_is_refused_when_it_is_submitted(
    name: str,
) -> None:
    given = {**fitting(name), name: JAVA[name]}
    place = f"{IO}.consumerProperties.{name}"
    if name not in PASSED | WITHOUT_EFFECT:
        (mistake,) = mistakes(given)
        assert mistake.startswith(f"{place}: is not ")
        assert "; " in mistake  # The remedy follows the reason.
        return
    read = read_spec(with_properties(given))
    assert isinstance(read.spec, SupervisorSpec)
    assert (place in read.ignored) is (name in WITHOUT_EFFECT)
    make_client(librdkafka_properties(read.spec.io.consumer, {}))


def test_all_of_java_s_properties_at_once_are_reported_at_once() -> None:
    refused = JAVA.keys() - PASSED - WITHOUT_EFFECT
    found = mistakes({**JAVA, "sasl.mechanism": "PLAIN"})
    assert {each.partition(": ")[0] for each in found} == {
        f"{IO}.consumerProperties.{name}" for name in refused
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_property_is_refused_by_name_x31(name: str) -> None:
    (mistake,) = mistakes({**SERVERS, name: HOSTILE[name]})
    assert "\n" not in mistake
    assert "\0" not in mistake
    assert mistakes({**SERVERS, name: {"type": "environment", "variable": "A"}})
    assert mistakes({**SERVERS, name: {"type": "default", "password": HOSTILE[name]}})
    with pytest.raises(ConsumerPropertyError):
        KafkaSpout("t", "broker:9092", properties={name: HOSTILE[name]})
    with pytest.raises(ConsumerPropertyError):
        librdkafka_properties({**SERVERS, name: HOSTILE[name]}, {})
    with pytest.raises(ConsumerPropertyError):
        librdkafka_properties({**SERVERS, name: EnvironmentSecret(variable="A")}, {"A": "x"})
    # `Topic` checks too, because its callers may not have checked.
    with pytest.raises(StreamAwayError, match="consumerProperties"):
        Topic("events", ClientProperties(given={**SERVERS, name: HOSTILE[name]}))


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("fetch.min.bytes", "1; rm -rf", "from 1 to 100000000"),
        ("fetch.min.bytes", 0, "from 1 to 100000000"),
        ("fetch.min.bytes", 1.5, "whole number"),
        ("fetch.min.bytes", "１", "whole number"),
        ("fetch.min.bytes", None, "must be a text"),
        ("check.crcs", "perhaps", "true or false"),
        ("isolation.level", "serializable", "read_committed or read_uncommitted"),
        ("security.protocol", "tls", "plaintext or ssl"),
        ("sasl.mechanism", "GSSAPI", "PLAIN or SCRAM-SHA-256"),
        ("sasl.mechanism", "OAUTHBEARER", "PLAIN or SCRAM-SHA-256"),
        ("ssl.endpoint.identification.algorithm", "none", "must be https"),
        ("ssl.endpoint.identification.algorithm", "", "must be https"),
        ("client.id", "a\nb", "control characters"),
        ("client.id", "a\x85b", "control characters"),
        ("client.id", "a" * 256, "longer than 255"),
        ("sasl.password", f"{SECRET}\0", "control characters"),
        ("bootstrap.servers", "", "as in broker:9092"),
        ("bootstrap.servers", "a b:9092", "host:port"),
        ("bootstrap.servers", "a:0", "host:port"),
        ("bootstrap.servers", "a:99999", "host:port"),
        ("bootstrap.servers", "a,,b", "host:port"),
        ("bootstrap.servers", "SSL://a:9092", "host:port"),
        ("bootstrap.servers", "u@a:9092", "host:port"),
        ("bootstrap.servers", "[::1:9092", "host:port"),
        ("bootstrap.servers", "2852039166:80", "hosts or addresses"),
        ("bootstrap.servers", "0xa9fea9fe:80", "hosts or addresses"),
        ("bootstrap.servers", "169.254.169.254:80", "clouds give keys away"),
        ("bootstrap.servers", "[::ffff:169.254.169.254]:80", "clouds give keys away"),
        ("bootstrap.servers", "broker:9092,[fe80::1]:80", "clouds give keys away"),
        ("bootstrap.servers", "0.0.0.0:9092", "no single host"),
        ("bootstrap.servers", ",".join(["a"] * 101), "more than 100 brokers"),
        ("sasl.jaas.config", f"Krb5LoginModule required password={SECRET}", "sasl.username"),
        ("sasl.jaas.config", f'x.PlainLoginModule required password="{SECRET}"', "double quotes"),
        ("fetch.max.bytes", 5, r"message.max.bytes \(1000000\) or more"),
        ("reconnect.backoff.ms", 20_000, r"reconnect.backoff.ms \(20000\) or more"),
    ],
)
def test_a_value_of_another_form_is_refused_and_not_shown(name: str, value: Any, hint: str) -> None:
    found = mistakes({**SERVERS, name: value})
    assert len(found) == 1
    assert pytest.raises(AssertionError, match=hint).matches(AssertionError(found[0]))
    if isinstance(value, str) and len(value) > 4:
        assert value not in found[0]


@pytest.mark.parametrize(
    "servers",
    ["127.0.0.1:9092", "localhost", "[::1]:9092", "b:1, c.example.org:2", "10.0.0.7", "_dmz.b:1"],
)
def test_brokers_of_private_networks_and_of_this_computer_are_allowed(servers: str) -> None:
    assert mistakes({"bootstrap.servers": servers}) == ()
    make_client(librdkafka_properties({"bootstrap.servers": servers}, {}))


def test_a_log_in_that_is_not_complete_is_refused() -> None:
    given = {**SERVERS, "security.protocol": "SASL_SSL"}
    assert "sasl.mechanism: is missing" in mistakes(given)[0]
    given["sasl.mechanism"] = "PLAIN"
    assert [each.rpartition("properties.")[2].partition(":")[0] for each in mistakes(given)] == [
        f"{IO}.consumerProperties.sasl.username",
        f"{IO}.consumerProperties.sasl.password",
    ]
    both = {**given, **LOG_IN, "sasl.mechanisms": "PLAIN"}
    assert "sasl.mechanism too" in " ".join(mistakes(both))
    assert mistakes({**SERVERS, **LOG_IN}) == ()


@pytest.mark.parametrize(
    "name", [name for name, form in listed.TUNING.items() if isinstance(form, Whole)]
)
def test_the_client_takes_both_ends_of_each_range(name: str) -> None:
    form = listed.TUNING[name]
    assert isinstance(form, Whole)
    beside = {
        "reconnect.backoff.ms": {"reconnect.backoff.max.ms": "3600000"},
        "reconnect.backoff.max.ms": {"reconnect.backoff.ms": "0"},
        "fetch.max.bytes": {"message.max.bytes": "1000", "fetch.max.bytes": "1000"},
        "message.max.bytes": {"fetch.max.bytes": "1000000000"},
    }.get(name, {})
    for number in (form.least, form.most):
        given = {**SERVERS, name: str(number), **beside}
        assert mistakes(given) == ()
        make_client(librdkafka_properties(given, {}))


def test_a_variable_has_to_be_in_the_setting_x34() -> None:
    secret = {"type": "environment", "variable": "KAFKA_PASSWORD"}
    given = {**SERVERS, **LOG_IN, "sasl.password": secret}
    (mistake,) = mistakes(given, Rules(variables=()))
    assert "KAFKA_PASSWORD, which is not in the setting stream_variables" in mistake
    assert mistakes(given, Rules(variables=("KAFKA_PASSWORD",))) == ()
    for variable in ("ORCAFLOW_DATABASE__URL", "pgpassword", "A B", "", "A=B", "A\n"):
        wrong = {"type": "environment", "variable": variable}
        given = {**SERVERS, **LOG_IN, "sasl.password": wrong}
        assert "does not begin with" in mistakes(given, Rules(variables=(variable,)))[0]


def test_a_connection_has_the_brokers_and_the_log_in_and_an_author_only_the_rest_x32() -> None:
    document = with_properties({**SERVERS, **LOG_IN, "fetch.min.bytes": 5})
    document["spec"]["ioConfig"]["connection"] = "events"
    with pytest.raises(InvalidSpecError) as caught:
        read_spec(document)
    assert len(caught.value.mistakes) == 5
    assert all("beside a connection" in each for each in caught.value.mistakes)
    connection = connection_properties({**SERVERS, **LOG_IN})
    with pytest.raises(ConsumerPropertyError, match=r"bootstrap.servers must not be given beside"):
        librdkafka_properties({"bootstrap.servers": "evil:9092"}, {}, connection=connection)
    with pytest.raises(StreamAwayError, match="beside a connection"):
        Topic("events", ClientProperties(given={"sasl.username": "x"}, connection=connection))
    good = librdkafka_properties({"fetch.min.bytes": "5"}, {}, connection=connection)
    assert good.servers == "127.0.0.1:1"
    assert ClientProperties.of(good.document()) == good
    make_client(good)


def test_a_connection_has_no_file_and_no_code_either() -> None:
    for name, value in HOSTILE.items():
        if name in listed.FROM_CONNECTIONS:
            continue
        read = read_properties({**SERVERS, name: value}, in_connection=True)
        assert [problem for _, problem in read.mistakes] != []
        with pytest.raises(StreamAwayError):
            Topic("e", ClientProperties(given={}, connection={**SERVERS, name: value}))
    for name, value in (
        ("ssl.ca.pem", "/etc/shadow"),
        ("sasl.oauthbearer.token.endpoint.url", "http://login.example.org/"),
        ("sasl.oauthbearer.token.endpoint.url", "file:///etc/shadow"),
        ("sasl.oauthbearer.token.endpoint.url", "https://169.254.169.254/"),
        ("sasl.oauthbearer.token.endpoint.url", "https://u:p@login.example.org/"),
    ):
        assert read_properties({**SERVERS, name: value}, in_connection=True).mistakes
