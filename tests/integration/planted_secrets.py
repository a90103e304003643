"""Secrets planted in every field that can hold one, for searches of the server's output.

Each secret is unique, so a secret that is found in an answer identifies its field.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Engine, insert, select, update

from common.masking import CONSUMER_PROPERTIES, OPTION_KEYS
from common.model.task_type import Key, Shape
from common.store import tables as t
from common.task_types import known_task_types, task_type_spec
from operations.secret_references import with_references
from tests.integration.api_worlds import World

_BEGIN: Final = "zQ7hunter"
_TEXTS: Final = frozenset({Shape.TEXT, Shape.RESOURCE, Shape.ANY})
_LISTS: Final = frozenset({Shape.LIST, Shape.ENTRIES, Shape.RESOURCES})
_OWN_KEYS: Final = frozenset({"localParams", "httpParams"})


@dataclass
class Planted:
    """The secrets with their fields."""

    fields: dict[str, str] = field(default_factory=dict)

    def new(self, place: str) -> str:
        """Return a new secret for a field."""
        made = f"{_BEGIN}{len(self.fields):04d}x"
        self.fields[made] = place
        return made

    def shown_in(self, content: bytes) -> list[str]:
        """Return the fields of the secrets in a text, plain or in base64."""
        if _BEGIN.encode() in content or any(each in content for each in _ENCODED):
            return [
                place
                for secret, place in self.fields.items()
                if secret.encode() in content or any(each in content for each in _cores(secret))
            ] or ["a part of a secret"]
        return []


def _cores(text: str) -> Iterator[bytes]:
    """Yield the base64 forms of a text within a longer text, one for each of three alignments."""
    raw = text.encode()
    for lead in range(3):
        bits = 8 * (lead + len(raw))
        yield b64encode(b"\0" * lead + raw)[-(-8 * lead // 6) : bits // 6]


_ENCODED: Final = tuple(_cores(_BEGIN))


def properties(planted: Planted, place: str) -> list[dict[str, Any]]:
    """Return parameters with secrets: by name, by mark, and within an address."""
    return [
        _property("db_password", planted.new(f"{place}, secret name")),
        {**_property("marked", planted.new(f"{place}, marked")), "secret": True},
        _property("place", an_address(planted, place)),
        _property("day", "2013-01-01"),
    ]


def _property(name: str, value: str) -> dict[str, Any]:
    return {"prop": name, "direct": "IN", "type": "VARCHAR", "value": value}


def an_address(planted: Planted, place: str) -> str:
    """Return an address with a password, and with a secret among its parameters."""
    user, query = planted.new(f"{place}, password of URL"), planted.new(f"{place}, query of URL")
    return f"https://me:{user}@db.example.org/x?access_token={query}&b=c"


def consumer_properties(planted: Planted, place: str) -> dict[str, Any]:
    """Return properties of a Kafka consumer, with a secret in each form that Orcaflow supports."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required password="{}";'
    provided = {"type": "default", "password": planted.new(f"{place}, provider")}
    many = {"type": "mapString", "config": {"sasl.password": planted.new(f"{place}, dynamic")}}
    return {
        "bootstrap.servers": "broker:9092",
        "sasl.password": provided,
        "ssl.key.password": planted.new(f"{place}, text"),
        "ssl.key.pem": planted.new(f"{place}, key"),
        "sasl.jaas.config": jaas.format(planted.new(f"{place}, JAAS")),
        "druid.dynamic.config.provider": many,
    }


def a_value(planted: Planted, key: Key, place: str) -> Any:
    """Return a value for a key of a task, with each secret that its shape can hold."""
    if key.name in OPTION_KEYS:
        option, setting = planted.new(f"{place}, option"), planted.new(f"{place}, setting")
        return f"--password {option} --conf spark.ssl.keyPassword={setting}"
    if key.name in _OWN_KEYS:
        header = _property("Authorization", f"Bearer {planted.new(f'{place}, header')}")
        return [*properties(planted, place), {**header, "httpParametersType": "HEADERS"}]
    match key.shape:
        case Shape.SETTINGS:
            return {
                "spark.hadoop.fs.s3a.secret.key": planted.new(f"{place}, setting"),
                "spark.x.url": an_address(planted, place),
            }
        case shape if shape in _LISTS:
            return [an_address(planted, place)]
        case shape if shape in _TEXTS:
            return an_address(planted, place)
        case _:
            return None


