"""`orcaflow version`, and the line of `orcaflow --version`."""

from __future__ import annotations

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_EXAMPLES = "Example: orcaflow version -o json"


@app.command(epilog=_EXAMPLES)
def version(form: FormatOption = Format.TABLE) -> None:
    """Print the version of Orcaflow and of what it runs on."""
    if form is Format.JSON:
        print_json(_versions())
    else:
        write(version_line())


def version_line() -> str:
    """The versions in one line for people."""
    row = _versions()
    return f"orcaflow {row['orcaflow']} (Python {row['python']})"


def _versions() -> dict[str, str]:
    import platform

    from operations.installation import orcaflow_version

    return {"orcaflow": orcaflow_version(), "python": platform.python_version()}
