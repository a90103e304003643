"""`orcaflow definition`: what is to run, from files into the database and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.output import (
    Format,
    FormatOption,
    print_fields,
    print_json,
    print_rows,
    say,
    table,
    write,
)

if TYPE_CHECKING:
    from common.model.states import ReleaseState
    from common.store.definitions import DefinitionRow
    from common.store.requests import Connection
    from orcaflow.definition_files import DefinitionDocument

app = typer.Typer(
    help="Import, look at and release process definitions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON files.")]
_NameOption = Annotated[
    str | None, typer.Option("--name", help="Name for a file with one definition.")
]
_Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of definitions.")]


@app.command(
    name="import",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition import examples/flights/flights.json\n"
        "  orcaflow definition import bare.json --name nightly --offline\n"
    ),
)
def import_(
    files: _Files,
    name: _NameOption = None,
    online: Annotated[
        bool | None,
        typer.Option(
            "--online/--offline",
            help="Release state afterwards. Without it a new definition is ONLINE and a known one"
            " stays as it is.",
            show_default=False,
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Import definitions: all of them or, if anything is wrong, none.

    A file is a JSON object {"name": ..., "description": ..., "processDefinitionJson": {...}}, a
    list of them, or the bare 1.2 JSON together with --name. Importing a name again brings it to
    what the file says, and makes a new version only if something changed. Relative paths of
    scripts and jars are looked for beside the file. Fields: name, id, version, release_state,
    tasks, changed.
    """
    from common.clock import SystemClock
    from common.model.states import ReleaseState
    from common.store.definitions import definition_by_name, save_definition, set_release_state
    from orcaflow.session import opened

    documents = _read(files, name)
    rows: list[dict[str, object]] = []
    with opened() as session, session.engine.begin() as db:
        at = SystemClock().now()
        for document in documents:
            before = definition_by_name(db, document.name)
            saved = save_definition(
                db,
                name=document.name,
                process_definition_json=document.process_definition_json,
                at=at,
                description=document.description,
                global_params=document.global_params,
                timeout_minutes=document.timeout_minutes,
                tenant_id=document.tenant_id,
            )
            state = saved.release_state
            if online is not None or before is None:
                state = ReleaseState.OFFLINE if online is False else ReleaseState.ONLINE
                set_release_state(db, saved.id, wanted=state, at=at)
            rows.append(
                {
                    "name": saved.name,
                    "id": saved.id,
                    "version": saved.version,
                    "release_state": state.name,
                    "tasks": document.task_count,
                    "changed": before is None or before.version != saved.version,
                }
            )
    if form is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        what = "imported" if row["changed"] else "unchanged"
        write(
            f"{what}: {row['name']} (version {row['version']}, {row['tasks']} tasks,"
            f" {row['release_state']})"
        )
        if row["release_state"] == ReleaseState.OFFLINE.name:
            say(f"It can't run before `orcaflow definition online {row['name']}`.")


@app.command(epilog="Example: orcaflow definition lint flights.json other.json")
def lint(files: _Files, name: _NameOption = None, form: FormatOption = Format.TABLE) -> None:
    """Check files as `import` does, without a database; all mistakes are told, each with its place.

    Fields: file, name, tasks.
    """
    rows = [
        {"file": str(document.file), "name": document.name, "tasks": document.task_count}
        for document in _read(files, name)
    ]
    if form is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        write(f"{row['file']}: {row['name']}: right, {row['tasks']} tasks")


