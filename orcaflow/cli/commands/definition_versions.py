"""The subcommands of `orcaflow definition` about versions: `versions`, `diff`, `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from operations.texts import counted
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_json,
    print_rows,
    say,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from operations.findings import Finding

_Name = Annotated[str, typer.Argument(help="Name or id of the definition.")]


def add_to(app: typer.Typer) -> None:
    """Add the subcommands to those of definitions."""
    app.command(epilog="Example: orcaflow definition versions flights")(versions)
    app.command(
        epilog=(
            "\b\n"
            "Examples:\n"
            "  orcaflow definition diff flights\n"
            "  orcaflow definition diff flights --from 3 --to 7 -o json\n"
        )
    )(diff)
    app.command(epilog="Example: orcaflow definition restore flights 3")(restore)


def versions(
    name: _Name,
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the versions of a definition, the newest first.

    Fields: version, current, user (`database` for the command line there; null: nobody is known),
    create_time, note.
    """
    from operations import definition_versions
    from operations.documents.definition_versions import VERSION_COLUMNS, version_row
    from operations.session import opened

    with opened() as session:
        found = definition_versions.versions(session, name, limit=limit)
    print_rows(
        [version_row(each) for each in found],
        form=form,
        columns=VERSION_COLUMNS,
        zone=session.zone,
        none="There are no versions.",
    )


def diff(
    name: _Name,
    *,
    before: Annotated[
        int | None, typer.Option("--from", metavar="VERSION", min=1, help="Else the one before.")
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", metavar="VERSION", min=1, help="Else the one in force.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare two versions of a definition: tasks, edges, parameters, scripts line by line.

    Secrets are masked, so that a change of a secret alone is no difference.

    Fields: definition, from, to, added and removed (names of tasks), changed (name, was: its name
    before, changes), edges_added and edges_removed (pairs of names), settings, risks (sentences).
    Each change: key, before, after, lines (of a text, as diff -u prints them).
    """
    from operations import definition_versions
    from operations.documents.definition_versions import difference_document
    from operations.session import opened
    from orcaflow.cli.screens.difference import print_difference

    with opened() as session:
        found = definition_versions.compare(session, name, before=before, after=after)
    if form is Format.JSON:
        print_json(difference_document(found))
    else:
        print_difference(found)


def restore(
    name: _Name,
    version: Annotated[int, typer.Argument(min=1, help="Version to bring back.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Save an old version of a definition once more, as its newest one.

    The definition keeps its name, its schedules and its release state; what runs goes on as it is.
    Secrets are those that it has now. If it has lost one since, `definition export --version` and
    `definition import` with the variable set bring the version back.

    Fields: those of `import`.
    """
    from operations import definition_versions
    from operations.documents.definitions import imported_row
    from operations.session import opened

    with opened() as session:
        done = definition_versions.restore(session, name, version)
    row = imported_row(done)
    report_findings(done.document.name, done.findings)
    if form is Format.JSON:
        print_json(row)
        return
    tasks = counted(done.document.task_count, "task")
    shown = escaped(done.document.name)
    if row["changed"]:
        write(
            f"restored: {shown} (version {done.version} is as version {version},"
            f" {tasks}, {row['release_state']})"
        )
    else:
        write(f"unchanged: {shown} (version {done.version}, {tasks}, {row['release_state']})")


def report_findings(name: str, findings: Iterable[Finding]) -> None:
    """Say on standard error what the author of a definition should know."""
    for each in findings:
        offline = ", kept OFFLINE" if each.keeps_offline else ""
        say(f"{each.severity.value}{offline}: {name!r:.80}: {each}")
