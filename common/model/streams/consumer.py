"""Translates the consumer properties of specifications to properties of the Kafka client.

Pure. `common.model.streams.properties` lists the allowed properties. The result contains secrets
from the environment and from connections, so it is never shown or stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from common.destinations import listed
from common.errors import SchedulerError
from common.model.streams.properties import (
    FROM_AUTHORS,
    FROM_CONNECTIONS,
    JAAS,
    NO_EFFECT,
    PLACE,
    SERVERS,
    FormError,
    client_name,
    conflicts,
    read_value,
    refusal_of,
    shown_name,
)
from common.model.streams.spec import EnvironmentSecret

_JAAS_OPTION: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_LOGIN: Final = re.compile(r"\.(Plain|Scram)LoginModule\b")
_LONGEST_JAAS: Final = 10_000
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
OWN_VARIABLES: Final = ("ORCAFLOW_", "PG")
"""Prefixes of daemons' variables, which may contain the password of the database."""
PROVIDER: Final = '{"type": "environment", "variable": NAME}'


class ConsumerPropertyError(SchedulerError):
    """A consumer can't be made of these properties. The text names the cure, and no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProperties:
    """The properties of a client by the client's names, with secrets.

    Properties of the author and of the connection are separate, because a connection may have
    properties that an author may not give.
    """

    given: Mapping[str, str] = field(repr=False)
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def servers(self) -> str:
        """The addresses of the brokers."""
        return self.connection.get(SERVERS) or self.given.get(SERVERS, "")

    def document(self) -> dict[str, dict[str, str]]:
        """Return the properties as a JSON document for `of`."""
        return {"given": dict(self.given), "connection": dict(self.connection)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ClientProperties:
        """Read the result of `document`; `ConsumerPropertyError` for any other document."""
        found = {}
        for part in ("given", "connection"):
            values = document.get(part)
            if not isinstance(values, Mapping) or not all(
                isinstance(each, str) for pair in values.items() for each in pair
            ):
                raise ConsumerPropertyError("the properties of the consumer can't be read")
            found[part] = dict(values)
        return cls(given=found["given"], connection=found["connection"])

    def checked(self, key: str) -> dict[str, str]:
        """Return all properties in the client's form.

        Raises `ConsumerPropertyError` for a property that is not allowed in its place. This is the
        last check before a client is created, and it does not rely on earlier checks.
        """
        if wrong := sorted(name for name in self.connection and self.given if name in PLACE):
            raise ConsumerPropertyError(f"{key}.{wrong[0]} {BESIDE_CONNECTION}")
        found = {}
        for values, known, place in (
            (self.given, FROM_AUTHORS, key),
            (self.connection, FROM_CONNECTIONS, "connection"),
        ):
            for name, value in values.items():
                if name not in known and client_name(name) in known:
                    raise ConsumerPropertyError(f"{place}.{name} is not a name of the client")
                try:
                    found[name] = read_value(name, value, in_connection=place == "connection")
                except FormError as error:
                    raise ConsumerPropertyError(f"{place}.{shown_name(name)} {error}") from None
        return found


BESIDE_CONNECTION: Final = (
    "must not be given beside a connection, which has the brokers and the log-in; remove it"
)


@dataclass(slots=True, kw_only=True)
class ReadProperties:
    """Properties as given, names of properties without effect, and mistakes by property name."""

    found: dict[str, str | EnvironmentSecret] = field(default_factory=dict, repr=False)
    ignored: list[str] = field(default_factory=list)
    mistakes: list[tuple[str, str]] = field(default_factory=list)


def read_properties(
    given: Mapping[Any, Any],
    *,
    has_connection: bool = False,
    in_connection: bool = False,
    variables: Collection[str] | None = None,
    is_open: Callable[[str], bool] = lambda _: False,
) -> ReadProperties:
    """Check all properties of a consumer, and return every mistake.

    `variables` are the names that `{"type": "environment"}` may use; with None the check is left to
    `librdkafka_properties`.
    `is_open` returns True for a text with parts that are not known yet.
    """
    read = ReadProperties()
    known: dict[str, str | None] = {}
    by_client: dict[str, str] = {}
    for key, value in given.items():
        name = str(key)
        if name in NO_EFFECT:
            read.ignored.append(shown_name(name))
            continue
        try:
            # The name first: a property that is not allowed needs no check of its value.
            _check_name(name, in_connection=in_connection)
            read.found[name] = _given(value, in_connection=in_connection)
            _check_variable(read.found[name], variables)
            values = _known(name, read.found[name], is_open, in_connection=in_connection)
            for each in values:
                _check_place(name, each, by_client, has_connection=has_connection)
        except FormError as error:
            read.mistakes.append((shown_name(name), str(error)))
            # Set as unknown, so that `conflicts` does not report it as missing as well.
            known[client_name(name)] = None
            if name == JAAS:
                known |= {"sasl.username": None, "sasl.password": None}
        else:
            known |= values
    if not has_connection:
        for name, problem in conflicts(known):
            read.mistakes.append((name, problem))
    return read


def _check_name(name: str, *, in_connection: bool) -> None:
    known = FROM_CONNECTIONS if in_connection else FROM_AUTHORS
    if name != JAAS and client_name(name) not in known:
        raise FormError(refusal_of(name, in_connection=in_connection))


def _given(value: Any, *, in_connection: bool) -> str | EnvironmentSecret:
    """Return a value as text or as a reference to an environment variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if in_connection:
        raise FormError("must be a text")
    found = read_secret(value) if isinstance(value, Mapping) else None
    if found is None:
        raise FormError(
            f"must be a text, or {PROVIDER} with a NAME that does not begin with"
            f" {' or '.join(OWN_VARIABLES)}"
        )
    return found


