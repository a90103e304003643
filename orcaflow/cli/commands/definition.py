"""`orcaflow definition`: what is to run, from files into the database and back."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from operations.texts import counted
from orcaflow.cli.output import (
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
    from collections.abc import Iterable

    from common.model.states import ReleaseState
    from common.store.connect import Connection
    from common.store.people.definitions import DefinitionRow
    from operations.definition_files import DefinitionDocument
    from operations.findings import Finding, Severity
    from operations.references import Kind

app = typer.Typer(
    help="Import, look at and release process definitions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON files.")]
_NameOption = Annotated[
    str | None, typer.Option("--name", help="Name for a file with one definition.")
]
_MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KIND:ID=NAME",
        help="What an id of another database is called here; KIND is definition, datasource,"
        " worker-group, resource or tenant. Repeat.",
    ),
]
_Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of definitions.")]


@app.command(
    name="import",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition import examples/flights/flights.json\n"
        "  orcaflow definition import bare.json --name nightly --offline\n"
        "  orcaflow definition import exported.json --map definition:42=load\n"
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
    mapped: _MapOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Import definitions: all of them or, if anything is wrong, none.

    A file is a JSON object {"name": ..., "description": ..., "processDefinitionJson": {...}}, a
    list of them, the bare 1.2 JSON together with --name, or what DolphinScheduler 1.x exports.
    Importing a name again brings it to what the file says, and makes a new version only if
    something changed. Relative paths of scripts and jars are looked for beside the file.

    Sub processes, dependent items, data sources and worker groups may be given by name
    (processDefinitionName, definitionName, datasourceName, workerGroup), which goes before an id.
    The ids in an export are those of another database; where the file does not tell their names,
    --map does. The schedule of an export is made too, always OFFLINE. What has no place here, as an
    alert group, is listed. Fields: name, id, version, release_state, tasks, changed, schedule
    (null, or id, crontab, new), unmapped and warnings (both: node, key, problem, cure).
    """
    from common.clock import SystemClock
    from common.model.states import ReleaseState
    from operations.findings import Severity
    from operations.importing import import_documents
    from operations.session import opened
    from operations.times import cluster_zone

    documents = _read(files, name, mapped)
    with opened() as session, session.engine.begin() as db:
        imported = import_documents(
            db,
            documents,
            at=SystemClock().now(),
            online=online,
            zone=cluster_zone(session.config),
        )
    rows: list[dict[str, object]] = [
        {
            "name": each.document.name,
            "id": each.id,
            "version": each.version,
            "release_state": each.release_state.name,
            "tasks": each.document.task_count,
            "changed": each.changed,
            "schedule": None
            if each.schedule is None
            else {
                "id": each.schedule.id,
                "crontab": each.schedule.crontab,
                "new": each.schedule.is_new,
            },
            "unmapped": _finding_rows(each.findings, Severity.UNMAPPED),
            "warnings": _finding_rows(each.findings, Severity.WARNING),
        }
        for each in imported
    ]
    for each in imported:
        _tell_findings(each.document.name, each.findings)
    if form is Format.JSON:
        print_json(rows)
        return
    for row, each in zip(rows, imported, strict=True):
        what = "imported" if row["changed"] else "unchanged"
        write(
            f"{what}: {row['name']} (version {row['version']},"
            f" {counted(each.document.task_count, 'task')}, {row['release_state']})"
        )
        if row["release_state"] == ReleaseState.OFFLINE.name:
            say(f"It can't run before `orcaflow definition online {row['name']}`.")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition lint flights.json other.json\n"
        "  orcaflow definition lint exported.json -o json\n"
    )
)
def lint(
    files: _Files,
    name: _NameOption = None,
    mapped: _MapOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Check files as `import` does, without a database; all mistakes are told, each with its place.

    Warnings tell what is allowed and may surprise; they don't change the exit code, which is 1 if
    there is any mistake. What a file refers to by name may be in the database: only `import` looks
    there. Fields: definitions (file, name, tasks), mistakes (file, definition, node, key, problem),
    unmapped and warnings (file, definition, node, key, problem, cure).
    """
    from operations.definition_files import InvalidFilesError
    from operations.findings import Severity

    mistakes: list[dict[str, object]] = []
    documents: list[DefinitionDocument] = []
    try:
        documents = _read(files, name, mapped)
    except InvalidFilesError as error:
        if form is not Format.JSON:
            raise
        mistakes = [mistake.row() for mistake in error.found]
    rows = [
        {"file": str(document.file), "name": document.name, "tasks": document.task_count}
        for document in documents
    ]
    if form is Format.JSON:
        found: dict[str, list[dict[str, object]]] = {"unmapped": [], "warnings": []}
        for key, severity in (("unmapped", Severity.UNMAPPED), ("warnings", Severity.WARNING)):
            for document in documents:
                place = {"file": str(document.file), "definition": document.name}
                found[key].extend(
                    {**place, **row} for row in _finding_rows(document.findings, severity)
                )
        print_json({"definitions": rows, "mistakes": mistakes, **found})
    else:
        for document in documents:
            _tell_findings(document.name, document.findings)
        for document in documents:
            tasks = counted(document.task_count, "task")
            write(f"ok: {document.name} ({tasks}) in {document.file}")
    if mistakes:
        raise typer.Exit(1)


@app.command(epilog="Example: orcaflow definition schema > definition.schema.json")
def schema() -> None:
    """Print the JSON schema (2020-12) of a definition file, for editors and other programs.

    It knows the task types that are installed here, with their keys. It asks no database.
    """
    from operations.definition_schema import schema_of_files

    print_json(schema_of_files())


@app.command(name="list", epilog="Example: orcaflow definition list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the definitions.

    Fields: id, name, version, release_state, usable, project_id, description, create_time,
    update_time.
    """
    from common.store.people.definitions import definitions
    from operations.session import opened

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
    """Show a definition with its tasks in the order of the DAG, and its schedules.

    Fields: those of `list`, execution_type, and tasks: name, type, upstream, max_retry_times,
    priority, forbidden, worker_group_id; schedules (as in `schedule list`); and mistakes, if it
    can't run as it stands.
    """
    from common.errors import InvalidDefinitionError
    from common.model.definitions import read_process_json
    from common.model.states import ExecutionType
    from common.store.people.definitions import execution_type_of
    from common.store.people.schedule_views import schedules
    from common.task_types import known_task_types
    from operations.documents.schedules import SCHEDULE_COLUMNS, schedule_cells, schedule_row
    from operations.session import opened
    from operations.times import cluster_zone

    with opened() as session, session.engine.connect() as db:
        found = _found(db, name)
        kind = ExecutionType(execution_type_of(db, found.id))
        views = schedules(db, definition_id=found.id)
    zone = cluster_zone(session.config)
    fields = {**_row(found), "execution_type": kind.name}
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
        rows = [schedule_row(view, zone=zone) for view in views]
        print_json({**fields, "tasks": tasks, "schedules": rows, "mistakes": mistakes})
        return
    print_fields(fields, zone=session.zone)
    write("")
    if tasks:
        columns = ("name", "type", "upstream", "max_retry_times", "priority", "forbidden")
        write(table(tasks, columns))
    if views:
        write("\nschedules:")
        rows = [schedule_cells(view, zone=zone) for view in views]
        write(table(rows, [each for each in SCHEDULE_COLUMNS if each != "definition"]))
    for mistake in mistakes:
        say(f"mistake: {mistake}")


@app.command(epilog="Example: orcaflow definition export flights > flights.json")
def export(
    name: Annotated[str, typer.Argument(help="Name of the definition.")],
) -> None:
    """Print a definition as a file that `import` takes, into this database or another.

    Other definitions, data sources and worker groups are named, since ids mean nothing elsewhere.
    """
    from operations.exporting import exported
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        print_json(exported(db, _found(db, name)))


@app.command(epilog="Example: orcaflow definition online flights")
def online(names: _Names, form: FormatOption = Format.TABLE) -> None:
    """Release definitions, so that they can run; their schedules stay as they are.

    Fields: name, id, release_state, changed, schedules (none).
    """
    from common.model.states import ReleaseState

    _release(names, ReleaseState.ONLINE, form)


@app.command(epilog="Example: orcaflow definition offline flights")
def offline(names: _Names, form: FormatOption = Format.TABLE) -> None:
    """Let no new run of these begin, and set their schedules OFFLINE; what runs goes on.

    Fields: name, id, release_state, changed, schedules (ids of those that were ONLINE).
    """
    from common.model.states import ReleaseState

    _release(names, ReleaseState.OFFLINE, form)


class ExecutionChoice(StrEnum):
    """What a new run does while another run of the same definition goes on."""

    PARALLEL = "parallel"
    SERIAL_WAIT = "serial-wait"
    SERIAL_DISCARD = "serial-discard"
    SERIAL_PRIORITY = "serial-priority"


@app.command(
    name="set",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition set flights --execution-type serial-wait\n"
        "  orcaflow definition set flights --execution-type parallel\n"
    ),
)
def set_(
    names: _Names,
    *,
    execution_type: Annotated[
        ExecutionChoice,
        typer.Option(
            "--execution-type",
            help="What a new run does while another goes on: run beside it, wait for its end, end"
            " at once, or have it stopped and then begin.",
        ),
    ],
    form: FormatOption = Format.TABLE,
) -> None:
    """Change how definitions run; runs that have begun or wait already stay as they are.

    Fields: name, id, execution_type, changed.
    """
    from common.clock import SystemClock
    from common.model.states import ExecutionType
    from common.store.people.definitions import set_execution_type
    from operations.session import opened

    wanted = ExecutionType[execution_type.name]
    rows = []
    with opened() as session, session.engine.begin() as db:
        for found in [_found(db, name) for name in names]:
            changed = set_execution_type(db, found.id, wanted=int(wanted), at=SystemClock().now())
            rows.append(
                {
                    "name": found.name,
                    "id": found.id,
                    "execution_type": wanted.name,
                    "changed": changed,
                }
            )
    if form is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        write(f"{row['name']} is {'now' if row['changed'] else 'already'} {row['execution_type']}")


