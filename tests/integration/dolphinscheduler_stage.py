"""DolphinScheduler's API in this process, on a real database, for scripts of its dialects.

There is no master: `carry_out` does in the tables what one would have done with a command.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select, update

from api.dolphinscheduler.serving import Served
from common.config import Config, DatabaseConfig, ZookeeperConfig
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.people.rights import Thing
from operations.session import Session
from operations.tokens import create_token
from operations.users import create_user, grant
from tests.builders import a_definition_json
from tests.integration.cli_rows import an_attempt, an_instance

BASE = "/dolphinscheduler"
PASSWORD = "correct horse battery"
DAILY = {
    "startTime": "2013-01-01 00:00:00",
    "endTime": "2033-01-01 00:00:00",
    "crontab": "0 0 3 * * ? *",
    "timezoneId": "UTC",
}
ENVIRONMENT = 2**40
"""The code of an environment."""
CODES = (9_000_000_000_001, 9_000_000_000_002)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The API with its database. The paths of calls are those below the base."""

    client: TestClient
    db: Engine
    owner: Session
    home: Path
    headers: dict[str, str] = field(default_factory=dict)

    def call(
        self, method: str, path: str, headers: dict[str, str] | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Make a call whose status of HTTP is 200, with a form, or a query for GET."""
        answer = self.client.request(
            method,
            f"{BASE}/{path}",
            headers=self.headers if headers is None else headers,
            params=parameters if method == "GET" else None,
            data=None if method == "GET" else parameters,
        )
        assert answer.status_code == 200, (answer.status_code, answer.text)
        document: dict[str, Any] = answer.json()
        assert document["success"] is (document["code"] == 0)
        assert document["failed"] is not document["success"]
        return document

    def done(self, method: str, path: str, **parameters: Any) -> Any:
        """Make a call that succeeds, and return its data."""
        document = self.call(method, path, **parameters)
        assert (document["code"], document["msg"]) in ((0, "success"), (0, "login success")), (
            document
        )
        return document["data"]

    def a_user(self, name: str, *, role: str = "author", password: str | None = None) -> None:
        create_user(self.owner, name, is_admin=False, password=password, tenant=None)
        grant(self.owner, name, project="default", role=role)

    def a_token(self, user: str) -> dict[str, str]:
        made = create_token(
            self.owner,
            user,
            name="test",
            role="admin",
            projects=(),
            life=timedelta(days=1),
            now=datetime.now(UTC),
        )
        return {"token": made.text}

    def versions(self, definition_id: int) -> list[int]:
        """The numbers of a definition's versions as they are kept."""
        row = t.process_definition_log.c
        with self.db.connect() as connection:
            found = connection.scalars(
                select(row.version).where(row.process_definition_id == definition_id)
            )
            return list(found)

    def carry_out(self, state: ProcessState = ProcessState.RUNNING) -> tuple[int, int]:
        """Begin a run for the newest command; return its id and that of its first attempt."""
        with self.db.begin() as connection:
            command = connection.execute(
                select(t.command).order_by(t.command.c.id.desc()).limit(1)
            ).one()
            connection.execute(t.command.delete().where(t.command.c.id == command.id))
        run = an_instance(
            self.db,
            state,
            command_id=command.id,
            process_definition_id=command.process_definition_id,
        )
        with self.db.begin() as connection:
            connection.execute(
                insert(t.command_ledger).values(
                    command_id=command.id,
                    outcome=1,
                    process_instance_id=run,
                    process_definition_id=command.process_definition_id,
                )
            )
        task = an_attempt(
            self.db,
            run,
            TaskState.SUCCESS,
            process_definition_id=command.process_definition_id,
            flag=1,
            log_path=self.a_log(run),
        )
        return run, task

    def a_log(self, run: int) -> str:
        file = self.home / "tasks" / "logs" / "1" / str(run) / "1.log"
        file.parent.mkdir(parents=True)
        file.write_text("one\ntwo\nthree\n", encoding="utf-8")
        return str(file)

    def end(self, run: int, state: ProcessState) -> None:
        """Let a run end."""
        with self.db.begin() as connection:
            connection.execute(
                update(t.process_instance)
                .where(t.process_instance.c.id == run)
                .values(state=int(state), end_time=datetime.now(UTC), host=None)
            )


def a_stage(app: FastAPI, db: Engine, home: Path) -> Stage:
    """Set the application up for a database and a home; ZooKeeper is away."""
    url = db.url.set(drivername="postgresql").render_as_string(hide_password=False)
    config = Config(
        home=home,
        time_zone="UTC",
        database=DatabaseConfig(url=url),
        zookeeper=ZookeeperConfig(hosts="127.0.0.1:1"),
    )
    app.state.config, app.state.engine = config, db
    owner = Session()
    owner.__dict__.update(config=config, engine=db)
    client = TestClient(app, base_url="http://127.0.0.1:12345", raise_server_exceptions=False)
    return Stage(client=client, db=db, owner=owner, home=home)


def classic_json() -> str:
    return a_definition_json("a >> b")


def classic_file() -> str:
    return json.dumps(
        {"processDefinitionName": "imported", "processDefinitionJson": classic_json()}
    )


def later_tasks() -> dict[str, str]:
    tasks = [
        {
            "code": code,
            "name": name,
            "taskType": "SHELL",
            "taskParams": {"rawScript": f"echo {name}", "localParams": [], "resourceList": []},
            "flag": "YES",
            "taskPriority": "MEDIUM",
            "workerGroup": "default",
            "failRetryTimes": 0,
            "failRetryInterval": 1,
            "timeoutFlag": "CLOSE",
            "timeout": 0,
            "delayTime": 0,
        }
        for name, code in zip("ab", CODES, strict=True)
    ]
    relations = [
        {"preTaskCode": 0, "postTaskCode": CODES[0]},
        {"preTaskCode": CODES[0], "postTaskCode": CODES[1]},
    ]
    return {
        "taskDefinitionJson": json.dumps(tasks),
        "taskRelationJson": json.dumps(relations),
        "locations": "[]",
        "globalParams": json.dumps(
            [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": ""}]
        ),
    }


def parameters_of(each: Served, world: dict[Thing, int]) -> dict[str, Any]:
    """Return parameters that name the objects of a world, for any route."""
    run, number = world[Thing.INSTANCE], world[Thing.DEFINITION]
    named: dict[str, Any] = {
        "processDefinitionId": number, "processId": number, "processDefinitionIds": number,
        "processInstanceId": run, "processInstanceIds": run, "projectId": world[Thing.PROJECT],
        "id": world[Thing.SCHEDULE], "scheduleId": world[Thing.SCHEDULE],
        "taskInstId": world[Thing.TASK],
    } if each.dialect.is_classic else {
        "processDefinitionCode": number, "processDefinitionCodes": number, "codes": number,
        "workflowDefinitionCode": number, "workflowDefinitionCodes": number,
        "processInstanceId": run, "processInstanceIds": run,
        "workflowInstanceId": run, "workflowInstanceIds": run,
    }  # fmt: skip
    if each.dialect.is_classic and each.path.endswith("process/update"):
        named["id"] = number
    return {
        **named, "taskInstanceId": world[Thing.TASK], "taskId": world[Thing.TASK], "subId": run,
        "triggerCode": world[Thing.COMMAND], "schedule": json.dumps(DAILY), "genNum": 1,
        "environmentCode": ENVIRONMENT, "config": "export A=1", "environmentName": "made",
        "executeType": "REPEAT_RUNNING", "releaseState": "OFFLINE", "name": "made",
        "processDefinitionJson": classic_json(), **later_tasks(), "projectName": "made",
    }  # fmt: skip
