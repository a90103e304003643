"""`orcaflow doctor`: what is missing, and how to get it."""

from __future__ import annotations

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_json, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_EXAMPLES = "Example: orcaflow doctor"


@app.command(epilog=_EXAMPLES)
def doctor(form: FormatOption = Format.TABLE) -> None:
    """Look at everything that Orcaflow needs, and tell the cure for what is missing.

    Exit code 0 if nothing failed (a warning is no failure), else 1. Fields: check, result (ok,
    warning, failed), detail, cure.
    """
    from dataclasses import asdict

    from operations.checks import Result, findings

    found = findings()
    if form is Format.JSON:
        print_json([asdict(each) for each in found])
    else:
        width = max(len(each.check) for each in found)
        for each in found:
            write(f"{each.result:<8} {each.check:<{width}}  {escaped(each.detail)}")
            if each.cure:
                write(f"{'':<8} {'':<{width}}  cure: {escaped(each.cure)}")
    if any(each.result is Result.FAILED for each in found):
        raise typer.Exit(1)
