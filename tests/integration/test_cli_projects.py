"""Commands in a cluster with several projects: names, ids and `--project`, local and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, insert, select, update

from common.model.rights import DATABASE, Principal
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.people.projects import project_names
from common.store.people.rights import is_administrator
from operations.session import Session
from operations.users import create_user, grant
from orcaflow.cli.projects import OF_PROJECTS
from tests.builders import a_definition_json
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli
from tests.integration.remote_commands import some_streams

_NAMED: Final = (
    *("definition show {}", "definition export {}", "definition versions {}"),
    *("definition diff {}", "definition restore {} 1", "definition proposals {}"),
    *("definition propose --draft {}", "definition approve {} 7", "definition withdraw {} 7"),
    *("definition reject {} 7 --reason slow", "run {}", "instance list --definition {}"),
    *("command list --definition {}", "schedule create {} --cron '0 0 3 * * ?'"),
    *("schedule list {}", "schedule online --definition {}", "schedule offline --definition {}"),
    *("schedule simulate --definition {}", "complement list {}"),
    *("definition shares {}", "definition share {} --with default"),
    "definition unshare {} --with default",
    "complement run {} --from 2026-01-01 --to 2026-01-02 --plan",
    *("definition set {} --execution-type parallel", "definition online {}"),
    *("definition offline {}", "definition delete {}"),
)
"""Each command that names a definition. Commands that change the definition come last."""
_SCHEDULES: Final = ("schedule preview {}", "schedule fires {}")
"""Commands that read a number as the id of a schedule."""
_LOCAL: Final = ("purge --older-than 90d --plan --definition {}",)


@pytest.fixture
def projects(db: Engine) -> dict[str, int]:
    """Create a definition `nightly` in two projects; return its ids by the projects' names."""
    made = {}
    for name in ("dev", "prod"):
        with db.begin() as connection:
            project = connection.scalar(
                insert(t.project).values(name=name).returning(t.project.c.id)
            )
        made[name] = a_definition(
            db, name="nightly", project_id=project, process_definition_json=a_definition_json("a")
        )
        run = an_instance(
            db, ProcessState.SUCCESS, process_definition_id=made[name], name=f"run of {name}"
        )
        an_attempt(db, run, TaskState.SUCCESS, name=f"task of {name}")
        with db.begin() as connection:
            connection.execute(
                insert(t.schedule).values(
                    process_definition_id=made[name], crontab="0 0 2 * * ? *", release_state=0
                )
            )
    return made


