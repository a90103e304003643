"""`orcaflow definition`: what is to run, from files into the database and back."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from operations.texts import counted
from orcaflow.cli.commands import definition_versions, reviews, shares
from orcaflow.cli.commands.definition_versions import report_findings
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    say,
    write,
    write_table,
)

if TYPE_CHECKING:
    from common.model.states import ReleaseState

app = typer.Typer(
    help="Import, look at, release and delete process definitions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="JSON or YAML; - is JSON of standard input."),
]
_StrictOption = Annotated[
    bool | None,
    typer.Option(
        "--strict/--lenient",
        help="Unknown keys are mistakes, or warnings. Without it they are mistakes in files that"
        " have Orcaflow's own form, and warnings in exports and bare JSON.",
        show_default=False,
    ),
]
_NameOption = Annotated[
    str | None, typer.Option("--name", help="Name for a file with one definition.")
]
_InlineOption = Annotated[
    bool | None,
    typer.Option(
        "--inline/--no-inline",
        help="Keep the text of `file` in the definition, or its path and SHA-256. Without it texts"
        " are kept if a server does the import, and paths at the database.",
        show_default=False,
    ),
]
_MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KIND:ID=NAME",
        help="The name here of an id or a code of another database; KIND is definition,"
        " datasource, worker-group, resource or tenant. Repeat.",
    ),
]
_Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names or ids of definitions.")
]


@app.command(
    name="import",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition import examples/flights/flights.json\n"
        "  orcaflow definition import bare.json --name nightly --offline\n"
        "  orcaflow definition import exported.json --map definition:42=load\n"
        "  orcaflow definition import from-3.2.json --map datasource:7=warehouse --offline\n"
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
    *,
    strict: _StrictOption = None,
    inline: _InlineOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Import definitions: all of them or, if anything is wrong, none.

    A file is a JSON object {"name": ..., "description": ..., "processDefinitionJson": {...}}, a
    list of them, the bare 1.2 JSON together with --name, or what DolphinScheduler 1.x, 2.x or 3.x
    exports. A file that ends in .yaml or .yml has the same in YAML.
    Importing a name again brings it to what the file says, and makes a new version only if
    something changed. Relative paths of scripts and jars are looked for beside the file. A key that
    is nearly a known one is a mistake.

    With --inline, the text of a script that a task names by `file` becomes part of the definition.
    With --no-inline, the definition keeps the path and the SHA-256 of the script; a worker runs it
    only if the file still has this SHA-256. Workers check jars and resources in the same way.

    Sub processes, dependent items, data sources and worker groups may be given by name
    (processDefinitionName, definitionName, datasourceName, workerGroup), which goes before an id.
    The ids and codes in an export are those of another database; where no file tells their names,
    --map does. Schedules are made too, always OFFLINE. What has no place here is listed. An export
    of 2.x or 3.x gets in whatever its tasks are: what can't run here, as a task type that is not
    known, keeps the definition OFFLINE, even with --online.

    The definitions go to the project in --project, else in the variable ORCAFLOW_PROJECT, else of
    the context in use, else to `default`.

    Fields: name, id, project, version, release_state, kept_offline, tasks, changed, schedules (id,
    crontab, new), schedule (the first of them, or null), unmapped (node, key, problem, cure,
    keeps_offline) and warnings (node, key, problem, cure).
    """
    import os

    from common.model.states import ReleaseState
    from operations.definitions import import_definitions
    from operations.documents.definitions import imported_row
    from operations.linting import read_files
    from operations.projects import DEFAULT_PROJECT
    from operations.session import goes_elsewhere, opened

    documents = read_files(
        files,
        name=name,
        mapped=mapped or (),
        strict=strict,
        standard_input=_standard_input(files),
        inlines=goes_elsewhere() if inline is None else inline,
    )
    with opened() as session:
        imported = import_definitions(
            session,
            documents,
            online=online,
            environment=os.environ,
            project_id=session.project_id or DEFAULT_PROJECT,
        )
    rows = [imported_row(each) for each in imported]
    for each in imported:
        report_findings(each.document.name, each.findings)
    if form is Format.JSON:
        print_json(rows)
        return
    for row, each in zip(rows, imported, strict=True):
        what = "imported" if row["changed"] else "unchanged"
        write(
            f"{what}: {row['name']} (version {row['version']},"
            f" {counted(each.document.task_count, 'task')}, {row['release_state']})"
            f" in project {each.project}"
        )
        if row["kept_offline"]:
            say("It stays OFFLINE, since parts of it are unmapped: see above.")
        elif row["release_state"] == ReleaseState.OFFLINE.name:
            say(f"It can't run before `orcaflow definition online {row['name']}`.")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition lint flights.json other.json\n"
        "  orcaflow definition lint exported.json -o json\n"
        "  generate-definition | orcaflow definition lint -\n"
    )
)
def lint(
    files: _Files,
    name: _NameOption = None,
    mapped: _MapOption = None,
    *,
    strict: _StrictOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Check files as `import` does, without a database; all mistakes are told, each with its place.

    Warnings tell what is allowed and may surprise, as a parameter that is declared nowhere; they
    don't change the exit code, which is 1 if there is any mistake. What a file refers to by name or
    by code may be in the database: only `import` looks there. Fields: definitions (file, name,
    tasks), mistakes (file, definition, node, key, problem), unmapped and warnings (file,
    definition, node, key, problem, cure; unmapped also keeps_offline).
    """
    from operations.definition_files import DefinitionDocument, InvalidFilesError, Mistake
    from operations.documents.definitions import lint_document
    from operations.linting import read_files

    mistakes: tuple[Mistake, ...] = ()
    documents: list[DefinitionDocument] = []
    try:
        documents = read_files(
            files,
            name=name,
            mapped=mapped or (),
            strict=strict,
            standard_input=_standard_input(files),
        )
    except InvalidFilesError as error:
        if form is not Format.JSON:
            raise
        mistakes = error.found
    if form is Format.JSON:
        print_json(lint_document(documents, mistakes))
    else:
        for document in documents:
            report_findings(document.name, document.findings)
        for document in documents:
            tasks = counted(document.task_count, "task")
            write(f"ok: {document.name} ({tasks}) in {document.file}")
    if mistakes:
        raise typer.Exit(1)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition convert tutorial.py --to definitions\n"
        "  orcaflow definition convert etl.py --python ~/ds/bin/python -o json\n"
    )
)
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of pydolphinscheduler.")],
    *,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The folder of the YAML files.")
    ] = Path(),
    python: Annotated[
        str,
        typer.Option("--python", help="An interpreter with apache-dolphinscheduler 4."),
    ] = "python3",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Let the file run no longer.")
    ] = "60s",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace files that are there.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Write what a file of pydolphinscheduler submits as definition files in YAML.

    A Python file runs as a program with your rights and submits to a recording gateway; the package
    reads a YAML file. No cluster is called. Paths of files are relative to --to. Data sources and
    other definitions keep their names and must exist at the import. What can't run here is listed,
    with exit code 1.

    Fields: definitions (definition, file, tasks, whole, unmapped, warnings, notes), resources
    (their paths), runs (names of definitions that the file runs, which is not done).
    """
    from datetime import timedelta

    from common.config import home
    from operations import converting
    from operations.documents.definitions import conversion_document
    from operations.times import read_seconds

    within = timedelta(seconds=read_seconds(timeout, field="timeout"))
    resources = home() / "resources"
    found = converting.convert(file, python=python, within=within, resources=resources, to=to)
    files = converting.save(found, to, replace=replace)
    if form is Format.JSON:
        print_json(conversion_document(found, files))
    else:
        for each, path in zip(found.converted, files, strict=True):
            report_findings(each.definition, each.findings)
            for note in each.notes:
                say(f"unmapped: {each.definition!r:.80}: {note}")
            write(f"written: {path} ({each.definition}, {counted(each.tasks, 'task')})")
        for name in found.resources:
            write(f"written: {to / name}")
        for name in found.runs:
            say(f"not run: {name!r}; `orcaflow run {name}` does, once it is imported")
    if not all(each.is_whole for each in found.converted):
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

    Fields: id, name, version, release_state, usable, project_id, project, description, create_time,
    update_time.
    """
    from operations.definitions import list_definitions
    from operations.documents.definitions import definition_row
    from operations.session import opened

    with opened() as session:
        rows = [definition_row(found) for found in list_definitions(session)]
    print_rows(
        rows,
        form=form,
        columns=(
            *("id", "project", "name", "version", "release_state", "update_time"),
            "description",
        ),
        zone=session.zone,
        none="There are no definitions; `orcaflow definition import FILE` brings some in.",
    )


@app.command(epilog="Example: orcaflow definition show flights")
def show(
    name: Annotated[str, typer.Argument(help="Name or id of the definition.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a definition with its tasks in the order of the DAG, and its schedules.

    Fields: those of `list`, execution_type, complement_date_rule, mistakes, schedules (as in their
    list), and tasks: name, type, upstream, max_retry_times, priority, forbidden, worker_group_id.
    """
    from operations.definitions import definition_detail
    from operations.documents.definitions import definition_row, node_row
    from operations.documents.schedules import SCHEDULE_COLUMNS, schedule_cells, schedule_row
    from operations.session import opened

    with opened() as session:
        found = definition_detail(session, name)
    more = {
        "execution_type": found.execution_type.name,
        "complement_date_rule": found.row.date_rule,
    }
    fields = definition_row(found.row) | more
    tasks = [node_row(node) for node in found.nodes]
    if form is Format.JSON:
        rows = [schedule_row(view, zone=found.zone) for view in found.schedules]
        mistakes = list(found.mistakes)
        print_json({**fields, "tasks": tasks, "schedules": rows, "mistakes": mistakes})
        return
    print_fields(fields, zone=session.zone)
    write("")
    if tasks:
        columns = ("name", "type", "upstream", "max_retry_times", "priority", "forbidden")
        write_table(tasks, columns)
    if found.schedules:
        write("\nschedules:")
        rows = [schedule_cells(view, zone=found.zone) for view in found.schedules]
        own = tuple(each for each in SCHEDULE_COLUMNS if each not in ("definition", "project"))
        write_table(rows, own, zone=session.zone)
    for mistake in found.mistakes:
        say(f"mistake: {mistake}")


class ExportForm(StrEnum):
    """The form of an exported definition."""

    JSON = "json"
    YAML = "yaml"


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition export flights > flights.json\n"
        "  orcaflow definition export flights --as yaml > flights.yaml\n"
        "  orcaflow definition export flights --version 3 > flights-3.json\n"
    )
)
def export(
    name: Annotated[str, typer.Argument(help="Name or id of the definition.")],
    *,
    as_: Annotated[
        ExportForm, typer.Option("--as", help="In YAML scripts are blocks of text.")
    ] = ExportForm.JSON,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Print secrets too, instead of references.")
    ] = False,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="As it was; schedules are left out.")
    ] = None,
) -> None:
    """Print a definition as a file that `import` takes, into this database or another.

    Other definitions, data sources and worker groups are named, since ids mean nothing elsewhere.
    Its schedules go along, without start-up parameters whose names say that they are secrets.
    For values whose names sound secret, and for passwords in URLs, there are references such as
    $ENV{ORCAFLOW_SECRET_DB_PASSWORD}: `import` looks them up in its environment, and otherwise
    keeps what the definition has there.
    """
    from operations.definition_versions import export_version
    from operations.definitions import export_definition
    from operations.session import opened

    if with_secrets and version is not None:
        raise typer.BadParameter("--with-secrets goes without --version: none are kept with it")
    with opened() as session:
        export = (
            export_definition(session, name, with_secrets=with_secrets)
            if version is None
            else export_version(session, name, version)
        )
    if as_ is ExportForm.YAML:
        from common.strict_yaml import yaml_text

        write(yaml_text(export.document).removesuffix("\n"))
    else:
        print_json(export.document)
    if export.references:
        say(
            f"{counted(len(export.references), 'secret')} left out: set"
            f" {', '.join(export.references)} for `orcaflow definition import`, which otherwise"
            " keeps those of a definition of this name; --with-secrets prints them"
        )


