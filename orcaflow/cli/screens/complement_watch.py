"""Watches complements until they end: bars on a terminal, else a line for each ended date.

It only looks: whatever happens to the watcher, the complements go on. Notifications of the database
wake it, and a slow look at the tables stands behind them, since any notification may be missed.
Several are watched together where one waits for another.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from common.clock import SystemClock
from common.errors import ServiceUnreachableError
from common.store.listen import Channel
from common.store.people.complement_views import ComplementView
from operations.complement_progress import Sight, blocker, is_over, watcher_of
from operations.documents.complements import complement_row
from operations.session import Session
from orcaflow.cli.output import Format, print_json, say
from orcaflow.cli.screens.complement_display import Bars, Display, Lines, Quiet, closing
from orcaflow.cli.screens.watch import WatchTimeoutError

_LOOK_EVERY = 0.5
_DRAW_EVERY = timedelta(milliseconds=200)
# A complement of very many dates must not keep the database busy with being looked at.
_LOOK_SHARE = 20
_UNMOVED_AFTER = 10.0


def watch(
    session: Session,
    complement_ids: Sequence[int],
    *,
    timeout: timedelta | None = None,
    to_stdout: bool = True,
    quietly: bool = False,
) -> list[Sight]:
    """Show them until they have ended. Raises `WatchTimeoutError` after `timeout`.

    `to_stdout` false leaves standard output to others; `quietly` shows nothing but trouble.
    """
    stream = sys.stdout if to_stdout else sys.stderr
    with _display(session, to_stdout=to_stdout, quietly=quietly) as display:
        sights = _follow(session, complement_ids, display, timeout, quietly=quietly)
    if not quietly:
        for sight in sights:
            stream.write(closing(sight) + "\n")
        stream.flush()
    return sights


def ended(session: Session, complement_id: int, patience: timedelta | None) -> ComplementView:
    """The complement once it has ended. Raises `WatchTimeoutError`."""
    return watch(session, [complement_id], timeout=patience, to_stdout=False, quietly=True)[0].view


def watch_to_exit_code(
    session: Session, ids: Sequence[int], patience: timedelta | None, form: Format
) -> int:
    """Watch complements and print them; 0 if all succeeded, 1 if not, 130 after Ctrl-C."""
    try:
        sights = watch(session, ids, timeout=patience, to_stdout=form is not Format.JSON)
    except KeyboardInterrupt:
        which = " ".join(map(str, ids))
        first = ids[0]
        goes = "complement {} goes on" if len(ids) == 1 else "complements {} go on"
        say(
            f"\nNot watching any more; {goes.format(which)}."
            f" Watch: `orcaflow complement wait {which}`;"
            f" pause: `orcaflow complement pause {first}`;"
            f" cancel: `orcaflow complement cancel {first}`."
        )
        return 130
    if form is Format.JSON:
        now = SystemClock().now()
        print_json({"complements": [complement_row(sight.view, now=now) for sight in sights]})
    return 0 if all(sight.succeeded for sight in sights) else 1


def _follow(
    session: Session,
    complement_ids: Sequence[int],
    display: Display,
    timeout: timedelta | None,
    *,
    quietly: bool,
) -> list[Sight]:
    clock = SystemClock()
    begun = clock.monotonic()
    deadline = None if timeout is None else begun + timeout.total_seconds()
    look_at = 0.0
    sights: list[Sight] = []
    lost = warned = False
    watcher = watcher_of(session, complement_ids, briefly=quietly)
    channels = (Channel.PROCESS, Channel.COMPLEMENT)
    with session.news(channels, application_name="orcaflow-watch") as notifications:
        while True:
            before = clock.monotonic()
            if before >= look_at:
                try:
                    sights = watcher.observe()
                    lost = False
                except ServiceUnreachableError as error:
                    if not lost:
                        display.say(f"{error}; waiting for it")
                    lost = True
                took = clock.monotonic() - before
                look_at = before + max(_LOOK_EVERY, took * _LOOK_SHARE)
                if sights and not lost:
                    display.show(sights, now=clock.now())
                    if is_over(sights):
                        return sights
                    if not warned and before - begun >= _UNMOVED_AFTER:
                        blockers = [text for each in sights if (text := blocker(each))]
                        for text in blockers:
                            display.say(text)
                        warned = bool(blockers)
            elif sights:
                display.show([each.without_ended() for each in sights], now=clock.now())
            if deadline is not None and clock.monotonic() >= deadline:
                ids = " ".join(map(str, complement_ids))
                raise WatchTimeoutError(
                    f"complement {ids} has not ended within"
                    f" {timeout.total_seconds() if timeout else 0:g} s; it goes on:"
                    f" orcaflow complement wait {ids}"
                )
            rest = timedelta(seconds=max(0.0, look_at - clock.monotonic()))
            if deadline is not None:
                rest = min(rest, timedelta(seconds=max(0.0, deadline - clock.monotonic())))
            if notifications.wait(min(rest, _DRAW_EVERY)):
                # Some run has ended, or some complement was moved: it may be one of these. Many
                # that end together are one look.
                look_at = min(look_at, before + max(_DRAW_EVERY.total_seconds(), took * 2))


@contextmanager
def _display(session: Session, *, to_stdout: bool, quietly: bool) -> Iterator[Display]:
    stream = sys.stdout if to_stdout else sys.stderr

    def put(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    if quietly:
        yield Quiet(put)
        return
    if not stream.isatty():
        yield Lines(put, session.zone)
        return
    # Only here: rich takes a while to import.
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=not to_stdout)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Bars(console, lambda drawn: live.update(drawn, refresh=True), session.zone)
