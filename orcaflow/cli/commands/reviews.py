"""The subcommands of `orcaflow definition` about proposals: made, listed, decided, withdrawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    write,
)

if TYPE_CHECKING:
    from common.store.people.proposals import ProposalRow
    from operations.session import Session

_Name = Annotated[str, typer.Argument(help="Name or id of the definition.")]
_Number = Annotated[int, typer.Argument(metavar="ID", min=1, help="Id of the proposal.")]
_New = Annotated[
    bool, typer.Option("--new", help="It is of a definition that is to be made in the project.")
]
_Note = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What is to be known by whoever decides.")
]


_DEFAULT_PROJECT = "default"


class _Whose(TypedDict, total=False):
    definition: str
    project: str | int


def add_to(app: typer.Typer) -> None:
    """Add the subcommands to those of definitions."""
    app.command(
        epilog=(
            "\b\n"
            "Examples:\n"
            "  orcaflow definition propose nightly.json --note 'fewer retries'\n"
            "  orcaflow definition propose --draft nightly\n"
            "  orcaflow definition propose fresh.yaml --new --project sales\n"
        )
    )(propose)
    app.command(
        epilog=(
            "\b\n"
            "Examples:\n"
            "  orcaflow definition proposals nightly\n"
            "  orcaflow definition proposals nightly --show 5\n"
        )
    )(proposals)
    app.command(epilog="Example: orcaflow definition approve nightly 5")(approve)
    app.command(epilog="Example: orcaflow definition reject nightly 5 --reason 'too slow'")(reject)
    app.command(epilog="Example: orcaflow definition withdraw nightly 5")(withdraw)


def propose(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="File with one definition.")
    ] = None,
    *,
    draft: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Propose your draft of this definition, and no file."),
    ] = None,
    note: _Note = None,
    new: _New = False,
    inline: Annotated[
        bool,
        typer.Option(
            "--inline/--no-inline", help="Keep the text of `file` in it, or path and SHA-256."
        ),
    ] = True,
    form: FormatOption = Format.TABLE,
) -> None:
    """Propose a definition, which somebody else with the role admin in its project approves.

    It takes the place of what you have proposed before and still waits; the same thing again is
    the proposal that waits. Mistakes are found now. Schedules in the file are left out, and so are
    secrets: the definition keeps those that it has.

    Fields: id, project_id, definition_id (null: it is to be made), definition (its name), state,
    user, note, base_version, create_time, decided_by, decide_time, reason, version (the one that
    its approval has put in force).
    """
    from operations import proposals as operations
    from operations.linting import read_files
    from operations.session import opened

    if (file is None) == (draft is None):
        raise typer.BadParameter("give a file, or --draft with the name of a definition")
    if file is None:
        if new:
            raise typer.BadParameter("a new definition is proposed from a file here")
        with opened() as session:
            made = operations.propose(session, draft, note=note)
    else:
        documents = read_files([file], strict=None, inlines=inline)
        source = documents[0].source
        if len(documents) != 1 or source is None:
            raise typer.BadParameter(f"{file} has {len(documents)} definitions; give one")
        with opened() as session:
            whose = _whose(session, documents[0].name, new=new)
            made = operations.propose(session, document=dict(source.content), note=note, **whose)
    _print(made, "waits for somebody else's approval", form)


def proposals(
    name: _Name,
    *,
    show: Annotated[
        int | None, typer.Option(metavar="ID", min=1, help="All of this one, with its difference.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="No more than so many.")] = 20,
    new: _New = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the proposals of a definition, the newest first; with --new those of new ones.

    Fields: those of `propose`; with --show also document, difference and since (the fields of
    `diff`; since: what has changed in the definition meanwhile, or null), outdated, why_not (why
    you can't approve it; null if you can), and references (to definitions of other projects: task,
    starts, project, definition, version).
    """
    from operations import proposals as operations
    from operations.documents.reviews import PROPOSAL_COLUMNS, proposal_document, proposal_row
    from operations.session import opened

    with opened() as session:
        whose = _whose(session, name, new=new)
        if show is None:
            found = operations.proposals(session, limit=limit, **whose)
            print_rows(
                [proposal_row(each) for each in found],
                form=form,
                columns=PROPOSAL_COLUMNS,
                zone=session.zone,
                none="There are no proposals.",
            )
            return
        detail = operations.proposal_detail(session, show, **whose)
    if form is Format.JSON:
        print_json(proposal_document(detail))
        return
    from orcaflow.cli.screens.difference import print_changes

    shown = {**proposal_row(detail.row), "why_not": detail.why_not}
    print_fields({key: each for key, each in shown.items() if each is not None}, zone=session.zone)
    write("")
    print_changes(detail.difference)
    for each in detail.references:
        does = "runs" if each.starts else "waits for"
        write(
            f"other project: {escaped(each.task)} {does}"
            f" {escaped(each.project)}/{escaped(each.definition)} (version {each.version} now)"
        )


def approve(
    name: _Name,
    number: _Number,
    *,
    new: _New = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Put what somebody else has proposed in force, as a new version of the definition.

    Exit code 4 if it is your own, if it waits no more, or if the definition has changed since it
    was made. Fields: those of `propose`.
    """
    from operations import proposals as operations
    from operations.session import opened

    with opened() as session:
        done = operations.approve(session, number, **_whose(session, name, new=new))
    _print(done, f"is in force as version {done.version}", form)


def reject(
    name: _Name,
    number: _Number,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for its author.")],
    new: _New = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Reject what somebody else has proposed. Fields: those of `propose`."""
    from operations import proposals as operations
    from operations.session import opened

    with opened() as session:
        done = operations.reject(session, number, reason=reason, **_whose(session, name, new=new))
    _print(done, "is rejected", form)


def withdraw(
    name: _Name,
    number: _Number,
    *,
    new: _New = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Withdraw a proposal of yours, or as an admin anybody's. Fields: those of `propose`."""
    from operations import proposals as operations
    from operations.session import opened

    with opened() as session:
        done = operations.withdraw(session, number, **_whose(session, name, new=new))
    _print(done, "is withdrawn", form)


def _whose(session: Session, name: str, *, new: bool) -> _Whose:
    """Return the target of a proposal: the project of a new definition, or the definition."""
    return {"project": session.project_id or _DEFAULT_PROJECT} if new else {"definition": name}


def _print(row: ProposalRow, what: str, form: Format) -> None:
    from operations.documents.reviews import proposal_row

    if form is Format.JSON:
        print_json(proposal_row(row))
    else:
        write(escaped(f"proposal {row.id} of {row.name} {what}"))