def _check_variable(found: str | EnvironmentSecret, variables: Collection[str] | None) -> None:
    if variables is None or not isinstance(found, EnvironmentSecret):
        return
    if found.variable not in variables:
        raise FormError(
            f"names the environment variable {found.variable}, which is not in the setting"
            " stream_variables; have an administrator add it there, or use a connection"
        )


def _known(
    name: str,
    found: str | EnvironmentSecret,
    is_open: Callable[[str], bool],
    *,
    in_connection: bool,
) -> dict[str, str | None]:
    """Return the values of a property by the client's names; None for unknown values."""
    if isinstance(found, EnvironmentSecret) or is_open(found):
        names = ("sasl.username", "sasl.password") if name == JAAS else (client_name(name),)
        return dict.fromkeys(names)
    return dict(_values(name, found, in_connection=in_connection))


def _check_place(
    name: str, client: str, by_client: dict[str, str], *, has_connection: bool
) -> None:
    if has_connection and client in PLACE:
        raise FormError(BESIDE_CONNECTION)
    other = by_client.setdefault(client, name)
    if other != name:
        raise FormError(f"is given as {other} too; keep one of the two")


def _values(name: str, value: str, *, in_connection: bool = False) -> dict[str, str]:
    """Return a property in the client's form; `FormError` for a refused name or value."""
    if name == JAAS:
        return {
            each: read_value(each, text, in_connection=in_connection)
            for each, text in _login(value).items()
        }
    return {client_name(name): read_value(name, value, in_connection=in_connection)}


def librdkafka_properties(
    consumer: Mapping[str, str | EnvironmentSecret],
    environment: Mapping[str, str],
    *,
    connection: Mapping[str, str] | None = None,
    key: str = "consumerProperties",
    owner: str = "this daemon does not have, or may not read: the setting stream_variables lists"
    " those that it may, and they are set where it is started",
) -> ClientProperties:
    """Return the properties for the client, with secrets.

    `environment` contains only variables that may be read. `connection` are the properties of the
    connection that the consumer names. `key` and `owner` are for errors: the place of the
    properties, and the process that lacks a variable.
    """
    found: dict[str, str] = {}
    for name, given in consumer.items():
        if name in NO_EFFECT:
            continue
        if isinstance(given, EnvironmentSecret):
            if given.variable not in environment:
                raise ConsumerPropertyError(
                    f"{key}.{shown_name(name)} stands in the environment variable"
                    f" {given.variable}, which {owner}"
                )
            value = environment[given.variable]
        else:
            value = given
        try:
            found |= _values(name, value)
        except FormError as error:
            raise ConsumerPropertyError(f"{key}.{shown_name(name)} {error}") from None
    properties = ClientProperties(given=found, connection=connection or {})
    properties.checked(key)
    return properties


def connection_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a connection by the client's names, with secrets.

    Raises `ConsumerPropertyError` if they are not allowed, for example in a row edited by hand.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if name not in NO_EFFECT:
            try:
                found |= _values(name, value, in_connection=True)
            except FormError as error:
                raise ConsumerPropertyError(f"{shown_name(name)} {error}") from None
    if not found.get(SERVERS):
        raise ConsumerPropertyError(f"{SERVERS} is missing")
    return found


def read_secret(value: Mapping[str, Any]) -> str | EnvironmentSecret | None:
    """Read Druid's providers of passwords; None for a mistake, which must not be shown."""
    match value:
        case {"type": "default", "password": str(password), **rest} if not rest:
            return password
        case {"type": "environment", "variable": str(variable), **rest} if not rest:
            return EnvironmentSecret(variable=variable) if may_be_listed(variable) else None
        case _:
            return None


def may_be_listed(variable: str) -> bool:
    """Return True for a valid variable name without a prefix of `OWN_VARIABLES`."""
    return _VARIABLE.fullmatch(variable) is not None and not variable.upper().startswith(
        OWN_VARIABLES
    )


def allowed_environment(setting: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that `stream_variables` allows consumers to read."""
    return {name: environment[name] for name in listed(setting) if name in environment}


def _login(text: str) -> dict[str, str]:
    if len(text) > _LONGEST_JAAS or _LOGIN.search(text) is None:
        raise FormError(
            "is supported for PlainLoginModule and ScramLoginModule alone; give sasl.mechanism,"
            " sasl.username and sasl.password instead"
        )
    options = {name: value.replace('\\"', '"') for name, value in _JAAS_OPTION.findall(text)}
    if options.keys() != {"username", "password"}:
        raise FormError("needs username and password, each in double quotes")
    return {f"sasl.{name}": options[name] for name in ("username", "password")}