def _read(
    files: list[Path], name: str | None, mapped: list[str] | None = None
) -> list[DefinitionDocument]:
    from common.config import load
    from operations.definition_files import read_definition_files

    return read_definition_files(
        files, resources=load().home / "resources", name=name, given=_given(mapped or [])
    )


def _given(pairs: list[str]) -> dict[tuple[Kind, int], str]:
    from operations.references import Kind

    kinds = {kind.value: kind for kind in Kind}
    given: dict[tuple[Kind, int], str] = {}
    for pair in pairs:
        kind, _, rest = pair.partition(":")
        number, equals, name = rest.partition("=")
        known = kinds.get(kind.strip())
        number = number.strip()
        if known is None or not equals or not number.isdecimal() or not name.strip():
            raise typer.BadParameter(
                f"{pair!r} is not KIND:ID=NAME, as definition:42=load is;"
                f" KIND is one of {', '.join(kinds)}",
                param_hint="--map",
            )
        given[known, int(number[:10])] = name.strip()
    return given


def _finding_rows(findings: Iterable[Finding], severity: Severity) -> list[dict[str, object]]:
    return [
        {"node": each.node, "key": each.key, "problem": each.problem, "cure": each.cure or None}
        for each in findings
        if each.severity is severity
    ]


def _tell_findings(name: str, findings: Iterable[Finding]) -> None:
    for each in findings:
        say(f"{each.severity.value}: {name!r:.80}: {each}")