@app.command(name="list", epilog="Example: orcaflow definition list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the definitions.

    Fields: id, name, version, release_state, usable, project_id, description, create_time,
    update_time.
    """
    from common.store.definitions import definitions
    from orcaflow.session import opened

    with opened() as session, session.engine.connect() as db:
        rows = [_row(found) for found in definitions(db)]
    print_rows(
        rows,
        form=form,
        columns=("id", "name", "version", "release_state", "update_time", "description"),
        zone=session.zone,
        none="There are no definitions; `orcaflow definition import FILE` brings some in.",
    )


@app.command(epilog="Example: orcaflow definition show flights")
def show(
    name: Annotated[str, typer.Argument(help="Name of the definition.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a definition with its tasks in the order of the DAG.

    Fields: those of `list`, and tasks: name, type, upstream, max_retry_times, priority, forbidden,
    worker_group_id; and mistakes, if it can't run as it stands.
    """
    from common.errors import InvalidDefinitionError
    from common.model.definitions import read_process_json
    from common.task_types import known_task_types
    from orcaflow.session import opened

    with opened() as session, session.engine.connect() as db:
        found = _found(db, name)
    tasks: list[dict[str, object]] = []
    mistakes: list[str] = []
    try:
        graph = read_process_json(
            found.process_definition_json or "", task_types=known_task_types()
        )
    except InvalidDefinitionError as error:
        mistakes.extend(error.mistakes)
    else:
        tasks = [
            {
                "name": node.name,
                "type": node.task_type,
                "upstream": list(node.upstream),
                "max_retry_times": node.max_retry_times,
                "priority": node.priority.name,
                "forbidden": node.forbidden,
                "worker_group_id": node.worker_group_id,
            }
            for node in (graph.nodes[each] for each in graph.dag.names)
        ]
    if form is Format.JSON:
        print_json({**_row(found), "tasks": tasks, "mistakes": mistakes})
        return
    print_fields(_row(found), zone=session.zone)
    write("")
    if tasks:
        columns = ("name", "type", "upstream", "max_retry_times", "priority", "forbidden")
        write(table(tasks, columns))
    for mistake in mistakes:
        say(f"mistake: {mistake}")


@app.command(epilog="Example: orcaflow definition export flights > flights.json")
def export(
    name: Annotated[str, typer.Argument(help="Name of the definition.")],
) -> None:
    """Print a definition as a file that `import` takes."""
    import json

    from orcaflow.session import opened

    with opened() as session, session.engine.connect() as db:
        found = _found(db, name)
    text = found.process_definition_json or "{}"
    try:
        inner: object = json.loads(text)
    except (ValueError, RecursionError):
        inner = text  # As it stands in the row, so that it can be mended.
    document: dict[str, object] = {"name": found.name}
    if found.description:
        document["description"] = found.description
    document["processDefinitionJson"] = inner
    if found.global_params:
        document["globalParams"] = found.global_params
    if found.timeout_minutes:
        document["timeout"] = found.timeout_minutes
    if found.tenant_id != -1:
        document["tenantId"] = found.tenant_id
    print_json(document)


@app.command(epilog="Example: orcaflow definition online flights")
def online(names: _Names, form: FormatOption = Format.TABLE) -> None:
    """Release definitions, so that they can run. Fields: name, id, release_state, changed."""
    from common.model.states import ReleaseState

    _release(names, ReleaseState.ONLINE, form)


@app.command(epilog="Example: orcaflow definition offline flights")
def offline(names: _Names, form: FormatOption = Format.TABLE) -> None:
    """Let no new run of these begin; what runs goes on.

    Fields: name, id, release_state, changed.
    """
    from common.model.states import ReleaseState

    _release(names, ReleaseState.OFFLINE, form)


def _read(files: list[Path], name: str | None) -> list[DefinitionDocument]:
    from common.config import load
    from orcaflow.definition_files import read_definition_files

    return read_definition_files(files, resources=load().home / "resources", name=name)


def _release(names: list[str], wanted: ReleaseState, form: Format) -> None:
    from common.clock import SystemClock
    from common.store.definitions import set_release_state
    from orcaflow.session import opened

    rows = []
    with opened() as session, session.engine.begin() as db:
        for found in [_found(db, name) for name in names]:
            changed = set_release_state(db, found.id, wanted=wanted, at=SystemClock().now())
            rows.append(
                {
                    "name": found.name,
                    "id": found.id,
                    "release_state": wanted.name,
                    "changed": changed,
                }
            )
    if form is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        write(f"{row['name']} is {'now' if row['changed'] else 'already'} {row['release_state']}")


def _found(db: Connection, name: str) -> DefinitionRow:
    from orcaflow.lookup import definition_named

    return definition_named(db, name)


def _row(found: DefinitionRow) -> dict[str, object]:
    return {
        "id": found.id,
        "name": found.name,
        "version": found.version,
        "release_state": found.release_state.name,
        "usable": found.usable,
        "project_id": found.project_id,
        "description": found.description,
        "create_time": found.create_time,
        "update_time": found.update_time,
    }
