"""Properties of a Kafka consumer: from those of Java's client, which specifications have, to ours.

Pure. `librdkafka` knows most of them by the same names. Secrets that stand in the environment of
the process are put in here, so the result is never shown or stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from common.errors import SchedulerError
from common.model.streams.spec import EnvironmentSecret

_JAAS: Final = "sasl.jaas.config"
_JAAS_OPTION: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_LOGIN: Final = re.compile(r"\.(Plain|Scram)LoginModule\b")
_FILES_OF_JAVA: Final = ("ssl.truststore.", "ssl.keystore.")
_OF_JAVA_ALONE: Final = frozenset(
    {
        "key.deserializer",
        "value.deserializer",
        "partition.assignment.strategy",
        "interceptor.classes",
        "metric.reporters",
        "max.poll.records",
        "default.api.timeout.ms",
        "request.timeout.ms",
        "exclude.internal.topics",
        "druid.dynamic.config.provider",
    }
)
"""Properties without an equal here, and without an effect on what is read."""


class ConsumerPropertyError(SchedulerError):
    """A consumer can't be made of these properties. The text names the cure, and no secret."""


def librdkafka_properties(
    consumer: Mapping[str, str | EnvironmentSecret], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties for `librdkafka`, with secrets."""
    found: dict[str, str] = {}
    for name, given in consumer.items():
        if name in _OF_JAVA_ALONE:
            continue
        if name.startswith(_FILES_OF_JAVA):
            raise ConsumerPropertyError(
                f"consumerProperties.{name} is a file of Java's; give certificates and keys as PEM:"
                " ssl.ca.location, ssl.certificate.location, ssl.key.location"
            )
        value = _value(name, given, environment)
        if name == _JAAS:
            found.update(_login(value))
        else:
            found["sasl.mechanism" if name == "sasl.mechanisms" else name] = value
    return found


def _value(name: str, given: str | EnvironmentSecret, environment: Mapping[str, str]) -> str:
    if not isinstance(given, EnvironmentSecret):
        return given
    value = environment.get(given.variable)
    if value is None:
        raise ConsumerPropertyError(
            f"consumerProperties.{name} stands in the environment variable {given.variable}, which"
            " this daemon does not have: set it where it is started"
        )
    return value


def _login(text: str) -> dict[str, str]:
    if _LOGIN.search(text) is None:
        raise ConsumerPropertyError(
            f"consumerProperties.{_JAAS} is supported for PlainLoginModule and ScramLoginModule"
            " alone; give sasl.mechanism, sasl.username and sasl.password instead"
        )
    options = {name: value.replace('\\"', '"') for name, value in _JAAS_OPTION.findall(text)}
    if options.keys() != {"username", "password"}:
        raise ConsumerPropertyError(
            f"consumerProperties.{_JAAS} needs username and password, each in double quotes"
        )
    return {f"sasl.{name}": options[name] for name in ("username", "password")}
