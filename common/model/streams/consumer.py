"""Properties of a Kafka consumer: from those of Java's client, which specifications have, to ours.

Pure. `librdkafka` knows most of them by the same names. Secrets that stand in the environment of
the process are put in here, so the result is never shown or stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

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


OWN_VARIABLES: Final = ("ORCAFLOW_", "PG")
"""Of daemons: the database's password may stand in them."""


class ConsumerPropertyError(SchedulerError):
    """A consumer can't be made of these properties. The text names the cure, and no secret."""


def librdkafka_properties(
    consumer: Mapping[str, str | EnvironmentSecret],
    environment: Mapping[str, str],
    *,
    key: str = "consumerProperties",
    owner: str = "this daemon does not have: set it where it is started",
) -> dict[str, str]:
    """Return the properties for `librdkafka`, with secrets.

    `key` and `owner` are for errors: where properties are given, and who lacks a variable.
    """
    found: dict[str, str] = {}
    for name, given in consumer.items():
        if name in _OF_JAVA_ALONE:
            continue
        if name.startswith(_FILES_OF_JAVA):
            raise ConsumerPropertyError(
                f"{key}.{name} is a file of Java's; give certificates and keys as PEM:"
                " ssl.ca.location, ssl.certificate.location, ssl.key.location"
            )
        if isinstance(given, EnvironmentSecret):
            if given.variable not in environment:
                raise ConsumerPropertyError(
                    f"{key}.{name} stands in the environment variable {given.variable},"
                    f" which {owner}"
                )
            value = environment[given.variable]
        else:
            value = given
        if name == _JAAS:
            found.update(_login(value, key))
        else:
            found["sasl.mechanism" if name == "sasl.mechanisms" else name] = value
    return found


def read_secret(value: Mapping[str, Any]) -> str | EnvironmentSecret | None:
    """Read Druid's providers of passwords; None for a mistake, which must not be shown."""
    match value:
        case {"type": "default", "password": str(password), **rest} if not rest:
            return password
        case {"type": "environment", "variable": str(variable), **rest} if variable and not rest:
            # Whoever may submit names the brokers that are told the value.
            is_own = variable.upper().startswith(OWN_VARIABLES)
            return None if is_own else EnvironmentSecret(variable=variable)
        case _:
            return None


def _login(text: str, key: str) -> dict[str, str]:
    if _LOGIN.search(text) is None:
        raise ConsumerPropertyError(
            f"{key}.{_JAAS} is supported for PlainLoginModule and ScramLoginModule"
            " alone; give sasl.mechanism, sasl.username and sasl.password instead"
        )
    options = {name: value.replace('\\"', '"') for name, value in _JAAS_OPTION.findall(text)}
    if options.keys() != {"username", "password"}:
        raise ConsumerPropertyError(
            f"{key}.{_JAAS} needs username and password, each in double quotes"
        )
    return {f"sasl.{name}": options[name] for name in ("username", "password")}