def tasks(planted: Planted) -> Iterator[dict[str, Any]]:
    """Yield a task of each type with all its keys, and a task that reads Kafka."""
    for name in known_task_types():
        params = {
            key.name: value
            for key in task_type_spec(name).keys
            if (value := a_value(planted, key, f"{name} params.{key.name}")) is not None
        }
        params.setdefault("localParams", properties(planted, f"{name} localParams"))
        yield {"name": name.lower(), "type": name, "params": params, "preTasks": []}
    read = {CONSUMER_PROPERTIES: consumer_properties(planted, "STREAM consumerProperties")}
    spec = {"spec": {"ioConfig": read}}
    yield {"name": "read", "type": "STREAM", "params": {"spec": spec}, "preTasks": []}


def a_document(planted: Planted, place: str, name: str) -> dict[str, Any]:
    """Return a definition with tasks of all types."""
    shell = {"rawScript": f"curl {an_address(planted, place)}"}
    nodes = [
        {"name": each, "type": "SHELL", "params": {**shell}, "preTasks": above}
        for each, above in (("a", []), ("b", ["a"]))
    ]
    inner = {
        "globalParams": properties(planted, f"{place} globalParams"),
        "tasks": [*nodes, *tasks(planted)],
    }
    return {"name": name, "processDefinitionJson": inner}


def plant(db: Engine, world: World, planted: Planted, name: str) -> None:
    """Store secrets in the rows of a world, as its definitions and runs would store them."""
    number = world.objects["definition"]
    document = a_document(planted, "definition", name)
    former = with_references(a_document(planted, "version", name)).document
    inner = document["processDefinitionJson"]
    start = {
        "db_password": planted.new("start-up parameters"),
        "place": an_address(planted, "start"),
    }
    run = {"StartParams": json.dumps({"api_token": planted.new("command param")})}
    pool = [_property("copy_token", planted.new("var pool"))]
    marked = [{**_property("copy", planted.new("var pool, marked")), "secret": True}]
    ran = {
        "command_param": json.dumps(run),
        "global_params": json.dumps(properties(planted, "run globalParams")),
        "process_instance_json": json.dumps(inner),
        "state_reason": f"can't reach {an_address(planted, 'reason of run')}",
    }
    streams = {CONSUMER_PROPERTIES: consumer_properties(planted, "supervisor")}
    with db.begin() as connection:
        connection.execute(
            update(t.process_definition)
            .where(t.process_definition.c.id == number)
            .values(
                process_definition_json=json.dumps(inner),
                global_params=json.dumps(properties(planted, "definition row")),
            )
        )
        for table in (t.process_definition_log, t.definition_proposal):
            connection.execute(
                update(table)
                .where(table.c.process_definition_id == number)
                .values(document=json.dumps(former))
            )
        connection.execute(
            update(t.process_instance)
            .where(t.process_instance.c.process_definition_id == number)
            .values(**ran)
        )
        for node in inner["tasks"]:
            connection.execute(
                update(t.task_instance)
                .where(t.task_instance.c.process_instance_id == world.objects["instance"])
                .where(t.task_instance.c.name == node["name"])
                .values(
                    task_json=json.dumps(
                        {
                            **node,
                            "params": {
                                **node["params"],
                                "localParams": properties(planted, "local"),
                            },
                        }
                    ),
                    var_pool=json.dumps([*pool, *marked]),
                    input_pool=json.dumps([*pool, *marked]),
                    reason=f"can't reach {an_address(planted, 'reason of task')}",
                )
            )
        connection.execute(
            update(t.stream_task).values(ending_reason=an_address(planted, "reason of stream task"))
        )
        connection.execute(
            insert(t.alert).values(
                title="late",
                content=f"can't reach {an_address(planted, 'alert')}",
                log=f"can't send {an_address(planted, 'log of alert')}",
            )
        )
        connection.execute(update(t.schedule).values(start_params=json.dumps(start)))
        connection.execute(update(t.complement).values(start_params=json.dumps(start)))
        connection.execute(update(t.command).values(command_param=json.dumps(run)))
        spec = connection.execute(select(t.supervisor).where(t.supervisor.c.id == name)).one().spec
        spec["spec"]["ioConfig"] |= streams
        spec["spec"]["dataSchema"]["dataSource"] = name
        connection.execute(update(t.supervisor).where(t.supervisor.c.id == name).values(spec=spec))
        connection.execute(
            update(t.environment).values(
                config=f"export API_TOKEN={planted.new('environment')}\nexport A=1\n"
            )
        )