def _release(names: list[str], wanted: ReleaseState, form: Format) -> None:
    from common.clock import SystemClock
    from common.model.states import ReleaseState
    from common.store.people.definitions import set_release_state
    from common.store.people.schedule_requests import take_schedules_offline
    from common.store.people.schedule_views import schedules
    from operations.session import opened

    rows = []
    waiting: list[str] = []
    with opened() as session, session.engine.begin() as db:
        found = [_found(db, name) for name in names]
        changed: dict[int, bool] = {}
        # In the order of their ids, as everybody locks definitions.
        for number in sorted({each.id for each in found}):
            changed[number] = set_release_state(db, number, wanted=wanted, at=SystemClock().now())
        taken: dict[int, list[int]] = {}
        if wanted is ReleaseState.OFFLINE:
            taken = take_schedules_offline(db, sorted(changed), at=SystemClock().now())
        for each in found:
            if wanted is ReleaseState.ONLINE and any(
                view.release_state == ReleaseState.OFFLINE
                for view in schedules(db, definition_id=each.id)
            ):
                waiting.append(each.name)
            rows.append(
                {
                    "name": each.name,
                    "id": each.id,
                    "release_state": wanted.name,
                    "changed": changed[each.id],
                    "schedules": taken.get(each.id, []),
                }
            )
    for name in waiting:
        say(
            f"{name!r} has schedules that are OFFLINE; they fire after"
            f" `orcaflow schedule online --definition {name!r}`"
        )
    if form is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        write(f"{row['name']} is {'now' if row['changed'] else 'already'} {row['release_state']}")
        for number in cast("list[int]", row["schedules"]):
            write(f"schedule {number} is now OFFLINE")


def _found(db: Connection, name: str) -> DefinitionRow:
    from operations.lookup import definition_named

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