definition_versions.add_to(app)
reviews.add_to(app)
shares.add_to_definitions(app)


@app.command(epilog="Example: orcaflow definition online flights")
def online(names: _Names, form: FormatOption = Format.TABLE) -> None:
    """Release definitions, so that they can run; their schedules stay as they are.

    A definition with a task that can't run as it stands is refused.

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
    """The behaviour of a new run while another run of its definition goes on."""

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
    from common.model.states import ExecutionType
    from operations.definitions import set_execution_type
    from operations.documents.definitions import execution_type_row
    from operations.session import opened

    with opened() as session:
        done = set_execution_type(session, names, ExecutionType[execution_type.name])
    rows = [execution_type_row(each) for each in done]
    if form is Format.JSON:
        print_json(rows)
        return
    for row in rows:
        write(f"{row['name']} is {'now' if row['changed'] else 'already'} {row['execution_type']}")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow definition delete flights\n"
        "  orcaflow definition delete nightly region --instances\n"
    )
)
def delete(
    names: _Names,
    *,
    instances: Annotated[
        bool,
        typer.Option("--instances", help="Delete their runs too, as `instance delete` does."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With --instances: even if processes of lost attempts may still run."
        ),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete definitions that are OFFLINE, with their schedules, for good: all of these or none.

    Runs that have ended stay as history, and can't run again; --instances deletes them. `definition
    export` keeps a copy. Exit code 4, with the command that cures it, for a definition that is
    ONLINE, that has a live run, a waiting command or a complement that goes on, or that another
    definition or a live run refers to. Fields: deleted (id, name), schedules (ids), kept_instances
    (how many stay), instances (null, or as of `instance delete`).
    """
    from operations.deleting import delete_definitions
    from operations.documents.deletions import deleted_definition_rows
    from operations.session import opened
    from orcaflow.cli.screens.deletions import print_deleted, say_left

    if force and not instances:
        raise typer.BadParameter("--force goes with --instances")
    with opened() as session:
        done = delete_definitions(session, names, with_instances=instances, force=force)
    if form is Format.JSON:
        print_json(deleted_definition_rows(done))
        if done.instances is not None:
            say_left(done.instances)
        return
    for row in done.rows:
        write(escaped(f"{row.name} is deleted"))
    for number in done.schedules:
        write(f"schedule {number} is deleted")
    if done.instances is not None:
        print_deleted(done.instances)
    elif done.kept_instances:
        stay = "stays" if done.kept_instances == 1 else "stay"
        say(f"{counted(done.kept_instances, 'process instance')} {stay} as history")


def _release(names: list[str], wanted: ReleaseState, form: Format) -> None:
    from operations.definitions import release
    from operations.documents.definitions import released_row
    from operations.session import opened

    with opened() as session:
        released = release(session, names, wanted)
    for each in released:
        if each.has_offline_schedules:
            say(
                f"{each.row.name!r} has schedules that are OFFLINE; they fire after"
                f" `orcaflow schedule online --definition {each.row.name!r}`"
            )
    if form is Format.JSON:
        print_json([released_row(each) for each in released])
        return
    for each in released:
        done = "now" if each.changed else "already"
        write(f"{each.row.name} is {done} {each.release_state.name}")
        for number in each.schedules_taken_offline:
            write(f"schedule {number} is now OFFLINE")


def _standard_input(files: list[Path]) -> bytes:
    """Read standard input if one of the files means it, and no more than a file may have."""
    from common.strict_json import MAX_BYTES
    from operations.file_forms import STANDARD_INPUT

    is_meant = any(str(file) == STANDARD_INPUT for file in files)
    return sys.stdin.buffer.read(MAX_BYTES + 1) if is_meant else b""
