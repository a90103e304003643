"""`orcaflow version`."""

from __future__ import annotations

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_EXAMPLES = "Example: orcaflow version -o json"


@app.command(epilog=_EXAMPLES)
def version(form: FormatOption = Format.TABLE) -> None:
    """Print the version of Orcaflow and of what it runs on."""
    import platform

    from operations.installation import orcaflow_version

    row = {"orcaflow": orcaflow_version(), "python": platform.python_version()}
    if form is Format.JSON:
        print_json(row)
    else:
        write(f"orcaflow {row['orcaflow']} (Python {row['python']})")
