"""`orcaflow console`: opens the api-server in a browser, logged in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_json, say, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PAGE = '<!doctype html><meta http-equiv="refresh" content="0; url={}"><title>Orcaflow</title>\n'


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow console\n"
        "  orcaflow console --print\n"
        "  orcaflow console --print --user ada -o json\n"
    )
)
def console(
    *,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the link, and open no browser.")
    ] = False,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Log in as this user; else an administrator."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Open a browser at the api-server, logged in by a link that is good for 30 s, once.

    Whoever reaches the database may do this. Fields: user, url.
    """
    from common.config.addresses import api_url
    from operations.log_ins import make_link
    from operations.session import opened

    with opened() as session:
        address = api_url(session.config)
        made = make_link(session, user)
        home = session.config.home
    url = f"{address}/console?link={made.text}"
    if form is Format.JSON:
        print_json({"user": made.user_name, "url": url})
        return
    if not print_ and _browsed(home, url):
        say(escaped(f"a browser opens {address}, logged in as {made.user_name}"))
        return
    write(url)
    say(escaped(f"logs in as {made.user_name}, once, within 30 s"))


def _browsed(home: Path, url: str) -> bool:
    """Open a browser; False without one. The link goes by a file, since all can read arguments."""
    import secrets
    import webbrowser

    from common.folders import closed_folder

    folder = home / "console"
    closed_folder(folder)
    for old in folder.glob("*.html"):
        old.unlink(missing_ok=True)
    path = folder / f"{secrets.token_hex(8)}.html"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as page:
        page.write(_PAGE.format(url))
    opened = webbrowser.open(path.as_uri())
    if not opened:
        path.unlink(missing_ok=True)
    return opened
