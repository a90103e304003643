"""Texts of pages: spans of time, moments in a zone, long names. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo


def span_text(span: timedelta | None) -> str:
    """Return `850 ms`, `5.8 s`, `1 m 40 s`, `2 h 05 m` or `3 d 4 h`; nothing for None."""
    if span is None:
        return ""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02} m"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def moment_text(moment: datetime | None, *, zone: tzinfo | None, now: datetime) -> str:
    """Return the time of today, or date and time, in this zone; nothing for None."""
    if moment is None:
        return ""
    there = moment.astimezone(zone)
    today = there.date() == now.astimezone(zone).date()
    return there.strftime("%H:%M:%S") if today else there.isoformat(" ", "seconds")[:19]


def exact_text(moment: datetime, *, zone: tzinfo | None) -> str:
    return moment.astimezone(zone).isoformat(" ", "milliseconds")


def elided(text: str, most: int) -> str:
    """Return a text of at most so many characters, without its middle: both ends tell more."""
    shown = "".join(each if each.isprintable() else "·" for each in text)
    if len(shown) <= most:
        return shown
    left = most // 2
    return f"{shown[:left]}…{shown[len(shown) - (most - left - 1) :]}"