@pytest.fixture(params=["the database", "a server"])
def way(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """Return a function that runs a command, once at the database and once over HTTP."""
    if request.param == "the database":
        return cli
    remote: Cli = request.getfixturevalue("remote")
    return remote


def _words(line: str, name: object) -> list[str]:
    return [each.strip("'") for each in _split(line.format(name))]


def _split(line: str) -> list[str]:
    before, quote, rest = line.partition("'")
    if not quote:
        return before.split()
    inner, _, after = rest.partition("'")
    return [*before.split(), inner, *after.split()]


def test_a_name_of_two_projects_is_refused_with_the_candidates_by_each_command(
    way: Cli, projects: dict[str, int]
) -> None:
    lines = (*_NAMED, *_SCHEDULES)
    told = f"'nightly' is ambiguous: dev/nightly (id {projects['dev']}), "
    told += f"prod/nightly (id {projects['prod']}); give --project, or the id"
    for line in lines:
        code, _, err = way(*_words(line, "nightly"))
        assert (code, told in " ".join(err.replace("│", " ").split())) == (2, True), (line, err)


def test_the_project_and_the_id_resolve_an_ambiguous_name(
    way: Cli, projects: dict[str, int]
) -> None:
    for line in (*_NAMED[:-1], *_SCHEDULES):
        code, out, err = way(*_words(line, "nightly"), "--project", "prod")
        assert (code != 2, "ambiguous" in err) == (True, False), (line, code, out, err)
    for line in _NAMED[:-1]:
        code, out, err = way(*_words(line, projects["prod"]))
        assert (code != 2, "no process definition" in err) == (True, False), (line, err)
    assert way("definition", "offline", "nightly", "--project", "dev")[0] == 0
    assert way("definition", "delete", "nightly", "--project", "dev")[0] == 0
    left = parsed(way("definition", "list", "-o", "json"))
    assert [(each["id"], each["project"]) for each in left] == [(projects["prod"], "prod")]


def test_the_commands_of_this_module_are_all_that_name_a_definition() -> None:
    lists = {"definition import", "definition list", "task list", "locks list"}
    others = {each for each in OF_PROJECTS if each.split()[0] in ("stream", "topology", "dataset")}
    named = {" ".join(_command_of(each)) for each in (*_NAMED, *_SCHEDULES, *_LOCAL)}
    assert named == set(OF_PROJECTS) - others - lists


def _command_of(line: str) -> list[str]:
    words = line.split()
    return words[:1] if words[0] in ("run", "purge") else words[:2]


def test_lists_show_the_objects_of_the_chosen_project_and_the_name_of_each(
    way: Cli, projects: dict[str, int], db: Engine
) -> None:
    some_streams(db)
    del projects
    for line in ("definition list", "instance list", "schedule list", "stream list"):
        everything = parsed(way(*line.split(), "-o", "json"))
        assert {each["project"] for each in everything} >= (
            {"default"} if line == "stream list" else {"dev", "prod"}
        ), line
        for name in ("dev", "prod"):
            found = parsed(way(*line.split(), "--project", name, "-o", "json"))
            expected = [each for each in everything if each["project"] == name]
            assert [each["id"] for each in found] == [each["id"] for each in expected], line
    assert parsed(way("topology", "list", "--project", "dev", "-o", "json")) == []
    assert way("stream", "status", "flights", "--project", "dev")[0] == 3
    assert way("stream", "status", "flights", "--project", "default")[0] == 0


def test_attempts_are_listed_by_project_at_the_database(cli: Cli, projects: dict[str, int]) -> None:
    del projects
    rows = parsed(cli("task", "list", "--project", "dev", "-o", "json"))
    assert [each["name"] for each in rows] == ["task of dev"]


def test_the_option_goes_before_the_variable_and_the_variable_before_the_context(
    cli: Cli, projects: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    del projects

    def shown(*options: str) -> Any:
        return parsed(cli("definition", "show", "nightly", *options, "-o", "json"))["project"]

    assert cli("context", "use", "local", "--project", "dev")[0] == 0
    assert shown() == "dev"
    monkeypatch.setenv("ORCAFLOW_PROJECT", "prod")
    assert shown() == "prod"
    assert shown("--project", "dev") == "dev"
    assert cli("definition", "show", "nightly", "--project", "")[0] == 2
    monkeypatch.delenv("ORCAFLOW_PROJECT")
    listed = parsed(cli("context", "list", "-o", "json"))
    assert [(each["name"], each["project"]) for each in listed] == [("local", "dev")]
    assert cli("context", "use", "local", "--project", "")[0] == 0
    assert cli("definition", "show", "nightly")[0] == 2


def test_an_unknown_project_is_answered_with_those_that_the_user_may_see(
    way: Cli, projects: dict[str, int]
) -> None:
    del projects
    code, _, err = way("definition", "list", "--project", "prd")
    assert code == 3
    assert "no project 'prd'; did you mean 'prod'?; there is default, dev, prod" in err


def test_a_project_that_a_user_may_not_see_is_never_named(
    *,
    remote: Cli,
    cli: Cli,
    projects: dict[str, int],
    served: tuple[FastAPI, str],
    cli_owner: Session,
    token_of: Callable[[str], str],
) -> None:
    create_user(cli_owner, "eve", is_admin=False, password=None, tenant=None)
    grant(cli_owner, "eve", project="dev", role="author")
    del remote
    eve = ("--server", served[1], "--token-file", token_of("eve"))
    assert parsed(cli(*eve, "definition", "show", "nightly", "-o", "json"))["project"] == "dev"
    for line in (
        "definition list --project prod", f"definition show {projects['prod']}",
        f"run {projects['prod']}", "definition show nightly --project prod",
    ):  # fmt: skip
        code, out, err = cli(*eve, *line.split())
        assert (code, "prod/" in out + err, "there is default" in err) == (3, False, False), line
    assert "there is dev" in cli(*eve, "definition", "list", "--project", "prod")[2]


@pytest.mark.parametrize("kind", ["definition", "dataset"])
def test_an_object_of_the_chosen_project_is_shared_with_another_one(
    way: Cli, projects: dict[str, int], db: Engine, kind: str
) -> None:
    with db.begin() as connection:
        dev = select(t.project.c.id).where(t.project.c.name == "dev").scalar_subquery()
        connection.execute(insert(t.dataset).values(name="nightly", project_id=dev))
    del projects
    given = ("nightly", "--project", "dev", "--with", "prod")
    done = parsed(way(kind, "share", *given, "-o", "json"))
    assert (done[kind], done["project"], done["changed"]) == ("nightly", "prod", True)
    assert done.keys() == {kind, "project", "changed"} | ({"id"} if kind == "definition" else set())
    assert way(kind, "share", *given)[1] == "nightly is already shared with prod\n"
    (shown,) = parsed(way(kind, "shares", "nightly", "--project", "dev", "-o", "json"))
    assert shown["project"] == "prod"
    assert way(kind, "unshare", *given)[1] == "nightly is no longer shared with prod\n"
    assert way(kind, "unshare", *given)[1] == "nightly was not shared with prod\n"
    assert parsed(way(kind, "shares", "nightly", "--project", "dev", "-o", "json")) == []


def test_a_dataset_of_another_project_is_missing_in_the_chosen_one(
    way: Cli, projects: dict[str, int], db: Engine
) -> None:
    del projects
    with db.begin() as connection:
        dev = select(t.project.c.id).where(t.project.c.name == "dev").scalar_subquery()
        connection.execute(insert(t.dataset).values(name="flights", project_id=dev))
    for line in ("shares {}", "share {} --with default", "unshare {} --with default"):
        foreign, missing = (
            way("dataset", *line.format(name).split(), "--project", "prod")
            for name in ("flights", "nothing")
        )
        assert foreign[0] == 3
        assert foreign[2].replace("flights", "nothing") == missing[2]


def test_a_definition_whose_name_is_a_number_goes_before_an_id(
    way: Cli, projects: dict[str, int], db: Engine
) -> None:
    number = a_definition(
        db,
        name=str(projects["dev"]),
        process_definition_json=a_definition_json("a"),
        project_id=1,
    )
    shown = parsed(way("definition", "show", str(projects["dev"]), "-o", "json"))
    assert shown["id"] == number
    within = ("definition", "show", str(projects["dev"]), "--project", "dev", "-o", "json")
    assert parsed(way(*within))["id"] == projects["dev"]


def test_an_import_names_its_project_and_the_others_that_have_the_name(
    way: Cli, projects: dict[str, int], tmp_path: Path
) -> None:
    file = tmp_path / "nightly.json"
    document = {"name": "nightly", "processDefinitionJson": json.loads(a_definition_json("a"))}
    file.write_text(json.dumps(document), encoding="utf-8")
    code, out, err = way("definition", "import", str(file))
    assert (code, "in project default" in out) == (0, True)
    both = f"dev/nightly (id {projects['dev']}), prod/nightly (id {projects['prod']})"
    assert f"another project has it too: {both}" in err
    code, out, err = way("definition", "import", str(file), "--project", "dev")
    assert (code, "in project dev" in out, "another project" in err) == (0, True, False)
    assert len(parsed(way("definition", "list", "-o", "json"))) == 3


def test_history_of_a_project_alone_is_not_purged_without_a_definition(
    cli: Cli, projects: dict[str, int], db: Engine
) -> None:
    with db.begin() as connection:
        connection.execute(update(t.process_instance).values(end_time=NOW))
    purge = ("purge", "--older-than", "1h")
    assert cli(*purge, "--project", "dev")[0] == 2
    assert len(parsed(cli("instance", "list", "-o", "json"))) == 2
    assert cli("purge", "--older-than", "90d", "--plan", "--definition", "nightly")[0] == 2
    del projects


def test_a_request_that_names_a_project_sees_no_more_than_its_token_x69(db: Engine) -> None:
    with db.begin() as connection:
        for name in ("dev", "prod"):
            connection.execute(insert(t.project).values(name=name))
    principal = Principal(user_id=1, user_name="eve", projects=(2,))
    assert principal.within(2).projects == (2,)
    assert principal.within(3).projects == ()
    assert not principal.within(2).chose_project
    with db.connect() as connection:
        assert project_names(connection, principal.within(2)) == ["dev"]
        assert project_names(connection, principal.within(3)) == []
        assert project_names(connection, DATABASE.within(3)) == ["prod"]
        assert not is_administrator(connection, principal.within(2))
        assert is_administrator(connection, DATABASE.within(2))
